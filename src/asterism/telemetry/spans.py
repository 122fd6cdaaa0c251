"""Spans and metrics for an OpenTelemetry collector, in the words of the GenAI conventions.

Names are those of https://github.com/open-telemetry/semantic-conventions-genai as of November 2026.
A turn is an `invoke_agent` span, under it are a `chat` span for each model that was asked and an
`execute_tool` span for each call; what is asterism's own is named `asterism.*`. The id of a turn's
trace follows from the turn's id, so that a turn that was parked or interrupted, and its deliveries,
are in one trace, whichever process they happen in.

This module needs the libraries of the extra `telemetry`: import it only when an endpoint is set.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson
import requests
from opentelemetry import context as contexts
from opentelemetry.context import Context
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
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from asterism.telemetry.metrics import CALL_SECONDS, error_class
from asterism.telemetry.redaction import redact
from asterism.types.agents import DEFAULT_MODEL
from asterism.types.turns import TurnState

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.sdk.trace.id_generator import IdGenerator

    from asterism.config import TelemetrySettings
    from asterism.ports import Emit, ModelRequest
    from asterism.telemetry.metrics import Counter, Counts
    from asterism.types.agents import AgentRecord
    from asterism.types.turns import Call, Delivery, Outcome, Reply, Usage

Attributes = dict[str, Any]

_SERVER_ERROR = 500
_TOKENS = tuple(4.0**power for power in range(14))
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "xai": "x_ai",
}
"""Vendors that the conventions have another name for."""


class _Ids(RandomIdGenerator):
    """Random ids, but for the one span that is told which to take."""

    def __init__(self) -> None:
        self.next: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        """Return an id for a trace."""
        return self.next[0] if self.next else super().generate_trace_id()

    def generate_span_id(self) -> int:
        """Return an id for a span."""
        return self.next[1] if self.next else super().generate_span_id()


def ids_of_turn(turn_id: str) -> tuple[int, int]:
    """Return the ids of a turn's trace and of its first span."""
    digest = hashlib.sha256(turn_id.encode()).digest()
    return int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])


class Spans:
    """Makes spans and hands them to the export; nothing here waits for the network."""

    def __init__(
        self, settings: TelemetrySettings, *, constellation: str, version: str, counts: Counts
    ) -> None:
        """Begin to export to `settings.endpoint`."""
        self._ids = _Ids()
        self._export = Export(
            settings,
            self._ids,
            {
                "service.name": os.environ.get("OTEL_SERVICE_NAME") or "asterism",
                "service.version": version,
                "asterism.constellation": constellation,
            },
            counts.exports,
        )
        self.content = settings.content
        self._tracer = self._export.traces.get_tracer("asterism", version)
        meter = self._export.metrics.get_meter("asterism", version)
        self.tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self.seconds = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "GenAI operation duration.",
            explicit_bucket_boundaries_advisory=CALL_SECONDS,
        )

    def turn(
        self, agent: AgentRecord, turn_id: str, resumed: bool, waited: float | None
    ) -> OpenSpan:
        """Open the span of a turn, which is the current one until it ends."""
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "asterism",
            **_of_agent(agent),
            "asterism.turn.id": turn_id,
            "asterism.turn.resumed": resumed,
        }
        if agent.model != DEFAULT_MODEL:
            attributes["gen_ai.request.model"] = agent.model
        if waited is not None:
            attributes["asterism.turn.waited"] = waited
        name = f"invoke_agent {agent.name}"
        if resumed:
            return self._open(name, attributes, around=_remote(turn_id))
        self._ids.next = ids_of_turn(turn_id)
        try:
            return self._open(name, attributes, around=Context())
        finally:
            self._ids.next = None

    def model(self, vendor: str, model: str, agent: AgentRecord | None, streamed: bool) -> OpenSpan:
        """Open the span of a model that is asked."""
        attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS.get(vendor, vendor),
            "gen_ai.request.model": model,
            **_of_agent(agent),
        }
        if streamed:
            attributes["gen_ai.request.stream"] = True
        return self._open(f"chat {model}", attributes, SpanKind.CLIENT)

    def tool(self, call: Call, agent: AgentRecord | None) -> OpenSpan:
        """Open the span of a tool's call."""
        attributes: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
            **_of_agent(agent),
        }
        if self.content:
            attributes["gen_ai.tool.call.arguments"] = call.arguments
        return self._open(f"execute_tool {call.name}", attributes)

    def delivery(self, delivery: Delivery) -> OpenSpan:
        """Open the span of a try to deliver what a turn has said."""
        attributes: Attributes = {
            "asterism.delivery.key": delivery.key,
            "asterism.delivery.attempt": delivery.attempts,
            "asterism.channel": delivery.channel,
            "asterism.turn.id": delivery.turn_id,
            "gen_ai.agent.id": delivery.agent_id,
        }
        name = f"deliver {delivery.channel}"
        return self._open(name, attributes, SpanKind.PRODUCER, around=_remote(delivery.turn_id))

    def request(self, method: str, request_id: str, parent: str) -> OpenSpan:
        """Open the span of an HTTP request, in the trace that its header traceparent names."""
        attributes: Attributes = {
            "http.request.method": method,
            "asterism.request.id": request_id,
        }
        around = TraceContextTextMapPropagator().extract({"traceparent": parent}, Context())
        return self._open(method, attributes, SpanKind.SERVER, around=around)

    def _open(
        self,
        name: str,
        attributes: Attributes,
        kind: SpanKind = SpanKind.INTERNAL,
        around: Context | None = None,
    ) -> OpenSpan:
        span = self._tracer.start_span(name, around, kind, attributes)
        return OpenSpan(self, span, attributes)

    async def close(self) -> None:
        """Send what is left; give up soon where nobody takes it."""
        await self._export.close()


class OpenSpan:
    """A span under way: the current one, until it ends, for whatever is called meanwhile."""

    __slots__ = ("_attributes", "_began", "_first", "_span", "_spans", "_token")

    def __init__(self, spans: Spans, span: Span, attributes: Attributes) -> None:
        self._spans = spans
        self._span = span
        self._attributes = attributes
        self._began = monotonic()
        self._first: float | None = None
        self._token: Token[Context] = contexts.attach(set_span_in_context(span))

    def set(self, name: str, value: str | float) -> None:
        """Add an attribute."""
        self._span.set_attribute(name, value)

    def event(self, name: str, attributes: Attributes) -> None:
        """Note that something happened meanwhile."""
        self._span.add_event(name, attributes)

    def request(self, request: ModelRequest) -> None:
        """Add what a model is sent: how it is asked and, if that is wanted, the content."""
        if request.max_output is not None:
            self.set("gen_ai.request.max_tokens", request.max_output)
        if request.schema is not None:
            self.set("gen_ai.output.type", "json")
        if not self._spans.content or not self._span.is_recording():
            return
        messages, left_out = input_messages(request.messages)
        self.set("gen_ai.input.messages", messages)
        if left_out:
            self.set("asterism.input.left_out", left_out)
        if request.tools and request.tools != b"[]":
            self.set("gen_ai.tool.definitions", request.tools.decode())

    def noting_first(self, emit: Emit) -> Emit:
        """Return an `emit` that notes when the first piece comes."""

        def noting(kind: str, piece: str) -> None:
            if self._first is None:
                self._first = monotonic() - self._began
            emit(kind, piece)

        return noting

    def end(self, error_type: str) -> None:
        """End it, well or with a kind of error."""
        if error_type:
            # No words beside it: those of an error may quote what was said.
            self._span.set_attribute("error.type", error_type)
            self._span.set_status(StatusCode.ERROR)
        contexts.detach(self._token)
        self._span.end()

    def end_request(self, method: str, route: str, status: int, error_type: str) -> None:
        """End the span of an HTTP request, which is named after its route."""
        self._span.update_name(f"{method} {route}")
        self.set("http.route", route)
        if status:
            self.set("http.response.status_code", status)
        self.end(error_type or (str(status) if status >= _SERVER_ERROR else ""))

    def end_turn(self, outcome: Outcome | None, error: BaseException | None) -> None:
        """End the span of a turn."""
        if outcome is None:
            self.end(error_class(error) if error is not None else "interrupted")
            return
        self._span.set_attribute("asterism.turn.state", outcome.state.value)
        self._usage(outcome.usage)
        if self._spans.content:
            self.set("gen_ai.output.messages", text_message("assistant", outcome.text))
        self.end("failed" if outcome.state is TurnState.FAILED else "")

    def end_model(self, reply: Reply | None, error: BaseException | None, seconds: float) -> None:
        """End the span of a model, and count its tokens and its time."""
        spans, about = self._spans, self._attributes
        labels: Attributes = {
            name: about[name]
            for name in ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")
        }
        kind = "" if error is None else error_class(error)
        if reply is not None:
            model = reply.model.partition(":")[2] or about["gen_ai.request.model"]
            labels["gen_ai.response.model"] = model
            self.set("gen_ai.response.model", model)
            self._span.set_attribute("gen_ai.response.finish_reasons", (reply.finish,))
            self._usage(reply.usage)
            if self._first is not None:
                self.set("gen_ai.response.time_to_first_chunk", self._first)
            if spans.content:
                self.set("gen_ai.output.messages", output_messages(reply))
            spans.tokens.record(reply.usage.input, {**labels, "gen_ai.token.type": "input"})
            spans.tokens.record(reply.usage.output, {**labels, "gen_ai.token.type": "output"})
        spans.seconds.record(seconds, {**labels, "error.type": kind} if kind else labels)
        self.end(kind)

    def end_tool(self, result: str | None, error_type: str) -> None:
        """End the span of a tool's call."""
        if self._spans.content and result is not None:
            self.set("gen_ai.tool.call.result", result)
        self.end(error_type)

    def _usage(self, usage: Usage) -> None:
        self.set("gen_ai.usage.input_tokens", usage.input)
        self.set("gen_ai.usage.output_tokens", usage.output)
        if usage.cached:
            self.set("gen_ai.usage.cache_read.input_tokens", usage.cached)
        if usage.written:
            self.set("gen_ai.usage.cache_creation.input_tokens", usage.written)


def _of_agent(agent: AgentRecord | None) -> Attributes:
    if agent is None:
        return {}
    return {
        "gen_ai.agent.id": agent.id,
        "gen_ai.agent.name": agent.name,
        "gen_ai.agent.version": str(agent.version),
        # An agent has one conversation, as long as it lives.
        "gen_ai.conversation.id": agent.id,
    }


def _remote(turn_id: str) -> Context:
    """Return the context of a turn's first span, which another process may have made."""
    trace, span = ids_of_turn(turn_id)
    flags = TraceFlags(TraceFlags.SAMPLED)
    first = NonRecordingSpan(SpanContext(trace, span, is_remote=True, trace_flags=flags))
    return set_span_in_context(first, Context())


_MAX_MESSAGE_BYTES = 256 * 1024
"""Bytes of messages in one span: what is older is left out, since collectors refuse large spans."""


def input_messages(wires: Sequence[bytes]) -> tuple[str, int]:
    """Return the latest messages that fit as JSON, and how many older ones were left out."""
    room = _MAX_MESSAGE_BYTES
    chosen: list[bytes] = []
    for wire in reversed(wires):
        message = orjson.dumps(_message(orjson.loads(wire)))
        room -= len(message)
        if room < 0:
            break
        chosen.append(message)
    messages = f"[{b','.join(reversed(chosen)).decode()}]"
    return redact(messages), len(wires) - len(chosen)


def output_messages(reply: Reply) -> str:
    """Return a reply as JSON."""
    parts: list[dict[str, Any]] = []
    if reply.reasoning:
        parts.append({"type": "reasoning", "content": reply.reasoning})
    if reply.text:
        parts.append({"type": "text", "content": reply.text})
    parts += [_call(call.id, call.name, call.arguments) for call in reply.calls]
    message = {"role": "assistant", "parts": parts, "finish_reason": reply.finish}
    return redact(orjson.dumps([message]).decode())


def text_message(role: str, text: str) -> str:
    """Return one message of plain text as JSON."""
    messages = [{"role": role, "parts": [{"type": "text", "content": text}]}]
    return redact(orjson.dumps(messages).decode())


def _message(wire: dict[str, Any]) -> dict[str, Any]:
    role: str = wire.get("role", "")
    content: Any = wire.get("content")
    if role == "tool":
        answer = {
            "type": "tool_call_response",
            "id": wire.get("tool_call_id"),
            "response": content,
        }
        return {"role": role, "parts": [answer]}
    parts: list[dict[str, Any]] = []
    if isinstance(content, str) and content:
        parts.append({"type": "text", "content": content})
    elif isinstance(content, list):
        parts += map(_part, content)  # pyright: ignore[reportUnknownArgumentType] - it is JSON
    for call in wire.get("tool_calls") or ():
        parts.append(_call(call["id"], call["function"]["name"], call["function"]["arguments"]))
    return {"role": role, "parts": parts}


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") == "text":
        return {"type": "text", "content": part.get("text", "")}
    image: dict[str, Any] = part.get("image_url") or {}
    address = str(image.get("url", ""))
    if address.startswith("data:"):
        kind = address[5:].partition(";")[0]
        return {"type": "blob", "modality": "image", "mime_type": kind, "content": ""}
    return {"type": "uri", "modality": "image", "uri": address}


def _call(id: str, name: str, arguments: str) -> dict[str, Any]:
    try:
        read: Any = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        read = arguments
    return {"type": "tool_call", "id": id, "name": name, "arguments": read}


_log = logging.getLogger(__name__)
_TIMEOUT = 5.0
"""Seconds for one batch, tries after the first included."""
_CLOSE_TIMEOUT = 2.0
_SPAN_INTERVAL_MS, _METRIC_INTERVAL_MS = 2_000, 15_000


class _ExportLog:
    """Notes how sending goes, and says it once when that changes."""

    def __init__(self, endpoint: str, exports: Counter) -> None:
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
    def __init__(self, notes: _ExportLog, **options: Any) -> None:
        super().__init__(**options)
        self._notes = notes

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        self._notes.sent("spans", result is SpanExportResult.SUCCESS)
        return result


class _MetricExporter(OTLPMetricExporter):
    def __init__(self, notes: _ExportLog, **options: Any) -> None:
        super().__init__(**options)
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
        exports: Counter,
    ) -> None:
        assert settings.endpoint is not None
        for name in ("opentelemetry.exporter", "opentelemetry.sdk"):
            logger = logging.getLogger(name)
            if logger.level == logging.NOTSET:  # each lost batch would be a line, or several
                logger.setLevel(logging.CRITICAL)
        notes = _ExportLog(_without_password(settings.endpoint), exports)
        address = settings.endpoint.rstrip("/")
        options: dict[str, Any] = {
            "headers": {name: value.get_secret_value() for name, value in settings.headers.items()},
            "timeout": _TIMEOUT,
        }
        self._spans = _SpanExporter(
            notes, endpoint=f"{address}/v1/traces", session=_session(address), **options
        )
        self._metrics = _MetricExporter(
            notes, endpoint=f"{address}/v1/metrics", session=_session(address), **options
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
                schedule_delay_millis=_SPAN_INTERVAL_MS,
                max_export_batch_size=512,
                export_timeout_millis=_TIMEOUT * 1000,
            )
        )
        reader = PeriodicExportingMetricReader(
            self._metrics, _METRIC_INTERVAL_MS, export_timeout_millis=_TIMEOUT * 1000
        )
        self.metrics = MeterProvider([reader], about, shutdown_on_exit=False)

    async def close(self) -> None:
        """Send what is left within a bound, whether or not somebody takes it."""
        done = [_in_thread(self.traces.shutdown), _in_thread(self.metrics.shutdown)]
        _, late = await asyncio.wait(done, timeout=_CLOSE_TIMEOUT)
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
