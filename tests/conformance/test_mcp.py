"""The client scenarios of MCP's own conformance suite, for both protocol revisions."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.mcp_servers.conformance_client import follow
from tests.mcp_servers.installed import CONFORMANCE, node, npm_packages

COURIER = Path(__file__).parents[1] / "mcp_servers" / "courier.py"
VERDICT = re.compile(r"^([✓✗]) ([\w/.-]+): (\d+) passed, (\d+) failed", re.MULTILINE)
MUST = {
    "2025-11-25": 18,
    "2026-07-28": 32,
}
"""How many scenarios the suite requires of a client."""


@asynccontextmanager
async def client_under_test(place: Path) -> AsyncGenerator[str, None]:
    """Follow the orders that couriers bring; yield the command that the suite starts for each."""
    count = 0
    few = asyncio.Semaphore(6)  # the suite starts all scenarios at once

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        own = place / str(count)
        async with few:
            code, said = await follow(json.loads(await reader.readline()), own)
        writer.write(json.dumps({"code": code, "said": said}).encode() + b"\n")
        writer.close()

    socket = place / "orders"
    async with await asyncio.start_unix_server(take, socket, limit=1_000_000):
        yield f"{sys.executable} -I -S {COURIER} {socket}"


@pytest.mark.promise("S4")
@pytest.mark.parametrize("revision", MUST)
async def test_client_scenarios(revision: str, tmp_path: Path) -> None:
    suite = npm_packages("conformance", CONFORMANCE) / "@modelcontextprotocol/conformance"
    async with client_under_test(tmp_path) as command:
        process = await asyncio.create_subprocess_exec(
            node(),
            str(suite / "dist/index.js"),
            *("client", "--requirements", revision, "--command", command),
            *("--timeout", "105000"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=tmp_path,
        )
        try:
            async with asyncio.timeout(110):
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    text = output.decode()
    scored, _, _ = text.partition("Not scored for")
    verdicts = {name: mark == "✓" for mark, name, _, _ in VERDICT.findall(scored)}
    unscored = set(re.findall(r"^  [✓✗] ([\w/.-]+) \(", text, re.MULTILINE))
    required = {name: good for name, good in verdicts.items() if name not in unscored}
    assert len(required) == MUST[revision], text
    assert [name for name, good in required.items() if not good] == [], text
