"""Agents: how they are made, talked to, searched, halted and taken out of service."""

from __future__ import annotations

import builtins
import contextlib
import logging
import shlex
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from asterism import plugins
from asterism.app.engine import Engine
from asterism.app.session import (
    AnyText,
    Session,
    check_is_text,
    check_version,
    checked_agent_name,
    checked_model,
    checked_schema,
    checked_system,
    no_such,
    note,
    verbs,
)
from asterism.errors import (
    AsterismError,
    Conflict,
    InvalidInput,
    NotAllowed,
    NotFound,
    QuotaReached,
)
from asterism.groups.options import rename_in_options
from asterism.groups.runner import withdraw_questions
from asterism.memory.forgetting.redaction import FORGOTTEN
from asterism.memory.gate.blocks import create_starter_blocks
from asterism.memory.gate.writer import Writer
from asterism.permissions import Act
from asterism.ports import MemberOptionsPattern, ModelRequest, Warm
from asterism.records import dataclass
from asterism.store import agents, groups, journal, messages
from asterism.store.database import Connection
from asterism.telemetry.redaction import RequestRedactor, redact
from asterism.turns.context import enter, load
from asterism.turns.replay import append_past, read_past
from asterism.turns.rules import narrowed
from asterism.turns.runtime import OVERLAP, last_signal, signals_of_turn
from asterism.turns.turn import ALL_AGENTS, end_id, ended_turn, time_of
from asterism.types.agents import (
    DEFAULT_MODEL,
    OWNER,
    OWNER_ALONE,
    AgentRecord,
    Halt,
    Limits,
    Participants,
    image,
    new_id,
    optional_ms,
)
from asterism.types.search import DOMAINS, Query, SearchResult
from asterism.types.turns import (
    MAX_MESSAGE_LENGTH,
    AttachedDocument,
    ClientRequest,
    ImportResult,
    Message,
    MessageOrigin,
    Outcome,
    PastMessage,
    Receipt,
    Signal,
    check_field,
    plain,
    text_of,
    without_stamp,
)

if TYPE_CHECKING:
    from asterism.app.archive import AgentArchive, Archive
    from asterism.app.blocks import AgentBlocks, Blocks

_log = logging.getLogger(__name__)
_NOT_NEEDED = "The group that asked goes on without this answer."

DEFAULT_SYSTEM = (
    "You are {name}, a long-lived assistant in the home of your owner. When asked who you are, say "
    "that you are {name}. You remember what was said in this conversation. Answer briefly and "
    "plainly, and say so when you do not know something."
)


@dataclass(frozen=True, slots=True)
class AgentParts:
    """What the nouns of an agent need, for an actor."""

    blocks: Callable[[], Blocks]
    search: Search
    archive: Callable[[], Archive]
    default_model: Callable[[], str]


class AgentVerbs:
    """The verbs of an agent, whether it was looked up or is only named."""

    __slots__ = ()
    _agents: Agents
    _parts: AgentParts

    @property
    def _meant(self) -> AgentRecord | str:
        """The agent, or its name or id."""
        raise NotImplementedError

    async def ask(self, text: str, **options: Any) -> Outcome:
        """Send a message and wait for the answer; `Agents.send` has the options."""
        return await self._agents.ask(self._meant, text, **options)

    async def send(self, text: str, **options: Any) -> Receipt:
        """Send a message. On return it is stored and will be answered exactly once."""
        return await self._agents.send(self._meant, text, **options)

    def stream(self, text: str, **options: Any) -> AsyncGenerator[Signal, None]:
        """Send a message and yield the signals of its turn, `ended` or `parked` the last."""
        return self._agents.stream(self._meant, text, **options)

    def watch(self, *, after: str | None = None) -> AsyncGenerator[Signal, None]:
        """Yield the signals of all turns of this agent."""
        return self._agents.watch(self._meant, after=after)

    async def search(self, text: str, **filters: Any) -> SearchResult:
        """Return what this agent remembers of something, the best first."""
        return await self._parts.search(self._meant, text, **filters)

    async def edit(self, **changes: Any) -> Agent:
        """Change this agent and return it as it is then; `Agents.edit` has the options."""
        return await self._agents.edit(self._meant, **changes)

    async def delete(self) -> None:
        """Take this agent out of service. Its journal stays and can be read."""
        await self._agents.delete(self._meant)

    async def import_messages(
        self, messages: Sequence[PastMessage | tuple[str, str]]
    ) -> ImportResult:
        """Put a conversation from elsewhere at the end of this agent's past."""
        return await self._agents.import_messages(self._meant, messages)

    @property
    def blocks(self) -> AgentBlocks:
        """The blocks that this agent sees: `await agent.blocks["human"].append("Has a cat.")`."""
        from asterism.app.blocks import AgentBlocks

        return AgentBlocks(self._parts.blocks(), self._meant)

    @property
    def archive(self) -> AgentArchive:
        """What this agent keeps for later: `await agent.archive.add("The rent is due.")`."""
        from asterism.app.archive import AgentArchive

        return AgentArchive(self._parts.archive(), self._meant)


@dataclass(frozen=True, slots=True)
class Agent(AgentRecord, AgentVerbs):
    """An agent of an open home: its record and its verbs."""

    _agents: Agents = field(kw_only=True, repr=False, compare=False)
    _parts: AgentParts = field(kw_only=True, repr=False, compare=False)

    @property
    def _meant(self) -> AgentRecord:
        return self

    @property
    def model_in_use(self) -> str:
        """The model that this agent thinks with now, as `vendor:name`."""
        if self.model != DEFAULT_MODEL:
            return self.model
        return self._parts.default_model()


@dataclass(frozen=True, slots=True)
class NamedAgent(AgentVerbs):
    """An agent by its name or id, `home.agents["aria"]`: each verb looks it up when it is used."""

    name: str
    _agents: Agents = field(kw_only=True, repr=False, compare=False)
    _parts: AgentParts = field(kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_is_text(self.name, "An agent")

    @property
    def _meant(self) -> str:
        return self.name

    async def get(self) -> Agent:
        """Return the agent as it is now."""
        return await self._agents.get(self.name)


def bound_agent(record: AgentRecord, verbs: Agents, parts: AgentParts) -> Agent:
    """Return a record as an agent that can be talked to."""
    values = [getattr(record, name) for name in _RECORD_FIELDS]
    return Agent(*values, _agents=verbs, _parts=parts)


_RECORD_FIELDS = tuple(field.name for field in fields(AgentRecord))


def own_external_id(session: Session, external_id: str | None) -> str | None:
    """Return an external id that is never that of a message of somebody else.

    The same id again is answered with the earlier turn, which only its sender may see.
    """
    if external_id is None:
        return None
    if not session.is_owner:
        return f"{session.actor.id}:{external_id}"
    if session.limits is not None and session.limits.agents is not None:
        return f"{session.limits.id}:{external_id}"
    return external_id


def check_same_target(receipt: Receipt, target: str, external_id: str | None) -> None:
    """Raise `Conflict` if the message that had an id before went to somebody else."""
    if receipt.duplicate and receipt.agent_id != target:
        raise Conflict(
            f"A message with the id {external_id!r} was handed to another agent or group before "
            f"(turn {receipt.turn_id}). Give each message an id of its own. Nothing was stored."
        )


async def check_same_text(
    session: Session, receipt: Receipt, text: str, external_id: str | None
) -> None:
    """Raise `Conflict` if the message that had an id before says something else."""
    if not receipt.duplicate:
        return

    async def read(tx: Connection) -> bytes | None:
        item = await messages.find(tx, receipt.message_id)
        record = await journal.turn(tx, receipt.turn_id) if item is None else None
        if record is None:
            return item.body if item is not None else None
        entries = await journal.entries_of(tx, record)
        return next((entry.body for entry in entries if entry.key == "in"), None)

    body = await session.database.read(read)
    former, now = without_stamp(text_of(body)) if body is not None else "", redact(text)
    # Behind the words of a message stand its documents; of what was forgotten nothing is known.
    if not former or former == now or former.startswith(f"{now}\n") or FORGOTTEN in former:
        return
    raise Conflict(
        f"A message with the id {external_id!r} was handed in before and says something else (turn "
        f"{receipt.turn_id}). Give each message an id of its own. Nothing was stored."
    )


async def signals_of(
    engine: Engine, session: Session, agent_id: str, after: str | None
) -> AsyncGenerator[Signal, None]:
    """Yield the signals of the turns of an agent or a group that the actor may see."""
    hub, visible = engine.hub, set[str]()
    while True:
        told: set[str] = set()
        if after is not None and not hub.knows(agent_id, after):
            yield Signal(after, agent_id, "", "gap", {})
            # From here on signals are kept, so that nothing falls between journal and log.
            since, place = after, hub.place(agent_id)
            async for signal in _ended_since(engine, session, agent_id, since):
                told.add(signal.turn_id)
                yield signal
            after = place
        behind = False
        async with contextlib.aclosing(hub.watch(agent_id, after)) as signals:
            async for signal in signals:
                if behind := signal.kind == "gap":
                    break
                after = signal.id
                if signal.turn_id not in told and await _may_watch(session, signal, visible):
                    yield signal
        if not behind:
            return


_ENDS_AT_ONCE = 50
"""Turns whose ends are read together."""


async def _ended_since(
    engine: Engine, session: Session, agent_id: str, signal_id: str
) -> AsyncGenerator[Signal, None]:
    """Yield from the journal how the turns have ended whose ends may have been missed."""
    told, since = ended_turn(signal_id), time_of(signal_id) - OVERLAP
    missed = await session.database.read(
        lambda tx: journal.ended_since(tx, agent_id or None, since)
    )
    visible: set[str] = set()
    for start in range(0, len(missed), _ENDS_AT_ONCE):
        ends: dict[str, Signal] = {}
        for record in missed[start : start + _ENDS_AT_ONCE]:
            own = end_id(record.id, record.ended_at_ms or 0)
            last = Signal(own, record.agent_id, record.id, "ended", {})
            if record.id != told and await _may_watch(session, last, visible):
                ends[record.id] = last
        for outcome in await engine.runtime.outcomes(list(ends)):
            yield replace(ends[outcome.turn_id], data=last_signal(outcome).data)


async def _may_watch(session: Session, signal: Signal, visible: set[str]) -> bool:
    """Tell whether the actor may see a turn of an agent; `visible` are those known so far."""
    turn_id = signal.turn_id
    if not session.sees_agent(signal.agent_id):
        return False
    if session.sees_every_audience or turn_id in visible:
        return True
    if not await session.sees_turn(turn_id):
        return False
    visible.add(turn_id)
    return True


@verbs(
    "agent",
    list=Act.READ,
    get=Act.TALK,
    create=Act.GOVERN,
    ensure=Act.GOVERN,
    edit=Act.GOVERN,
    clone=Act.GOVERN,
    archive=Act.GOVERN,
    unarchive=Act.GOVERN,
    delete=Act.DELETE,
    send=Act.TALK,
    ask=Act.TALK,
    stream=Act.TALK,
    watch=Act.READ,
    warm=Act.TALK,
    import_messages=Act.APPEND,
)
class Agents:
    """The agents of a home: made, talked to, changed and taken out of service."""

    def __init__(
        self,
        engine: Engine,
        session: Session,
        search: Search,
        archive: Callable[[], Archive],
    ) -> None:
        self._engine = engine
        self._session = session
        self._parts = AgentParts(
            self._blocks, search, archive, lambda: engine.settings.default_model
        )

    def _blocks(self) -> Blocks:
        from asterism.app.blocks import Blocks

        return Blocks(self._session)

    # -- which there are -------------------------------------------------------------------------

    def __getitem__(self, name: str) -> NamedAgent:
        """Return an agent by its name or id; nothing is read yet."""
        return NamedAgent(name, _agents=self, _parts=self._parts)

    __iter__ = None  # else Python would go through names 0, 1, 2 and so on without an end

    async def list(self, *, archived: bool | None = False) -> builtins.list[Agent]:
        """Return the agents by name: those at work, or with `archived` the archived ones.

        With `archived=None`, both.
        """
        records = await self._session.database.read(self._session.agents_in)
        return [
            self._bind(record)
            for record in records
            if archived is None or (record.archived_at_ms is not None) == archived
        ]

    async def get(self, name: str) -> Agent:
        """Return an agent by name or id."""
        return self._bind(await self._session.agent(name))

    def _bind(self, record: AgentRecord) -> Agent:
        """Return a record as an agent that can be talked to."""
        return bound_agent(record, self, self._parts)

    async def create(
        self,
        name: str,
        *,
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
        limits: Limits | None = None,
    ) -> Agent:
        """Create an agent; its name must be free."""
        name = checked_agent_name(name)
        agent = new_record(self._engine, self._session, name, model, system, tools, limits)

        async def work(tx: Connection) -> bool:
            await check_quota(self._engine, tx)
            if not await agents.create(tx, agent):
                return False
            await self._begin_memory(tx, agent)
            await self._note(tx, "agent.created", agent, model=agent.model)
            return True

        if not await self._session.database.write(work):
            raise Conflict(
                f"There is an agent or a group named {name!r} already. Choose another name, or "
                f'change it with "asterism agent edit {shlex.quote(name)}". Nothing was created.'
            )
        return self._bind(agent)

    async def ensure(
        self,
        name: str,
        *,
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
        limits: Limits | None = None,
    ) -> Agent:
        """Return the agent of that name; create it with these options if it does not exist."""
        new = new_record(self._engine, self._session, name, model, system, tools, limits)

        async def work(tx: Connection) -> AgentRecord:
            existing = await agents.by_name(tx, name)
            if existing is None:
                checked_agent_name(name)
                await check_quota(self._engine, tx)
            if existing is None and await agents.create(tx, new):
                await self._begin_memory(tx, new)
                await self._note(tx, "agent.created", new, model=new.model)
                return new
            # On PostgreSQL somebody may have been quicker between the two.
            existing = existing or await agents.by_name(tx, name)
            if existing is None:
                raise Conflict(
                    f"There is a group named {name!r}. Choose another name. Nothing was created."
                )
            return existing

        return self._bind(await self._session.database.write(work))

    async def _begin_memory(self, tx: Connection, agent: AgentRecord) -> None:
        """Give a new agent the blocks that every agent begins with."""
        await create_starter_blocks(tx, Writer.owner(agent.created_at_ms, by="api"), agent.id)

    async def edit(
        self,
        agent: AgentRecord | str,
        *,
        new_name: str | None = None,
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
        all_tools: bool = False,
        limits: Limits | None = None,
        version: int | None = None,
    ) -> Agent:
        """Change an agent from its next turn on; options that you leave out stay unchanged.

        With `version`, the agent must still have that one; else `Changed` is raised.
        """
        now = await self._session.agent(agent)
        if new_name is not None and self._session.only_agents is not None:
            # A name that is taken would tell of agents that do not exist for this token.
            raise NotAllowed(
                f"{now.name} cannot be renamed with a token for some agents only. Use a token for "
                "all agents. Nothing was changed."
            )
        chosen = now.tools if tools is None else _checked_tools(self._engine, tools)
        if new_name is not None and new_name != now.name:
            checked_agent_name(new_name)
        changed = replace(
            now,
            name=now.name if new_name is None else new_name,
            model=checked_model(model) if model is not None else now.model,
            system=checked_system(system) if system is not None else now.system,
            tools=None if all_tools else chosen,
            limits=limits or now.limits,
        )
        different = [
            name for name in _RECORD_FIELDS if getattr(now, name) != getattr(changed, name)
        ]

        async def work(tx: Connection) -> int | None:
            check_version(now.name, await agents.by_id(tx, now.id), version)
            if "name" in different and (
                await agents.has_name(tx, changed.name) or await agents.by_name(tx, changed.name)
            ):
                raise Conflict(
                    f"There is an agent or a group named {changed.name!r} already. Choose another "
                    "name. Nothing was changed."
                )
            if "name" in different:
                await self._rename_in_groups(tx, now.id, changed.name)
            edited = await agents.edit(tx, changed)
            if edited is not None:
                await self._note(tx, "agent.changed", changed, changed=different)
            return edited

        written = await self._session.database.write(work)
        if written is None:
            raise NotFound(f"The agent {now.name!r} was deleted meanwhile. Nothing was changed.")
        self._engine.runtime.forget(now.id)
        return self._bind(replace(changed, version=written))

    async def _rename_in_groups(self, tx: Connection, agent_id: str, name: str) -> None:
        """Put another name of an agent into the options of its groups, before it has that name."""
        installed = plugins.names("patterns")
        for group in await groups.with_member(tx, agent_id):
            if group.pattern not in installed:
                continue
            pattern = self._engine.pattern(group.pattern)
            if not isinstance(pattern, MemberOptionsPattern):
                continue
            options = rename_in_options(pattern, group, agent_id, name)
            if options != group.options:
                await groups.set_options(tx, group.id, options)
                about = {"agent_id": group.id, "what": group.name, "pattern": group.pattern}
                await note(tx, self._session, "group.changed", by="api", **about)

    async def clone(self, agent: AgentRecord | str, name: str) -> Agent:
        """Make another agent with the same past and memory; what is under way stays where it is."""
        now = await self._session.agent(agent)
        copy = copied_record(self._engine, self._session, now, checked_agent_name(name))

        async def work(tx: Connection) -> bool:
            writer = await self._session.writer(tx, "clone", f"a copy of {now.name}")
            end = await journal.end_of_past(tx, now.id)
            if not await create_copy(tx, self._engine, writer, now, copy, end):
                return False
            await self._note(tx, "agent.cloned", copy, of=now.name)
            return True

        if not await self._session.database.write(work):
            raise Conflict(
                f"There is an agent or a group named {name!r} already. Choose another name. "
                "Nothing was created."
            )
        self._engine.indexing.kick(copy.id)
        return self._bind(copy)

    async def archive(self, agent: AgentRecord | str, *, version: int | None = None) -> Agent:
        """Let an agent rest: it is in no list and takes no turns until it is unarchived.

        Its memory and its journal stay and can be read. A turn under way ends; messages and
        schedules that wait are kept for later, and new messages are refused. A group that waits
        for its answer is told that it is not available, and goes on without it. With `version`, the
        agent must still have that one; else `Changed` is raised.
        """
        return await self._set_archived(agent, self._session.clock(), version)

    async def unarchive(self, agent: AgentRecord | str, *, version: int | None = None) -> Agent:
        """Put an archived agent back to work, first on what has waited meanwhile.

        With `version`, the agent must still have that one; else `Changed` is raised.
        """
        return await self._set_archived(agent, None, version)

    async def _set_archived(
        self, agent: AgentRecord | str, at: int | None, expected: int | None
    ) -> Agent:
        now = await self._session.agent(agent)
        kind = "agent.archived" if at is not None else "agent.unarchived"

        async def work(tx: Connection) -> tuple[int | None, builtins.list[str]]:
            check_version(now.name, await agents.by_id(tx, now.id), expected)
            version = await agents.set_archived(tx, now.id, at)
            if version is None:
                return None, []
            await self._note(tx, kind, now)
            if at is None:
                return version, []
            return version, await self._withdraw(tx, now, "archived", at)

        version, unneeded = await self._session.database.write(work)
        if version is None:
            state = "archived already" if at is not None else "not archived"
            raise Conflict(f"{now.name} is {state}. Nothing was changed.")
        self._engine.runtime.forget(now.id)
        self._stop_turns(unneeded)
        if at is None:
            self._engine.wake(now.id)
        return self._bind(replace(now, archived_at_ms=at, version=version))

    async def delete(self, agent: AgentRecord | str, *, version: int | None = None) -> Agent:
        """Take an agent out of service. Its journal stays and can be read.

        A group that waits for its answer is told that it is not available, and goes on without it.
        With `version`, the agent must still have that one; else `Changed` is raised.
        """
        now = await self._session.agent(agent)
        at = self._session.clock()

        async def work(tx: Connection) -> builtins.list[str]:
            check_version(now.name, await agents.by_id(tx, now.id), version)
            await agents.delete(tx, now.id, at)
            unneeded = await self._withdraw(tx, now, "deleted", at)
            waiting = await messages.waiting(tx, now.id)
            unanswered = [item for item in waiting if item.stopped is None]
            if unanswered:
                raise Conflict(
                    f"{now.name} has {len(unanswered)} messages to answer first. Wait until it has "
                    "answered them. Nothing was deleted."
                )
            if now.archived_at_ms is not None:
                # Its lane rests, and would never take out what was stopped.
                for item in waiting:
                    await messages.take(tx, item, stopped=True)
                    if (parked := await journal.turn(tx, item.turn_id)) is not None:
                        await journal.end_stopped(tx, parked, item.stopped or _NOT_NEEDED, at)
            await self._note(tx, "agent.deleted", now)
            return unneeded

        unneeded = await self._session.database.write(work)
        self._engine.runtime.forget(now.id)
        self._stop_turns(unneeded)
        return self._bind(now)

    async def _withdraw(
        self, tx: Connection, agent: AgentRecord, change: str, at: int
    ) -> builtins.list[str]:
        """Tell the groups that wait for an agent that it is gone; return its turns for them."""
        turn_ids = await withdraw_questions(tx, agent.id, f"it was {change}", at)
        for turn_id in turn_ids:
            await self._engine.runtime.withdraw(tx, turn_id, _NOT_NEEDED)
        return turn_ids

    def _stop_turns(self, turn_ids: Sequence[str]) -> None:
        """End those turns that are under way here."""
        for turn_id in turn_ids:
            self._engine.runtime.stop_turn(turn_id, _NOT_NEEDED)

    async def _note(self, tx: Connection, kind: str, agent: AgentRecord, **body: Any) -> None:
        """Add an event about an agent to the audit log."""
        await note(tx, self._session, kind, by="api", agent_id=agent.id, what=agent.name, **body)

    # -- messages --------------------------------------------------------------------------------

    async def send(
        self,
        agent: AgentRecord | str,
        text: AnyText,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = (),
        schema: Mapping[str, Any] | None = None,
        room: str | None = None,
        present: Sequence[str] = (),
        client: ClientRequest | None = None,
        repeat_seconds: float | None = None,
        documents: Sequence[AttachedDocument] = (),
        retry_of: str | None = None,
    ) -> Receipt:
        """Hand in a message. On return it is stored and will be answered exactly once.

        Args:
            agent: The agent, or its name or id.
            text: What is said.
            channel: Where it comes from, and where the answer goes if there is `reply_to`.
            external_id: The message's id there; the same id again is the same message.
            sender: Who says it, by their name in the channel; None: the owner.
            reply_to: Where in the channel the answer is delivered.
            images: PNG, JPEG, GIF or WebP files that belong to the message.
            schema: A JSON schema; the answer's text will be JSON that fulfils it.
            room: The room of the channel where it is said; None: in private.
            present: Who else is there, by their names in the channel. The agent sees only what
                everyone present may see.
            client: What the program that sends the message asks for beside it: tools that it
                carries out itself, instructions, and what was said before in its conversation.
            repeat_seconds: How long after the answer the same `external_id` is still the same
                message, and not a new one; None: for ever.
            documents: Documents that belong to the message. The agent reads their text beside it,
                marked as text from documents, and as much of it as its model can take in.
            retry_of: The id of an earlier turn of the agent whose message this is, asked again.

        Where somebody other than the owner acts, it is they who speak, in private: `channel`,
        `sender`, `reply_to`, `room` and `present` are the owner's and the channels' to say, and
        `external_id` is one of theirs.
        """
        speaker = None
        if not self._session.is_owner:
            speaker = self._speaker(
                channel=channel != "api",
                sender=sender,
                reply_to=reply_to,
                room=room,
                present=present,
            )
        agent_id = await self._session.id_of(agent)
        if documents or retry_of:
            client = replace(
                client or ClientRequest(),
                documents=tuple(documents),
                retry_of=await self._retried(agent_id, retry_of) if retry_of else "",
            )
        message = Message(
            agent_id,
            (text, *map(image, images)),
            MessageOrigin(channel, sender, reply_to, room),
            own_external_id(self._session, external_id),
            tuple(present),
            checked_schema(schema) if schema is not None else None,
            _checked_client(client) if client is not None else None,
            None if repeat_seconds is None else int(repeat_seconds * 1000),
        )
        receipt = await self._engine.runtime.accept(
            message,
            speaker,
            may_decide=self._session.only_agents is None,
            token=self._session.token,
        )
        if channel == "api":
            check_same_target(receipt, message.target, external_id)
        if channel == "api" and repeat_seconds is None:
            await check_same_text(self._session, receipt, text, external_id)
        return receipt

    async def _retried(self, agent_id: str, turn_id: str) -> str:
        """Return the id of a turn of an agent, or raise `NotFound`."""
        record = await self._session.database.read(lambda tx: journal.turn(tx, turn_id))
        visible = record is not None and await self._session.sees_turn(turn_id)
        if record is None or record.agent_id != agent_id or not visible:
            raise NotFound(
                f"There is no turn {turn_id!r} of this agent to ask again. "
                '"asterism turn list" shows the latest turns. Nothing was stored.'
            )
        return turn_id

    def _speaker(self, **options: object) -> str:
        """Return who speaks where somebody acts who is not the owner: they themselves."""
        actor = self._session.actor
        names = [name for name, value in options.items() if value]
        if names:
            raise InvalidInput(
                f"{actor.name} speaks for themselves, so that {' and '.join(names)} cannot be "
                "given. Leave it out, or let the owner hand the message in. Nothing was stored."
            )
        return actor.id

    async def ask(self, agent: AgentRecord | str, text: AnyText, **options: Any) -> Outcome:
        """Hand in a message and wait for how its turn ends."""
        return await self._engine.runtime.wait(await self.send(agent, text, **options))

    async def stream(
        self, agent: AgentRecord | str, text: AnyText, **options: Any
    ) -> AsyncGenerator[Signal, None]:
        """Hand in a message and yield the signals of its turn, `ended` or `parked` the last."""
        agent_id = await self._session.id_of(agent)
        runtime = self._engine.runtime
        async with contextlib.aclosing(
            signals_of_turn(
                self._engine.hub,
                runtime.wait,
                agent_id,
                lambda: self.send(agent_id, text, **options),
            )
        ) as signals:
            async for signal in signals:
                yield signal

    async def watch(
        self, agent: AgentRecord | str | None = None, *, after: str | None = None
    ) -> AsyncGenerator[Signal, None]:
        """Yield the signals of all turns of an agent, or of everybody, after the signal `after`.

        Without an agent, those of groups are told as well, as far as the actor may see them.

        If the log of signals does not reach back that far, or is that of another process, the turns
        that ended since are told from the journal first, after a signal `gap`; one that ended just
        before `after` may be told again.
        """
        agent_id = ALL_AGENTS if agent is None else await self._session.id_of(agent)
        async with contextlib.aclosing(
            signals_of(self._engine, self._session, agent_id, after)
        ) as signals:
            async for signal in signals:
                yield signal

    async def import_messages(
        self, agent: AgentRecord | str, messages: Sequence[PastMessage | tuple[str, str]]
    ) -> ImportResult:
        """Put a conversation from elsewhere at the end of an agent's past; nobody is asked.

        All of it is stored, or nothing. Whoever else spoke in it, only the owner may see it. What
        somebody other than the owner imports is theirs, and trusted as far as they are.

        Args:
            agent: The agent, or its name or id. It must have nothing to answer.
            messages: What was said, in order of time, a person's message first. A pair of "user" or
                "assistant" and a text is a message without a speaker and a time.

        Returns:
            The ids of the turns that it has become, and of the messages.
        """
        agent_id, session, at = (
            await self._session.id_of(agent),
            self._session,
            self._session.clock(),
        )
        past = read_past(messages, at, OWNER if session.writes_as_owner else session.actor.id)

        async def work(tx: Connection) -> ImportResult:
            trust = (await session.writer(tx, "api")).source.trust
            imported = await append_past(tx, agent_id, past, at, trust)
            count = len(imported.messages)
            await note(tx, session, "messages.imported", by="api", agent_id=agent_id, count=count)
            return imported

        try:
            return await session.database.write(work)
        finally:
            # The commit may come although nobody waits for it any more.
            self._engine.runtime.forget(agent_id)
            self._engine.indexing.kick(agent_id)

    # -- models ----------------------------------------------------------------------------------

    async def warm(self, agent: AgentRecord | str) -> None:
        """Let the model of an agent get ready while nobody has asked anything yet, if it can."""
        engine = self._engine
        if isinstance(agent, AgentRecord):
            await self._session.id_of(agent)
        else:
            agent = await self._session.agent(agent)
        try:
            link = engine.models.link(engine.models.chain(agent.model)[0])
            if not isinstance(link.port, Warm):
                return
            live = await load(engine.database, agent.id, None, engine.settings.zone_name)
            tokens = engine.settings.context.tokens
            participants = await engine.database.read(self._session.participants)
            await enter(live, participants, tokens, engine.clock())
            tools = engine.toolbox.wire(agent.tools, compact=link.profile.compact)
            request = ModelRequest(
                model=link.name,
                messages=live.messages(link.profile),
                tools=narrowed(tools, agent.rules),
                key="warm",
                timeout=agent.limits.seconds,
                agent_id=agent.id,
            )
            await link.port.warm(RequestRedactor().request(request))
        except AsterismError as problem:
            # Whoever asks will be told; this was only a head start.
            _log.info("%s could not get ready: %s", agent.model, problem.message)


def new_record(
    engine: Engine,
    session: Session,
    name: str,
    model: str | None = None,
    system: str | None = None,
    tools: Sequence[str] | None = None,
    limits: Limits | None = None,
) -> AgentRecord:
    """Return the record of a new agent, which is stored nowhere yet."""
    return AgentRecord(
        id=new_id("agent"),
        name=name,
        model=checked_model(model or DEFAULT_MODEL),
        system=checked_system(DEFAULT_SYSTEM.format(name=name) if system is None else system),
        created_at_ms=session.clock(),
        tools=_checked_tools(engine, tools),
        limits=limits or Limits(**engine.settings.limits.model_dump()),
    )


def copied_record(
    engine: Engine,
    session: Session,
    origin: AgentRecord,
    name: str,
    model: str | None = None,
    system: str | None = None,
) -> AgentRecord:
    """Return another agent with the settings, the tools and the rules of one."""
    text = origin.system if system is None else system
    new = new_record(engine, session, name, model or origin.model, text, None, origin.limits)
    return replace(new, tools=origin.tools, rules=origin.rules)


async def create_copy(
    tx: Connection,
    engine: Engine,
    writer: Writer,
    origin: AgentRecord,
    copy: AgentRecord,
    before: int,
    moment: int | None = None,
) -> bool:
    """Create a copy of an agent with its past and its memory; False if its name is taken.

    It gets the journal up to the entry `before`, and memory as it was at `moment`; None: as it is.
    """
    from asterism.memory.gate.copies import fork_memory

    await check_quota(engine, tx)
    if not await agents.create(tx, copy):
        return False
    await journal.copy_before(tx, origin.id, before, copy.id)
    await fork_memory(tx, writer, origin.id, copy.id, moment=moment)
    return True


async def check_quota(engine: Engine, tx: Connection) -> None:
    """Raise `QuotaReached` if there are as many agents as there may be."""
    most = engine.settings.quotas.agents
    if most is not None and await agents.count(tx) >= most:
        raise QuotaReached(
            f"There are {most:,} agents, and quotas.agents allows no more. Delete one, or raise "
            "the quota. Nothing was created."
        )


_MAX_CLIENT_TOOLS = 128
_MAX_DOCUMENTS = 16


def _checked_client(client: ClientRequest) -> ClientRequest:
    """Return what a program asks for as it can be kept, or raise `InvalidInput`."""
    from asterism.tools.schema import ClientTool

    if len(client.tools) > _MAX_CLIENT_TOOLS:
        raise InvalidInput(
            f"{len(client.tools)} tools come with the message; the limit is {_MAX_CLIENT_TOOLS}. "
            "Nothing was stored."
        )
    tools = {tool.name: tool.wire() for tool in map(ClientTool.from_wire, client.tools)}
    if len(tools) < len(client.tools):
        raise InvalidInput("Two tools of the program have the same name. Nothing was stored.")
    if client.choice not in ("auto", "required", *tools):
        raise InvalidInput(
            f"{client.choice!r} is not among the tools that come with the message, so that it "
            "cannot be required. Nothing was stored."
        )
    for text in (client.instructions, *client.history):
        check_field("What the program sends along", plain(text), MAX_MESSAGE_LENGTH)
    return ClientRequest(
        tuple(tools.values()),
        client.choice,
        plain(redact(client.instructions)),
        tuple(plain(redact(said)) for said in client.history),
        _checked_documents(client.documents),
        client.retry_of,
    )


def _checked_documents(documents: Sequence[AttachedDocument]) -> tuple[AttachedDocument, ...]:
    """Return attached documents as they can be kept, or raise `InvalidInput`."""
    if len(documents) > _MAX_DOCUMENTS:
        raise InvalidInput(
            f"{len(documents)} documents are attached to the message; the limit is "
            f"{_MAX_DOCUMENTS}. Attach fewer, or add their folder as a source. Nothing was stored."
        )
    for document in documents:
        check_field("The name of a document", document.name)
        if len(document.text) > MAX_MESSAGE_LENGTH:
            raise InvalidInput(
                f"The document {document.name!r} has {len(document.text):,} characters; the limit "
                f"is {MAX_MESSAGE_LENGTH:,}. Attach a part of it, or add its folder as a source. "
                "Nothing was stored."
            )
    return tuple(
        AttachedDocument(
            plain(redact(document.name)), plain(redact(document.text)), document.left_out
        )
        for document in documents
    )


def _checked_tools(engine: Engine, names: Sequence[str] | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    there = engine.toolbox.names()
    for name in names:
        if name not in there:
            raise NotFound(no_such("tool", name, there))
    return tuple(names)


@verbs("search", __call__=Act.READ, catch_up=Act.GOVERN, progress=Act.READ, check=Act.READ)
class Search:
    """Search over all that agents remember: `await home.search("aria", "bicycle")`."""

    def __init__(self, engine: Engine, session: Session) -> None:
        self._engine = engine
        self._session = session

    async def __call__(
        self,
        agent: AgentRecord | str | None,
        text: AnyText,
        *,
        domains: Sequence[str] = DOMAINS,
        speaker: str | None = None,
        role: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        tags: Sequence[str] = (),
        source: str | None = None,
        participants: Participants = OWNER_ALONE,
        limit: int = 10,
        offset: int = 0,
        moment: datetime | None = None,
        neighbours: int = 0,
    ) -> SearchResult:
        """Return what memory has on a query, the best first; any text is a query.

        Args:
            agent: Whose memory; None: that of all agents.
            text: What is looked for. Without a word in it, the newest are found.
            domains: Where to look.
            speaker: Only what this one said, by name, id or account.
            role: Only messages of `user` or `assistant`.
            since: Only what is of this time or later.
            until: Only what is of this time or earlier.
            tags: Only passages that have all of these.
            source: Only documents of the source with this name or id.
            participants: Those present; what one of them may not see is not there.
            limit: How many hits.
            offset: How many of the best are left out: the pages before.
            moment: As memory was then; None: now.
            neighbours: How many texts before and after each hit come with it.
        """
        session = self._session
        query = Query(
            text,
            domains=tuple(domains),
            speaker=speaker,
            role=role,
            since=optional_ms(since),
            until=optional_ms(until),
            tags=tuple(tags),
            source=source,
            limit=limit,
            offset=offset,
            moment=optional_ms(moment),
            neighbours=neighbours,
        )

        wanted = await session.id_of_any(None) if agent is None else agent

        async def owner_id(tx: Connection) -> str | None:
            return None if wanted is None else (await session.agent_in(tx, wanted)).id

        return await self._engine.searcher.find(
            owner_id, query, lambda tx: session.among(tx, participants)
        )

    async def catch_up(self) -> None:
        """Put all texts into the index and encode them now, not in the background."""
        await self._engine.indexing.catch_up()

    async def progress(self) -> tuple[int, int]:
        """Return how many of the indexed texts are encoded, and how many there are."""
        return await self._engine.indexing.progress()

    async def check(self) -> str | None:
        """Ask the encoder for a vector; return the problem, or None."""
        return await self._engine.indexing.check()


@verbs(
    "home",
    current=Act.READ,
    halt=Act.GOVERN,
    resume=Act.GOVERN,
)
class Halts:
    """Halts: stop all agents of a constellation, and let them continue."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def current(self) -> Halt | None:
        """Return the halt that stops all turns, or None if there is no halt."""
        session = self._session

        async def read(tx: Connection) -> Halt | None:
            halt = await agents.current_halt(tx)
            if halt is None or session.sees_all:
                return halt
            visible = await session.visible_turns(tx, [halt.turn_id])
            # That everything stands still is no secret; what led to it may be one.
            return halt if visible else replace(halt, reason="", agent_id=None, turn_id=None)

        return await session.database.read(read)

    async def halt(self, reason: str = "") -> Halt:
        """Stop all agents until `resume`; what comes in meanwhile waits. A reason is optional."""
        session = self._session
        halt = Halt(new_id("halt"), None, None, "critical", reason.strip(), session.clock())
        await session.database.write(lambda tx: agents.put_halt(tx, halt))
        return halt

    async def resume(self, by: str = "owner") -> Halt:
        """Let all agents continue; return the halt that had stopped them."""
        session, at = self._session, self._session.clock()

        async def work(tx: Connection) -> Halt:
            stood = await agents.current_halt(tx)
            if stood is None:
                raise Conflict("Nothing is halted. Nothing was changed.")
            await agents.lift_halt(tx, by, at)
            return stood

        return await session.database.write(work)
