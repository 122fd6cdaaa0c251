"""Where the terms of a question are, in segments and in texts that are in none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from asterism.memory.search.index import Loaded
from asterism.memory.search.postings import (
    beginning_of,
    by_beginning,
    listed,
    places_of,
    terms_in,
)
from asterism.memory.search.shelf import Folded
from asterism.store import shelves
from asterism.store.database import Connection
from asterism.store.shelves import MARK, mark_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Places = dict[str, "tuple[NDArray[np.int32], NDArray[np.float32]]"]


async def places(tx: Connection, loaded: Sequence[Loaded], terms: Sequence[str]) -> Places:
    """Return where terms are.

    For each term that is somewhere the rows in the concatenation of the shelves that have it, in
    order, and how often each has it.
    """
    wanted = [one for one in dict.fromkeys(terms) if one]
    if not wanted:
        return {}
    starts: list[int] = []
    count = 0
    for one in loaded:
        starts.append(count)
        count += len(one.texts)
    order = {term: place for place, term in enumerate(wanted)}
    alike = {
        beginning: [(order[term], listed(term)) for term in terms]
        for beginning, terms in by_beginning(wanted).items()
    }
    found = _Gathered(len(wanted))
    for (start, one), rows in zip(
        zip(starts, loaded, strict=True), await _postings(tx, loaded, alike), strict=True
    ):
        _from_segments(found, alike, one, start, rows)
        for term in wanted:
            said = one.inner.said.get(term)
            if said is not None:
                found.add_said(order[term], said, start, len(one.texts))
    return {
        term: there for term, there in zip(wanted, found.arrays(), strict=True) if len(there[0])
    }


async def _postings(
    tx: Connection, loaded: Sequence[Loaded], beginnings: Iterable[str]
) -> list[list[tuple[int, str, bytes]]]:
    """Return (first, beginning, row) for each shelf; the mark of each segment is among them."""
    folded = [one for one in loaded if one.shelf is not None and one.inner.folded]
    asked = [*beginnings, MARK]
    found: dict[int | None, list[Any]] = {}
    if len(folded) == 1:
        shelf = folded[0].shelf
        assert shelf is not None
        found[shelf] = await shelves.postings(tx, shelf, list(folded[0].inner.folded), asked)
    elif folded:
        ids = list(dict.fromkeys(one.shelf for one in folded if one.shelf is not None))
        for row in await shelves.postings_of_many(tx, ids, asked):
            found.setdefault(row[0], []).append(row[1:])
    return [found.get(one.shelf, []) if one.shelf is not None else [] for one in loaded]


def _from_segments(
    found: _Gathered,
    alike: dict[str, list[tuple[int, bytes]]],
    one: Loaded,
    start: int,
    rows: Sequence[tuple[int, str, bytes]],
) -> None:
    folded = one.inner.folded
    # Made anew in a later snapshot than the one that was loaded: its places are other ones.
    there = {
        first: folded[first]
        for first, beginning, mark in rows
        if beginning == MARK and first in folded and mark == mark_of(folded[first].made)
    }
    for first, beginning, row in rows:
        if beginning == MARK or first not in there:
            continue
        for place, name in alike[beginning]:
            posted = places_of(row, name)
            if posted:
                found.add(place, there[first], start, posted)


async def terms_like(
    tx: Connection, loaded: Sequence[Loaded], beginning: str, most: int
) -> list[str]:
    """Return terms in segments of shelves that begin so, in their order; two letters at least."""
    alike = beginning_of(beginning)
    ids = list(dict.fromkeys(one.shelf for one in loaded if one.shelf is not None))
    found: set[str] = set()
    for _, _, _, row in await shelves.postings_of_many(tx, ids, [alike]):
        found.update(one for one in terms_in(row, alike) if one.startswith(beginning))
    return sorted(found)[:most]


class _Gathered:
    """Where some terms are, as it is read."""

    def __init__(self, terms: int) -> None:
        self._terms = terms
        self._posted: list[tuple[int, int, bytes]] = []
        """The term, the row at which a segment begins, and the places in it."""
        self._others: dict[int, list[tuple[Any, Any]]] = {}

    def add(self, term: int, folded: Folded, start: int, posted: bytes) -> None:
        """Take in where a term is in a segment."""
        import numpy as np

        if folded.rows is None:
            self._posted.append((term, start + folded.start, posted))
            return
        codes = np.frombuffer(posted, dtype="<u2")
        codes = codes[(codes >> 4) < folded.texts]
        self._others.setdefault(term, []).append((folded.rows[codes >> 4] + start, codes & 15))

    def add_said(
        self, term: int, said: tuple[list[int], list[int]], start: int, count: int
    ) -> None:
        """Take in where a term is in texts that are in no segment."""
        import numpy as np

        # Copies, since another thread may add to them.
        rows, counts = list(said[0]), list(said[1])
        known = min(len(rows), len(counts))
        there = np.array(rows[:known], dtype=np.int64)
        often = np.array(counts[:known], dtype=np.int64)
        seen = there < count
        self._others.setdefault(term, []).append((there[seen] + start, often[seen]))

    def arrays(self) -> list[tuple[NDArray[np.int32], NDArray[np.float32]]]:
        """Return for each term the rows that have it, in order, and how often."""
        import numpy as np

        self._posted.sort(key=lambda one: one[:2])
        sizes = np.array([len(one[2]) // 2 for one in self._posted], dtype=np.int64)
        starts = np.array([one[1] for one in self._posted], dtype=np.int32)
        codes = np.frombuffer(b"".join([one[2] for one in self._posted]), dtype="<u2")
        rows = np.repeat(starts, sizes) + (codes >> 4).astype(np.int32)
        counts = (codes & 15).astype(np.float32)
        of_terms = [0] * self._terms
        for (term, _, _), size in zip(self._posted, sizes.tolist(), strict=True):
            of_terms[term] += size
        found: list[tuple[NDArray[np.int32], NDArray[np.float32]]] = []
        first = 0
        for term, size in enumerate(of_terms):
            last = first + size
            there = (rows[first:last], counts[first:last])
            first = last
            if term in self._others:
                there = _merged([there, *self._others[term]])
            found.append(there)
        return found


def _merged(
    parts: Sequence[tuple[Any, Any]],
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    import numpy as np

    rows = np.concatenate([one[0] for one in parts]).astype(np.int32)
    counts = np.concatenate([one[1] for one in parts]).astype(np.float32)
    order = np.argsort(rows, kind="stable")
    return rows[order], counts[order]
