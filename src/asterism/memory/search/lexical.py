"""What the terms of a question say of texts, of texts among their neighbours, and of sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asterism.memory.search.view import K1, View, standard

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from asterism.memory.search.view import Floats

    Places = Mapping[str, tuple[NDArray[np.int32], Floats]]

MOST_TERMS = 24
"""Of a longer question the rarest terms count."""
_STANDARD = ("own", "window", "answers")


@dataclass(frozen=True, slots=True)
class Lexical:
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
        made = np.zeros(count, dtype=np.float32)
        made[self.near] = values
        return made

    def columns(self, view: View) -> dict[str, Floats]:
        """Return each signal for all rows."""
        count = len(view)
        found = {name: standard(self.spread_out(getattr(self, name), count)) for name in _STANDARD}
        found["session"] = standard(self.session[view.session])
        found["covered"] = self.spread_out(self.covered, count)
        found["window_covered"] = self.spread_out(self.window_covered, count)
        return found

    def add_to(self, total: Floats, view: View, weights: Mapping[str, float]) -> None:
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


def lexical(view: View, places: Places) -> Lexical:
    """Hold texts, texts among their neighbours, and whole sessions against terms."""
    import numpy as np

    count = len(view)
    terms = sorted(places, key=lambda term: len(places[term][0]))[:MOST_TERMS]
    if not terms or not count:
        none = np.zeros(0, dtype=np.float32)
        sessions = np.zeros(view.sessions, dtype=np.float32)
        return Lexical(np.zeros(0, dtype=np.int64), none, none, none, none, none, sessions)
    sizes = [len(places[term][0]) for term in terms]
    rows = view.rows(np.concatenate([places[term][0] for term in terms]).astype(np.int64))
    often = np.concatenate([places[term][1] for term in terms])
    which = np.repeat(np.arange(len(terms)), sizes)
    rare = _rarity(count, np.array(sizes, dtype=np.float32))
    share = rare / rare.sum()
    own = rare[which] * often * np.float32(K1 + 1) / (often + view.held[rows])
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
    return Lexical(near, whole, window, has, reached, answers, sessions)


def _among_all(
    view: View, rows: NDArray[Any], often: Floats, sizes: list[int], rare: Floats, share: Floats
) -> tuple[Floats, Floats]:
    """Return how strong terms are among neighbours and how much of them is there, for all rows."""
    import numpy as np

    count = len(view)
    held = view.window_held
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
        np.add(strength, held, out=room)
        np.divide(strength, room, out=room)
        room *= rare[place] * np.float32(K1 + 1)
        window += room
        np.minimum(strength, 1, out=room)
        room *= share[place]
        covered += room
    return window, covered


def _among_some(
    view: View,
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
    held = view.window_held[near]
    window = (strength / (strength + held) * (rare * np.float32(K1 + 1))[:, None]).sum(axis=0)
    covered = (np.minimum(strength, 1) * share[:, None]).sum(axis=0)
    return near, window, covered


def _of_sessions(
    view: View, rows: NDArray[Any], often: Floats, which: NDArray[Any], terms: int
) -> Floats:
    import numpy as np

    if view.sessions == 1:
        return np.zeros(1, dtype=np.float32)
    there = _summed(which * view.sessions + view.session[rows], often, terms * view.sessions)
    there = there.reshape(terms, view.sessions)
    rare = _rarity(view.sessions, np.count_nonzero(there, axis=1).astype(np.float32))
    held = view.session_held
    return (there * np.float32(2.2) / (there + held) * rare[:, None]).sum(axis=0)


def _summed(rows: NDArray[Any], amounts: Floats, count: int) -> Floats:
    import numpy as np

    return np.bincount(rows, weights=amounts, minlength=count).astype(np.float32)


def _rarity(count: int, found: Floats) -> Floats:
    import numpy as np

    return np.log(1 + (count - found + 0.5) / (found + 0.5)).astype(np.float32)
