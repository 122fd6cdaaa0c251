"""Reports of spending: sums of charges and of free replies, and the state of the caps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, time, timedelta

from asterism.app.engine import Engine
from asterism.app.session import Session, verbs
from asterism.config import Settings
from asterism.errors import InvalidInput
from asterism.permissions import Act
from asterism.store import agents, spending
from asterism.store.database import Connection, Database
from asterism.types.agents import AgentRecord
from asterism.types.spending import (
    Budget,
    ChargeState,
    Payer,
    Price,
    Spend,
    SpendLine,
    Standing,
    Total,
)
from asterism.types.turns import Usage

MAX_DAYS = 36_500

_Key = tuple[str, str, str | None, str]


async def presume_orphans(database: Database, now: int) -> None:
    """Count the reservations of a dead process as spent: a model may have answered.

    If other processes may be at work, only reservations of turns that are over count.
    """
    if await database.read(spending.any_reserved):
        before = now if database.distributed else None
        await database.write(lambda tx: spending.presume_orphans(tx, before))


async def read_spend(
    tx: Connection,
    settings: Settings,
    price: Callable[[str], Price | None],
    now: int,
    days: int,
    agent_id: str | None,
) -> Spend:
    """Return the spending of the last `days` days, including today."""
    budget = settings.spending_caps
    today = budget.today(now)
    start = today - timedelta(days=max(days, 1) - 1)
    first, last = f"{start:%Y-%m-%d}", f"{today:%Y-%m-%d}"
    lines: dict[_Key, SpendLine] = {}
    for row in await spending.sums(tx, first, last, agent_id):
        line = _line(lines, (row.day, row.agent, row.person, row.model), 0)
        key = (row.day, row.agent, row.person, row.model)
        if row.state is ChargeState.RESERVED:
            lines[key] = replace(line, reserved=line.reserved + row.amount)
            continue
        counted = replace(line, calls=line.calls + row.calls, usage=line.usage + row.usage)
        if row.state is ChargeState.PRESUMED:
            lines[key] = replace(counted, presumed=line.presumed + row.amount)
        else:
            lines[key] = replace(counted, cost=(line.cost or 0) + row.amount)
    since = int(datetime.combine(start, time(), budget.zone).timestamp() * 1000)
    for reply in await spending.unpaid_replies(tx, since, agent_id):
        known = price(reply.model) if reply.model else None
        day = f"{budget.today(reply.at):%Y-%m-%d}"
        key = (day, reply.agent, reply.person, reply.model)
        line = _line(lines, key, 0 if known is not None and known.free else None)
        lines[key] = replace(line, calls=line.calls + 1, usage=line.usage + reply.usage)
    return Spend(
        first,
        last,
        tuple(
            lines[key] for key in sorted(lines, key=lambda key: (*key[:2], key[2] or "", key[3]))
        ),
        tuple(await standings(tx, settings, now)),
    )


def _line(lines: dict[_Key, SpendLine], key: _Key, cost: int | None) -> SpendLine:
    return lines.get(key) or SpendLine(*key, calls=0, usage=Usage(), cost=cost)


async def standings(tx: Connection, settings: Settings, now: int) -> list[Standing]:
    """Return how much of each cap is used: every agent's, and every person's who is known."""
    budget = settings.spending_caps
    periods = budget.periods(now)
    totals = {
        (total.period, total.scope): total for total in await spending.totals(tx, periods.values())
    }
    by_cap: dict[str, Standing] = {}
    for payer in await _payers(tx, budget, list(totals.values())):
        for cap in budget.caps(payer):
            if cap.scope == "agent:":
                continue
            period = periods[cap.span]
            total = totals.get((period, cap.scope)) or Total(cap.scope, period)
            by_cap[f"{cap.scope}/{cap.span}"] = Standing(cap, total, budget.renewal(cap.span, now))
    return list(by_cap.values())


async def _payers(tx: Connection, budget: Budget, totals: list[Total]) -> list[Payer]:
    nobody = Payer("", "")
    everyone = [Payer(agent.id, agent.name) for agent in await agents.everyone(tx)]
    scopes = {total.scope for total in totals}
    persons = {scope.removeprefix("person:") for scope in scopes if scope.startswith("person:")}
    groups = {scope.removeprefix("group:") for scope in scopes if scope.startswith("group:")}
    return [
        *(everyone or [nobody]),
        *(replace(nobody, person=name) for name in sorted(persons | set(budget.persons))),
        *(replace(nobody, group=name) for name in sorted(groups | set(budget.groups))),
    ]


@verbs("spending", report=Act.READ, caps=Act.READ)
class SpendingReports:
    """What models cost, and how much of each cap is used."""

    def __init__(self, engine: Engine, session: Session) -> None:
        self._engine = engine
        self._session = session

    async def report(self, days: int = 30, *, agent: AgentRecord | str | None = None) -> Spend:
        """Return the spending of the last days, including today, and the state of the caps."""
        if days > MAX_DAYS:
            raise InvalidInput(f"{days:,} days are too many; {MAX_DAYS:,} is the most.")
        agent_id = await self._session.id_of_any(agent)
        settings, now = self._engine.settings, self._session.clock()
        spend = await self._session.database.read(
            lambda tx: read_spend(tx, settings, self._engine.prices.of, now, days, agent_id)
        )
        return replace(spend, standings=tuple(self._visible(spend.standings)))

    async def caps(self) -> list[Standing]:
        """Return how much of each cap is used in the day or the month that it runs for."""
        settings, now = self._engine.settings, self._session.clock()
        return self._visible(
            await self._session.database.read(lambda tx: standings(tx, settings, now))
        )

    def _visible(self, there: Sequence[Standing]) -> list[Standing]:
        """Return the caps of agents that exist for the actor; all caps, if all agents do."""
        session = self._session
        if session.only_agents is None:
            return [*there]
        return [
            standing
            for standing in there
            if session.sees_agent(standing.cap.scope.removeprefix("agent:"))
        ]
