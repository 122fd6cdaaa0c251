"""The engine of an open home: the parts that are made once, for every actor.

A home is the engine and somebody who acts. What a verb does for a person goes through objects that
are made for that person; what is shared between them is here, and judges nobody.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from asterism import plugins
from asterism.app.authentication import Access
from asterism.app.keys import KeyRing, Secret, key_of, key_of_setting
from asterism.app.session import Session
from asterism.app.tools import OfferedTools, Workshop
from asterism.config import LiveSettings, Settings
from asterism.config.load import Check
from asterism.config.parse import Key, printable
from asterism.errors import AsterismError, ConfigError, NotFound
from asterism.gate import policies_of
from asterism.groups.runner import GroupPump, GroupRunner
from asterism.memory.forgetting import ForgottenTexts
from asterism.models.chain import ModelRegistry
from asterism.permissions import Act, Authority
from asterism.permissions.decide import LiveAuthority
from asterism.ports import (
    Channel,
    ChannelFactory,
    Clock,
    Encoder,
    Encodes,
    Model,
    ModelFactory,
    Pattern,
)
from asterism.private import make_directory
from asterism.search import clear_caches
from asterism.store.database import Connection, Database
from asterism.store.groups import AgentMessage
from asterism.store.sqlite import open_sqlite
from asterism.telemetry import Telemetry
from asterism.tools.builtin.meta import add_more_tool, add_plan_tool
from asterism.tools.tool import Tool, Toolbox
from asterism.turns.approvals import ApprovalQueue
from asterism.turns.crashes import Crashes
from asterism.turns.lanes import Indexing, Lanes, LocalLanes, OutboxPump, SchedulePump
from asterism.turns.pipeline import Pipeline
from asterism.turns.runtime import Hub, Runtime
from asterism.turns.spending import Prices, Spending
from asterism.turns.turn import TurnServices
from asterism.types.agents import Participants, Trust, json_blob
from asterism.types.memory import TOMBSTONES
from asterism.types.search import Query, SearchResult
from asterism.types.turns import Delivery, InboxItem

if TYPE_CHECKING:
    from asterism.app.mcp import McpServers
    from asterism.models.cassette import Cassette
    from asterism.search.search import Searcher


class ServedConstellations(Protocol):
    """The constellations that a process serves, its own among them."""

    async def engine_of_agent(self, agent_id: str) -> Engine:
        """Return the engine of the constellation that an agent belongs to."""
        ...

    async def home(self, name: str) -> Any:
        """Return the home of a constellation, which is opened if it is not open yet."""
        ...


class Engine:
    """The parts of an open home, put together."""

    def __init__(
        self,
        database: Database,
        settings: LiveSettings,
        toolbox: Toolbox,
        clock: Clock,
        data: Path,
        environ: Mapping[str, str],
        server: Engine | None = None,
    ) -> None:
        """Put the parts together; `Asterism.open` does this from a configuration.

        With `server`, it is the engine of a constellation that the server's process serves beside
        its own: it shares the models with their keys and limits, and the outbox.
        """
        self.database = database
        self.live_settings = settings
        self.toolbox = toolbox
        self.clock = clock
        self.environ = environ
        self.opened_at_ms = clock()
        self.address: str | None = None
        """Where the HTTP API of this process listens, if it does."""
        self.hub = Hub()
        self.telemetry = Telemetry()
        self.authorities = LiveAuthority(settings, authority_of)
        self.server = server
        self.models = (
            ModelRegistry(settings, self._make_model, self._make_encoder)
            if server is None
            else server.models
        )
        self.channels = ChannelRegistry(settings)
        self.prices = Prices(settings)
        self.pipeline = Pipeline(settings)
        self.lanes: Lanes | None = None
        self.crashes = (
            Crashes(database, lambda: self.settings.runtime.crashes)
            if server is None
            else server.crashes
        )
        self._forgotten = ForgottenTexts(data, database.constellation)
        # Every result of a tool asks for it, and it changes only when something is forgotten.
        self._redact_forgotten = functools.cache(self._forgotten.redact)
        self.services = self._make_services()
        self.outbox = self._make_outbox() if server is None else server.outbox
        self.indexing = Indexing(
            database, clock, lambda: self.models.encoder(settings.current.search.encoder)
        )
        self.approvals = self._make_approvals()
        self.patterns: dict[str, Pattern] = {}
        runner = GroupRunner(
            self.pattern, clock, self._withdraw_turn, lambda: self.settings, self._wake_member
        )
        self.runtime = Runtime(
            self.services,
            delivered=self.outbox.kick,
            ended=self.indexing.kick,
            approvals=self.approvals,
            group_turns=runner,
        )
        self.groups = GroupPump(database, clock, self.pattern, self.wake)
        self.session = Session(
            database,
            clock,
            self.runtime.forget,
            data,
            self.authorities,
            clear=self.clear,
            is_loaded=lambda agent_id: self.runtime.loaded_agent(agent_id) is not None,
            is_guest=server is not None,
        )
        """For the owner, and for what the home does by itself."""
        self.access = Access(self.session, server.access.throttle if server is not None else None)
        self.constellations: ServedConstellations | None = None
        """Those that this process serves beside its own; None in one of them."""
        self.schedules = SchedulePump(database, clock, self.wake, lambda: self.settings.zone)
        self.keys = KeyRing(self.session, lambda: self.settings, environ, self._key_changed)
        self.workshop = Workshop(data, lambda: self.settings)
        self.tools = OfferedTools(
            self.session,
            toolbox,
            self.workshop.workplace,
            lambda text: self.keys.resolve(text),  # noqa: PLW0108 - as it is then
        )
        self._subscribe()

    def _subscribe(self) -> None:
        """Have the parts follow changes of the settings."""
        if self.server is None:
            self.live_settings.subscribe(self.models.settings_changed)
        for changed in (
            self.channels.settings_changed,
            self._servers_changed,
            self._encoder_changed,
            self.keys.settings_changed,
            self._zone_changed,
        ):
            self.live_settings.subscribe(changed)

    def pattern(self, name: str) -> Pattern:
        """Return a pattern of groups by its name; it is made once."""
        made = self.patterns.get(name)
        if made is None:
            made = self.patterns[name] = plugins.load("patterns", name)()
        return made

    def _wake_member(self, item: InboxItem, question: AgentMessage, *, has_passages: bool) -> None:
        self.runtime.wake_member(item, question, has_passages=has_passages)

    async def _withdraw_turn(self, tx: Connection, turn_id: str, reason: str) -> None:
        await self.runtime.withdraw(tx, turn_id, reason)

    def _make_outbox(self) -> OutboxPump:
        return OutboxPump(
            self.database,
            self._channel_for,
            lambda: self.settings.outbox,
            self.clock,
            self.telemetry,
            worker=lambda: self.lanes.worker if self.lanes is not None else None,
        )

    async def _channel_for(self, delivery: Delivery) -> Channel:
        """Return the channel of a delivery, which is one of the constellation of its agent."""
        if self.constellations is None:
            return self.channels.get(delivery.channel)
        engine = await self.constellations.engine_of_agent(delivery.agent_id)
        return engine.channels.get(delivery.channel)

    def _make_approvals(self) -> ApprovalQueue:
        return ApprovalQueue(
            self.database,
            self.clock,
            tool=lambda name: self.toolbox.get(name, None),
            settings=self.live_settings,
            delivered=self.outbox.kick,
            authority=self.authorities,
        )

    def _make_services(self) -> TurnServices:
        """Return what turns work with; settings are looked at when they are needed."""
        return TurnServices(
            database=self.database,
            toolbox=self.toolbox,
            models=self.models,
            hub=self.hub,
            clock=self.clock,
            telemetry=self.telemetry,
            spending=Spending(
                self.prices.of,
                lambda: self.settings.spending_caps,
            ),
            authority=self.authorities,
            search=self._find,
            settings=self.live_settings,
            channels=self.channels.names,
            resolve=lambda text: self.keys.resolve(text),  # noqa: PLW0108 - made after this
            forgotten=self._redact_forgotten,
            pipeline=self.pipeline,
            crashes=self.crashes,
        )

    @property
    def settings(self) -> Settings:
        """The settings in use."""
        return self.live_settings.current

    @cached_property
    def cassette(self) -> Cassette | None:
        """The tape that is recorded or played, if one is configured."""
        wanted = self.settings.cassette
        if wanted.file is None:
            return None
        from asterism.models.cassette import Cassette

        return Cassette(wanted.file, wanted.mode, speed=wanted.speed, loose=wanted.loose)

    def _make_model(self, model: str) -> Model:
        return make_model(self.settings, model, self.cassette, self.keys.get)

    def _make_encoder(self, name: str) -> Encoder:
        return make_encoder(self.settings, name, self.cassette, self.keys.get)

    # -- made when they are first used, since their libraries are large ----------------------------

    @cached_property
    def mcp(self) -> McpServers:
        """The MCP servers."""
        from asterism.app.mcp import McpServers

        place = self.session.data / "mcp"
        return McpServers(place, lambda: self.settings, self.toolbox, self.keys)

    @property
    def has_servers(self) -> bool:
        """Whether MCP servers were ever used."""
        return "mcp" in vars(self)

    @cached_property
    def searcher(self) -> Searcher:
        """The search of memory, for turns and for verbs."""
        from asterism.search.search import QueryEncoder, Searcher

        return Searcher(
            self.database,
            self.clock,
            QueryEncoder(self.models.encoder),
            self.live_settings,
        )

    async def _find(self, agent_id: str, query: Query, participants: Participants) -> SearchResult:
        """Search in a turn: the memory of an agent, or of all without an id."""

        async def owner_id(_: Connection) -> str | None:
            return agent_id or None

        async def present(_: Connection) -> Participants:
            return participants

        return await self.searcher.find(owner_id, query, present)

    # -- what changes ----------------------------------------------------------------------------

    def clear(self) -> None:
        """Drop what this process keeps in memory of texts."""
        self._forgotten.changed()
        self._redact_forgotten.cache_clear()
        clear_caches()
        json_blob.cache_clear()
        self.services.kept_blobs.clear()  # a blob that was forgotten may be offered again
        self.workshop.clear()

    def _key_changed(self, name: str) -> None:
        for vendor in self.models.vendors() if self.server is None else ():
            if name in (vendor, key_of_setting(self.settings, vendor)):
                self.models.key_changed(vendor)
        if self.settings.mcp:
            self.mcp.key_changed(name)

    def _servers_changed(self, old: Settings, new: Settings) -> None:
        if old.mcp != new.mcp:
            self.mcp.settings_changed(old, new, connect=self.lanes is not None)

    def _encoder_changed(self, old: Settings, new: Settings) -> None:
        if (old.search, old.models) != (new.search, new.models):
            self.indexing.encoder_changed()

    def _zone_changed(self, old: Settings, new: Settings) -> None:
        if old.zone_name != new.zone_name:
            self.runtime.forget_all()  # their contexts begin anew, with the times of the new zone

    def wake(self, agent_id: str) -> None:
        """Have the lane of an agent look for work, if lanes run here."""
        if isinstance(self.lanes, LocalLanes):
            self.lanes.poke(agent_id)


class ChannelRegistry:
    """The configured channels: each is made when it is first used, and again when it changes."""

    def __init__(self, settings: LiveSettings) -> None:
        self._settings = settings
        self._channels: dict[str, Channel] = {}
        self._retired: list[Channel] = []

    def put(self, channels: Mapping[str, Channel]) -> None:
        """Use these by name instead of configured ones."""
        self._channels.update(channels)

    def names(self) -> set[str]:
        """Return the names of all channels there are."""
        return {*self._settings.current.channels, *self._channels}

    def get(self, name: str) -> Channel:
        """Return a channel by its name in the configuration."""
        channel = self._channels.get(name)
        if channel is None:
            configured = self._settings.current.channels.get(name)
            if configured is None:
                raise NotFound(
                    f"There is no channel {name!r}. Add a table [channels.{name}] to asterism.toml."
                )
            make: ChannelFactory = plugins.load("channels", configured.type)
            channel = self._channels[name] = make(name, configured.options)
        return channel

    def settings_changed(self, old: Settings, new: Settings) -> None:
        """Drop the channels whose settings changed; deliveries under way may still use them."""
        for name in list(self._channels):
            if old.channels.get(name) != new.channels.get(name):
                self._retired.append(self._channels.pop(name))

    async def close(self) -> None:
        """Close everything that was made."""
        for channel in (*self._channels.values(), *self._retired):
            with contextlib.suppress(Exception):
                await channel.close()


def channel_check(given: Container[str]) -> Check:
    """Return what finds channels whose type is neither installed nor one of the given ones."""

    def check(settings: Settings) -> list[tuple[Key, str]]:
        installed = plugins.names("channels")
        return [
            (
                ("channels", name, "type"),
                (
                    f'names "{printable(channel.type)}", which is not a channel that is installed. '
                    f"Installed: {', '.join(installed) or 'none'}. Install the plugin with pip, or "
                    "take the table out."
                ),
            )
            for name, channel in settings.channels.items()
            if name not in given and channel.type not in installed
        ]

    return check


def forgets_again(data: Path) -> bool:
    """Tell whether something was forgotten, which an older copy of the database may bring back."""
    return (data / TOMBSTONES).exists()


def make_model(
    settings: Settings,
    model: str,
    cassette: Cassette | None = None,
    secret: Secret = lambda _: None,
) -> Model:
    """Return a port to the vendor that a model such as `openai:gpt-4.1-mini` names."""
    vendor = model.partition(":")[0]
    known = plugins.names("models")
    api = settings.api_of(vendor, known)
    if api not in known:
        there = ", ".join(sorted({*known, *settings.models}))
        raise ConfigError(
            f"The model {model!r} names the vendor {vendor!r}, which is not known. Known: "
            f"{there}. Add a table [models.{vendor}] with its base_url to asterism.toml."
        )
    configured = settings.vendor(vendor)
    options = configured.model_dump(exclude={"api"})
    options["key"] = key_of(settings, vendor, secret, os.environ)
    options["cassette"] = cassette
    make: ModelFactory = plugins.load("models", api)
    return make(vendor, options)


def make_encoder(
    settings: Settings,
    name: str,
    cassette: Cassette | None = None,
    secret: Secret = lambda _: None,
) -> Encoder:
    """Return an encoder: `minilm`, or one of a vendor's such as `ollama:nomic-embed-text`."""
    if ":" not in name:
        from asterism.search.minilm import NAME, MiniLM

        if name != NAME:
            raise ConfigError(
                f"There is no encoder {name!r}. Set search.encoder to {NAME!r}, to a model as "
                'vendor:name, or to "none".'
            )
        return MiniLM(settings.search.threads)
    port = make_model(settings, name, cassette, secret)
    if not isinstance(port, Encodes):
        raise ConfigError(
            f"The encoder {name!r} names a vendor whose models make no vectors here. Set "
            'search.encoder to "minilm", or to a model for embeddings of a server that speaks '
            "OpenAI's wire format. Search goes on by words and static vectors."
        )
    return port.encoder(name.partition(":")[2])


async def open_database(settings: Settings, place: Path, *, readonly: bool) -> Database:
    """Open the database that is configured: SQLite in `place`, or PostgreSQL."""
    if settings.store.url is None:
        return await open_sqlite(place, constellation=settings.constellation, readonly=readonly)
    try:
        from asterism.store.postgres import open_postgres
    except ImportError as error:
        raise ConfigError(
            f"store.url names a PostgreSQL database, but {error.name} is not installed. "
            "Install it with: pip install 'asterism[postgres]'."
        ) from error
    if not readonly:
        # The rest of a home is in there; where nothing can be written, nothing is.
        with contextlib.suppress(OSError):
            make_directory(place)
    return await open_postgres(
        settings.store.url, constellation=settings.constellation, readonly=readonly
    )


def make_toolbox(settings: Settings, place: Path, tools: Sequence[Tool]) -> Toolbox:
    """Collect all tools: built in, from plugins, from configured modules, and from the caller."""
    toolbox = Toolbox()
    for name in plugins.names("tools"):
        for tool in plugins.load("tools", name):
            toolbox.add(tool)
    for module in settings.tools.modules:
        for value in vars(_import(module, place)).values():
            if isinstance(value, Tool):
                toolbox.add(value)
    for tool in tools:
        toolbox.add(tool)
    add_plan_tool(toolbox)
    add_more_tool(toolbox)
    return toolbox


def _import(module: str, place: Path) -> ModuleType:
    try:
        if not module.endswith(".py"):
            return importlib.import_module(module)
        path = (place / module).resolve()
        spec = importlib.util.spec_from_file_location(f"asterism_tools_{path.stem}", path)
        if spec is None or spec.loader is None:
            raise ConfigError(f"tools.modules: {path} is not a Python file.")
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = loaded
        spec.loader.exec_module(loaded)
        return loaded
    except AsterismError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"tools.modules: {module!r} cannot be loaded ({type(error).__name__}: {error}). "
            "Correct it or take it out of the list."
        ) from error


def begin_spans(telemetry: Telemetry, settings: Settings) -> None:
    """Begin to send spans, if the configuration says where to."""
    if settings.telemetry.endpoint is None:
        return
    try:
        from asterism.telemetry.spans import Spans
    except ImportError as error:
        raise ConfigError(
            f"telemetry.endpoint is set, but {error.name} is not installed. Install it with: "
            "pip install 'asterism[telemetry]', or take telemetry.endpoint out of the "
            "configuration. Nothing was started."
        ) from error
    telemetry.spans = Spans(
        settings.telemetry,
        constellation=settings.constellation,
        version=version("asterism"),
        counts=telemetry.counts,
    )


def authority_of(settings: Settings) -> Authority:
    """Return the trust levels, policies and roles of a configuration."""
    authorizations = settings.authorizations
    return Authority(
        frozenset(map(Trust, settings.memory.trusted)),
        policies_of(authorizations),
        {name: frozenset(map(Act, role.may)) for name, role in authorizations.roles.items()},
    )
