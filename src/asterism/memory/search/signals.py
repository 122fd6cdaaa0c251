"""What speaks for each text as an answer to a question: one number a text and signal.

All of it is arithmetic over the columns of the texts of one search, the same on both engines. What
a signal is worth is in the weights (`ranking.py`), fitted on questions with known answers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

from asterism.memory.search.question import Asks, Question
from asterism.memory.search.stored import AGENT
from asterism.memory.search.texts import NO_DAY, Flag, Texts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Places = Mapping[str, tuple[NDArray[np.int32], Floats]]

MOST_TERMS = 24
"""Of a longer question the rarest terms count."""
_REACH = 6
"""How many texts either way are neighbours at most."""
_NEAR, _FADES = 0.7, 80.0
"""What the words of a neighbour count, and over how many words that fades to a third."""
_LEAST = 0.05
_K1, _B = 0.9, 0.4
"""How soon a repeated term counts no more, and how much long texts are held back (BM25)."""
_PAUSE = 2 * 3_600_000
"""After so long a conversation begins anew."""
_DAY = 86_400_000
_SLACK = 10.0
"""Over how many days a time that is asked about fades: things are told of later."""
_MOST_OF_SESSION = 3


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
        if count and bool(np.any(thread[1:] < thread[:-1])):
            self.order = np.argsort(thread, kind="stable")
            thread = thread[self.order]
        at = self.sorted(texts.at)
        fresh = np.ones(count, dtype=np.bool_)
        fresh[1:] = (thread[1:] != thread[:-1]) | (at[1:] - at[:-1] > _PAUSE)
        self.session = np.cumsum(fresh) - 1
        self.sessions = int(self.session[-1]) + 1 if count else 0
        words = self.sorted(texts.words).astype(np.float32)
        self._middle = np.cumsum(words, dtype=np.float64) - words / 2
        self.words = words
        self.length = self.sorted(texts.length).astype(np.float32)
        self.flags = self.sorted(texts.flags)
        self.at = at
        self._near = self._neighbours()
        rows, lengths = self.spread(np.arange(count), self.length)
        self.window = np.bincount(rows, weights=lengths, minlength=count).astype(np.float32)
        self.in_session = np.bincount(
            self.session, weights=self.length, minlength=self.sessions
        ).astype(np.float32)

    def __len__(self) -> int:
        return len(self.texts)

    def sorted(self, column: NDArray[Any]) -> NDArray[Any]:
        """Return a column of the texts in the order of conversations."""
        return column if self.order is None else column[self.order]

    def unsorted(self, column: NDArray[Any]) -> NDArray[Any]:
        """Return a column that is in the order of conversations in that of the texts."""
        import numpy as np

        if self.order is None:
            return column
        made = np.empty_like(column)
        made[self.order] = column
        return made

    def rows(self, places: NDArray[Any]) -> NDArray[Any]:
        """Return where rows of the texts are in the order of conversations."""
        import numpy as np

        if self.order is None:
            return places
        where = np.empty(len(self.order), dtype=np.int64)
        where[self.order] = np.arange(len(self.order))
        return where[places]

    def spread_all(self, amounts: Floats) -> Floats:
        """Return what each text and its neighbours have, of several amounts a text at once."""
        made = amounts.copy()
        for step, weights in zip(self.steps[1::2], self._near[1].T[1::2], strict=True):
            fading = weights[:-step]
            made[:, step:] += amounts[:, :-step] * fading
            made[:, :-step] += amounts[:, step:] * fading
        return made

    @cached_property
    def looks(self) -> dict[str, Floats]:
        """What the texts look like, whatever is asked."""
        import numpy as np

        tokens = self.sorted(self.texts.tokens).astype(np.float32)
        weight = self.sorted(self.texts.weight)
        return {
            "time": self.flag(Flag.TIME),
            "digit": self.flag(Flag.DIGIT),
            "asks": self.flag(Flag.ASKS),
            "wish": self.flag(Flag.WISH),
            "reply": self.flag(Flag.REPLY),
            "addresses": self.sorted(self.texts.addresses).astype(np.float32)
            / np.sqrt(self.words + 1, dtype=np.float32),
            "long": np.log1p(self.words),
            "telling": standard(weight / np.sqrt(tokens + 1, dtype=np.float32)),
        }

    @cached_property
    def named(self) -> Floats:
        """One where a text names a day, and zero elsewhere."""
        import numpy as np

        return (self.sorted(self.texts.first_day) != NO_DAY).astype(np.float32)

    @property
    def steps(self) -> NDArray[Any]:
        """How far off neighbours are at most, each text itself among them."""
        return self._near[0]

    def flag(self, flag: Flag) -> Floats:
        """Return one where a text looks so, and zero elsewhere."""
        import numpy as np

        return ((self.flags & int(flag)) != 0).astype(np.float32)

    def shifted(self, scores: Floats, steps: int) -> Floats:
        """Return the scores of the texts so many steps before in the same session, else zero."""
        import numpy as np

        made = np.zeros_like(scores)
        if 0 < steps < len(scores):
            made[steps:] = np.where(
                self.session[steps:] == self.session[:-steps], scores[:-steps], 0
            )
        elif 0 < -steps < len(scores):
            made[:steps] = np.where(
                self.session[:steps] == self.session[-steps:], scores[-steps:], 0
            )
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
        targets = np.clip(rows[:, None] + steps, 0, len(self) - 1)
        return targets.ravel(), (amounts[:, None] * weights[rows]).ravel()


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


@dataclass(frozen=True, slots=True)
class Lexical:
    """What the terms of a question say of each text."""

    own: Floats
    window: Floats
    session: Floats
    covered: Floats
    """How much of the question's terms a text has, by how rare they are."""
    window_covered: Floats


def lexical(view: View, places: Places) -> Lexical:
    """Hold texts, texts among their neighbours, and whole sessions against terms."""
    import numpy as np

    count = len(view)
    terms = sorted(places, key=lambda term: len(places[term][0]))[:MOST_TERMS]
    zeros = np.zeros(count, dtype=np.float32)
    if not terms or not count:
        return Lexical(zeros, zeros, zeros, zeros, zeros)
    sizes = [len(places[term][0]) for term in terms]
    rows = view.rows(np.concatenate([places[term][0] for term in terms]).astype(np.int64))
    often = np.concatenate([places[term][1] for term in terms])
    which = np.repeat(np.arange(len(terms)), sizes)
    rare = _rarity(count, np.array(sizes, dtype=np.float32))
    total = float(rare.sum())
    held = _held(view.length, _K1, _B)
    own = rare[which] * often * (_K1 + 1) / (often + held[rows])
    near, strength = _near_terms(view, which, rows, often, len(terms))
    window, covered = np.zeros(count, dtype=np.float32), np.zeros(count, dtype=np.float32)
    held = _held(view.window, _K1, _B)[near]
    window[near] = rare @ (strength * (_K1 + 1) / (strength + held))
    there = _summed(which * view.sessions + view.session[rows], often, len(terms) * view.sessions)
    there = there.reshape(len(terms), view.sessions)
    rare_there = _rarity(view.sessions, np.count_nonzero(there, axis=1).astype(np.float32))
    sessions = rare_there @ (there * 2.2 / (there + _held(view.in_session, 1.2, 0.75)))
    covered[near] = rare @ np.minimum(strength, 1) / total
    return Lexical(
        _summed(rows, own, count),
        window,
        sessions[view.session],
        _summed(rows, rare[which], count) / total,
        covered,
    )


def _near_terms(
    view: View, which: NDArray[Any], rows: NDArray[Any], often: Floats, terms: int
) -> tuple[NDArray[Any], Floats]:
    """Return the texts with a term or near one, and how strongly each term is there."""
    import numpy as np

    count, steps = len(view), len(view.steps)
    if len(rows) * steps > terms * count:
        # The terms are so common that there is more to reach than there are texts.
        there = np.zeros((terms, count), dtype=np.float32)
        there[which, rows] = often
        return np.arange(count), view.spread_all(there)
    reached, strengths = view.spread(rows, often)
    # Most texts are near none of the terms: only the others are reckoned with.
    seen = np.zeros(count, dtype=np.bool_)
    seen[reached] = True
    near = np.flatnonzero(seen)
    place = np.cumsum(seen) - 1
    each = np.repeat(which, steps) * len(near) + place[reached]
    strength = _summed(each, strengths, terms * len(near))
    return near, strength.reshape(terms, len(near))


def _summed(rows: NDArray[Any], amounts: Floats, count: int) -> Floats:
    import numpy as np

    return np.bincount(rows, weights=amounts, minlength=count).astype(np.float32)


def _held(lengths: Floats, repeats: float, share: float) -> Floats:
    """Return how much texts are held back for their length (BM25)."""
    return repeats * (1 - share + share * lengths / max(float(lengths.mean()), 1e-6))


def _rarity(count: int, found: Floats) -> Floats:
    import numpy as np

    return np.log(1 + (count - found + 0.5) / (found + 0.5)).astype(np.float32)


def standard(scores: Floats) -> Floats:
    """Return scores in standard deviations from their mean."""
    import math

    apart = scores - scores.mean()
    return apart * (1 / (math.sqrt(float(apart @ apart) / max(len(apart), 1)) + 1e-6))


@dataclass(frozen=True, slots=True)
class Nearness:
    """How near texts are to a question in meaning, in the order of the texts."""

    static: Floats
    """Cosines of static vectors."""
    encoded: Floats | None = None
    """Cosines of an encoder's vectors; None: there are none."""
    has: NDArray[np.bool_] | None = None
    """Which texts have an encoder's vector already."""


def signals(
    view: View,
    question: Question,
    places: Places,
    nearness: Nearness,
    speakers: Sequence[str],
) -> tuple[dict[str, Floats], Lexical]:
    """Return all signals, in the order of conversations.

    Args:
        view: The texts.
        question: What is asked.
        places: Where its terms are, in rows of the texts.
        nearness: How near the texts are in meaning.
        speakers: Who each of `texts.speakers` is, as the question's `speakers` calls them.
    """
    import numpy as np

    said = lexical(view, places)
    found = {
        "own": standard(said.own),
        "window": standard(said.window),
        "session": standard(said.session),
        "covered": said.covered,
        "window_covered": said.window_covered,
        "answers": standard(view.shifted(said.own * view.looks["asks"], 1)),
    }
    found |= _meanings(view, nearness)
    found["speaker"] = _spoken_by(view, question, speakers)
    found |= _times(view, question)
    found |= _looks(view, question)
    return {name: values.astype(np.float32, copy=False) for name, values in found.items()}, said


def _meanings(view: View, nearness: Nearness) -> dict[str, Floats]:

    static = view.sorted(nearness.static)
    found = {"static": standard(static), "static_spread": standard(_carried(view, static))}
    if nearness.encoded is None:
        return found
    near = view.sorted(nearness.encoded)
    if nearness.has is not None and not nearness.has.all():
        near = _guessed(near, static, view.sorted(nearness.has))
    found["meaning"] = standard(near)
    found["meaning_spread"] = standard(_carried(view, near))
    found["meaning_session"] = standard(_best_of_session(view, near))
    return found


def _guessed(near: Floats, static: Floats, has: NDArray[np.bool_]) -> Floats:
    """Return nearness, for texts that have no vector yet as their static vectors let expect."""
    import numpy as np

    if not has.any():
        return np.zeros_like(near)
    known, beside = near[has], static[has]
    apart = beside - beside.mean()
    slope = float(apart @ (known - known.mean())) / (float(apart @ apart) + 1e-9)
    guess = known.mean() + max(slope, 0.0) * (static - beside.mean())
    return np.where(has, near, np.minimum(guess, 1)).astype(np.float32)


def _carried(view: View, scores: Floats) -> Floats:
    """Return scores with some of those right before and after: an answer follows its question."""
    return scores + 0.3 * view.shifted(scores, 1) + 0.15 * view.shifted(scores, -1)


def _best_of_session(view: View, scores: Floats) -> Floats:
    """Return for each text the mean of the best scores in its session."""
    import numpy as np

    order = np.lexsort((-scores, view.session))
    rank = np.arange(len(scores)) - np.searchsorted(view.session, view.session)
    best = np.where(rank < _MOST_OF_SESSION, scores[order], 0)
    sizes = np.bincount(view.session, minlength=view.sessions)
    sums = np.bincount(view.session, weights=best, minlength=view.sessions)
    return (sums / np.minimum(sizes, _MOST_OF_SESSION))[view.session].astype(np.float32)


def _spoken_by(view: View, question: Question, speakers: Sequence[str]) -> Floats:
    import numpy as np

    if not question.speakers:
        return np.zeros(len(view), dtype=np.float32)
    most = max(question.speakers.values())
    # What nobody said, such as a document, speaks neither for nor against.
    worth = [2 * question.speakers.get(one, 0.0) / most - 1 if one else 0.0 for one in speakers]
    table = np.array(worth or [0.0], dtype=np.float32)
    return table[view.sorted(view.texts.speaker)]


def _times(view: View, question: Question) -> dict[str, Floats]:
    import numpy as np

    zeros = np.zeros(len(view), dtype=np.float32)
    found = {
        "date": zeros,
        "date_relative": zeros,
        "date_named": zeros,
        "when_time": view.looks["time"] if question.when else zeros,
        "when_day": view.named if question.when else zeros,
    }
    if question.span is not None:
        first, last = question.span
        said_at = view.at.astype(np.float64)
        by_time = np.exp(-_gap(said_at, said_at, first, last) / _DAY / _SLACK)
        from_ms = view.sorted(view.texts.first_day).astype(np.float64) * _DAY
        to_ms = (view.sorted(view.texts.last_day) + 1.0) * _DAY - 1
        by_day = view.named * np.exp(-_gap(from_ms, to_ms, first, last) / _DAY / _SLACK)
        found["date" if question.dated else "date_relative"] = np.maximum(by_time, by_day)
        found["date_named"] = by_day
    return found


def _gap(starts: Any, ends: Any, first: int, last: int) -> Any:
    """Return how far spans are from a span; those before it twice, as things are told of later."""
    import numpy as np

    return np.maximum(starts - last, 0) + 2 * np.maximum(first - ends, 0)


def _looks(view: View, question: Question) -> dict[str, Floats]:
    import numpy as np

    zeros = np.zeros(len(view), dtype=np.float32)
    looks, asks = view.looks, question.asks
    return looks | {
        "number": looks["digit"] if question.number else zeros,
        "help_wish": looks["wish"] if asks & Asks.HELP else zeros,
        "place": view.flag(Flag.PLACE) if asks & Asks.PLACE else zeros,
        "reply_help": looks["reply"] if asks & Asks.HELP else zeros,
        "reply_asked": looks["reply"] if AGENT in question.speakers else zeros,
        "reply_summary": looks["reply"] if asks & Asks.SUMMARY else zeros,
    }
