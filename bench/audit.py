"""`python -m bench.audit`: what the audit log costs a turn, and how fast it is verified."""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from asterism import Asterism, tool
from asterism.store import events
from asterism.store.database import Connection, Database, Values
from asterism.store.events import Event, verify
from asterism.store.sqlite import open_sqlite
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import Call, Reply

_WARM = 20
_BATCHES = 40
"""In turns with and without events: a busy machine then slows both down."""


def cpu() -> float:
    """Return the seconds of CPU that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@tool(repeatable=True)
def record(note: str) -> str:
    """Record a note."""
    return f"recorded {note}"


def made(turn: str, number: int) -> list[Event]:
    """Return what a turn with one call leaves."""
    agent = "agent_0123456789abcdef01234567"
    call = {"what": f'record({{"note": "item {number}"}})', "verdict": "allow", "key": "0/call/0"}
    return [
        Event("call.allowed", "agent:aria", number, call, agent, turn),
        Event("call.done", "agent:aria", number, {**call, "result": "ok"}, agent, turn),
        Event("turn.ended", "agent:aria", number, {"state": "done", "steps": 2}, agent, turn),
    ]


class Counted:
    """A connection that counts its statements."""

    def __init__(self, tx: Connection) -> None:
        self._tx = tx
        self.count = 0

    async def run(self, sql: str, values: Values = ()) -> int:
        self.count += 1
        return await self._tx.run(sql, values)

    async def run_many(self, sql: str, rows: Any) -> None:
        self.count += 1
        await self._tx.run_many(sql, rows)

    async def one(self, sql: str, values: Values = ()) -> Any:
        self.count += 1
        return await self._tx.one(sql, values)


async def turn_costs(place: Path, turns: int) -> dict[str, float]:
    """Return the CPU of a turn with one call, with its events and without them, in turns."""
    count = _BATCHES * turns + _WARM
    replies: list[Reply] = []
    for number in range(count):
        call = Call(f"c{number}", "record", json.dumps({"note": f"item {number}"}))
        replies += [Reply(calls=(call,), finish="tool_calls"), Reply("Noted.")]
    models = {"scripted": ScriptedModel(replies)}
    settings = {"search.encoder": "none"}  # it works in the background, and not for the turn
    append, spent = events.append, dict[bool, list[float]]()

    async def nothing(*_: object) -> None:
        return None

    async with Asterism.open(
        place, tools=[record], models=models, environ={}, settings=settings
    ) as home:
        await home.agents.create("aria", model="scripted:one")
        for number in range(_WARM):
            await home.agents.ask("aria", f"Please write down item {number}.")
        for batch in range(_BATCHES):
            written = batch % 2 == 0
            setattr(events, "append", append if written else nothing)  # noqa: B010 - for the bench
            began = cpu()
            for number in range(turns):
                await home.agents.ask("aria", f"Please write down item {number}.")
            spent.setdefault(written, []).append((cpu() - began) / turns)
        setattr(events, "append", append)  # noqa: B010

        async def counted(tx: Connection) -> int:
            counting = Counted(tx)
            await append(counting, "agent_1", made("turn_1", 1)[:1])  # pyright: ignore[reportArgumentType] - as much of one as it needs
            return counting.count

        statements = await home.database.write(counted)
    return {
        "with": statistics.median(spent[True]),
        "without": statistics.median(spent[False]),
        "statements": statements,
    }


async def fill(database: Database, count: int) -> None:
    """Write events of some agents."""
    for first in range(0, count, 10_000):
        size = min(10_000, count - first)

        async def work(tx: Connection, first: int = first, size: int = size) -> None:
            chain = f"agent_{first // 10_000 % 10:024x}"
            some = [one for n in range(size // 3 + 1) for one in made(f"turn_{n:024x}", n)][:size]
            await events.append(tx, chain, some)

        await database.write(work)


async def verification(place: Path, count: int) -> tuple[float, float]:
    """Return the seconds that it takes to verify so many events, and those of CPU."""
    database = await open_sqlite(place)
    try:
        await fill(database, count)
        began, used = time.perf_counter(), cpu()
        found = await verify(database)
        assert found.sound
        assert found.events == count
        return time.perf_counter() - began, cpu() - used
    finally:
        await database.close()


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--events", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found = await turn_costs(Path(scratch) / "turns", given.turns)
        share = found["with"] / found["without"] - 1
        print(f"turn with one call    {found['without'] * 1e6:9,.0f} µs of CPU without events")
        print(
            f"                      {found['with'] * 1e6:9,.0f} µs with them,"
            f" {found['statements']:.0f} statements more"
        )
        print(f"share                 {share:9.1%}  (goal: at most 10 %)")
        seconds, used = await verification(Path(scratch) / "events", given.events)
        print(
            f"verifying {given.events:,}   {seconds:9.1f} s, {used:.1f} s of CPU"
            "  (goal: under 30 s)"
        )


if __name__ == "__main__":
    asyncio.run(main())
