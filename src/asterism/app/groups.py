"""Groups: agents that answer together; how they are made, changed, talked to and read."""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any

import orjson

from asterism import plugins
from asterism.app.agents import (
    check_same_target,
    check_same_text,
    own_external_id,
    signals_of,
)
from asterism.app.engine import Engine
from asterism.app.session import (
    ACCESS_CHANGED,
    AnyText,
    Session,
    check_is_text,
    check_version,
    checked_agent_name,
    first_visible,
    no_such,
    no_such_position,
    note,
    verbs,
)
from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.groups.options import check_members_named, names_in_options
from asterism.groups.runner import next_look
from asterism.permissions import Act
from asterism.ports import WatchingPattern
from asterism.records import dataclass
from asterism.store import agents, groups, journal, messages
from asterism.store.database import Connection
from asterism.turns.runtime import signals_of_turn
from asterism.types.agents import OWNER, AgentRecord, Audience, image, new_id
from asterism.types.groups import (
    NO_SECRET_ANSWER,
    SECRET_ANSWER,
    GroupEvent,
    GroupMember,
    GroupRecord,
    Role,
)
from asterism.types.turns import (
    Entry,
    InboxKind,
    Message,
    MessageMeta,
    MessageOrigin,
    Outcome,
    Receipt,
    Reply,
    Signal,
    TurnRecord,
    check_field,
    text_of,
)

MAX_MEMBERS = 200
MAX_WEIGHT = 1_000.0
_RECORD_FIELDS = tuple(each.name for each in fields(GroupRecord))


class GroupVerbs:
    """The verbs of a group, whether it was looked up or is only named."""

    __slots__ = ()
    _groups: Groups

    @property
    def _meant(self) -> GroupRecord | str:
        """The group, or its name or id."""
        raise NotImplementedError

    async def ask(self, text: str, **options: Any) -> Outcome:
        """Send a message and wait for the group's answer; `Groups.send` has the options."""
        return await self._groups.ask(self._meant, text, **options)

    async def send(self, text: str, **options: Any) -> Receipt:
        """Send a message. On return it is stored and will be answered exactly once."""
        return await self._groups.send(self._meant, text, **options)

    def stream(self, text: str, **options: Any) -> AsyncGenerator[Signal, None]:
        """Send a message and yield the signals of the group's turn, `ended` or `parked` last."""
        return self._groups.stream(self._meant, text, **options)

    async def transcript(self, **options: Any) -> list[GroupEvent]:
        """Return what was said and decided in this group."""
        return await self._groups.transcript(self._meant, **options)

    async def edit(self, **changes: Any) -> Group:
        """Change this group and return it as it is then; `Groups.edit` has the options."""
        return await self._groups.edit(self._meant, **changes)

    async def add_member(self, agent: AgentRecord | str, **options: Any) -> Group:
        """Add an agent, or change what it is here; `Groups.add_member` has the options."""
        return await self._groups.add_member(self._meant, agent, **options)

    async def remove_member(self, agent: AgentRecord | str) -> Group:
        """Take an agent out of this group."""
        return await self._groups.remove_member(self._meant, agent)

    async def delete(self) -> None:
        """Take this group out of service. Its journal stays and can be read."""
        await self._groups.delete(self._meant)


@dataclass(frozen=True, slots=True)
class Group(GroupRecord, GroupVerbs):
    """A group of an open home: its record and its verbs."""

    _groups: Groups = field(kw_only=True, repr=False, compare=False)

    @property
    def _meant(self) -> GroupRecord:
        return self


@dataclass(frozen=True, slots=True)
class NamedGroup(GroupVerbs):
    """A group by its name or id, `home.groups["desk"]`: each verb looks it up when it is used."""

    name: str
    _groups: Groups = field(kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_is_text(self.name, "A group")

    @property
    def _meant(self) -> str:
        return self.name

    async def get(self) -> Group:
        """Return the group as it is now."""
        return await self._groups.get(self.name)


def bound_group(record: GroupRecord, verbs: Groups) -> Group:
    """Return a record as a group that can be talked to."""
    return Group(*[getattr(record, name) for name in _RECORD_FIELDS], _groups=verbs)


@verbs(
    "group",
    list=Act.READ,
    get=Act.TALK,
    create=Act.GOVERN,
    ensure=Act.GOVERN,
    edit=Act.GOVERN,
    delete=Act.DELETE,
    add_member=Act.GOVERN,
    remove_member=Act.GOVERN,
    patterns=Act.READ,
    send=Act.TALK,
    ask=Act.TALK,
    stream=Act.TALK,
    watch=Act.READ,
    transcript=Act.READ,
)
class Groups:
    """The groups of a home: made, talked to, changed and taken out of service."""

    def __init__(self, engine: Engine, session: Session) -> None:
        self._engine = engine
        self._session = session

    # -- which there are -------------------------------------------------------------------------

    def __getitem__(self, name: str) -> NamedGroup:
        """Return a group by its name or id; nothing is read yet."""
        return NamedGroup(name, _groups=self)

    __iter__ = None  # else Python would go through names 0, 1, 2 and so on without an end

    async def list(self) -> builtins.list[Group]:
        """Return all groups by name, with their members."""
        session = self._session
        records = await session.database.read(groups.everyone)
        return [self._bind(record) for record in records if session.sees_agent(record.id)]

    async def get(self, name: str) -> Group:
        """Return a group by name or id."""
        return self._bind(await self._group(name))

    def patterns(self) -> builtins.list[str]:
        """Return the names of all patterns, those of plugins included."""
        return plugins.names("patterns")

    def _bind(self, record: GroupRecord) -> Group:
        return bound_group(record, self)

    async def _group(self, group: GroupRecord | str) -> GroupRecord:
        return await self._session.database.read(lambda tx: self._group_in(tx, group), brief=True)

    async def _group_id(self, group: GroupRecord | str) -> str:
        """Return the id of a group that whoever acts may see."""
        if isinstance(group, str):
            known = await self._session.database.read(
                lambda tx: groups.id_of(tx, group), brief=True
            )
            if known is not None and self._session.sees_agent(known):
                return known
        return (await self._group(group)).id

    async def _group_in(self, tx: Connection, group: GroupRecord | str) -> GroupRecord:
        name = group.id if isinstance(group, GroupRecord) else group
        record, sees = await groups.by_name(tx, name), self._session.sees_agent
        if record is None or not sees(record.id):
            there = [each.name for each in await groups.everyone(tx) if sees(each.id)]
            raise NotFound(no_such("group", name, there))
        return record

    async def create(
        self,
        name: str,
        *,
        pattern: str = "round_robin",
        options: Mapping[str, Any] | None = None,
        description: str = "",
        members: Sequence[str] = (),
    ) -> Group:
        """Create a group; no agent and no other group may have its name.

        Args:
            name: Its name.
            pattern: How members take turns: `supervisor`, `round_robin`, `pipeline`, `dynamic`,
                `voting`, `sleeptime`, or that of a plugin.
            options: The options of the pattern.
            description: What it is for.
            members: Names of agents that are members from the beginning, as regular ones.
        """
        group = self._new(checked_agent_name(name, "a group"), pattern, options, description)

        async def work(tx: Connection) -> bool:
            return await self._create(tx, group, members)

        if not await self._session.database.write(work):
            raise Conflict(
                f"There is an agent or a group named {name!r} already. Choose another name. "
                "Nothing was created."
            )
        return await self.get(group.id)

    async def ensure(
        self,
        name: str,
        *,
        pattern: str = "round_robin",
        options: Mapping[str, Any] | None = None,
        description: str = "",
        members: Sequence[str] = (),
    ) -> Group:
        """Return the group of that name; create it with these options if it does not exist."""
        group = self._new(name, pattern, options, description)

        async def work(tx: Connection) -> bool:
            if await groups.by_name(tx, name) is not None:
                return True
            checked_agent_name(name, "a group")
            return await self._create(tx, group, members)

        if not await self._session.database.write(work):
            raise Conflict(
                f"There is an agent named {name!r}. Choose another name. Nothing was created."
            )
        return await self.get(name)

    def _new(
        self, name: str, pattern: str, options: Mapping[str, Any] | None, description: str
    ) -> GroupRecord:
        """Return the record of a new group, which is stored nowhere yet."""
        check_field("The description", description)
        return GroupRecord(
            id=new_id("group"),
            name=name,
            pattern=pattern,
            options=self._checked(pattern, options or {}),
            description=description,
            created_at_ms=self._session.clock(),
        )

    def _checked(self, pattern: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options of a pattern as they are stored, or raise `InvalidInput`."""
        there = plugins.names("patterns")
        if pattern not in there:
            raise InvalidInput(
                f"{pattern!r} is not a pattern of groups. Patterns: {', '.join(there)}. Nothing "
                "was changed."
            )
        return self._engine.pattern(pattern).check(options)

    def _wake_at(self, group: GroupRecord) -> int | None:
        """Return when the rules of a group that watches are looked at first."""
        pattern = self._engine.pattern(group.pattern)
        if not isinstance(pattern, WatchingPattern):
            return None
        return pattern.next_look(group, self._session.clock())

    async def _create(self, tx: Connection, group: GroupRecord, members: Sequence[str]) -> bool:
        if not await groups.create(tx, group, self._wake_at(group)):
            return False
        for name in members:
            agent = await self._session.agent_in(tx, name)
            member = GroupMember(agent.id, agent.name)
            await groups.put_member(tx, group.id, member, group.created_at_ms)
        await self._check_named(tx, group)
        await tx.notify("group", group.id)
        await tx.notify(ACCESS_CHANGED, tx.constellation)
        await self._note(tx, "group.created", group, pattern=group.pattern)
        return True

    async def _check_named(self, tx: Connection, group: GroupRecord) -> None:
        """Raise `InvalidInput` if options name an agent that does not exist.

        One that exists may be named before it is a member: it is often added afterwards.
        """
        names = names_in_options(self._engine.pattern(group.pattern), group.options)
        if names:
            there = await agents.everyone(tx)
            known = [agent.name for agent in there if self._session.sees_agent(agent.id)]
            known += [agent.id for agent in there]
            check_members_named(group.pattern, names, known, "an agent")

    async def edit(
        self,
        group: GroupRecord | str,
        *,
        new_name: str | None = None,
        pattern: str | None = None,
        options: Mapping[str, Any] | None = None,
        description: str | None = None,
        version: int | None = None,
    ) -> Group:
        """Change a group from its next turn on; options that you leave out stay unchanged.

        A turn under way goes on with the pattern and the options that it began with. With another
        pattern, what the former one kept is dropped. With `version`, the group must still have that
        one; else `Changed` is raised.
        """
        now = await self._group(group)
        other = pattern is not None and pattern != now.pattern
        checked = None
        if other or options is not None:
            checked = self._checked(pattern or now.pattern, options or {})
        if description is not None:
            check_field("The description", description)
        if new_name is not None and new_name != now.name:
            checked_agent_name(new_name, "a group")

        async def work(tx: Connection) -> int | None:
            stands = await groups.by_id(tx, now.id)
            check_version(now.name, stands, version)
            if stands is None:
                return None
            if (pattern, options) != (None, None) and stands.pattern != now.pattern:
                raise Conflict(
                    f"The group {now.name!r} got the pattern {stands.pattern} meanwhile. Read it "
                    "again, and apply the change to that. Nothing was changed."
                )
            name = stands.name if new_name is None else new_name
            if name != stands.name and (
                await agents.has_name(tx, name) or await groups.by_name(tx, name)
            ):
                raise Conflict(
                    f"There is an agent or a group named {name!r} already. Choose another "
                    "name. Nothing was changed."
                )
            changed = replace(
                stands,
                name=name,
                pattern=pattern or stands.pattern,
                options=stands.options if checked is None else checked,
                description=stands.description if description is None else description,
            )
            if options is not None or other:
                await self._check_named(tx, changed)
            written = await groups.edit(tx, changed)
            if written is not None:
                await self._set_wake(tx, stands, changed)
                await self._note(tx, "group.changed", changed, pattern=changed.pattern)
            return written

        if await self._session.database.write(work) is None:
            raise NotFound(f"The group {now.name!r} was deleted meanwhile. Nothing was changed.")
        self._engine.runtime.forget(now.id)
        return await self.get(now.id)

    async def _set_wake(self, tx: Connection, before: GroupRecord, after: GroupRecord) -> None:
        """Set when a group is looked at next, if it was given another pattern or other options.

        A question under way keeps its deadline.
        """
        if (before.pattern, before.options) == (after.pattern, after.options):
            return
        wake_at = await next_look(tx, after, self._engine.pattern, self._session.clock())
        await groups.set_wake(tx, after.id, wake_at)
        await tx.notify("group", after.id)

    async def delete(self, group: GroupRecord | str, *, version: int | None = None) -> Group:
        """Take a group out of service. Its members stay, and its journal can be read.

        With `version`, the group must still have that one; else `Changed` is raised.
        """
        now = await self._group(group)
        at = self._session.clock()

        async def work(tx: Connection) -> None:
            check_version(now.name, await groups.by_id(tx, now.id), version)
            waiting = await messages.waiting(tx, now.id)
            unfinished = await journal.unfinished(tx, now.id)
            unanswered = [item for item in waiting if item.kind != InboxKind.RESULT]
            turns = [*unfinished, *(item.turn_id for item in unanswered)]
            if turns:
                raise Conflict(
                    f"{now.name} has messages to answer first. Wait until it has answered them, or "
                    f'stop its turns, first "asterism turn stop {turns[0]}". Nothing was deleted.'
                )
            for item in waiting:  # what members have said comes too late
                await messages.take(tx, item)
            await agents.delete(tx, now.id, at)
            for member in now.members:
                await groups.remove_member(tx, now.id, member.agent_id)
            await self._note(tx, "group.deleted", now)

        await self._session.database.write(work)
        for agent_id in (now.id, *(member.agent_id for member in now.members)):
            self._engine.runtime.forget(agent_id)
        return self._bind(now)

    async def _note(self, tx: Connection, kind: str, group: GroupRecord, **body: Any) -> None:
        """Add an event about a group to the audit log."""
        await note(tx, self._session, kind, by="api", agent_id=group.id, what=group.name, **body)

    # -- members ---------------------------------------------------------------------------------

    async def add_member(
        self,
        group: GroupRecord | str,
        agent: AgentRecord | str,
        *,
        role: str | None = None,
        domain: str | None = None,
        capabilities: Sequence[str] | None = None,
        weight: float | None = None,
        active: bool | None = None,
    ) -> Group:
        """Add an agent to a group, or change what it is there.

        Whatever is left out stays as it is for a member; a new one is a regular member of weight 1.

        Args:
            group: The group, or its name or id.
            agent: The agent, or its name or id.
            role: `supervisor`, `specialist`, `regular` or `observer`.
            domain: What a specialist knows about; `system_integrity` gives it the tool halt,
                `memory_management` the tool search_constellation. With another role it is dropped.
            capabilities: What it is good at, in words.
            weight: What its vote counts, where votes are weighted.
            active: Whether it is asked at all.
        """
        if role is not None and role not in set(Role):
            raise InvalidInput(
                f"{role!r} is not a role. Roles: {', '.join(Role)}. Nothing was changed."
            )
        if weight is not None and not 0 <= weight <= MAX_WEIGHT:
            raise InvalidInput(
                f"The weight is {weight:g}; a number from 0 to {MAX_WEIGHT:g} is needed. Nothing "
                "was changed."
            )
        for text in (domain or "", *(capabilities or ())):
            check_field("A capability", text)
        at = self._session.clock()

        async def work(tx: Connection) -> GroupRecord:
            now = await self._group_in(tx, group)
            record = await self._session.agent_in(tx, agent)
            there = {member.agent_id: member for member in now.members}
            if record.id not in there and len(there) >= MAX_MEMBERS:
                raise InvalidInput(
                    f"{now.name} has {len(there)} members, the most that a group can have. Nothing "
                    "was changed."
                )
            member = _with_changes(
                await groups.stored_member(tx, now.id, record.id),
                record,
                *(role, domain, capabilities, weight, active),
            )
            await groups.put_member(tx, now.id, member, at)
            await tx.notify(ACCESS_CHANGED, tx.constellation)
            role_name = member.role.value
            await self._note(tx, "group.member_added", now, member=record.name, role=role_name)
            return replace(now, members=(*now.members, member))

        changed = await self._session.database.write(work)
        return await self._after(changed, changed.members[-1].agent_id)

    async def remove_member(self, group: GroupRecord | str, agent: AgentRecord | str) -> Group:
        """Take an agent out of a group; what it is at work on comes back all the same."""

        async def work(tx: Connection) -> tuple[GroupRecord, str]:
            now = await self._group_in(tx, group)
            name = agent.id if isinstance(agent, AgentRecord) else agent
            found = [each for each in now.members if name in (each.agent_id, each.name)]
            if not found:
                names = [each.name for each in now.members]
                raise NotFound(
                    f"{name!r} is not a member of {now.name}. Members: "
                    f"{', '.join(names) or 'none'}. Nothing was changed."
                )
            await groups.remove_member(tx, now.id, found[0].agent_id)
            await tx.notify(ACCESS_CHANGED, tx.constellation)
            await self._note(tx, "group.member_removed", now, member=found[0].name)
            return now, found[0].agent_id

        changed, agent_id = await self._session.database.write(work)
        return await self._after(changed, agent_id)

    async def _after(self, group: GroupRecord, agent_id: str) -> Group:
        """Return a group after a change of its members, whose tools may have changed."""
        self._engine.runtime.forget(group.id)
        self._engine.runtime.forget(agent_id)
        return await self.get(group.id)

    # -- messages --------------------------------------------------------------------------------

    async def send(
        self,
        group: GroupRecord | str,
        text: AnyText,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = (),
        room: str | None = None,
        present: Sequence[str] = (),
        repeat_seconds: float | None = None,
    ) -> Receipt:
        """Hand in a message to a group. On return it is stored and will be answered exactly once.

        Args:
            group: The group, or its name or id.
            text: What is said.
            channel: Where it comes from, and where the answer goes if there is `reply_to`.
            external_id: The message's id there; the same id again is the same message.
            sender: Who says it, by their name in the channel; None: the owner.
            reply_to: Where in the channel the answer is delivered.
            images: PNG, JPEG, GIF or WebP files that belong to the message.
            room: The room of the channel where it is said; None: in private.
            present: Who else is there, by their names in the channel.
            repeat_seconds: How long after the answer the same `external_id` is still the same
                message, and not a new one; None: for ever.
        """
        session, speaker = self._session, None
        if isinstance(group, Group) and group._groups is self and session.limits is None:  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - of this module
            group_id = group.id  # made by this home
        else:
            group_id = await self._group_id(group)
        if not session.is_owner:
            if channel != "api" or sender or reply_to or room or present:
                raise InvalidInput(
                    f"{session.actor.name} speaks for themselves, so that channel, sender, "
                    "reply_to, room and present cannot be given. Nothing was stored."
                )
            speaker = session.actor.id
        message = Message(
            group_id,
            (text, *map(image, images)),
            MessageOrigin(channel, sender, reply_to, room),
            own_external_id(session, external_id),
            tuple(present),
            repeat_milliseconds=None if repeat_seconds is None else int(repeat_seconds * 1000),
        )
        receipt = await self._engine.runtime.accept(
            message,
            speaker,
            may_decide=session.only_agents is None,
            token=session.token,
        )
        if channel == "api":
            check_same_target(receipt, group_id, external_id)
        if channel == "api" and repeat_seconds is None:
            await check_same_text(session, receipt, text, external_id)
        return receipt

    async def ask(self, group: GroupRecord | str, text: AnyText, **options: Any) -> Outcome:
        """Hand in a message and wait for how the group's turn ends."""
        return await self._engine.runtime.wait(await self.send(group, text, **options))

    async def stream(
        self, group: GroupRecord | str, text: AnyText, **options: Any
    ) -> AsyncGenerator[Signal, None]:
        """Hand in a message and yield the signals of the group's turn.

        `decision` tells whom the pattern asks and why, `delegation` which task is given away,
        `member` what a member has said; the last one is `ended` or `parked`.
        """
        record = self._bind(await self._group(group))
        async with contextlib.aclosing(
            signals_of_turn(
                self._engine.hub,
                self._engine.runtime.wait,
                record.id,
                lambda: self.send(record, text, **options),
            )
        ) as signals:
            async for signal in signals:
                yield signal

    async def watch(
        self, group: GroupRecord | str, *, after: str | None = None
    ) -> AsyncGenerator[Signal, None]:
        """Yield the signals of all turns of a group after the signal `after`, as for an agent."""
        record = await self._group(group)
        async with contextlib.aclosing(
            signals_of(self._engine, self._session, record.id, after)
        ) as signals:
            async for signal in signals:
                yield signal

    async def transcript(
        self, group: GroupRecord | str, *, limit: int = 50, before: str | None = None
    ) -> builtins.list[GroupEvent]:
        """Return what was said and decided in the latest turns of a group, the oldest first.

        Args:
            group: The group, or its name or id.
            limit: How many turns.
            before: The id of a turn of the group; only those before it are wanted.
        """
        record = await self._group(group)
        session = self._session

        async def read(tx: Connection) -> builtins.list[GroupEvent]:
            participants = await session.participants(tx)
            found: dict[str, builtins.list[GroupEvent]] = {}

            async def visible(turns: Sequence[TurnRecord]) -> builtins.list[TurnRecord]:
                for turn in turns:
                    if turn.id not in found:
                        can_see = participants.can_see(Audience.of_turn(turn.audience))
                        entries = await journal.entries_of(tx, turn) if can_see else ()
                        found[turn.id] = _events(record, turn, entries) if can_see else []
                return [turn for turn in turns if found[turn.id]]

            last = await journal.turn(tx, before) if before is not None else None
            if before is not None and (
                last is None or last.agent_id != record.id or not await visible([last])
            ):
                raise no_such_position("turn", before)
            turns = await first_visible(
                lambda most: journal.turns_of(tx, record.id, most, last), visible, limit
            )
            return [event for turn in reversed(turns) for event in found[turn.id]]

        return await session.database.read(read)


def _with_changes(
    former: GroupMember | None,
    agent: AgentRecord,
    role: str | None,
    domain: str | None,
    capabilities: Sequence[str] | None,
    weight: float | None,
    active: bool | None,
) -> GroupMember:
    """Return what a member is from now on; None stands for what it was before."""
    was = former or GroupMember(agent.id, agent.name)
    chosen = was.role if role is None else Role(role)
    if domain and chosen is not Role.SPECIALIST:
        raise InvalidInput(
            f"Only a specialist has a domain, and the role is {chosen.value}. Leave the domain "
            "out, or make it a specialist. Nothing was changed."
        )
    if domain is None:
        domain = was.domain if chosen is Role.SPECIALIST else ""
    return replace(
        was,
        role=chosen,
        domain=domain,
        capabilities=was.capabilities if capabilities is None else tuple(capabilities),
        weight=was.weight if weight is None else weight,
        active=was.active if active is None else active,
    )


def _events(
    group: GroupRecord, turn: TurnRecord, entries: Sequence[Entry]
) -> builtins.list[GroupEvent]:
    """Return the lines that a turn has in a transcript."""
    events: builtins.list[GroupEvent] = []
    names: dict[str, str] = {}
    secret = _secret_keys(entries)
    for entry in entries:
        if entry.key == "in":
            sender = _sender(turn, entry)
            events.append(GroupEvent(turn.id, entry.at_ms, "message", sender, text_of(entry.body)))
        elif entry.key.startswith("decision/"):
            events += _decision_events(group, turn.id, entry, names)
        elif entry.key.startswith("delegation/"):
            said: dict[str, Any] = orjson.loads(entry.body)
            by = names.get(said["by"], "")
            to = said.get("to", "")
            details = {"to": next((who.name for who in group.members if who.agent_id == to), to)}
            events.append(GroupEvent(turn.id, entry.at_ms, "delegation", by, said["task"], details))
        elif entry.key.startswith("ask/"):
            said = orjson.loads(entry.body)
            who = names.get(said["key"], "")
            details = {"key": said["key"], "state": said["state"], "turn_id": said["turn"]}
            text = said["text"]
            if said["key"] in secret and said["state"] == "done":
                # Without a name, since the order tells who was first, and the first may decide.
                who, text, details = "a member", SECRET_ANSWER, {"state": said["state"]}
            elif said["key"] in secret and said["state"] == "failed":
                text = NO_SECRET_ANSWER
            events.append(GroupEvent(turn.id, entry.at_ms, "answer", who, text, details))
        elif entry.kind.value == "reply":
            reply = Reply.from_entry(entry.body, entry.meta)
            events.append(GroupEvent(turn.id, entry.at_ms, "reply", group.name, reply.text))
    if turn.error and turn.ended_at_ms is not None:
        details = {"state": turn.state.value}
        events.append(GroupEvent(turn.id, turn.ended_at_ms, "end", group.name, turn.error, details))
    return events


def _secret_keys(entries: Sequence[Entry]) -> set[str]:
    """Return the keys of the questions of a turn whose answers nobody is shown."""
    asked: set[str] = set()
    secret: set[str] = set()
    for entry in entries:
        if entry.key.startswith("decision/"):
            decision: dict[str, Any] = orjson.loads(entry.body)
            asked |= {ask["key"] for ask in decision["asks"]}
            secret |= {ask["key"] for ask in decision["asks"] if ask.get("secret")}
            notes: dict[str, Any] = decision.get("notes") or {}
            if notes.get("minutes", {}).get("secret"):
                return asked
    return secret


def _sender(turn: TurnRecord, entry: Entry) -> str:
    """Return who opened a turn: where the message came from, and their name there."""
    sender = MessageMeta.from_json(entry.meta).sender
    if turn.channel == "api" and sender is None:
        return OWNER
    return f"{turn.channel}:{sender}" if sender else turn.channel


def _decision_events(
    group: GroupRecord, turn_id: str, entry: Entry, names: dict[str, str]
) -> builtins.list[GroupEvent]:
    decision: dict[str, Any] = orjson.loads(entry.body)
    details = {"notes": decision["notes"]} if decision.get("notes") else {}
    events = [GroupEvent(turn_id, entry.at_ms, "decision", group.name, decision["reason"], details)]
    for ask in decision["asks"]:
        names[ask["key"]] = ask["name"]
        about = {"key": ask["key"], "to": ask["name"]}
        events.append(GroupEvent(turn_id, entry.at_ms, "question", group.name, ask["text"], about))
    return events
