"""An index that is in memory, and the indexes that a process keeps there."""

from __future__ import annotations

import logging
import zlib
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from hashlib import blake2b
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from asterism.search.texts import (
    IndexedText,
    StoredText,
    Texts,
    make_texts,
    read_texts,
    read_texts_at,
    unpack,
)
from asterism.store import search_index
from asterism.store.database import Connection
from asterism.store.search_index import IndexState, Segment
from asterism.types.agents import OWNER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    _EncoderVectors = tuple[Any, NDArray[np.int8], NDArray[np.bool_], NDArray[np.float32]]

MAX_COUNT = 15
"""How often a term counts in one text at most; four bits."""
FORMAT = b"3"
"""Counted up when texts are found by something else; segments of another are built again."""
_MAX_BYTES = 64 << 20

IndexKey = tuple[str, str]
"""A kind of index, `journal` or `archive`, and whose it is: an agent's or a source's id."""
Signature = tuple[tuple[int, int, int, str, bool], ...]
CacheKey = tuple[int, str, str]


def fingerprint(*parts: bytes) -> int:
    """Return a number by which the same contents are known again."""
    output = blake2b(digest_size=8)
    for part in parts:
        output.update(len(part).to_bytes(8, "little"))
        output.update(part)
    return int.from_bytes(output.digest(), "little") >> 1


def signature_of(segments: Sequence[Segment]) -> Signature:
    """Return what changes whenever a segment does."""
    return tuple(
        (segment.first, segment.last, segment.fingerprint, segment.open_numbers, segment.fits)
        for segment in segments
    )


class SegmentRows(NamedTuple):
    """Where the texts of a segment are among the rows of its index."""

    first: int
    fingerprint: int
    texts: int
    """How many."""
    start: int
    rows: NDArray[np.int64] | None
    """Each of them; None: they follow one another from `start`."""


@dataclass(slots=True)
class LoadedIndex:
    """An index in memory. Texts are added at its end; whatever else changes makes a new one."""

    key: CacheKey
    index_id: int | None
    removals: int
    signature: Signature
    rows: GrowingTexts
    next: int
    """All texts from this number on are in no segment."""
    left_out: int = 0
    segments: dict[int, SegmentRows] = field(default_factory=dict[int, SegmentRows])
    tail_terms: dict[str, tuple[list[int], list[int]]] = field(
        default_factory=dict[str, tuple[list[int], list[int]]]
    )
    """The rows that have a term, and how often; of texts that are in no segment."""
    open_turns: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """The rows of turns that go on."""
    mark: tuple[int, tuple[Any, ...]] | None = None
    """The last text that is in no segment: its number, and what tells it from others."""
    encoded: dict[str, _EncoderVectors] = field(default_factory=dict[str, "_EncoderVectors"])
    """Vectors by the name of their encoder."""
    postings: dict[str, list[tuple[int, bytes]]] = field(
        default_factory=dict[str, "list[tuple[int, bytes]]"]
    )
    """The rows of terms that begin so, each with the segment's first number; those read so far."""
    posting_bytes: int = 0

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        vectors = sum(vectors_[1].nbytes for vectors_ in self.encoded.values())
        return self.rows.size + vectors + self.posting_bytes + 200 * len(self.tail_terms)

    @property
    def since(self) -> int:
        """The number from which texts are read again: the last known one, to know it again."""
        return self.next if self.mark is None else self.mark[0]

    def is_of(self, index_state: IndexState, signature: Signature) -> bool:
        """Tell whether it shows an index that stands so, but for texts at its end."""
        return (
            self.index_id == index_state.index_id
            and self.removals == index_state.removals
            and self.signature == signature
        )

    def new_texts(self, read: list[StoredText]) -> list[StoredText] | None:
        """Return what comes after the last known text; None: that one is another one now."""
        if self.mark is None:
            return read
        if not read or (read[0].number, read[0].mark) != self.mark:
            return None
        return read[1:]

    def add(self, texts_: Sequence[StoredText], placed: Sequence[IndexedText]) -> None:
        """Add texts that are in no segment, whose numbers are above all others."""
        if not texts_:
            return
        start = self.rows.count
        self.rows.add(make_texts(placed))
        self.note(texts_, placed, range(start, start + len(texts_)))
        self.mark = (texts_[-1].number, texts_[-1].mark)

    def keep_postings(self, read: dict[str, list[tuple[int, bytes]]]) -> None:
        """Keep rows of terms that were read, those of all segments."""
        with cache.lock:
            new = {prefix: rows for prefix, rows in read.items() if prefix not in self.postings}
            self.postings.update(new)
            self.posting_bytes += sum(100 + len(row) for rows in new.values() for _, row in rows)
            if cache.get(self.key) is self:
                cache.keep(self)

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """What tells its texts from others, together with how many they are."""
        return (self.key, self.removals, self.signature, self.mark)

    def note(
        self, texts_: Sequence[StoredText], placed: Sequence[IndexedText], rows: Iterable[int]
    ) -> None:
        """Note where the terms of texts in no segment are, and which turns go on."""
        for raw, text, row in zip(texts_, placed, rows, strict=True):
            if raw.open_turn is not None:
                self.open_turns.setdefault(raw.open_turn, []).append(row)
            for term, often in text.text.terms.items():
                there, counts = self.tail_terms.setdefault(term, ([], []))
                there.append(row)
                counts.append(min(often, MAX_COUNT))

    def end_turns(self, ends: dict[str, tuple[str | None, int | None]], owner: str) -> None:
        """Take over who may see what was said in turns that went on."""
        for turn_id, (audience, ended_at) in ends.items():
            for row in self.open_turns.get(turn_id, ()):
                self.rows.put("audience", row, audience or owner)
            if ended_at is not None:
                self.open_turns.pop(turn_id, None)


class IndexCache:
    """The indexes that a process keeps in memory, those used last, up to so many bytes.

    The one used last stays, however large it is, since each search would have to read it again.
    """

    def __init__(self, most_bytes: int = _MAX_BYTES) -> None:
        self.lock = RLock()
        self._most = most_bytes
        self._kept: OrderedDict[CacheKey, tuple[LoadedIndex, int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: CacheKey) -> LoadedIndex | None:
        """Return an index if it is kept."""
        with self.lock:
            result = self._kept.get(key)
            if result is None:
                return None
            self._kept.move_to_end(key)
            return result[0]

    def keep(self, index: LoadedIndex) -> None:
        """Keep an index in the place of what is kept of it."""
        with self.lock:
            _, before = self._kept.pop(index.key, (None, 0))
            size = index.size
            self._kept[index.key] = (index, size)
            self._bytes += size - before
            while self._bytes > self._most and len(self._kept) > 1:
                _, (_, gone) = self._kept.popitem(last=False)
                self._bytes -= gone

    def clear(self) -> None:
        """Keep nothing any more."""
        with self.lock:
            self._kept.clear()
            self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size(self) -> int:
        """How many bytes are kept."""
        return self._bytes


_LISTS = {"speaker": "speakers", "thread": "threads", "audience": "audiences"}
_SPARE_ROWS = 256


@lru_cache(1)
def _columns() -> dict[str, tuple[tuple[int, ...], Any]]:
    """Return the columns of texts, each with the shape of a value and its type."""
    nothing = make_texts([])
    columns = [field_.name for field_ in fields(Texts) if field_.name not in _LISTS.values()]
    # More texts have more speakers, threads and audiences than those of one segment.
    return {
        name: (
            getattr(nothing, name).shape[1:],
            "uint32" if name in _LISTS else getattr(nothing, name).dtype,
        )
        for name in columns
    }


class GrowingTexts:
    """Columns with room at their end. What a view shows stays as it is when rows are added."""

    def __init__(self, capacity: int) -> None:
        self.count = 0
        self._room = 0
        self._columns: dict[str, NDArray[Any]] = {}
        self._known: dict[str, dict[str, int]] = {name: {} for name in _LISTS}
        self._lists: dict[str, list[str]] = {name: [] for name in _LISTS}
        self._grow(capacity)

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return sum(column.nbytes for column in self._columns.values())

    def _grow(self, capacity: int) -> None:
        import numpy as np

        for name, (shape, kind) in _columns().items():
            output = np.empty((capacity, *shape), dtype=kind)
            if self.count:
                output[: self.count] = self._columns[name][: self.count]
            self._columns[name] = output
        self._room = capacity

    def add(self, texts: Texts) -> None:
        """Add texts at the end."""
        import numpy as np

        first, last = self.count, self.count + len(texts)
        if last > self._room:
            self._grow(last + last // 4 + _SPARE_ROWS)
        for name, column in self._columns.items():
            values = getattr(texts, name)
            if name in _LISTS and len(texts):
                moved = [self.known(name, value) for value in getattr(texts, _LISTS[name])]
                values = np.array(moved, dtype="uint32")[values]
            column[first:last] = values
        self.count = last

    def known(self, column: str, value: str) -> int:
        """Return the place of a value in the list of a column, which is added if need be."""
        known = self._known[column]
        place = known.get(value)
        if place is None:
            place = known[value] = len(known)
            self._lists[column].append(value)
        return place

    def put(self, column: str, row: int, value: str) -> None:
        """Give a row another speaker, thread or audience."""
        self._columns[column][row] = self.known(column, value)

    def sort(self) -> None:
        """Put the rows in the order of their numbers; only before anybody has seen them."""
        import numpy as np

        numbers = self._columns["numbers"][: self.count]
        if bool(np.all(numbers[1:] > numbers[:-1])):
            return
        order = np.argsort(numbers, kind="stable")
        for column in self._columns.values():
            column[: self.count] = column[: self.count][order]

    def view(self, first: int = 0, last: int | None = None) -> Texts:
        """Return some rows as texts; nothing is copied."""
        last = self.count if last is None else last
        return self._texts({name: column[first:last] for name, column in self._columns.items()})

    def at(self, rows: NDArray[Any]) -> Texts:
        """Return a copy of some rows."""
        return self._texts({name: column[rows] for name, column in self._columns.items()})

    def _texts(self, columns: dict[str, Any]) -> Texts:
        return Texts(
            **columns,
            speakers=self._lists["speaker"],
            threads=self._lists["thread"],
            audiences=self._lists["audience"],
        )


MAX_TAIL = 10_240
"""How many texts that are in no segment are looked at, the latest: some seconds' work, once."""
_NO_END = 1 << 62
_ATTEMPTS = 3
_SPARE = 512

cache = IndexCache()
"""The indexes that this process keeps in memory."""
damaged_segments: set[tuple[CacheKey, int]] = set()
"""Segments that were found not to be what was stored; indexing looks at them again."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IndexSnapshot:
    """All texts of an index, in the order of their numbers."""

    kind: str
    owner_id: str
    index_id: int | None
    """None: nothing of it is in the index yet."""
    texts: Texts
    left_out: int
    """How many texts of a very long tail are not there yet."""
    inner: LoadedIndex


async def load(tx: Connection, kind: str, owner_id: str) -> IndexSnapshot:
    """Return the texts of an index."""
    index_state = await search_index.index_state(tx, kind, owner_id)
    result = (
        await search_index.segments(tx, [index_state.index_id])
        if index_state.index_id is not None
        else []
    )
    return await _load(tx, (kind, owner_id), index_state, result)


async def load_indexes(tx: Connection, index_key: Sequence[IndexKey]) -> list[IndexSnapshot]:
    """Return the texts of several indexes, in this order."""
    if len(index_key) == 1:
        return [await load(tx, *index_key[0])]
    index_states = await search_index.index_states(tx, index_key)
    segments = await _segments_of(tx, index_states)
    return [
        await _load(tx, key, index_states[key], segments.get(index_states[key].index_id, []))
        for key in index_key
    ]


async def _segments_of(
    tx: Connection, index_states: dict[IndexKey, IndexState]
) -> dict[int | None, list[Segment]]:
    ids = [state.index_id for state in index_states.values() if state.index_id is not None]
    result: dict[int | None, list[Segment]] = {}
    for segment in await search_index.segments(tx, ids):
        result.setdefault(segment.index_id, []).append(segment)
    return result


# -- loading ---------------------------------------------------------------------------------------


async def _load(
    tx: Connection, index_key: IndexKey, index_state: IndexState, segments: Sequence[Segment]
) -> IndexSnapshot:
    key = (index_state.database, *index_key)
    signature = signature_of(segments)
    for _ in range(_ATTEMPTS):
        known = cache.get(key)
        if known is None or not known.is_of(index_state, signature):
            break
        count = known.rows.count
        read: list[StoredText] = []
        if known.mark is not None or known.next <= index_state.top:
            read = await read_texts(tx, *index_key, known.since, _NO_END)
        new_texts = known.new_texts(read)
        if new_texts is None or len(new_texts) > MAX_TAIL:
            break
        ends = await search_index.ends(tx, list(known.open_turns)) if known.open_turns else {}
        analyzed = [text.analyzed() for text in new_texts]
        with cache.lock:
            # Another thread may have added to it meanwhile.
            if known.rows.count == count:
                if ends:
                    known.end_turns(ends, OWNER)
                if new_texts:
                    known.add(new_texts, analyzed)
                    cache.keep(known)
                return _snapshot(index_key, known)
    output = await _assemble(tx, index_key, index_state, segments, cache.get(key))
    cache.keep(output)
    return _snapshot(index_key, output)


def _snapshot(index_key: IndexKey, index: LoadedIndex) -> IndexSnapshot:
    return IndexSnapshot(*index_key, index.index_id, index.rows.view(), index.left_out, index)


async def _assemble(
    tx: Connection,
    index_key: IndexKey,
    index_state: IndexState,
    segments: Sequence[Segment],
    known: LoadedIndex | None,
) -> LoadedIndex:
    """Put an index together from its segments, and from the texts that are in none."""
    key = (index_state.database, *index_key)
    parts = await _parts(tx, key, index_state, segments, known)
    ranges = _uncovered(
        [segment for segment in segments if segment.first in parts], index_state.top
    )
    texts_, left_out = await _tail(tx, index_key, ranges, index_state.top)
    open_numbers = [
        number
        for segment in segments
        if segment.first in parts and segment.open_numbers
        for number in orjson.loads(segment.open_numbers)
    ]
    if open_numbers:
        texts_ += await read_texts_at(tx, *index_key, open_numbers)
        texts_.sort(key=lambda text: text.number)
    analyzed = [text.analyzed() for text in texts_]
    rows = GrowingTexts(sum(map(len, parts.values())) + len(texts_) + 64)
    for first in sorted(parts):
        rows.add(parts[first])
    if analyzed:
        rows.add(make_texts(analyzed))
    rows.sort()
    index = LoadedIndex(
        key,
        index_state.index_id,
        index_state.removals,
        signature_of(segments),
        rows,
        ranges[-1][0],
        left_out,
    )
    _place(index, segments, parts)
    numbers = rows.view().numbers
    at: list[int] = numbers.searchsorted([text.number for text in texts_]).tolist()
    index.note(texts_, analyzed, at)
    if texts_ and texts_[-1].number >= index.next:
        index.mark = (texts_[-1].number, texts_[-1].mark)
    return index


def _place(index: LoadedIndex, segments: Sequence[Segment], parts: dict[int, Texts]) -> None:
    numbers = index.rows.view().numbers
    for segment in segments:
        texts = parts.get(segment.first)
        if texts is None:
            continue
        count = len(texts)
        start = int(numbers.searchsorted(segment.first))
        rows = None
        if segment.open_numbers and count:
            rows = numbers.searchsorted(texts.numbers)
        index.segments[segment.first] = SegmentRows(
            segment.first, segment.fingerprint, count, start, rows
        )


async def _parts(
    tx: Connection,
    key: CacheKey,
    index_state: IndexState,
    segments: Sequence[Segment],
    known: LoadedIndex | None,
) -> dict[int, Texts]:
    """Return what segments hold, those whose rows fit together."""
    parts: dict[int, Texts] = {}
    unread: dict[int, Segment] = {}
    for segment in segments:
        was = known.segments.get(segment.first) if known is not None else None
        if not segment.fits:
            damaged_segments.add((key, segment.first))
        elif known is not None and was is not None and was.fingerprint == segment.fingerprint:
            parts[segment.first] = (
                known.rows.view(was.start, was.start + was.texts)
                if was.rows is None
                else known.rows.at(was.rows)
            )
        else:
            unread[segment.first] = segment
    if not unread or index_state.index_id is None:
        return parts
    for first, held in (
        await search_index.segment_data(tx, index_state.index_id, list(unread))
    ).items():
        texts = unpack_segment(unread[first], *held)
        if texts is None:
            damaged_segments.add((key, first))
            _log.warning(
                "The index of %s %s does not fit together from number %d on; these texts are read "
                "as they are until it is built again.",
                *(key[1], key[2], first),
            )
        else:
            parts[first] = texts
    return parts


def unpack_segment(segment: Segment, columns: bytes, vectors: bytes, terms: int) -> Texts | None:
    """Return the texts of a segment, or None if its rows are not what was stored."""
    if not segment.fits or terms != segment.terms:
        return None
    if fingerprint(FORMAT, columns, vectors) != segment.fingerprint:
        return None
    return unpack(zlib.decompress(columns), vectors)


def _uncovered(segments: Sequence[Segment], top: int) -> list[tuple[int, int]]:
    """Return the ranges of numbers that are in no segment; the last one is open."""
    result: list[tuple[int, int]] = []
    at = 1
    for segment in segments:
        if segment.first > at:
            result.append((at, segment.first - 1))
        at = max(at, segment.last + 1)
    return [*result, (at, max(top, at))]


async def _tail(
    tx: Connection, index_key: IndexKey, ranges: Sequence[tuple[int, int]], top: int
) -> tuple[list[StoredText], int]:
    """Return the latest texts of ranges, and about how many were left out."""
    room = MAX_TAIL
    left_out = 0
    result: list[list[StoredText]] = []
    for place, (first, last) in reversed(list(enumerate(ranges))):
        is_open = place == len(ranges) - 1
        many = top - first + 1 if is_open else last - first + 1
        if room <= 0:
            left_out += many
            continue
        start = max(first, (max(top, first) if is_open else last) - room + 1)
        left_out += start - first
        result.append(await read_texts(tx, *index_key, start, _NO_END if is_open else last))
        room -= many
    return [number for part in reversed(result) for number in part], max(left_out, 0)


# -- vectors of encoders ---------------------------------------------------------------------------


async def encoded(
    tx: Connection, loaded: Sequence[IndexSnapshot], encoder: str
) -> tuple[NDArray[np.int8], NDArray[np.bool_], NDArray[np.float32]] | None:
    """Return an encoder's vectors for the rows of the concatenation, which have one, and how long.

    None: none has.
    """
    import numpy as np

    there: dict[int, dict[int, int]] = {}
    ids = [snapshot.index_id for snapshot in loaded if snapshot.index_id is not None]
    for index_id, first, output in await search_index.embeddings(tx, ids, encoder):
        there.setdefault(index_id, {})[first] = output
    parts = [
        await _vectors_of(tx, snapshot, encoder, there[snapshot.index_id])
        if snapshot.index_id is not None and snapshot.index_id in there
        else None
        for snapshot in loaded
    ]
    sizes = [part[0].shape[1] for part in parts if part is not None]
    if not sizes:
        return None
    size = max(sizes)
    if len(parts) == 1 and parts[0] is not None:
        return parts[0]
    vectors = np.zeros((sum(len(snapshot.texts) for snapshot in loaded), size), dtype=np.int8)
    has = np.zeros(len(vectors), dtype=np.bool_)
    norms = np.zeros(len(vectors), dtype=np.float32)
    start = 0
    for snapshot, part in zip(loaded, parts, strict=True):
        if part is not None and part[0].shape[1] == size:
            vectors[start : start + len(snapshot.texts)] = part[0]
            has[start : start + len(snapshot.texts)] = part[1]
            norms[start : start + len(snapshot.texts)] = part[2]
        start += len(snapshot.texts)
    return vectors, has, norms


async def _vectors_of(
    tx: Connection, snapshot: IndexSnapshot, encoder: str, there: dict[int, int]
) -> tuple[NDArray[np.int8], NDArray[np.bool_], NDArray[np.float32]] | None:
    import numpy as np

    assert snapshot.index_id is not None
    count = len(snapshot.texts)
    known = snapshot.inner.encoded.get(encoder)
    # Texts that were added since have none: there is room for some of them.
    if known is not None and known[0] == there and len(known[1]) >= count:
        return known[1][:count], known[2][:count], known[3][:count]
    vectors: NDArray[np.int8] | None = None
    room = count + _SPARE
    has = np.zeros(room, dtype=np.bool_)
    norms = np.zeros(room, dtype=np.float32)
    for first in there:
        row = await search_index.embedding(tx, snapshot.index_id, encoder, first)
        read = None if row is None else unpack_vectors(*row)
        if read is None or (vectors is not None and read[1].shape[1] != vectors.shape[1]):
            continue
        if vectors is None:
            vectors = np.zeros((room, read[1].shape[1]), dtype=np.int8)
        numbers = read[0].astype(np.int64) + first
        rows = snapshot.texts.numbers.searchsorted(numbers)
        known_rows = rows < count
        known_rows[known_rows] = snapshot.texts.numbers[rows[known_rows]] == numbers[known_rows]
        vectors[rows[known_rows]] = read[1][known_rows]
        has[rows[known_rows]] = True
        floats = read[1].astype(np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", floats, floats))
        norms[rows[known_rows]] = lengths[known_rows]
    if vectors is None:
        return None
    with cache.lock:
        snapshot.inner.encoded[encoder] = (there, vectors, has, norms)
        if cache.get(snapshot.inner.key) is snapshot.inner:
            cache.keep(snapshot.inner)
    return vectors[:count], has[:count], norms[:count]


def unpack_vectors(
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
    """Keep no indexes any more."""
    cache.clear()


async def encoder_counts(tx: Connection, kind: str, owner_id: str) -> dict[str, int]:
    """Return whose vectors an index has, and of how many texts."""
    index_state = await search_index.index_state(tx, kind, owner_id)
    return (
        await search_index.encoders(tx, index_state.index_id)
        if index_state.index_id is not None
        else {}
    )


async def drop_vectors(tx: Connection, kind: str, owner_id: str, encoder: str) -> None:
    """Remove an encoder's vectors of an index."""
    index_state = await search_index.index_state(tx, kind, owner_id)
    if index_state.index_id is not None:
        await search_index.drop_embeddings(tx, index_state.index_id, encoder)
