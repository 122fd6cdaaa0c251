"""Texts in the order of their conversations, with what every question needs to know of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

from asterism.memory.search.texts import NO_DAY, Flag, Texts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

_REACH = 6
"""How many texts either way are neighbours at most."""
_NEAR, _FADES = 0.7, 80.0
"""What the words of a neighbour count, and over how many words that fades to a third."""
_LEAST = 0.05
_PAUSE = 2 * 3_600_000
"""After so long a conversation begins anew."""
_MOST_SUMS = 16
K1, _B = 0.9, 0.4
"""How soon a repeated term counts no more, and how much long texts are held back (BM25)."""
_SESSION_K1, _SESSION_B = 1.2, 0.75


def standard(scores: Floats) -> Floats:
    """Return scores in standard deviations from their mean."""
    import math

    import numpy as np

    count = max(len(scores), 1)
    apart = scores - float(scores.sum()) / count
    # BLAS would wake other threads for a product, which on busy cores takes milliseconds.
    apart *= 1 / (math.sqrt(float(np.einsum("i,i->", apart, apart)) / count) + 1e-6)
    return apart


def _held(lengths: Floats, repeats: float, share: float) -> Floats:
    """Return how much texts are held back for their length (BM25)."""
    import numpy as np

    middle = max(float(lengths.mean()), 1e-6) if len(lengths) else 1.0
    return (repeats * (1 - share + share * lengths / middle)).astype(np.float32)


class View:
    """Texts in the order of their conversations, with what every question needs of them."""

    def __init__(self, texts: Texts, shelf: NDArray[Any] | None = None) -> None:
        """Look at texts; `shelf` tells apart texts whose threads are not the same."""
        import numpy as np

        self.texts = texts
        count = len(texts)
        thread = texts.thread.astype(np.int64)
        if shelf is not None:
            thread += shelf.astype(np.int64) * (int(thread.max(initial=0)) + 1)
        self.order: NDArray[Any] | None = None
        """The rows in the order of conversations; None: they are in it."""
        self._where: NDArray[Any] | None = None
        if count and bool(np.any(thread[1:] < thread[:-1])):
            self.order = np.argsort(thread, kind="stable")
            self._where = np.empty(count, dtype=np.int64)
            self._where[self.order] = np.arange(count)
            thread = thread[self.order]
        at = self.sorted(texts.at)
        fresh = np.ones(count, dtype=np.bool_)
        fresh[1:] = (thread[1:] != thread[:-1]) | (at[1:] - at[:-1] > _PAUSE)
        self.session = np.cumsum(fresh) - 1
        self.starts = np.flatnonzero(fresh)
        """Where each session begins."""
        self.sessions = len(self.starts)
        self._same = (~fresh[1:]).astype(np.float32)
        words = self.sorted(texts.words).astype(np.float32)
        self._middle = np.cumsum(words, dtype=np.float64) - words / 2
        self.words = words
        self.length = self.sorted(texts.length).astype(np.float32)
        self.flags = self.sorted(texts.flags)
        self.at = at
        self.speaker = self.sorted(texts.speaker)
        self._near = self._neighbours()
        rows, lengths = self.spread(np.arange(count), self.length)
        self.window = np.bincount(rows, weights=lengths, minlength=count).astype(np.float32)
        self.in_session = np.bincount(
            self.session, weights=self.length, minlength=self.sessions
        ).astype(np.float32)
        self.session_sizes = np.bincount(self.session, minlength=self.sessions)
        self.held = _held(self.length, K1, _B)
        self.window_held = _held(self.window, K1, _B)
        self.session_held = _held(self.in_session, _SESSION_K1, _SESSION_B)
        self._sums: OrderedDict[Hashable, Floats] = OrderedDict()

    def __len__(self) -> int:
        return len(self.texts)

    def sorted(self, column: NDArray[Any]) -> NDArray[Any]:
        """Return a column of the texts in the order of conversations."""
        return column if self.order is None else column[self.order]

    def unsorted(self, column: NDArray[Any]) -> NDArray[Any]:
        """Return a column that is in the order of conversations in that of the texts."""
        return column if self._where is None else column[self._where]

    def rows(self, places: NDArray[Any]) -> NDArray[Any]:
        """Return where rows of the texts are in the order of conversations."""
        return places if self._where is None else self._where[places]

    @cached_property
    def looks(self) -> dict[str, Floats]:
        """What the texts look like, whatever is asked."""
        import numpy as np

        tokens = self.sorted(self.texts.tokens).astype(np.float32)
        weight = self.sorted(self.texts.weight)
        return {
            "time": self._flag(Flag.TIME),
            "digit": self._flag(Flag.DIGIT),
            "asks": self._flag(Flag.ASKS),
            "wish": self._flag(Flag.WISH),
            "reply": self._flag(Flag.REPLY),
            "place": self._flag(Flag.PLACE),
            "day": (self.sorted(self.texts.first_day) != NO_DAY).astype(np.float32),
            "addresses": self.sorted(self.texts.addresses).astype(np.float32)
            / np.sqrt(self.words + 1, dtype=np.float32),
            "long": np.log1p(self.words),
            "telling": standard(weight / np.sqrt(tokens + 1, dtype=np.float32)),
        }

    def looks_summed(self, weights: Mapping[str, float]) -> Floats:
        """Return the weighted sum of what the texts look like; to be copied before a change."""
        import numpy as np

        key = tuple(sorted(weights.items()))
        found = self._sums.get(key)
        if found is None:
            found = np.zeros(len(self), dtype=np.float32)
            for name, weight in weights.items():
                found += np.float32(weight) * self.looks[name]
            self._sums[key] = found
            while len(self._sums) > _MOST_SUMS:
                self._sums.popitem(last=False)
        return found

    def _flag(self, flag: Flag) -> Floats:
        """Return one where a text looks so, and zero elsewhere."""
        import numpy as np

        return ((self.flags & int(flag)) != 0).astype(np.float32)

    # -- neighbours ----------------------------------------------------------------------------

    @property
    def steps(self) -> NDArray[Any]:
        """How far off neighbours are at most, each text itself among them."""
        return self._near[0]

    def carried(self, scores: Floats, on: float, back: float) -> Floats:
        """Return some of the scores of the texts right before and right after, if in the session.

        Args:
            scores: By row.
            on: How much of a score the next text gets.
            back: How much the one before gets.
        """
        import numpy as np

        made = np.zeros_like(scores)
        if len(scores) > 1:
            made[1:] = scores[:-1] * (self._same * np.float32(on))
            if back:
                made[:-1] += scores[1:] * (self._same * np.float32(back))
        return made

    def _neighbours(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return steps to neighbours, and for each what a text counts for the one so far off."""
        import numpy as np

        steps: list[int] = [0]
        found: list[Floats] = [np.ones(len(self), dtype=np.float32)]
        for step in range(1, min(_REACH, len(self) - 1) + 1):
            apart = self._middle[step:] - self._middle[:-step]
            weights = (_NEAR * np.exp(-apart / _FADES)).astype(np.float32)
            weights[(weights < _LEAST) | (self.session[step:] != self.session[:-step])] = 0
            if not weights.any():
                break
            nothing = np.zeros(step, dtype=np.float32)
            steps += [step, -step]
            found += [np.concatenate([weights, nothing]), np.concatenate([nothing, weights])]
        return np.array(steps, dtype=np.int64), np.stack(found, axis=1)

    def spread(self, rows: NDArray[Any], amounts: Floats) -> tuple[NDArray[Any], Floats]:
        """Return which rows amounts in some rows reach, themselves and neighbours, and what of it.

        There are as many for each row; those beyond the ends have nothing.
        """
        import numpy as np

        steps, weights = self._near
        targets = rows[:, None] + steps
        np.maximum(targets, 0, out=targets)
        np.minimum(targets, len(self) - 1, out=targets)
        return targets.ravel(), (amounts[:, None] * weights[rows]).ravel()

    @cached_property
    def _fading(self) -> list[tuple[int, Floats]]:
        """How far off neighbours are, and for each step what texts count for the next such one."""
        import numpy as np

        steps, weights = self._near
        return [
            (int(step), np.ascontiguousarray(weights[:-step, place]))
            for place, step in enumerate(steps)
            if step > 0
        ]

    def spread_all(self, amounts: Floats) -> Floats:
        """Return what each text and its neighbours have of an amount a text."""
        import numpy as np

        made = amounts.copy()
        room = np.empty_like(amounts)
        for step, fading in self._fading:
            part = room[:-step]
            np.multiply(amounts[:-step], fading, out=part)
            made[step:] += part
            np.multiply(amounts[step:], fading, out=part)
            made[:-step] += part
        return made


class Views:
    """Views that were looked at last, up to so many texts; making one costs as much as a search."""

    def __init__(self, most: int = 200_000) -> None:
        self._most = most
        self._count = 0
        self._kept: OrderedDict[Hashable, View] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], View]) -> View:
        """Return a view, as it was made before if it is kept."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        made = make()
        with self._lock:
            if key not in self._kept:
                self._kept[key] = made
                self._count += len(made)
            while self._count > self._most and len(self._kept) > 1:
                self._count -= len(self._kept.popitem(last=False)[1])
        return made

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Keep nothing any more."""
        with self._lock:
            self._kept.clear()
            self._count = 0
