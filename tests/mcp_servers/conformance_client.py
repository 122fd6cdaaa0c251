"""The client that the conformance suite of MCP tests: our own, with a person who always agrees."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult

from asterism.config.settings import McpSettings, OAuthSettings
from asterism.errors import ToolError
from asterism.tools.mcp.clients import McpClients
from asterism.tools.mcp.connection import McpHost
from asterism.tools.mcp.login import login_provider
from asterism.tools.tool import Toolbox
from tests.mcp_servers.scene import FileVault, a_context

REDIRECT = "http://localhost:3000/callback"
SAMPLES: dict[str, Any] = {"string": "a", "integer": 1, "number": 1, "boolean": True, "array": []}


class Passer:
    """Stands in for a person with a browser, who agrees to everything."""

    def __init__(self) -> None:
        self.came_back: dict[str, list[str]] = {}

    async def visit(self, address: str) -> None:
        async with httpx2.AsyncClient(timeout=90) as browser:
            answer = await browser.get(address, follow_redirects=False)
        self.came_back = parse_qs(urlsplit(answer.headers["location"]).query)

    async def callback(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(
            code=self.came_back["code"][0],
            state=self.came_back.get("state", [None])[0],
            iss=self.came_back.get("iss", [None])[0],
        )


async def elicit(_: str, __: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a form with its defaults, or with something of the right type."""
    return {
        name: one.get("default", SAMPLES.get(one.get("type", "string")))
        for name, one in schema.get("properties", {}).items()
    }


def services(place: Path, given: Mapping[str, Any]) -> McpHost:
    vault, passer = FileVault(place), Passer()

    async def secret(_: str) -> str | None:
        return given.get("client_secret")

    async def login(url: str, settings: McpSettings) -> httpx2.Auth:
        return await login_provider(
            "suite",
            url,
            settings.oauth,
            vault,
            secret=given.get("client_secret"),
            show_address=passer.visit,
            callback=passer.callback,
            redirect=REDIRECT,
        )

    return McpHost(secret, vault, elicit, login)


def arguments_for(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: SAMPLES.get(str(one.get("type")), {})
        for name, one in cast("dict[str, dict[str, Any]]", schema.get("properties", {})).items()
    }


async def follow(order: Mapping[str, str], place: Path) -> tuple[int, str]:
    """Do what a scenario asks for: connect, list, call; return the exit code and what was said."""
    given = json.loads(order.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    known = services(place, given)
    if not order["MCP_CONFORMANCE_SCENARIO"].startswith("auth/"):
        known = McpHost(known.read_secret, known.vault, known.elicit)
    settings = McpSettings(
        url=order["url"],
        prefix="",
        oauth=OAuthSettings(
            client_id=given.get("client_id"),
            metadata_url="https://conformance-test.local/client-metadata.json",
        ),
        timeout=90.0,
        connect_timeout=90.0,
    )
    toolbox = Toolbox()
    servers = McpClients(place, known, toolbox)
    servers.configure({"suite": settings}, connect=False)
    try:
        return 0, await _call_all(servers, toolbox, given)
    except ToolError as error:
        return 1, error.message
    finally:
        await servers.stop()


async def _call_all(servers: McpClients, toolbox: Toolbox, given: Mapping[str, Any]) -> str:
    standing = await servers.ask("suite")
    said = [f"{one.own_name} is refused: {one.refused}" for one in standing.tools if one.refused]
    calls: list[dict[str, Any]] = given.get("toolCalls") or [
        {"name": one.name, "arguments": arguments_for(one.tool.schema)}
        for one in standing.tools
        if one.tool is not None
    ]
    for call in calls:
        tool = toolbox.get(call["name"], None)
        assert tool is not None, call["name"]
        try:
            said.append(await tool.run(a_context(), call["arguments"]))
        except (ToolError, TimeoutError) as error:
            said.append(f"{call['name']} failed: {error}")
    return "\n".join(said)
