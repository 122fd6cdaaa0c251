"""What a process has done so far, as plain numbers, and the watches that count it.

Each watch is a context manager around a turn, a model call, a tool call or a delivery: it counts at
its end and, where spans are configured, makes one. Which turn the code around belongs to is kept in
a context variable, so that a model's port, a tool or a log line need not be told.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterator
from contextvars import ContextVar, Token
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, Self

from asterism.errors import AsterismError

if TYPE_CHECKING:
    from types import TracebackType

    from asterism.ports import Emit, ModelRequest
    from asterism.types.agents import AgentRecord
    from asterism.types.turns import Call, Delivery, Outcome, Reply

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

REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The bounds that OpenTelemetry asks for, in `http.server.request.duration`."""


class Counts:
    """Everything that is counted; each is a metric, which `prometheus.py` renders."""

    __slots__ = (
        "deliveries",
        "exports",
        "failovers",
        "http_requests",
        "http_seconds",
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
        self.http_requests = Counter(3, max_series=1_024)
        self.http_seconds = LabeledHistogram(2, REQUEST_SECONDS, max_series=256)


def error_class(error: BaseException) -> str:
    """Return what kind of error it is: `busy`, `key`, `timeout`, or the name of its class."""
    if isinstance(error, AsterismError):
        return error.code.removeprefix("model.")
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return "timeout" if isinstance(error, TimeoutError) else type(error).__name__


class TracedSpan(Protocol):
    """A span under way, as an exporter makes it."""

    def event(self, name: str, attributes: dict[str, Any]) -> None:
        """Note something that happens meanwhile."""

    def request(self, request: ModelRequest) -> None:
        """Note what a model is asked."""

    def noting_first(self, emit: Emit) -> Emit:
        """Return what passes pieces of a reply on, and notes when the first came."""
        ...

    def end(self, error_type: str) -> None:
        """End it, well or with a kind of error."""

    def end_request(self, method: str, route: str, status: int, error_type: str) -> None:
        """End the span of an HTTP request."""

    def end_turn(self, outcome: Outcome | None, error: BaseException | None) -> None:
        """End the span of a turn."""

    def end_model(self, reply: Reply | None, error: BaseException | None, seconds: float) -> None:
        """End the span of a model."""

    def end_tool(self, result: str | None, error_type: str) -> None:
        """End the span of a tool's call."""


class Tracer(Protocol):
    """What sends spans to a collector; `telemetry/spans.py` has the one for OpenTelemetry."""

    def turn(
        self, agent: AgentRecord, turn_id: str, resumed: bool, waited: float | None
    ) -> TracedSpan:
        """Open the span of a turn."""
        ...

    def model(
        self, vendor: str, model: str, agent: AgentRecord | None, streamed: bool
    ) -> TracedSpan:
        """Open the span of a model that is asked."""
        ...

    def tool(self, call: Call, agent: AgentRecord | None) -> TracedSpan:
        """Open the span of a tool's call."""
        ...

    def delivery(self, delivery: Delivery) -> TracedSpan:
        """Open the span of a try to deliver something."""
        ...

    def request(self, method: str, request_id: str, parent: str) -> TracedSpan:
        """Open the span of an HTTP request; `parent` is its header traceparent."""
        ...

    async def close(self) -> None:
        """Send what is left."""


class Telemetry:
    """Where what happens in one home is noted."""

    __slots__ = ("counts", "spans")

    def __init__(self) -> None:
        """Count; once `spans` is set, tell an OpenTelemetry collector too."""
        self.counts = Counts()
        self.spans: Tracer | None = None

    def turn(
        self, agent: AgentRecord, turn_id: str, *, resumed: bool, waited: float | None
    ) -> TurnWatch:
        """Watch a turn; `waited` is how many seconds its message lay in the inbox."""
        return TurnWatch(self, agent, turn_id, resumed, waited)

    def delivery(self, delivery: Delivery) -> DeliveryWatch:
        """Watch one try to deliver something."""
        return DeliveryWatch(self, delivery)

    async def close(self) -> None:
        """Send what is left, within a bound."""
        if self.spans is not None:
            await self.spans.close()


class TurnWatch:
    """A turn under way: what is around this code, and what became of it."""

    __slots__ = (
        "_began",
        "_resumed",
        "_span",
        "_token",
        "_waited",
        "agent",
        "outcome",
        "telemetry",
        "turn_id",
    )

    def __init__(
        self,
        telemetry: Telemetry,
        agent: AgentRecord,
        turn_id: str,
        resumed: bool,
        waited: float | None,
    ) -> None:
        self.telemetry = telemetry
        self.agent = agent
        self.turn_id = turn_id
        self.outcome: Outcome | None = None
        """How it ended; None leaves it to be taken up again."""
        self._resumed = resumed
        self._waited = waited
        self._span: TracedSpan | None = None

    def __enter__(self) -> Self:
        telemetry = self.telemetry
        counts = telemetry.counts
        counts.turns_open += 1
        if self._waited is not None:
            counts.queue_seconds.add(self._waited)
        if telemetry.spans is not None:
            self._span = telemetry.spans.turn(self.agent, self.turn_id, self._resumed, self._waited)
        self._token: Token[TurnWatch | None] = _current.set(self)
        self._began = monotonic()
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        counts, outcome = self.telemetry.counts, self.outcome
        counts.turns_open -= 1
        counts.turn_seconds.add(monotonic() - self._began)
        counts.turns.add((outcome.state.value if outcome is not None else "interrupted",))
        _current.reset(self._token)
        if self._span is not None:
            self._span.end_turn(outcome, error)

    def record_failover(self, model: str, error: BaseException, following: str) -> None:
        """Note that one model is given up and the next one is asked."""
        kind = error_class(error)
        self.telemetry.counts.failovers.add((model, following, kind))
        if self._span is not None:
            self._span.event(
                "asterism.failover",
                {"asterism.from": model, "asterism.to": following, "error.type": kind},
            )


_current: ContextVar[TurnWatch | None] = ContextVar("asterism_turn", default=None)
_OUTSIDE_TURNS = Telemetry()
"""For what happens outside of turns, such as the doctor's questions: counted, and never shown."""


def current_turn() -> TurnWatch | None:
    """Return the turn that the code around belongs to."""
    return _current.get()


class turn_context:  # noqa: N801 - read as a word: `with turn_context(turn):`
    """Makes the code inside belong to a turn: for threads, which do not inherit the variable."""

    __slots__ = ("_token", "_watch")

    def __init__(self, watch: TurnWatch | None) -> None:
        self._watch = watch

    def __enter__(self) -> None:
        self._token = _current.set(self._watch)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


def record_failover(model: str, error: BaseException, following: str) -> None:
    """Note that one model of a chain is given up and the next one is asked."""
    watch = _current.get()
    if watch is not None:
        watch.record_failover(model, error, following)


class ModelWatch:
    """One model of a chain being asked, tries after the first included."""

    __slots__ = ("_began", "_model", "_span", "_telemetry", "_vendor", "reply")

    def __init__(self, model: str, *, streamed: bool = False) -> None:
        """Watch `vendor:name` being asked."""
        self._vendor, _, self._model = model.partition(":")
        self.reply: Reply | None = None
        turn = _current.get()
        self._telemetry = telemetry = turn.telemetry if turn is not None else _OUTSIDE_TURNS
        self._span: TracedSpan | None = None
        if telemetry.spans is not None:
            agent = turn.agent if turn is not None else None
            self._span = telemetry.spans.model(self._vendor, self._model, agent, streamed)

    def __enter__(self) -> Self:
        self._began = monotonic()
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        vendor, model, counts, reply = self._vendor, self._model, self._telemetry.counts, self.reply
        seconds = monotonic() - self._began
        outcome = "ok" if error is None else error_class(error)
        counts.model_calls.add((vendor, model, outcome))
        counts.model_seconds.add((vendor, model), seconds)
        if reply is not None:
            usage, add = reply.usage, counts.tokens.add
            add((vendor, model, "input"), usage.input)
            add((vendor, model, "output"), usage.output)
            if usage.cached:
                add((vendor, model, "cached"), usage.cached)
            if usage.written:
                add((vendor, model, "written"), usage.written)
        if self._span is not None:
            self._span.end_model(reply, error, seconds)

    def sends(self, request: ModelRequest) -> None:
        """Note what is sent, where that is wanted."""
        if self._span is not None:
            self._span.request(request)

    def queued(self, seconds: float) -> None:
        """Note how long it had to wait for its vendor's pace."""
        self._telemetry.counts.pace_seconds.add((self._vendor,), seconds)
        if self._span is not None and seconds >= 0.001:
            self._span.event("asterism.queued", {"asterism.seconds": seconds})

    def retry(self, error: BaseException) -> None:
        """Note that the same model is asked again."""
        kind = error_class(error)
        self._telemetry.counts.retries.add((self._vendor, self._model, kind))
        if self._span is not None:
            self._span.event("asterism.retry", {"error.type": kind})

    def listen(self, emit: Emit) -> Emit:
        """Return what pieces are handed to, so that the time of the first one is known."""
        return emit if self._span is None else self._span.noting_first(emit)


class ToolWatch:
    """One call of a tool."""

    __slots__ = ("_began", "_name", "_outcome", "_span", "_telemetry", "result")

    def __init__(self, call: Call) -> None:
        """Watch a call of a tool that exists."""
        self._name = call.name
        self._outcome = ""
        self.result: str | None = None
        turn = _current.get()
        self._telemetry = telemetry = turn.telemetry if turn is not None else _OUTSIDE_TURNS
        self._span: TracedSpan | None = None
        if telemetry.spans is not None:
            self._span = telemetry.spans.tool(call, turn.agent if turn is not None else None)

    def __enter__(self) -> Self:
        self._began = monotonic()
        return self

    def begin_again(self) -> None:
        """Forget what came of it: the transaction that it runs in is tried anew."""
        self._outcome, self.result = "", None

    def failed(self, error: BaseException) -> None:
        """Note an error that the model is told."""
        self._outcome = error_class(error)

    def asked(self) -> None:
        """Note that a person has to be asked first."""
        self._outcome = "asked"

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        counts = self._telemetry.counts
        kind = self._outcome if error is None else error_class(error)
        outcome = _TOOL_OUTCOMES.get(kind, "error")
        counts.tool_calls.add((self._name, outcome))
        counts.tool_seconds.add((self._name,), monotonic() - self._began)
        if self._span is not None:
            self._span.end_tool(self.result, "" if outcome in ("ok", "asked") else kind)


_TOOL_OUTCOMES = {"": "ok"} | {name: name for name in ("asked", "cancelled", "timeout")}


class DeliveryWatch:
    """One try to hand a message to its channel."""

    __slots__ = ("_channel", "_span", "_telemetry", "outcome")

    def __init__(self, telemetry: Telemetry, delivery: Delivery) -> None:
        self._telemetry = telemetry
        self._channel = delivery.channel
        self.outcome = "sent"
        """`sent`, `failed` (it is tried again) or `dead` (it is given up).

        Where what became of it could not be recorded, it is `interrupted` and tried again.
        """
        self._span: TracedSpan | None = None
        if telemetry.spans is not None:
            self._span = telemetry.spans.delivery(delivery)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        outcome = self.outcome if error is None else "interrupted"
        self._telemetry.counts.deliveries.add((self._channel, outcome))
        if self._span is not None:
            self._span.end("" if outcome == "sent" else outcome)


_request: ContextVar[str] = ContextVar("asterism_request", default="")


def current_request() -> str:
    """Return the id of the HTTP request that the code around answers, or an empty text."""
    return _request.get()


class RequestWatch:
    """One HTTP request, until it is answered."""

    __slots__ = ("_began", "_method", "_route", "_span", "_status", "_telemetry", "_token")

    def __init__(self, telemetry: Telemetry, method: str, request_id: str, parent: str) -> None:
        self._telemetry = telemetry
        self._method = method
        self._route, self._status = OTHER, 0
        self._began = monotonic()
        self._token = _request.set(request_id)
        self._span: TracedSpan | None = None
        if telemetry.spans is not None:
            self._span = telemetry.spans.request(method, request_id, parent)

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return monotonic() - self._began

    def answered(self, route: str, status: int) -> None:
        """Note by which route, as it is declared, and with which status; 0 if it was cut off."""
        self._route, self._status = route, status

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        counts = self._telemetry.counts
        status = str(self._status) if self._status else "none"
        counts.http_requests.add((self._method, self._route, status))
        counts.http_seconds.add((self._method, self._route), self.seconds)
        if self._span is not None:
            kind = error_class(error) if error is not None else ""
            self._span.end_request(self._method, self._route, self._status, kind)
        _request.reset(self._token)
