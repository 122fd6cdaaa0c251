"""Turns: one message answered, step by step, each step an entry in the journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson

from asterism.types.people import Trust, least_trusted
from asterism.types.wire import text_of


class TurnState(StrEnum):
    """Where a turn stands."""

    WAITING = "waiting"
    """Accepted, in the inbox."""
    OPEN = "open"
    """Under way, or interrupted and to be taken up again."""
    PARKED = "parked"
    """Waits for a person's decision."""
    DONE = "done"
    FAILED = "failed"
    """Ended with an explanation instead of an answer."""
    STOPPED = "stopped"
    """Ended because a person said so."""


class RetrySafety(StrEnum):
    """What a crash in the middle of a tool call means."""

    TRANSACTIONAL = "transactional"
    """RetrySafety and result commit together: it happened or it did not."""
    REPEATABLE = "repeatable"
    """Running it again with the same key is harmless."""
    CHECKABLE = "checkable"
    """It can be asked whether the effect with this key happened."""
    UNKNOWN = "unknown"
    """Nobody can tell: reported, never repeated."""


class EntryKind(StrEnum):
    """The kinds of journal entries. The first three are what the model sees."""

    MESSAGE = "message"
    REPLY = "reply"
    RESULT = "result"
    BEGUN = "begun"
    ONCE = "once"


WIRE_KINDS = frozenset({EntryKind.MESSAGE, EntryKind.REPLY, EntryKind.RESULT})


class ResultState(StrEnum):
    """What became of a tool call."""

    OK = "ok"
    FAILED = "failed"
    """It ran, and raised an error or was cut short."""
    UNKNOWN = "unknown"
    """It may or may not have happened."""
    WAITING = "waiting"
    """A person is asked."""
    DENIED = "denied"
    """A policy or a person does not allow it."""
    NOT_RUN = "not_run"
    """It could not be run: no such tool, other arguments, a rule, or the turn ended before it."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of a tool call."""

    state: ResultState
    text: str
    """What the model reads. It may come from anywhere, and says nothing about the state."""


@dataclass(frozen=True, slots=True)
class ResultMeta:
    """What the journal keeps beside the result of a tool call."""

    state: ResultState = ResultState.OK
    trust_levels: tuple[Trust, ...] = ()
    """How far the sources of its text are trusted; none: the system's own words."""
    audiences: tuple[str, ...] = ()
    """Who may see its text, all of these."""
    rule: str | None = None
    """The key of the rule that refused the call."""
    needs: str | None = None
    """The tool that has to be called first, if that is what the rule wants."""
    approval: str | None = None
    """The question that the call waits for, by its id and in words."""
    question: str | None = None

    def to_json(self) -> str | None:
        """Return it as it is stored; None for the result of a call that just succeeded."""
        kept: dict[str, Any] = {
            "state": None if self.state is ResultState.OK else self.state.value,
            "trust_levels": sorted({trust.value for trust in self.trust_levels}),
            "audiences": sorted(set(self.audiences)),
            "rule": self.rule,
            "needs": self.needs,
            "approval": self.approval,
            "question": self.question,
        }
        kept = {name: value for name, value in kept.items() if value}
        return orjson.dumps(kept).decode() if kept else None

    @staticmethod
    def from_json(meta: str | None) -> ResultMeta:
        """Read what is stored."""
        if not meta:
            return _JUST_OK
        kept: dict[str, Any] = orjson.loads(meta)
        return ResultMeta(
            ResultState(kept.get("state", ResultState.OK)),
            tuple(map(Trust, kept.get("trust_levels", ()))),
            tuple(kept.get("audiences", ())),
            kept.get("rule"),
            kept.get("needs"),
            kept.get("approval"),
            kept.get("question"),
        )


_JUST_OK = ResultMeta()


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of an agent's journal."""

    seq: int
    turn_id: str
    kind: EntryKind
    key: str
    body: bytes
    meta: str | None
    at: int

    @property
    def result(self) -> ToolResult | None:
        """What came of a call, if this is an entry of a result."""
        if self.kind is not EntryKind.RESULT:
            return None
        return ToolResult(ResultMeta.from_json(self.meta).state, text_of(self.body))

    @property
    def is_decision(self) -> bool:
        """Whether it is what a person decided, with which a parked turn goes on."""
        return self.kind is EntryKind.ONCE and self.key.endswith("/decision")


def trust_of(meta: str | None, turn: str | None) -> Trust:
    """Return how far an entry is trusted: as it says itself, else as all that its turn has read.

    Args:
        meta: What is kept beside the entry.
        turn: The least trusted content that was in the context of its turn; None: the owner's.
    """
    if meta is not None and ('"trust"' in meta or '"trust_levels"' in meta):
        kept: dict[str, Any] = orjson.loads(meta)
        if "trust" in kept:
            return Trust(kept["trust"])
        if kept.get("trust_levels"):
            return least_trusted(map(Trust, kept["trust_levels"]))
    return Trust(turn) if turn is not None else Trust.OWNER


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model call, or the sum over a turn."""

    input: int = 0
    """Tokens in, those from the vendor's cache among them."""
    output: int = 0
    cached: int = 0
    written: int = 0
    """Tokens in that the vendor put into its cache, which some charge extra for."""
    estimated: bool = field(default=False, compare=False)
    """Whether the vendor did not count, so that it is a guess."""

    @property
    def total(self) -> int:
        """Tokens in and out."""
        return self.input + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.written + other.written,
            self.estimated or other.estimated,
        )


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as the model wrote it; `arguments` is JSON text, perhaps malformed."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said: text, calls, or both."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    usage: Usage = field(default_factory=Usage)
    finish: str = "stop"
    thought: bytes = b""
    """The vendor's own record of its reasoning as JSON, which it may want back in this turn."""
    model: str = ""
    """Which model of the agent's chain said it, as `vendor:name`."""

    def said_by(self, model: str) -> Reply:
        """Return the reply with the name of who said it."""
        return Reply(
            self.text,
            self.calls,
            self.reasoning,
            self.usage,
            self.finish,
            self.thought,
            model,
        )

    def wire(self) -> bytes:
        """Return the message as it is stored and sent back to the model."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.calls
            ]
        elif not self.text:
            message["content"] = ""
        return orjson.dumps(message)

    def meta(self, seen: tuple[int, int, bool] | None = None, trust: Trust = Trust.OWNER) -> str:
        """Return what is kept beside the wire form, as JSON.

        `seen` tells what the model was sent: the epoch's number, how many messages at the front of
        the tail were left out, and whether it got the short prompt of small models. `trust` is that
        of the least trusted text among it.
        """
        kept: dict[str, Any] = {
            "in": self.usage.input,
            "out": self.usage.output,
            "cached": self.usage.cached,
            "finish": self.finish,
        }
        if seen is not None:
            kept["epoch"], skipped, compact = seen
            if skipped:
                kept["skipped"] = skipped
            if compact:
                kept["compact"] = True
        if self.calls or trust is not Trust.OWNER:
            kept["trust"] = trust.value  # else it is that of the turn
        if self.usage.written:
            kept["written"] = self.usage.written
        if self.model:
            kept["model"] = self.model
        if self.reasoning:
            kept["reasoning"] = self.reasoning
        if self.thought:
            kept["thought"] = orjson.Fragment(self.thought)
        return orjson.dumps(kept).decode()

    @staticmethod
    def from_entry(body: bytes, meta: str | None) -> Reply:
        """Return the reply that an entry of the journal records."""
        message: dict[str, Any] = orjson.loads(body)
        kept: dict[str, Any] = orjson.loads(meta) if meta else {}
        return Reply(
            text=message.get("content") or "",
            calls=tuple(
                Call(call["id"], call["function"]["name"], call["function"]["arguments"])
                for call in message.get("tool_calls") or ()
            ),
            reasoning=kept.get("reasoning", ""),
            usage=Usage(
                kept.get("in", 0),
                kept.get("out", 0),
                kept.get("cached", 0),
                kept.get("written", 0),
            ),
            finish=kept.get("finish", "stop"),
            thought=orjson.dumps(kept["thought"]) if "thought" in kept else b"",
            model=kept.get("model", ""),
        )


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """A turn as the store knows it."""

    id: str
    agent_id: str
    state: TurnState
    channel: str
    reply_to: str | None
    first_seq: int
    last_seq: int
    opened_at: int
    """When its work began; a turn that is taken up again keeps it."""
    ended_at: int | None = None
    usage: Usage = field(default_factory=Usage)
    error: str | None = None
    audience: str | None = None
    """Who may hear what was said in it; None: the owner."""
    trust: str | None = None
    """The least trusted content that was in its context; None: the owner's."""
    arrived_at: int | None = None
    """When the message came in that it answers; None: not known."""
    stopping: str | None = None
    """Why it is not to go on, if it was stopped while it was open and from another process."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a turn ended (or that it waits), and what it said."""

    turn_id: str
    agent_id: str
    state: TurnState
    text: str
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing a watcher sees while a turn is under way.

    Kinds: `opened`, `text`, `reasoning`, `call`, `progress`, `result`, `again` (a model call is
    made anew; forget the text of this step), `waiting` (for the store), `gap`, `parked`, `ended`.
    """

    id: str
    agent_id: str
    turn_id: str
    kind: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of running a recorded turn again, offline, against what is in the journal."""

    turn_id: str
    same: bool
    differences: tuple[str, ...]
    text: str
