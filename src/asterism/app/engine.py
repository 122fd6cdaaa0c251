"""The engine of an open home: all that is made once, whoever acts.

A home is the engine and somebody who acts. What a verb does for a person goes through objects that
are made for that person; what is shared between them is here, and judges nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from asterism.agents.purse import Spending
from asterism.agents.turn import Means
from asterism.app.authority import Authorities
from asterism.app.keys import KeyRing
from asterism.app.parts import Parts, folds_of
from asterism.app.reach import Reach
from asterism.app.tools import OfferedTools, Workshop
from asterism.config import LiveSettings, Settings
from asterism.memory.forgetting import ForgottenTexts
from asterism.memory.search.caches import let_go
from asterism.models.chain import Chain
from asterism.models.prices import Prices
from asterism.ports import Clock
from asterism.runtime.approvals import Approvals
from asterism.runtime.indexing import Indexing
from asterism.runtime.lanes import Lanes, LocalLanes
from asterism.runtime.outbox import Outbox
from asterism.runtime.runtime import Runtime
from asterism.runtime.schedule import Schedules
from asterism.runtime.watch import Hub
from asterism.store.database import Database
from asterism.telemetry import Telemetry
from asterism.tools.tool import Toolbox
from asterism.types.people import Participants
from asterism.types.search import Found, Query

if TYPE_CHECKING:
    from asterism.app.mcp import McpServers
    from asterism.memory.search.encoders.asking import Asking


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
    ) -> None:
        """Put the parts together; `Asterism.open` does this from a configuration."""
        constellation = settings.current.constellation
        self.database = database
        self.live_settings = settings
        self.toolbox = toolbox
        self.clock = clock
        self.hub = Hub()
        self.telemetry = Telemetry()
        self.authorities = Authorities(lambda: settings.current)
        self.parts = Parts(lambda: settings.current, lambda name: self.keys.get(name))  # noqa: PLW0108 - made below
        self.prices = Prices(lambda: settings.current)
        self.lanes: Lanes | None = None
        self._forgotten = ForgottenTexts(data, constellation)
        self.means = self._make_means()
        self.outbox = Outbox(
            database,
            self.parts.channel,
            lambda: self.settings.outbox,
            clock,
            self.telemetry,
            worker=lambda: self.lanes.worker if self.lanes is not None else None,
        )
        self.indexing = Indexing(
            database,
            constellation,
            clock,
            lambda: self.parts.encoder(settings.current.search.encoder),
        )
        self.approvals = Approvals(
            database,
            constellation,
            clock,
            tool=lambda name: toolbox.get(name, None),
            contacts=lambda: self.settings.contacts.book,
            delivered=self.outbox.kick,
            authority=self.authorities,
        )
        self.runtime = Runtime(
            self.means,
            self.hub,
            constellation=constellation,
            delivered=self.outbox.kick,
            ended=self.indexing.kick,
            approvals=self.approvals,
        )
        self.reach = Reach(
            database,
            constellation,
            clock,
            self.runtime.forget,
            data,
            self.authorities,
            clear=self.clear,
        )
        """For the owner, and for what the home does by itself."""
        self.schedules = Schedules(database, constellation, clock, self._poke)
        self.keys = KeyRing(self.reach, lambda: self.settings, environ, self._key_changed)
        self.workshop = Workshop(data, lambda: self.settings)
        self.tools = OfferedTools(
            self.reach,
            toolbox,
            self.workshop.workplace,
            lambda text: self.keys.resolve(text),  # noqa: PLW0108 - as it is then
        )
        for heard in (
            self.parts.settings_changed,
            self._servers_changed,
            self._encoder_changed,
            self.keys.settings_changed,
        ):
            settings.subscribe(heard)

    def _make_means(self) -> Means:
        """Return what turns work with; settings are looked at when they are needed."""
        return Means(
            database=self.database,
            toolbox=self.toolbox,
            chain=self.parts.chain,
            ask=Chain(self.parts.link).ask,
            watched=self.hub.watched,
            publish=self.hub.publish,
            clock=self.clock,
            telemetry=self.telemetry,
            spending=Spending(
                self.settings.constellation,
                self.prices.of,
                lambda: self.settings.budget.budget,
            ),
            authority=self.authorities,
            folding=lambda: folds_of(self.settings.context),
            profile=self.parts.profile,
            context_tokens=lambda: self.settings.context.tokens,
            search=self._find,
            settings=lambda: self.settings,
            channels=self.parts.channel_names,
            contacts=lambda: self.settings.contacts.book,
            resolve=lambda text: self.keys.resolve(text),  # noqa: PLW0108 - made after this
            forgotten=lambda: self._forgotten.redact,
        )

    @property
    def settings(self) -> Settings:
        """The settings in use."""
        return self.live_settings.current

    # -- made when they are first used, since their libraries are large ----------------------------

    @cached_property
    def mcp(self) -> McpServers:
        """The MCP servers."""
        from asterism.app.mcp import McpServers

        place = self.reach.data / "mcp"
        return McpServers(place, lambda: self.settings, self.toolbox, self.keys)

    @property
    def has_servers(self) -> bool:
        """Whether MCP servers were ever used."""
        return "mcp" in vars(self)

    @cached_property
    def asking(self) -> Asking:
        """What asks encoders for the vectors of queries."""
        from asterism.memory.search.encoders.asking import Asking

        return Asking(self.parts.encoder)

    async def _find(self, agent_id: str, query: Query, participants: Participants) -> Found:
        """Search for an agent in a turn; the verb is imported when it is first used."""
        from asterism.app.search import Search

        search = Search(self.reach, self.asking, lambda: self.settings.search.encoder)
        return await search.find(agent_id, query, participants)

    # -- what changes ----------------------------------------------------------------------------

    def clear(self) -> None:
        """Drop what this process keeps in memory of texts."""
        self._forgotten.changed()
        let_go()
        self.workshop.clear()

    def _key_changed(self, name: str) -> None:
        self.parts.key_changed(name)
        if self.settings.mcp:
            self.mcp.key_changed(name)

    def _servers_changed(self, old: Settings, new: Settings) -> None:
        if old.mcp != new.mcp:
            self.mcp.settings_changed(old, new, connect=self.lanes is not None)

    def _encoder_changed(self, old: Settings, new: Settings) -> None:
        if (old.search, old.models) != (new.search, new.models):
            self.indexing.encoder_changed()

    def _poke(self, agent_id: str) -> None:
        if isinstance(self.lanes, LocalLanes):
            self.lanes.poke(agent_id)
