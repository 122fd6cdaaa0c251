"""Folding: texts that are in no segment yet are put into one, in the background.

What takes time is done outside of a writing transaction: `pending` and `read_range` read,
`analysed` thinks, `fold` writes what was made if nothing was taken off the shelf meanwhile.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from asterism.memory.search import index, stored
from asterism.memory.search.postings import packed
from asterism.memory.search.shelf import FORMAT, MOST_OFTEN, Whose, fingerprint
from asterism.memory.search.stored import Raw
from asterism.memory.search.texts import Placed, gather
from asterism.store import shelved, shelves
from asterism.store.database import Connection
from asterism.store.shelves import JOURNAL, RANGE, NewSegment, Segment, Standing

_PART = 8
"""A segment is made anew when as much as a part of it has come since."""
FEWEST = 16
"""A segment that is not full is not made anew for fewer numbers than this."""


@dataclass(frozen=True, slots=True)
class Range:
    """A stretch of a shelf that is to become a segment."""

    kind: str
    owner_id: str
    first: int
    last: int
    shelf: int | None
    dropped: int
    """How often something had been taken off the shelf when it was looked at."""
    made: int | None
    """The segment that is there; None: there is none."""


@dataclass(frozen=True, slots=True)
class Read:
    """What is in a range."""

    range: Range
    texts: tuple[Raw, ...]
    absent: tuple[int, ...]
    """Numbers of texts whose turns go on."""
    count: int
    """How many messages or passages were there, those without a text too."""


@dataclass(frozen=True, slots=True)
class Made:
    """A segment that is not stored yet."""

    read: Read
    segment: NewSegment


async def behind(tx: Connection, constellation: str) -> list[Whose]:
    """Return the shelves of which something is to be folded."""
    whose = await shelves.owners(tx, constellation)
    standings = await shelves.standings(tx, whose)
    ids = [one.shelf for one in standings.values() if one.shelf is not None]
    segments: dict[int, list[Segment]] = {}
    for one in await shelves.segments(tx, ids):
        segments.setdefault(one.shelf, []).append(one)
    return [
        one
        for one in whose
        if _wanted(standings[one], segments.get(standings[one].shelf or 0, []))
        or any(one == key[1:] for key, _ in index.damaged)
    ]


async def pending(tx: Connection, kind: str, owner_id: str) -> list[Range]:
    """Return what is to be folded of a shelf, in order."""
    standing = await shelves.standing(tx, kind, owner_id)
    found = await shelves.segments(tx, [standing.shelf]) if standing.shelf is not None else []
    if kind == JOURNAL:
        # A turn that goes on at the end soon ends; it is left to the next time.
        begun = await shelved.open_since(tx, owner_id)
        standing = standing._replace(top=min(standing.top, begun - 1 if begun else standing.top))
    wanted = _wanted(standing, found)
    wanted |= await _damaged(tx, (kind, owner_id), standing, found)
    wanted |= await _ended(tx, kind, owner_id, found)
    made = {one.first: one.made for one in found}
    return [
        Range(
            kind,
            owner_id,
            first,
            min(first + RANGE - 1, standing.top),
            standing.shelf,
            standing.dropped,
            made.get(first),
        )
        for first in sorted(wanted)
    ]


def _wanted(standing: Standing, segments: Sequence[Segment]) -> set[int]:
    """Return with which numbers the segments begin that have to be made, or made anew."""
    there = {one.first: one for one in segments}
    found: set[int] = set()
    for first in range(1, standing.top + 1, RANGE):
        one = there.get(first)
        last = min(first + RANGE - 1, standing.top)
        covered = one.last - first + 1 if one is not None else 0
        full = last == first + RANGE - 1
        missing = last - first + 1 - covered
        worn = one is not None and (one.stale or not one.fits)
        if worn or (missing > 0 and (full or missing >= max(FEWEST, covered // _PART))):
            found.add(first)
    # What is left of a shelf whose last texts are gone.
    return found | {one.first for one in segments if one.first > standing.top}


async def _damaged(
    tx: Connection, whose: Whose, standing: Standing, segments: Sequence[Segment]
) -> set[int]:
    """Return the segments that were found not to be what was stored, and still are not."""
    key = (standing.database, *whose)
    suspects = {first for one, first in index.damaged if one == key}
    index.damaged.difference_update({(key, first) for first in suspects})
    if standing.shelf is None:
        return set()
    there = {one.first: one for one in segments if one.first in suspects}
    held = await shelves.held(tx, standing.shelf, list(there))
    return {first for first, one in there.items() if index.whole(one, *held[first]) is None}


async def check(tx: Connection, kind: str, owner_id: str) -> list[int]:
    """Return with which numbers the segments begin whose rows do not fit together; reads all."""
    standing = await shelves.standing(tx, kind, owner_id)
    if standing.shelf is None:
        return []
    bad: list[int] = []
    for one in await shelves.segments(tx, [standing.shelf]):
        held = await shelves.held(tx, standing.shelf, [one.first])
        if one.first not in held or index.whole(one, *held[one.first]) is None:
            bad.append(one.first)
            index.damaged.add(((standing.database, kind, owner_id), one.first))
    return bad


async def _ended(tx: Connection, kind: str, owner_id: str, segments: Sequence[Segment]) -> set[int]:
    """Return the segments that left texts out whose turns have ended since."""
    found: set[int] = set()
    for one in segments:
        if one.absent:
            there = await stored.read_at(tx, kind, owner_id, orjson.loads(one.absent))
            if any(raw.open_turn is None for raw in there) or not there:
                found.add(one.first)
    return found


# -- one range -------------------------------------------------------------------------------------


async def read_range(tx: Connection, wanted: Range) -> Read:
    """Read what is in a range, in any transaction."""
    stretch = (wanted.kind, wanted.owner_id, wanted.first, wanted.last)
    raws = await stored.read(tx, *stretch)
    return Read(
        wanted,
        tuple(one for one in raws if one.open_turn is None),
        tuple(one.number for one in raws if one.open_turn is not None),
        await shelved.count(tx, *stretch),
    )


def analysed(read: Read) -> Made:
    """Make a segment of what was read; takes time, and no transaction."""
    placed = [one.placed() for one in read.texts]
    plain, vectors = gather(placed).pack()
    # Numbers that follow one another take a quarter of the room so.
    columns = zlib.compress(plain, 6)
    return Made(
        read,
        NewSegment(
            first=read.range.first,
            last=read.range.last,
            made=fingerprint(FORMAT, columns, vectors),
            absent=orjson.dumps(read.absent).decode() if read.absent else "",
            columns=columns,
            vectors=vectors,
            postings=packed(_places(placed)),
        ),
    )


def _places(placed: Sequence[Placed]) -> dict[str, list[int]]:
    codes: dict[str, list[int]] = {}
    for place, one in enumerate(placed):
        for term, often in one.text.terms.items():
            if term:
                codes.setdefault(term, []).append(place << 4 | min(often, MOST_OFTEN))
    return codes


async def fold(tx: Connection, made: Made) -> bool:
    """Store a segment; False if the shelf has changed since it was read, and nothing was stored."""
    wanted, new = made.read.range, made.segment
    shelf, dropped = await shelves.hold(tx, wanted.kind, wanted.owner_id)
    if dropped != wanted.dropped:
        return False
    there = {one.first: one.made for one in await shelves.segments(tx, [shelf])}
    if there.get(new.first) != wanted.made:
        return False
    stretch = (wanted.kind, wanted.owner_id, new.first, new.last)
    if await shelved.count(tx, *stretch) != made.read.count:
        return False
    if new.last < new.first:
        await shelves.remove_segment(tx, shelf, new.first)
    else:
        await shelves.put_segment(tx, shelf, new)
    return True


# -- vectors of encoders ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unencoded:
    """Texts of a segment that have no vector of an encoder yet."""

    first: int
    numbers: tuple[int, ...]
    dropped: int
    """How often something had been taken off the shelf when it was looked at."""


async def unencoded(
    tx: Connection, kind: str, owner_id: str, encoder: str, most: int = 1
) -> list[Unencoded]:
    """Return texts in segments that have no vector of an encoder, segment by segment."""
    loaded = await index.load(tx, kind, owner_id)
    shelf = loaded.inner.shelf
    if shelf is None:
        return []
    found: list[Unencoded] = []
    made = {row[1]: row[2] for row in await shelves.embeddings(tx, [shelf], encoder)}
    numbers = loaded.texts.numbers
    for folded in sorted(loaded.inner.folded.values()):
        of_segment = (
            numbers[folded.start : folded.start + folded.texts]
            if folded.rows is None
            else numbers[folded.rows]
        )
        has: set[int] = set()
        if folded.first in made:
            row = await shelves.embedding(tx, shelf, encoder, folded.first)
            read = None if row is None else index.vectors_of(*row)
            has = set() if read is None else {folded.first + one for one in read[0].tolist()}
        missing = tuple(one for one in of_segment.tolist() if one not in has)
        if missing:
            found.append(Unencoded(folded.first, missing, loaded.inner.dropped))
            if len(found) == most:
                break
    return found


async def texts_at(
    tx: Connection, kind: str, owner_id: str, numbers: Sequence[int]
) -> dict[int, str]:
    """Return texts of a shelf by their numbers, those that there are."""
    raws = await stored.read_at(tx, kind, owner_id, numbers)
    return {one.number: one.text for one in raws}


async def put_encoded(
    tx: Connection,
    kind: str,
    owner_id: str,
    encoder: str,
    first: int,
    vectors: Mapping[int, bytes],
    dropped: int,
) -> bool:
    """Store vectors of texts of a segment, by their numbers, besides those that are there.

    False if something was taken off the shelf since they were found to be missing, and none was
    stored: `dropped` is what `Unencoded` says.
    """
    import numpy as np

    shelf, now = await shelves.hold(tx, kind, owner_id)
    if now != dropped:
        return False
    row = await shelves.embedding(tx, shelf, encoder, first)
    read = None if row is None else index.vectors_of(*row)
    whole: dict[int, bytes] = {}
    size = len(next(iter(vectors.values()), b""))
    if read is not None and read[1].shape[1] == size:
        whole = {
            first + number: read[1][place].tobytes()
            for place, number in enumerate(read[0].tolist())
        }
    whole.update(vectors)
    if whole:
        numbers = sorted(whole)
        packed = np.array([one - first for one in numbers], dtype="<u2").tobytes()
        joined = b"".join(whole[one] for one in numbers)
        made = fingerprint(packed, joined)
        await shelves.put_embedding(tx, shelf, encoder, first, made, packed, joined)
    return True


async def encoders_of(tx: Connection, kind: str, owner_id: str) -> dict[str, int]:
    """Return whose vectors a shelf has, and of how many texts."""
    standing = await shelves.standing(tx, kind, owner_id)
    return await shelves.encoders(tx, standing.shelf) if standing.shelf is not None else {}


async def drop_encoded(tx: Connection, kind: str, owner_id: str, encoder: str) -> None:
    """Remove an encoder's vectors of a shelf."""
    standing = await shelves.standing(tx, kind, owner_id)
    if standing.shelf is not None:
        await shelves.drop_embeddings(tx, standing.shelf, encoder)
