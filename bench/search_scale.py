"""`python -m bench.search_scale`: the index of search over many agents with many messages.

Messages are made of invented words whose frequencies follow Zipf's law; their static vectors are
made up, but for the figures that say how fast texts are indexed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from asterism.memory.words import SIZE, TokenSummary
from asterism.search import build, index, texts
from asterism.search.query import STOP_WORDS
from asterism.search.search import best_indexes, search
from asterism.search.texts import WIDTH
from asterism.store import agents
from asterism.store.database import Connection
from asterism.store.search_index import JOURNAL
from asterism.store.sqlite import SQLite, open_sqlite
from asterism.types.agents import OWNER_ALONE, AgentRecord, now_ms
from asterism.types.search import Query
from asterism.types.turns import message_wire

VOCABULARY = 60_000
LENGTH = 20
"""Words of a message; half of them are stop words, as in English."""
ROUNDS = 200
_STOPS = sorted(STOP_WORDS)
_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    title: str
    value: float
    unit: str
    most: float | None = None
    fewest: float | None = None

    def line(self) -> str:
        """Return it as text."""
        goal = "" if self.most is None else f"at most {self.most:g}"
        goal = goal if self.fewest is None else f"at least {self.fewest:g}"
        return f"{self.title:<58}{self.value:>12,.2f} {self.unit:<9}{goal:<16}{self.verdict}"

    @property
    def verdict(self) -> str:
        """Whether the goal is met."""
        if self.most is None and self.fewest is None:
            return ""
        met = self.value <= self.most if self.most is not None else self.value >= (self.fewest or 0)
        return "ok" if met else "MISSED"


class Babble:
    """Invented messages."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        words: dict[str, None] = {}
        while len(words) < VOCABULARY:
            count = self._chance.choice((1, 2, 2, 3, 3, 4))
            words["".join(self._chance.choices(_SYLLABLES, k=count))] = None
        self.words = list(words)
        total = 0.0
        self._weights = [total := total + 1 / (rank + 2.7) ** 1.07 for rank in range(VOCABULARY)]

    def texts(self, count: int) -> list[str]:
        """Return messages."""
        half = count * LENGTH // 2
        drawn = self._chance.choices(self.words, cum_weights=self._weights, k=half)
        stops = self._chance.choices(_STOPS, k=half)
        pairs = [f"{stop} {word}" for stop, word in zip(stops, drawn, strict=True)]
        each = LENGTH // 2
        return [" ".join(pairs[at : at + each]) for at in range(0, half, each)]

    def spoken(self, count: int) -> list[str]:
        """Return words of a question: some that are frequent, some that are rare."""
        drawn = self._chance.choices(self.words[20:20_000], k=count // 2)
        return drawn + self._chance.choices(self.words, cum_weights=self._weights, k=count // 2)

    def query(self, terms: int) -> list[str]:
        """Return terms of a question: some that are frequent, some that are rare."""
        return texts.terms_of(self.spoken(terms))


async def put_messages(tx: Connection, agent_id: str, texts: Sequence[str], start: int) -> None:
    """Put messages at rest as turns that have ended, without the cost of turns."""
    at = now_ms()
    rows = [
        (agent_id, seq, f"turn_{agent_id}_{seq}", message_wire("user", text), at)
        for seq, text in enumerate(texts, start)
    ]
    await tx.run_many(
        "INSERT INTO entries (agent_id, seq, turn_id, kind, key, body, at)"
        " VALUES (?, ?, ?, 'message', 'in', ?, ?)",
        rows,
    )
    await tx.run("UPDATE agents SET length = ? WHERE id = ?", (start + len(texts) - 1, agent_id))


async def build_all(database: SQLite, agent_id: str) -> None:
    """Index all that there is, as it is done in the background."""
    for one in await database.read(lambda tx: build.pending_segments(tx, JOURNAL, agent_id)):
        read = await database.read(lambda tx, one=one: build.read_segment_texts(tx, one))
        made = build.build_segment(read)
        assert await database.write(lambda tx, made=made: build.store_segment(tx, made))


async def timed(count: int, work: Callable[[int], Awaitable[object]]) -> list[float]:
    """Return how many milliseconds each call takes, in order of size."""
    taken: list[float] = []
    for number in range(count):
        begun = time.perf_counter()
        await work(number)
        taken.append((time.perf_counter() - begun) * 1e3)
    return sorted(taken)


def p95(taken: Sequence[float]) -> float:
    """Return what 19 of 20 stay under."""
    return taken[int(len(taken) * 0.95)]


async def one_agent(database: SQLite, babble: Babble, count: int) -> list[Figure]:
    """Measure a single agent, with static vectors as they are."""
    await database.write(lambda tx: _agent(tx, "single"))
    texts = babble.texts(count)
    await database.write(lambda tx: put_messages(tx, "single", texts, 1))
    begun = time.perf_counter()
    await build_all(database, "single")
    rate = count / (time.perf_counter() - begun)
    asked = [babble.query(10) for _ in range(ROUNDS)]

    async def load(_: int) -> object:
        return await database.read(lambda tx: _timed_load(tx, "single", loads))

    async def place(number: int) -> object:
        return await database.read(lambda tx: _timed_places(tx, "single", asked[number], finds))

    loads: list[float] = []
    finds: list[float] = []
    index.cache.clear()
    cold = await timed(1, load)
    loads.clear()
    await timed(ROUNDS, load)
    await timed(ROUNDS, place)
    loads.sort()
    finds.sort()
    return [
        Figure(f"indexing {count:,} texts, with static vectors", rate, "texts/s", fewest=5_000),
        Figure(f"load of {count:,} texts, cold", cold[0], "ms"),
        Figure(f"load of {count:,} texts, warm, p50", statistics.median(loads), "ms", most=0.5),
        Figure(f"load of {count:,} texts, warm, p95", p95(loads), "ms"),
        Figure("places of 10 terms, p50", statistics.median(finds), "ms", most=1),
        Figure("places of 10 terms, p95", p95(finds), "ms"),
    ]


async def _timed_load(tx: Connection, agent_id: str, taken: list[float]) -> None:
    begun = time.perf_counter()
    await index.load(tx, JOURNAL, agent_id)
    taken.append((time.perf_counter() - begun) * 1e3)


async def _timed_places(
    tx: Connection, agent_id: str, terms: Sequence[str], taken: list[float]
) -> None:
    loaded = await index.load(tx, JOURNAL, agent_id)
    begun = time.perf_counter()
    await index.places(tx, [loaded], terms)
    taken.append((time.perf_counter() - begun) * 1e3)


async def _agent(tx: Connection, agent_id: str) -> None:
    made = await agents.create(tx, AgentRecord(agent_id, agent_id, "mock:model", "", now_ms()))
    assert made


async def many_agents(
    database: SQLite, babble: Babble, count: int, each: int, place: Path
) -> list[Figure]:
    """Measure many agents, whose static vectors are made up."""
    ids = [f"agent_{number}" for number in range(count)]
    before = _size(place)
    begun = time.perf_counter()
    raw = 0
    for agent_id in ids:
        texts = babble.texts(each)
        raw += sum(map(len, texts))

        async def store(tx: Connection, agent_id: str = agent_id, texts: list[str] = texts) -> None:
            await _agent(tx, agent_id)
            await put_messages(tx, agent_id, texts, 1)

        await database.write(store)
    stored_in = time.perf_counter() - begun
    entries = _size(place) - before
    begun = time.perf_counter()
    for agent_id in ids:
        await build_all(database, agent_id)
    built_in = time.perf_counter() - begun
    indexed = _size(place) - before - entries
    total = count * each
    index.cache.clear()
    index_key = [(JOURNAL, one) for one in ids]
    chance = random.Random(5)
    asked = [(chance.choice(ids), babble.query(10)) for _ in range(ROUNDS)]

    async def own(number: int) -> object:
        agent_id, terms = asked[number]

        async def look(tx: Connection) -> None:
            loaded = await index.load(tx, JOURNAL, agent_id)
            await index.places(tx, [loaded], terms)

        return await database.read(look)

    async def all_of_them(number: int) -> object:
        return await database.read(lambda tx: best_indexes(tx, index_key, asked[number][1]))

    async def both(number: int) -> object:
        async def look(tx: Connection) -> None:
            best = await best_indexes(tx, index_key, asked[number][1])
            await index.places(tx, await index.load_indexes(tx, best), asked[number][1])

        return await database.read(look)

    said = [Query(" ".join(babble.spoken(8))) for _ in range(ROUNDS)]

    async def searched(number: int, agent_id: str | None) -> object:
        return await database.read(
            lambda tx: search(tx, agent_id, said[number], participants=OWNER_ALONE, now=now_ms())
        )

    async def search_own(number: int) -> object:
        return await searched(number, asked[number][0])

    async def search_all(number: int) -> object:
        return await searched(number, None)

    cold, warm = await timed(ROUNDS, own), await timed(ROUNDS, own)
    index.cache.clear()
    cold_search, warm_search = await timed(ROUNDS, search_own), await timed(ROUNDS, search_own)
    await timed(2, search_all)
    wide_search = await timed(50, search_all)
    first = await timed(1, all_of_them)
    wide = await timed(50, all_of_them)
    whole = await timed(50, both)
    return [
        Figure(f"storing {total:,} messages", total / stored_in, "texts/s"),
        Figure("indexing them, made-up vectors", total / built_in, "texts/s"),
        Figure(
            "index, a message of 20 words, without vectors", indexed / total - WIDTH, "bytes", 90
        ),
        Figure("index with static vectors against the text", indexed / raw, "x"),
        Figure("an agent's own: load and places, cold, p95", p95(cold), "ms", most=5),
        Figure("an agent's own: load and places, warm, p95", p95(warm), "ms"),
        Figure(f"across {count:,} agents, first", first[0], "ms"),
        Figure(f"across {count:,} agents, p50", statistics.median(wide), "ms"),
        Figure(f"across {count:,} agents, p95", p95(wide), "ms", most=100),
        Figure("… and load and places of the best 40, p95", p95(whole), "ms"),
        Figure("a search of an agent's own, cold, p95", p95(cold_search), "ms"),
        Figure("a search of an agent's own, p50", statistics.median(warm_search), "ms"),
        Figure("a search of an agent's own, p95", p95(warm_search), "ms", most=5),
        Figure(f"a search of all {count:,}, p50", statistics.median(wide_search), "ms"),
        Figure(f"a search of all {count:,}, p95", p95(wide_search), "ms", most=150),
    ]


def _size(place: Path) -> int:
    return sum(one.stat().st_size for one in place.rglob("*") if one.is_file())


async def measure(place: Path, agents_count: int, each: int, single: int) -> list[Figure]:
    """Make a store and measure it."""
    babble = Babble(1)
    figures: list[Figure] = []
    database = await open_sqlite(place / "single")
    figures += await one_agent(database, babble, single)
    await database.close()
    chance = random.Random(2)

    def made_up(text: str) -> TokenSummary:
        return TokenSummary(chance.randbytes(SIZE), 1.0, len(text) // 4)

    texts.read_tokens = made_up
    texts.clear()
    database = await open_sqlite(place / "many")
    figures += await many_agents(database, babble, agents_count, each, place / "many")
    await database.close()
    return figures


def main() -> int:
    """Print the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.search_scale", description=__doc__)
    parser.add_argument("--agents", type=int, default=1_000)
    parser.add_argument("--each", type=int, default=1_000, help="messages of each agent")
    parser.add_argument("--single", type=int, default=10_000, help="messages of the single agent")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="asterism-bench-") as scratch:
        place = Path(scratch)
        figures = asyncio.run(measure(place, arguments.agents, arguments.each, arguments.single))
    for one in figures:
        print(one.line())
    return 1 if any(one.verdict == "MISSED" for one in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
