"""The way out: batches of spans and metrics, sent over OTLP from threads of their own.

This module needs the libraries of the extra `telemetry`: import it only when an endpoint is set.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    from asterism.config import TelemetrySettings
    from asterism.telemetry.counts import Tally

_log = logging.getLogger(__name__)
_PATIENCE = 5.0
"""Seconds for one batch, tries after the first included."""
_PATIENCE_AT_CLOSE = 2.0
_SPANS_EVERY, _METRICS_EVERY = 2_000, 15_000


class _Notes:
    """Notes how sending goes, and says it once when that changes."""

    def __init__(self, endpoint: str, exports: Tally) -> None:
        self._endpoint = endpoint
        self._exports = exports
        self._failing = False
        self._lock = threading.Lock()

    def sent(self, what: str, well: bool) -> None:
        """Note that a batch was sent, or lost; spans and metrics go out in threads of their own."""
        self._exports.add((what, "sent" if well else "lost"))
        with self._lock:
            failed_before, self._failing = self._failing, not well
        if well and failed_before:
            _log.warning("telemetry reaches %s again", self._endpoint)
        elif not well and not failed_before:
            _log.warning(
                "telemetry was not taken at %s: what cannot be sent is dropped, and turns go on. "
                "Start a collector there, or correct telemetry.endpoint.",
                self._endpoint,
            )


class _SpanExporter(OTLPSpanExporter):
    def __init__(self, notes: _Notes, **given: Any) -> None:
        super().__init__(**given)
        self._notes = notes

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        self._notes.sent("spans", result is SpanExportResult.SUCCESS)
        return result


class _MetricExporter(OTLPMetricExporter):
    def __init__(self, notes: _Notes, **given: Any) -> None:
        super().__init__(**given)
        self._notes = notes

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        result = super().export(metrics_data, timeout_millis, **kwargs)  # pyright: ignore[reportUnknownMemberType] - its kwargs are untyped
        self._notes.sent("metrics", result is MetricExportResult.SUCCESS)
        return result


class Export:
    """Sends to one collector; whoever makes spans never waits for it."""

    def __init__(
        self,
        settings: TelemetrySettings,
        ids: IdGenerator,
        resource: Mapping[str, str],
        exports: Tally,
    ) -> None:
        assert settings.endpoint is not None
        for name in ("opentelemetry.exporter", "opentelemetry.sdk"):
            logger = logging.getLogger(name)
            if logger.level == logging.NOTSET:  # each lost batch would be a line, or several
                logger.setLevel(logging.CRITICAL)
        notes = _Notes(_without_password(settings.endpoint), exports)
        address = settings.endpoint.rstrip("/")
        given: dict[str, Any] = {
            "headers": {name: one.get_secret_value() for name, one in settings.headers.items()},
            "timeout": _PATIENCE,
        }
        self._spans = _SpanExporter(
            notes, endpoint=f"{address}/v1/traces", session=_session(address), **given
        )
        self._metrics = _MetricExporter(
            notes, endpoint=f"{address}/v1/metrics", session=_session(address), **given
        )
        about = Resource.create(dict(resource))
        self.traces = TracerProvider(
            sampler=TraceIdRatioBased(settings.sample),
            resource=about,
            shutdown_on_exit=False,
            id_generator=ids,
        )
        self.traces.add_span_processor(
            BatchSpanProcessor(
                self._spans,
                max_queue_size=4_096,
                schedule_delay_millis=_SPANS_EVERY,
                max_export_batch_size=512,
                export_timeout_millis=_PATIENCE * 1000,
            )
        )
        reader = PeriodicExportingMetricReader(
            self._metrics, _METRICS_EVERY, export_timeout_millis=_PATIENCE * 1000
        )
        self.metrics = MeterProvider([reader], about, shutdown_on_exit=False)

    async def close(self) -> None:
        """Send what is left within a bound, whether or not somebody takes it."""
        done = [_in_thread(self.traces.shutdown), _in_thread(self.metrics.shutdown)]
        _, late = await asyncio.wait(done, timeout=_PATIENCE_AT_CLOSE)
        if late:
            # Ends pauses between tries; a request under way ends with its thread, a daemon.
            self._spans.shutdown()
            self._metrics.shutdown()  # pyright: ignore[reportUnknownMemberType] - its kwargs are untyped
            await asyncio.wait(late, timeout=0.2)


def _in_thread(work: Callable[[], object]) -> asyncio.Future[None]:
    """Run something in a thread that nobody has to wait for, not even at exit."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not done.done():
            done.set_result(None)

    def run() -> None:
        try:
            work()
        finally:
            if not loop.is_closed():
                loop.call_soon_threadsafe(tell)

    threading.Thread(target=run, name="asterism-telemetry", daemon=True).start()
    return done


def _session(address: str) -> requests.Session:
    session = requests.Session()
    # What is meant for this machine must not go through a proxy that the environment names.
    session.trust_env = not _is_loopback(urlsplit(address).hostname or "")
    return session


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _without_password(address: str) -> str:
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl()
