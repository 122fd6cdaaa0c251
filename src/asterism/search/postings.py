"""Where terms are in a segment, at rest: those that begin alike stand together in one row.

A row for each term would be some forty bytes of keys for a term that is in two texts. What is in a
row: the length of the list of terms in three bytes; that list, each without its beginning, with a
line's end before and after each; how many texts have each, in a byte (255: in two bytes behind all
of these); then for each of these texts its place and how often it has the term, in two bytes.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import pack, unpack_from
from threading import Lock
from typing import TYPE_CHECKING, Any

from asterism.memory.words import words
from asterism.search.index import MAX_COUNT, IndexKey, IndexSnapshot, SegmentRows
from asterism.search.query import terms_of
from asterism.search.texts import read_texts
from asterism.store import search_index
from asterism.store.database import Connection
from asterism.store.search_index import MARK, RANGE, IndexState, mark_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BEGINNING = 2
_MANY = 255
_LENGTH = 3


def prefix_of(term: str) -> str:
    """Return what the terms of a row begin with that has this one."""
    return term[:_BEGINNING]


def by_prefix(terms: Iterable[str]) -> dict[str, list[str]]:
    """Return terms by what they begin with."""
    result: dict[str, list[str]] = {}
    for term in terms:
        result.setdefault(prefix_of(term), []).append(term)
    return result


def pack_postings(places: Mapping[str, Sequence[int]]) -> dict[str, bytes]:
    """Return the rows of a segment by what their terms begin with."""
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
    asked = [*prefixes, MARK]
    rows: list[Any] = []
    if len(unread) == 1 and unread[0].index_id is not None:
        index_id = unread[0].index_id
        firsts = list(unread[0].inner.segments)
        rows = [
            (index_id, *row) for row in await search_index.postings(tx, index_id, firsts, asked)
        ]
    elif unread:
        ids = [snapshot.index_id for snapshot in unread if snapshot.index_id is not None]
        rows = await search_index.postings_of_many(tx, list(dict.fromkeys(ids)), asked)
    by_index: dict[int, _PrefixRows] = {}
    for index_id, first, prefix, row in rows:
        of_index = by_index.setdefault(index_id, {prefix: [] for prefix in asked})
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
    found: _TermRowsBuilder,
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
                    found.add(place, segments[first], start, posted)


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


_K1 = 1.2
_SHORT = 512
"""How many numbers a tail has at most that is looked at; indexing soon shortens it."""
_MAX_READ = 2_000
"""How many texts of tails are read in one search; those of others wait for the next."""
_MAX_TAILS = 4_096

_Tail = dict[str, list[tuple[int, int]]]
"""Where the terms of a tail are, and how often."""
_tails: OrderedDict[tuple[int, str, str], tuple[tuple[int, int, int], _Tail]] = OrderedDict()
_lock = Lock()


async def best_indexes(
    tx: Connection, index_key: Sequence[IndexKey], terms: Sequence[str], most: int = 40
) -> list[IndexKey]:
    """Return the indexes with the best texts by their words, the best first.

    Texts are held against the query by how rare its terms are on all of these indexes. What is in
    no segment yet counts too, if it is not much.
    """
    import numpy as np

    wanted = [term for term in dict.fromkeys(terms) if term]
    if not wanted or not index_key:
        return []
    index_states = await search_index.index_states(tx, index_key)
    ids = {
        state.index_id: place for place, state in enumerate(index_states.values()) if state.index_id
    }
    board = _ScoreBoard(wanted)
    alike = {
        prefix: [(term, term_entry(term)) for term in terms]
        for prefix, terms in by_prefix(wanted).items()
    }
    for index_id, first, prefix, row in await search_index.postings_of_many(
        tx, list(ids), list(alike)
    ):
        for term, name in alike[prefix]:
            # Most indexes have no such term, and this tells it soonest.
            if name in row:
                board.post(ids[index_id], first, term, term_postings(row, name))
    covered = await search_index.covered(tx, list(ids))
    room = _MAX_READ
    for place, (state, index_state) in enumerate(index_states.items()):
        upto = covered.get(index_state.index_id or 0, 0)
        if index_state.top > upto:
            tail, read = await _tail(tx, state, index_state, upto, room)
            room -= read
            board.add(place, tail)
    owners = list(index_states)
    best = board.best(len(owners), sum(state.top for state in index_states.values()))
    order = np.argsort(-best, kind="stable")[:most]
    return [owners[place] for place in order.tolist() if best[place] > 0]


class _ScoreBoard:
    """Scores of texts: a stretch of `RANGE` places for each segment, and one for each tail."""

    def __init__(self, terms: Sequence[str]) -> None:
        self._terms = terms
        self._stretches: dict[tuple[int, int], int] = {}
        self._owners: list[int] = []
        self._posted: dict[str, tuple[list[bytes], list[int], list[int]]] = {
            term: ([], [], []) for term in terms
        }
        self._tail_rows: dict[str, list[tuple[int, int]]] = {term: [] for term in terms}

    def _stretch(self, owner: int, first: int) -> int:
        result = self._stretches.get((owner, first))
        if result is None:
            result = self._stretches[owner, first] = len(self._owners)
            self._owners.append(owner)
        return result

    def post(self, owner: int, first: int, term: str, posted: bytes) -> None:
        """Take in where a term is in a segment."""
        blobs, stretches, lengths = self._posted[term]
        blobs.append(posted)
        stretches.append(self._stretch(owner, first))
        lengths.append(len(posted) // 2)

    def add(self, owner: int, tail: _Tail) -> None:
        """Take in where terms are in a tail."""
        for term in self._terms:
            if term in tail:
                start = self._stretch(owner, 0) * RANGE
                self._tail_rows[term] += [(start + row, often) for row, often in tail[term]]

    def best(self, owners: int, texts: int) -> NDArray[np.float32]:
        """Return the score of the best text of each index."""
        import numpy as np

        scores = np.zeros(len(self._owners) * RANGE, dtype=np.float32)
        for term in self._terms:
            blobs, stretches, lengths = self._posted[term]
            codes = np.frombuffer(b"".join(blobs), dtype="<u2")
            starts = np.repeat(np.array(stretches, dtype=np.int64) * RANGE, lengths)
            rows_of_codes = np.minimum(codes >> 4, RANGE - 1)
            tail_rows = np.array(self._tail_rows[term], dtype=np.int64).reshape(-1, 2)
            rows = np.concatenate([starts + rows_of_codes, tail_rows[:, 0]])
            often = np.concatenate([(codes & MAX_COUNT).astype(np.float32), tail_rows[:, 1]])
            if not len(rows):
                continue
            rare = math.log(1 + (max(texts, len(rows)) - len(rows) + 0.5) / (len(rows) + 0.5))
            scores[rows] += (rare * often / (often + _K1)).astype(np.float32)
        result = np.zeros(owners, dtype=np.float32)
        if len(self._owners):
            highest = scores.reshape(-1, RANGE).max(axis=1)
            np.maximum.at(result, np.array(self._owners), highest)
        return result


async def _tail(
    tx: Connection, index_key: IndexKey, index_state: IndexState, upto: int, room: int
) -> tuple[_Tail, int]:
    """Return where terms are in what is in no segment, and how many texts were read for it."""
    key = (index_state.database, *index_key)
    version = (index_state.removals, index_state.top, upto)
    with _lock:
        known = _tails.get(key)
        if known is not None and known[0] == version:
            _tails.move_to_end(key)
            return known[1], 0
    if room <= 0:
        return {}, 0
    first = max(upto + 1, index_state.top - _SHORT + 1)
    texts = await read_texts(tx, *index_key, first, index_state.top)
    tail: _Tail = {}
    for row, raw in enumerate(texts):
        for term, often in Counter(terms_of(words(raw.text))).items():
            tail.setdefault(term, []).append((row, min(often, MAX_COUNT)))
    with _lock:
        _tails[key] = (version, tail)
        while len(_tails) > _MAX_TAILS:
            _tails.popitem(last=False)
    return tail, len(texts)


def clear() -> None:
    """Keep no tails any more."""
    with _lock:
        _tails.clear()
