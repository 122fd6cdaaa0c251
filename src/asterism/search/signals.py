"""Texts in the order of their conversations, with what every question needs to know of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING, Any

import orjson

from asterism.search.query import AGENT, Asks, ParsedQuery
from asterism.search.texts import NO_DAY, Flag, Texts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
_MAX_SUMS = 16
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


def _length_penalty(lengths: Floats, repeats: float, share: float) -> Floats:
    """Return how much texts are held back for their length (BM25)."""
    import numpy as np

    middle = max(float(lengths.mean()), 1e-6) if len(lengths) else 1.0
    return (repeats * (1 - share + share * lengths / middle)).astype(np.float32)


class ConversationView:
    """Texts in the order of their conversations, with what every question needs of them."""

    def __init__(self, texts: Texts, shelf: NDArray[Any] | None = None) -> None:
        """Look at texts; `index` tells apart texts whose threads are not the same."""
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
        self.length_penalty = _length_penalty(self.length, K1, _B)
        self.window_penalty = _length_penalty(self.window, K1, _B)
        self.session_penalty = _length_penalty(self.in_session, _SESSION_K1, _SESSION_B)
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
        result = self._sums.get(key)
        if result is None:
            result = np.zeros(len(self), dtype=np.float32)
            for name, weight in weights.items():
                result += np.float32(weight) * self.looks[name]
            self._sums[key] = result
            while len(self._sums) > _MAX_SUMS:
                self._sums.popitem(last=False)
        return result

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

        output = np.zeros_like(scores)
        if len(scores) > 1:
            output[1:] = scores[:-1] * (self._same * np.float32(on))
            if back:
                output[:-1] += scores[1:] * (self._same * np.float32(back))
        return output

    def _neighbours(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return steps to neighbours, and for each what a text counts for the one so far off."""
        import numpy as np

        steps: list[int] = [0]
        result: list[Floats] = [np.ones(len(self), dtype=np.float32)]
        for step in range(1, min(_REACH, len(self) - 1) + 1):
            apart = self._middle[step:] - self._middle[:-step]
            weights = (_NEAR * np.exp(-apart / _FADES)).astype(np.float32)
            weights[(weights < _LEAST) | (self.session[step:] != self.session[:-step])] = 0
            if not weights.any():
                break
            nothing = np.zeros(step, dtype=np.float32)
            steps += [step, -step]
            result += [np.concatenate([weights, nothing]), np.concatenate([nothing, weights])]
        return np.array(steps, dtype=np.int64), np.stack(result, axis=1)

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

        output = amounts.copy()
        room = np.empty_like(amounts)
        for step, fading in self._fading:
            part = room[:-step]
            np.multiply(amounts[:-step], fading, out=part)
            output[step:] += part
            np.multiply(amounts[step:], fading, out=part)
            output[:-step] += part
        return output


class ViewCache:
    """The views used last, up to so many texts; making one costs as much as a search."""

    def __init__(self, most: int = 200_000) -> None:
        self._most = most
        self._count = 0
        self._kept: OrderedDict[Hashable, ConversationView] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], ConversationView]) -> ConversationView:
        """Return a view, as it was made before if it is kept."""
        with self._lock:
            result = self._kept.get(key)
            if result is not None:
                self._kept.move_to_end(key)
                return result
        output = make()
        with self._lock:
            if key not in self._kept:
                self._kept[key] = output
                self._count += len(output)
            while self._count > self._most and len(self._kept) > 1:
                self._count -= len(self._kept.popitem(last=False)[1])
        return output

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Keep nothing any more."""
        with self._lock:
            self._kept.clear()
            self._count = 0


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    TermRows = Mapping[str, tuple[NDArray[np.int32], Floats]]

MAX_TERMS = 24
"""Of a longer question the rarest terms count."""
_STANDARD = ("own", "window", "answers")


@dataclass(frozen=True, slots=True)
class LexicalSignals:
    """What the terms of a question say of texts that have one or are near to one."""

    near: NDArray[Any] | None
    """The rows of these texts; None: all."""
    own: Floats
    """What speaks for each of them, by its own terms."""
    window: Floats
    """The same, with those of its neighbours."""
    covered: Floats
    """How much of the question's terms it has, by how rare they are."""
    window_covered: Floats
    answers: Floats
    """What speaks for the question before it, if it is one."""
    session: Floats
    """What speaks for each session."""

    def spread_out(self, values: Floats, count: int) -> Floats:
        """Return values for all rows, zero for those that are not near."""
        import numpy as np

        if self.near is None:
            return values
        output = np.zeros(count, dtype=np.float32)
        output[self.near] = values
        return output

    def columns(self, view: ConversationView) -> dict[str, Floats]:
        """Return each signal for all rows."""
        count = len(view)
        result = {name: standard(self.spread_out(getattr(self, name), count)) for name in _STANDARD}
        result["session"] = standard(self.session[view.session])
        result["covered"] = self.spread_out(self.covered, count)
        result["window_covered"] = self.spread_out(self.window_covered, count)
        return result

    def add_to(self, total: Floats, view: ConversationView, weights: Mapping[str, float]) -> None:
        """Add the weighted signals to scores by row."""
        import math

        import numpy as np

        count = max(len(view), 1)
        near = np.float32(weights.get("covered", 0)) * self.covered
        near += np.float32(weights.get("window_covered", 0)) * self.window_covered
        elsewhere = 0.0
        for name in _STANDARD:
            weight = weights.get(name)
            if not weight:
                continue
            # The mean and deviation are those of all rows, of which those elsewhere have zero.
            values = getattr(self, name)
            middle = float(values.sum()) / count
            apart = values - middle
            squares = float(np.einsum("i,i->", apart, apart))
            squares += (count - len(values)) * middle * middle
            factor = weight / (math.sqrt(squares / count) + 1e-6)
            near += np.float32(factor) * apart
            elsewhere -= factor * middle
        if self.near is None:
            total += near
        else:
            total += np.float32(elsewhere)
            total[self.near] += near - np.float32(elsewhere)
        if view.sessions > 1 and weights.get("session"):
            shares = view.session_sizes / count
            apart = self.session - float((self.session * shares).sum())
            factor = weights["session"] / (math.sqrt(float((apart * apart * shares).sum())) + 1e-6)
            total += (apart * factor).astype(np.float32)[view.session]


def lexical(view: ConversationView, places: TermRows) -> LexicalSignals:
    """Hold texts, texts among their neighbours, and whole sessions against terms."""
    import numpy as np

    count = len(view)
    terms = sorted(places, key=lambda term: len(places[term][0]))[:MAX_TERMS]
    if not terms or not count:
        none = np.zeros(0, dtype=np.float32)
        sessions = np.zeros(view.sessions, dtype=np.float32)
        return LexicalSignals(np.zeros(0, dtype=np.int64), none, none, none, none, none, sessions)
    sizes = [len(places[term][0]) for term in terms]
    rows = view.rows(np.concatenate([places[term][0] for term in terms]).astype(np.int64))
    often = np.concatenate([places[term][1] for term in terms])
    which = np.repeat(np.arange(len(terms)), sizes)
    rare = _rarity(count, np.array(sizes, dtype=np.float32))
    share = rare / rare.sum()
    own = rare[which] * often * np.float32(K1 + 1) / (often + view.length_penalty[rows])
    whole = _summed(rows, own, count)
    answers = view.carried(whole * view.looks["asks"], 1, 0)
    has = _summed(rows, share[which], count)
    if len(rows) * len(view.steps) > count:
        near = None
        window, reached = _among_all(view, rows, often, sizes, rare, share)
    else:
        near, window, reached = _among_some(view, rows, often, which, rare, share, answers != 0)
        whole, has, answers = whole[near], has[near], answers[near]
    sessions = _of_sessions(view, rows, often, which, len(terms))
    return LexicalSignals(near, whole, window, has, reached, answers, sessions)


def _among_all(
    view: ConversationView,
    rows: NDArray[Any],
    often: Floats,
    sizes: list[int],
    rare: Floats,
    share: Floats,
) -> tuple[Floats, Floats]:
    """Return how strong terms are among neighbours and how much of them is there, for all rows."""
    import numpy as np

    count = len(view)
    penalty = view.window_penalty
    window, covered = np.zeros(count, dtype=np.float32), np.zeros(count, dtype=np.float32)
    room = np.empty(count, dtype=np.float32)
    first = 0
    for place, size in enumerate(sizes):
        there, counts = rows[first : first + size], often[first : first + size]
        first += size
        if 2 * size * len(view.steps) > count:
            amounts = np.zeros(count, dtype=np.float32)
            amounts[there] = counts
            strength = view.spread_all(amounts)
        else:
            strength = _summed(*view.spread(there, counts), count)
        np.add(strength, penalty, out=room)
        np.divide(strength, room, out=room)
        room *= rare[place] * np.float32(K1 + 1)
        window += room
        np.minimum(strength, 1, out=room)
        room *= share[place]
        covered += room
    return window, covered


def _among_some(
    view: ConversationView,
    rows: NDArray[Any],
    often: Floats,
    which: NDArray[Any],
    rare: Floats,
    share: Floats,
    seen: NDArray[np.bool_],
) -> tuple[NDArray[Any], Floats, Floats]:
    """Return the rows with a term or near one, or seen for another reason, and the same for them.

    An answer can be too long to be near to its question.
    """
    import numpy as np

    terms = len(rare)
    reached, strengths = view.spread(rows, often)
    seen[reached] = True
    near = np.flatnonzero(seen)
    place = np.cumsum(seen) - 1
    each = np.repeat(which, len(view.steps)) * len(near) + place[reached]
    strength = _summed(each, strengths, terms * len(near)).reshape(terms, len(near))
    penalty = view.window_penalty[near]
    window = (strength / (strength + penalty) * (rare * np.float32(K1 + 1))[:, None]).sum(axis=0)
    covered = (np.minimum(strength, 1) * share[:, None]).sum(axis=0)
    return near, window, covered


def _of_sessions(
    view: ConversationView, rows: NDArray[Any], often: Floats, which: NDArray[Any], terms: int
) -> Floats:
    import numpy as np

    if view.sessions == 1:
        return np.zeros(1, dtype=np.float32)
    there = _summed(which * view.sessions + view.session[rows], often, terms * view.sessions)
    there = there.reshape(terms, view.sessions)
    rare = _rarity(view.sessions, np.count_nonzero(there, axis=1).astype(np.float32))
    penalty = view.session_penalty
    return (there * np.float32(2.2) / (there + penalty) * rare[:, None]).sum(axis=0)


def _summed(rows: NDArray[Any], amounts: Floats, count: int) -> Floats:
    import numpy as np

    return np.bincount(rows, weights=amounts, minlength=count).astype(np.float32)


def _rarity(count: int, found: Floats) -> Floats:
    import numpy as np

    return np.log(1 + (count - found + 0.5) / (found + 0.5)).astype(np.float32)


_DAY = 86_400_000
_SLACK = 10.0
"""Over how many days a time that is asked about fades: things are told of later."""
_MAX_OF_SESSION = 3


@dataclass(frozen=True, slots=True)
class Similarity:
    """How near texts are to a question in meaning, in the order of the texts."""

    static: Floats
    """Cosines of static vectors."""
    encoded: Floats | None = None
    """Cosines of an encoder's vectors; None: there are none."""
    has: NDArray[np.bool_] | None = None
    """Which texts have an encoder's vector already."""


@dataclass(frozen=True, slots=True)
class Signals:
    """All signals of the texts of a view, in the order of conversations."""

    view: ConversationView
    lexical: LexicalSignals
    looks: dict[str, str | None]
    """Signals that are what texts look like, each with that look; None: it is not asked for."""
    others: dict[str, Floats | None]
    """The others, by row; None: zero for all texts."""

    def columns(self) -> dict[str, Floats]:
        """Return all of them one by one: what weights are fitted on."""
        import numpy as np

        zeros = np.zeros(len(self.view), dtype=np.float32)
        result = self.lexical.columns(self.view)
        result |= {
            name: zeros if values is None else values for name, values in self.others.items()
        }
        result |= {
            name: zeros if look is None else self.view.looks[look]
            for name, look in self.looks.items()
        }
        return {name: values.astype(np.float32, copy=False) for name, values in result.items()}

    def summed(self, weights: Mapping[str, float]) -> Floats:
        """Return their weighted sum."""
        import numpy as np

        looks: dict[str, float] = {}
        for name, look in self.looks.items():
            if look is not None and weights.get(name):
                looks[look] = looks.get(look, 0.0) + weights[name]
        total = self.view.looks_summed(looks).copy()
        room = np.empty_like(total)
        for name, values in self.others.items():
            if values is not None and weights.get(name):
                total += np.multiply(values, np.float32(weights[name]), out=room)
        self.lexical.add_to(total, self.view, weights)
        return total


def signals(
    view: ConversationView,
    question: ParsedQuery,
    places: TermRows,
    nearness: Similarity,
    speakers: Sequence[str],
) -> Signals:
    """Return all signals.

    Args:
        view: The texts.
        question: What is asked.
        places: Where its terms are, in rows of the texts.
        nearness: How near the texts are in meaning.
        speakers: Who each of `texts.speakers` is, as the question's `speakers` calls them.
    """
    others: dict[str, Floats | None] = {**_meanings(view, nearness)}
    others["speaker"] = _spoken_by(view, question, speakers)
    others |= _times(view, question)
    return Signals(view, lexical(view, places), _looks(question), others)


def _meanings(view: ConversationView, nearness: Similarity) -> dict[str, Floats]:
    static = view.sorted(nearness.static)
    result = {"static": standard(static), "static_spread": standard(_carried(view, static))}
    if nearness.encoded is None:
        return result
    near = view.sorted(nearness.encoded)
    if nearness.has is not None and not nearness.has.all():
        near = _guessed(near, static, view.sorted(nearness.has))
    result["meaning"] = standard(near)
    result["meaning_spread"] = standard(_carried(view, near))
    result["meaning_session"] = standard(_best_of_session(view, near))
    return result


def _guessed(near: Floats, static: Floats, has: NDArray[np.bool_]) -> Floats:
    """Return nearness, for texts that have no vector yet as their static vectors let expect."""
    import numpy as np

    if not has.any():
        return np.zeros_like(near)
    known, beside = near[has], static[has]
    apart = beside - beside.mean()
    together = np.einsum("i,i->", apart, known - known.mean())
    slope = float(together) / (float(np.einsum("i,i->", apart, apart)) + 1e-9)
    guess = known.mean() + max(slope, 0.0) * (static - beside.mean())
    return np.where(has, near, np.minimum(guess, 1)).astype(np.float32)


def _carried(view: ConversationView, scores: Floats) -> Floats:
    """Return scores with some of those right before and after: an answer follows its question."""
    return scores + view.carried(scores, 0.3, 0.15)


def _best_of_session(view: ConversationView, scores: Floats) -> Floats:
    """Return for each text the mean of the best scores in its session."""
    import numpy as np

    if not len(scores):
        return scores
    left = scores.copy()
    sums = np.zeros(view.sessions, dtype=np.float32)
    for place in range(_MAX_OF_SESSION):
        best = np.maximum.reduceat(left, view.starts)
        sums += np.where(view.session_sizes > place, best, 0)
        at = np.flatnonzero(left == best[view.session])
        # Of several that are as good, one is taken at a time.
        first = np.ones(len(at), dtype=np.bool_)
        first[1:] = view.session[at[1:]] != view.session[at[:-1]]
        left[at[first]] = -np.inf
    return (sums / np.minimum(view.session_sizes, _MAX_OF_SESSION))[view.session].astype(np.float32)


def _spoken_by(
    view: ConversationView, question: ParsedQuery, speakers: Sequence[str]
) -> Floats | None:
    import numpy as np

    if not question.speakers:
        return None
    most = max(question.speakers.values())
    # What nobody said, such as a document, speaks neither for nor against.
    worth = [
        2 * question.speakers.get(speaker, 0.0) / most - 1 if speaker else 0.0
        for speaker in speakers
    ]
    return np.array(worth or [0.0], dtype=np.float32).take(view.speaker)


def _times(view: ConversationView, question: ParsedQuery) -> dict[str, Floats | None]:
    import numpy as np

    result: dict[str, Floats | None] = {"date": None, "date_relative": None, "date_named": None}
    if question.span is None:
        return result
    first, last = question.span
    said_at = view.at.astype(np.float64)
    by_time = np.exp(-_gap(said_at, said_at, first, last) / _DAY / _SLACK)
    from_ms = view.sorted(view.texts.first_day).astype(np.float64) * _DAY
    to_ms = (view.sorted(view.texts.last_day) + 1.0) * _DAY - 1
    by_day = view.looks["day"] * np.exp(-_gap(from_ms, to_ms, first, last) / _DAY / _SLACK)
    nearest = np.maximum(by_time, by_day).astype(np.float32)
    result["date" if question.dated else "date_relative"] = nearest
    result["date_named"] = by_day.astype(np.float32)
    return result


def _gap(starts: Any, ends: Any, first: int, last: int) -> Any:
    """Return how far spans are from a span; those before it twice, as things are told of later."""
    import numpy as np

    return np.maximum(starts - last, 0) + 2 * np.maximum(first - ends, 0)


_ALWAYS = ("time", "digit", "asks", "wish", "reply", "addresses", "long", "telling")


def _looks(question: ParsedQuery) -> dict[str, str | None]:
    asks = question.asks
    return {name: name for name in _ALWAYS} | {
        "when_time": "time" if question.when else None,
        "when_day": "day" if question.when else None,
        "number": "digit" if question.number else None,
        "help_wish": "wish" if asks & Asks.HELP else None,
        "place": "place" if asks & Asks.PLACE else None,
        "reply_help": "reply" if asks & Asks.HELP else None,
        "reply_asked": "reply" if AGENT in question.speakers else None,
        "reply_summary": "reply" if asks & Asks.SUMMARY else None,
    }


_FILE = "weights.json"


@lru_cache(1)
def weights() -> dict[str, dict[str, float]]:
    """Return the weights of signals, `with` and `without` an encoder."""
    text = files("asterism.search").joinpath(_FILE).read_bytes()
    return orjson.loads(text)["weights"]


def score(found: Signals, *, encoded: bool) -> Floats:
    """Return one score a text."""
    return found.summed(weights()["with" if encoded else "without"])
