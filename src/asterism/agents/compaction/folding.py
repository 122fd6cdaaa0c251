"""What leaves a context: chosen by a strategy, in whole turns, before any model is asked."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import orjson

from asterism.types.marks import MARK
from asterism.types.people import Audience, Trust, least_trusted
from asterism.types.summaries import Strategy, Summary
from asterism.types.turns import EntryKind
from asterism.types.wire import text_of

_BYTES_PER_TOKEN = 4
_GOAL_SHARE = 0.5
"""What is left fills half of the budget, so that folding is rare and the prefix is long-lived."""
SUMMARY_TOKENS = 600
"""How long a summary may be; room for it is left within the goal."""
_KEPT_SHARE = 0.3
"""How much of the goal the turns may fill that stay for their importance."""


@dataclass(frozen=True, slots=True)
class Told:
    """One entry of the journal that a model sees."""

    seq: int
    turn_id: str
    kind: EntryKind
    wire: bytes
    at: int
    audience: Audience
    trust: Trust


@dataclass(frozen=True, slots=True)
class Weights:
    """What makes a message important; a turn's score is the mean over its messages."""

    system: float = 10.0
    user: float = 5.0
    assistant: float = 3.0
    other: float = 1.0
    recency: float = 5.0
    """The most that the newest gets; the oldest gets nothing."""
    per_100_characters: float = 1.0
    length: float = 3.0
    """The most that length can give."""
    question: float = 2.0
    call: float = 4.0
    keyword: float = 1.5
    keywords: tuple[str, ...] = ("important", "remember", "critical", "always", "never")


@dataclass(frozen=True, slots=True)
class Options:
    """How an owner wants old turns to be folded."""

    keep_recent: int = 8
    """Turns that stay as they are, where the budget allows; the latest always does."""
    keep_important: int = 8
    """The most older turns that stay in full for their importance."""
    decay_hours: float = 24.0
    weights: Weights = field(default_factory=Weights)


@dataclass(frozen=True, slots=True)
class Folding:
    """What is to be folded, decided before any model is asked."""

    folded: tuple[Told, ...]
    """Whole turns, in order; also those that stood in full behind the former summary till now."""
    kept: tuple[int, ...]
    """What stays in full of all up to `last_seq`: whole turns, and the beginnings of turns that
    reach beyond it."""
    first_seq: int
    last_seq: int
    former: str
    """The summary that stood for what came before; the new one takes it in."""
    audience: Audience
    """Those who may hear all of the folded and the former summary."""
    trust: Trust
    strategy: Strategy

    @property
    def messages(self) -> int:
        """How many messages are folded."""
        return len(self.folded)

    @property
    def tokens(self) -> int:
        """About how many tokens they have."""
        return sum(len(one.wire) for one in self.folded) // _BYTES_PER_TOKEN

    @property
    def first_at(self) -> int:
        """When the first of them was said."""
        return self.folded[0].at

    @property
    def last_at(self) -> int:
        """When the last of them was said."""
        return self.folded[-1].at

    def left(self, told: Sequence[Told]) -> list[Told]:
        """Return what still stands in full of what was told, in order."""
        kept = set(self.kept)
        return [one for one in told if one.seq > self.last_seq or one.seq in kept]


@dataclass(slots=True)
class _Turn:
    """A turn's place in what was told; the turns of others may lie between its entries."""

    start: int
    end: int = 0
    size: int = 0
    whole: bool = True
    places: list[int] = field(default_factory=list[int])


def choose(
    told: Sequence[Told],
    strategy: Strategy,
    *,
    budget_tokens: int,
    now: int,
    options: Options | None = None,
    former: Summary | None = None,
    unfinished: Collection[str] = (),
) -> Folding | None:
    """Decide what is folded; None if nothing can be, since only the latest turn is left.

    Args:
        told: What the context holds, in order: first what the former summary left in full.
        strategy: Which turns go.
        budget_tokens: What the context's tail may hold; it is folded to half of that. What is
            under that already is folded for all that up to the turns that stay by `options`.
        now: For the strategy that goes by age; it may find that nothing is old enough.
        options: How many stay, and what counts as important.
        former: The summary at the front of the context.
        unfinished: Turns that go on later, such as those that wait for a person; they stay.
    """
    options = options or Options()
    turns = _turns_of(told, unfinished)
    carried = sum(former is not None and one.seq <= former.last_seq for one in told)
    # The range must go beyond the former one's, and begin before the turn that began last.
    cuts = [one.start for one in turns if one.start > carried]
    if not cuts:
        return None
    scale = _Scale(turns)
    whole_goal = budget_tokens * _BYTES_PER_TOKEN * _GOAL_SHARE
    goal = whole_goal - min(SUMMARY_TOKENS * _BYTES_PER_TOKEN, whole_goal / 4)
    cut = _cut(told, cuts, scale, strategy, budget_tokens * _BYTES_PER_TOKEN, goal, now, options)
    stays: set[int] = set()
    if cut and strategy is Strategy.IMPORTANCE:
        room = min(goal * _KEPT_SHARE, goal - scale.left_after(cut))
        stays = _important(told, turns, cut, room, options)
    if not cut:
        return None
    leave = {
        place
        for index, one in enumerate(turns)
        if one.whole and one.end < cut and index not in stays
        for place in one.places
    }
    if not leave:
        return None
    return _folding(told, cut, leave, strategy, former)


def _folding(
    told: Sequence[Told], cut: int, leave: set[int], strategy: Strategy, former: Summary | None
) -> Folding:
    folded = tuple(told[place] for place in sorted(leave))
    audiences = {one.audience for one in folded}
    trust_levels = {one.trust for one in folded}
    if former is not None:
        audiences.add(former.audience)
        trust_levels.add(former.trust)
    return Folding(
        folded=folded,
        kept=tuple(told[place].seq for place in range(cut) if place not in leave),
        first_seq=former.last_seq + 1 if former is not None else told[0].seq,
        last_seq=told[cut - 1].seq,
        former=former.text if former is not None else "",
        audience=Audience.intersection(audiences),
        trust=least_trusted(trust_levels),
        strategy=strategy,
    )


def _turns_of(told: Sequence[Told], unfinished: Collection[str]) -> list[_Turn]:
    """Return the turns in the order of their beginnings."""
    found: dict[str, _Turn] = {}
    calls: dict[str, set[str]] = {}
    for place, one in enumerate(told):
        turn = found.get(one.turn_id)
        if turn is None:
            turn = found[one.turn_id] = _Turn(place, whole=one.turn_id not in unfinished)
        turn.end = place
        turn.size += len(one.wire)
        turn.places.append(place)
        if one.kind is EntryKind.REPLY and b'"tool_calls"' in one.wire:
            asked = orjson.loads(one.wire).get("tool_calls") or ()
            calls.setdefault(one.turn_id, set()).update(call.get("id") for call in asked)
        elif one.kind is EntryKind.RESULT and one.turn_id in calls:
            calls[one.turn_id].discard(orjson.loads(one.wire).get("tool_call_id"))
    for turn_id, open_calls in calls.items():
        if open_calls:
            found[turn_id].whole = False
    return list(found.values())


class _Scale:
    """How much is left in full after a cut: all but the finished turns that end before it."""

    def __init__(self, turns: Sequence[_Turn]) -> None:
        ends = sorted((one.end, one.size) for one in turns if one.whole)
        self._ends = [end for end, _ in ends]
        self._sums = [0, *accumulate(size for _, size in ends)]
        self.total = sum(one.size for one in turns)

    def left_after(self, cut: int) -> int:
        return self.total - self._sums[bisect_left(self._ends, cut)]


def _cut(
    told: Sequence[Told],
    cuts: Sequence[int],
    scale: _Scale,
    strategy: Strategy,
    budget: int,
    goal: float,
    now: int,
    options: Options,
) -> int:
    """Return before which entry all leaves that may; 0 if a strategy finds nothing to do."""
    match strategy:
        case Strategy.DECAY:
            cut = _by_age(told, cuts, now, options)
            too_much = scale.left_after(cut) > budget
            return max(cut, _by_size(scale, cuts, goal)) if too_much else cut
        case Strategy.IMPORTANCE:
            return _by_need(scale, cuts, goal * (1 - _KEPT_SHARE), options)
        case Strategy.TRUNCATE | Strategy.SUMMARY:
            return _by_need(scale, cuts, goal, options)


def _by_size(scale: _Scale, cuts: Sequence[int], goal: float) -> int:
    """Return the first cut that reaches the goal, or comes nearest to it."""
    goal = max(goal, scale.left_after(cuts[-1]))
    return cuts[bisect_left(cuts, -goal, key=lambda cut: -scale.left_after(cut))]


def _by_need(scale: _Scale, cuts: Sequence[int], goal: float, options: Options) -> int:
    if scale.total > goal:
        return _by_size(scale, cuts, goal)
    return cuts[-options.keep_recent] if 0 < options.keep_recent <= len(cuts) else cuts[-1]


def _by_age(told: Sequence[Told], cuts: Sequence[int], now: int, options: Options) -> int:
    """Return the last cut before which all is old and after which enough turns stay, or 0."""
    oldest = now - int(options.decay_hours * 3_600_000)
    free = cuts[: max(0, len(cuts) + 1 - max(1, options.keep_recent))]
    old = [cut for cut in free if told[cut - 1].at < oldest]
    return old[-1] if old else 0


def _important(
    told: Sequence[Told], turns: Sequence[_Turn], cut: int, room: float, options: Options
) -> set[int]:
    """Return which of the turns before a cut stay; at least one leaves."""
    leaving = [index for index, one in enumerate(turns) if one.whole and one.end < cut]
    newest = max(1, len(told) - 1)
    scores = {
        index: sum(_score(told[place], place / newest, options.weights) for place in places)
        / len(places)
        for index in leaving
        for places in (turns[index].places,)
    }
    stays: set[int] = set()
    for index in sorted(leaving, key=lambda one: (-scores[one], -one))[: len(leaving) - 1]:
        if len(stays) == options.keep_important:
            break
        if turns[index].size <= room:
            room -= turns[index].size
            stays.add(index)
    return stays


def _score(one: Told, age: float, weights: Weights) -> float:
    text = text_of(one.wire)
    if one.kind is EntryKind.REPLY:
        score = weights.assistant
    elif one.kind is EntryKind.MESSAGE and not text.startswith(MARK):
        score = weights.system if one.wire.startswith(b'{"role":"system"') else weights.user
    else:
        score = weights.other
    score += age * weights.recency
    score += min(weights.length, len(text) / 100 * weights.per_100_characters)
    if "?" in text:
        score += weights.question
    if one.kind is EntryKind.REPLY and b'"tool_calls"' in one.wire:
        score += weights.call
    lowered = text.lower()
    return score + weights.keyword * sum(word in lowered for word in weights.keywords)
