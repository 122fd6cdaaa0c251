"""Building segments in the background, from texts that are not in a segment yet.

Slow work is done outside of a writing transaction: `pending_segments` and `read_segment_texts`
read, `build_segment` computes. `store_segment` writes the result, unless texts were removed
meanwhile.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping, Sequence

import orjson

from asterism.ports import Encoder
from asterism.records import dataclass
from asterism.search import encode, index
from asterism.search.encode import encode_texts
from asterism.search.index import FORMAT, MAX_COUNT, IndexKey, fingerprint, pack_postings
from asterism.search.search import names_for
from asterism.search.texts import (
    WIDTH,
    IndexedText,
    StoredText,
    make_texts,
    read_texts,
    read_texts_at,
)
from asterism.store import search_index
from asterism.store.database import Connection, Database
from asterism.store.search_index import JOURNAL, RANGE, IndexState, NewSegment, Segment

_PART = 8
"""A segment is built again when as much as a part of it has come since."""
MIN_NEW_TEXTS = 16
"""A segment that is not full is not built again for fewer numbers than this."""


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """A stretch of an index that is to become a segment."""

    kind: str
    owner_id: str
    first: int
    last: int
    index_id: int | None
    removals: int
    """How often something had been removed from the index when it was looked at."""
    fingerprint: int | None
    """The segment that is there; None: there is none."""


@dataclass(frozen=True, slots=True)
class SegmentTexts:
    """What is in a range."""

    range: SegmentRange
    texts: tuple[StoredText, ...]
    open_numbers: tuple[int, ...]
    """Numbers of texts whose turns go on."""
    count: int
    """How many messages or passages were there, those without a text too."""


@dataclass(frozen=True, slots=True)
class BuiltSegment:
    """A segment that is not stored yet."""

    read: SegmentTexts
    segment: NewSegment


async def outdated_indexes(tx: Connection) -> list[IndexKey]:
    """Return the indexes that need new segments."""
    index_key = await search_index.owners(tx)
    index_states = await search_index.index_states(tx, index_key)
    ids = [state.index_id for state in index_states.values() if state.index_id is not None]
    segments: dict[int, list[Segment]] = {}
    for segment in await search_index.segments(tx, ids):
        segments.setdefault(segment.index_id, []).append(segment)
    return [
        key_
        for key_ in index_key
        if _wanted(index_states[key_], segments.get(index_states[key_].index_id or 0, []))
        or any(key_ == key[1:] for key, _ in index.damaged_segments)
    ]


async def pending_segments(tx: Connection, kind: str, owner_id: str) -> list[SegmentRange]:
    """Return what has to be put into segments of an index, in order."""
    index_state = await search_index.index_state(tx, kind, owner_id)
    result = (
        await search_index.segments(tx, [index_state.index_id])
        if index_state.index_id is not None
        else []
    )
    if kind == JOURNAL:
        # A turn that goes on at the end soon ends; it is left to the next time.
        begun = await search_index.open_since(tx, owner_id)
        index_state = index_state._replace(
            top=min(index_state.top, begun - 1 if begun else index_state.top)
        )
    wanted = _wanted(index_state, result)
    wanted |= await _damaged(tx, (kind, owner_id), index_state, result)
    wanted |= await _ended(tx, kind, owner_id, result)
    output = {segment.first: segment.fingerprint for segment in result}
    return [
        SegmentRange(
            kind,
            owner_id,
            first,
            min(first + RANGE - 1, index_state.top),
            index_state.index_id,
            index_state.removals,
            output.get(first),
        )
        for first in sorted(wanted)
    ]


def _wanted(index_state: IndexState, segments: Sequence[Segment]) -> set[int]:
    """Return the first numbers of the segments that have to be built."""
    there = {segment.first: segment for segment in segments}
    result: set[int] = set()
    for first in range(1, index_state.top + 1, RANGE):
        segment = there.get(first)
        last = min(first + RANGE - 1, index_state.top)
        covered = segment.last - first + 1 if segment is not None else 0
        full = last == first + RANGE - 1
        missing = last - first + 1 - covered
        worn = segment is not None and (segment.stale or not segment.fits)
        if worn or (missing > 0 and (full or missing >= max(MIN_NEW_TEXTS, covered // _PART))):
            result.add(first)
    # What is left of an index whose last texts are gone.
    return result | {segment.first for segment in segments if segment.first > index_state.top}


async def _damaged(
    tx: Connection, index_key: IndexKey, index_state: IndexState, segments: Sequence[Segment]
) -> set[int]:
    """Return the segments that were found damaged and are still damaged."""
    key = (index_state.database, *index_key)
    suspects = {first for key_, first in index.damaged_segments if key_ == key}
    index.damaged_segments.difference_update({(key, first) for first in suspects})
    if index_state.index_id is None:
        return set()
    there = {segment.first: segment for segment in segments if segment.first in suspects}
    data = await search_index.segment_data(tx, index_state.index_id, list(there))
    return {
        first
        for first, segment in there.items()
        if index.unpack_segment(segment, *data[first]) is None
    }


async def check(tx: Connection, kind: str, owner_id: str) -> list[int]:
    """Return the first numbers of damaged segments; reads all segments."""
    index_state = await search_index.index_state(tx, kind, owner_id)
    if index_state.index_id is None:
        return []
    bad: list[int] = []
    for segment in await search_index.segments(tx, [index_state.index_id]):
        data = await search_index.segment_data(tx, index_state.index_id, [segment.first])
        if segment.first not in data or index.unpack_segment(segment, *data[segment.first]) is None:
            bad.append(segment.first)
            index.damaged_segments.add(((index_state.database, kind, owner_id), segment.first))
    return bad


async def _ended(tx: Connection, kind: str, owner_id: str, segments: Sequence[Segment]) -> set[int]:
    """Return the segments that left out texts of turns that have ended since."""
    result: set[int] = set()
    for segment in segments:
        if segment.open_numbers:
            there = await read_texts_at(tx, kind, owner_id, orjson.loads(segment.open_numbers))
            if any(raw.open_turn is None for raw in there) or not there:
                result.add(segment.first)
    return result


# -- one range -------------------------------------------------------------------------------------


async def read_segment_texts(tx: Connection, wanted: SegmentRange) -> SegmentTexts:
    """Read the texts of a range, in any transaction."""
    stretch = (wanted.kind, wanted.owner_id, wanted.first, wanted.last)
    texts = await read_texts(tx, *stretch)
    return SegmentTexts(
        wanted,
        tuple(text for text in texts if text.open_turn is None),
        tuple(text.number for text in texts if text.open_turn is not None),
        await search_index.count(tx, *stretch),
    )


def build_segment(read: SegmentTexts) -> BuiltSegment:
    """Build a segment from texts; slow, and needs no transaction."""
    analyzed = [text.analyzed() for text in read.texts]
    plain, vectors = make_texts(analyzed).pack()
    # Numbers that follow one another take a quarter of the room so.
    columns = zlib.compress(plain, 6)
    return BuiltSegment(
        read,
        NewSegment(
            first=read.range.first,
            last=read.range.last,
            fingerprint=fingerprint(FORMAT, columns, vectors),
            open_numbers=orjson.dumps(read.open_numbers).decode() if read.open_numbers else "",
            columns=columns,
            vectors=vectors,
            postings=pack_postings(_places(analyzed)),
        ),
    )


def _places(placed: Sequence[IndexedText]) -> dict[str, list[int]]:
    codes: dict[str, list[int]] = {}
    for place, text in enumerate(placed):
        for term, often in text.text.terms.items():
            if term:
                codes.setdefault(term, []).append(place << 4 | min(often, MAX_COUNT))
    return codes


async def store_segment(tx: Connection, made: BuiltSegment) -> bool:
    """Store a segment; False if the index has changed since it was read, and nothing was stored."""
    wanted, new = made.read.range, made.segment
    index_id, removals = await search_index.lock_index(tx, wanted.kind, wanted.owner_id)
    if removals != wanted.removals:
        return False
    there = {
        segment.first: segment.fingerprint
        for segment in await search_index.segments(tx, [index_id])
    }
    if there.get(new.first) != wanted.fingerprint:
        return False
    stretch = (wanted.kind, wanted.owner_id, new.first, new.last)
    if await search_index.count(tx, *stretch) != made.read.count:
        return False
    if new.last < new.first:
        await search_index.remove_segment(tx, index_id, new.first)
    else:
        await search_index.put_segment(tx, index_id, new)
    return True


# -- vectors of encoders ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MissingVectors:
    """Texts of a segment that have no vector of an encoder yet."""

    first: int
    numbers: tuple[int, ...]
    removals: int
    """How often something had been removed from the index when it was looked at."""


async def missing_vectors(
    tx: Connection, kind: str, owner_id: str, encoder: str, most: int = 1
) -> list[MissingVectors]:
    """Return texts in segments that have no vector of an encoder, segment by segment."""
    loaded = await index.load(tx, kind, owner_id)
    index_id = loaded.inner.index_id
    if index_id is None:
        return []
    result: list[MissingVectors] = []
    output = {row[1]: row[2] for row in await search_index.embeddings(tx, [index_id], encoder)}
    numbers = loaded.texts.numbers
    for segment in sorted(loaded.inner.segments.values()):
        of_segment = (
            numbers[segment.start : segment.start + segment.texts]
            if segment.rows is None
            else numbers[segment.rows]
        )
        has: set[int] = set()
        if segment.first in output:
            row = await search_index.embedding(tx, index_id, encoder, segment.first)
            read = None if row is None else encode.unpack_vectors(*row)
            has = set() if read is None else {segment.first + number for number in read[0].tolist()}
        missing = tuple(number for number in of_segment.tolist() if number not in has)
        if missing:
            result.append(MissingVectors(segment.first, missing, loaded.inner.removals))
            if len(result) == most:
                break
    return result


async def texts_at(
    tx: Connection, kind: str, owner_id: str, numbers: Sequence[int]
) -> dict[int, str]:
    """Return texts of an index by their numbers, those that there are."""
    texts = await read_texts_at(tx, kind, owner_id, numbers)
    return {text.number: text.text for text in texts}


async def store_vectors(
    tx: Connection,
    kind: str,
    owner_id: str,
    encoder: str,
    first: int,
    vectors: Mapping[int, bytes],
    removals: int,
) -> bool:
    """Store vectors of texts of a segment, by their numbers, besides those that are there.

    False if something was removed from the index since they were found to be missing, and none was
    stored: `dropped` is what `MissingVectors` says.
    """
    import numpy as np

    index_id, now = await search_index.lock_index(tx, kind, owner_id)
    if now != removals:
        return False
    row = await search_index.embedding(tx, index_id, encoder, first)
    read = None if row is None else encode.unpack_vectors(*row)
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
        packed_numbers = np.array([number - first for number in numbers], dtype="<u2").tobytes()
        joined = b"".join(whole[number] for number in numbers)
        output = fingerprint(packed_numbers, joined)
        await search_index.put_embedding(
            tx, index_id, encoder, first, output, packed_numbers, joined
        )
    return True


_AT_ONCE = 64
"""Texts that are encoded and stored in one go; a crash costs no more than these."""


class IndexBuilder:
    """Builds indexes in steps. You can stop it between any two steps."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def outdated(self, encoder: str | None) -> list[IndexKey]:
        """Return the indexes that need new segments or vectors."""

        async def read(tx: Connection) -> list[IndexKey]:
            result = await outdated_indexes(tx)
            if encoder is not None:
                result += await search_index.lacking(tx, encoder, WIDTH)
            return result

        return await self._database.read(read)

    async def progress(self, encoder: str) -> tuple[int, int]:
        """Return how many of the indexed texts are encoded, and how many there are."""
        return await self._database.read(lambda tx: search_index.progress(tx, encoder, WIDTH))

    async def build(self, index_key: IndexKey) -> tuple[int, bool]:
        """Index what has to be put into segments of an index.

        Returns:
            How many segments were made, and whether that is all of them: an index may change
            meanwhile.
        """
        count, settled = 0, True
        for wanted in await self._database.read(lambda tx: pending_segments(tx, *index_key)):
            read = await self._database.read(
                lambda tx, wanted=wanted: read_segment_texts(tx, wanted)
            )
            output = await asyncio.to_thread(build_segment, read)
            done = await self._database.write(lambda tx, segment=output: store_segment(tx, segment))
            count, settled = count + done, settled and done
        return count, settled

    async def lacks_vectors(self, index_key: IndexKey, encoder: str) -> bool:
        """Tell by a glance whether texts of an index have to be encoded."""
        return bool(
            await self._database.read(
                lambda tx: search_index.lacking(tx, encoder, WIDTH, index_key)
            )
        )

    async def encode(self, index_key: IndexKey, encoder: Encoder) -> bool:
        """Encode a segment of an index; return whether there is more to do."""
        lacking = await self._database.read(
            lambda tx: missing_vectors(tx, *index_key, encoder.name)
        )
        if not lacking:
            return False
        names = await self._database.read(lambda tx: names_for(tx, index_key[1]))
        for missing in lacking:
            for start in range(0, len(missing.numbers), _AT_ONCE):
                some = missing.numbers[start : start + _AT_ONCE]
                made = await self._vectors(index_key, some, encoder, names)
                if not await self._database.write(
                    lambda tx, missing=missing, made=made: store_vectors(
                        tx, *index_key, encoder.name, missing.first, made, missing.removals
                    )
                ):
                    return True  # something was removed from the index meanwhile
        return True

    async def _vectors(
        self, index_key: IndexKey, numbers: Sequence[int], encoder: Encoder, names: Sequence[str]
    ) -> dict[int, bytes]:
        texts = await self._database.read(lambda tx: texts_at(tx, *index_key, numbers))
        # One that is gone gets a vector too, so that it is not looked for again.
        output = await encode_texts(encoder, [texts.get(number, "") for number in numbers], names)
        return {number: row.tobytes() for number, row in zip(numbers, output, strict=True)}

    async def drop_former_vectors(self, index_key: IndexKey, encoder: str) -> None:
        """Remove the vectors of former encoders, once all texts of an index have new ones."""
        there = await self._database.read(lambda tx: index.encoder_counts(tx, *index_key))
        for name in there.keys() - {encoder}:
            await self._database.write(
                lambda tx, name=name: encode.drop_vectors(tx, *index_key, name)
            )
