"""Servers that people really use: each is listed and called."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from asterism.config.settings import McpSettings
from asterism.errors import ToolError
from tests.mcp_servers.installed import (
    PYTHON_SERVERS,
    SERVERS,
    node,
    npm_packages,
    python_programs,
)
from tests.mcp_servers.scene import a_context, call, open_servers, tool

pytestmark = pytest.mark.promise("S4")


def from_npm(name: str, *args: str) -> McpSettings:
    program = npm_packages("servers", *SERVERS) / f"@modelcontextprotocol/server-{name}"
    return McpSettings(command=node(), args=(str(program / "dist/index.js"), *args))


def from_python(name: str, *args: str) -> McpSettings:
    programs = python_programs("python-servers", *PYTHON_SERVERS)
    return McpSettings(command=str(programs / f"mcp-server-{name}"), args=args)


async def test_everything(tmp_path: Path) -> None:
    server = from_npm("everything")
    async with open_servers(tmp_path, every=server) as (servers, toolbox):
        standing = await servers.ask("every")
        assert standing.listing is not None
        assert standing.listing.protocol == "2025-11-25"
        assert standing.offered >= 10
        assert await call(toolbox, "every_echo", '{"message": "hi"}') == "Echo: hi"
        assert "12" in await call(toolbox, "every_get-sum", '{"a": 5, "b": 7}')
        assert "[image image/png" in await call(toolbox, "every_get-tiny-image")
        shown = await call(toolbox, "every_get-structured-content", '{"location": "New York"}')
        assert json.loads(shown)["temperature"]
        told: list[str] = []
        long = tool(toolbox, "every_trigger-long-running-operation")
        await long.run(a_context(told), {"duration": 0.2, "steps": 2})
        assert told
        with pytest.raises(ToolError, match="do not fit every_get-sum"):
            await call(toolbox, "every_get-sum", '{"a": "five"}')


async def test_filesystem(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "note.txt").write_text("milk and bread")
    server = from_npm("filesystem", str(shared))
    async with open_servers(tmp_path / "kept", files=server) as (servers, toolbox):
        assert (await servers.ask("files")).offered >= 10
        path = json.dumps({"path": str(shared / "note.txt")})
        assert "milk and bread" in await call(toolbox, "files_read_text_file", path)
        with pytest.raises(ToolError, match=r"(?i)denied|outside"):
            await call(toolbox, "files_read_text_file", '{"path": "/etc/passwd"}')


async def test_roots_are_told_to_the_server(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "note.txt").write_text("by a root")
    server = from_npm("filesystem").model_copy(update={"roots": (str(shared),)})
    async with open_servers(tmp_path / "kept", files=server) as (servers, toolbox):
        await servers.ask("files")
        # It asks for the roots once it has answered the first request, in its own time.
        async with asyncio.timeout(120):
            while str(shared) not in await call(toolbox, "files_list_allowed_directories"):
                pass


async def test_memory(tmp_path: Path) -> None:
    place = {"MEMORY_FILE_PATH": str(tmp_path / "graph.jsonl")}
    server = from_npm("memory").model_copy(update={"env": place})
    entity = {"name": "Ada", "entityType": "person", "observations": ["likes tea"]}
    async with open_servers(tmp_path / "kept", graph=server) as (servers, toolbox):
        await servers.ask("graph")
        await call(toolbox, "graph_create_entities", json.dumps({"entities": [entity]}))
    async with open_servers(tmp_path / "kept", graph=server) as (_, toolbox):
        assert "likes tea" in await call(toolbox, "graph_read_graph")


async def test_time(tmp_path: Path) -> None:
    async with open_servers(tmp_path, time=from_python("time")) as (servers, toolbox):
        standing = await servers.ask("time")
        assert standing.listing is not None
        assert standing.listing.protocol == "2026-07-28"
        when = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        assert "21:00" in await call(toolbox, "time_convert_time", json.dumps(when))


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_git_with_both_protocols(tmp_path: Path, protocol: str) -> None:
    place = tmp_path / "repo"
    await asyncio.to_thread(subprocess.run, ["git", "init", "--quiet", str(place)], check=True)
    (place / "new.txt").write_text("x")
    server = from_python("git").model_copy(update={"protocol": protocol})
    async with open_servers(tmp_path / "kept", git=server) as (servers, toolbox):
        standing = await servers.ask("git")
        assert standing.listing is not None
        assert standing.listing.protocol == protocol
        assert "git_status" in toolbox.names()
        status = await call(toolbox, "git_status", json.dumps({"repo_path": str(place)}))
        assert "new.txt" in status
