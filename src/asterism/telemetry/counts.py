"""What a process has done so far, as plain numbers that cost next to nothing to keep."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterator

from asterism.errors import AsterismError

Labels = tuple[str, ...]

OTHER = "(other)"
_MAX_SERIES = 256


class Counter:
    """Sums by labels. What has no room left is counted under `(other)`, so that it is bounded."""

    __slots__ = ("_max_series", "_other", "_sums")

    def __init__(self, labels: int, max_series: int = _MAX_SERIES) -> None:
        self._sums: dict[Labels, float] = {}
        self._max_series = max_series
        self._other = (OTHER,) * labels

    def add(self, labels: Labels, amount: float = 1) -> None:
        """Count something."""
        sums = self._sums
        if labels in sums:
            sums[labels] += amount
        elif len(sums) < self._max_series:
            sums[labels] = amount
        else:
            sums[self._other] = sums.get(self._other, 0) + amount

    def items(self) -> list[tuple[Labels, float]]:
        """Return all sums."""
        return sorted(self._sums.items())


class Histogram:
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


class LabeledHistogram:
    """Histograms by labels, bounded as a counter is."""

    __slots__ = ("_bounds", "_histograms", "_max_series", "_other")

    def __init__(self, labels: int, bounds: tuple[float, ...], max_series: int = 64) -> None:
        self._histograms: dict[Labels, Histogram] = {}
        self._bounds = bounds
        self._max_series = max_series
        self._other = (OTHER,) * labels

    def add(self, labels: Labels, value: float) -> None:
        """Count a value."""
        histogram = self._histograms.get(labels)
        if histogram is None:
            if len(self._histograms) >= self._max_series:
                labels = self._other
            histogram = self._histograms.setdefault(labels, Histogram(self._bounds))
        histogram.add(value)

    def items(self) -> list[tuple[Labels, Histogram]]:
        """Return all histograms."""
        return sorted(self._histograms.items(), key=lambda item: item[0])


TURN_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
CALL_SECONDS = tuple(round(0.01 * 2**power, 2) for power in range(14))
"""The bounds that the GenAI conventions ask for, in `gen_ai.client.operation.duration`."""


class Counts:
    """Everything that is counted; each is a metric, which `prometheus.py` renders."""

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
        self.turns = Counter(1)
        self.turns_open = 0
        self.turn_seconds = Histogram(TURN_SECONDS)
        self.queue_seconds = Histogram(TURN_SECONDS)
        self.model_calls = Counter(3)
        self.model_seconds = LabeledHistogram(2, CALL_SECONDS)
        self.pace_seconds = LabeledHistogram(1, TURN_SECONDS)
        self.tokens = Counter(3)
        self.retries = Counter(3)
        self.failovers = Counter(3)
        self.tool_calls = Counter(2)
        self.outside_calls = Counter(1)
        self.tool_seconds = LabeledHistogram(1, CALL_SECONDS)
        self.deliveries = Counter(2)
        self.exports = Counter(2)


def error_class(error: BaseException) -> str:
    """Return what kind of error it is: `busy`, `key`, `timeout`, or the name of its class."""
    if isinstance(error, AsterismError):
        return error.code.removeprefix("model.")
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return "timeout" if isinstance(error, TimeoutError) else type(error).__name__
