"""Indexes in memory, and the postings in the store that tell where terms are.

A row of postings holds all terms of a segment that begin alike: a row for each term would be some
forty bytes of keys for a term that is in two texts. A row consists of the length of the list of
terms in three bytes; that list, each term without its beginning, with a line's end before and after
each; how many texts have each term, in a byte (255: in two bytes behind all of these); then for
each of these texts its place and how often it has the term, in two bytes.
"""

from __future__ import annotations

import logging
import zlib
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from hashlib import blake2b
from struct import pack, unpack_from
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from asterism.records import dataclass
from asterism.search.texts import (
    GrowingTexts,
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
from asterism.store.search_index import MARK, IndexState, Segment, mark_of
from asterism.types.agents import OWNER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    _EncoderVectors = tuple[Any, NDArray[np.int8], NDArray[np.bool_], NDArray[np.float32]]

MAX_COUNT = 15
"""How often a term counts in one text at most; four bits."""
FORMAT = b"3"
"""The version of the format; segments of another version are built again."""
_MAX_BYTES = 64 << 20

IndexKey = tuple[str, str]
"""A kind of index, `journal` or `archive`, and whose it is: an agent's or a source's id."""
Signature = tuple[tuple[int, int, int, str, bool], ...]
CacheKey = tuple[int, str, str]


def fingerprint(*parts: bytes) -> int:
    """Return a number that identifies contents."""
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
    """An index in memory. Texts are added at its end; any other change makes a new index."""

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
    """The last text that is not in a segment: its number and its identity."""
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
        """Return the texts after the last known text; None: that text has changed."""
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
        """Identifies its texts, together with their number."""
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
        """Update the audience of open turns, and drop the turns that have ended."""
        for turn_id, (audience, ended_at) in ends.items():
            for row in self.open_turns.get(turn_id, ()):
                self.rows.put("audience", row, audience or owner)
            if ended_at is not None:
                self.open_turns.pop(turn_id, None)


class IndexCache:
    """The indexes that a process keeps in memory, those used last, up to a number of bytes.

    The index used last always stays, since the next search would have to read it again.
    """

    def __init__(self, most_bytes: int = _MAX_BYTES) -> None:
        self.lock = RLock()
        self._most = most_bytes
        self._indexes: OrderedDict[CacheKey, tuple[LoadedIndex, int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: CacheKey) -> LoadedIndex | None:
        """Return an index if it is kept."""
        with self.lock:
            result = self._indexes.get(key)
            if result is None:
                return None
            self._indexes.move_to_end(key)
            return result[0]

    def keep(self, index: LoadedIndex) -> None:
        """Keep an index; it replaces its former version."""
        with self.lock:
            _, before = self._indexes.pop(index.key, (None, 0))
            size = index.size
            self._indexes[index.key] = (index, size)
            self._bytes += size - before
            while self._bytes > self._most and len(self._indexes) > 1:
                _, (_, gone) = self._indexes.popitem(last=False)
                self._bytes -= gone

    def clear(self) -> None:
        """Keep nothing any more."""
        with self.lock:
            self._indexes.clear()
            self._bytes = 0

    def __len__(self) -> int:
        return len(self._indexes)

    @property
    def size(self) -> int:
        """How many bytes are kept."""
        return self._bytes


MAX_TAIL = 10_240
"""How many texts that are in no segment are looked at, the latest: some seconds' work, once."""
_NO_END = 1 << 62
_ATTEMPTS = 3

cache = IndexCache()
"""The indexes that this process keeps in memory."""
damaged_segments: set[tuple[CacheKey, int]] = set()
"""Segments that were found damaged; the builder checks them again."""
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

    @property
    def in_segments(self) -> NDArray[np.bool_]:
        """Which texts may be in a segment; the latest ones are in none."""
        return self.texts.numbers < self.inner.next


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
    """Return the texts of segments, without those that are damaged."""
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
    for first, data in (
        await search_index.segment_data(tx, index_state.index_id, list(unread))
    ).items():
        texts = unpack_segment(unread[first], *data)
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
    """Return the texts of a segment, or None if its rows are damaged."""
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


def clear() -> None:
    """Keep no indexes any more."""
    cache.clear()


# -- where terms are -------------------------------------------------------------------------------

_BEGINNING = 2
_MANY = 255
_LENGTH = 3


def prefix_of(term: str) -> str:
    """Return the prefix of a term, which all terms of its row share."""
    return term[:_BEGINNING]


def by_prefix(terms: Iterable[str]) -> dict[str, list[str]]:
    """Return terms by their prefix."""
    result: dict[str, list[str]] = {}
    for term in terms:
        result.setdefault(prefix_of(term), []).append(term)
    return result


def pack_postings(places: Mapping[str, Sequence[int]]) -> dict[str, bytes]:
    """Return the rows of a segment by the prefix of their terms."""
    return {
        prefix: _row(prefix, [(term, places[term]) for term in terms])
        for prefix, terms in by_prefix(sorted(places)).items()
    }


def _row(prefix: str, terms: Sequence[tuple[str, Sequence[int]]]) -> bytes:
    names = "\n".join(term[len(prefix) :] for term, _ in terms)
    named = f"\n{names}\n".encode("utf-8", "surrogatepass")
    many = [len(codes) for _, codes in terms if len(codes) >= _MANY]
    codes = [code for _, some in terms for code in some]
    return b"".join(
        (
            len(named).to_bytes(_LENGTH, "little"),
            named,
            bytes(min(len(some), _MANY) for _, some in terms),
            pack(f"<{len(many)}H", *many),
            pack(f"<{len(codes)}H", *codes),
        )
    )


def term_entry(term: str) -> bytes:
    """Return a term as it stands in the list of its row."""
    return b"\n%b\n" % term[_BEGINNING:].encode("utf-8", "surrogatepass")


def term_postings(row: bytes, name: bytes) -> bytes:
    """Return where the term is that is listed so, two bytes a text; nothing if it is not there."""
    start = _LENGTH + int.from_bytes(row[:_LENGTH], "little")
    at = row.find(name, _LENGTH, start)
    if at < 0:
        return b""
    before = row.count(b"\n", _LENGTH, at)
    last = start + row.count(b"\n", _LENGTH, start) - 1
    counts = row[start : start + before + 1]
    size, skipped = counts[-1:], counts[:-1]
    if not size:
        return b""
    if _MANY not in row[start:last]:
        first, many = last + 2 * sum(skipped), size[0]
    else:
        all_many = row.count(b"\xff", start, last)
        if len(row) < last + 2 * all_many:
            return b""
        long = unpack_from(f"<{all_many}H", row, last)
        at_many = skipped.count(b"\xff")
        first = last + 2 * (all_many + sum(skipped) - _MANY * at_many + sum(long[:at_many]))
        many = long[at_many] if size[0] == _MANY else size[0]
    result = row[first : first + 2 * many]
    return result if len(result) == 2 * many else b""


def terms_in(row: bytes, prefix: str) -> Iterator[str]:
    """Yield the terms of a row that is of those with this beginning, in their order."""
    end = _LENGTH + int.from_bytes(row[:_LENGTH], "little")
    names = row[_LENGTH + 1 : end - 1].decode("utf-8", "replace")
    for name in names.split("\n"):
        yield prefix + name


TermRows = dict[str, "tuple[NDArray[np.int32], NDArray[np.float32]]"]


async def places(tx: Connection, loaded: Sequence[IndexSnapshot], terms: Sequence[str]) -> TermRows:
    """Return where terms are.

    For each term that is somewhere the rows in the concatenation of the indexes that have it, in
    order, and how often each has it.
    """
    wanted = [term for term in dict.fromkeys(terms) if term]
    if not wanted:
        return {}
    starts: list[int] = []
    count = 0
    for snapshot in loaded:
        starts.append(count)
        count += len(snapshot.texts)
    order = {term: place for place, term in enumerate(wanted)}
    alike = {
        prefix: [(order[term], term_entry(term)) for term in terms]
        for prefix, terms in by_prefix(wanted).items()
    }
    result = _TermRowsBuilder(len(wanted))
    postings = await _postings(tx, loaded, list(alike))
    for start, snapshot, rows in zip(starts, loaded, postings, strict=True):
        _from_segments(result, alike, snapshot, start, rows)
        for term in wanted:
            tail_terms = snapshot.inner.tail_terms.get(term)
            if tail_terms is not None:
                result.add_tail(order[term], tail_terms, start, len(snapshot.texts))
    return {
        term: there for term, there in zip(wanted, result.arrays(), strict=True) if len(there[0])
    }


_PrefixRows = dict[str, list[tuple[int, bytes]]]
"""By what terms begin with, the rows of segments, each with the segment's first number."""


async def _postings(
    tx: Connection, loaded: Sequence[IndexSnapshot], prefixes: Sequence[str]
) -> list[_PrefixRows]:
    """Return the rows of terms that begin so for each index, from memory as far as they are there.

    A segment never changes, so that its rows are good for as long as its index is in memory.
    """
    unread = [
        snapshot
        for snapshot in loaded
        if snapshot.index_id is not None
        and snapshot.inner.segments
        and any(prefix not in snapshot.inner.postings for prefix in prefixes)
    ]
    missing = [
        prefix
        for prefix in prefixes
        if any(prefix not in snapshot.inner.postings for snapshot in unread)
    ]
    read = await _read_postings(tx, unread, missing)
    return [
        {prefix: known[prefix] for prefix in prefixes if prefix in known}
        | read.get(snapshot.index_id, {})
        for snapshot in loaded
        for known in (snapshot.inner.postings,)
    ]


async def _read_postings(
    tx: Connection, unread: Sequence[IndexSnapshot], prefixes: Sequence[str]
) -> dict[int | None, _PrefixRows]:
    """Read the rows of terms that begin so, by index, and keep them with the index in memory."""
    wanted = [*prefixes, MARK]
    rows: list[Any] = []
    if len(unread) == 1 and unread[0].index_id is not None:
        index_id = unread[0].index_id
        firsts = list(unread[0].inner.segments)
        rows = [
            (index_id, *row) for row in await search_index.postings(tx, index_id, firsts, wanted)
        ]
    elif unread:
        ids = [snapshot.index_id for snapshot in unread if snapshot.index_id is not None]
        rows = await search_index.postings_of_many(tx, list(dict.fromkeys(ids)), wanted)
    by_index: dict[int, _PrefixRows] = {}
    for index_id, first, prefix, row in rows:
        of_index = by_index.setdefault(index_id, {prefix: [] for prefix in wanted})
        of_index[prefix].append((first, row))
    result: dict[int | None, _PrefixRows] = {}
    for snapshot in unread:
        of_index = by_index.get(snapshot.index_id or 0, {})
        segments = snapshot.inner.segments
        # Made anew in a later snapshot than the one that was loaded: its places are other ones.
        fitting = {
            first
            for first, mark in of_index.get(MARK, ())
            if first in segments and mark == mark_of(segments[first].fingerprint)
        }
        read = {
            prefix: [entry for entry in of_index.get(prefix, ()) if entry[0] in fitting]
            for prefix in prefixes
        }
        if len(fitting) == len(segments):
            snapshot.inner.keep_postings(read)
        result[snapshot.index_id] = read
    return result


def _from_segments(
    builder: _TermRowsBuilder,
    alike: dict[str, list[tuple[int, bytes]]],
    snapshot: IndexSnapshot,
    start: int,
    rows: _PrefixRows,
) -> None:
    segments = snapshot.inner.segments
    for prefix, entries in rows.items():
        for place, name in alike[prefix]:
            for first, row in entries:
                posted = term_postings(row, name)
                if posted:
                    builder.add(place, segments[first], start, posted)


async def terms_with_prefix(
    tx: Connection, loaded: Sequence[IndexSnapshot], prefix: str, most: int
) -> list[str]:
    """Return terms in segments of indexes that begin so, in their order; two letters at least."""
    alike = prefix_of(prefix)
    ids = list(
        dict.fromkeys(snapshot.index_id for snapshot in loaded if snapshot.index_id is not None)
    )
    result: set[str] = set()
    for _, _, _, row in await search_index.postings_of_many(tx, ids, [alike]):
        result.update(term for term in terms_in(row, alike) if term.startswith(prefix))
    return sorted(result)[:most]


class _TermRowsBuilder:
    """Where some terms are, as it is read."""

    def __init__(self, terms: int) -> None:
        self._terms = terms
        self._posted: list[tuple[int, int, bytes]] = []
        """The term, the row at which a segment begins, and the places in it."""
        self._others: dict[int, list[tuple[Any, Any]]] = {}

    def add(self, term: int, segment: SegmentRows, start: int, posted: bytes) -> None:
        """Take in where a term is in a segment."""
        import numpy as np

        if segment.rows is None:
            self._posted.append((term, start + segment.start, posted))
            return
        codes = np.frombuffer(posted, dtype="<u2")
        codes = codes[(codes >> 4) < segment.texts]
        self._others.setdefault(term, []).append((segment.rows[codes >> 4] + start, codes & 15))

    def add_tail(
        self, term: int, tail_terms: tuple[list[int], list[int]], start: int, count: int
    ) -> None:
        """Take in where a term is in texts that are in no segment."""
        import numpy as np

        # Copies, since another thread may add to them.
        rows, counts = list(tail_terms[0]), list(tail_terms[1])
        known = min(len(rows), len(counts))
        there = np.array(rows[:known], dtype=np.int64)
        often = np.array(counts[:known], dtype=np.int64)
        seen = there < count
        self._others.setdefault(term, []).append((there[seen] + start, often[seen]))

    def arrays(self) -> list[tuple[NDArray[np.int32], NDArray[np.float32]]]:
        """Return for each term the rows that have it, in order, and how often."""
        import numpy as np

        self._posted.sort(key=lambda entry: entry[:2])
        sizes = np.array([len(entry[2]) // 2 for entry in self._posted], dtype=np.int64)
        starts = np.array([entry[1] for entry in self._posted], dtype=np.int32)
        codes = np.frombuffer(b"".join([entry[2] for entry in self._posted]), dtype="<u2")
        rows = np.repeat(starts, sizes) + (codes >> 4).astype(np.int32)
        counts = (codes & 15).astype(np.float32)
        of_terms = [0] * self._terms
        for (term, _, _), size in zip(self._posted, sizes.tolist(), strict=True):
            of_terms[term] += size
        result: list[tuple[NDArray[np.int32], NDArray[np.float32]]] = []
        first = 0
        for term, size in enumerate(of_terms):
            last = first + size
            there = (rows[first:last], counts[first:last])
            first = last
            if term in self._others:
                there = _merged([there, *self._others[term]])
            result.append(there)
        return result


def _merged(
    parts: Sequence[tuple[Any, Any]],
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    import numpy as np

    rows = np.concatenate([part[0] for part in parts]).astype(np.int32)
    counts = np.concatenate([part[1] for part in parts]).astype(np.float32)
    order = np.argsort(rows, kind="stable")
    return rows[order], counts[order]


async def encoder_counts(tx: Connection, kind: str, owner_id: str) -> dict[str, int]:
    """Return the encoders of an index, each with how many texts it has encoded."""
    index_state = await search_index.index_state(tx, kind, owner_id)
    return (
        await search_index.encoders(tx, index_state.index_id)
        if index_state.index_id is not None
        else {}
    )
