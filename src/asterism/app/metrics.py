"""The counts and figures in the text formats that Prometheus reads.

This module loads `prometheus_client`: import it only when metrics are asked for.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from asterism.errors import AsterismError
from asterism.store import events
from asterism.types.spending import NANO

if TYPE_CHECKING:
    from asterism.store.database import Database
    from asterism.store.events import Figures
    from asterism.telemetry import Telemetry
    from asterism.telemetry.metrics import Counter, Counts, Histogram, LabeledHistogram

_PREFIX = "asterism_"
_MAX_WAIT = 5.0
"""How many seconds the store has to answer; without it, the counts of this process are enough."""


async def read_metrics(
    database: Database,
    telemetry: Telemetry,
    breakers: Mapping[str, bool],
    *,
    now: int,
    accept: str,
) -> tuple[bytes, str]:
    """Return the metrics in a format that Prometheus reads, and the type of that format."""
    try:
        async with asyncio.timeout(_MAX_WAIT):
            figures = await database.read(events.read)
    except (AsterismError, TimeoutError):
        figures = None
    return render_metrics(
        telemetry.counts,
        figures,
        version=version("asterism"),
        now=now,
        breakers=breakers,
        accept=accept,
    )


def render_metrics(
    counts: Counts,
    figures: Figures | None,
    *,
    version: str,
    now: int,
    breakers: Mapping[str, bool] | None = None,
    accept: str = "",
) -> tuple[bytes, str]:
    """Return the metrics in the format that `accept` asks for, and the type of that format.

    Args:
        counts: What this process has done.
        figures: What is at rest, or None if the store does not answer.
        version: That of asterism.
        now: Milliseconds since 1970.
        breakers: Whether a vendor is left alone since it has failed too often, by vendor.
        accept: The header of the request.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_CountCollector(counts))
    registry.register(_StateCollector(figures, version, now, breakers or {}))
    registry.register(_ProcessCollector())
    encode, kind = choose_encoder(accept)
    return encode(registry), kind


class _CountCollector(Collector):
    """What this process has done since it started."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        """Yield a family for each count."""
        counts = self._counts
        yield _counter("turns", "Turns, by how they ended.", ("state",), counts.turns)
        yield _gauge("turns_open", "Turns under way.", counts.turns_open)
        yield _histogram("turn_seconds", "Time that turns took.", counts.turn_seconds)
        yield _histogram(
            "queue_seconds", "Time that messages waited for their turn.", counts.queue_seconds
        )
        yield from self._models()
        yield _counter("tool_calls", "Tool calls.", ("tool", "outcome"), counts.tool_calls)
        yield _counter(
            "outside_calls",
            "Tool calls with an effect outside: allowed without asking, asked of a person, denied.",
            ("verdict",),
            counts.outside_calls,
        )
        yield _labeled_histogram(
            "tool_seconds", "Time that tools took.", ("tool",), counts.tool_seconds
        )
        yield _counter(
            "deliveries", "Tries to deliver a message.", ("channel", "outcome"), counts.deliveries
        )
        yield _counter(
            "telemetry_batches",
            "Batches for the OpenTelemetry collector.",
            ("signal", "outcome"),
            counts.exports,
        )
        yield _counter(
            "http_requests",
            "HTTP requests, by route and status; `none` was cut off.",
            ("method", "route", "status"),
            counts.http_requests,
        )
        yield _labeled_histogram(
            "http_request_seconds",
            "Time until HTTP requests were answered, streams to their end.",
            ("method", "route"),
            counts.http_seconds,
        )

    def _models(self) -> Iterator[Metric]:
        counts = self._counts
        model = ("vendor", "model")
        yield _counter(
            "model_calls",
            "Models that were asked, by what came of it; tries after the first are not counted.",
            (*model, "outcome"),
            counts.model_calls,
        )
        yield _labeled_histogram(
            "model_seconds",
            "Time until a model had answered or was given up.",
            model,
            counts.model_seconds,
        )
        yield _labeled_histogram(
            "model_queue_seconds",
            "Time that requests waited because of a vendor's rate limits.",
            ("vendor",),
            counts.pace_seconds,
        )
        yield _counter(
            "tokens",
            "Tokens, by kind; cached and written ones are input too.",
            (*model, "kind"),
            counts.tokens,
        )
        yield _counter(
            "model_retries",
            "Times that a model was asked again, by why.",
            (*model, "reason"),
            counts.retries,
        )
        yield _counter(
            "model_failovers",
            "Times that the next model of a chain was asked, by why.",
            ("model", "next", "reason"),
            counts.failovers,
        )


class _StateCollector(Collector):
    """How things stand now."""

    def __init__(
        self,
        figures: Figures | None,
        version: str,
        now: int,
        breakers: Mapping[str, bool],
    ) -> None:
        self._figures = figures
        self._version = version
        self._now = now
        self._breakers = breakers

    def collect(self) -> Iterator[Metric]:
        """Yield a family for each figure."""
        info = GaugeMetricFamily(f"{_PREFIX}info", "The release.", labels=["version"])
        info.add_metric([self._version], 1)
        yield info
        figures = self._figures
        yield _gauge("store_up", "Whether the store answers.", int(figures is not None))
        if figures is not None:
            yield _gauge("agents", "Agents.", figures.agents)
            yield _gauge("inbox_waiting", "Messages that wait for their turn.", figures.inbox)
            age = 0 if figures.oldest is None else max(0, self._now - figures.oldest) / 1000
            yield _gauge("inbox_oldest_seconds", "How long the oldest of them has waited.", age)
            yield _gauge(
                "approvals_waiting", "Questions that a person must answer.", figures.approvals
            )
            yield _gauge("notices_unseen", "Notices that the owner has not seen.", figures.notices)
            yield _gauge("schedules", "Schedules.", figures.schedules)
            unsent = GaugeMetricFamily(
                f"{_PREFIX}outbox", "Messages not delivered yet, or given up.", labels=["state"]
            )
            for state in ("waiting", "dead"):
                unsent.add_metric([state], figures.deliveries.get(state, 0))
            yield unsent
        breakers = GaugeMetricFamily(
            f"{_PREFIX}model_breaker_open",
            "Whether a vendor is left alone since it has failed too often.",
            labels=["vendor"],
        )
        for vendor, is_open in sorted(self._breakers.items()):
            breakers.add_metric([vendor], int(is_open))
        yield breakers
        if figures is not None:
            money = GaugeMetricFamily(
                f"{_PREFIX}money_dollars",
                "Money for models in all: spent, presumed (perhaps billed) and reserved.",
                labels=["state"],
            )
            for state, amount in figures.money.items():
                money.add_metric([state], amount / NANO)
            yield money


class _ProcessCollector(Collector):
    """Memory and processor time of this process."""

    def collect(self) -> Iterator[Metric]:
        """Yield what `/proc` tells, or the little that is known without it."""
        if Path("/proc/self/stat").exists():
            yield from ProcessCollector(registry=None).collect()
            return
        import resource

        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        yield CounterMetricFamily(
            "process_cpu_seconds", "Processor time.", value=time.process_time()
        )
        yield GaugeMetricFamily(
            "process_max_resident_memory_bytes",
            "The most memory that was in use.",
            # In bytes on macOS, in kilobytes elsewhere.
            value=largest if sys.platform == "darwin" else largest * 1024,
        )


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(_PREFIX + name, about, value=value)


def _counter(name: str, about: str, labels: tuple[str, ...], tally: Counter) -> Metric:
    family = CounterMetricFamily(_PREFIX + name, about, labels=labels)
    for values, amount in tally.items():
        family.add_metric(values, amount)
    return family


def _histogram(name: str, about: str, histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(_PREFIX + name, about)
    family.add_metric([], list(histogram.buckets()), histogram.total)
    return family


def _labeled_histogram(
    name: str, about: str, labels: tuple[str, ...], histograms: LabeledHistogram
) -> Metric:
    family = HistogramMetricFamily(_PREFIX + name, about, labels=labels)
    for values, histogram in histograms.items():
        family.add_metric(values, list(histogram.buckets()), histogram.total)
    return family
