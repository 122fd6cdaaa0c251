"""Shelves as a search sees them: all texts of one owner, and their vectors."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from asterism.memory.search import stored
from asterism.memory.search.rows import Rows
from asterism.memory.search.shelf import (
    FORMAT,
    Folded,
    Key,
    Shelf,
    Shelves,
    Whose,
    fingerprint,
    signature_of,
)
from asterism.memory.search.texts import Texts, gather, unpack
from asterism.store import shelved, shelves
from asterism.store.database import Connection
from asterism.store.shelves import Segment, Standing
from asterism.types.people import OWNER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_TAIL = 10_240
"""How many texts that are in no segment are looked at, the latest: some seconds' work, once."""
_NO_END = 1 << 62
_ATTEMPTS = 3
_SPARE = 512

kept = Shelves()
"""The shelves that this process keeps in memory."""
damaged: set[tuple[Key, int]] = set()
"""Segments that were found not to be what was stored; folding looks at them again."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """All texts of a shelf, in the order of their numbers."""

    kind: str
    owner_id: str
    shelf: int | None
    """None: nothing of it is in the index yet."""
    texts: Texts
    left_out: int
    """How many texts of a very long tail are not there yet."""
    inner: Shelf


async def load(tx: Connection, kind: str, owner_id: str) -> Loaded:
    """Return the texts of a shelf."""
    standing = await shelves.standing(tx, kind, owner_id)
    found = await shelves.segments(tx, [standing.shelf]) if standing.shelf is not None else []
    return await _load(tx, (kind, owner_id), standing, found)


async def load_many(tx: Connection, whose: Sequence[Whose]) -> list[Loaded]:
    """Return the texts of several shelves, in this order."""
    if len(whose) == 1:
        return [await load(tx, *whose[0])]
    standings = await shelves.standings(tx, whose)
    segments = await _segments_of(tx, standings)
    return [
        await _load(tx, one, standings[one], segments.get(standings[one].shelf, []))
        for one in whose
    ]


async def _segments_of(
    tx: Connection, standings: dict[Whose, Standing]
) -> dict[int | None, list[Segment]]:
    ids = [one.shelf for one in standings.values() if one.shelf is not None]
    found: dict[int | None, list[Segment]] = {}
    for segment in await shelves.segments(tx, ids):
        found.setdefault(segment.shelf, []).append(segment)
    return found


# -- loading ---------------------------------------------------------------------------------------


async def _load(
    tx: Connection, whose: Whose, standing: Standing, segments: Sequence[Segment]
) -> Loaded:
    key = (standing.database, *whose)
    signature = signature_of(segments)
    for _ in range(_ATTEMPTS):
        known = kept.get(key)
        if known is None or not known.is_of(standing, signature):
            break
        count = known.rows.count
        read: list[stored.Raw] = []
        if known.mark is not None or known.next <= standing.top:
            read = await stored.read(tx, *whose, known.since, _NO_END)
        news = known.news(read)
        if news is None or len(news) > MOST_TAIL:
            break
        ends = await shelved.ends(tx, list(known.open_turns)) if known.open_turns else {}
        placed = [one.placed() for one in news]
        with kept.lock:
            # Another thread may have added to it meanwhile.
            if known.rows.count == count:
                if ends:
                    known.end_turns(ends, OWNER)
                if news:
                    known.add(news, placed)
                    kept.keep(known)
                return _shown(whose, known)
    made = await _made(tx, whose, standing, segments, kept.get(key))
    kept.keep(made)
    return _shown(whose, made)


def _shown(whose: Whose, shelf: Shelf) -> Loaded:
    return Loaded(*whose, shelf.shelf, shelf.rows.view(), shelf.left_out, shelf)


async def _made(
    tx: Connection,
    whose: Whose,
    standing: Standing,
    segments: Sequence[Segment],
    known: Shelf | None,
) -> Shelf:
    """Put a shelf together from its segments, and from the texts that are in none."""
    key = (standing.database, *whose)
    parts = await _parts(tx, key, standing, segments, known)
    ranges = _uncovered([one for one in segments if one.first in parts], standing.top)
    raws, left_out = await _tail(tx, whose, ranges, standing.top)
    absent = [
        number
        for one in segments
        if one.first in parts and one.absent
        for number in orjson.loads(one.absent)
    ]
    if absent:
        raws += await stored.read_at(tx, *whose, absent)
        raws.sort(key=lambda one: one.number)
    placed = [one.placed() for one in raws]
    rows = Rows(sum(map(len, parts.values())) + len(raws) + 64)
    for first in sorted(parts):
        rows.add(parts[first])
    if placed:
        rows.add(gather(placed))
    rows.sort()
    shelf = Shelf(
        key,
        standing.shelf,
        standing.dropped,
        signature_of(segments),
        rows,
        ranges[-1][0],
        left_out,
    )
    _place(shelf, segments, parts)
    numbers = rows.view().numbers
    at: list[int] = numbers.searchsorted([one.number for one in raws]).tolist()
    shelf.note(raws, placed, at)
    if raws and raws[-1].number >= shelf.next:
        shelf.mark = (raws[-1].number, raws[-1].mark)
    return shelf


def _place(shelf: Shelf, segments: Sequence[Segment], parts: dict[int, Texts]) -> None:
    numbers = shelf.rows.view().numbers
    for one in segments:
        texts = parts.get(one.first)
        if texts is None:
            continue
        count = len(texts)
        start = int(numbers.searchsorted(one.first))
        rows = None
        if one.absent and count:
            rows = numbers.searchsorted(texts.numbers)
        shelf.folded[one.first] = Folded(one.first, one.made, count, start, rows)


async def _parts(
    tx: Connection,
    key: Key,
    standing: Standing,
    segments: Sequence[Segment],
    known: Shelf | None,
) -> dict[int, Texts]:
    """Return what segments hold, those whose rows fit together."""
    parts: dict[int, Texts] = {}
    unread: dict[int, Segment] = {}
    for one in segments:
        was = known.folded.get(one.first) if known is not None else None
        if not one.fits:
            damaged.add((key, one.first))
        elif known is not None and was is not None and was.made == one.made:
            parts[one.first] = (
                known.rows.view(was.start, was.start + was.texts)
                if was.rows is None
                else known.rows.at(was.rows)
            )
        else:
            unread[one.first] = one
    if not unread or standing.shelf is None:
        return parts
    for first, held in (await shelves.held(tx, standing.shelf, list(unread))).items():
        texts = whole(unread[first], *held)
        if texts is None:
            damaged.add((key, first))
            _log.warning(
                "The index of %s %s does not fit together from number %d on; these texts are read "
                "as they are until it is made anew.",
                *(key[1], key[2], first),
            )
        else:
            parts[first] = texts
    return parts


def whole(segment: Segment, columns: bytes, vectors: bytes, terms: int) -> Texts | None:
    """Return the texts of a segment, or None if its rows are not what was stored."""
    if not segment.fits or terms != segment.terms:
        return None
    if fingerprint(FORMAT, columns, vectors) != segment.made:
        return None
    return unpack(zlib.decompress(columns), vectors)


def _uncovered(segments: Sequence[Segment], top: int) -> list[tuple[int, int]]:
    """Return the ranges of numbers that are in no segment; the last one is open."""
    found: list[tuple[int, int]] = []
    at = 1
    for one in segments:
        if one.first > at:
            found.append((at, one.first - 1))
        at = max(at, one.last + 1)
    return [*found, (at, max(top, at))]


async def _tail(
    tx: Connection, whose: Whose, ranges: Sequence[tuple[int, int]], top: int
) -> tuple[list[stored.Raw], int]:
    """Return the latest texts of ranges, and about how many were left out."""
    room = MOST_TAIL
    left_out = 0
    found: list[list[stored.Raw]] = []
    for place, (first, last) in reversed(list(enumerate(ranges))):
        is_open = place == len(ranges) - 1
        many = top - first + 1 if is_open else last - first + 1
        if room <= 0:
            left_out += many
            continue
        start = max(first, (max(top, first) if is_open else last) - room + 1)
        left_out += start - first
        found.append(await stored.read(tx, *whose, start, _NO_END if is_open else last))
        room -= many
    return [one for part in reversed(found) for one in part], max(left_out, 0)


# -- vectors of encoders ---------------------------------------------------------------------------


async def encoded(
    tx: Connection, loaded: Sequence[Loaded], encoder: str
) -> tuple[NDArray[np.int8], NDArray[np.bool_], NDArray[np.float32]] | None:
    """Return an encoder's vectors for the rows of the concatenation, which have one, and how long.

    None: none has.
    """
    import numpy as np

    there: dict[int, dict[int, int]] = {}
    ids = [one.shelf for one in loaded if one.shelf is not None]
    for shelf, first, made in await shelves.embeddings(tx, ids, encoder):
        there.setdefault(shelf, {})[first] = made
    parts = [
        await _encoded(tx, one, encoder, there[one.shelf])
        if one.shelf is not None and one.shelf in there
        else None
        for one in loaded
    ]
    sizes = [part[0].shape[1] for part in parts if part is not None]
    if not sizes:
        return None
    size = max(sizes)
    if len(parts) == 1 and parts[0] is not None:
        return parts[0]
    vectors = np.zeros((sum(len(one.texts) for one in loaded), size), dtype=np.int8)
    has = np.zeros(len(vectors), dtype=np.bool_)
    norms = np.zeros(len(vectors), dtype=np.float32)
    start = 0
    for one, part in zip(loaded, parts, strict=True):
        if part is not None and part[0].shape[1] == size:
            vectors[start : start + len(one.texts)] = part[0]
            has[start : start + len(one.texts)] = part[1]
            norms[start : start + len(one.texts)] = part[2]
        start += len(one.texts)
    return vectors, has, norms


async def _encoded(
    tx: Connection, one: Loaded, encoder: str, there: dict[int, int]
) -> tuple[NDArray[np.int8], NDArray[np.bool_], NDArray[np.float32]] | None:
    import numpy as np

    assert one.shelf is not None
    count = len(one.texts)
    known = one.inner.encoded.get(encoder)
    # Texts that were added since have none: there is room for some of them.
    if known is not None and known[0] == there and len(known[1]) >= count:
        return known[1][:count], known[2][:count], known[3][:count]
    vectors: NDArray[np.int8] | None = None
    room = count + _SPARE
    has = np.zeros(room, dtype=np.bool_)
    norms = np.zeros(room, dtype=np.float32)
    for first in there:
        row = await shelves.embedding(tx, one.shelf, encoder, first)
        read = None if row is None else vectors_of(*row)
        if read is None or (vectors is not None and read[1].shape[1] != vectors.shape[1]):
            continue
        if vectors is None:
            vectors = np.zeros((room, read[1].shape[1]), dtype=np.int8)
        numbers = read[0].astype(np.int64) + first
        rows = one.texts.numbers.searchsorted(numbers)
        known_rows = rows < count
        known_rows[known_rows] = one.texts.numbers[rows[known_rows]] == numbers[known_rows]
        vectors[rows[known_rows]] = read[1][known_rows]
        has[rows[known_rows]] = True
        floats = read[1].astype(np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", floats, floats))
        norms[rows[known_rows]] = lengths[known_rows]
    if vectors is None:
        return None
    with kept.lock:
        one.inner.encoded[encoder] = (there, vectors, has, norms)
        if kept.get(one.inner.key) is one.inner:
            kept.keep(one.inner)
    return vectors[:count], has[:count], norms[:count]


def vectors_of(
    made: int, numbers: bytes, vectors: bytes
) -> tuple[NDArray[np.uint16], NDArray[np.int8]] | None:
    """Return whose vectors there are, and the vectors; None if they are not what was stored."""
    import numpy as np

    if not numbers or len(numbers) % 2 or fingerprint(numbers, vectors) != made:
        return None
    many = len(numbers) // 2
    if len(vectors) % many:
        return None
    return np.frombuffer(numbers, dtype="<u2"), np.frombuffer(vectors, dtype=np.int8).reshape(
        many, -1
    )


def clear() -> None:
    """Keep no shelves any more."""
    kept.clear()
