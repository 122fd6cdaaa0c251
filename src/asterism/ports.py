"""Every contract a plugin can fulfil, on one page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from asterism.records import dataclass
from asterism.times import Moment
from asterism.types.turns import Delivery, Message, Receipt, Reply

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from asterism.types.agents import AgentRecord, Participants, Trust
    from asterism.types.groups import GroupActivity, GroupDecision, GroupRecord, GroupState
    from asterism.types.memory import Source
    from asterism.types.search import Hit, Query, SearchResult

Emit = Callable[[str, str], None]
"""Called with a kind (`text`, `reasoning`) and a piece of it while a reply streams in."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call to a language model. Messages are wire forms: joined, never parsed again."""

    model: str
    """The model's name at its vendor."""
    messages: list[bytes]
    """Chat-completions messages as JSON, the system prompt first."""
    tools: bytes | None
    """The JSON array of tool descriptions, or None."""
    key: str
    """The step that asks, such as `turn_…/0/reply`; the same for a repeat of the same call."""
    timeout: float
    """Seconds until the caller gives up."""
    agent_id: str = ""
    """Who asks: where requests have to queue, agents take turns."""
    frozen: int = 1
    """How many of the first messages stay the same from turn to turn; a vendor can cache them."""
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the one tool to call."""
    schema: bytes | None = None
    """The JSON schema that the text of the answer must fulfil, or None."""
    max_output: int | None = None
    """The most tokens to write, or None for the vendor's own bound."""
    thoughts: Mapping[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    """The vendor's own record of its reasoning (`Reply.thought`) by the wire form of its reply: for
    the replies of this turn, which some vendors want back."""
    message_tools: bytes | None = None
    """Tools that only the latest message seems to need, for a model with a compact profile: other
    messages have others, so they do not belong into what a vendor caches."""
    extra: bytes = b""
    """Further members of the request's JSON object, for a port that is built on another."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What a model can take in."""

    window: int = 0
    """Tokens of context; 0 where it is not known and the configured budget holds."""
    compact: bool = False
    """Small and slow to read: it gets a short prompt and a short past."""
    images: bool = True


class Model(Protocol):
    """A language model's vendor: takes a request, gives the whole reply, tries once.

    With `emit`, pieces are handed over as they arrive; the reply returned is whole all the same.
    Raises kinds of `ModelError`, and nothing else. A port may also be `Profiled`, `Warm` and
    `Describes`.
    """

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Ask the model once."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


@runtime_checkable
class Profiled(Protocol):
    """A model port that knows what its models can take in."""

    def profile(self, model: str) -> Profile:
        """Return the profile of a model by its name at the vendor."""
        ...


@dataclass(frozen=True, slots=True)
class RequestPart:
    """A part of a request as a model port really sends it."""

    kind: str
    """`message`, `tool`, `tool note`, `rule`, `examples` or `schema`."""
    text: str
    why: str = ""
    """Why the port adds it; empty for what the request holds itself."""
    name: str = ""
    """The name of a tool."""
    message: int | None = None
    """The place of the request's message that it is, or stands in; None: it is in none."""
    messages: int = 0
    """How many messages it is made of; 0 for what stands in one."""


@runtime_checkable
class Describes(Protocol):
    """A model port that adds to a request, or sends it in other words, and can tell how."""

    def describe(self, request: ModelRequest) -> Sequence[RequestPart]:
        """Return all that is sent for a request, in its order."""
        ...

    async def count(self, request: ModelRequest) -> int | None:
        """Return how many tokens a request has; None where that cannot be told without asking."""
        ...


class ModelSource(Protocol):
    """Where turns find models."""

    def chain(self, model: str) -> tuple[str, ...]:
        """Return the models that are asked for an agent's model, as `vendor:name`."""
        ...

    def profile(self, model: str) -> Profile:
        """Return what a model, as `vendor:name`, can take in."""
        ...

    async def ask(self, question: ModelQuestion) -> Reply:
        """Put a question to the models of a chain."""
        ...


@runtime_checkable
class Warm(Protocol):
    """A model port that can get ready before it is asked."""

    async def warm(self, request: ModelRequest) -> None:
        """Start what must be started and read the request's messages; write nothing."""
        ...


@runtime_checkable
class Encodes(Protocol):
    """A model port whose vendor has encoders too."""

    def encoder(self, model: str) -> Encoder:
        """Return an encoder by its name at the vendor; `ConfigError` if it has none."""
        ...


class ModelFactory(Protocol):
    """What an entry point of the group `asterism.models` names."""

    def __call__(self, vendor: str, options: dict[str, Any]) -> Model:
        """Make the model port for a vendor, from its table `[models.<vendor>]`."""
        ...


@dataclass(frozen=True, slots=True)
class Hold:
    """Money set aside for one attempt to ask a model."""

    id: str
    model: str
    """`vendor:name`."""
    worst: int
    """The most that the attempt can cost, in nano-dollars."""
    max_output: int | None
    """The most tokens that it may write; goes into the request unless None."""


class Reservations(Protocol):
    """The money of one turn: each attempt is reserved at its worst case, and settled after."""

    async def reserve(self, model: str, request: ModelRequest) -> Hold | None:
        """Set money aside for an attempt to ask `vendor:name`; None where none is counted.

        Raises `BudgetReached` if the worst case would pass a cap; then it must not be asked.
        """
        ...

    def settle(self, hold: Hold | None, reply: Reply) -> None:
        """A whole reply came: what it cost counts."""
        ...

    def release(self, hold: Hold | None) -> None:
        """It was refused before anything was produced: nothing was billed."""
        ...

    def presume(self, hold: Hold | None) -> None:
        """It was cut off, timed out or was cancelled: its worst case counts, as presumed."""
        ...


@dataclass(frozen=True, slots=True)
class ModelQuestion:
    """One step of a turn, to be put to the models of a chain."""

    models: tuple[str, ...]
    """As `vendor:name`, in the order they are asked."""
    compose: Callable[[str, Profile, int], ModelRequest]
    """Makes the request for a model; the number says how often it was too long, so that a shorter
    past is sent."""
    reservations: Reservations | None
    """None where no money can be spent."""
    notify: Callable[[str, str], None]
    """Tells the owner something, with its kind."""
    emit: Emit | None = None
    """Gets the pieces, and the kind `again` with a reason when those of this step are void."""


class Encoder(Protocol):
    """A model that gives texts of one meaning near vectors.

    Raises kinds of `AsterismError`, and nothing else; whoever asks goes on without vectors.
    """

    @property
    def name(self) -> str:
        """What its vectors are kept under; those of another name cannot be compared with them."""
        ...

    async def encode(self, texts: Sequence[str], *, question: bool = False) -> NDArray[np.float32]:
        """Return a vector for each text, a row each, all of the same size; zeros for no words.

        Some models see a question otherwise than what is looked for.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and weights."""
        ...


class Accept(Protocol):
    """How a channel hands a message in."""

    async def __call__(self, message: Message) -> Receipt:
        """Store a message; on return it will be answered exactly once.

        The channel of its origin is filled in: a channel speaks for itself alone.
        """
        ...


class AnswerCallback(Protocol):
    """How a channel with buttons hands in what somebody pressed."""

    async def __call__(
        self,
        approval_id: str,
        *,
        approved: bool,
        sender: str,
        reply_to: str | None = None,
        note: str | None = None,
    ) -> str:
        """Answer a question once; return what to show to whoever pressed.

        That may be a refusal: the question was answered before, or waits for somebody else.
        """
        ...


@runtime_checkable
class Answering(Protocol):
    """A channel that shows buttons under a delivery whose `approval` names a question.

    Words need no buttons: "approve ap_…", "deny ap_… why", or "yes" and "no" where one question
    waits, are taken as answers when they are handed in like any message.
    """

    def take_answers(self, answer: AnswerCallback) -> None:
        """Keep how to hand in answers; called before `listen`."""
        ...


class Channel(Protocol):
    """A two-way door to people."""

    async def deliver(self, delivery: Delivery) -> None:
        """Hand a message over. The same `delivery.key` twice must reach people once.

        Raises `DeliveryError`, with `final=True` when trying again is useless.
        """
        ...

    async def listen(self, accept: Accept) -> None:
        """Take messages in until cancelled; return at once if the channel only sends."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class ChannelFactory(Protocol):
    """What an entry point of the group `asterism.channels` names."""

    def __call__(self, name: str, options: dict[str, Any]) -> Channel:
        """Make a channel from its table `[channels.<name>]`."""
        ...


@dataclass(frozen=True, slots=True)
class TurnView:
    """What plugins around the model know of a turn."""

    agent: AgentRecord
    turn_id: str
    message: str
    """The text of the message that the turn answers."""
    participants: Participants
    """Who is present: what they may not see must not be told."""
    trust: Trust
    """How far the one who speaks is trusted."""
    now_ms: int
    """When the turn began, in milliseconds since 1970."""
    zone: str = "UTC"
    """The name of the owner's time zone."""
    previous: tuple[str, ...] = ()
    """The latest exchange before the message, as far as those present may see it."""
    compact: bool = False
    """Whether the agent's model is small, so that what it is told should be short."""
    room: int = 100_000
    """How many tokens may be told about the message, so that the rest has room in the context."""
    in_context: Callable[[Hit], bool] = lambda _: False
    """Tells whether the model sees a hit of a search anyway."""
    said_after: Callable[[Hit], Sequence[str]] = lambda _: ()
    """Returns what the owner said right after a message that a search has found, where that is in
    the present context and nobody else is present: it may put the message right."""
    search: Callable[[Query], Awaitable[SearchResult]] | None = None
    """Searches the agent's memory for those present; None where there is nothing to search."""
    notes: tuple[str, ...] = ()
    """What processors have told before the message, for evaluators."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The plugin's table `[pipeline.options.<name>]`."""

    now = Moment()


@dataclass(frozen=True, slots=True)
class ProcessorNote:
    """Something that a processor tells the agent before a message."""

    text: str
    why: str = ""
    """Why it is told, for whoever looks at the context."""
    sources: tuple[Source, ...] = ()
    """Where the text comes from: it is trusted no further, and seen by nobody else."""
    origins: tuple[str, ...] = ()
    """The ids of what it quotes, such as `turn_…#2` for a message, for whoever looks at it."""
    replaces: tuple[str, ...] = ()
    """Names of tools that a small model need not be offered for the message any more."""


@dataclass(frozen=True, slots=True)
class ProcessorCall:
    """A call of a tool that is made for the agent before its model is asked.

    It is judged, recorded and shown like a call of the model; the model sees its result. A call of
    a tool that the agent does not have is left out.
    """

    tool: str
    arguments: Mapping[str, Any]
    why: str = ""
    """Why it is made, for whoever looks at the turn."""


class Processor(Protocol):
    """Looks at a message before the turn, and may tell the agent something or call a tool for it.

    What an entry point of the group `asterism.processors` names, called without arguments, returns
    one.
    """

    async def process(self, turn: TurnView) -> Sequence[ProcessorNote | ProcessorCall]:
        """Return what the agent is told before the message, and calls; mostly nothing."""
        ...


class SectionProvider(Protocol):
    """Adds a section to the prefix of an agent's context.

    What an entry point of the group `asterism.sections` names, called without arguments, returns
    one. It is asked when an agent is loaded: the prefix stays the same from turn to turn.
    """

    async def section(self, turn: TurnView) -> str:
        """Return the text of the section; nothing for none."""
        ...


class JudgementKind(StrEnum):
    """What an evaluator says to an answer."""

    PASS = "pass"
    NOTE = "note"
    """It passes, and something about it is worth keeping in the journal."""
    RETRY = "retry"
    """The agent shall answer again, and is told why."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an evaluator thinks of an answer."""

    kind: JudgementKind = JudgementKind.PASS
    text: str = ""


class Evaluator(Protocol):
    """Looks at an answer before it is sent.

    What an entry point of the group `asterism.evaluators` names, called without arguments, returns
    one.
    """

    async def evaluate(self, turn: TurnView, answer: str) -> Judgement:
        """Let an answer pass, note something, or ask for another try."""
        ...


class Pattern(Protocol):
    """Decides which members of a group take a turn, in what order, and what the group answers.

    What an entry point of the group `asterism.patterns` names, called without arguments, returns
    one. A decision depends on the state alone, so that it is the same after a crash.

    One that neither keeps a memory nor looks at `GroupMember.waiting` may have an attribute
    `is_stateless` that is true: its groups are then not read from the store for each decision.
    """

    def check(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return options as they are stored, or raise `InvalidInput` if they are not valid."""
        ...

    def decide(self, state: GroupState) -> GroupDecision:
        """Return whom to ask next, or how the turn ends; with neither, the group waits."""
        ...


@runtime_checkable
class WatchingPattern(Protocol):
    """A pattern whose groups look at what their members do, and begin turns by themselves."""

    def next_look(self, group: GroupRecord, now_ms: int) -> int:
        """Return when to look again."""
        ...

    def watch(self, group: GroupRecord, activity: GroupActivity) -> str | None:
        """Return the message that begins a turn, if a rule fires; no model is asked."""
        ...


@runtime_checkable
class MemberOptionsPattern(Protocol):
    """A pattern whose options name members; the names follow when an agent is renamed."""

    @property
    def member_options(self) -> Sequence[str]:
        """The options that hold a name or a list of names, such as `leader` or `stages.agents`."""
        ...


Clock = Callable[[], int]
"""Milliseconds since 1970, UTC."""

Sleep = Callable[[float], Awaitable[None]]
