"""What was spent: charges added up with the replies that cost nothing, and how the caps stand."""

from __future__ import annotations

from collections.abc import Callable
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


async def presume_orphans(database: Database, constellation: str, now: int) -> None:
    """Count money as spent that a process held when it died: a model may have answered.

    Where other processes may be at work, only what was held by turns that have had their time.
    """
    if await database.read(lambda tx: spending.any_reserved(tx, constellation)):
        before = now if database.distributed else None
        await database.write(lambda tx: spending.presume_orphans(tx, constellation, before))


async def read_spend(
    tx: Connection,
    settings: Settings,
    price: Callable[[str], Price | None],
    now: int,
    days: int,
    agent_id: str | None,
) -> Spend:
    """Return what was spent in the last `days` days, today among them."""
    budget, constellation = settings.budget.budget, settings.constellation
    today = budget.today(now)
    start = today - timedelta(days=max(days, 1) - 1)
    first, last = f"{start:%Y-%m-%d}", f"{today:%Y-%m-%d}"
    lines: dict[_Key, SpendLine] = {}
    for one in await spending.sums(tx, constellation, first, last, agent_id):
        line = _line(lines, (one.day, one.agent, one.person, one.model), 0)
        key = (one.day, one.agent, one.person, one.model)
        if one.state is ChargeState.RESERVED:
            lines[key] = replace(line, reserved=line.reserved + one.amount)
            continue
        counted = replace(line, calls=line.calls + one.calls, usage=line.usage + one.usage)
        if one.state is ChargeState.PRESUMED:
            lines[key] = replace(counted, presumed=line.presumed + one.amount)
        else:
            lines[key] = replace(counted, cost=(line.cost or 0) + one.amount)
    since = int(datetime.combine(start, time(), budget.zone).timestamp() * 1000)
    for reply in await spending.unpaid_replies(tx, constellation, since, agent_id):
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
    budget, constellation = settings.budget.budget, settings.constellation
    periods = budget.periods(now)
    totals = {
        (total.period, total.scope): total
        for total in await spending.totals(tx, constellation, periods.values())
    }
    found: dict[str, Standing] = {}
    for payer in await _payers(tx, constellation, budget, list(totals.values())):
        for cap in budget.caps(payer):
            if cap.scope == "agent:":
                continue
            period = periods[cap.span]
            total = totals.get((period, cap.scope)) or Total(cap.scope, period)
            found[f"{cap.scope}/{cap.span}"] = Standing(cap, total, budget.renewal(cap.span, now))
    return list(found.values())


async def _payers(
    tx: Connection, constellation: str, budget: Budget, totals: list[Total]
) -> list[Payer]:
    nobody = Payer("", "")
    everyone = [Payer(agent.id, agent.name) for agent in await agents.everyone(tx, constellation)]
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
        """Return what was spent in the last days, today among them, and how the caps stand."""
        if days > MAX_DAYS:
            raise InvalidInput(f"{days:,} days are too many; {MAX_DAYS:,} is the most.")
        agent_id = await self._session.id_of(agent) if agent is not None else None
        settings, now = self._engine.settings, self._session.clock()
        return await self._session.database.read(
            lambda tx: read_spend(tx, settings, self._engine.prices.of, now, days, agent_id)
        )

    async def caps(self) -> list[Standing]:
        """Return how much of each cap is used in the day or the month that it runs for."""
        settings, now = self._engine.settings, self._session.clock()
        return await self._session.database.read(lambda tx: standings(tx, settings, now))
