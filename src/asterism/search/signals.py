"""What a question finds in texts: signals in the order of conversations, a score, a relevance."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property, lru_cache
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING, Any

import orjson

from asterism.memory.words import read as read_tokens
from asterism.records import dataclass
from asterism.search.query import AGENT, Asks, ParsedQuery
from asterism.search.texts import NO_DAY, Flag, Texts

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
"""After a pause of this length a new conversation begins."""
_MAX_SUMS = 16
K1, _B = 0.9, 0.4
"""How soon a repeated term counts no more, and how much long texts are held back (BM25)."""
_SESSION_K1, _SESSION_B = 1.2, 0.75


def standard(scores: Floats) -> Floats:
    """Return scores in standard deviations from their mean."""
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

    def __init__(self, texts: Texts, index_id: NDArray[Any] | None = None) -> None:
        """Look at texts; `index` tells apart texts whose threads are not the same."""
        import numpy as np

        self.texts = texts
        count = len(texts)
        thread = texts.thread.astype(np.int64)
        if index_id is not None:
            thread += index_id.astype(np.int64) * (int(thread.max(initial=0)) + 1)
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
        """The signals of the texts that do not depend on the question."""
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
        self._views: OrderedDict[Hashable, ConversationView] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], ConversationView]) -> ConversationView:
        """Return a view, as it was made before if it is kept."""
        with self._lock:
            result = self._views.get(key)
            if result is not None:
                self._views.move_to_end(key)
                return result
        output = make()
        with self._lock:
            if key not in self._views:
                self._views[key] = output
                self._count += len(output)
            while self._count > self._most and len(self._views) > 1:
                self._count -= len(self._views.popitem(last=False)[1])
        return output

    def __len__(self) -> int:
        return len(self._views)

    def clear(self) -> None:
        """Keep nothing any more."""
        with self._lock:
            self._views.clear()
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
    """Signals from the terms of a question, for texts that contain one or are near one."""

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
    rarity: float = 0.0
    """How rare the terms are, all together."""

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
    rarity = float(rare.sum())
    return LexicalSignals(near, whole, window, has, reached, answers, sessions, rarity)


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


def _rarity(count: int, text_counts: Floats) -> Floats:
    import numpy as np

    return np.log(1 + (count - text_counts + 0.5) / (text_counts + 0.5)).astype(np.float32)


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
        near = _estimated(near, static, view.sorted(nearness.has))
    result["meaning"] = standard(near)
    result["meaning_spread"] = standard(_carried(view, near))
    result["meaning_session"] = standard(_best_of_session(view, near))
    return result


def _estimated(near: Floats, static: Floats, has: NDArray[np.bool_]) -> Floats:
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
    said_at = view.at.astype(np.float64) + question.ahead
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


def score(table: Signals, *, encoded: bool) -> Floats:
    """Return one score a text."""
    return table.summed(weights()["with" if encoded else "without"])


# -- relevance -------------------------------------------------------------------------------------
#
# A score only puts the texts of one search in order: the best of a thousand texts on `good morning`
# has a high one too. A relevance means the same in every memory, so that a threshold can tell what
# is worth showing to somebody who did not ask for it.

_RELEVANCE_FILE = "relevance.json"
_COMMON, _RARE = 9.0, 16.0
"""The lengths of static vectors from which on a word tells something, and tells all it can."""
_LEAST_TEXTS = 200
"""How rare a word is among fewer texts is judged as if so many had been looked at."""
FEW = 50
"""Among fewer texts a score says nothing, since it is counted in deviations from their mean."""
_BEHIND = 10
"""Against the hit at which place the best are held: it is seldom worth showing."""
_NEIGHBOURS = 2
"""How many texts before and after one may have the words that it is found by."""

FEATURES_OF_FEW = (
    *("known", "static", "encoded", "dated", "words"),
    *("near_worth", "asked_worth", "missing_worth", "terms"),
)
FEATURES = (*FEATURES_OF_FEW, "score", "place", "ahead", "back", "mass", "asked", "covered")


@lru_cache(16_384)
def telling(word: str) -> float:
    """Return how much a word tells by itself, from 0 to 1: little if it is in every chat."""
    tokens = read_tokens(word)
    if tokens is None or not tokens.tokens:
        return 1.0
    # Static vectors of common words are short.
    return min(1.0, max(0.0, (tokens.weight - _COMMON) / (_RARE - _COMMON)))


def worth_of(word: str, count: int, texts: int) -> float:
    """Return what a word is worth that so many of the texts have, from 0 to 1."""
    texts = max(texts, _LEAST_TEXTS)
    rarity = math.log(1 + (texts - count + 0.5) / (count + 0.5)) / math.log(2 * texts + 2)
    return rarity * telling(word)


@dataclass(frozen=True, slots=True)
class QueryWord:
    """A word of a question that some text has."""

    worth: float
    """How much it tells: rare among these texts, and not a word that is in every chat."""
    rows: NDArray[Any]
    """The texts that have it, in order."""

    def is_near(self, row: int) -> bool:
        """Tell whether a text, or one right before or after it, has the word."""
        first, last = self.rows.searchsorted((row - _NEIGHBOURS, row + _NEIGHBOURS + 1))
        return bool(last > first)


@dataclass(frozen=True, slots=True)
class QuestionStrength:
    """What a search knows of its question as a whole."""

    texts: int
    """How many texts were looked at."""
    words: Sequence[QueryWord]
    """Those of its words that some text has."""
    rarity: float
    """How rare these are, all together, as the ranking counts it."""
    missing: Sequence[float]
    """What each of the others is worth."""
    encoded: bool
    """Whether texts were held against it by an encoder."""
    mean: float
    deviation: float
    """Of the scores of all texts."""
    best: float
    behind: float
    """The score of the hit at the tenth place."""


@dataclass(frozen=True, slots=True)
class HitStrength:
    """What a search knows of one hit."""

    row: int
    score: float
    covered: float
    """How much of the rarity of the question's words it has, with its neighbours."""
    static: float
    encoded: float
    """Cosines, by static vectors and by an encoder."""
    dated: float
    """How near it is to the time that is asked about."""
    words: int
    """How many it has."""


def strength_of(
    scores: Floats,
    ordered: Floats,
    words: Sequence[QueryWord],
    missing: Sequence[float],
    *,
    rarity: float,
    encoded: bool,
) -> QuestionStrength:
    """Return what is known of a question.

    Args:
        scores: Those of all texts that were looked at.
        ordered: Those of what was found, the best first.
        words: The words of the question that some text has.
        missing: What each of the others is worth.
        rarity: How rare `words` are.
        encoded: Whether an encoder was asked.
    """
    import numpy as np

    count = max(len(scores), 1)
    mean = float(scores.sum()) / count
    apart = scores - mean
    # Not by BLAS, which wakes other threads.
    deviation = math.sqrt(float(np.einsum("i,i->", apart, apart)) / count) + 1e-6
    first = ordered[: _BEHIND + 1]
    return QuestionStrength(
        texts=len(scores),
        words=words,
        rarity=rarity,
        missing=missing,
        encoded=encoded,
        mean=mean,
        deviation=deviation,
        best=float(first[0]) if len(first) else 0.0,
        behind=float(first[-1]) if len(first) else 0.0,
    )


def features(question: QuestionStrength, hit: HitStrength) -> dict[str, float]:
    """Return what a probability is made of, each of a size that does not grow with the memory."""
    mass = question.rarity / math.log(2 * max(question.texts, _LEAST_TEXTS) + 2)
    asked = mass + len(question.missing)
    near = sum(word.worth for word in question.words if word.is_near(hit.row))
    made = {
        "known": mass / asked if asked else 0.0,
        "static": hit.static,
        "dated": hit.dated,
        "words": math.log1p(hit.words),
        "near_worth": math.log1p(near),
        "asked_worth": math.log1p(sum(word.worth for word in question.words)),
        "missing_worth": math.log1p(sum(question.missing)),
        "terms": math.log1p(len(question.words) + len(question.missing)),
    }
    if question.encoded:
        made["encoded"] = hit.encoded
    if question.texts >= FEW:
        made |= {
            "score": hit.score,
            "place": (hit.score - question.mean) / question.deviation,
            "ahead": hit.score - question.behind,
            "back": question.best - hit.score,
            "mass": math.log1p(hit.covered * mass),
            "asked": math.log1p(asked),
            "covered": hit.covered,
        }
    return made


@lru_cache(1)
def _relevance_weights() -> dict[str, dict[str, float]]:
    """Return the weights of features, by `relevance_weights_name`."""
    return orjson.loads(files("asterism.search").joinpath(_RELEVANCE_FILE).read_bytes())["weights"]


def relevance_weights_name(*, encoded: bool, few: bool) -> str:
    """Return the name of the weights for searches with an encoder, or among few texts."""
    return f"{'few texts ' if few else ''}{'with' if encoded else 'without'}"


def probability(found: Mapping[str, float]) -> float:
    """Return how likely a hit with these features has to do with its question."""
    weighted = _relevance_weights()[
        relevance_weights_name(encoded="encoded" in found, few="score" not in found)
    ]
    total = weighted["constant"] + sum(
        weighted[name] * value for name, value in found.items() if name in weighted
    )
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))
