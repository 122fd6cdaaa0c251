"""How long a search takes and what the index weighs, beside plain FTS5 on the same texts."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw

from bench.adapters.memory import Memory, raw_bytes
from bench.baselines import Fts5
from bench.dialogues import Message, Session, zipf_messages
from bench.hostile import extremes, queries

_BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
_BATCH = 1_000
_WORDS = 20
_ASKED = 300
_SLOW_MS = 200.0
_INDEX_TABLES = ("search_indexes", "segments", "postings", "embeddings")
MAX_MS, MAX_MS_ENCODED, LEAST_RATE, MAX_DISK = 4.0, 20.0, 5_000.0, 3.0
"""The goals, at 10,000 messages of one agent."""


def made_sessions(count: int, words: int = _WORDS) -> list[Session]:
    """Return made-up messages of two people, one a minute."""
    messages = [
        Message(str(number), ("Maya", "user")[number % 2], text, _BEGIN + timedelta(minutes=number))
        for number, text in enumerate(zipf_messages(count, words=words))
    ]
    return [
        Session(f"S{first}", messages[first].time, messages[first : first + _BATCH])
        for first in range(0, count, _BATCH)
    ]


def made_questions(sessions: Sequence[Session]) -> list[str]:
    """Return questions of words that were said."""
    dice = random.Random(5)
    said = [one.text for session in sessions for one in session.messages]
    found: list[str] = []
    for text in dice.sample(said, min(_ASKED, len(said))):
        words = text.rstrip(".").split()
        found.append("What did Maya say about " + " ".join(dice.sample(words, min(4, len(words)))))
    return found


def speed(count: int, words: int, *, encoder: bool) -> list[str]:
    """Print times and sizes; return which goals were missed."""
    sessions = made_sessions(count, words)
    texts = [one.text for session in sessions for one in session.messages]
    asked = made_questions(sessions)
    raw = raw_bytes(texts)
    print(f"\n{count:,} messages of one agent, {raw / count:.0f} bytes of text each")
    with tempfile.TemporaryDirectory(prefix="asterism-search-") as place:
        plain = Fts5(Path(place))
        _timed(lambda: [plain.ingest(one) for one in sessions])
        floor = _times(lambda query: plain.search(query, 10), asked)
        plain.close()
    _line("FTS5", floor, floor)
    missed = _ours("asterism", "none", sessions, asked, floor, raw)
    if encoder:
        missed += _ours("asterism + MiniLM", "minilm", sessions, asked, floor, raw)
    return missed if count == 10_000 else []


def _ours(
    title: str,
    encoder: str,
    sessions: Sequence[Session],
    asked: Sequence[str],
    floor: Sequence[float],
    raw: int,
) -> list[str]:
    count = sum(len(one.messages) for one in sessions)
    with tempfile.TemporaryDirectory(prefix="asterism-search-") as place:
        memory = Memory(place, encoder)
        taken = _timed(lambda: [memory.ingest(one) for one in sessions])
        indexing_time = _timed(memory.finish)
        memory.search(asked[0], 10)
        times = memory.run(_awaited(memory.find, asked))
        disk = memory.disk_bytes()
        tables = _tables(Path(place))
        memory.close()
    _line(title, times, floor)
    print(f"  taken in      {count / taken:10,.0f} messages/s, found by their words at once")
    print(f"  then indexed  {count / indexing_time:10,.0f} messages/s")
    index = sum(tables.get(one, 0) for one in _INDEX_TABLES)
    largest = ", ".join(f"{one} {size / count:.0f}" for one, size in list(tables.items())[:6])
    journal = sum(tables.get(one, 0) for one in ("entries", "turns"))
    print(
        f"  disk          {disk / raw:10.2f} × the text, of it the index {index / raw:.2f} ×"
        f" and the journal {journal / raw:.2f} ×"
    )
    print(f"  bytes a message  {largest}")
    missed: list[str] = []
    most = MAX_MS if encoder == "none" else MAX_MS_ENCODED
    if (p95 := _at(times, 95)) > most:
        missed.append(f"{title}: p95 is {p95:.1f} ms, more than {most:g}")
    if count / taken < LEAST_RATE:
        missed.append(f"{title}: {count / taken:,.0f} messages/s, less than {LEAST_RATE:,.0f}")
    if disk / raw > MAX_DISK:
        missed.append(f"{title}: the disk holds {disk / raw:.2f} × the text, over {MAX_DISK:g}")
    return missed


def postgres(count: int, words: int) -> list[str]:
    """Print the same for a PostgreSQL server of its own that waits for its disk."""
    from asterism.testing.postgres import postgres_server

    sessions = made_sessions(count, words)
    with (
        postgres_server(fsync=True).database(fresh=True) as url,
        tempfile.TemporaryDirectory(prefix="asterism-search-") as place,
    ):
        memory = Memory(place, "none", url)
        rate = count / _timed(lambda: [memory.ingest(session) for session in sessions])
        memory.finish()
        asked = made_questions(sessions)
        memory.search(asked[0], 10)
        times = memory.run(_awaited(memory.find, asked))
        memory.close()
    p50, p95 = _at(times, 50), _at(times, 95)
    print(f"\n{count:,} messages of one agent on PostgreSQL: p50 {p50:.2f} ms, p95 {p95:.2f} ms")
    print(f"  taken in      {rate:10,.0f} messages/s")
    if count == 10_000 and rate < LEAST_RATE:
        return [f"PostgreSQL: {rate:,.0f} messages/s, less than {LEAST_RATE:,.0f}"]
    return []


def hostile(count: int, messages: int) -> list[str]:
    """Time hostile queries over a memory of so many messages; return whether some were slow."""
    with tempfile.TemporaryDirectory(prefix="asterism-search-") as place:
        memory = Memory(place, "none")
        for session in made_sessions(messages):
            memory.ingest(session)
        memory.finish()
        asked = [*extremes(), *queries(count)]
        memory.search("warm", 10)
        times = memory.run(_awaited(memory.find, asked))
        memory.close()
    print(f"\n{len(asked):,} hostile queries over {messages:,} messages: no error")
    print(f"  p50 {_at(times, 50):.2f} ms, p95 {_at(times, 95):.2f} ms; the slowest:")
    for took, query in sorted(zip(times, asked, strict=True), reverse=True)[:5]:
        print(f"  {took:8.1f} ms  {query[:50]!a}, {len(query):,} characters")
    slow = sum(took > _SLOW_MS for took in times)
    return [f"{slow:,} hostile queries took more than {_SLOW_MS:g} ms"] if slow else []


def _line(title: str, times: Sequence[float], floor: Sequence[float]) -> None:
    p50, p95 = _at(times, 50), _at(times, 95)
    print(
        f"{title:20} p50 {p50:7.2f} ms ({p50 / _at(floor, 50):5.2f} × FTS5)"
        f"   p95 {p95:7.2f} ms ({p95 / _at(floor, 95):5.2f} × FTS5)"
    )


def _timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _times(work: Callable[[str], Any], asked: Iterable[str]) -> list[float]:
    return [1000 * _timed(lambda query=query: work(query)) for query in asked]


async def _awaited(
    find: Callable[[str, int], Awaitable[list[str]]], asked: Iterable[str]
) -> list[float]:
    """Return the milliseconds of each search on an event loop that is running already."""
    times: list[float] = []
    for query in asked:
        start = time.perf_counter()
        await find(query, 10)
        times.append(1000 * (time.perf_counter() - start))
    return times


def _at(times: Sequence[float], percent: int) -> float:
    return statistics.quantiles(times, n=100, method="inclusive")[percent - 1]


def _tables(place: Path) -> dict[str, int]:
    """Return what each table takes in the database file, with its own indexes, largest first."""
    found: Counter[str] = Counter()
    for path in place.rglob("*.db"):
        database: Any = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        rows = database.execute(
            "SELECT t.tbl_name, SUM(s.pgsize) FROM dbstat s"
            " JOIN sqlite_schema t ON t.name = s.name GROUP BY t.tbl_name"
        )
        found.update(dict(rows))
        database.close()
    return dict(found.most_common())
