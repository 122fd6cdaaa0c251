"""Searching many shelves: which of them are worth a closer look, by their words alone."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING

from asterism.memory.search import stored
from asterism.memory.search.analysis import terms_of
from asterism.memory.search.postings import by_beginning, listed, places_of
from asterism.memory.search.shelf import MOST_OFTEN, Whose
from asterism.memory.words import words
from asterism.store import shelves
from asterism.store.database import Connection
from asterism.store.shelves import RANGE, Standing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_K1 = 1.2
_SHORT = 512
"""How many numbers a tail has at most that is looked at; folding soon shortens it."""
_MOST_READ = 2_000
"""How many texts of tails are read in one search; those of others wait for the next."""
_MOST_TAILS = 4_096

_Tail = dict[str, list[tuple[int, int]]]
"""Where the terms of a tail are, and how often."""
_tails: OrderedDict[tuple[int, str, str], tuple[tuple[int, int, int], _Tail]] = OrderedDict()
_lock = Lock()


async def across(
    tx: Connection, whose: Sequence[Whose], terms: Sequence[str], most: int = 40
) -> list[Whose]:
    """Return the shelves with the best texts by their words, the best first.

    Texts are held against the query by how rare its terms are on all of these shelves. What is in
    no segment yet counts too, if it is not much.
    """
    import numpy as np

    wanted = [one for one in dict.fromkeys(terms) if one]
    if not wanted or not whose:
        return []
    standings = await shelves.standings(tx, whose)
    ids = {one.shelf: place for place, one in enumerate(standings.values()) if one.shelf}
    board = _Board(wanted)
    alike = {
        beginning: [(term, listed(term)) for term in terms]
        for beginning, terms in by_beginning(wanted).items()
    }
    for shelf, first, beginning, row in await shelves.postings_of_many(tx, list(ids), list(alike)):
        for term, name in alike[beginning]:
            # Most shelves have no such term, and this tells it soonest.
            if name in row:
                board.post(ids[shelf], first, term, places_of(row, name))
    covered = await shelves.covered(tx, list(ids))
    room = _MOST_READ
    for place, (one, standing) in enumerate(standings.items()):
        upto = covered.get(standing.shelf or 0, 0)
        if standing.top > upto:
            tail, read = await _tail(tx, one, standing, upto, room)
            room -= read
            board.add(place, tail)
    owners = list(standings)
    best = board.best(len(owners), sum(one.top for one in standings.values()))
    order = np.argsort(-best, kind="stable")[:most]
    return [owners[place] for place in order.tolist() if best[place] > 0]


class _Board:
    """Scores of texts: a stretch of `RANGE` places for each segment, and one for each tail."""

    def __init__(self, terms: Sequence[str]) -> None:
        self._terms = terms
        self._stretches: dict[tuple[int, int], int] = {}
        self._owners: list[int] = []
        self._posted: dict[str, tuple[list[bytes], list[int], list[int]]] = {
            one: ([], [], []) for one in terms
        }
        self._said: dict[str, list[tuple[int, int]]] = {one: [] for one in terms}

    def _stretch(self, owner: int, first: int) -> int:
        found = self._stretches.get((owner, first))
        if found is None:
            found = self._stretches[owner, first] = len(self._owners)
            self._owners.append(owner)
        return found

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
                self._said[term] += [(start + row, often) for row, often in tail[term]]

    def best(self, owners: int, texts: int) -> NDArray[np.float32]:
        """Return the score of the best text of each shelf."""
        import numpy as np

        scores = np.zeros(len(self._owners) * RANGE, dtype=np.float32)
        for term in self._terms:
            blobs, stretches, lengths = self._posted[term]
            codes = np.frombuffer(b"".join(blobs), dtype="<u2")
            starts = np.repeat(np.array(stretches, dtype=np.int64) * RANGE, lengths)
            places = np.minimum(codes >> 4, RANGE - 1)
            said = np.array(self._said[term], dtype=np.int64).reshape(-1, 2)
            rows = np.concatenate([starts + places, said[:, 0]])
            often = np.concatenate([(codes & MOST_OFTEN).astype(np.float32), said[:, 1]])
            if not len(rows):
                continue
            rare = math.log(1 + (max(texts, len(rows)) - len(rows) + 0.5) / (len(rows) + 0.5))
            scores[rows] += (rare * often / (often + _K1)).astype(np.float32)
        found = np.zeros(owners, dtype=np.float32)
        if len(self._owners):
            highest = scores.reshape(-1, RANGE).max(axis=1)
            np.maximum.at(found, np.array(self._owners), highest)
        return found


async def _tail(
    tx: Connection, whose: Whose, standing: Standing, upto: int, room: int
) -> tuple[_Tail, int]:
    """Return where terms are in what is in no segment, and how many texts were read for it."""
    key = (standing.database, *whose)
    version = (standing.dropped, standing.top, upto)
    with _lock:
        known = _tails.get(key)
        if known is not None and known[0] == version:
            _tails.move_to_end(key)
            return known[1], 0
    if room <= 0:
        return {}, 0
    first = max(upto + 1, standing.top - _SHORT + 1)
    raws = await stored.read(tx, *whose, first, standing.top)
    tail: _Tail = {}
    for row, raw in enumerate(raws):
        for term, often in Counter(terms_of(words(raw.text))).items():
            tail.setdefault(term, []).append((row, min(often, MOST_OFTEN)))
    with _lock:
        _tails[key] = (version, tail)
        while len(_tails) > _MOST_TAILS:
            _tails.popitem(last=False)
    return tail, len(raws)


def clear() -> None:
    """Keep no tails any more."""
    with _lock:
        _tails.clear()
