"""What a process has done so far, as plain numbers that cost next to nothing to keep."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

Labels = tuple[str, ...]

OTHER = "(other)"
_MOST_SERIES = 256


class Tally:
    """Sums by labels. What has no room left is counted under `(other)`, so that it is bounded."""

    __slots__ = ("_most", "_other", "_sums")

    def __init__(self, labels: int, most: int = _MOST_SERIES) -> None:
        self._sums: dict[Labels, float] = {}
        self._most = most
        self._other = (OTHER,) * labels

    def add(self, labels: Labels, amount: float = 1) -> None:
        """Count something."""
        sums = self._sums
        if labels in sums:
            sums[labels] += amount
        elif len(sums) < self._most:
            sums[labels] = amount
        else:
            sums[self._other] = sums.get(self._other, 0) + amount

    def items(self) -> list[tuple[Labels, float]]:
        """Return all sums."""
        return sorted(self._sums.items())


class Spread:
    """How values are spread: how many lie up to each bound, and their sum."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Yield each bound as text with how many values lie up to it."""
        below = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            below += count
            yield ("+Inf" if bound == float("inf") else repr(float(bound))), below


class Spreads:
    """Spreads by labels, bounded as a tally is."""

    __slots__ = ("_bounds", "_most", "_other", "_spreads")

    def __init__(self, labels: int, bounds: tuple[float, ...], most: int = 64) -> None:
        self._spreads: dict[Labels, Spread] = {}
        self._bounds = bounds
        self._most = most
        self._other = (OTHER,) * labels

    def add(self, labels: Labels, value: float) -> None:
        """Count a value."""
        found = self._spreads.get(labels)
        if found is None:
            if len(self._spreads) >= self._most:
                labels = self._other
            found = self._spreads.setdefault(labels, Spread(self._bounds))
        found.add(value)

    def items(self) -> list[tuple[Labels, Spread]]:
        """Return all spreads."""
        return sorted(self._spreads.items(), key=lambda item: item[0])


TURN_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
CALL_SECONDS = tuple(round(0.01 * 2**power, 2) for power in range(14))
"""The bounds that the GenAI conventions ask for, in `gen_ai.client.operation.duration`."""


class Counts:
    """Everything that is counted; each is a metric, which `exposition.py` puts into words."""

    __slots__ = (
        "deliveries",
        "exports",
        "failovers",
        "model_calls",
        "model_seconds",
        "outside_calls",
        "pace_seconds",
        "queue_seconds",
        "retries",
        "tokens",
        "tool_calls",
        "tool_seconds",
        "turn_seconds",
        "turns",
        "turns_open",
    )

    def __init__(self) -> None:
        self.turns = Tally(1)
        self.turns_open = 0
        self.turn_seconds = Spread(TURN_SECONDS)
        self.queue_seconds = Spread(TURN_SECONDS)
        self.model_calls = Tally(3)
        self.model_seconds = Spreads(2, CALL_SECONDS)
        self.pace_seconds = Spreads(1, TURN_SECONDS)
        self.tokens = Tally(3)
        self.retries = Tally(3)
        self.failovers = Tally(3)
        self.tool_calls = Tally(2)
        self.outside_calls = Tally(1)
        self.tool_seconds = Spreads(1, CALL_SECONDS)
        self.deliveries = Tally(2)
        self.exports = Tally(2)
