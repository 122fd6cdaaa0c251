"""MCP servers over HTTP: headers, sessions that are forgotten, logins and what becomes of them."""

import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from yarl import URL

from asterism.app.mcp import Mcp, McpServers
from asterism.app.session import Session
from asterism.config import Settings
from asterism.errors import InvalidInput, NotFound, ToolError
from asterism.tools.tool import Toolbox
from asterism.types.agents import now_ms
from tests.mcp_servers.guarded import Guarded, guarded
from tests.mcp_servers.scene import SWIFT, FileVault, call

pytestmark = pytest.mark.promise("S4")


@asynccontextmanager
async def connected(place: Path, **server: Any) -> AsyncGenerator[tuple[Mcp, Toolbox], None]:
    settings = Settings.model_validate({"mcp": {"mail": {"connect_timeout": 10.0, **server}}})
    toolbox = Toolbox()
    unused: Any = None
    session = Session(unused, now_ms, unused, place)
    vault = FileVault(place / "mcp")
    servers = McpServers(place / "mcp", lambda: settings, toolbox, vault, backoff=SWIFT)
    servers.start(connect=False)
    try:
        yield Mcp(session, servers), toolbox
    finally:
        await servers.close()


async def browse(address: str) -> None:
    """Be the person: go to the address, agree, and come back."""
    async with aiohttp.ClientSession() as browser, browser.get(address) as page:
        assert page.status == 200
        assert "logged in" in await page.text()


async def test_headers_carry_stored_keys(tmp_path: Path) -> None:
    async with guarded() as server:
        header = {"Authorization": "Bearer ${secret:MAIL}"}
        async with connected(tmp_path, url=server.url, headers=header) as (mcp, toolbox):
            with pytest.raises(ToolError, match="asterism key set MAIL"):
                await mcp.ask("mail")
        await FileVault(tmp_path / "mcp").write("MAIL", "token-of-mail")
        async with connected(tmp_path, url=server.url, headers=header) as (mcp, toolbox):
            assert (await mcp.ask("mail")).offered == 1
            assert await call(toolbox, "mail_add") == "added"
        assert set(server.heard) == {"Bearer token-of-mail"}


async def test_a_forgotten_session_is_opened_again_and_the_call_made_once(tmp_path: Path) -> None:
    async with guarded() as server, connected(tmp_path, url=server.url) as (mcp, toolbox):
        await mcp.ask("mail")
        server.sessions.clear()
        assert await call(toolbox, "mail_add") == "added"
        assert server.calls == ["add"]


async def test_a_server_that_is_gone_is_told_and_found_again(tmp_path: Path) -> None:
    async with guarded() as server:
        url = server.url
        async with connected(tmp_path, url=url) as (mcp, _):
            await mcp.ask("mail")
    async with connected(tmp_path, url=url) as (mcp, toolbox):
        assert toolbox.names() == ["mail_add"]
        with pytest.raises(ToolError, match="'mail' cannot be used"):
            await call(toolbox, "mail_add")


async def test_a_login_is_asked_for_made_kept_and_refreshed(tmp_path: Path) -> None:
    async with guarded(wants_login=True) as server:
        async with connected(tmp_path, url=server.url) as (mcp, toolbox):
            with pytest.raises(ToolError, match='run "asterism mcp login mail"'):
                await mcp.ask("mail")
            listing = await mcp.login("mail", browse)
            assert [one.name for one in listing.tools] == ["add"]
        (kept,) = (tmp_path / "mcp").glob("*.token")
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        kept.write_bytes(orjson.dumps(orjson.loads(kept.read_bytes()) | {"expires_at": 1.0}))
        async with connected(tmp_path, url=server.url) as (mcp, toolbox):
            assert await call(toolbox, "mail_add") == "added"
        # It had run out, so it was refreshed, where the login had found that this is done.
        assert server.grants[0] == "authorization_code"
        assert set(server.grants[1:]) == {"refresh_token"}
        await _no_refresh(tmp_path, server)


async def _no_refresh(place: Path, server: Guarded) -> None:
    server.refreshes = False
    server.tokens.clear()
    async with connected(place, url=server.url) as (_, toolbox):
        with pytest.raises(ToolError, match='run "asterism mcp login mail"'):
            await call(toolbox, "mail_add")


async def test_a_login_that_is_refused_stores_nothing(tmp_path: Path) -> None:
    async def refuse(address: str) -> None:
        back = URL(address).query["redirect_uri"]
        async with aiohttp.ClientSession() as browser:
            async with browser.get(back.replace("/callback", "/favicon.ico")) as page:
                assert page.status == 404
            async with browser.get(f"{back}?error=access_denied&error_description=not+you") as page:
                assert page.status == 200

    async with (
        guarded(wants_login=True) as server,
        connected(tmp_path, url=server.url) as (mcp, _),
    ):
        with pytest.raises((InvalidInput, ToolError), match="The login was refused: not you"):
            await mcp.login("mail", refuse)
        assert server.tokens == set()


async def test_logins_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    async with connected(tmp_path, command="true") as (mcp, _):
        with pytest.raises(InvalidInput, match="is a program, which needs no login"):
            await mcp.login("mail", browse)
        with pytest.raises(NotFound, match="Did you mean 'mail'"):
            await mcp.login("mial", browse)
