"""Asterism: an open home, its nouns, and how it opens and closes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from asterism.app.access import Tokens, Users, ensure_default_token
from asterism.app.agents import Agents, Halts, Search
from asterism.app.authentication import Access, Credential, NewWebSession
from asterism.app.constellations import (
    ConstellationRegistry,
    Constellations,
    ConstellationSettings,
    constellation_directory,
)
from asterism.app.engine import (
    Engine,
    begin_spans,
    channel_check,
    forgets_again,
    make_toolbox,
    open_database,
)
from asterism.app.listener import Listener
from asterism.app.session import Session, verbs
from asterism.app.spending import SpendingReports, presume_orphans
from asterism.app.sync import SyncAsterism
from asterism.app.tools import Workshop
from asterism.app.turns import Notices, Outbox, Schedules, Turns, visible_inbox
from asterism.config import LiveSettings, Settings, data_directory
from asterism.errors import AsterismError, InvalidInput
from asterism.permissions import Act, Actor, LiveAuthority
from asterism.ports import Answering, Channel, Clock, Model
from asterism.private import is_disk_full, make_directory
from asterism.records import dataclass
from asterism.store import agents, groups, messages
from asterism.store.database import Connection, Database, DatabaseView
from asterism.store.forgetting import FORGOTTEN
from asterism.telemetry import Telemetry
from asterism.times import DAY, Moment
from asterism.tools.tool import Tool, Toolbox
from asterism.turns.crashes import MARKS
from asterism.turns.lanes import Indexing, Lanes, LocalLanes, Pump
from asterism.turns.runtime import Hub, Runtime
from asterism.types.agents import DEFAULT_MODEL, Account, AgentRecord, Halt, new_id, now_ms
from asterism.types.turns import Message, Receipt
from asterism.version import __version__

if TYPE_CHECKING:
    from asterism.app.alerts import Alerts, AlertWatch
    from asterism.app.archive import Archive
    from asterism.app.audit import Audit
    from asterism.app.backups import Backups, ScheduledBackups
    from asterism.app.blocks import Blocks
    from asterism.app.configuration import Configuration
    from asterism.app.contexts import Contexts
    from asterism.app.groups import Groups
    from asterism.app.keys import Keys
    from asterism.app.mcp import Mcp
    from asterism.app.memory import Memory
    from asterism.app.people import People
    from asterism.app.rules import Rules
    from asterism.app.sources import Sources
    from asterism.app.tools import Tools
    from asterism.app.turns import Approvals, Grants

_log = logging.getLogger(__name__)

_RETAIN_EVERY = 3_600.0
_FULL_FOR = 60.0
"""Seconds for which a disk that had no room for a write is held to be full."""


@dataclass(frozen=True, slots=True)
class HomeStatus:
    """How a home is doing."""

    pid: int | None
    """The process that has it open; None for whoever has not the machine it runs on."""
    version: str
    started_at_ms: int
    """When that process opened it."""
    working: bool
    """Whether turns are taken there."""
    model: str
    """The default model, as `vendor:name`."""
    agents: int
    open_turns: int
    """Messages that are not answered yet."""
    approvals: int
    """Questions that wait for an answer."""
    halt: Halt | None
    address: str | None = None
    """Where the HTTP API of that process listens, if it does."""

    started_at = Moment()


@verbs("home", counts=Act.READ, metrics=Act.READ, check=Act.READ, status=Act.READ)
class Home:
    """A constellation of agents as somebody has it: its nouns, judged as theirs.

    Each noun has a file of its own; most are imported when they are first used.
    """

    def __init__(self, engine: Engine, session: Session) -> None:
        """Make the home of the actor."""
        self._engine = engine
        self._session = session

    @cached_property
    def agents(self) -> Agents:
        """The agents: `aria = await home.agents.ensure("aria")`."""
        return Agents(self._engine, self._session, self.search, lambda: self.archive)

    @cached_property
    def groups(self) -> Groups:
        """The groups of agents: `await home.groups.create("board", pattern="voting")`."""
        from asterism.app.groups import Groups

        return Groups(self._engine, self._session)

    @cached_property
    def turns(self) -> Turns:
        """The turns of all agents."""
        return Turns(self._engine, self._session, self.agents)

    @cached_property
    def notices(self) -> Notices:
        """What the owner must be told."""
        return Notices(self._session)

    @cached_property
    def alerts(self) -> Alerts:
        """What is wrong with the home now."""
        from asterism.app.alerts import Alerts

        return Alerts(self._session)

    @cached_property
    def outbox(self) -> Outbox:
        """What must go out to channels."""
        return Outbox(self._engine, self._session)

    @cached_property
    def schedules(self) -> Schedules:
        """Messages that agents get at a later time."""
        return Schedules(self._engine, self._session)

    @cached_property
    def spending(self) -> SpendingReports:
        """What models cost."""
        return SpendingReports(self._engine, self._session)

    @cached_property
    def blocks(self) -> Blocks:
        """The blocks of agents, and of the constellation."""
        from asterism.app.blocks import Blocks

        return Blocks(self._session)

    @cached_property
    def audit(self) -> Audit:
        """What was done, by whom and why."""
        from asterism.app.audit import Audit

        return Audit(self._session)

    @cached_property
    def keys(self) -> Keys:
        """Keys of others, encrypted at rest."""
        from asterism.app.keys import Keys

        return Keys(self._session, self._engine.keys)

    @cached_property
    def backups(self) -> Backups:
        """Copies of the whole home."""
        from asterism.app.backups import Backups

        return Backups(self._engine, self._session)

    @cached_property
    def tools(self) -> Tools:
        """The tools that were registered."""
        from asterism.app.tools import Tools

        return Tools(self._session, self._engine.tools)

    @cached_property
    def mcp(self) -> Mcp:
        """MCP servers, whose tools are offered beside our own."""
        from asterism.app.mcp import Mcp

        return Mcp(self._session, self._engine.mcp)

    @cached_property
    def archive(self) -> Archive:
        """The archives of agents."""
        from asterism.app.archive import Archive
        from asterism.app.contexts import ask_outside_turn

        async def ask(agent: AgentRecord, text: str) -> str:
            payer = self._session.payer
            return await ask_outside_turn(
                self._engine.services, agent, text, new_id("aside"), payer
            )

        return Archive(
            self._session,
            self.search,
            lambda: ask if self._engine.settings.memory.judge == "model" else None,
        )

    @cached_property
    def search(self) -> Search:
        """Search over all that agents remember: `await home.search(agent, text, …)`."""
        return Search(self._engine, self._session)

    @cached_property
    def people(self) -> People:
        """The persons that agents talk to."""
        from asterism.app.people import People

        return People(self._session)

    @cached_property
    def constellations(self) -> Constellations:
        """The constellations of a server, for the owner of its own."""
        return Constellations(self._session)

    @cached_property
    def tokens(self) -> Tokens:
        """Tokens for the HTTP API."""
        return Tokens(self._session, self._engine.access, self._tokens_of)

    async def _tokens_of(self, constellation: str) -> Tokens:
        """Return the tokens of another constellation of the server, for its owner."""
        name = (await self.constellations.get(constellation)).name
        registry = self._engine.constellations
        assert registry is not None  # else the constellation could not be seen
        home: Home = await registry.home(name)
        return home.tokens

    @cached_property
    def users(self) -> Users:
        """Users of the web page."""
        return Users(self._session, self._engine.access)

    @cached_property
    def rules(self) -> Rules:
        """The rules for agents' tools: told to the model, and enforced."""
        from asterism.app.rules import Rules

        return Rules(self._session, self._engine.toolbox)

    @cached_property
    def halts(self) -> Halts:
        """Halts of all agents."""
        return Halts(self._session)

    @cached_property
    def sources(self) -> Sources:
        """The folders of documents that agents can search."""
        from asterism.app.sources import Sources

        return Sources(self._session)

    @cached_property
    def contexts(self) -> Contexts:
        """What models see, or saw."""
        from asterism.app.contexts import Contexts

        engine = self._engine
        return Contexts(
            self._session, engine.services, engine.runtime.loaded_agent, engine.models.link
        )

    @cached_property
    def memory(self) -> Memory:
        """Memory as a whole: time travel, provenance, health, forgetting, export."""
        from asterism.app.memory import Memory

        return Memory(self._session, lambda: list(self._engine.settings.retention.values()))

    @cached_property
    def approvals(self) -> Approvals:
        """The questions that turns wait for."""
        from asterism.app.turns import Approvals

        return Approvals(self._engine, self._session)

    @cached_property
    def grants(self) -> Grants:
        """Permissions of agents for more than one call."""
        from asterism.app.turns import Grants

        return Grants(self._session)

    @cached_property
    def config(self) -> Configuration:
        """The settings of the home."""
        from asterism.app.configuration import Configuration

        return Configuration(self._session, self._engine.live_settings)

    def check_verb(self, name: str) -> Awaitable[None]:
        """Return if whoever has this home may use a verb, such as `sources.upload`; else raise."""
        noun, _, verb = name.partition(".")
        method: Any = getattr(getattr(self, noun), verb)
        act, told = method.verb
        return self._session.allow(act, told, told.partition(".")[0])

    def may_use(self, name: str) -> bool:
        """Tell whether whoever has this home may use a verb; nothing is noted if not."""
        noun, _, verb = name.partition(".")
        return self._session.may(*getattr(getattr(self, noun), verb).verb)

    def find_verb(self, name: str) -> Callable[..., Any] | None:
        """Return a verb by its name, such as `agents.list`, if the class of its noun has it."""
        noun, _, verb = name.partition(".")
        target: object = self if noun == "home" else None
        if isinstance(vars(Home).get(noun), cached_property):
            target = getattr(self, noun)
        declared = hasattr(getattr(type(target), verb, None), "verb")
        return getattr(target, verb) if declared else None

    @property
    def is_unlimited(self) -> bool:
        """Whether it is the owner's, without a limit on the acts and the agents.

        The token may end all the same: what it makes must not outlast it.
        """
        limits = self._session.limits
        is_free = limits is None or (limits.acts is None and limits.agents is None)
        return self._session.is_owner and is_free

    async def counts(self) -> tuple[int, int]:
        """Return how many agents there are, and how many messages wait."""
        session = self._session

        async def read(tx: Connection) -> tuple[int, int]:
            if not session.sees_all:
                there = len(await session.agents_in(tx))
                return there, len(await visible_inbox(tx, session))
            return await agents.count(tx), await messages.count(tx)

        return await session.database.read(read)

    async def check(self) -> list[str]:
        """Return what is wrong with the store; nothing if it is healthy."""
        return await self._engine.database.check()

    async def status(self) -> HomeStatus:
        """Return how the home is doing."""
        engine = self._engine
        agents, _ = await self.counts()
        return HomeStatus(
            os.getpid() if self._session.owns_machine else None,
            __version__,
            engine.opened_at_ms,
            engine.lanes is not None,
            engine.settings.default_model,
            agents,
            len(await self.turns.unfinished()),
            len(await self.approvals.list()),
            await self.halts.current(),
            engine.address,
        )

    async def metrics(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics in a text format that Prometheus reads, and the format's type."""
        from asterism.app.metrics import read_metrics

        engine = self._engine
        return await read_metrics(
            engine.database,
            engine.telemetry,
            engine.models.breakers(),
            now=engine.clock(),
            accept=accept,
        )


def nouns() -> frozenset[str]:
    """Return the nouns of a home, such as `agents`."""
    members = vars(Home).items()
    return frozenset(name for name, value in members if isinstance(value, cached_property))


def actor_of(home: Home) -> Actor:
    """Return who acts in a home."""
    return home._session.actor  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - a home has nouns only


def owns_machine(home: Home) -> bool:
    """Tell whether a home is for the owner of the machine, who may know paths and processes."""
    return home._session.owns_machine  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - a home has nouns only


def is_full(home: Home) -> bool:
    """Tell whether the disk has no room, or had none for a write of the last minute."""
    session = home._session  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - a home has nouns only
    last_full = session.database.last_full
    if last_full is not None and time.monotonic() - last_full < _FULL_FOR:
        return True
    return is_disk_full(session.data)


def agents_of(home: Home) -> frozenset[str]:
    """Return the ids of the only agents that exist in a home for whoever acts; none: all do."""
    # The home of another process is the owner's, and has no such limit.
    session: Session | None = vars(home).get("_session")
    return (session.only_agents if session is not None else None) or frozenset()


class Asterism(Home):
    """A constellation of agents, open. Use `async with Asterism.open(…) as home:`."""

    def __init__(self, engine: Engine) -> None:
        """Make the owner's home, which opens and closes the engine."""
        super().__init__(engine, engine.session)
        self._listening: list[asyncio.Task[None]] = []
        self._retention = Pump(
            "retention", self._apply_retention, engine.clock, longest_sleep=_RETAIN_EVERY
        )
        self._scheduled: ScheduledBackups | None = None
        self._alerts: AlertWatch | None = None
        engine.live_settings.subscribe(lambda _, new: self._schedule_backups(new))
        self._watching: asyncio.Task[None] | None = None
        self._retain_next = 0
        self._listener: Listener | None = None
        self._opening_others: asyncio.Task[None] | None = None
        self._registry: ConstellationRegistry | None = None
        if engine.server is None:
            self._registry = ConstellationRegistry(engine, self, self._open_constellation)
            engine.constellations = self._registry
        self._starting_work = asyncio.Lock()
        self._closing = False
        self._has_own_store = False
        """Whether the store is in the data directory, which no other process has open."""
        self.taken_up: list[str] = []
        """Turns that were accepted before the last stop or crash and go on in this process."""

    def acting_as(self, actor: Actor) -> Home:
        """Return the same home for another actor, with the permissions of that actor."""
        return Home(self._engine, replace(self._session, actor=actor))

    # -- for the HTTP server -----------------------------------------------------------------------

    @property
    def access(self) -> Access:
        """Finds out who comes with a secret."""
        return self._engine.access

    async def home_of_secret(self, secret: str) -> Asterism:
        """Return the home of the constellation that a token or a session is of; else this one."""
        registry = self._registry
        return self if registry is None else await registry.home_of_secret(secret)

    async def authenticate(self, secret: str, *, client: str = "") -> Home:
        """Return the home as the bearer of a token may use it, which is that of its constellation.

        Args:
            secret: The secret of the token, `ast_…`.
            client: The address it came from; too many wrong secrets from one are not heard.

        Raises:
            NotAuthenticated: The token is unknown, expired or revoked.
            TooManyAttempts: It was not checked; `retry_after` says for how many seconds.
        """
        home = await self.home_of_secret(secret)
        return home.home_of(await home.access.of_token(secret, client))

    def home_of(self, credential: Credential) -> Home:
        """Return the home as it may be used with a token or a session; it is made once."""
        if credential.home is None:
            credential.home = Home(self._engine, credential.session)
        return credential.home

    async def log_in(
        self, name: str, password: str, *, client: str = "", constellation: str | None = None
    ) -> NewWebSession:
        """Begin a session of the web page for the owner or a person with a password."""
        return await self._engine.access.log_in(name, password, client, constellation)

    async def log_out(self, secret: str) -> None:
        """End the session of the web page with this secret."""
        await (await self.home_of_secret(secret)).access.log_out(secret)

    def listens_at(self, address: str | None) -> None:
        """Note where the HTTP API of this process listens; None: it does not any more."""
        self._engine.address = address
        if address is not None and self.telemetry.spans is None:
            # Where no turns are taken, requests are traced all the same.
            begin_spans(self.telemetry, self.settings)

    async def ensure_default_token(self) -> str:
        """Make the token `default` at the first start; return what a person should know."""
        return await ensure_default_token(self.tokens, self._session)

    # -- for other processes, through the socket ---------------------------------------------------

    async def greet(self, *, work: bool) -> dict[str, Any]:
        """Return what a client must know; with `work`, turns are taken here from now on."""
        # On PostgreSQL, whoever started this process has said whether it takes turns.
        if work and not self._engine.database.distributed:
            await self.start_working()
        settings = self.settings
        return {
            "pid": os.getpid(),
            "zone": settings.zone_name if settings.timezone else None,
            "config": str(self._engine.live_settings.file),
        }

    # -- parts, for the process that runs it -------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """The settings in use."""
        return self._engine.settings

    @property
    def database(self) -> Database:
        """The store, where everything of the home is."""
        return self._engine.database

    @property
    def toolbox(self) -> Toolbox:
        """The tools that agents are offered."""
        return self._engine.toolbox

    @property
    def hub(self) -> Hub:
        """Where watchers hear of what happens in turns."""
        return self._engine.hub

    @property
    def telemetry(self) -> Telemetry:
        """Counts and spans."""
        return self._engine.telemetry

    @property
    def indexing(self) -> Indexing:
        """What makes vectors of texts, in the background."""
        return self._engine.indexing

    @property
    def authorities(self) -> LiveAuthority:
        """What the owner has decided beforehand."""
        return self._engine.authorities

    @property
    def workshop(self) -> Workshop:
        """The tools `shell` and `file`, and the sandbox that programs run in."""
        return self._engine.workshop

    @property
    def now(self) -> Clock:
        """The clock: milliseconds since 1970."""
        return self._engine.clock

    # -- life ----------------------------------------------------------------------------------

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        data: Path | str | None = None,
        *,
        config: Path | str | None = None,
        environ: Mapping[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
        tools: Sequence[Tool] = (),
        models: Mapping[str, Model] | None = None,
        channels: Mapping[str, Channel] | None = None,
        plugins: Mapping[str, Mapping[str, object]] | None = None,
        database: Database | None = None,
        work: bool = True,
        readonly: bool = False,
        grace: float = 10.0,
        clock: Clock = now_ms,
        on_problem: Callable[[str], None] = _log.warning,
    ) -> AsyncGenerator[Self, None]:
        """Open a data directory (or the database it is configured for) and start to work.

        Args:
            data: The data directory; else ASTERISM_DATA, else the platform's usual place.
            config: The configuration file; else ASTERISM_CONFIG, else `asterism.toml` in `data`.
            environ: The environment to read settings from.
            settings: Settings that win over file and environment, such as `{"model": "a:b"}`.
            tools: Tools to offer beside the built-in and configured ones.
            models: Model ports by vendor, instead of configured ones.
            channels: Channels by name, instead of configured ones.
            plugins: Plugins of the pipeline by kind (`processors`, `sections`, `evaluators`) and
                name, beside those that are installed; they stand around every agent's model.
            database: An open database, instead of the configured one; it is closed with the rest.
            work: Run turns here; False only hands in, reads and waits.
            readonly: Read what is at rest while another process may be working.
            grace: Seconds that turns under way get when this closes.
            clock: Milliseconds since 1970.
            on_problem: Called with each problem of a reloaded configuration.
        """
        variables = os.environ if environ is None else environ
        place = data_directory(Path(data) if data is not None else None, variables)
        live = LiveSettings(
            place,
            Path(config) if config else None,
            variables,
            settings,
            on_problem=on_problem,
            check=channel_check(channels or ()),
        )
        toolbox = make_toolbox(live.current, place, tools)
        listens = database is None and not readonly
        if database is None:
            database = await open_database(live.current, place, readonly=readonly)
        else:
            database = database.for_constellation(live.current.constellation)
        engine = Engine(database, live, toolbox, clock, place, variables)
        engine.models.put(models or {})
        engine.channels.put(channels or {})
        engine.pipeline.put(plugins or {})
        engine.prices.custom_vendors.update(models or {})
        home = cls(engine)
        home._has_own_store = listens and not engine.database.distributed
        try:
            await home._begin(work=work, readonly=readonly)
            if home._has_own_store:
                home._listener = Listener(home, place)
                await home._listener.start()
            yield home
        finally:
            await home._close(grace)

    @staticmethod
    def connect(
        target: str | Path | None = None, token: str | None = None
    ) -> AbstractAsyncContextManager[Asterism]:
        """Use a home that runs in another process: `async with Asterism.connect(…) as home:`.

        It has the same nouns and verbs. What needs the process that runs it, such as its settings,
        is not there.

        Args:
            target: Where `asterism serve` listens, such as `https://home.example.org`, or a data
                directory that a process of this user has open; None: the usual one.
            token: For an address: a token of the owner; None: that of the environment variable
                ASTERISM_TOKEN.

        Raises:
            HomeLost: Nobody has the home open, or it cannot be reached.
        """
        from asterism.app.remote import connected_to

        home = connected_to(target, token, os.environ, nouns())
        return cast("AbstractAsyncContextManager[Asterism]", home)

    @classmethod
    def connect_sync(
        cls, target: str | Path | None = None, token: str | None = None
    ) -> SyncAsterism:
        """Use a home that runs in another process from a script: `connect` without `await`."""
        return SyncAsterism(lambda: cls.connect(target, token))

    @classmethod
    def open_sync(cls, data: Path | str | None = None, **options: Any) -> SyncAsterism:
        """Open a home for a script or a notebook: the same verbs, without `await`.

        `with Asterism.open_sync() as home:`; `open` has the options.
        """
        return SyncAsterism(lambda: cls.open(data, **options))

    async def _open_constellation(self, name: str) -> tuple[Asterism, Engine]:
        """Open another constellation of the same database, beside this one."""
        server = self._engine
        place = constellation_directory(self._session.data, name)
        await asyncio.to_thread(make_directory, place)
        settings = ConstellationSettings(server.live_settings, place, name, server.environ)
        toolbox = make_toolbox(settings.current, place, ())
        engine = Engine(
            server.database.for_constellation(name),
            settings,
            toolbox,
            server.clock,
            place,
            server.environ,
            server,
        )
        engine.prices.custom_vendors.update(server.prices.custom_vendors)
        home = type(self)(engine)
        try:
            await home._begin(work=server.lanes is not None, readonly=False)  # noqa: SLF001 - a home
        except BaseException:
            await home._close(0.0)  # noqa: SLF001 - a home
            raise
        return home, engine

    async def _begin(self, *, work: bool, readonly: bool) -> None:
        engine = self._engine
        await engine.keys.open(readonly=readonly)
        for tool in engine.workshop.tools():
            engine.toolbox.add(tool)
        await engine.tools.open(readonly=readonly)
        if engine.settings.mcp and (readonly or not work):
            engine.mcp.start(connect=False)
        if not readonly:
            await self._start(work)

    async def _start(self, work: bool) -> None:
        engine = self._engine
        await presume_orphans(engine.database, engine.clock())
        if engine.database.upgrade is not None and engine.server is None:
            from asterism.app.backups import tell_upgrade

            await tell_upgrade(engine.database, engine.clock())
        await engine.database.listen(FORGOTTEN, self._on_forgetting)
        if forgets_again(self._session.data):
            # An older copy of the database may have brought back what was forgotten.
            await self.memory.forget_again()
        await engine.runtime.start()
        if work:
            await self.start_working()

    async def start_working(self) -> None:
        """Take turns in this process from now on, if it does not yet."""
        engine = self._engine
        async with self._starting_work:
            if engine.lanes is not None or self._closing:
                return
            if engine.server is not None and engine.server.lanes is None:
                return  # where the server takes no turns, none are taken
            for name in engine.channels.names():
                engine.channels.get(name)  # one that cannot be made is told now, not for ever after
            if engine.settings.mcp:
                engine.mcp.start(connect=True)
            begin_spans(engine.telemetry, self.settings)
            if engine.server is not None:
                # Lanes, deliveries and schedules of all constellations are the server's.
                engine.lanes = engine.server.lanes
                assert engine.lanes is not None
                engine.runtime.use_lanes(engine.lanes)
            else:
                await self._take_turns()
            await engine.approvals.start()
            self._retention.start()
            self._schedule_backups(self.settings)
            self._watch_for_alerts()
            await engine.indexing.start()
            for name in engine.channels.names():
                self._listening.append(asyncio.create_task(self._listen(name)))

    async def _take_turns(self) -> None:
        """Begin with the work of all constellations of the database."""
        engine = self._engine
        if engine.cassette is not None:
            engine.cassette.check()
        lanes = self._make_lanes()
        if not engine.database.distributed:
            self.taken_up = await self.turns.unfinished()
        engine.lanes = lanes
        marks = self._session.data / MARKS if self._has_own_store else None
        await engine.crashes.start(marks, self.settings.runtime.turns)
        await engine.runtime.take_turns(lanes)
        # What is slow to import is imported now, not in the middle of the first turn.
        with contextlib.suppress(AsterismError):
            engine.models.link(engine.models.chain(DEFAULT_MODEL)[0])
        await engine.outbox.start()
        await engine.schedules.start()
        await engine.groups.start()
        self._opening_others = asyncio.create_task(self._open_others())

    async def _open_others(self) -> None:
        """Open the other constellations that have open work; let those work that are open."""
        registry = self._registry
        assert registry is not None
        for home in registry.others():
            await home.start_working()
        await registry.open_busy()

    def _watch_for_alerts(self) -> None:
        from asterism.app.alerts import AlertWatch

        self._alerts = AlertWatch(self._engine, self._session.data)
        self._alerts.start()

    def _schedule_backups(self, settings: Settings) -> None:
        """Make backups as the settings say, where turns are taken."""
        if self._scheduled is not None:
            self._scheduled.kick()
        elif settings.backups.every and self._engine.lanes is not None and not self._closing:
            from asterism.app.backups import ScheduledBackups

            self._scheduled = ScheduledBackups(self._engine)
            self._scheduled.start()

    def _on_forgetting(self, constellation: str) -> None:
        """Drop what this process remembers, whichever process forgets."""
        if constellation == self._engine.database.constellation:
            self._engine.clear()
            self._engine.runtime.forget_all()

    def _make_lanes(self) -> Lanes:
        settings, engine = self.settings.runtime, self._engine
        registry = engine.constellations
        assert registry is not None

        async def runtime_of(agent_id: str) -> Runtime:
            return (await registry.engine_of_agent(agent_id)).runtime

        engine.runtime.runtime_of = runtime_of
        if not engine.database.distributed:
            return LocalLanes(
                engine.runtime.serve_any,
                lambda: engine.database.read(messages.busy_agents),
                settings.turns,
            )
        from asterism.store.postgres import Postgres
        from asterism.turns.lanes_postgres import ProcrastinateLanes

        database = engine.database
        driver = database.driver if isinstance(database, DatabaseView) else database
        assert isinstance(driver, Postgres)

        async def work(agent_id: str) -> None:
            await engine.runtime.serve_any(agent_id, None)

        return ProcrastinateLanes(
            driver,
            work,
            concurrency=settings.turns,
            heartbeat=settings.heartbeat,
            stalled_after=settings.stalled_after,
        )

    async def _close(self, grace: float) -> None:
        engine = self._engine
        if self._listener is not None:
            self._listener.refuse_new()
        async with self._starting_work:
            self._closing = True
        beside = [task for task in (self._watching, self._opening_others) if task is not None]
        for task in (*self._listening, *beside):
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        await engine.schedules.stop()
        await engine.groups.stop()
        await engine.approvals.stop()
        await self._retention.stop()
        for watch in (self._scheduled, self._alerts):
            if watch is not None:
                await watch.stop()
        await engine.indexing.stop()
        await engine.runtime.stop(grace)
        if self._registry is not None:
            for home in await self._registry.settle():
                await home._close(grace)  # noqa: SLF001 - a home
        if self._listener is not None:
            # Whoever follows a turn from elsewhere has seen how it ended.
            await self._listener.close()
        if engine.has_servers:
            await engine.mcp.close()
        await engine.tools.close()
        await engine.workshop.close()
        if engine.server is None:
            await engine.crashes.close()
            await engine.outbox.stop()
        await engine.telemetry.close()
        if engine.server is None:
            await engine.models.close()
        await engine.channels.close()
        await engine.keys.close()
        await engine.access.close()
        if engine.server is None:
            await engine.database.close()

    async def _target_of(self, channel: str, message: Message) -> str:
        """Return the id of the agent or group that a message of a channel is for."""
        configured = self._engine.live_settings.current.channels.get(channel)
        room = message.origin.room
        target = message.target or (configured.answers_in(room) if configured else None)
        if not target:
            where = f"the room {room!r}" if room is not None else "private"
            raise InvalidInput(
                f"A message from the channel {channel!r} in {where} names nobody, and nobody is "
                f"set to answer there. Set target or rooms in [channels.{channel}]. Nothing was "
                "stored."
            )
        group = await self._session.database.read(lambda tx: groups.by_name(tx, target))
        return group.id if group is not None else (await self._session.agent(target)).id

    async def _listen(self, name: str) -> None:
        """Take messages from a channel; start the channel again when it fails."""

        async def accept(message: Message) -> Receipt:
            origin = message.origin
            # Whoever does not say who they are is not the owner.
            sender = origin.sender or origin.reply_to or "somebody"
            target = await self._target_of(name, message)
            return await self._engine.runtime.accept(
                replace(message, target=target, origin=replace(origin, channel=name, sender=sender))
            )

        async def answer(
            approval_id: str,
            *,
            approved: bool,
            sender: str,
            reply_to: str | None = None,
            note: str | None = None,
        ) -> str:
            return await self.approvals.answer(
                approval_id,
                approved=approved,
                by=Account(name, sender),
                place=f"{name}:{reply_to or sender}",
                note=note,
            )

        wait = 1.0
        while True:
            try:
                channel = self._engine.channels.get(name)
                if isinstance(channel, Answering):
                    channel.take_answers(answer)
                await channel.listen(accept)
            except Exception:  # noqa: BLE001 - one channel must not take the others down
                _log.exception("channel %s failed; starting it again in %g s", name, wait)
                await asyncio.sleep(wait)
                wait = min(wait * 2, 60.0)
            else:
                return

    # -- configuration -------------------------------------------------------------------------

    def follow_configuration(self, changed: Callable[[Settings], None] | None = None) -> None:
        """Put changes of the configuration file in use as they are saved, and tell `changed`."""
        if changed is not None:
            self._engine.live_settings.subscribe(lambda _, new: changed(new))
        if self._watching is None:
            self._watching = asyncio.create_task(self._engine.live_settings.watch())

    async def _apply_retention(self) -> None:
        """Anchor the chains of events every hour; apply the rules of retention once a day."""
        await self.audit.anchor()
        if self.settings.retention and self._engine.clock() >= self._retain_next:
            self._retain_next = self._engine.clock() + DAY
            await self.memory.retain()
