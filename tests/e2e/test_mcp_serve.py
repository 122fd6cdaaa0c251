"""`asterism mcp serve`: an MCP client starts it as a process of its own."""

import json
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

from asterism.api import mcp_transport
from tests.e2e.command import EXECUTABLE, PATIENCE, TRACEBACK, Command
from tests.mcp_servers.served import MODES

pytestmark = pytest.mark.promise("A4")

DEMO = 'model = "demo:guide"\n'


@asynccontextmanager
async def client_of(
    asterism: Command, revision: str, *arguments: str
) -> AsyncGenerator[Client, None]:
    """Start the command as a client does, and connect to it."""
    server = StdioServerParameters(
        command=str(EXECUTABLE), args=["mcp", *arguments], env=asterism.env
    )
    async with Client(server, mode=MODES[revision], read_timeout_seconds=PATIENCE) as client:
        assert client.protocol_version == revision
        yield client


@contextmanager
def started(asterism: Command) -> Generator[subprocess.Popen[str], None, None]:
    """`asterism mcp serve` in pipes; it is killed at the end."""
    with subprocess.Popen(
        [EXECUTABLE, "mcp", "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=asterism.env,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def request(id: int, method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}) + "\n"


INITIALIZE = request(
    1,
    "initialize",
    protocolVersion="2025-11-25",
    capabilities={},
    clientInfo={"name": "test", "version": "1"},
)


@pytest.mark.parametrize("revision", MODES)
async def test_a_client_talks_to_an_agent(asterism: Command, revision: str) -> None:
    asterism.configure(DEMO)
    asterism.ok("agent", "create", "aria")
    async with client_of(asterism, revision, "serve") as client:
        said = await client.call_tool("chat_with_agent", {"message": "Hello there"})
        assert not said.is_error
        assert "Hello there" in said.structured_content["text"]
        edit = {"block": "human", "operation": "append", "content": "Has a cat."}
        assert not (await client.call_tool("update_agent_memory", edit)).is_error
        resources = (await client.list_resources()).resources
        assert "asterism://agents/aria/blocks/human" in {found.uri for found in resources}
        # Other terminals use the home that this process has open.
        assert "Has a cat." in asterism.ok("block", "show", "human", "--agent", "aria")
    assert [turn["state"] for turn in asterism.json("turn", "list")] == ["done"]


@pytest.mark.parametrize("revision", MODES)
async def test_a_client_uses_the_home_that_is_open(asterism: Command, revision: str) -> None:
    asterism.configure(DEMO)
    asterism.ok("agent", "create", "aria")
    with asterism.started("serve", "--port", "0") as running:
        assert running.stderr is not None
        assert "Listening" in running.stderr.readline()
        async with client_of(asterism, revision) as client:  # as configurations say: asterism mcp
            listed = await client.call_tool("list_agents", {})
            assert [agent["name"] for agent in listed.structured_content["agents"]] == ["aria"]
            said = {"message": "Hello", "external_id": "m-1"}
            first = await client.call_tool("chat_with_agent", said)
            again = await client.call_tool("chat_with_agent", said)
            assert first.structured_content == again.structured_content
            found = await client.call_tool("search_memory", {"query": "Hello", "agent": "aria"})
            assert found.structured_content["hits"]
            unknown = await client.call_tool("get_agent_memory", {"agent": "nobody"})
            assert unknown.is_error
            assert "'nobody'" in str(unknown.content)
        assert running.poll() is None


async def test_agents_and_tools_can_be_narrowed(asterism: Command) -> None:
    asterism.configure(DEMO)
    asterism.ok("agent", "create", "aria")
    asterism.ok("agent", "create", "bo")
    revision = "2025-11-25"
    async with client_of(asterism, revision, "serve", "--read-only", "--agent", "bo") as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {"list_agents", "get_agent_memory", "search_memory", "list_approvals"}
        listed = await client.call_tool("list_agents", {})
        assert [agent["name"] for agent in listed.structured_content["agents"]] == ["bo"]
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("chat_with_agent", {"message": "Hello"})
    done = asterism.run("mcp", "serve", "--agent", "nobody")
    assert done.returncode == 1
    assert "'nobody'" in done.stderr
    assert done.stdout == ""


def test_nothing_but_the_protocol_is_printed(asterism: Command, tmp_path: Path) -> None:
    """What a tool of the owner prints does not reach the client."""
    tools = tmp_path / "noisy.py"
    tools.write_text(
        "import os\n"
        "from asterism import ToolEffect, tool\n"
        "@tool(effects=ToolEffect('read'), audience='public')\n"
        "def shout() -> str:\n"
        '    """Print something."""\n'
        '    print("PRINTED", flush=True); os.system("echo SHOUTED; cat"); return "done"\n'
    )
    asterism.configure(f'{DEMO}[tools]\nmodules = ["{tools}"]\n')
    asterism.ok("agent", "create", "aria")
    call = {"name": "chat_with_agent", "arguments": {"message": "call shout {}"}}
    lines = (
        INITIALIZE
        + '{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'
        + "this is not JSON\n"
        + request(2, "tools/call", **call)
    )
    with started(asterism) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines)
        process.stdin.flush()
        answers: dict[Any, Any] = {}
        while 2 not in answers:
            message = json.loads(process.stdout.readline())
            answers[message.get("id")] = message
        assert answers[2]["result"]["structuredContent"]["state"] == "done"
        process.stdin.close()
        rest = process.stdout.read()
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        told = process.stderr.read()
    assert [json.loads(line) for line in rest.splitlines()] == []
    assert {"PRINTED", "SHOUTED"} <= set(told.split())
    assert "Serving MCP" in told
    assert TRACEBACK not in told


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(asterism: Command, number: signal.Signals) -> None:
    asterism.configure(DEMO)
    with started(asterism) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(INITIALIZE)
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        os.kill(process.pid, number)
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        assert TRACEBACK not in process.stderr.read()


def test_without_a_command_it_serves_in_a_pipe_and_helps_at_a_terminal(asterism: Command) -> None:
    answer = json.loads(asterism.ok("mcp", stdin=INITIALIZE))
    assert answer["result"]["serverInfo"]["name"] == "asterism"
    with asterism.screen("mcp") as screen:
        assert screen.ended() == 0
        assert "Usage: asterism mcp" in screen.shown


def test_without_the_library_it_says_what_to_install(
    asterism: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_none(name: str) -> None:
        assert name == "mcp"

    monkeypatch.setattr(mcp_transport, "find_spec", find_none)
    done = asterism.run("mcp", "serve")
    assert done.returncode == 1
    assert "pip install 'asterism[mcp]'" in done.stderr
    assert done.stdout == ""
