"""One message answered: think and act, step by step, each step an entry in the journal.

What has happened is *staged* and written with the next `flush`; nothing outside is touched before
the flush that records why. So a plain turn costs one commit at its end, and a crash at any instant
finds in the journal either that a step happened or that it has no effect yet.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field, replace
from datetime import tzinfo
from functools import cached_property
from itertools import takewhile
from typing import Any, Protocol, TypeVar

import orjson

from asterism.config.load import CurrentSettings, FixedSettings
from asterism.errors import AsterismError, LaneLost, StoreError, StoreUnavailable
from asterism.memory.gate import facts
from asterism.memory.gate.facts import FactChange, KeptFact
from asterism.memory.gate.writer import WriteNeedsApproval, Writer
from asterism.memory.keep import lasting_facts
from asterism.permissions import Authority
from asterism.permissions.readings import is_quoted_from
from asterism.ports import Clock, ModelSource, ProcessorCall, Profile, TurnView
from asterism.records import dataclass
from asterism.store import agents, approvals, epochs, events, groups, journal, messages
from asterism.store.approvals import Use
from asterism.store.database import Connection, Database
from asterism.store.epochs import Epoch
from asterism.store.events import Event
from asterism.store.groups import AgentMessage
from asterism.store.journal import Draft
from asterism.telemetry import Telemetry
from asterism.telemetry.redaction import redact, redact_json
from asterism.tools.tool import Tool, Toolbox
from asterism.turns.approvals import withdraw_questions_of
from asterism.turns.context import LiveAgent, Note, speaker_of
from asterism.turns.crashes import Crashes
from asterism.turns.pipeline import Pipeline, is_too_short
from asterism.turns.repeats import FindRepeat, earlier_call
from asterism.turns.rules import RuleState
from asterism.turns.spending import Spending, TurnBudget
from asterism.types.agents import (
    OWNER,
    AgentRecord,
    Audience,
    Blob,
    Label,
    Participants,
    Trust,
    json_blob,
    message_id_for,
    new_id,
    now_ms,
    planned_audience,
)
from asterism.types.groups import AGENT_CHANNEL, GROUP_CHANNEL, GROUP_ID
from asterism.types.memory import Origin, OriginKind, Source
from asterism.types.permissions import PRESENT, ApprovalRecord, Effect, EffectKind, announcement
from asterism.types.search import Query, SearchResult
from asterism.types.spending import Charge, Payer
from asterism.types.turns import (
    END,
    MARK,
    SCHEDULED,
    WIRE_KINDS,
    Call,
    ClientRequest,
    Delivery,
    Entry,
    EntryKind,
    InboxItem,
    InboxKind,
    MessageMeta,
    Notice,
    Outcome,
    Reply,
    ResultMeta,
    SentContext,
    Signal,
    TurnRecord,
    TurnState,
    Usage,
    message_wire,
    plain,
    system_message,
    text_of,
    wire_without_mark,
)

T = TypeVar("T")
_log = logging.getLogger(__name__)

_FIRST_WAIT, _MAX_WAIT = 0.25, 5.0
CALLS_BEFORE = "in/calls"
"""The entry with the calls that processors make before the model is asked."""
_FACTS = "facts"
"""The entry with the facts that rules have read in the message."""
EMPTY_ANSWER = "(The model gave an empty answer.)"
PUT_ASIDE = "in/client"
"""The entry with what came beside a message that was put aside."""
KEPT = "Your message is kept. Ask again to get an answer."
"""What is told of a message whose turn has failed: nothing answers it later by itself."""
WITHHELD = (
    f"{MARK} It is time for something that you had planned, but not everyone who is here now "
    "may see it. The owner has been told."
)


_KEPT = 4_096
ALL_AGENTS = ""
"""Under this name the hub keeps the signals of all agents, in the order in which they came."""
_MAX_ENDS = 10_000
_GRACE = 600.0
"""Seconds that a log is kept after its last watcher has left."""


class _Log:
    __slots__ = ("changed", "first", "signals", "until", "watchers")

    def __init__(self, first: int) -> None:
        self.signals: deque[Signal] = deque(maxlen=_KEPT)
        self.first = first
        """The number of the first signal after which nothing is missing."""
        self.watchers = 0
        self.until = 0.0
        self.changed = asyncio.Event()

    def after(self, number: int) -> list[Signal]:
        """Return the signals after a number, reading no more than those."""
        newest_first = takewhile(lambda signal: _number(signal.id) > number, reversed(self.signals))
        return list(newest_first)[::-1]


class Hub:
    """Where turns publish signals and watchers read them."""

    def __init__(self) -> None:
        self._boot = new_id("hub")[-8:]
        self._count = 0
        self._logs: dict[str, _Log] = {}
        self._ends: OrderedDict[str, tuple[str, float]] = OrderedDict()
        """When watchers were last told that a turn has ended or waits, and which, by its id."""
        self.forward: Callable[[Signal], None] | None = None
        """Set where signals must reach other processes."""
        self.announce: Callable[[str], Awaitable[None]] | None = None
        """Set where other processes must know whom somebody watches; on return they do."""

    def is_watched(self, agent_id: str) -> bool:
        """Tell whether somebody watches an agent or all of them, or did a short while ago."""
        return bool(self._logs) and (self._is_kept(agent_id) or self._is_kept(ALL_AGENTS))

    def _is_kept(self, agent_id: str) -> bool:
        log = self._logs.get(agent_id)
        if log is None:
            return False
        if log.watchers or log.until > time.monotonic():
            return True
        del self._logs[agent_id]
        return False

    def keep(self, agent_id: str, seconds: float = _GRACE) -> None:
        """Keep a log for an agent for some time, since somebody may watch it."""
        log = self._log(agent_id)
        log.until = max(log.until, time.monotonic() + seconds)

    def publish(self, agent_id: str, turn_id: str, kind: str, data: dict[str, Any]) -> None:
        """Add a signal to an agent's log."""
        signal = self.receive(agent_id, turn_id, kind, data)
        if self.forward is not None:
            self.forward(signal)

    def receive(self, agent_id: str, turn_id: str, kind: str, data: dict[str, Any]) -> Signal:
        """Add a signal, from this process or another one."""
        self._count += 1
        own = self._id(self._count)
        if kind in ("ended", "parked"):
            self._ends[turn_id] = (kind, time.monotonic())
            self._ends.move_to_end(turn_id)
            if len(self._ends) > _MAX_ENDS:
                self._ends.popitem(last=False)
            if kind == "ended":
                own = f"{own}-{turn_id}"
        signal = Signal(own, agent_id, turn_id, kind, data)
        self._add(self._log(agent_id), signal)
        if self._is_kept(ALL_AGENTS):
            self._add(self._log(ALL_AGENTS), signal)
        return signal

    def _add(self, log: _Log, signal: Signal) -> None:
        if len(log.signals) == _KEPT:
            log.first = _number(log.signals[0].id) + 1
        log.signals.append(signal)
        log.changed.set()

    def has_published_end(self, turn_id: str, within: float = 0.0) -> bool:
        """Tell whether watchers know that a turn has ended, or heard lately that it waits."""
        kind, at = self._ends.get(turn_id, ("", 0.0))
        return kind == "ended" or (kind == "parked" and time.monotonic() - at <= within)

    def _log(self, agent_id: str) -> _Log:
        log = self._logs.get(agent_id)
        if log is None:
            log = self._logs[agent_id] = _Log(self._count + 1)
        return log

    def place(self, agent_id: str) -> str:
        """Return an id after which a watcher sees all that comes from now on."""
        self.keep(agent_id)
        return self._id(self._count)

    def _id(self, number: int) -> str:
        return f"{self._boot}-{number}-{now_ms():x}"

    def knows(self, agent_id: str, after: str) -> bool:
        """Tell whether everything after a signal is still here."""
        log = self._logs.get(agent_id)
        boot = after.partition("-")[0]
        return log is not None and boot == self._boot and _number(after) >= log.first - 1

    async def watch(self, agent_id: str, after: str | None = None) -> AsyncGenerator[Signal, None]:
        """Yield signals as they come, from the one after `after` on, or from now on.

        A watcher that falls behind the log, or comes with an `after` that it does not reach back
        to, gets a signal `gap` and goes on with what there is.
        """
        log = self._log(agent_id)
        log.watchers += 1
        known = after is not None and self.knows(agent_id, after)
        place = _number(after) if after is not None and known else self._count
        try:
            if after is not None and not known:
                yield Signal(self._id(place), agent_id, "", "gap", {})
            if self.announce is not None:
                await self.announce(agent_id)
            while True:
                if place + 1 < log.first:
                    place = log.first - 1
                    yield Signal(self._id(place), agent_id, "", "gap", {})
                fresh = log.after(place)
                for signal in fresh:
                    place = _number(signal.id)
                    yield signal
                if not fresh:
                    log.changed.clear()
                    await log.changed.wait()
        finally:
            log.watchers -= 1
            log.until = time.monotonic() + _GRACE

    def watched_agents(self) -> list[str]:
        """Return the agents that have watchers in this process."""
        return [agent_id for agent_id, log in self._logs.items() if log.watchers]


def _number(signal_id: str) -> int:
    try:
        return int(signal_id.split("-")[1])
    except (IndexError, ValueError):
        return -1


def id_at(at: int) -> str:
    """Return an id of no signal, after which a watcher is told what has ended since a time."""
    return f"time-0-{at:x}"


def end_id(turn_id: str, at: int) -> str:
    """Return the id of a signal that tells from the journal how a turn ended, and when."""
    return f"end-0-{at:x}-{turn_id}"


def ended_turn(signal_id: str) -> str | None:
    """Return the turn whose end the signal of an id has told; None for any other signal."""
    return signal_id.split("-", 3)[3] if signal_id.count("-") >= 3 else None


_NO_TIME = 1 << 53


def time_of(signal_id: str) -> int:
    """Return when a signal was given, in milliseconds since 1970; 0 if its id is malformed."""
    try:
        at = int(signal_id.split("-")[2], 16)
    except (IndexError, ValueError):
        return 0
    return at if 0 <= at < _NO_TIME else 0


@dataclass(frozen=True, slots=True)
class TurnServices:
    """What turns work with."""

    database: Database
    toolbox: Toolbox
    models: ModelSource
    hub: Hub
    """Shows watchers what happens in turns."""
    clock: Clock
    telemetry: Telemetry = field(default_factory=Telemetry)
    spending: Spending | None = None
    """Prices and caps; None where no money can be spent."""
    authority: Callable[[], Authority] = Authority
    """What the owner has decided beforehand about writing to memory."""
    search: Callable[[str, Query, Participants], Awaitable[SearchResult]] | None = None
    """Searches the memory of an agent (of all, without an id) for those present; None where there
    is nothing to search."""
    settings: CurrentSettings = field(default_factory=FixedSettings)
    """The configuration in use."""
    channels: Callable[[], Collection[str]] = tuple
    """The names of the channels there are."""
    resolve: Callable[[str], str] = str
    """Returns the stored key that `secret:NAME` names, and any other text as it is."""
    forgotten: Callable[[], Callable[[str], str] | None] = lambda: None
    """Returns what takes out of a text what was forgotten before; None where nothing was."""
    pipeline: Pipeline | None = None
    """What stands around the model; None: nothing does."""
    find_repeat: FindRepeat = earlier_call
    """Finds the earlier call of a turn that a call repeats."""
    kept_blobs: set[str] = field(default_factory=set[str])
    """Blobs that turns of this process have stored."""
    crashes: Crashes | None = None
    """Notes what turns do, for the next process; None where nothing outlives this one."""


@dataclass(slots=True)
class PendingWrites:
    """What the next flush writes in one transaction."""

    drafts: list[Draft] = field(default_factory=list[Draft])
    notices: list[Notice] = field(default_factory=list[Notice])
    approvals: list[ApprovalRecord] = field(default_factory=list[ApprovalRecord])
    deliveries: list[Delivery] = field(default_factory=list[Delivery])
    charges: list[Charge] = field(default_factory=list[Charge])
    events: list[Event] = field(default_factory=list[Event])
    granted: list[str] = field(default_factory=list[str])
    """Grants that calls were made on."""
    uses: list[Use] = field(default_factory=list[Use])
    blobs: list[Blob] = field(default_factory=list[Blob])
    """What replies refer to and the store may not have yet."""
    state: TurnState = TurnState.OPEN
    error: str | None = None
    ran: dict[str, int] = field(default_factory=dict[str, int])
    """When tools have succeeded that rules look back at."""
    inside: Callable[[Connection], Awaitable[Draft]] | None = None
    """A transactional call: has its effect in the same transaction and returns its result."""
    facts: tuple[str, ...] = ()
    """What the owner has said that lasts; it is kept in the same transaction."""
    beside: list[Callable[[Connection], Awaitable[None]]] = field(
        default_factory=list[Callable[[Connection], Awaitable[None]]]
    )
    """What else is written in the same transaction."""
    step: GroupStep | None = None
    """What the group does next whose question ends here, in the same transaction."""


class GroupStep(Protocol):
    """What a group writes in the transaction that ends the turn of a member."""

    async def write(self, tx: Connection) -> bool:
        """Write it; False if the group is to be told of the end by its inbox instead."""
        ...

    def done(self) -> None:
        """Go on with it: the transaction is committed."""
        ...

    def failed(self) -> None:
        """Leave it: nobody knows whether the transaction was committed."""
        ...


@dataclass(slots=True)
class JoinedWrite:
    """What a turn of a group writes in the transaction of another turn, and does after that."""

    page: PendingWrites | None = None
    after: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])


Written = tuple[Draft | None, Epoch | None, list[KeptFact]]
"""The result of a transactional call, the epoch that has begun, and facts that were kept."""


@dataclass(slots=True)
class PartialReply:
    """What watchers have seen so far of a reply that is still coming in."""

    step: int
    pieces: list[str] = field(default_factory=list[str])
    void: list[str] = field(default_factory=list[str])
    """What they saw of earlier attempts at the same step."""

    def restart(self) -> None:
        """The pieces so far do not count any more: the step is asked again."""
        if self.pieces:
            self.void.append("".join(self.pieces))
            self.pieces = []

    @property
    def text(self) -> str:
        """The words that were seen last."""
        return "".join(self.pieces) or (self.void[-1] if self.void else "")


class _AlreadyWritten(Exception):
    """A commit had gone through although its confirmation was lost."""


class StoppedBefore(LaneLost):
    """A person had stopped the turn before it wrote anything; it is to be ended as such."""


class Turn:
    """A turn under way."""

    question: AgentMessage | None = None
    """The question of a group that it answers, where it is known."""
    join_group: Callable[[Turn, InboxItem], Awaitable[GroupStep | None]] | None = None
    """Prepares what the group does once this turn has ended, where that is known here."""
    joined: JoinedWrite | None = None
    """Set while a turn of a group leaves what it writes to the transaction of another turn."""
    progress: object = None
    """What the runner of groups has read of its entries."""

    def __init__(
        self,
        live: LiveAgent,
        services: TurnServices,
        *,
        item: InboxItem | None = None,
        record: TurnRecord | None = None,
        entries: list[Entry] | None = None,
        trust: Trust = Trust.OWNER,
        people: frozenset[str] = frozenset({OWNER}),
        notes: Sequence[Note] = (),
        calls: Sequence[ProcessorCall] = (),
        opened_at: int | None = None,
    ) -> None:
        """Begin the turn of an item, or (with its record and entries) take one up again.

        Args:
            live: The agent, which sees the context of those who are present.
            services: What turns work with.
            item: What opens the turn, or the decision that it goes on with.
            record: The turn as the store knows it.
            entries: What the journal has of it.
            trust: How far whoever opens it is trusted.
            people: Whoever opens it, in every way that a policy may name them.
            notes: What is told before the message.
            calls: What is called before the model is asked.
            opened_at: When its work began, if it is new; None: now.
        """
        self.live = live
        self.context = live.context
        self.agent = live.agent
        self.services = services
        self.item = item
        self.record = record
        self.recorded: dict[str, Entry | Draft] = {entry.key: entry for entry in entries or ()}
        self.attempted: set[str] = set()
        """Calls that were really started in this process."""
        self.stop_reason: str | None = record.stopping if record is not None else None
        self.ending = False
        """Whether it is too late to stop it."""
        self._ending: Outcome | None = None
        if record is not None:
            self.id, self.channel, self.reply_to = record.id, record.channel, record.reply_to
            self.opened_at, self.arrived_at = record.opened_at_ms, record.arrived_at_ms
        else:
            assert item is not None
            self.id, self.channel, self.reply_to = item.turn_id, item.channel, item.reply_to
            self.opened_at = services.clock() if opened_at is None else opened_at
            self.arrived_at = item.at_ms
            self.stop_reason = item.stopped
        self.usage = Usage()
        self.payments: dict[str, tuple[Effect, ...]] = {}
        """What calls pay that were let pass in this turn, by the call's key."""
        self.thoughts: dict[bytes, tuple[str, bytes]] = {}
        """By the wire form of a reply, who said it and the vendor's record of its reasoning."""
        self.call_ids: set[str] = set()
        self.squeezed = 0
        """How often its past was shortened because a model found it too long."""
        self.sent = SentContext()
        """What the latest request sent of the context."""
        self._tools: tuple[Blob, ...] = ()
        self.ends_at = float("inf")
        self._partial: PartialReply | None = None
        self._page = PendingWrites()
        self._reservations: TurnBudget | None = None
        self._flushing: asyncio.Task[Draft | None] | None = None
        self.in_every_write: Callable[[Connection, TurnState], Awaitable[None]] | None = None
        """What is written last in each transaction of the turn, that of its end included."""
        self.people = people
        self.speaker_trust = trust
        """How far the message that opened it is trusted."""
        self.context.learn(Label(trust))
        self._open(notes, calls)
        schema = self._opening.schema
        self.schema: dict[str, Any] | None = orjson.loads(schema) if schema else None
        """The JSON schema that the answer must fulfil."""
        for entry in entries or ():
            self._learn_again(entry)

    @cached_property
    def client_offer(self) -> ClientRequest:
        """What the program that sent the message asks for."""
        return ClientRequest.from_json(self._opening.client)

    @cached_property
    def client_tools(self) -> dict[str, Tool]:
        """Tools of the program that sent the message; they hide those of the agent by that name."""
        return _client_tools(self.client_offer) if self.client_offer.tools else {}

    @cached_property
    def rule_state(self) -> RuleState:
        """What the agent's rules for tools say to how the turn goes."""
        toolbox, rules = self.services.toolbox, self.agent.rules
        tools = toolbox.names(self.agent.tools) if rules else ()
        return RuleState(rules, tools, resolve=toolbox.resolve_call)

    def _open(self, notes: Sequence[Note], calls: Sequence[ProcessorCall]) -> None:
        """Stage what opens the turn, or the decision that it goes on with."""
        for note in notes:
            self.context.learn(*note.labels)
            self.tell(note.key, note.text, meta=note.meta)
        item = self.item
        if self.record is None and item is not None:
            self.stage(
                EntryKind.MESSAGE, "in", self._body(item), meta=_opening_meta(item), at=item.at_ms
            )
            if calls:
                self.stage(EntryKind.ONCE, CALLS_BEFORE, _calls_json(calls))
        elif item is not None:
            decision: dict[str, Any] = orjson.loads(item.body)
            if "results" not in decision:
                self.stage(EntryKind.ONCE, f"{decision['key']}/decision", item.body, at=item.at_ms)
            for result in decision.get("results", ()):
                key = f"{result['key']}/decision"
                self.stage(EntryKind.ONCE, key, orjson.dumps(result), at=item.at_ms)

    def _learn_again(self, entry: Entry) -> None:
        """Know of a result from before a crash how far it is trusted, and who may see it."""
        if entry.meta and (
            entry.kind is EntryKind.RESULT or entry.key.endswith(("/effect", "/outcome"))
        ):
            kept = ResultMeta.from_json(entry.meta)
            self.context.learn(
                *map(Label, kept.trust_levels),
                *(Label(audience=Audience.read(audience)) for audience in kept.audiences),
            )

    @property
    def seconds_left(self) -> float:
        """How long the turn may go on."""
        return max(1.0, min(self.agent.limits.seconds, self.ends_at - time.monotonic()))

    @property
    def source(self) -> Source:
        """What whatever is written in this turn comes from, who may see it, how trusted it is."""
        context = self.context
        return Source(
            (),
            context.participants.audience_after_reading(context.label.audience),
            context.label.trust,
        )

    def source_of(self, effects: Sequence[Effect]) -> Source:
        """Return what a call with these effects writes from.

        What it remembers is trusted as far as everything that its model was shown. But where the
        one who speaks has said it word by word, it is theirs, whatever else was read.
        """
        source = self.source
        opening = self.recorded.get("in")
        texts = [text for effect in effects for text in effect.content]
        if opening is None or not texts or source.trust is self.speaker_trust:
            return source
        if any(effect.kind is not EffectKind.REMEMBER or effect.amends for effect in effects):
            return source
        said = text_of(opening.body)
        if all(is_quoted_from(text, said) for text in texts):
            return replace(source, trust=self.speaker_trust)
        return source

    def _body(self, item: InboxItem) -> bytes:
        """Return what opens the turn; what was planned among fewer people is not told to all."""
        if not is_withheld(item, self.context.participants):
            planned = planned_audience(item.participants)
            if planned is not None:
                self.context.learn(Label(audience=planned))
            # Whoever hands something in, only the system speaks as the system.
            return wire_without_mark(item.body)
        self.notify_owner(
            "plan.withheld",
            f"{self.agent.name} was not told what it had planned, since others are in the room "
            f"now who may not see it: {text_of(item.body)}",
        )
        return message_wire("user", WITHHELD)

    # -- money ---------------------------------------------------------------------------------

    @property
    def reservations(self) -> TurnBudget | None:
        """The money of this turn; None where none can be spent."""
        spending = self.services.spending
        if self._reservations is None and spending is not None:
            agent = self.agent
            self._reservations = TurnBudget(
                spending,
                self.live.database,
                self.services.clock,
                turn_id=self.id,
                payer=Payer(agent.id, agent.name, self._person(), self._group_name()),
                seconds=agent.limits.seconds,
                write=lambda work: self._patiently(lambda: self.live.database.write(work)),
            )
        return self._reservations

    def _person(self) -> str | None:
        """Return the account that opened the turn; the id of a person who used none."""
        opening = self._opening
        if opening.sender:
            return f"{self.channel}:{opening.sender}"
        speaker = speaker_of(self.recorded["in"]) if opening.participants else OWNER
        return speaker if speaker not in (OWNER, "") else None

    def _group_name(self) -> str | None:
        """Return the group that the agent was asked by."""
        channel = self.channel
        return channel.removeprefix(GROUP_CHANNEL) if channel.startswith(GROUP_CHANNEL) else None

    @property
    def _opening(self) -> MessageMeta:
        """What is known of the message that opened the turn."""
        opening = self.recorded.get("in")
        return MessageMeta.from_json(opening.meta if opening is not None else None)

    # -- the journal ---------------------------------------------------------------------------

    def stage(
        self, kind: EntryKind, key: str, body: bytes, *, meta: str | None = None, at: int = 0
    ) -> Draft:
        """Note an entry; the next flush writes it."""
        draft = Draft(kind, key, body, at or self.services.clock(), meta)
        self._page.drafts.append(draft)
        self._note(draft)
        return draft

    def note_sent(
        self, skipped: int, tools: bytes | None, message_tools: bytes | None, *, compact: bool
    ) -> None:
        """Note what a request sends of the context; its reply refers to it."""
        offers = [
            json_blob(offer) if offer is not None else None for offer in (tools, message_tools)
        ]
        self._tools = tuple(blob for blob in offers if blob is not None)
        self.sent = SentContext(skipped, compact, *(blob.id if blob else "" for blob in offers))

    def note_asked(self) -> None:
        """Have the next process know that this turn waits for a model, and is not executed."""
        if self.services.crashes is not None:
            self.services.crashes.wait(self.agent.id)

    async def note_answered(self) -> None:
        """Have the next process know that this turn has heard from its model."""
        if self.services.crashes is not None:
            await self.services.crashes.go_on(self.agent.id)

    def _stage_reply(self, key: str, reply: Reply) -> Draft:
        """Stage a reply that refers to the context that was sent."""
        for tools in self._tools:
            if tools.id not in self.services.kept_blobs:
                cleaned = redact_json(tools.body.decode()).encode()
                self._page.blobs.append(replace(tools, body=cleaned))
        meta = reply.meta(self.context.epoch.number, self.sent, self.context.label.trust)
        return self.stage(EntryKind.REPLY, key, reply.wire(), meta=meta)

    def begin_partial_reply(self, step: int) -> PartialReply:
        """Note from now on what watchers see of a reply."""
        self._partial = PartialReply(step)
        return self._partial

    def end_partial_reply(self) -> None:
        """The reply is whole: what was seen of earlier attempts is noted beside it."""
        if self._partial is not None and self._partial.void:
            void = orjson.dumps(self._partial.void)
            self.stage(EntryKind.ONCE, f"{self._partial.step}/void", void)
        self._partial = None

    def keep_partial_reply(self, finish: str) -> None:
        """Keep what was seen of a reply that was cut short, as a reply; the turn ends here."""
        partial, self._partial = self._partial, None
        if partial is None or not partial.text or f"{partial.step}/reply" in self.recorded:
            return
        sent = sum(map(len, self.context.messages(Profile(compact=self.sent.compact))))
        usage = Usage.estimate(sent, len(partial.text.encode()))
        reply = Reply(partial.text, usage=usage, finish=finish)
        self._stage_reply(f"{partial.step}/reply", reply)
        self.usage += usage

    def drop_step(self, step: int, calls: int) -> None:
        """Take the reply of a step and the results of its calls, just staged, out of the context.

        The journal keeps them. Models do not see them any more, after a restart neither.
        """
        keys = {f"{step}/call/{index}" for index in range(calls)}
        for place, draft in enumerate(self._page.drafts):
            if draft.key in keys:
                meta = replace(ResultMeta.from_json(draft.meta), dropped=True).to_json()
                self.recorded[draft.key] = self._page.drafts[place] = replace(draft, meta=meta)
        self.context.tail.drop_last(calls + 1)

    @cached_property
    def message(self) -> str:
        """The text of the message that opened the turn."""
        opening = self.recorded.get("in")
        return text_of(opening.body) if opening is not None else ""

    @cached_property
    def may_tell_facts(self) -> bool:
        """Whether the owner has opened it, nobody else is present, and it is not just a word."""
        message = self.message
        return (
            self.speaker_trust is Trust.OWNER
            and self.schema is None
            and self.context.participants.owner_alone
            and not is_too_short(message)
            and not message.startswith(SCHEDULED)
            and not self.channel.startswith((AGENT_CHANNEL, GROUP_CHANNEL))
        )

    @property
    def remember_options(self) -> Mapping[str, Any] | None:
        """The options of what keeps facts by itself; None if the agent goes without it."""
        pipeline = self.services.pipeline
        return pipeline.of(self.agent.name).remember if pipeline is not None else None

    @property
    def view(self) -> TurnView:
        """What plugins around the model know of the turn."""
        search = self.services.search
        agent, participants = self.agent, self.context.participants
        return TurnView(
            agent=agent,
            turn_id=self.id,
            message=self.message,
            participants=participants,
            trust=self.speaker_trust,
            now_ms=self.opened_at,
            compact=self.sent.compact,
            notes=tuple(
                text_of(entry.body)
                for key, entry in self.recorded.items()
                if key.startswith("note/")
            ),
            search=(lambda query: search(agent.id, query, participants)) if search else None,
        )

    def find_tool(self, name: str, arguments: str) -> tuple[Tool | None, str, str]:
        """Return the tool of a call, if the agent has it, and the call that it stands for."""
        if (of_client := self.client_tools.get(name)) is not None:
            return of_client, name, arguments
        name, arguments = self.services.toolbox.resolve_call(name, arguments)
        return self.services.toolbox.get(name, self.agent.tools), name, arguments

    @property
    def is_unwritten(self) -> bool:
        """Whether the next flush has something to write."""
        return bool(self._page.drafts or self._page.beside)

    @property
    def staged(self) -> Sequence[Draft]:
        """What the next flush writes."""
        return self._page.drafts

    def _note(self, draft: Draft) -> None:
        self.recorded[draft.key] = draft
        if draft.kind in WIRE_KINDS:
            self.context.append(draft)

    async def once(self, key: str, ask: Callable[[], Awaitable[Reply]]) -> Reply:
        """Return the recorded reply of this step, or ask for it and stage it.

        What it holds of known keys is taken out first: the call that is recorded is the one that
        is judged and carried out, and no model knows a key by right.
        """
        entry = self.recorded.get(key)
        if entry is not None:
            reply = Reply.from_entry(entry.body, entry.meta)
        else:
            reply = without_secrets(await ask())
            if not self.context.saved:
                await self.wait_for_write()  # which may give its epoch another number
            entry = self._stage_reply(key, reply)
        self.usage += reply.usage
        if reply.calls:
            self.call_ids.update(call.id for call in reply.calls)
            if reply.thought:
                self.thoughts[entry.body] = (reply.model, reply.thought)
        return reply

    def notify_owner(self, kind: str, text: str) -> None:
        """Tell the owner something with the next flush."""
        self._page.notices.append(
            Notice(
                new_id("note"),
                self.agent.id,
                self.id,
                kind,
                plain(redact(text)),
                self.services.clock(),
            )
        )

    def note(self, event: Event) -> None:
        """Write an event into the audit log with the next flush."""
        self._page.events.append(event)

    def use_grant(self, grant_id: str) -> None:
        """Count a call that a grant covers, with the next flush."""
        self._page.granted.append(grant_id)

    def use_quota(self, use: Use) -> None:
        """Count a call that a policy's quota covers, with the next flush."""
        self._page.uses.append(use)

    @property
    def staged_grants(self) -> Sequence[str]:
        """Grants that calls were made on and that the store does not know of yet."""
        return self._page.granted

    @property
    def uses(self) -> Sequence[Use]:
        """What counts for quotas and the store does not know of yet."""
        return self._page.uses

    def write_beside(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        """Write something more in the transaction of the next flush."""
        self._page.beside.append(work)

    def ask_person(self, approval: ApprovalRecord) -> None:
        """Put a question to a person with the next flush."""
        self._page.approvals.append(approval)
        text = f"{approval.question} (approval {approval.id})"
        answers_here = not self.people.isdisjoint((OWNER, *approval.reviewers))
        if answers_here or PRESENT in approval.reviewers:
            # Who may answer it there must see all of it; others are told no more than needed.
            text = announcement(approval)
        self.deliver(approval.id, text)

    def deliver(self, name: str, text: str) -> None:
        """Send a text to where the matter came from, with the next flush."""
        if self.reply_to is None:
            return
        now = self.services.clock()
        self._page.deliveries.append(
            Delivery(
                key=f"{self.id}/{name}",
                agent_id=self.agent.id,
                turn_id=self.id,
                channel=self.channel,
                target=self.reply_to,
                text=plain(text),
                next_at_ms=now,
                created_at_ms=now,
            )
        )

    async def flush(
        self,
        state: TurnState = TurnState.OPEN,
        *,
        error: str | None = None,
        inside: Callable[[Connection], Awaitable[Draft]] | None = None,
    ) -> Draft | None:
        """Write what is staged and return when it is durable; with `inside`, return its result."""
        await self.wait_for_write()
        page = self._page
        page.state, page.inside = state, inside
        page.error = plain(error) if error else None
        if not page.drafts and state is TurnState.OPEN and inside is None and not page.notices:
            return None
        self._page = PendingWrites()
        if state is not TurnState.OPEN and self.agent.rules and self.rule_state.looks_back:
            self.rule_state.read(self.recorded)
            page.ran = self.rule_state.success_times
        if self._reservations is not None:
            page.charges = self._reservations.take(
                ended=state not in (TurnState.OPEN, TurnState.PARKED)
            )
        if self.joined is not None:
            self.joined.page = page
            return None
        # A task of its own, so that stopping the turn cannot leave a write half awaited.
        self._flushing = asyncio.create_task(self._write(page))
        result = await asyncio.shield(self._flushing)
        self._flushing = None
        return result

    async def wait_for_write(self) -> None:
        """Wait for a write under way."""
        if self._flushing is not None:
            await asyncio.shield(self._flushing)
            self._flushing = None

    def flush_meanwhile(self) -> None:
        """Start to write what is staged; the next flush waits for it.

        For results of calls: they become durable while the model thinks about them, and the reply
        to them is not acted upon before.
        """
        if self._page.drafts and self._flushing is None:
            page, self._page = self._page, PendingWrites()
            if self._reservations is not None:
                page.charges = self._reservations.take()
            self._flushing = asyncio.create_task(self._write(page))

    async def _write(self, page: PendingWrites) -> Draft | None:
        return await self._patiently(lambda: self._commit(page))

    async def _patiently(self, write: Callable[[], Awaitable[T]]) -> T:
        wait = _FIRST_WAIT
        while True:
            try:
                return await write()
            except StoreUnavailable as problem:
                # The turn pauses and nothing of it is lost: it goes on when there is room again.
                self.publish("waiting", {"why": problem.message})
                await asyncio.sleep(wait)
                wait = min(wait * 2, _MAX_WAIT)

    async def _commit(self, page: PendingWrites) -> Draft | None:
        step = page.step = await self._next_step(page) if self.join_group is not None else None
        work, settle = self.prepare(page)
        try:
            written = await self.live.database.write(work)
        except _AlreadyWritten:
            if step is not None:
                step.failed()
            inside = page.inside is not None
            at = self.live.length + len(page.drafts) + 1
            result = await self._result_at(at) if inside else None
            epoch = self.context.epoch
            begun = None if self.context.saved else await self._stored(epoch)
            written: Written = (result, begun, [])
            settle(written)
        except BaseException:
            if step is not None:
                step.failed()
            raise
        else:
            settle(written)
            if step is not None:
                step.done()
        return written[0]

    def prepare(
        self, page: PendingWrites
    ) -> tuple[Callable[[Connection], Awaitable[Written]], Callable[[Written], None]]:
        """Return what writes a page in a transaction, and what notes here that it is committed."""
        live, base = self.live, self.live.length
        context = self.context
        epoch = None if context.saved else context.epoch
        self._keep_trust_of_message(page)
        record, item = self.record, self.item
        opened = self._standing(page, base)

        async def work(tx: Connection) -> Written:
            result = await page.inside(tx) if page.inside is not None else None
            drafts = page.drafts if result is None else [*page.drafts, result]
            begun = await epochs.begin(tx, epoch) if epoch is not None else None
            if begun is not None and begun != epoch:
                drafts = [draft.in_epoch(begun.number) for draft in drafts]
            if not await journal.append(tx, live.claim, base, self.id, drafts):
                raise _AlreadyWritten
            last = base + len(drafts)
            stopped = page.state is TurnState.STOPPED
            if item is not None and not await messages.take(tx, item, stopped=stopped):
                if not stopped and await messages.find(tx, item.id) is not None:
                    raise StoppedBefore(f"{item.id} was stopped before its turn wrote anything.")
                raise LaneLost(f"{item.id} was taken by another worker; it is answered there.")
            if record is None:
                await journal.open_turn(tx, opened, last)
            else:
                await journal.update_turn(tx, opened, last)
            await self._send_off(tx, page)
            await self._follow(tx, page)
            kept = await self._keep_facts(tx, page.facts, base, drafts) if page.facts else []
            return result, begun, kept

        def settle(written: Written) -> None:
            if epoch is context.epoch:
                context.epoch, context.saved = written[1] or context.epoch, True
            self.record = record or opened
            self._is_written(page, base, written)

        return work, settle

    def _is_written(self, page: PendingWrites, base: int, written: Written) -> None:
        """Note that a page is durable, in a journal that had `base` entries before."""
        result, _, kept = written
        self.live.length = self.context.upto = base + len(page.drafts) + (page.inside is not None)
        if page.blobs:
            self.services.kept_blobs.update(blob.id for blob in page.blobs)
        self.item = None
        if result is not None:
            self._note(result)
        for fact in kept:
            self.publish("kept", kept_signal(fact))

    def _standing(self, page: PendingWrites, base: int) -> TurnRecord:
        """Return how the turn stands once a page is written to a journal of `base` entries."""
        context = self.context
        least = context.label.trust
        is_over = page.state not in (TurnState.OPEN, TurnState.PARKED)
        return TurnRecord(
            id=self.id,
            agent_id=self.agent.id,
            state=page.state,
            channel=self.channel,
            reply_to=self.reply_to,
            first_seq=base + 1,
            last_seq=base,
            opened_at_ms=self.opened_at,
            ended_at_ms=self.services.clock() if is_over else None,
            usage=self.usage,
            error=page.error,
            audience=None if context.participants.owner_alone else str(self.source.audience),
            trust=None if least is Trust.OWNER else least.value,
            arrived_at_ms=self.arrived_at,
        )

    async def _follow(self, tx: Connection, page: PendingWrites) -> None:
        """Write what follows from all of it; ask nobody if it was stopped as it came to park."""
        if self.in_every_write is not None:
            await self.in_every_write(tx, page.state)
        if page.state is not TurnState.PARKED:
            return
        parked = await journal.turn_of(tx, self.agent.id, self.id)
        if parked is not None and parked.stopping and not self.agent.id.startswith(GROUP_ID):
            await withdraw_questions_of(tx, parked, parked.stopping, self.services.clock())

    async def _keep_facts(
        self, tx: Connection, wanted: Sequence[str], base: int, drafts: Sequence[Draft]
    ) -> list[KeptFact]:
        """Keep what the owner has said that lasts, with the message as its source."""
        opening = self.recorded["in"]
        seq = opening.seq if isinstance(opening, Entry) else 0
        for place, draft in enumerate(drafts, base + 1):
            seq = place if draft.key == "in" else seq
        services = self.services
        writer = facts.writer_for(
            self.agent,
            self.id,
            (Origin(OriginKind.MESSAGE, self.id, str(seq)),),
            services.clock(),
            services.authority(),
        )
        pairs = [(fact, "") for fact in wanted]
        zone = services.settings.current.zone
        return await keep_facts(tx, writer, self.agent.id, pairs, zone)

    def _keep_trust_of_message(self, page: PendingWrites) -> None:
        """Note how far the message is trusted by itself, where its turn may be trusted less."""
        if page.state is not TurnState.OPEN and self.context.label.trust is Trust.OWNER:
            return
        for place, draft in enumerate(page.drafts):
            if draft.key == "in":
                page.drafts[place] = draft.with_trust(self.speaker_trust)

    async def _send_off(self, tx: Connection, page: PendingWrites) -> None:
        """Write what others are to hear of a page, what its replies refer to, and what it cost."""
        if page.beside:
            await _write_all(tx, page.beside)
        if page.state is not TurnState.OPEN:
            await self._tell_end(tx, page.step)
        for blob in page.blobs:
            await journal.put_blob(tx, blob, self.services.clock())
        for notice in page.notices:
            await agents.put_notice(tx, notice)
        for approval in page.approvals:
            await approvals.put(tx, approval)
        for delivery in page.deliveries:
            await messages.put_delivery(tx, delivery)
        for grant_id in page.granted:
            await approvals.use_grant(tx, grant_id)
        for use in page.uses:
            await approvals.put_quota(tx, use)
        if page.events:
            await events.append(tx, self.agent.id, page.events)
        if page.ran:
            await agents.have_run(tx, self.agent.id, page.ran)
        if page.charges and self._reservations is not None:
            await self._reservations.record(tx, page.charges)

    async def _tell_end(self, tx: Connection, step: GroupStep | None) -> None:
        """Tell other processes, and the group that has asked, that the turn has ended or waits."""
        if self.live.database.distributed:
            await tx.notify("turn", f"{self.id} {self.agent.id}")
        is_asked = self.channel.startswith(GROUP_CHANNEL)
        if is_asked and not (step is not None and await step.write(tx)):
            await self._tell_group(tx)

    async def _tell_group(self, tx: Connection) -> None:
        """Tell the group that has asked how the turn ended, or that it waits for a person."""
        asked = self.question or await groups.find_agent_message(tx, message_id_for(self.id))
        if self._ending is None or asked is None or not asked.key:
            return
        said = self._answer_to_group(asked, self._ending)
        await messages.put_result(tx, said.agent_id, said.id, asked.turn_id, said.body, said.at_ms)

    def _answer_to_group(self, asked: AgentMessage, ending: Outcome) -> InboxItem:
        """Return what the inbox of the group gets of the end of this turn."""
        source, usage = self.source, self.usage
        said = {
            "key": asked.key,
            "state": ending.state.value,
            "text": ending.text,
            "turn": self.id,
            "trust": source.trust.value,
            "audience": str(source.audience),
            "usage": [usage.input, usage.output, usage.cached],
        }
        return InboxItem(
            *(asked.sender_id, 0, new_id("res"), InboxKind.RESULT, "", orjson.dumps(said)),
            self.services.clock(),
            resumes=asked.turn_id,
        )

    async def _next_step(self, page: PendingWrites) -> GroupStep | None:
        """Return what the group does next that has asked, if it can be written with the end."""
        asked, ending = self.question, self._ending
        if self.join_group is None or asked is None or not asked.key or ending is None:
            return None
        if page.state in (TurnState.OPEN, TurnState.PARKED):
            return None
        return await self.join_group(self, self._answer_to_group(asked, ending))

    async def _result_at(self, seq: int) -> Draft:
        entry = await self.live.database.read(lambda tx: journal.entry_at(tx, self.agent.id, seq))
        assert entry is not None
        return Draft(entry.kind, entry.key, entry.body, entry.at_ms, entry.meta)

    async def _stored(self, epoch: Epoch | None) -> Epoch | None:
        if epoch is None:
            return None
        return await self.live.database.read(lambda tx: epochs.find(tx, epoch))

    # -- endings -------------------------------------------------------------------------------

    async def wind_up(self) -> None:
        """Take no more stops, and wait for a write under way: then it is known which calls ran."""
        self.ending = True
        await self.wait_for_write()

    async def finish(self, reply: Reply) -> Outcome:
        """End the turn with its answer."""
        text = reply.text or EMPTY_ANSWER
        self._find_facts()
        self.deliver("answer", text)
        return await self._end(TurnState.DONE, text, None)

    def _find_facts(self) -> None:
        """Keep with the end of the turn what rules read in the message."""
        if not self.may_tell_facts:
            return
        options = self.remember_options
        if options is None or not options.get("rules", True):
            return
        found = lasting_facts(self.message)
        if found and self._ending is None:
            self._page.facts = tuple(found)
            self.stage(EntryKind.ONCE, _FACTS, orjson.dumps(found))

    async def park(self, questions: list[str], *, asked_elsewhere: bool = False) -> Outcome:
        """Leave the turn at rest until a person has decided.

        With `asked_elsewhere` the questions are those of other turns, and kept with this one.
        """
        text = "\n".join(questions)
        return await self._end(TurnState.PARKED, text, text if asked_elsewhere else None)

    async def fail(self, explanation: str) -> Outcome:
        """End the turn with an explanation instead of an answer; the agent knows of it, too."""
        explanation = redact(explanation)
        if self._ending is None:
            self.deliver("answer", explanation)
            self.tell(END, f"Your turn ended here without an answer. You said: {explanation}")
        return await self._end(TurnState.FAILED, explanation, explanation)

    async def stop(self) -> Outcome:
        """End the turn because a person said so."""
        text = self.stop_reason or "Stopped."
        if self._ending is None:
            self.deliver("answer", text)
            self.tell(END, f"Your turn was stopped here by a person: {text}")
        return await self._end(TurnState.STOPPED, text, text)

    async def _end(self, state: TurnState, text: str, error: str | None) -> Outcome:
        # A limit or a stop that comes while the end is being written comes too late.
        self.ending = True
        if self._ending is None:
            self._ending = Outcome(self.id, self.agent.id, state, text, self.usage)
            self._tell_channels(self._ending)
            await self.flush(state, error=error)
        else:
            await self.flush()
        if self.joined is not None:
            self.joined.after.append(self._publish_end)
        else:
            self._publish_end()
        return self._ending

    def _publish_end(self) -> None:
        ending = self._ending
        assert ending is not None
        kind = "parked" if ending.state is TurnState.PARKED else "ended"
        self.publish(kind, {"state": ending.state.value, "text": ending.text})

    def _tell_channels(self, ending: Outcome) -> None:
        """Tell the channels that want to know how turns end, together with the end itself."""
        channels = self.services.settings.current.channels
        if not channels:
            return
        event = "parked" if ending.state is TurnState.PARKED else "ended"
        for name, channel in channels.items():
            if channel.tells(event, self.agent.name):
                told = {"event": event, "agent": self.agent.name, "state": ending.state.value}
                now = self.services.clock()
                self._page.deliveries.append(
                    Delivery(
                        key=f"{self.id}/{event}/{len(self.recorded)}/{name}",
                        agent_id=self.agent.id,
                        turn_id=self.id,
                        channel=name,
                        target=self.agent.name,
                        text=plain(orjson.dumps({**told, "text": ending.text}).decode()),
                        next_at_ms=now,
                        created_at_ms=now,
                    )
                )

    async def let_go(self) -> None:
        """Wait for a write under way, or give it up if the store does not take it."""
        if self._flushing is not None:
            done, _ = await asyncio.wait([self._flushing], timeout=1.0)
            if not done:
                self._flushing.cancel()
            await asyncio.gather(self._flushing, return_exceptions=True)
        reservations, self._reservations = self._reservations, None
        if reservations is not None:
            # It writes by way of the turn: let go of, neither keeps the other alive.
            await reservations.close()

    def publish(self, kind: str, data: dict[str, Any]) -> None:
        """Show watchers what is going on; what a turn leaves to another one, once it is written."""
        if not self.services.hub.is_watched(self.agent.id):
            return
        if self.joined is not None:
            self.joined.after.append(lambda: self.publish(kind, data))
        else:
            self.services.hub.publish(self.agent.id, self.id, kind, data)

    @property
    def is_watched(self) -> bool:
        """Whether somebody is shown what is going on."""
        return self.services.hub.is_watched(self.agent.id)

    def tell(self, key: str, text: str, *, meta: str | None = None) -> None:
        """Say something to the agent in the middle of its turn."""
        self.stage(EntryKind.MESSAGE, key, system_message(text), meta=meta)


async def _write_all(
    tx: Connection, writes: Sequence[Callable[[Connection], Awaitable[None]]]
) -> None:
    for write in writes:
        await write(tx)


def is_withheld(item: InboxItem, participants: Participants) -> bool:
    """Tell whether what opens a turn was planned among fewer people than are present."""
    planned = planned_audience(item.participants)
    return planned is not None and not participants.can_see(planned)


async def keep_facts(
    tx: Connection,
    writer: Writer,
    agent_id: str,
    wanted: Sequence[tuple[str, str]],
    zone: tzinfo,
) -> list[KeptFact]:
    """Keep facts, each with what it replaces; return those that were new.

    Nobody asked for it in so many words, so a fact that cannot be kept is passed over.
    """
    kept: list[KeptFact] = []
    for fact, replaces in wanted:
        try:
            async with tx.savepoint():
                kept.append(
                    await facts.keep(tx, writer, agent_id, fact, replaces=replaces, zone=zone)
                )
        except StoreError:
            raise
        except (AsterismError, WriteNeedsApproval) as problem:
            _log.info("a fact was not kept: %s", problem)
    return [fact for fact in kept if fact.kind is not FactChange.KNOWN]


def kept_signal(fact: KeptFact) -> dict[str, Any]:
    """Return what watchers are shown of a fact that was kept."""
    return {"where": fact.where, "text": fact.text, "before": fact.before}


def _calls_json(calls: Sequence[ProcessorCall]) -> bytes:
    return orjson.dumps(
        [{"name": call.tool, "arguments": dict(call.arguments), "why": call.why} for call in calls]
    )


@asynccontextmanager
async def reservations_for(
    services: TurnServices, agent: AgentRecord, key: str, person: str | None = None
) -> AsyncGenerator[TurnBudget | None]:
    """Yield reservations for a model call outside of a turn; None where nothing is counted.

    It counts for the person who asks for it; None: the owner.
    """
    if services.spending is None:
        yield None
        return
    reservations = TurnBudget(
        services.spending,
        services.database,
        services.clock,
        turn_id=key,
        payer=Payer(agent.id, agent.name, person),
        seconds=agent.limits.seconds,
        write=services.database.write,
    )
    try:
        yield reservations
    finally:
        charges = reservations.take(ended=True)
        await services.database.write(lambda tx: reservations.record(tx, charges))
        await reservations.close()


def without_secrets(reply: Reply) -> Reply:
    """Return a reply without known keys; the very same one if it holds none."""
    text, reasoning = redact(reply.text), redact(reply.reasoning)
    calls = tuple(map(_call_without_secrets, reply.calls)) if reply.calls else ()
    thought = reply.thought
    if thought and redact_json(said := thought.decode("utf-8", "replace")) != said:
        # A vendor takes its own record back unchanged or not at all.
        thought = b""
    if (text, reasoning, calls, thought) == (
        reply.text,
        reply.reasoning,
        reply.calls,
        reply.thought,
    ):
        return reply
    return replace(reply, text=text, reasoning=reasoning, calls=calls, thought=thought)


def _call_without_secrets(call: Call) -> Call:
    name, arguments = redact(call.name), redact_json(call.arguments)
    if name != call.name:
        # Vendors take names of letters, digits, dashes and underscores back, and no others.
        name = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")
    return Call(call.id, name, arguments)


def _client_tools(offer: ClientRequest) -> dict[str, Tool]:
    from asterism.tools.schema import ClientTool

    return {tool.name: tool for tool in map(ClientTool.from_wire, offer.tools)}


def _opening_meta(item: InboxItem) -> str | None:
    """Return what is kept beside the message that opens a turn."""
    offer = ClientRequest.from_json(item.client).offer if item.client else None
    return MessageMeta(item.sender, item.schema, item.participants, offer).to_json()
