"""Spans and metrics for an OpenTelemetry collector, in the words of the GenAI conventions.

Names are those of https://github.com/open-telemetry/semantic-conventions-genai as of November 2026.
A turn is an `invoke_agent` span, under it are a `chat` span for each model that was asked and an
`execute_tool` span for each call; what is asterism's own is named `asterism.*`. The id of a turn's
trace follows from the turn's id, so that a turn that was parked or interrupted, and its deliveries,
are in one trace, whichever process they happen in.

This module needs the libraries of the extra `telemetry`: import it only when an endpoint is set.
"""

from __future__ import annotations

import hashlib
import os
from time import monotonic
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from asterism.telemetry.content import input_messages, output_messages, text_message
from asterism.telemetry.counts import CALL_SECONDS
from asterism.telemetry.export import Export
from asterism.telemetry.kinds import error_class
from asterism.types.agents import DEFAULT_MODEL
from asterism.types.turns import TurnState

if TYPE_CHECKING:
    from contextvars import Token

    from asterism.config import TelemetrySettings
    from asterism.ports import Emit, ModelRequest
    from asterism.telemetry.counts import Counts
    from asterism.types.agents import Agent
    from asterism.types.turns import Call, Delivery, Outcome, Reply, Usage

Attributes = dict[str, Any]

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

    def turn(self, agent: Agent, turn_id: str, resumed: bool, waited: float | None) -> OpenSpan:
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

    def model(self, vendor: str, model: str, agent: Agent | None, streamed: bool) -> OpenSpan:
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

    def tool(self, call: Call, agent: Agent | None) -> OpenSpan:
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
        told, left_out = input_messages(request.messages)
        self.set("gen_ai.input.messages", told)
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
        told: Attributes = {
            name: about[name]
            for name in ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")
        }
        kind = "" if error is None else error_class(error)
        if reply is not None:
            model = reply.model.partition(":")[2] or about["gen_ai.request.model"]
            told["gen_ai.response.model"] = model
            self.set("gen_ai.response.model", model)
            self._span.set_attribute("gen_ai.response.finish_reasons", (reply.finish,))
            self._usage(reply.usage)
            if self._first is not None:
                self.set("gen_ai.response.time_to_first_chunk", self._first)
            if spans.content:
                self.set("gen_ai.output.messages", output_messages(reply))
            spans.tokens.record(reply.usage.input, {**told, "gen_ai.token.type": "input"})
            spans.tokens.record(reply.usage.output, {**told, "gen_ai.token.type": "output"})
        spans.seconds.record(seconds, {**told, "error.type": kind} if kind else told)
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


def _of_agent(agent: Agent | None) -> Attributes:
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
