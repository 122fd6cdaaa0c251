"""What tests of MCP servers share: a context for calls, and servers of a home without a home."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from asterism.config.settings import McpSettings
from asterism.tools.mcp.clients import McpBackoff, McpClients
from asterism.tools.mcp.connection import McpHost
from asterism.tools.mcp.tools import file_name, write_private
from asterism.tools.tool import Tool, Toolbox, ToolContext
from asterism.types.agents import AgentRecord

SWIFT = McpBackoff(first=0.02, longest=0.1)


class FileVault:
    """Tokens in files, for servers without a home."""

    writes = True

    def __init__(self, place: Path) -> None:
        self._place = place
        self._held: dict[str, asyncio.Lock] = {}

    async def read(self, name: str) -> str | None:
        try:
            return self._file(name).read_text(encoding="utf-8")
        except OSError:
            return None

    async def write(self, name: str, value: str | None) -> None:
        if value is None:
            self._file(name).unlink(missing_ok=True)
        else:
            write_private(self._file(name), value.encode())

    def alone(self, name: str) -> asyncio.Lock:
        return self._held.setdefault(name, asyncio.Lock())

    def _file(self, name: str) -> Path:
        return self._place / f"{file_name(name)}.token"


def a_context(progress: list[str] | None = None) -> ToolContext:
    agent = AgentRecord(id="ag_1", name="aria", system="", model="demo:demo", created_at_ms=0)
    told = progress if progress is not None else []
    return ToolContext(agent=agent, turn_id="tn_1", key="k", now_ms=0, progress=told.append)


async def no_secret(_: str) -> str | None:
    return None


@asynccontextmanager
async def open_servers(
    place: Path, *, connect: bool = False, backoff: McpBackoff = SWIFT, **wanted: McpSettings
) -> AsyncGenerator[tuple[McpClients, Toolbox], None]:
    toolbox = Toolbox()
    servers = McpClients(place, McpHost(no_secret, FileVault(place)), toolbox, backoff=backoff)
    servers.configure(wanted, connect=connect)
    try:
        yield servers, toolbox
    finally:
        await servers.stop()


def tool(toolbox: Toolbox, name: str) -> Tool:
    found = toolbox.get(name, None)
    assert found is not None, f"{name} is not among {toolbox.names()}"
    return found


async def call(toolbox: Toolbox, name: str, arguments: str = "{}") -> str:
    one = tool(toolbox, name)
    return await one.run(a_context(), one.read(arguments))


def plain_server(place: Path, name: str = "plain", **plan: Any) -> McpSettings:
    """Return the settings of a server that follows a plan; see `plain.py`."""
    file = place / f"{name}.plan"
    tools = [
        one if not isinstance(one, str) else {"name": one, "inputSchema": {"type": "object"}}
        for one in plan.pop("tools", [])
    ]
    known = {key: plan.pop(key) for key in list(plan) if key in McpSettings.model_fields}
    file.write_text(json.dumps({"log": str(place / f"{name}.log"), "tools": tools, **plan}))
    made = McpSettings(
        command=sys.executable,
        args=("-I", "-S", str(Path(__file__).parent / "plain.py"), str(file)),
        timeout=20.0,
        connect_timeout=20.0,
    )
    return made.model_copy(update=known)


def calls_of(place: Path, name: str = "plain") -> list[str]:
    """Return the calls that a plain server has received, over all its lives."""
    log = place / f"{name}.log"
    return log.read_text().split() if log.exists() else []
