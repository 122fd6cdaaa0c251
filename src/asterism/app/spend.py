"""What was spent: charges added up with the replies that cost nothing, and how the caps stand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import datetime, time, timedelta
from typing import Any

from asterism.config import Settings
from asterism.store import agents, spending
from asterism.store.database import Connection, Database
from asterism.turns.watch import Hub
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
from asterism.types.turns import Outcome, Receipt, Signal, TurnState, Usage

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
    everyone = [Payer(one.id, one.name) for one in await agents.everyone(tx, constellation)]
    scopes = {total.scope for total in totals}
    persons = {scope.removeprefix("person:") for scope in scopes if scope.startswith("person:")}
    groups = {scope.removeprefix("group:") for scope in scopes if scope.startswith("group:")}
    return [
        *(everyone or [nobody]),
        *(replace(nobody, person=name) for name in sorted(persons | set(budget.persons))),
        *(replace(nobody, group=name) for name in sorted(groups | set(budget.groups))),
    ]


async def signals_of_turn(
    hub: Hub,
    wait: Callable[[Receipt], Coroutine[Any, Any, Outcome]],
    agent_id: str,
    hand_in: Callable[[], Awaitable[Receipt]],
) -> AsyncGenerator[Signal, None]:
    """Hand something in and yield the signals of its turn, `ended` or `parked` the last."""
    hub.keep(agent_id)
    signals = hub.watch(agent_id)
    first = asyncio.ensure_future(anext(signals))
    await asyncio.sleep(0)  # the watch has begun before anything is handed in
    ended: asyncio.Future[Outcome] | None = None
    try:
        receipt = await hand_in()
        ended = asyncio.ensure_future(wait(receipt))
        while True:
            await asyncio.wait({first, ended}, return_when=asyncio.FIRST_COMPLETED)
            if first.done():
                signal = first.result()
                if signal.turn_id == receipt.turn_id:
                    if signal.kind not in ("ended", "parked"):
                        yield signal
                    else:
                        break
                first = asyncio.ensure_future(anext(signals))
            elif ended.done():
                break
        outcome = await ended
        yield last_signal(outcome)
    finally:
        first.cancel()
        if ended is not None:
            ended.cancel()
        await asyncio.gather(first, *([ended] if ended else []), return_exceptions=True)
        await signals.aclose()


def last_signal(outcome: Outcome) -> Signal:
    """Return the signal that tells how a turn ended, or that it waits."""
    kind = "parked" if outcome.state is TurnState.PARKED else "ended"
    data = {"state": outcome.state.value, "text": outcome.text}
    return Signal("", outcome.agent_id, outcome.turn_id, kind, data)
