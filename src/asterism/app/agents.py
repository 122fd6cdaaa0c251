"""The verbs about agents."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from asterism.app.audit import note
from asterism.app.nouns import Nouns
from asterism.app.session import checked_model, checked_name, checked_system, no_such, verbs
from asterism.errors import AsterismError, Conflict, InvalidInput, NotFound
from asterism.permissions import Act
from asterism.ports import ModelRequest, Warm
from asterism.store import agents, inbox
from asterism.store.database import Connection
from asterism.telemetry.redaction import RequestRedactor
from asterism.turns.context import enter, load
from asterism.turns.replay import append_past, read_past
from asterism.turns.rules import narrowed
from asterism.types.agents import DEFAULT_MODEL, Agent, Limits, new_id
from asterism.types.people import OWNER, OWNER_ALONE
from asterism.types.turns import ImportResult, PastMessage

_log = logging.getLogger(__name__)

DEFAULT_SYSTEM = (
    "You are {name}, a long-lived assistant in the home of your owner. When asked who you are, say "
    "that you are {name}. You remember what was said in this conversation. Answer briefly and "
    "plainly, and say so when you do not know something."
)


@verbs(
    "home",
    create_agent=Act.GOVERN,
    ensure_agent=Act.GOVERN,
    agent=Act.TALK,
    warm=Act.TALK,
    agents=Act.READ,
    edit_agent=Act.GOVERN,
    delete_agent=Act.DELETE,
    import_messages=Act.APPEND,
)
class AgentVerbs(Nouns):
    """Agents: made, changed, copied and taken out of service."""

    async def create_agent(
        self,
        name: str,
        *,
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
        limits: Limits | None = None,
    ) -> Agent:
        """Create an agent; its name must be free."""
        agent = self._new_agent(name, model, system, tools, limits)

        async def work(tx: Connection) -> bool:
            if not await agents.create(tx, self._engine.settings.constellation, agent):
                return False
            await self._note(tx, "agent.created", agent, model=agent.model)
            return True

        if not await self._engine.database.write(work):
            raise Conflict(
                f"There is an agent named {name!r} already. Choose another name, or change it with "
                f'"asterism agent edit {name}". Nothing was created.'
            )
        return agent

    async def ensure_agent(
        self,
        name: str,
        *,
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
        limits: Limits | None = None,
    ) -> Agent:
        """Return the agent of that name, created as given if there is none."""
        constellation = self._engine.settings.constellation
        new = self._new_agent(name, model, system, tools, limits)

        async def work(tx: Connection) -> Agent:
            found = await agents.by_name(tx, constellation, name)
            if found is None and await agents.create(tx, constellation, new):
                await self._note(tx, "agent.created", new, model=new.model)
                return new
            # On PostgreSQL somebody may have been quicker between the two.
            found = found or await agents.by_name(tx, constellation, name)
            assert found is not None
            return found

        return await self._engine.database.write(work)

    def _new_agent(
        self,
        name: str,
        model: str | None,
        system: str | None,
        tools: Sequence[str] | None,
        limits: Limits | None,
    ) -> Agent:
        return Agent(
            id=new_id("agent"),
            name=checked_name(name),
            model=checked_model(model or DEFAULT_MODEL),
            system=checked_system(DEFAULT_SYSTEM.format(name=name) if system is None else system),
            created_at=self._engine.clock(),
            tools=self._checked_tools(tools),
            limits=limits or Limits(**self._engine.settings.limits.model_dump()),
        )

    def _checked_tools(self, names: Sequence[str] | None) -> tuple[str, ...] | None:
        if names is None:
            return None
        there = self._engine.toolbox.names()
        for name in names:
            if name not in there:
                raise NotFound(no_such("tool", name, there))
        return tuple(names)

    async def agent(self, name: str) -> Agent:
        """Return an agent by name or id."""
        found = await self._find_agent(name)
        if found is None:
            everyone = await self.agents()
            raise NotFound(no_such("agent", name, [one.name for one in everyone]))
        return found

    async def _find_agent(self, name: str) -> Agent | None:
        return await self._engine.database.read(
            lambda tx: agents.by_name(tx, self._engine.settings.constellation, name)
        )

    def model_of(self, agent: Agent) -> str:
        """Return the model an agent thinks with now, as `vendor:name`."""
        if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
            raise InvalidInput(
                f"model_of needs an agent, as home.agent gives it, and this is "
                f"{type(agent).__name__}. Nothing was changed."
            )
        return self._engine.settings.default_model if agent.model == DEFAULT_MODEL else agent.model

    async def warm(self, agent: Agent) -> None:
        """Let the model of an agent get ready while nobody has asked anything yet, if it can."""
        try:
            link = self._engine.parts.link(self._engine.parts.chain(agent.model)[0])
            if not isinstance(link.port, Warm):
                return
            live = await load(self._engine.database, agent.id, None)
            await enter(
                self._engine.database,
                live,
                OWNER_ALONE,
                self._engine.settings.context.tokens,
                self._engine.clock(),
            )
            request = ModelRequest(
                model=link.name,
                messages=live.messages(link.profile),
                tools=narrowed(
                    self._engine.toolbox.wire(agent.tools, compact=link.profile.compact),
                    agent.rules,
                ),
                key="warm",
                timeout=agent.limits.seconds,
                agent_id=agent.id,
            )
            await link.port.warm(RequestRedactor().request(request))
        except AsterismError as problem:
            # Whoever asks will be told; this was only a head start.
            _log.info("%s could not get ready: %s", agent.model, problem.message)

    async def agents(self) -> list[Agent]:
        """Return all agents by name."""
        return await self._engine.database.read(
            lambda tx: agents.everyone(tx, self._engine.settings.constellation)
        )

    async def edit_agent(
        self,
        name: str,
        *,
        new_name: str | None = None,
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
        all_tools: bool = False,
        limits: Limits | None = None,
    ) -> Agent:
        """Change an agent; what is not given stays. It counts from its next turn on."""
        agent = await self.agent(name)
        chosen = agent.tools if tools is None else self._checked_tools(tools)
        if all_tools:
            chosen = None
        changed = replace(
            agent,
            name=checked_name(new_name) if new_name is not None else agent.name,
            model=checked_model(model) if model is not None else agent.model,
            system=checked_system(system) if system is not None else agent.system,
            tools=chosen,
            limits=limits or agent.limits,
        )
        if changed.name != agent.name and await self._find_agent(changed.name):
            raise Conflict(
                f"There is an agent named {changed.name!r} already. Nothing was changed."
            )
        different = [
            one.name
            for one in fields(agent)
            if getattr(agent, one.name) != getattr(changed, one.name)
        ]

        async def work(tx: Connection) -> int | None:
            version = await agents.edit(tx, changed)
            if version is not None:
                await self._note(tx, "agent.changed", changed, changed=different)
            return version

        version = await self._engine.database.write(work)
        if version is None:
            raise NotFound(f"The agent {name!r} was deleted meanwhile. Nothing was changed.")
        self._engine.runtime.forget(agent.id)
        return replace(changed, version=version)

    async def delete_agent(self, name: str) -> Agent:
        """Take an agent out of service. Its journal stays and can be read."""
        agent = await self.agent(name)
        waiting = await self._engine.database.read(
            lambda tx: inbox.waiting(tx, self._engine.settings.constellation, agent.id)
        )
        if waiting:
            raise Conflict(
                f"{agent.name} has {len(waiting)} messages to answer first. Wait until it has "
                "answered them. Nothing was deleted."
            )
        at = self._engine.clock()

        async def work(tx: Connection) -> None:
            await agents.delete(tx, agent.id, at)
            await self._note(tx, "agent.deleted", agent)

        await self._engine.database.write(work)
        self._engine.runtime.forget(agent.id)
        return agent

    async def import_messages(
        self, agent: Agent | str, messages: Sequence[PastMessage | tuple[str, str]]
    ) -> ImportResult:
        """Put a conversation from elsewhere at the end of an agent's past; nobody is asked.

        All of it is stored, or nothing. Whoever else spoke in it, only the owner may hear it. What
        somebody other than the owner imports is theirs, and trusted as far as they are.

        Args:
            agent: The agent, or its name or id. It must have nothing to answer.
            messages: What was said, in order of time, a person's message first. A pair of "user" or
                "assistant" and a text is a message without a speaker and a time.

        Returns:
            The ids of the turns that it has become, and of the messages.
        """
        agent_id = agent.id if isinstance(agent, Agent) else (await self.agent(agent)).id
        at, constellation = self._engine.clock(), self._engine.settings.constellation
        session = self._session
        past = read_past(messages, at, OWNER if session.writes_as_owner else session.actor.id)

        async def work(tx: Connection) -> ImportResult:
            trust = (await session.writer(tx, "api")).source.trust
            imported = await append_past(tx, constellation, agent_id, past, at, trust)
            count = len(imported.messages)
            await note(
                tx, self._session, "messages.imported", by="api", agent_id=agent_id, count=count
            )
            return imported

        try:
            return await self._engine.database.write(work)
        finally:
            # The commit may come although nobody waits for it any more.
            self._engine.runtime.forget(agent_id)
            self._engine.indexing.kick(agent_id)

    async def _note(self, tx: Connection, kind: str, agent: Agent, **body: Any) -> None:
        """Leave in the audit log what was done to an agent."""
        await note(tx, self._session, kind, by="api", agent_id=agent.id, what=agent.name, **body)
