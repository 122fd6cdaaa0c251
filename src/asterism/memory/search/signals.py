"""What speaks for each text as an answer to a question: one number a text and signal.

All of it is arithmetic over the columns of the texts of one search, the same on both engines. What
a signal is worth is in the weights (`ranking.py`), fitted on questions with known answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asterism.memory.search.lexical import Lexical, lexical
from asterism.memory.search.question import Asks, Question
from asterism.memory.search.stored import AGENT
from asterism.memory.search.view import View, standard

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from asterism.memory.search.lexical import Places
    from asterism.memory.search.view import Floats

_DAY = 86_400_000
_SLACK = 10.0
"""Over how many days a time that is asked about fades: things are told of later."""
_MOST_OF_SESSION = 3


@dataclass(frozen=True, slots=True)
class Nearness:
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

    view: View
    said: Lexical
    looks: dict[str, str | None]
    """Signals that are what texts look like, each with that look; None: it is not asked for."""
    others: dict[str, Floats | None]
    """The others, by row; None: zero for all texts."""

    def columns(self) -> dict[str, Floats]:
        """Return all of them one by one: what weights are fitted on."""
        import numpy as np

        zeros = np.zeros(len(self.view), dtype=np.float32)
        found = self.said.columns(self.view)
        found |= {name: zeros if one is None else one for name, one in self.others.items()}
        found |= {
            name: zeros if look is None else self.view.looks[look]
            for name, look in self.looks.items()
        }
        return {name: one.astype(np.float32, copy=False) for name, one in found.items()}

    def summed(self, weights: Mapping[str, float]) -> Floats:
        """Return their weighted sum."""
        import numpy as np

        looks: dict[str, float] = {}
        for name, look in self.looks.items():
            if look is not None and weights.get(name):
                looks[look] = looks.get(look, 0.0) + weights[name]
        total = self.view.looks_summed(looks).copy()
        room = np.empty_like(total)
        for name, one in self.others.items():
            if one is not None and weights.get(name):
                total += np.multiply(one, np.float32(weights[name]), out=room)
        self.said.add_to(total, self.view, weights)
        return total


def signals(
    view: View,
    question: Question,
    places: Places,
    nearness: Nearness,
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
    together = np.einsum("i,i->", apart, known - known.mean())
    slope = float(together) / (float(np.einsum("i,i->", apart, apart)) + 1e-9)
    guess = known.mean() + max(slope, 0.0) * (static - beside.mean())
    return np.where(has, near, np.minimum(guess, 1)).astype(np.float32)


def _carried(view: View, scores: Floats) -> Floats:
    """Return scores with some of those right before and after: an answer follows its question."""
    return scores + view.carried(scores, 0.3, 0.15)


def _best_of_session(view: View, scores: Floats) -> Floats:
    """Return for each text the mean of the best scores in its session."""
    import numpy as np

    if not len(scores):
        return scores
    left = scores.copy()
    sums = np.zeros(view.sessions, dtype=np.float32)
    for place in range(_MOST_OF_SESSION):
        best = np.maximum.reduceat(left, view.starts)
        sums += np.where(view.session_sizes > place, best, 0)
        at = np.flatnonzero(left == best[view.session])
        # Of several that are as good, one is taken at a time.
        first = np.ones(len(at), dtype=np.bool_)
        first[1:] = view.session[at[1:]] != view.session[at[:-1]]
        left[at[first]] = -np.inf
    return (sums / np.minimum(view.session_sizes, _MOST_OF_SESSION))[view.session].astype(
        np.float32
    )


def _spoken_by(view: View, question: Question, speakers: Sequence[str]) -> Floats | None:
    import numpy as np

    if not question.speakers:
        return None
    most = max(question.speakers.values())
    # What nobody said, such as a document, speaks neither for nor against.
    worth = [2 * question.speakers.get(one, 0.0) / most - 1 if one else 0.0 for one in speakers]
    return np.array(worth or [0.0], dtype=np.float32).take(view.speaker)


def _times(view: View, question: Question) -> dict[str, Floats | None]:
    import numpy as np

    found: dict[str, Floats | None] = {"date": None, "date_relative": None, "date_named": None}
    if question.span is None:
        return found
    first, last = question.span
    said_at = view.at.astype(np.float64)
    by_time = np.exp(-_gap(said_at, said_at, first, last) / _DAY / _SLACK)
    from_ms = view.sorted(view.texts.first_day).astype(np.float64) * _DAY
    to_ms = (view.sorted(view.texts.last_day) + 1.0) * _DAY - 1
    by_day = view.looks["day"] * np.exp(-_gap(from_ms, to_ms, first, last) / _DAY / _SLACK)
    nearest = np.maximum(by_time, by_day).astype(np.float32)
    found["date" if question.dated else "date_relative"] = nearest
    found["date_named"] = by_day.astype(np.float32)
    return found


def _gap(starts: Any, ends: Any, first: int, last: int) -> Any:
    """Return how far spans are from a span; those before it twice, as things are told of later."""
    import numpy as np

    return np.maximum(starts - last, 0) + 2 * np.maximum(first - ends, 0)


_ALWAYS = ("time", "digit", "asks", "wish", "reply", "addresses", "long", "telling")


def _looks(question: Question) -> dict[str, str | None]:
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
