"""Logins at MCP servers whose refresh tokens are good for once: a new one is never lost."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import Asterism
from asterism.errors import AsterismError, Conflict
from asterism.testing.postgres import postgres_server
from tests.e2e.command import Command
from tests.integration.test_mcp_http import browse
from tests.mcp_servers.guarded import Guarded, guarded
from tests.scenes import open_home, until

pytestmark = pytest.mark.promise("S4")


@asynccontextmanager
async def rotating(place: Path, **how: Any) -> AsyncGenerator[Guarded]:
    """A server at which the owner is logged in, with a token that has run out."""
    async with guarded(wants_login=True, rotates=True, **how) as server:
        async with home_of(place, server) as home:
            await home.mcp.login("mail", browse)
        await run_out(place, server)
        yield server


async def run_out(place: Path, server: Guarded, **given: Any) -> None:
    """Let the time of the token be over."""
    async with home_of(place, server, **given) as home:
        kept = orjson.loads(home.keys.get("mcp:mail") or "")
        await home.keys.set("mcp:mail", orjson.dumps(kept | {"expires_at": 1.0}).decode())


def home_of(
    place: Path, server: Guarded, *, url: str | None = None, patience: float = 20.0, **given: Any
) -> AbstractAsyncContextManager[Asterism]:
    mail = {"url": server.url, "connect_timeout": patience}
    settings: dict[str, Any] = {"mcp": {"mail": mail}, "store.url": url}
    return open_home(place, settings=settings, work=False, **given)


async def works(place: Path, server: Guarded, **given: Any) -> None:
    async with home_of(place, server, **given) as home:
        assert (await home.mcp.ask("mail")).offered == 1


async def test_each_new_refresh_token_serves_the_next_time(tmp_path: Path) -> None:
    async with rotating(tmp_path) as server:
        for _ in range(3):
            await works(tmp_path, server)
            await run_out(tmp_path, server)
    assert len(server.used) == 3


async def test_whoever_only_reads_renews_no_login(tmp_path: Path) -> None:
    async with rotating(tmp_path) as server:
        before = set(server.used)
        async with home_of(tmp_path, server, readonly=True) as look:
            with pytest.raises(Conflict, match="has run out"):
                await look.mcp.ask("mail")
        assert server.used == before
        await works(tmp_path, server)


async def test_whoever_only_reads_renews_no_token_that_was_taken_back(tmp_path: Path) -> None:
    async with rotating(tmp_path) as server:
        await works(tmp_path, server)
        before = set(server.used)
        server.tokens.clear()
        async with home_of(tmp_path, server, readonly=True) as look:
            with pytest.raises(AsterismError, match="has run out"):
                await look.mcp.ask("mail")
        assert server.used == before
        await works(tmp_path, server)


async def test_a_token_that_is_not_taken_any_more_is_renewed(tmp_path: Path) -> None:
    async with rotating(tmp_path) as server:
        async with home_of(tmp_path, server) as home:
            assert (await home.mcp.ask("mail")).offered == 1
            server.tokens.clear()
            assert (await home.mcp.ask("mail")).offered == 1
        await works(tmp_path, server)


@pytest.mark.postgres
async def test_two_processes_renew_a_login_one_after_the_other(tmp_path: Path) -> None:
    with postgres_server().database() as url:
        async with guarded(wants_login=True, rotates=True) as server:
            async with home_of(tmp_path, server, url=url) as home:
                await home.mcp.login("mail", browse)
            await run_out(tmp_path, server, url=url)
            async with (
                home_of(tmp_path, server, url=url) as one,
                home_of(tmp_path, server, url=url) as other,
            ):
                for _ in range(5):
                    found = await asyncio.gather(one.mcp.ask("mail"), other.mcp.ask("mail"))
                    assert [each.offered for each in found] == [1, 1]
                    server.tokens.clear()


_CHILD = """
import asyncio, sys
from pathlib import Path
from asterism import Asterism

async def main() -> None:
    settings = {"mcp": {"mail": {"url": sys.argv[2], "connect_timeout": 20.0}}}
    place = Path(sys.argv[1])
    async with Asterism.open(place, settings=settings, environ={}, work=False) as home:
        await home.mcp.ask("mail")

asyncio.run(main())
"""


async def test_a_process_that_is_killed_with_its_first_use_of_a_token_has_kept_it(
    tmp_path: Path,
) -> None:
    async with rotating(tmp_path) as server:
        before = set(server.tokens)
        given = (sys.executable, "-c", _CHILD, str(tmp_path), server.url)
        child = await asyncio.create_subprocess_exec(*given)

        def kill(token: str) -> None:
            if token not in before and child.returncode is None:
                os.kill(child.pid, signal.SIGKILL)

        server.told = kill
        async with asyncio.timeout(120):
            assert await child.wait() == -signal.SIGKILL
        server.told = lambda _: None
        await works(tmp_path, server)


async def test_a_renewal_that_nobody_waits_for_any_more_is_kept(tmp_path: Path) -> None:
    async with rotating(tmp_path) as server:
        server.open_gate.clear()
        async with home_of(tmp_path, server, patience=0.5) as home:
            with pytest.raises(AsterismError, match="mail"):
                await home.mcp.ask("mail")
            await until(lambda: bool(server.used))
            server.open_gate.set()
        await works(tmp_path, server)


def test_a_command_that_asks_a_server_keeps_the_login_it_renews(tmp_path: Path) -> None:
    asterism = Command(tmp_path)

    async def log_in() -> str:
        async with guarded(wants_login=True, rotates=True) as server:
            given = {"mcp": {"mail": {"url": server.url}}}
            async with open_home(asterism.data, settings=given, environ=asterism.env) as home:
                await home.mcp.login("mail", browse)
            await run_out(asterism.data, server, environ=asterism.env)
            asterism.configure(f'[mcp.mail]\nurl = "{server.url}"\n')
            told: list[Any] = []
            for command in (("mcp", "tools", "mail"), ("mcp", "list", "--check"), ("doctor",)):
                told.append(await asyncio.to_thread(asterism.json, *command))
                await run_out(asterism.data, server, environ=asterism.env)
            assert [one["name"] for one in told[0]] == ["mail_add"]
            assert told[1][0]["problem"] is None
            return next(one["state"] for one in told[2] if one["check"] == "mcp")

    assert asyncio.run(log_in()) == "look"
