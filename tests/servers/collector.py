"""An OpenTelemetry collector on loopback that keeps what it is sent, or misbehaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(slots=True)
class Seen:
    """A span as it came in."""

    name: str
    kind: int
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    failed: bool
    resource: dict[str, Any] = field(default_factory=dict[str, Any])


class Collector:
    """Takes OTLP over HTTP in threads of its own; with `hang`, it takes all and answers nothing."""

    def __init__(self, *, status: int = 200, hang: bool = False) -> None:
        self.raw: list[tuple[str, dict[str, str], bytes]] = []
        """The path, the headers and the body of each request."""
        self._arrived = threading.Condition()
        self._released = threading.Event()
        collector = self

        class Taker(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                with collector._arrived:
                    collector.raw.append((self.path, headers, body))
                    collector._arrived.notify_all()
                if hang:
                    collector._released.wait(60)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Taker)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def wait_for(self, requests: int, patience: float = 120.0) -> None:
        """Return when so many requests have come; raise `TimeoutError` if they do not in time."""
        deadline = time.monotonic() + patience
        with self._arrived:
            while len(self.raw) < requests:
                left = deadline - time.monotonic()
                if left <= 0 or not self._arrived.wait(left):
                    raise TimeoutError(f"{len(self.raw)} of {requests} requests came")

    def spans(self) -> list[Seen]:
        """Return all spans, in the order in which they ended."""
        found: list[Seen] = []
        for path, _, body in self.raw:
            if path == "/v1/traces":
                for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                    resource = _values(group.resource.attributes)
                    for scope in group.scope_spans:
                        found += [_seen(span, resource) for span in scope.spans]
        return found

    def points(self, metric: str) -> list[tuple[dict[str, Any], int, float]]:
        """Return the points of a histogram as last told: attributes, count and sum."""
        found: list[tuple[dict[str, Any], int, float]] = []
        for path, _, body in self.raw:
            if path == "/v1/metrics":
                told = list(_points(body, metric))
                found = told or found
        return found

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def _points(body: bytes, metric: str) -> Iterator[tuple[dict[str, Any], int, float]]:
    for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        for scope in group.scope_metrics:
            for one in scope.metrics:
                if one.name == metric:
                    for point in one.histogram.data_points:
                        yield _values(point.attributes), point.count, point.sum


def _seen(span: Any, resource: dict[str, Any]) -> Seen:
    return Seen(
        name=span.name,
        kind=span.kind,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        attributes=_values(span.attributes),
        events=[(event.name, _values(event.attributes)) for event in span.events],
        failed=span.status.code == 2,  # STATUS_CODE_ERROR
        resource=resource,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Any:
    kind: str = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)
