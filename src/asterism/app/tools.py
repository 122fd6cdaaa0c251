"""The verbs about registered tools, and the tools of the agents' workplace."""

from __future__ import annotations

import asyncio
import builtins
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from asterism.app.session import Session, event_of, no_such, note, verbs
from asterism.config import Settings
from asterism.errors import AsterismError, Conflict, NotFound, ToolError
from asterism.permissions import Act
from asterism.store import agents, events
from asterism.store.database import Connection
from asterism.store.events import home_chain
from asterism.tools.builtin.files import Files, file_tool
from asterism.tools.builtin.shell import (
    BackgroundPrograms,
    SandboxStatus,
    Workspaces,
    sandbox_status,
    shell_tool,
)
from asterism.tools.builtin.web import clear_pages
from asterism.tools.schema import checked_spec, registered_tool
from asterism.tools.tool import Tool, Toolbox, ToolContext
from asterism.types.agents import (
    OWNER,
    AgentRecord,
    HttpCall,
    RegisteredTool,
    ToolSpec,
    new_id,
)
from asterism.types.turns import ResultState, ToolResult

_log = logging.getLogger(__name__)
_TOPIC = "tools"
TEST_WORKSPACE = "tool-test"
"""The folder among the workspaces of agents in which tools are tested."""


class Workshop:
    """The tools `shell` and `file`, with all that they need: made before the home is open."""

    def __init__(self, data: Path, settings: Callable[[], Settings]) -> None:
        self.workplace = Workspaces(data, settings)
        self._spawned = BackgroundPrograms()
        self._files = Files(self.workplace)

    def tools(self) -> list[Tool]:
        """Return the tools of the workplace."""
        return [shell_tool(self.workplace, self._spawned), file_tool(self._files)]

    def clear(self) -> None:
        """Drop what the tools of this process remember of texts, since something was forgotten."""
        self._spawned.clear()
        self._files.clear()
        clear_pages()

    async def close(self) -> None:
        """End the programs in the background."""
        await self._spawned.close()


class OfferedTools:
    """The registered tools that are in the toolbox of this process, also by other processes."""

    def __init__(
        self, session: Session, toolbox: Toolbox, workplace: Workspaces, keys: Callable[[str], str]
    ) -> None:
        """Prepare; `keys` returns what `secret:NAME` stands for."""
        self._session = session
        self._toolbox = toolbox
        self.workplace = workplace
        self._keys = keys
        self._offered: dict[str, tuple[int, Tool]] = {}
        self._changes = 0
        """How often something was registered or removed, here or elsewhere, as far as is known."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, *, readonly: bool = False) -> None:
        """Offer the registered tools, and follow changes by other processes."""
        await self.refresh()
        if not readonly:
            await self._session.database.listen(_TOPIC, self._on_notice)

    async def close(self) -> None:
        """Wait until all lookups have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_notice(self, _: str) -> None:
        self._changes += 1
        task = asyncio.get_running_loop().create_task(self.refresh())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def refresh(self) -> None:
        """Offer exactly the tools that are registered now, by any process."""
        changes = -1
        registered: list[RegisteredTool] = []
        while changes != self._changes:  # what was read before a change must not undo it
            changes = self._changes
            registered = await self._session.database.read(agents.registered_tools)
        there = {tool.spec.name: tool for tool in registered}
        for name in list(self._offered):
            if name not in there:
                self.withdraw(name)
        for name, tool in there.items():
            if self._offered.get(name, (0,))[0] != tool.version:
                self.offer(tool)

    def registered(self, name: str) -> Tool | None:
        """Return a registered tool that is offered."""
        offered = self._offered.get(name)
        return offered[1] if offered is not None else None

    def is_taken(self, name: str) -> bool:
        """Tell whether a tool has a name that was not registered."""
        return name not in self._offered and name in self._toolbox.names()

    def offer(self, registered: RegisteredTool) -> None:
        """Put a registered tool into the toolbox."""
        self._changes += 1
        self.withdraw(registered.spec.name)
        try:
            tool = registered_tool(registered.spec, self.workplace, self._keys)
            self._toolbox.add(tool)
        except AsterismError as error:
            # A later release may refuse what an earlier one took, or have a tool of that name.
            _log.warning("tool %s is not offered: %s", registered.spec.name, error.message)
            return
        self._offered[registered.spec.name] = (registered.version, tool)

    def all(self) -> list[Tool]:
        """Return all tools that some agent may have: built-in, configured and registered ones."""
        # Some are for agents only that name them.
        names = self._toolbox.names()
        tools = (self._toolbox.get(name, (name,)) for name in names)
        return [tool for tool in tools if tool is not None]

    def withdraw(self, name: str) -> None:
        """Take a registered tool out of the toolbox, if it is there."""
        self._changes += 1
        offered = self._offered.pop(name, None)
        if offered is not None:
            self._toolbox.remove(offered[1])


@verbs(
    "tool",
    add=Act.GOVERN,
    list=Act.READ,
    offered=Act.READ,
    versions=Act.READ,
    remove=Act.GOVERN,
    test=Act.GOVERN,
    sandbox=Act.READ,
)
class Tools:
    """The tools that were registered: `await home.tools.add(…)`."""

    def __init__(self, session: Session, offered: OfferedTools) -> None:
        self._session = session
        self._offered = offered

    async def add(
        self,
        name: str,
        description: str,
        schema: Mapping[str, Any],
        *,
        python: str | None = None,
        http: HttpCall | None = None,
        effects: Sequence[Mapping[str, Any]] | None = None,
        trust: str = "tool",
        retry_safety: str = "unknown",
        ask: bool = False,
        timeout: float = 30.0,  # noqa: ASYNC109 - of its calls
        audience: str = OWNER,
        by: str = "owner",
    ) -> RegisteredTool:
        """Register a tool, or a new version of one, and offer it to agents at once.

        Args:
            name: What models call it.
            description: What it does, for models.
            schema: A JSON schema of its parameters.
            python: Source with a function `run`, which gets the arguments by name.
            http: A request, instead of source.
            effects: What its calls do, each in the JSON form of `ToolEffect`.
            trust: How far its results are trusted.
            retry_safety: What a crash in the middle means: `unknown` or `repeatable`.
            ask: A person is asked before each call.
            timeout: Seconds after which a call is given up.
            audience: Who may see its results, such as `owner`, `public` or `role:family`.
            by: Who registers it.
        """
        declared = None if effects is None else tuple(effects)
        spec = checked_spec(
            ToolSpec(
                name,
                description,
                schema,
                python=python,
                http=http,
                effects=declared,
                trust=trust,
                retry_safety=retry_safety,
                ask=ask,
                timeout=timeout,
                audience=audience,
            )
        )
        if self._offered.is_taken(name):
            raise Conflict(
                f"There is a tool {name!r} that was not registered, but is built in or configured. "
                "Choose another name. Nothing was changed."
            )
        now = self._session.clock()
        stored = await self._session.database.write(lambda tx: self._store(tx, spec, by, now))
        self._offered.offer(stored)
        return stored

    async def _store(self, tx: Connection, spec: ToolSpec, by: str, now: int) -> RegisteredTool:
        """Store a version of a tool with its event, and tell other processes."""
        stored = await agents.put_tool(tx, spec, by, now)
        kind = "python" if spec.python else "http"
        body = {"tool": spec.name, "version": stored.version, "kind": kind}
        event = event_of(self._session, "tool.registered", body)
        await events.append(tx, home_chain(tx.constellation), [event])
        await tx.notify(_TOPIC, spec.name)
        return stored

    async def list(self) -> list[RegisteredTool]:
        """Return the registered tools."""
        return self._without_headers(await self._registered())

    async def offered(self) -> builtins.list[dict[str, Any]]:
        """Return all tools as models see them, and what a crash in the middle of a call means."""
        return [
            {**tool.wire()["function"], "retry_safety": tool.retry_safety, "ask": tool.ask}
            for tool in self._offered.all()
        ]

    async def _registered(self) -> Sequence[RegisteredTool]:
        return await self._session.database.read(agents.registered_tools)

    def _without_headers(self, tools: Sequence[RegisteredTool]) -> builtins.list[RegisteredTool]:
        """Return tools as the actor may see them: headers may hold keys."""
        if self._session.sees_all:
            return [*tools]
        return [
            replace(tool, spec=replace(tool.spec, http=replace(tool.spec.http, headers={})))
            if tool.spec.http is not None
            else tool
            for tool in tools
        ]

    async def versions(self, name: str) -> list[RegisteredTool]:
        """Return all versions of a registered tool, the newest first."""
        versions = await self._session.database.read(lambda tx: agents.tool_versions(tx, name))
        if not versions:
            raise NotFound(no_such("tool", name, [tool.spec.name for tool in await self.list()]))
        return self._without_headers(versions)

    async def remove(self, name: str) -> None:
        """Offer a registered tool no more; its versions are kept."""
        now = self._session.clock()

        async def work(tx: Connection) -> bool:
            if not await agents.remove_tool(tx, name, now):
                return False
            event = event_of(self._session, "tool.removed", {"tool": name})
            await events.append(tx, home_chain(tx.constellation), [event])
            await tx.notify(_TOPIC, name)
            return True

        if not await self._session.database.write(work):
            raise NotFound(no_such("tool", name, [tool.spec.name for tool in await self.list()]))
        self._offered.withdraw(name)

    async def test(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a registered tool once with some arguments, as a call of an agent would.

        Source runs in the sandbox, in a folder for tests; a request is really sent.
        """
        tool = self._offered.registered(name)
        if tool is None:
            raise NotFound(no_such("tool", name, [there.spec.name for there in await self.list()]))
        session, now = self._session, self._session.clock()
        agent = AgentRecord(TEST_WORKSPACE, TEST_WORKSPACE, "", "", now)
        turn_id = new_id("test")
        try:
            given = tool.read(orjson.dumps(dict(arguments)).decode())
        except (ToolError, TypeError) as error:
            return ToolResult(ResultState.NOT_RUN, str(error))
        await session.database.write(
            lambda tx: note(tx, session, "tool.tested", by="api", what=name)
        )
        try:
            async with asyncio.timeout(tool.timeout):
                return await tool.call(ToolContext(agent, turn_id, turn_id, now), given)
        except ToolError as error:
            return ToolResult(ResultState.FAILED, str(error))
        except TimeoutError:
            return ToolResult(ResultState.FAILED, f"{name} did not end within {tool.timeout:g} s.")

    async def sandbox(self) -> SandboxStatus:
        """Return the name of the sandbox, and its limits."""
        return await sandbox_status(self._offered.workplace)
