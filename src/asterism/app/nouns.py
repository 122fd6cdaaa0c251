"""The nouns of a home: each has a file of its own, imported when it is first used."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from asterism.agents.turn import Means
from asterism.app.parts import Parts
from asterism.app.reach import Reach
from asterism.config import LiveSettings, Settings
from asterism.models.prices import Prices
from asterism.ports import Clock
from asterism.runtime.approvals import Approvals as ApprovalsAtWork
from asterism.runtime.indexing import Indexing
from asterism.runtime.lanes import Lanes
from asterism.runtime.outbox import Outbox
from asterism.runtime.runtime import Runtime
from asterism.runtime.watch import Hub
from asterism.store.database import Database
from asterism.telemetry import Telemetry
from asterism.tools.tool import Toolbox
from asterism.types.agents import Agent
from asterism.types.ids import new_id
from asterism.types.people import Company
from asterism.types.search import Found, Query

if TYPE_CHECKING:
    from asterism.app.approvals import Approvals
    from asterism.app.archive import Archive
    from asterism.app.audit import Audit
    from asterism.app.blocks import Blocks
    from asterism.app.contexts import Contexts
    from asterism.app.grants import Grants
    from asterism.app.halting import Halts
    from asterism.app.keys import Keys
    from asterism.app.mcp import Mcp
    from asterism.app.memory import Memory
    from asterism.app.people import People
    from asterism.app.rules import Rules
    from asterism.app.search import Search
    from asterism.app.sources import Sources
    from asterism.app.tools import Tools, Workshop


class Nouns:
    """What a home is made of, and its nouns: blocks, people, keys and so on."""

    database: Database
    toolbox: Toolbox
    hub: Hub
    telemetry: Telemetry
    indexing: Indexing
    _live_settings: LiveSettings
    _clock: Clock
    _environ: Mapping[str, str]
    _parts: Parts
    _prices: Prices
    _means: Means
    _runtime: Runtime
    _reach: Reach
    _outbox: Outbox
    _approvals: ApprovalsAtWork
    _lanes: Lanes | None
    _opened_keys: Keys | None

    @property
    def settings(self) -> Settings:
        """The settings in use."""
        return self._live_settings.current

    @cached_property
    def blocks(self) -> Blocks:
        """The blocks of agents, and of the constellation."""
        from asterism.app.blocks import Blocks

        return Blocks(self._reach)

    @cached_property
    def audit(self) -> Audit:
        """What was done, by whom and why."""
        from asterism.app.audit import Audit

        return Audit(self._reach)

    @cached_property
    def keys(self) -> Keys:
        """Keys of others, encrypted at rest."""
        from asterism.app.keys import Keys

        if self._opened_keys is not None:
            return self._opened_keys.acting_for(self._reach)
        self._opened_keys = made = Keys(
            self._reach,
            lambda: self.settings,
            self._environ,
            changed=self._key_changed,
        )
        self._live_settings.subscribe(made.settings_changed)
        return made

    def _key_changed(self, name: str) -> None:
        self._parts.key_changed(name)
        if self.settings.mcp:
            self.mcp.key_changed(name)

    @cached_property
    def workshop(self) -> Workshop:
        """The tools `shell` and `file`, and the sandbox that programs run in."""
        from asterism.app.tools import Workshop

        return Workshop(self._reach.data, lambda: self.settings)

    @cached_property
    def tools(self) -> Tools:
        """The tools that were registered."""
        from asterism.app.tools import Tools

        return Tools(self._reach, self.toolbox, self.workshop.workplace, self.keys.resolve)

    @cached_property
    def mcp(self) -> Mcp:
        """MCP servers, whose tools are offered beside our own."""
        from asterism.app.mcp import Mcp

        return Mcp(self._reach, lambda: self.settings, self.toolbox, self.keys)

    def _servers_changed(self, old: Settings, new: Settings) -> None:
        if old.mcp != new.mcp:
            self.mcp.settings_changed(old, new, connect=self._lanes is not None)

    @cached_property
    def archive(self) -> Archive:
        """The archives of agents."""
        from asterism.app.archive import Archive
        from asterism.app.aside import ask_aside

        async def ask(agent: Agent, text: str) -> str:
            return await ask_aside(self._means, agent, text, new_id("aside"))

        return Archive(
            self._reach,
            self.search,
            lambda: ask if self.settings.memory.judge == "model" else None,
        )

    async def _find(self, agent_id: str, query: Query, company: Company) -> Found:
        """Search for an agent in a turn; the verb is imported when it is first used."""
        return await self.search.find(agent_id, query, company)

    @cached_property
    def search(self) -> Search:
        """Search over all that agents remember: `await home.search(agent, text, …)`."""
        from asterism.app.search import Search

        return Search(self._reach, self._parts.encoder, lambda: self.settings.search.encoder)

    @cached_property
    def people(self) -> People:
        """The persons that agents talk to."""
        from asterism.app.people import People

        return People(self._reach)

    @cached_property
    def rules(self) -> Rules:
        """The rules for agents' tools: told to the model, and enforced."""
        from asterism.app.rules import Rules

        return Rules(self._reach, self.toolbox)

    @cached_property
    def halts(self) -> Halts:
        """Whether everything stands still, and the way on."""
        from asterism.app.halting import Halts

        return Halts(self._reach)

    @cached_property
    def sources(self) -> Sources:
        """The folders of documents that agents can search."""
        from asterism.app.sources import Sources

        return Sources(self._reach)

    @cached_property
    def contexts(self) -> Contexts:
        """What models see, or saw."""
        from asterism.app.contexts import Contexts

        return Contexts(self._reach, self._means, self._runtime.live)

    @cached_property
    def memory(self) -> Memory:
        """Memory as a whole: time travel, provenance, health, forgetting, export."""
        from asterism.app.memory import Memory

        return Memory(self._reach, lambda: list(self.settings.retention.values()))

    @cached_property
    def approvals(self) -> Approvals:
        """The questions that turns wait for; `await home.approvals()` returns those."""
        from asterism.app.approvals import Approvals

        return Approvals(self._reach, self._approvals)

    @cached_property
    def grants(self) -> Grants:
        """What agents may do without asking each time."""
        from asterism.app.grants import Grants

        return Grants(self._reach)
