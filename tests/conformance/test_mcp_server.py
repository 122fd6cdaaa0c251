"""The server scenarios of MCP's own conformance suite, and the inspector, against our server."""

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from asterism.api.mcp_server import make_mcp_server
from asterism.api.mcp_transport import McpApplication, home_of_request
from tests.mcp_servers.conformance_server import with_diagnostics
from tests.mcp_servers.installed import CONFORMANCE, INSPECTOR, node, npm_packages
from tests.mcp_servers.served import serving
from tests.scenes import open_home

pytestmark = pytest.mark.promise("A4")

VERDICT = re.compile(r"^([✓✗]) ([\w/.-]+): (\d+) passed, (\d+) failed", re.MULTILINE)
MUST = {"2025-11-25": 30, "2026-07-28": 37}
"""How many scenarios the suite requires of a server."""
PLAIN = {
    "2025-11-25": {
        "server-initialize",
        "ping",
        "tools-list",
        "server-sse-multiple-streams",
        "resources-list",
        "dns-rebinding-protection",
        "server-session-lifecycle",
    },
    "2026-07-28": {
        "tools-list",
        "server-sse-multiple-streams",
        "resources-list",
        "sep-2164-resource-not-found",
        "dns-rebinding-protection",
        "input-required-result-unsupported-methods",
        "http-header-validation",
    },
}
"""The scenarios that call nothing by a name of the suite's own."""


async def run(script: Path, *arguments: str, cwd: Path) -> tuple[int, str, str]:
    """Run a program of Node; return its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        node(),
        str(script),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env={**os.environ, "HOME": str(cwd)},
    )
    try:
        async with asyncio.timeout(100):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def run_suite(url: str, revision: str, place: Path) -> tuple[int, dict[str, bool], str]:
    """Run all scenarios of a revision; return the exit code and which succeeded."""
    suite = npm_packages("conformance", CONFORMANCE) / "@modelcontextprotocol/conformance"
    code, out, err = await run(
        suite / "dist/index.js", "server", "--url", url, "--requirements", revision, cwd=place
    )
    scored, _, _ = out.partition("Not scored for")
    verdicts = {
        name: mark == "✓" and int(passed) > 0 for mark, name, passed, _ in VERDICT.findall(scored)
    }
    return code, verdicts, out + err


@pytest.mark.parametrize("revision", MUST)
async def test_server_scenarios(revision: str, tmp_path: Path) -> None:
    async with open_home(tmp_path / "home") as home:
        await home.agents.create("aria")
        server = with_diagnostics(make_mcp_server(home_of_request))
        async with serving({"": home}, McpApplication(server)) as url:
            code, verdicts, text = await run_suite(url, revision, tmp_path)
    assert code == 0, text
    unscored = set(re.findall(r"^  [✓✗] ([\w/.-]+) \(", text, re.MULTILINE))
    required = {name: good for name, good in verdicts.items() if name not in unscored}
    assert len(required) == MUST[revision], text
    assert [name for name, good in required.items() if not good] == [], text


@pytest.mark.parametrize("revision", PLAIN)
async def test_server_as_it_is(revision: str, tmp_path: Path) -> None:
    async with open_home(tmp_path / "home") as home:
        await home.agents.create("aria")
        async with serving({"": home}) as url:
            _, verdicts, text = await run_suite(url, revision, tmp_path)
    assert [name for name in PLAIN[revision] if not verdicts.get(name)] == [], text


async def inspect(url: str, place: Path, *arguments: str) -> Any:
    """Return what the inspector's command line prints."""
    inspector = npm_packages("inspector", INSPECTOR) / "@modelcontextprotocol/inspector"
    code, out, err = await run(
        inspector / "clients/launcher/build/index.js",
        *("--cli", url, "--transport", "http"),
        *arguments,
        cwd=place,
    )
    assert code == 0, out + err
    return json.loads(out)


async def test_inspector_lists_and_calls(tmp_path: Path) -> None:
    async with open_home(tmp_path / "home") as home:
        await home.agents.create("aria")
        async with serving({"": home}) as url:
            listed = await inspect(url, tmp_path, "--method", "tools/list", "--strict")
            names = [tool["name"] for tool in listed["tools"]]
            assert names[:2] == ["list_agents", "chat_with_agent"]
            called = await inspect(
                url,
                tmp_path,
                *("--method", "tools/call", "--tool-name", "chat_with_agent"),
                *("--tool-arg", "message=Hello from the inspector", "--tool-arg", "agent=aria"),
            )
            assert called["structuredContent"]["state"] == "done"
            found = await inspect(url, tmp_path, "--method", "resources/list")
            uris = [resource["uri"] for resource in found["resources"]]
            assert "asterism://agents/aria/blocks/human" in uris
            read = await inspect(url, tmp_path, "--method", "resources/read", "--uri", uris[0])
            assert read["contents"][0]["uri"] == uris[0]
