"""Watches: what is noted about a turn, a model call, a tool call and a delivery while it runs.

Each is a context manager that counts at its end and, where spans are configured, makes one. Which
turn the code around belongs to is kept in a context variable, so that a model's port, a tool or a
log line need not be told.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from time import monotonic
from typing import TYPE_CHECKING, Self

from asterism.telemetry.counts import Counts, error_class

if TYPE_CHECKING:
    from types import TracebackType

    from asterism.ports import Emit, ModelRequest
    from asterism.telemetry.spans import OpenSpan, Spans
    from asterism.types.agents import Agent
    from asterism.types.turns import Call, Delivery, Outcome, Reply


class Telemetry:
    """Where what happens in one home is noted."""

    __slots__ = ("counts", "spans")

    def __init__(self) -> None:
        """Count; once `spans` is set, tell an OpenTelemetry collector too."""
        self.counts = Counts()
        self.spans: Spans | None = None

    def turn(self, agent: Agent, turn_id: str, *, resumed: bool, waited: float | None) -> TurnWatch:
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
        agent: Agent,
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
        self._span: OpenSpan | None = None

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
        self._span: OpenSpan | None = None
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
        self._span: OpenSpan | None = None
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
        self._span: OpenSpan | None = None
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
