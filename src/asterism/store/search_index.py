"""The index of search at rest: indexes, their segments, postings and encoders' vectors."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from asterism.store.database import MAX_VALUES, Connection, Row, marks

RANGE = 1_024
"""How many numbers a segment is for."""
JOURNAL, ARCHIVE = "journal", "archive"
TABLES = ("segments", "postings", "embeddings")
MARK = ""
"""The `term` of the row that says which segment a segment's postings belong to."""
_ATTEMPTS = 100


def first_of(number: int) -> int:
    """Return the number with which the segment of a text begins."""
    return (number - 1) // RANGE * RANGE + 1


class IndexState(NamedTuple):
    """Where an index stands."""

    database: int
    """When the database was made, which tells it from others."""
    index_id: int | None
    """None: nothing of it was ever indexed."""
    removals: int
    top: int
    """The highest number that a text has."""


_TOP = {
    JOURNAL: "(SELECT length FROM agents WHERE id = ?)",
    ARCHIVE: "(SELECT MAX(number) FROM passages WHERE archive_id = ?)",
}


async def index_state(tx: Connection, kind: str, owner_id: str) -> IndexState:
    """Return where an index stands."""
    row = await tx.one(
        "SELECT (SELECT MIN(applied_at) FROM schema_versions),"
        " (SELECT id FROM search_indexes WHERE owner_id = ? AND kind = ?),"
        f" (SELECT removals FROM search_indexes WHERE owner_id = ? AND kind = ?), {_TOP[kind]}",
        (owner_id, kind, owner_id, kind, owner_id),
    )
    assert row is not None
    return IndexState(row[0] or 0, row[1], row[2] or 0, row[3] or 0)


async def index_states(
    tx: Connection, index_key: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], IndexState]:
    """Return where several indexes stand, in a few statements."""
    row = await tx.one("SELECT MIN(applied_at) FROM schema_versions")
    database = (row[0] if row else 0) or 0
    owners = list(dict.fromkeys(owner_id for _, owner_id in index_key))
    known: dict[tuple[str, str], Row] = {}
    tops: dict[tuple[str, str], int] = {}
    kinds = {kind for kind, _ in index_key}
    for start in range(0, len(owners), MAX_VALUES):
        part = owners[start : start + MAX_VALUES]
        for row in await tx.all(
            "SELECT kind, owner_id, id, removals FROM search_indexes"
            f" WHERE owner_id IN ({marks(len(part))})",
            part,
        ):
            known[row[0], row[1]] = row
        if JOURNAL in kinds:
            rows = await tx.all(
                f"SELECT id, length FROM agents WHERE id IN ({marks(len(part))})", part
            )
            tops |= {(JOURNAL, row[0]): row[1] for row in rows}
        if ARCHIVE in kinds:
            rows = await tx.all(
                "SELECT archive_id, MAX(number) FROM passages"
                f" WHERE archive_id IN ({marks(len(part))}) GROUP BY archive_id",
                part,
            )
            tops |= {(ARCHIVE, row[0]): row[1] or 0 for row in rows}
    result: dict[tuple[str, str], IndexState] = {}
    for key in index_key:
        row = known.get(key)
        index_id, removals = (row[2], row[3]) if row else (None, 0)
        result[key] = IndexState(database, index_id, removals, tops.get(key, 0))
    return result


async def owners(tx: Connection) -> list[tuple[str, str]]:
    """Return all that has an index, or may have one: (kind, agent or source)."""
    agents = await tx.all("SELECT id FROM agents WHERE constellation = ?", (tx.constellation,))
    sources = await tx.all("SELECT id FROM sources WHERE constellation = ?", (tx.constellation,))
    return [
        *((JOURNAL, row[0]) for row in agents),
        *((ARCHIVE, row[0]) for row in (*agents, *sources)),
    ]


# -- segments --------------------------------------------------------------------------------------


class Segment(NamedTuple):
    """A segment without its content."""

    index_id: int
    first: int
    last: int
    fingerprint: int
    terms: int
    stale: int
    open_numbers: str
    mark: bytes | None
    """The fingerprint beside its postings."""

    @property
    def fits(self) -> bool:
        """Whether there are postings that were made with it."""
        return self.mark == mark_of(self.fingerprint)


def mark_of(fingerprint: int) -> bytes:
    """Return a fingerprint as it stands beside postings."""
    return fingerprint.to_bytes(8, "little")


async def segments(tx: Connection, index_ids: Sequence[int]) -> list[Segment]:
    """Return the segments of indexes, in order."""
    result: list[Segment] = []
    for start in range(0, len(index_ids), MAX_VALUES):
        part = index_ids[start : start + MAX_VALUES]
        rows = await tx.all(
            "SELECT s.index_id, s.first, s.last, s.fingerprint, s.terms, s.stale, s.open_numbers,"
            " p.codes FROM segments s LEFT JOIN postings p"
            " ON p.index_id = s.index_id AND p.first = s.first AND p.prefix = ''"
            f" WHERE s.index_id IN ({marks(len(part))}) ORDER BY s.index_id, s.first",
            part,
        )
        result += [Segment(*row) for row in rows]
    return result


async def indexed_up_to(tx: Connection, index_ids: Sequence[int]) -> dict[int, int]:
    """Return up to which number the texts of indexes are in segments."""
    result: dict[int, int] = {}
    for start in range(0, len(index_ids), MAX_VALUES):
        part = index_ids[start : start + MAX_VALUES]
        rows = await tx.all(
            "SELECT index_id, MAX(last) FROM segments"
            f" WHERE index_id IN ({marks(len(part))}) GROUP BY index_id",
            part,
        )
        result |= {row[0]: row[1] for row in rows}
    return result


async def segment_data(
    tx: Connection, index_id: int, firsts: Sequence[int]
) -> dict[int, tuple[bytes, bytes, int]]:
    """Return what segments hold: columns, static vectors, and how many rows of postings."""
    result: dict[int, tuple[bytes, bytes, int]] = {}
    for first in firsts:
        row = await tx.one(
            "SELECT columns, vectors,"
            " (SELECT COUNT(*) FROM postings WHERE index_id = ? AND first = ? AND prefix > '')"
            " FROM segments WHERE index_id = ? AND first = ?",
            (index_id, first, index_id, first),
        )
        if row is not None:
            result[first] = (row[0], row[1], row[2])
    return result


async def postings(
    tx: Connection, index_id: int, firsts: Sequence[int], prefixes_: Sequence[str]
) -> list[Row]:
    """Return (first, beginning, places) of terms that begin so, in segments of one index."""
    result: list[Row] = []
    for start in range(0, len(firsts), MAX_VALUES):
        part = firsts[start : start + MAX_VALUES]
        result += await tx.all(
            f"SELECT first, prefix, codes FROM postings WHERE index_id = ?"
            f" AND first IN ({marks(len(part))}) AND prefix IN ({marks(len(prefixes_))})",
            (index_id, *part, *prefixes_),
        )
    return result


async def postings_of_many(
    tx: Connection, index_ids: Sequence[int], prefixes_: Sequence[str]
) -> list[Row]:
    """Return (index, first, beginning, places) of terms that begin so, in all their segments."""
    result: list[Row] = []
    for start in range(0, len(index_ids), MAX_VALUES):
        part = index_ids[start : start + MAX_VALUES]
        result += await tx.all(
            # CROSS keeps SQLite from going through all terms of an index first.
            "SELECT p.index_id, p.first, p.prefix, p.codes FROM segments s CROSS JOIN postings p"
            " WHERE p.index_id = s.index_id AND p.first = s.first"
            f" AND s.index_id IN ({marks(len(part))}) AND p.prefix IN ({marks(len(prefixes_))})",
            (*part, *prefixes_),
        )
    return result


class NewSegment(NamedTuple):
    """A segment to be stored."""

    first: int
    last: int
    fingerprint: int
    open_numbers: str
    columns: bytes
    vectors: bytes
    postings: dict[str, bytes]
    """Where terms are, by what they begin with."""


async def put_segment(tx: Connection, index_id: int, new: NewSegment) -> None:
    """Replace a segment; the vectors of encoders stay."""
    for table in ("segments", "postings"):
        await tx.run(f"DELETE FROM {table} WHERE index_id = ? AND first = ?", (index_id, new.first))
    await tx.run(
        "INSERT INTO segments"
        " (index_id, first, last, fingerprint, terms, stale, open_numbers, columns, vectors)"
        " VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?)",
        (index_id, *new[:3], len(new.postings), *new[3:6]),
    )
    rows = [(index_id, new.first, MARK, mark_of(new.fingerprint))]
    rows += [(index_id, new.first, term, new.postings[term]) for term in sorted(new.postings)]
    await tx.run_many(
        "INSERT INTO postings (index_id, first, prefix, codes) VALUES (?, ?, ?, ?)", rows
    )


async def remove_segment(tx: Connection, index_id: int, first: int) -> None:
    """Remove a segment of which no text is left."""
    for table in TABLES:
        await tx.run(f"DELETE FROM {table} WHERE index_id = ? AND first = ?", (index_id, first))


# -- indexes ---------------------------------------------------------------------------------------


async def lock_index(tx: Connection, kind: str, owner_id: str) -> tuple[int, int]:
    """Lock an index for this transaction; return its id and its number of removals."""
    for _ in range(_ATTEMPTS):
        row = await tx.one(
            "UPDATE search_indexes SET removals = removals WHERE owner_id = ? AND kind = ?"
            " RETURNING id, removals",
            (owner_id, kind),
        )
        if row is not None:
            return row[0], row[1]
        # Another transaction may take the same id; then this one finds the next free one.
        inserted = await tx.all(
            "INSERT INTO search_indexes (id, kind, owner_id, removals)"
            " SELECT COALESCE(MAX(id), 0) + 1, ?, ?, 0 FROM search_indexes WHERE 1 = 1"
            " ON CONFLICT DO NOTHING RETURNING id",
            (kind, owner_id),
        )
        for (index_id,) in inserted:
            # An index that was lost may have had this id, and left rows behind.
            for table in TABLES:
                await tx.run(f"DELETE FROM {table} WHERE index_id = ?", (index_id,))
    raise AssertionError("no id was free for a index_id")


async def _note_removal(tx: Connection, kind: str, owner_id: str) -> int:
    """Return an index's id, and count a removal so that readers know their copy is old."""
    index_id, _ = await lock_index(tx, kind, owner_id)
    await tx.run("UPDATE search_indexes SET removals = removals + 1 WHERE id = ?", (index_id,))
    await tx.notify("index_id", owner_id)
    return index_id


async def drop(tx: Connection, kind: str, owner_id: str, numbers: Iterable[int]) -> None:
    """Take the segments of some texts out of the index, as part of forgetting these texts."""
    firsts = sorted({first_of(number) for number in numbers})
    if not firsts:
        return
    index_id = await _note_removal(tx, kind, owner_id)
    for table in TABLES:
        await tx.run_many(
            f"DELETE FROM {table} WHERE index_id = ? AND first = ?",
            [(index_id, first) for first in firsts],
        )


async def remove(tx: Connection, owner_id: str) -> None:
    """Remove the indexes of an agent or a source that is forgotten."""
    for (index_id,) in await tx.all(
        "SELECT id FROM search_indexes WHERE owner_id = ?", (owner_id,)
    ):
        for table in TABLES:
            await tx.run(f"DELETE FROM {table} WHERE index_id = ?", (index_id,))
        await tx.run("DELETE FROM search_indexes WHERE id = ?", (index_id,))


async def drop_everything(tx: Connection, place: str = "") -> None:
    """Empty the index of a database, or of a snapshot in it; it is built again."""
    for table in TABLES:
        await tx.run(f"DELETE FROM {place}{table}")


async def drop_worn(tx: Connection, place: str = "") -> None:
    """Remove the segments with words of deleted texts; in a snapshot, all segments."""
    if place:
        await drop_everything(tx, place)
        return
    for kind, owner_id, first in await tx.all(
        "SELECT h.kind, h.owner_id, s.first FROM segments s"
        " JOIN search_indexes h ON h.id = s.index_id WHERE s.stale = 1"
    ):
        await drop(tx, kind, owner_id, [first])


async def mark_stale(tx: Connection, kind: str, owner_id: str, numbers: Iterable[int]) -> None:
    """Note that texts are gone whose words are found until their segments are built again."""
    firsts = sorted({first_of(number) for number in numbers})
    if not firsts:
        return
    index_id = await _note_removal(tx, kind, owner_id)
    await tx.run_many(
        "UPDATE segments SET stale = 1 WHERE index_id = ? AND first = ? AND stale = 0",
        [(index_id, first) for first in firsts],
    )


async def drop_naming(tx: Connection, name: str) -> None:
    """Take out of the index what says that it is for somebody, as part of renaming them."""
    named = name.encode()
    for kind, owner_id in await owners(tx):
        # Those without a segment too: a process may have read their texts.
        index_id = await _note_removal(tx, kind, owner_id)
        rows = await tx.all("SELECT first, columns FROM segments WHERE index_id = ?", (index_id,))
        await drop(tx, kind, owner_id, [row[0] for row in rows if named in zlib.decompress(row[1])])


# -- numbers ---------------------------------------------------------------------------------------


async def next_number(tx: Connection, archive_id: str) -> int:
    """Return the number of an archive's next text; numbers in the index are not used again.

    The archive has to be held meanwhile.
    """
    row = await tx.one(
        "SELECT MAX(taken.number) FROM ("
        "SELECT MAX(number) AS number FROM passages WHERE archive_id = ?"
        " UNION ALL SELECT MAX(g.last) FROM segments g JOIN search_indexes h ON h.id = g.index_id"
        " WHERE h.owner_id = ? AND h.kind = 'archive'"
        ") AS taken",
        (archive_id, archive_id),
    )
    return (row[0] or 0) + 1 if row else 1


# -- vectors of encoders ---------------------------------------------------------------------------


async def embeddings(tx: Connection, index_ids: Sequence[int], encoder: str) -> list[Row]:
    """Return (index_id, first, fingerprint) of an encoder's vectors."""
    result: list[Row] = []
    for start in range(0, len(index_ids), MAX_VALUES):
        part = index_ids[start : start + MAX_VALUES]
        result += await tx.all(
            "SELECT index_id, first, fingerprint FROM embeddings"
            f" WHERE index_id IN ({marks(len(part))}) AND encoder = ?",
            (*part, encoder),
        )
    return result


async def embedding(
    tx: Connection, index_id: int, encoder: str, first: int
) -> tuple[int, bytes, bytes] | None:
    """Return (fingerprint, numbers, vectors) of a segment's texts."""
    row = await tx.one(
        "SELECT fingerprint, numbers, vectors FROM embeddings"
        " WHERE index_id = ? AND encoder = ? AND first = ?",
        (index_id, encoder, first),
    )
    return (row[0], row[1], row[2]) if row else None


async def put_embedding(
    tx: Connection,
    index_id: int,
    encoder: str,
    first: int,
    fingerprint: int,
    numbers: bytes,
    vectors: bytes,
) -> None:
    """Replace an encoder's vectors of a segment."""
    await tx.run(
        "INSERT INTO embeddings (index_id, encoder, first, fingerprint, numbers, vectors)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (index_id, encoder, first) DO UPDATE SET"
        " fingerprint = excluded.fingerprint, numbers = excluded.numbers,"
        " vectors = excluded.vectors",
        (index_id, encoder, first, fingerprint, numbers, vectors),
    )


async def drop_embeddings(tx: Connection, index_id: int, encoder: str) -> None:
    """Remove an encoder's vectors of an index."""
    await tx.run("DELETE FROM embeddings WHERE index_id = ? AND encoder = ?", (index_id, encoder))


async def encoders(tx: Connection, index_id: int) -> dict[str, int]:
    """Return whose vectors an index has, and of how many texts."""
    rows = await tx.all(
        "SELECT encoder, SUM(LENGTH(numbers)) FROM embeddings WHERE index_id = ? GROUP BY encoder",
        (index_id,),
    )
    return {row[0]: int(row[1]) // 2 for row in rows}


class JournalText(NamedTuple):
    """A message or a reply of a journal."""

    number: int
    kind: str
    key: str
    turn_id: str
    body: bytes
    meta: str | None
    at: int
    channel: str | None
    """None: its turn is not stored."""
    reply_to: str | None
    audience: str | None
    """None: the owner."""
    ended_at: int | None
    trust: str | None


class ArchiveText(NamedTuple):
    """A passage of an archive."""

    number: int
    id: str
    text: str
    at: int
    audience: str
    document: str | None
    turn_id: str | None
    digest: str


_MESSAGES = (
    "SELECT e.seq, e.kind, e.key, e.turn_id, e.body, e.meta, e.at, t.channel, t.reply_to,"
    " t.audience, t.ended_at, t.trust FROM entries e LEFT JOIN turns t ON t.id = e.turn_id"
    " WHERE e.agent_id = ? AND e.kind IN ('message', 'reply')"
)
_PASSAGES = (
    "SELECT number, id, text, known_from, audience, document, turn_id, digest FROM passages"
    " WHERE archive_id = ?"
)


async def messages(tx: Connection, agent_id: str, first: int, last: int) -> list[JournalText]:
    """Return the messages in a range of a journal."""
    rows = await tx.all(
        f"{_MESSAGES} AND e.seq BETWEEN ? AND ? ORDER BY e.seq", (agent_id, first, last)
    )
    return [JournalText(*row) for row in rows]


async def messages_at(tx: Connection, agent_id: str, numbers: Sequence[int]) -> list[JournalText]:
    """Return the messages at some places of a journal."""
    result: list[JournalText] = []
    for start in range(0, len(numbers), MAX_VALUES):
        part = numbers[start : start + MAX_VALUES]
        rows = await tx.all(
            f"{_MESSAGES} AND e.seq IN ({marks(len(part))}) ORDER BY e.seq", (agent_id, *part)
        )
        result += [JournalText(*row) for row in rows]
    return result


async def passages(tx: Connection, archive_id: str, first: int, last: int) -> list[ArchiveText]:
    """Return the passages of a stretch of an archive."""
    rows = await tx.all(
        f"{_PASSAGES} AND number BETWEEN ? AND ? ORDER BY number", (archive_id, first, last)
    )
    return [ArchiveText(*row) for row in rows]


async def passages_at(tx: Connection, archive_id: str, numbers: Sequence[int]) -> list[ArchiveText]:
    """Return some passages of an archive by their numbers."""
    result: list[ArchiveText] = []
    for start in range(0, len(numbers), MAX_VALUES):
        part = numbers[start : start + MAX_VALUES]
        rows = await tx.all(
            f"{_PASSAGES} AND number IN ({marks(len(part))}) ORDER BY number", (archive_id, *part)
        )
        result += [ArchiveText(*row) for row in rows]
    return result


async def count(tx: Connection, kind: str, owner_id: str, first: int, last: int) -> int:
    """Return how many texts there are in a stretch of an index."""
    stretch = (
        "entries WHERE agent_id = ? AND kind IN ('message', 'reply') AND seq"
        if kind == JOURNAL
        else "passages WHERE archive_id = ? AND number"
    )
    row = await tx.one(f"SELECT COUNT(*) FROM {stretch} BETWEEN ? AND ?", (owner_id, first, last))
    return int(row[0]) if row else 0


async def ends(tx: Connection, turn_ids: Sequence[str]) -> dict[str, tuple[str | None, int | None]]:
    """Return who may see turns, and when they ended, by their ids."""
    result: dict[str, tuple[str | None, int | None]] = {}
    for start in range(0, len(turn_ids), MAX_VALUES):
        part = turn_ids[start : start + MAX_VALUES]
        rows = await tx.all(
            f"SELECT id, audience, ended_at FROM turns WHERE id IN ({marks(len(part))})", part
        )
        result |= {row[0]: (row[1], row[2]) for row in rows}
    return result


async def open_since(tx: Connection, agent_id: str) -> int | None:
    """Return where the open turn of an agent begins; None if no turn is open."""
    row = await tx.one(
        "SELECT MIN(first_seq) FROM turns WHERE agent_id = ? AND state = 'open'", (agent_id,)
    )
    return row[0] if row else None


# A number of an embedding has two bytes, and a text's static vector `size`.
_JOINED = (
    " FROM segments s JOIN search_indexes h ON h.id = s.index_id"
    " LEFT JOIN embeddings e ON e.index_id = s.index_id AND e.first = s.first AND e.encoder = ?"
    " WHERE h.owner_id IN (SELECT id FROM agents WHERE constellation = ?"
    " UNION ALL SELECT id FROM sources WHERE constellation = ?)"
)


async def lacking(
    tx: Connection, encoder: str, size: int, index_key: tuple[str, str] | None = None
) -> list[tuple[str, str]]:
    """Return the indexes (kind, owner) with indexed texts that have no vector of an encoder.

    Args:
        tx: The transaction.
        encoder: By its name.
        size: How many bytes the static vector of a text has, which tells how many texts there are.
        whose: The one index to look at; None: all.
    """
    condition = " AND h.kind = ? AND h.owner_id = ?" if index_key is not None else ""
    rows = await tx.all(
        f"SELECT DISTINCT h.kind, h.owner_id{_JOINED}"
        f" AND COALESCE(LENGTH(e.numbers), 0) * ? < LENGTH(s.vectors) * 2{condition}"
        " ORDER BY h.owner_id, h.kind",
        (encoder, tx.constellation, tx.constellation, size, *(index_key or ())),
    )
    return [(row[0], row[1]) for row in rows]


async def progress(tx: Connection, encoder: str, size: int) -> tuple[int, int]:
    """Return how many indexed texts have a vector of an encoder, and how many there are."""
    row = await tx.one(
        f"SELECT COALESCE(SUM(LENGTH(e.numbers)), 0), COALESCE(SUM(LENGTH(s.vectors)), 0){_JOINED}",
        (encoder, tx.constellation, tx.constellation),
    )
    assert row is not None
    total = int(row[1]) // size
    return min(int(row[0]) // 2, total), total
