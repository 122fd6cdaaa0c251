"""What tests of the index of search play with: a shelf looked at with and without the index."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from asterism.memory.gate import passages as gate
from asterism.memory.search import folding, index, stored
from asterism.memory.search.index import Loaded
from asterism.memory.search.places import places
from asterism.memory.search.postings import terms_in
from asterism.memory.search.texts import Texts, concatenate, gather
from asterism.store import journal, shelves
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
    rows = await database.read(lambda tx: tx.all("SELECT term, places FROM postings"))
    return {term for beginning, row in rows if beginning for term in terms_in(row, beginning)}


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
    """Fold what is to be folded, as it is done in the background; return how many segments."""
    ranges = await database.read(lambda tx: folding.pending(tx, kind, owner_id))
    done = 0
    for one in ranges:
        read = await database.read(lambda tx, one=one: folding.read_range(tx, one))
        made = folding.analysed(read)
        done += await database.write(lambda tx, made=made: folding.fold(tx, made))
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
"""The shelf, the number and how often, of each text that has a term."""


async def as_stored(
    tx: Connection, whose: Sequence[tuple[str, str]]
) -> tuple[list[list[Seen]], Where]:
    """Return the texts of shelves, and where each term is, without the index."""
    found: list[list[Seen]] = []
    where: Where = {}
    for shelf, (kind, owner_id) in enumerate(whose):
        raws = await stored.read(tx, kind, owner_id, 1, 1 << 62)
        placed = [one.placed() for one in raws]
        found.append(seen(gather(placed)))
        for one in placed:
            for term, often in one.text.terms.items():
                where.setdefault(term, []).append((shelf, one.number, min(often, 15)))
    return found, where


async def as_searched(
    tx: Connection, whose: Sequence[tuple[str, str]], terms: Sequence[str]
) -> tuple[list[list[Seen]], Where]:
    """Return the same through the index."""
    loaded = await index.load_many(tx, whose)
    there = await places(tx, loaded, terms)
    joined = seen(concatenate([one.texts for one in loaded]))
    shelf_of = [shelf for shelf, one in enumerate(loaded) for _ in range(len(one.texts))]
    found: list[list[Seen]] = [[] for _ in loaded]
    for shelf, one in zip(shelf_of, joined, strict=True):
        found[shelf].append(one)
    where: Where = {}
    for term, (rows, counts) in there.items():
        assert len(rows) > 0
        assert sorted(rows) == list(rows)
        where[term] = [
            (shelf_of[int(row)], joined[int(row)].number, int(often))
            for row, often in zip(rows, counts, strict=True)
        ]
    return found, where


async def agree(database: Database, whose: Sequence[tuple[str, str]]) -> None:
    """Check that a search sees what is stored, as it was cached and when it is read anew."""

    async def look(tx: Connection) -> None:
        texts, where = await as_stored(tx, whose)
        there = {(shelf, one.number) for shelf, some in enumerate(texts) for one in some}
        terms = [*where, "nowhere"]
        for _ in range(2):
            found, said = await as_searched(tx, whose, terms)
            # A passage that was changed is at its former place until that is folded anew.
            assert [
                [one for one in some if (shelf, one.number) in there]
                for shelf, some in enumerate(found)
            ] == texts
            assert {
                term: [one for one in some if one[:2] in there] for term, some in said.items()
            } == where
            index.kept.clear()

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


async def standing(database: Database, kind: str, owner_id: str) -> shelves.Standing:
    return await database.read(lambda tx: shelves.standing(tx, kind, owner_id))


async def loaded(database: Database, kind: str, owner_id: str) -> Loaded:
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
