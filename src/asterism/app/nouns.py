"""The nouns of a home: each has a file of its own, imported when it is first used.

Every noun is made here, for whoever acts: it gets their session, and what it shares with others
from the engine.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from asterism.app.engine import Engine
from asterism.app.session import Session
from asterism.types.agents import Agent, new_id

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
    from asterism.app.tools import Tools


class Nouns:
    """Blocks, people, keys and so on, for whoever acts."""

    def __init__(self, engine: Engine, session: Session) -> None:
        """Make a home for whoever acts."""
        self._engine = engine
        self._session = session

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
        from asterism.app.contexts import ask_aside

        async def ask(agent: Agent, text: str) -> str:
            return await ask_aside(self._engine.services, agent, text, new_id("aside"))

        return Archive(
            self._session,
            self.search,
            lambda: ask if self._engine.settings.memory.judge == "model" else None,
        )

    @cached_property
    def search(self) -> Search:
        """Search over all that agents remember: `await home.search(agent, text, …)`."""
        from asterism.app.search import Search

        engine = self._engine
        return Search(self._session, engine.query_encoder, lambda: engine.settings.search.encoder)

    @cached_property
    def people(self) -> People:
        """The persons that agents talk to."""
        from asterism.app.people import People

        return People(self._session)

    @cached_property
    def rules(self) -> Rules:
        """The rules for agents' tools: told to the model, and enforced."""
        from asterism.app.rules import Rules

        return Rules(self._session, self._engine.toolbox)

    @cached_property
    def halts(self) -> Halts:
        """Whether everything stands still, and the way on."""
        from asterism.app.halting import Halts

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

        return Contexts(self._session, self._engine.services, self._engine.runtime.live)

    @cached_property
    def memory(self) -> Memory:
        """Memory as a whole: time travel, provenance, health, forgetting, export."""
        from asterism.app.memory import Memory

        return Memory(self._session, lambda: list(self._engine.settings.retention.values()))

    @cached_property
    def approvals(self) -> Approvals:
        """The questions that turns wait for; `await home.approvals()` returns those."""
        from asterism.app.approvals import Approvals

        return Approvals(self._session, self._engine.approvals)

    @cached_property
    def grants(self) -> Grants:
        """What agents may do without asking each time."""
        from asterism.app.grants import Grants

        return Grants(self._session)
