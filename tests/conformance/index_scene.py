"""What tests of the index of search play with: an index looked at with and without the index."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from asterism.memory.gate import passages as gate
from asterism.search import build, index, texts
from asterism.search.index import IndexSnapshot, places, terms_in
from asterism.search.texts import Texts, concatenate, make_texts
from asterism.store import journal, search_index
from asterism.store.database import Connection, Database
from asterism.store.journal import Draft
from asterism.types.memory import Insert
from asterism.types.turns import EntryKind, TurnRecord, TurnState, message_wire
from tests.conformance.memory_scene import NOW, as_owner

WORDS = (
    *("river", "bridge", "lantern", "harbour", "orchard"),
    *("copper", "violin", "winter", "saddle", "pepper"),
)
TABLES = ("segments", "postings", "embeddings")


async def terms_at_rest(database: Database) -> set[str]:
    """Return all terms that the index has."""
    rows = await database.read(lambda tx: tx.all("SELECT prefix, codes FROM postings"))
    return {term for prefix, row in rows if prefix for term in terms_in(row, prefix)}


async def say(
    tx: Connection,
    agent_id: str,
    turn_id: str,
    said: str,
    answered: str = "",
    *,
    at: int = NOW,
    sender: str | None = None,
    audience: str | None = None,
    state: TurnState = TurnState.DONE,
    reply_to: str | None = None,
) -> None:
    """Put a turn at rest, one that goes on or one that has ended."""
    meta = None if sender is None else f'{{"sender":"{sender}"}}'
    drafts = [Draft(EntryKind.MESSAGE, "in", message_wire("user", said), at, meta)]
    drafts.append(Draft(EntryKind.BEGUN, "0/call", b"{}", at))
    if answered:
        wire = message_wire("assistant", answered)
        drafts.append(Draft(EntryKind.REPLY, "0/reply", wire, at + 1))
    found = await journal.standing(tx, agent_id)
    assert found is not None
    claim, length = found
    await journal.append(tx, claim, length, turn_id, drafts)
    ended = None if state in (TurnState.OPEN, TurnState.PARKED) else at
    last = length + len(drafts)
    record = TurnRecord(
        turn_id, agent_id, state, "cli", reply_to, length + 1, last, at, ended, audience=audience
    )
    await journal.open_turn(tx, record, last)


async def end(tx: Connection, turn_id: str, audience: str | None) -> None:
    """End a turn, for an audience that may be another one than before."""
    await tx.run(
        "UPDATE turns SET state = 'done', ended_at = ?, audience = ? WHERE id = ?",
        (NOW + 5, audience, turn_id),
    )


async def fold_all(database: Database, kind: str, owner_id: str) -> int:
    """Build the segments that are due, as in the background; return how many."""
    ranges = await database.read(lambda tx: build.pending_segments(tx, kind, owner_id))
    done = 0
    for one in ranges:
        read = await database.read(lambda tx, one=one: build.read_segment_texts(tx, one))
        made = build.build_segment(read)
        done += await database.write(lambda tx, made=made: build.store_segment(tx, made))
    return done


class Seen(NamedTuple):
    """A text as a search sees it."""

    number: int
    at: int
    speaker: str
    thread: str
    audience: str
    flags: int
    rest: tuple[Any, ...]
    """All other columns."""


_NAMED = ("numbers", "at", "speaker", "thread", "audience", "flags")
_LISTS = ("speakers", "threads", "audiences")


def seen(texts: Texts) -> list[Seen]:
    rest = [one.name for one in fields(texts) if one.name not in (*_NAMED, *_LISTS)]
    return [
        Seen(
            int(texts.numbers[row]),
            int(texts.at[row]),
            texts.speakers[texts.speaker[row]],
            texts.threads[texts.thread[row]],
            texts.audiences[texts.audience[row]],
            int(texts.flags[row]),
            tuple(getattr(texts, name)[row].tolist() for name in rest),
        )
        for row in range(len(texts))
    ]


Where = dict[str, list[tuple[int, int, int]]]
"""The index, the number and how often, of each text that has a term."""


async def as_stored(
    tx: Connection, index_key: Sequence[tuple[str, str]]
) -> tuple[list[list[Seen]], Where]:
    """Return the texts of indexes, and where each term is, without the index."""
    found: list[list[Seen]] = []
    where: Where = {}
    for index_id, (kind, owner_id) in enumerate(index_key):
        raws = await texts.read_texts(tx, kind, owner_id, 1, 1 << 62)
        placed = [one.analyzed() for one in raws]
        found.append(seen(make_texts(placed)))
        for one in placed:
            for term, often in one.text.terms.items():
                where.setdefault(term, []).append((index_id, one.number, min(often, 15)))
    return found, where


async def as_searched(
    tx: Connection, index_key: Sequence[tuple[str, str]], terms: Sequence[str]
) -> tuple[list[list[Seen]], Where]:
    """Return the same through the index."""
    loaded = await index.load_indexes(tx, index_key)
    there = await places(tx, loaded, terms)
    joined = seen(concatenate([one.texts for one in loaded]))
    shelf_of = [index_id for index_id, one in enumerate(loaded) for _ in range(len(one.texts))]
    found: list[list[Seen]] = [[] for _ in loaded]
    for index_id, one in zip(shelf_of, joined, strict=True):
        found[index_id].append(one)
    where: Where = {}
    for term, (rows, counts) in there.items():
        assert len(rows) > 0
        assert sorted(rows) == list(rows)
        where[term] = [
            (shelf_of[int(row)], joined[int(row)].number, int(often))
            for row, often in zip(rows, counts, strict=True)
        ]
    return found, where


async def agree(database: Database, index_key: Sequence[tuple[str, str]]) -> None:
    """Check that a search sees what is stored, as it was cached and when it is read anew."""

    async def look(tx: Connection) -> None:
        texts, where = await as_stored(tx, index_key)
        there = {(index_id, one.number) for index_id, some in enumerate(texts) for one in some}
        terms = [*where, "nowhere"]
        for _ in range(2):
            found, said = await as_searched(tx, index_key, terms)
            # A passage that was changed is at its former place until that is indexed anew.
            assert [
                [one for one in some if (index_id, one.number) in there]
                for index_id, some in enumerate(found)
            ] == texts
            assert {
                term: [one for one in some if one[:2] in there] for term, some in said.items()
            } == where
            index.cache.clear()

    await database.read(look)


async def found_by(tx: Connection, kind: str, owner_id: str, term: str) -> list[int]:
    """Return the numbers of the texts that have a term."""
    loaded = await index.load(tx, kind, owner_id)
    there = await places(tx, [loaded], [term])
    rows = there[term][0] if term in there else ()
    return [int(loaded.texts.numbers[row]) for row in rows]


async def rows_of(database: Database) -> dict[str, int]:
    """Return how many rows each table of the index has."""

    async def count(tx: Connection) -> dict[str, int]:
        found: dict[str, int] = {}
        for table in TABLES:
            row = await tx.one(f"SELECT COUNT(*) FROM {table}")
            assert row is not None
            found[table] = row[0]
        return found

    return await database.read(count)


async def index_state(database: Database, kind: str, owner_id: str) -> search_index.IndexState:
    return await database.read(lambda tx: search_index.index_state(tx, kind, owner_id))


async def loaded(database: Database, kind: str, owner_id: str) -> IndexSnapshot:
    return await database.read(lambda tx: index.load(tx, kind, owner_id))


async def run(database: Database, sql: str, values: Sequence[Any] = ()) -> int:
    return await database.write(lambda tx: tx.run(sql, values))


async def insert(database: Database, archive_id: str, text: str) -> str:
    written = await database.write(lambda tx: gate.write(tx, as_owner(), archive_id, Insert(text)))
    return written.passage.id


async def talk(database: Database, agent_id: str, count: int, start: int = 0) -> None:
    async def work(tx: Connection) -> None:
        for number in range(start, start + count):
            said = f"{WORDS[number % 10]} number {number}"
            await say(tx, agent_id, f"turn_{number}", said, f"About {WORDS[number % 7]}.")

    await database.write(work)
