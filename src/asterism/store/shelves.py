"""The index of search at rest: shelves, their segments, postings and encoders' vectors."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from asterism.store.database import MOST_VALUES, Connection, Row, marks

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


class Standing(NamedTuple):
    """Where a shelf stands."""

    database: int
    """When the database was made, which tells it from others."""
    shelf: int | None
    """None: nothing of it was ever folded."""
    dropped: int
    top: int
    """The highest number that a text has."""


_TOP = {
    JOURNAL: "(SELECT length FROM agents WHERE id = ?)",
    ARCHIVE: "(SELECT MAX(number) FROM passages WHERE archive_id = ?)",
}


async def standing(tx: Connection, kind: str, owner_id: str) -> Standing:
    """Return where a shelf stands."""
    row = await tx.one(
        "SELECT (SELECT MIN(applied_at) FROM schema_versions),"
        " (SELECT id FROM shelves WHERE owner_id = ? AND kind = ?),"
        f" (SELECT dropped FROM shelves WHERE owner_id = ? AND kind = ?), {_TOP[kind]}",
        (owner_id, kind, owner_id, kind, owner_id),
    )
    assert row is not None
    return Standing(row[0] or 0, row[1], row[2] or 0, row[3] or 0)


async def standings(
    tx: Connection, whose: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], Standing]:
    """Return where several shelves stand, in a few statements."""
    row = await tx.one("SELECT MIN(applied_at) FROM schema_versions")
    database = (row[0] if row else 0) or 0
    owners = list(dict.fromkeys(owner_id for _, owner_id in whose))
    known: dict[tuple[str, str], Row] = {}
    tops: dict[tuple[str, str], int] = {}
    kinds = {kind for kind, _ in whose}
    for start in range(0, len(owners), MOST_VALUES):
        part = owners[start : start + MOST_VALUES]
        for one in await tx.all(
            f"SELECT kind, owner_id, id, dropped FROM shelves WHERE owner_id IN ({marks(part)})",
            part,
        ):
            known[one[0], one[1]] = one
        if JOURNAL in kinds:
            rows = await tx.all(f"SELECT id, length FROM agents WHERE id IN ({marks(part)})", part)
            tops |= {(JOURNAL, one[0]): one[1] for one in rows}
        if ARCHIVE in kinds:
            rows = await tx.all(
                "SELECT archive_id, MAX(number) FROM passages"
                f" WHERE archive_id IN ({marks(part)}) GROUP BY archive_id",
                part,
            )
            tops |= {(ARCHIVE, one[0]): one[1] or 0 for one in rows}
    found: dict[tuple[str, str], Standing] = {}
    for one in whose:
        row = known.get(one)
        shelf, dropped = (row[2], row[3]) if row else (None, 0)
        found[one] = Standing(database, shelf, dropped, tops.get(one, 0))
    return found


async def owners(tx: Connection, constellation: str) -> list[tuple[str, str]]:
    """Return all that has a shelf, or may have one: (kind, agent or source)."""
    agents = await tx.all("SELECT id FROM agents WHERE constellation = ?", (constellation,))
    sources = await tx.all("SELECT id FROM sources WHERE constellation = ?", (constellation,))
    return [
        *((JOURNAL, row[0]) for row in agents),
        *((ARCHIVE, row[0]) for row in (*agents, *sources)),
    ]


# -- segments --------------------------------------------------------------------------------------


class Segment(NamedTuple):
    """What is known of a segment without reading what it holds."""

    shelf: int
    first: int
    last: int
    made: int
    terms: int
    stale: int
    absent: str
    mark: bytes | None
    """The fingerprint beside its postings."""

    @property
    def fits(self) -> bool:
        """Whether there are postings that were made with it."""
        return self.mark == mark_of(self.made)


def mark_of(made: int) -> bytes:
    """Return a fingerprint as it stands beside postings."""
    return made.to_bytes(8, "little")


async def segments(tx: Connection, shelves: Sequence[int]) -> list[Segment]:
    """Return the segments of shelves, in order."""
    found: list[Segment] = []
    for start in range(0, len(shelves), MOST_VALUES):
        part = shelves[start : start + MOST_VALUES]
        rows = await tx.all(
            "SELECT s.shelf, s.first, s.last, s.made, s.terms, s.stale, s.absent, p.places"
            " FROM segments s LEFT JOIN postings p"
            " ON p.shelf = s.shelf AND p.first = s.first AND p.term = ''"
            f" WHERE s.shelf IN ({marks(part)}) ORDER BY s.shelf, s.first",
            part,
        )
        found += [Segment(*row) for row in rows]
    return found


async def covered(tx: Connection, shelves: Sequence[int]) -> dict[int, int]:
    """Return up to which number the texts of shelves are in segments."""
    found: dict[int, int] = {}
    for start in range(0, len(shelves), MOST_VALUES):
        part = shelves[start : start + MOST_VALUES]
        rows = await tx.all(
            f"SELECT shelf, MAX(last) FROM segments WHERE shelf IN ({marks(part)}) GROUP BY shelf",
            part,
        )
        found |= {row[0]: row[1] for row in rows}
    return found


async def held(
    tx: Connection, shelf: int, firsts: Sequence[int]
) -> dict[int, tuple[bytes, bytes, int]]:
    """Return what segments hold: columns, static vectors, and how many rows of postings."""
    found: dict[int, tuple[bytes, bytes, int]] = {}
    for first in firsts:
        row = await tx.one(
            "SELECT columns, vectors,"
            " (SELECT COUNT(*) FROM postings WHERE shelf = ? AND first = ? AND term > '')"
            " FROM segments WHERE shelf = ? AND first = ?",
            (shelf, first, shelf, first),
        )
        if row is not None:
            found[first] = (row[0], row[1], row[2])
    return found


async def postings(
    tx: Connection, shelf: int, firsts: Sequence[int], beginnings: Sequence[str]
) -> list[Row]:
    """Return (first, beginning, places) of terms that begin so, in segments of one shelf."""
    found: list[Row] = []
    for start in range(0, len(firsts), MOST_VALUES):
        part = firsts[start : start + MOST_VALUES]
        found += await tx.all(
            f"SELECT first, term, places FROM postings WHERE shelf = ?"
            f" AND first IN ({marks(part)}) AND term IN ({marks(beginnings)})",
            (shelf, *part, *beginnings),
        )
    return found


async def postings_of_many(
    tx: Connection, shelves: Sequence[int], beginnings: Sequence[str]
) -> list[Row]:
    """Return (shelf, first, beginning, places) of terms that begin so, in all their segments."""
    found: list[Row] = []
    for start in range(0, len(shelves), MOST_VALUES):
        part = shelves[start : start + MOST_VALUES]
        found += await tx.all(
            # CROSS keeps SQLite from going through all terms of a shelf first.
            "SELECT p.shelf, p.first, p.term, p.places FROM segments s CROSS JOIN postings p"
            " WHERE p.shelf = s.shelf AND p.first = s.first"
            f" AND s.shelf IN ({marks(part)}) AND p.term IN ({marks(beginnings)})",
            (*part, *beginnings),
        )
    return found


class NewSegment(NamedTuple):
    """A segment to be stored."""

    first: int
    last: int
    made: int
    absent: str
    columns: bytes
    vectors: bytes
    postings: dict[str, bytes]
    """Where terms are, by what they begin with."""


async def put_segment(tx: Connection, shelf: int, new: NewSegment) -> None:
    """Store a segment in the place of the one that was there; encoders' vectors stay."""
    for table in ("segments", "postings"):
        await tx.run(f"DELETE FROM {table} WHERE shelf = ? AND first = ?", (shelf, new.first))
    await tx.run(
        "INSERT INTO segments"
        " (shelf, first, last, made, terms, stale, absent, columns, vectors)"
        " VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?)",
        (shelf, *new[:3], len(new.postings), *new[3:6]),
    )
    rows = [(shelf, new.first, MARK, mark_of(new.made))]
    rows += [(shelf, new.first, term, new.postings[term]) for term in sorted(new.postings)]
    await tx.run_many("INSERT INTO postings (shelf, first, term, places) VALUES (?, ?, ?, ?)", rows)


async def remove_segment(tx: Connection, shelf: int, first: int) -> None:
    """Remove a segment of which no text is left."""
    for table in TABLES:
        await tx.run(f"DELETE FROM {table} WHERE shelf = ? AND first = ?", (shelf, first))


# -- shelves ---------------------------------------------------------------------------------------


async def hold(tx: Connection, kind: str, owner_id: str) -> tuple[int, int]:
    """Return a shelf's id and how often it was dropped from; nobody else writes to it meanwhile."""
    for _ in range(_ATTEMPTS):
        row = await tx.one(
            "UPDATE shelves SET dropped = dropped WHERE owner_id = ? AND kind = ?"
            " RETURNING id, dropped",
            (owner_id, kind),
        )
        if row is not None:
            return row[0], row[1]
        # Another transaction may take the same id; then this one finds the next free one.
        made = await tx.all(
            "INSERT INTO shelves (id, kind, owner_id, dropped)"
            " SELECT COALESCE(MAX(id), 0) + 1, ?, ?, 0 FROM shelves WHERE 1 = 1"
            " ON CONFLICT DO NOTHING RETURNING id",
            (kind, owner_id),
        )
        for (shelf,) in made:
            # A shelf that was lost may have had this id, and left rows behind.
            for table in TABLES:
                await tx.run(f"DELETE FROM {table} WHERE shelf = ?", (shelf,))
    raise AssertionError("no id was free for a shelf")


async def _taken_off(tx: Connection, kind: str, owner_id: str) -> int:
    """Return a shelf's id; whoever has read from it is told that it is not the same any more."""
    shelf, _ = await hold(tx, kind, owner_id)
    await tx.run("UPDATE shelves SET dropped = dropped + 1 WHERE id = ?", (shelf,))
    await tx.notify("shelf", owner_id)
    return shelf


async def drop(tx: Connection, kind: str, owner_id: str, numbers: Iterable[int]) -> None:
    """Take the segments of some texts out of the index, as part of forgetting these texts."""
    firsts = sorted({first_of(number) for number in numbers})
    if not firsts:
        return
    shelf = await _taken_off(tx, kind, owner_id)
    for table in TABLES:
        await tx.run_many(
            f"DELETE FROM {table} WHERE shelf = ? AND first = ?", [(shelf, one) for one in firsts]
        )


async def remove(tx: Connection, owner_id: str) -> None:
    """Remove the shelves of an agent or a source that is forgotten."""
    for (shelf,) in await tx.all("SELECT id FROM shelves WHERE owner_id = ?", (owner_id,)):
        for table in TABLES:
            await tx.run(f"DELETE FROM {table} WHERE shelf = ?", (shelf,))
        await tx.run("DELETE FROM shelves WHERE id = ?", (shelf,))


async def drop_everything(tx: Connection, place: str = "") -> None:
    """Empty the index of a database, or of a snapshot in it; it is made anew."""
    for table in TABLES:
        await tx.run(f"DELETE FROM {place}{table}")


async def drop_worn(tx: Connection, place: str = "") -> None:
    """Take out of the index what has words of texts that are gone; of a snapshot, everything."""
    if place:
        await drop_everything(tx, place)
        return
    for kind, owner_id, first in await tx.all(
        "SELECT h.kind, h.owner_id, s.first FROM segments s JOIN shelves h ON h.id = s.shelf"
        " WHERE s.stale = 1"
    ):
        await drop(tx, kind, owner_id, [first])


async def mark_stale(tx: Connection, kind: str, owner_id: str, numbers: Iterable[int]) -> None:
    """Note that some texts are gone whose words may be found until their segments are made anew."""
    firsts = sorted({first_of(number) for number in numbers})
    if not firsts:
        return
    shelf = await _taken_off(tx, kind, owner_id)
    await tx.run_many(
        "UPDATE segments SET stale = 1 WHERE shelf = ? AND first = ? AND stale = 0",
        [(shelf, one) for one in firsts],
    )


async def drop_naming(tx: Connection, constellation: str, name: str) -> None:
    """Take out of the index what says that it is for somebody, as part of renaming them."""
    named = name.encode()
    for kind, owner_id in await owners(tx, constellation):
        # Those without a segment too: a process may have read their texts.
        shelf = await _taken_off(tx, kind, owner_id)
        rows = await tx.all("SELECT first, columns FROM segments WHERE shelf = ?", (shelf,))
        await drop(tx, kind, owner_id, [row[0] for row in rows if named in zlib.decompress(row[1])])


# -- numbers ---------------------------------------------------------------------------------------


async def next_number(tx: Connection, archive_id: str) -> int:
    """Return the number of an archive's next text; one that is in the index is not given again.

    The archive has to be held meanwhile.
    """
    row = await tx.one(
        "SELECT MAX(taken.number) FROM ("
        "SELECT MAX(number) AS number FROM passages WHERE archive_id = ?"
        " UNION ALL SELECT MAX(g.last) FROM segments g JOIN shelves h ON h.id = g.shelf"
        " WHERE h.owner_id = ? AND h.kind = 'archive'"
        ") AS taken",
        (archive_id, archive_id),
    )
    return (row[0] or 0) + 1 if row else 1


# -- vectors of encoders ---------------------------------------------------------------------------


async def embeddings(tx: Connection, shelves: Sequence[int], encoder: str) -> list[Row]:
    """Return (shelf, first, made) of an encoder's vectors."""
    found: list[Row] = []
    for start in range(0, len(shelves), MOST_VALUES):
        part = shelves[start : start + MOST_VALUES]
        found += await tx.all(
            "SELECT shelf, first, made FROM embeddings"
            f" WHERE shelf IN ({marks(part)}) AND encoder = ?",
            (*part, encoder),
        )
    return found


async def embedding(
    tx: Connection, shelf: int, encoder: str, first: int
) -> tuple[int, bytes, bytes] | None:
    """Return (made, numbers, vectors) of a segment's texts."""
    row = await tx.one(
        "SELECT made, numbers, vectors FROM embeddings"
        " WHERE shelf = ? AND encoder = ? AND first = ?",
        (shelf, encoder, first),
    )
    return (row[0], row[1], row[2]) if row else None


async def put_embedding(
    tx: Connection, shelf: int, encoder: str, first: int, made: int, numbers: bytes, vectors: bytes
) -> None:
    """Store an encoder's vectors of a segment's texts in the place of those that were there."""
    await tx.run(
        "INSERT INTO embeddings (shelf, encoder, first, made, numbers, vectors)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (shelf, encoder, first) DO UPDATE SET"
        " made = excluded.made, numbers = excluded.numbers, vectors = excluded.vectors",
        (shelf, encoder, first, made, numbers, vectors),
    )


async def drop_embeddings(tx: Connection, shelf: int, encoder: str) -> None:
    """Remove an encoder's vectors of a shelf."""
    await tx.run("DELETE FROM embeddings WHERE shelf = ? AND encoder = ?", (shelf, encoder))


async def encoders(tx: Connection, shelf: int) -> dict[str, int]:
    """Return whose vectors a shelf has, and of how many texts."""
    rows = await tx.all(
        "SELECT encoder, SUM(LENGTH(numbers)) FROM embeddings WHERE shelf = ? GROUP BY encoder",
        (shelf,),
    )
    return {row[0]: int(row[1]) // 2 for row in rows}
