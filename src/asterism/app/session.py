"""What the verbs about memory work with."""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
import functools
import inspect
import logging
import math
import re
import types
import unicodedata
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, Union, cast, get_args, get_origin

import orjson

from asterism.errors import AsterismError, Changed, ConfigError, InvalidInput, NotAllowed, NotFound
from asterism.memory import people
from asterism.memory.gate.writer import Writer
from asterism.permissions import (
    ROLES,
    SYSTEM,
    Act,
    Actor,
    Allow,
    Authority,
    Resource,
    Situation,
    decide,
)
from asterism.ports import Clock
from asterism.records import dataclass
from asterism.store import agents, events, journal, messages
from asterism.store.database import Connection, Database
from asterism.store.events import Event, home_chain
from asterism.tools.schema import answer_schema_fault
from asterism.types.agents import (
    DEFAULT_MODEL,
    OWNER,
    OWNER_ALONE,
    AgentRecord,
    Audience,
    Participants,
    audience_of,
    chain_of,
    is_id,
)
from asterism.types.groups import GroupRecord
from asterism.types.memory import TOMBSTONES
from asterism.types.permissions import ApprovalRecord
from asterism.types.turns import MAX_MESSAGE_LENGTH, Receipt, check_field

THE_OWNER = Actor(OWNER, OWNER, OWNER)
ADMIN = "admin"
"""The role that sees everything, as the owner does."""

ACCESS_CHANGED = "access"
"""What is announced, with the constellation, when it changes who may use a home and for what."""

T = TypeVar("T")

OWN_VERBS = frozenset(
    {
        *("token.current", "token.revoke_current"),
        *("user.change_password", "user.current", "user.log_out", "user.log_out_everywhere"),
    }
)
"""Verbs about what a caller came in with, which no token forbids."""
READING_VERBS = frozenset({"agent.get", "group.get"})
"""Verbs that belong to talking and are allowed to tokens that may only read."""
BY_AGENT = frozenset(
    f"{noun}.{verb}"
    for noun, names in {
        "agent": "list get edit archive unarchive delete send ask stream watch warm"
        " import_messages",
        "approval": "list answered get show decide answer stream_decision",
        "audit": "list get names autonomy export",
        "block": "list get create write editable shares history at version_at diff blame",
        "context": "now of_turn compact",
        "grant": "list give revoke",
        "group": "list get send ask stream watch transcript",
        "home": "counts status current",
        "memory": "as_of written_by revert_turn fork health export",
        "notice": "list",
        "outbox": "list",
        "passage": "list get history add add_many append edit retract tag search",
        "rule": "list add set remove",
        "schedule": "list add cancel",
        "search": "list",
        "source": "list get documents",
        "spending": "report caps",
        "tool": "offered",
        "turn": "list get outcome wait follow stop replay waiting unfinished parts find_messages"
        " submit_results stream_results",
    }.items()
    for verb in names.split()
)
"""Verbs that show and change nothing of agents other than those a token is for.

All others are refused to such tokens: they work on the whole constellation."""

OF_THE_SERVER = frozenset(
    {"backup", "config", "constellation", "home.check", "home.metrics", "source.add"}
)
"""Nouns and verbs about the machine, or about all that its database holds.

They are refused in constellations that a server serves beside its own."""


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """What a token allows, whatever the actor may do; a session of the web page has no limits."""

    id: str
    """The token, or the session of the web page."""
    name: str
    acts: frozenset[Act] | None = None
    """None: every act."""
    agents: frozenset[str] | None = None
    """The ids of the only agents that exist for it; None: all."""
    groups: frozenset[str] = frozenset()
    """The ids of the groups that exist for it beside these agents: each of their members does."""
    expires_at_ms: int | None = None
    silent_role: str | None = None
    """The token's role, if that does not allow to talk, which persons may without a role."""

    def check(self, act: Act, verb: str) -> None:
        """Return if the token allows a verb; else raise `NotAllowed`."""
        if verb in OWN_VERBS:
            return
        if self.acts is not None and act not in self.acts:
            if verb in READING_VERBS and Act.READ in self.acts:
                return
            if act is Act.TALK and self.silent_role is not None:
                raise NotAllowed(
                    f"The token {self.name!r} has the role {self.silent_role}, which does not "
                    f"allow {verb} ({act.value!r}). Use another token. Nothing was changed."
                )
            allowed = ", ".join(one.value for one in Act if one in self.acts) or "nothing"
            raise NotAllowed(
                f"The token {self.name!r} does not allow {verb}, which needs the scope "
                f"{act.value!r}: it allows {allowed}. Use another token. Nothing was changed."
            )
        if self.agents is not None and verb not in BY_AGENT:
            raise NotAllowed(
                f"The token {self.name!r} is for some agents only, and {verb} is about the whole "
                "constellation. Use a token for all agents. Nothing was changed."
            )


@dataclass(frozen=True, slots=True)
class Session:
    """The parts of an open constellation that verbs about memory need."""

    database: Database
    clock: Clock
    drop: Callable[[str], None]
    """Drops what this process keeps in memory of an agent."""
    data: Path
    """The data directory."""
    authority: Callable[[], Authority] = Authority
    """What the owner has decided beforehand."""
    actor: Actor = THE_OWNER
    """Who acts."""
    clear: Callable[[], None] = lambda: None
    """Drops what this process keeps in memory of texts, such as what tools have loaded."""
    limits: TokenLimits | None = None
    """What the token allows that the actor came with; None: they came without a token."""
    is_loaded: Callable[[str], bool] = lambda _: False
    """Tells whether this process has an agent of this constellation in memory."""
    is_guest: bool = False
    """Whether the constellation is one that a server serves beside its own."""
    _asked: dict[str, asyncio.Task[bool]] = dataclasses.field(
        default_factory=dict[str, "asyncio.Task[bool]"], init=False, repr=False, compare=False
    )
    """What is being read of whether a turn may be seen, for all who ask at the same time."""

    @property
    def is_owner(self) -> bool:
        """Whether the owner acts, who may do everything."""
        return self.actor.kind == OWNER

    @property
    def owns_machine(self) -> bool:
        """Whether the owner of the machine acts, who may know its paths and processes."""
        return self.is_owner and not self.is_guest and self.only_agents is None

    @property
    def writes_as_owner(self) -> bool:
        """Whether the owner writes: the owner acts, or a rule of the owner."""
        return self.actor.kind in (OWNER, SYSTEM)

    @property
    def token(self) -> str | None:
        """The token, or the session of the web page, that the actor came with."""
        return self.limits.id if self.limits is not None else None

    # -- what the actor may see ---------------------------------------------------------------

    @property
    def only_agents(self) -> frozenset[str] | None:
        """The ids of the only agents that exist for the actor; None: all agents do."""
        return self.limits.agents if self.limits is not None else None

    def sees_agent(self, agent_id: str | None) -> bool:
        """Tell whether an agent or a group exists for the actor; None stands for all of them."""
        limits = self.limits
        if limits is None or limits.agents is None:
            return True
        return agent_id in limits.agents or agent_id in limits.groups

    @property
    def sees_all(self) -> bool:
        """Whether the actor may see everything of all agents."""
        return self.only_agents is None and self.sees_every_audience

    @property
    def sees_every_audience(self) -> bool:
        """Whether the actor may see all of an agent: the owner, and persons with role `admin`.

        Whatever else a role lets a person do, they see what they may see themselves.
        """
        if self.writes_as_owner:
            return True
        if ADMIN not in self.actor.roles:
            return False
        return Act.GOVERN in self.authority().roles.get(ADMIN, ROLES[ADMIN])

    async def participants(self, tx: Connection) -> Participants:
        """Return the participants for whom a verb reads: the actor alone."""
        if self.sees_every_audience:
            return OWNER_ALONE
        persons = [self.actor.id] if self.actor.kind == "person" else []
        return await people.participants(tx, persons, None)

    async def among(self, tx: Connection, participants: Participants) -> Participants:
        """Return the participants that the actor names, and the actor."""
        if self.sees_every_audience:
            return participants
        own = await self.participants(tx)
        if participants.owner_alone:
            return own
        # Not the room: one that they are not in would open its talk to them.
        return Participants(tuple(dict.fromkeys((*own.people, *participants.people))))

    async def visible_turns(self, tx: Connection, ids: Iterable[str | None]) -> frozenset[str]:
        """Return the turns among `ids` that the actor may see."""
        wanted = {turn_id for turn_id in ids if turn_id is not None}
        if self.sees_all:
            return frozenset(wanted)
        participants = await self.participants(tx)
        visible: set[str] = set()
        unknown: set[str] = set()
        for turn_id in wanted:
            record = await journal.turn(tx, turn_id)
            if record is None:
                unknown.add(turn_id)
            elif self.sees_agent(record.agent_id) and participants.can_see(
                Audience.of_turn(record.audience)
            ):
                visible.add(turn_id)
        if unknown:
            for item in await messages.waiting(tx):
                if (
                    item.turn_id in unknown
                    and self.sees_agent(item.agent_id)
                    and participants.can_see(audience_of(item.participants))
                ):
                    visible.add(item.turn_id)
        return frozenset(visible)

    async def sees_turn(self, turn_id: str) -> bool:
        """Tell whether the actor may see a turn."""
        if self.sees_all:
            return True
        asked = self._asked.get(turn_id)
        if asked is None:
            # Many streams of a token ask the same of each signal, and may hold up its reader.
            asked = self._asked[turn_id] = asyncio.create_task(self._reads_turn(turn_id))
            # Nobody may be left to hear how it went.
            asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(asked)

    async def _reads_turn(self, turn_id: str) -> bool:
        try:
            return bool(await self.database.read(lambda tx: self.visible_turns(tx, [turn_id])))
        finally:
            del self._asked[turn_id]

    async def visible_of_turns(
        self,
        page: Callable[[Connection, int], Awaitable[Sequence[T]]],
        turn_of: Callable[[T], str],
        limit: int,
    ) -> list[T]:
        """Return the first things of turns that the actor may see.

        Args:
            page: Returns the first items, as many as asked for.
            turn_of: Returns the turn that a thing is of.
            limit: How many are wanted.
        """

        async def read(tx: Connection) -> list[T]:
            async def visible(rows: Sequence[T]) -> list[T]:
                ids = await self.visible_turns(tx, map(turn_of, rows))
                return [thing for thing in rows if turn_of(thing) in ids]

            return await first_visible(lambda most: page(tx, most), visible, limit)

        return await self.database.read(read)

    # -- what the actor may do ----------------------------------------------------------------

    def check(self, act: Act, verb: str, noun: str, arguments: Sequence[Any] = ()) -> None:
        """Return if the actor may use a verb; else raise `NotAllowed`."""
        if self.is_guest and (noun in OF_THE_SERVER or verb in OF_THE_SERVER):
            raise NotAllowed(
                f"{verb} is about the whole server, and only the owner of the server's own "
                "constellation may use it. Ask them. Nothing was changed."
            )
        if self.limits is not None:
            self.limits.check(act, verb)
        if self.is_owner:
            return
        label = _label(arguments[0]) if arguments else ""
        situation = Situation(self.authority(), now=self.clock())
        verdict = decide(self.actor, act, Resource(noun, label, verb=verb), situation)
        if not isinstance(verdict, Allow):
            raise NotAllowed(f"{verdict.reason} Nothing was changed.")

    def may(self, act: Act, verb: str) -> bool:
        """Tell whether the actor may use a verb; nothing is noted if not."""
        try:
            self.check(act, verb, verb.partition(".")[0])
        except NotAllowed:
            return False
        return True

    @property
    def payer(self) -> str | None:
        """The id of the person whom model calls for a verb count for; None for the owner."""
        return None if self.writes_as_owner else self.actor.id

    async def allow(self, act: Act, verb: str, noun: str, arguments: Sequence[Any] = ()) -> None:
        """Do as `check` does, and leave a refusal in the audit log."""
        try:
            self.check(act, verb, noun, arguments)
        except NotAllowed as refused:
            body = {"what": verb, "verdict": "denied", "reason": refused.message}
            event = event_of(self, "verb.denied", body)
            await self.database.write(
                lambda tx: events.append(tx, home_chain(tx.constellation), [event])
            )
            raise

    async def writer(self, tx: Connection, by: str, reason: str = "") -> Writer:
        """Return the actor as a writer to memory, with the reason."""
        now = self.clock()
        if self.writes_as_owner:
            return Writer.owner(now, by=by, reason=reason)
        participants = await self.participants(tx)
        return Writer.person(self.actor, participants, now, by=by, reason=reason)

    async def agent(self, agent: AgentRecord | str) -> AgentRecord:
        """Return an agent by its name or id, or the current state of a record."""
        name = agent.id if isinstance(agent, AgentRecord) else agent
        record = await self.database.read(lambda tx: agents.by_name(tx, name), brief=True)
        if record is not None and self.sees_agent(record.id):
            return record
        return await self.database.read(lambda tx: self.agent_in(tx, agent))

    async def agent_in(self, tx: Connection, agent: AgentRecord | str) -> AgentRecord:
        """Do the same in a transaction."""
        name = agent.id if isinstance(agent, AgentRecord) else agent
        record = await agents.by_name(tx, name)
        if record is None or not self.sees_agent(record.id):
            there = [each.name for each in await self.agents_in(tx)]
            raise NotFound(no_such("agent", name, there))
        return record

    async def agents_in(self, tx: Connection) -> list[AgentRecord]:
        """Return all agents that exist for the actor, by name."""
        return [agent for agent in await agents.everyone(tx) if self.sees_agent(agent.id)]

    async def id_of(self, agent: AgentRecord | str) -> str:
        """Return the id of an agent; the agent of a record may be deleted meanwhile."""
        if isinstance(agent, AgentRecord) and self.sees_agent(agent.id):
            agent_id = agent.id
            # A program elsewhere can write any id into a record, also one of another constellation.
            if self._is_made_here(agent) or self.is_loaded(agent_id):
                return agent_id
            if await self.database.read(lambda tx: agents.is_agent_of(tx, agent_id), brief=True):
                return agent_id
        return (await self.agent(agent)).id

    def _is_made_here(self, agent: AgentRecord) -> bool:
        """Tell whether a record is an agent that this home has handed out."""
        session: Session | None = getattr(getattr(agent, "_agents", None), "_session", None)
        return session is not None and session.database is self.database

    async def agent_id(self, agent: AgentRecord | str | None) -> str:
        """Return the id of an agent, or that of the constellation as an owner of blocks."""
        if agent is None and self.limits is not None and self.limits.agents is not None:
            raise _name_an_agent(self.limits)
        return "" if agent is None else (await self.agent(agent)).id

    async def id_of_any(self, agent: AgentRecord | str | None) -> str | None:
        """Return the id of an agent; None for all agents, or the only one that a token is for."""
        if agent is not None:
            return await self.id_of(agent)
        if self.limits is None or self.limits.agents is None:
            return None
        if len(self.limits.agents) != 1:
            raise _name_an_agent(self.limits)
        return next(iter(self.limits.agents))

    async def stay_forgotten(self) -> None:
        """Apply earlier forgetting again, after texts came in from outside."""
        from asterism.memory.forgetting import replay

        if not (self.data / TOMBSTONES).exists():
            return

        async def drop(agents: Sequence[str]) -> None:
            self.clear()
            for agent_id in agents:
                self.drop(agent_id)

        await replay(
            self.database,
            self.data,
            everything=True,
            drop=drop,
            clock=self.clock,
        )


def _name_an_agent(limits: TokenLimits) -> NotAllowed:
    return NotAllowed(
        f"The token {limits.name!r} is for some agents only, so that it must be said which one is "
        'meant. "asterism agent list" shows them. Nothing was changed.'
    )


async def note(
    tx: Connection,
    session: Session,
    kind: str,
    *,
    by: str,
    agent_id: str | None = None,
    turn_id: str | None = None,
    **body: Any,
) -> None:
    """Leave an event of the actor in the home's chain, in the transaction of the effect.

    Args:
        tx: The transaction.
        session: The home.
        kind: A thing and what became of it, such as `block.created`.
        by: What asks for it, such as `api` or `cli`.
        agent_id: The agent that it is about.
        turn_id: The turn that it is about.
        body: What else is to be known; `what` names the thing.
    """
    details = {name: value for name, value in body.items() if value not in (None, "", (), [])}
    event = event_of(session, kind, {**details, "by": by}, agent_id or None, turn_id)
    await events.append(tx, home_chain(tx.constellation), [event])


def event_of(
    session: Session,
    kind: str,
    body: Mapping[str, Any],
    agent_id: str | None = None,
    turn_id: str | None = None,
) -> Event:
    """Return an event of the actor, which names the token that they came with."""
    named = {"token": session.limits.name} if session.limits is not None else {}
    return Event(kind, str(session.actor), session.clock(), {**named, **body}, agent_id, turn_id)


def _label(argument: Any) -> str:
    if isinstance(argument, AgentRecord):
        return argument.name
    return argument if isinstance(argument, str) else str(getattr(argument, "name", ""))


class _Versioned(Protocol):
    @property
    def version(self) -> int: ...


def check_version(name: str, current: _Versioned | None, expected: int | None) -> None:
    """Raise `Changed` if something has another version than whoever changes it has seen."""
    if expected is None or current is None or current.version == expected:
        return
    raise Changed(
        f"{name} has version {current.version}, and the change is for version {expected}. Read it "
        "again, and apply the change to that. Nothing was changed."
    )


def check_same(name: str, current: object, expected: object | None) -> None:
    """Raise `Changed` if something is not what whoever changes it has seen."""
    if expected is None or current == expected:
        return
    raise Changed(
        f"{name} was changed since you read it. Read it again, and apply the change to that. "
        "Nothing was changed."
    )


def no_such_position(noun: str, item_id: str) -> NotFound:
    """Return the error for a page that is to go on from something that is not in the list."""
    return NotFound(
        f"There is no {noun} {item_id[:100]!r} to go on from. Start at the first page. Nothing was "
        "changed."
    )


async def first_visible(
    page: Callable[[int], Awaitable[Sequence[T]]],
    visible: Callable[[Sequence[T]], Awaitable[list[T]]],
    limit: int,
) -> list[T]:
    """Return the first visible items, up to a limit.

    Args:
        page: Returns the first items, as many as asked for.
        visible: Returns the items that the actor may see.
        limit: How many are wanted.
    """
    most = limit
    while True:
        rows = await page(most)
        shown = await visible(rows)
        if len(shown) >= limit or len(rows) < most:
            return shown[:limit]
        most *= 4


C = TypeVar("C", bound=type[Any])

_log = logging.getLogger(__name__)

_MAX_MESSAGE_LENGTH = 4_000


def verbs(noun: str, **acts: Act) -> Callable[[C], C]:
    """Check the permission of each method of a class: by its name, with its act on the noun.

    All of its public coroutines and async generators must be named, so that none is forgotten. The
    class keeps in `_session` who acts and what they may do.
    """

    def wrap(judged: C) -> C:
        for name, member in list(vars(judged).items()):
            public = not name.startswith("_") or name == "__call__"
            if not public or not callable(member) or isinstance(member, type):
                continue
            awaited = inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
            if name in acts:
                setattr(judged, name, _judged(member, acts[name], noun, name))
            elif awaited:
                raise ConfigError(f"{judged.__name__}.{name} does not say what kind of act it is.")
        return judged

    return wrap


def _judged(method: Callable[..., Any], act: Act, noun: str, name: str) -> Callable[..., Any]:
    verb = f"{noun}.{'list' if name == '__call__' else name}"
    arguments = Arguments(method, verb)

    if inspect.isasyncgenfunction(method):

        @functools.wraps(method)
        async def streamed(self: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
            arguments.check(args, kwargs)
            await self._session.allow(act, verb, noun, arguments.subject(args, kwargs))
            try:
                async with aclosing(method(self, *args, **kwargs)) as stream:
                    async for item in stream:
                        yield item
            except AsterismError as error:
                raise _error_for(self._session, error)  # noqa: B904 - mostly the same one

        judged: Callable[..., Any] = streamed
    elif inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def awaited(self: Any, *args: Any, **kwargs: Any) -> Any:
            arguments.check(args, kwargs)
            session: Session = self._session
            if session.limits is not None or session.is_guest or not session.is_owner:
                await session.allow(act, verb, noun, arguments.subject(args, kwargs))
            try:
                return await method(self, *args, **kwargs)
            except AsterismError as error:
                raise _error_for(self._session, error)  # noqa: B904 - mostly the same one

        judged = awaited
    else:

        @functools.wraps(method)
        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            arguments.check(args, kwargs)
            self._session.check(act, verb, noun, arguments.subject(args, kwargs))
            try:
                return method(self, *args, **kwargs)
            except AsterismError as error:
                raise _error_for(self._session, error)  # noqa: B904 - mostly the same one

        judged = called
    setattr(judged, "verb", (act, verb))  # noqa: B010 - a function has no such attribute to a checker
    return judged


def _error_for(session: Session, error: AsterismError) -> AsterismError:
    """Return an error as whoever acts is told it."""
    shorten_error(error)
    if session.owns_machine or (told := error.for_others()) is error:
        return error
    _log.warning("%s", error.message)
    return told


def shorten_error(error: AsterismError) -> None:
    """Leave out the middle of a reason that repeats a very long argument."""
    over = len(error.message) - _MAX_MESSAGE_LENGTH
    if over > 0:
        half = (len(error.reason) - over) // 2
        error.reason = f"{error.reason[:half]}…{error.reason[-half:]}"


MAX_NUMBER = 2**63 - 1
"""The largest number that the stores can keep."""
_MAX_DEPTH = 100
_COUNTS = ("limit", "offset", "days", "neighbours")
AnyText: TypeAlias = str
"""A text that may hold whatever people write; the verb itself says what it cannot take."""
_FREE = ("AnyText", "Query")
"""Types whose texts are not looked into here."""

_MADE_HERE = (AgentRecord, GroupRecord, Receipt, ApprovalRecord)
"""What verbs give back, and what nobody makes by hand."""

Fits = Callable[[Any], bool]


class Arguments:
    """The arguments of one verb: of which types they must be."""

    def __init__(self, method: Callable[..., Any], verb: str) -> None:
        self._method = method
        self._verb = verb
        self._names = list(inspect.signature(method).parameters)[1:]
        self._declared: dict[str, tuple[Fits | None, str]] | None = None
        """By name, what a value must fulfil, and the type as it is written."""

    def subject(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Return what a call is about: a label, or else its first argument, by name or not."""
        for about in ("label", *self._names[:1]):
            place = self._names.index(about) if about in self._names else len(args)
            if place < len(args):
                return args[place : place + 1]
            if about in kwargs:
                return [kwargs[about]]
        return []

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` unless all arguments are valid. Python counts them."""
        if self._declared is None:
            self._declared = self._read()
        for at, value in enumerate(args):
            self._check(self._names[at] if at < len(self._names) else self._names[-1], value)
        for name, value in kwargs.items():
            self._check(name, value)

    def _check(self, name: str, value: Any) -> None:
        assert self._declared is not None
        if name in self._declared:
            fits, written = self._declared[name]
            if fits is not None and not fits(value):
                raise InvalidInput(
                    f"{self._verb} takes {name} as {written}, and was given "
                    f"{_kind(value)}. Nothing was changed."
                )
            if written in _FREE:
                return
        # Most arguments are one of these, and a turn should not pay for the others.
        kind = cast("type[Any]", type(value))
        if value is None or kind is bool or isinstance(value, _MADE_HERE):
            return
        if kind is str and value.isascii() and "\0" not in value:
            return
        if problem := _holds_nul(value) or _invalid_count(name, value) or problem_of(value):
            raise InvalidInput(f"{name} of {self._verb} {problem}. Nothing was stored or changed.")

    def _read(self) -> dict[str, tuple[Fits | None, str]]:
        declared: dict[str, tuple[Fits | None, str]] = {}
        for name, parameter in inspect.signature(self._method).parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD or parameter.annotation is parameter.empty:
                continue
            written = str(parameter.annotation)
            hint = eval(written, self._method.__globals__)  # noqa: S307 - an annotation of ours
            declared[name] = (fits_of(hint), written)
        return declared


def _kind(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _holds_nul(value: Any) -> str:
    """Return a problem if a text holds a NUL, which PostgreSQL cannot store."""
    texts = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else (value,)
    holds = any(isinstance(text, str) and "\0" in text for text in texts)
    return "holds a NUL character" if holds else ""


def _invalid_count(name: str, value: Any) -> str:
    return "is less than 0" if name in _COUNTS and isinstance(value, int) and value < 0 else ""


def problem_of(value: Any) -> str:
    """Say what in a value no store can keep, however deep inside; nothing if all of it can be."""
    return _problem(value, 0, set())


def _problem(value: Any, depth: int, done: set[int]) -> str:
    if isinstance(value, str):
        return _problem_of_text(value)
    if isinstance(value, int):
        return "" if abs(value) <= MAX_NUMBER else "holds a number of more than 64 bits"
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"holds {value}, which is not a number"
    inside = _inside(value)
    if inside is None or id(value) in done:
        return ""
    if depth == _MAX_DEPTH:
        return f"is nested more than {_MAX_DEPTH} times, or holds itself"
    for part in inside:
        if problem := _problem(part, depth + 1, done):
            return problem
    done.add(id(value))
    return ""


def _inside(value: Any) -> Iterable[Any] | None:
    if isinstance(value, Mapping):
        both = cast("Mapping[Any, Any]", value)
        return [*both.keys(), *both.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return cast("Iterable[Any]", value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return None


def _problem_of_text(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return (
                "holds characters that are not valid Unicode (lone surrogates), as when bytes of "
                "another encoding are read as UTF-8"
            )
    return ""


def fits_of(hint: Any) -> Fits | None:
    """Return a function that checks the type of a value; None if every value is valid."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        members = [fits_of(part) for part in inside]
        if None in members:
            return None
        several = cast("list[Fits]", members)
        return lambda value: any(fits(value) for fits in several)
    if hint is None or hint is type(None):
        return lambda value: value is None
    if origin is Literal:
        return lambda value: isinstance(value, str | int) and value in inside
    if isinstance(origin, type):
        return _fits_container(origin, inside)
    if hint in (Any, object) or not isinstance(hint, type) or getattr(hint, "_is_protocol", False):
        return None
    kinds: tuple[type[Any], ...] = (int, float) if hint is float else (hint,)
    return lambda value: isinstance(value, kinds)


def _fits_container(origin: type[Any], inside: tuple[Any, ...]) -> Fits | None:
    if issubclass(origin, tuple) and Ellipsis not in inside:
        each = [fits_of(part) for part in inside]
        return lambda value: (
            isinstance(value, tuple)
            and len(cast("tuple[Any, ...]", value)) == len(each)
            and all(
                fits is None or fits(part)
                for fits, part in zip(each, cast("tuple[Any, ...]", value), strict=True)
            )
        )
    if issubclass(origin, Mapping):
        key, item = (fits_of(part) for part in inside)
        return lambda value: (
            isinstance(value, Mapping)
            and (key is None or all(map(key, cast("Mapping[Any, Any]", value))))
            and (item is None or all(map(item, cast("Mapping[Any, Any]", value).values())))
        )
    if not issubclass(origin, Iterable):
        return None  # such as a function
    part = fits_of(inside[0])

    def fits(value: Any) -> bool:
        # A text is a sequence of texts, and never meant as one.
        if not isinstance(value, origin) or isinstance(value, str | bytes):
            return False
        if part is None or not isinstance(value, Sequence):
            return True  # what can be gone through once is looked at by whoever does
        return all(map(part, cast("Sequence[Any]", value)))

    return fits


def check_is_text(name: object, what: str) -> None:
    """Raise `InvalidInput` if what names something is no text, such as None for every agent."""
    if not isinstance(name, str):
        raise InvalidInput(
            f"{what} is named by a text, and this is {_kind(name)}. Give its name or its id. "
            "Nothing was done."
        )


MAX_AGENT_NAME = 63
"""Characters of the name of an agent or a group."""
_RESERVED_NAMES = {"an agent": ("all", OWNER), "a group": (OWNER,)}
"""What stands for all members of a group in its chat, and for whoever owns the home."""
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""What Unicode counts among letters and marks although nobody sees it."""


def checked_agent_name(name: str, what: Literal["an agent", "a group"] = "an agent") -> str:
    """Return the name of a new agent or group, or raise `InvalidInput` if it cannot be one."""
    check_field("The name", name)
    if not 0 < len(name) <= MAX_AGENT_NAME:
        fault = f"it has {len(name)} characters"
    elif is_id(name, "agent", "group"):
        fault = "it looks like an id"
    elif invalid := [char for char in name if not (_is_letter(char) or char in "_-. /")]:
        fault = f"it holds {invalid[0]!r}"
    elif not all(map(_is_name_part, name.split("/"))):
        fault = "of its beginning, its end, or two spaces or slashes in a row"
    elif unicodedata.normalize("NFKC", name).casefold() in _RESERVED_NAMES[what]:
        fault = "the word has a meaning of its own"
    else:
        return name
    raise InvalidInput(
        f"{shorten_text(name, MAX_AGENT_NAME)!r} cannot name {what}, because {fault}. A name has 1 "
        f"to {MAX_AGENT_NAME} letters and digits of any script, and between them '_', '-', '.', "
        "'/' and single spaces, such as 'aria' or 'Ben Smith'. Choose another. Nothing was changed."
    )


def _is_letter(char: str) -> bool:
    """Tell whether a character is a letter, a digit or a mark on one, of any script."""
    return unicodedata.category(char)[0] in "LMN" and not _INVISIBLE.match(char)


def _is_name_part(part: str) -> bool:
    """Tell whether a part between slashes begins with a letter and has single spaces inside."""
    begins = part[:1] == "_" or unicodedata.category(part[:1] or " ")[0] in "LN"
    return begins and all(part.split(" "))


def checked_name(name: str, what: str) -> str:
    """Return the name of something, or raise `InvalidInput` if it cannot be one."""
    check_field("The name", name)
    if not name.strip() or len(name) > 100 or any(ord(char) < 32 for char in name):
        raise InvalidInput(
            f"{name[:40]!r} cannot name {what}: a name has 1 to 100 characters on one line. "
            "Choose another. Nothing was changed."
        )
    return name


def no_such_turn(turn_id: str) -> NotFound:
    """Return the error for a turn that does not exist, or that the actor may not see."""
    return NotFound(
        f'There is no turn {shorten_text(turn_id)!r}. "asterism turn list" shows the latest ones.'
    )


def shorten_text(text: str, most: int = 100) -> str:
    """Return a text for a message, which need not repeat all of it."""
    return text if len(text) <= most else f"{text[:most]}…"


def no_such(kind: str, name: str, there: list[str]) -> str:
    """Return the message for a name that does not exist, with the names that do."""
    name = shorten_text(name)
    near = difflib.get_close_matches(name, there, 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    if len(there) == 1:
        only = hint or f" The only {kind} is {there[0]!r}."
        return f"There is no {kind} named {name!r}.{only}"
    if there:
        return (
            f"There is no {kind} named {name!r}.{hint} "
            f'"asterism {kind} list" shows all {len(there)}.'
        )
    remedy = {
        "agent": '"asterism agent create"',
        "group": '"asterism group create"',
        "key": '"asterism key set"',
        "source": '"asterism source add"',
        "tool": "A file named in tools.modules",
    }[kind]
    return f"There is no {kind} named {name!r}, nor any other. {remedy} makes one."


def checked_model(model: str) -> str:
    """Return the name of a model or of a chain, or raise `InvalidInput`."""
    check_field("The model", model)
    if model == DEFAULT_MODEL:
        return model
    for full_name in chain_of(model):
        vendor, _, name = full_name.partition(":")
        if not (vendor and name) or any(char.isspace() for char in full_name):
            raise InvalidInput(
                f"{full_name!r} does not name a model; it takes a vendor and a name such as "
                "'openai:gpt-4.1-mini' or 'demo:guide', several of them separated by commas, or "
                "'default' for the configured one. Nothing was changed."
            )
    return ", ".join(chain_of(model))


def checked_schema(schema: Mapping[str, Any] | None) -> str | None:
    """Return a JSON schema as text, or raise `InvalidInput` if it is not valid."""
    if schema is None:
        return None
    try:
        text = orjson.dumps(schema).decode()
    except TypeError as error:
        raise InvalidInput(f"The schema is not JSON: {error}. Nothing was stored.") from None
    if fault := answer_schema_fault(orjson.loads(text)):
        raise InvalidInput(f"The schema is not a valid JSON schema: {fault}. Nothing was stored.")
    return text


def checked_system(system: str) -> str:
    """Return a system prompt, or raise `InvalidInput` if it cannot be kept."""
    check_field("The system prompt", system, MAX_MESSAGE_LENGTH)
    return system
