"""`python -m bench.blocks`: what a block costs to load and to keep, however often it was edited."""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from pathlib import Path

from asterism.memory import blocks
from asterism.memory.gate import blocks as gate
from asterism.memory.gate.writer import Writer
from asterism.store import agents
from asterism.store.database import Connection
from asterism.store.sqlite import SQLite, open_sqlite
from asterism.types.agents import OWNER_ONLY, AgentRecord, Trust, new_id, now_ms
from asterism.types.memory import Append, Block, EditRange, Origin, OriginKind, Source

LINES = 40
LETTERS = "abcdefghijklmnopqrstuvwxyz     "
WIDTH = 68


def _text(chance: random.Random) -> str:
    return "".join(chance.choices(LETTERS, k=WIDTH - 1)) + "."


def _writer() -> Writer:
    """A writer in a turn of its own, so that each edit has something to remember."""
    origin = Origin(OriginKind.CALL, new_id("turn"), "0/call/0")
    owner = Writer.owner(now_ms())
    return Writer(
        *(owner.actor, Source((origin,), OWNER_ONLY, Trust.OWNER), now_ms()),
        turn_id=origin.ref,
        reason="said so",
    )


async def _block(database: SQLite, label: str) -> Block:
    chance = random.Random(1)
    content = "\n".join(_text(chance) for _ in range(LINES))
    return await database.write(
        lambda tx: gate.create(tx, _writer(), "agent_b", label, content=content)
    )


async def _edit(database: SQLite, block: Block, count: int, batch: int) -> tuple[int, float]:
    """Edit a block; return how many characters were written, and the seconds."""
    chance = random.Random(2)
    written = 0
    begun = time.perf_counter()
    for first in range(0, count, batch):
        texts = [_text(chance) for _ in range(min(batch, count - first))]
        places = [chance.randint(1, LINES) for _ in texts]

        async def work(
            tx: Connection, texts: list[str] = texts, places: list[int] = places
        ) -> None:
            for text, place in zip(texts, places, strict=True):
                await gate.write(tx, _writer(), block.id, EditRange(place, place, text))

        await database.write(work)
        written += sum(map(len, texts))
    return written, time.perf_counter() - begun


async def _load(database: SQLite, label: str, times: int = 400) -> float:
    """Return the median time to find a block, in ms."""
    spans: list[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        await database.read(lambda tx: blocks.find(tx, "agent_b", label))
        spans.append(time.perf_counter() - begun)
    return statistics.median(spans) * 1_000


async def _write_time(database: SQLite, block: Block, times: int = 200) -> tuple[float, float]:
    """Return the median of one edit in ms: until it is durable, and its CPU in a transaction."""
    chance = random.Random(3)
    durable: list[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        text = _text(chance)
        await database.write(
            lambda tx, one=text: gate.write(tx, _writer(), block.id, EditRange(1, 1, one))
        )
        durable.append(time.perf_counter() - begun)
    inside: list[float] = []

    async def work(tx: Connection) -> None:
        for _ in range(times):
            begun = time.thread_time()
            await gate.write(tx, _writer(), block.id, EditRange(2, 2, _text(chance)))
            inside.append(time.thread_time() - begun)

    await database.write(work)
    return statistics.median(durable) * 1_000, statistics.median(inside) * 1_000


def _size(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.glob("asterism.db*"))


async def _measure(place: Path, edits: int) -> None:
    agent = AgentRecord("agent_b", "bench", "none", "", now_ms())
    database = await open_sqlite(place)
    await database.write(lambda tx: agents.create(tx, agent))
    few, many = await _block(database, "few"), await _block(database, "many")
    await _edit(database, few, 10, 1)
    await database.close()
    database = await open_sqlite(place)
    before = _size(place)
    written, seconds = await _edit(database, many, edits, 256)
    await database.close()
    size = _size(place) - before

    database = await open_sqlite(place)
    await _load(database, "few", 50)
    quick, slow = await _load(database, "few"), await _load(database, "many")
    durable, inside = await _write_time(database, many)
    appended = await database.write(
        lambda tx: gate.write(tx, _writer(), few.id, Append("the last"))
    )
    assert appended.version == 12
    await database.close()
    print(f"edits                       {edits:>12,}  in {seconds:.1f} s")
    print(f"load, 10 edits              {quick:>12.3f} ms")
    print(f"load, {edits:>7,} edits         {slow:>12.3f} ms")
    print(f"load, ratio                 {slow / quick:>12.2f}  (goal: at most 3)")
    print(f"texts written               {written:>12,} characters")
    print(f"disk                        {size:>12,} bytes")
    print(f"disk / texts                {size / written:>12.2f}  (goal: at most 2)")
    print(f"one edit, durable           {durable:>12.3f} ms")
    print(f"one edit, in a transaction  {inside:>12.3f} ms of CPU")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(_measure(Path(place) / "data", given.edits))


if __name__ == "__main__":
    main()
