"""How the MCP server is reached: over streamable HTTP, or on standard input and output."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Collection, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

from asterism.api.endpoints import send_while_valid
from asterism.app.home import actor_of
from asterism.errors import ConfigError

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server as ProtocolServer
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.types import Receive, Scope, Send

    from asterism.app import Asterism

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MAX_BODY = 4 * 1024 * 1024
"""The largest request that is read, in bytes."""
MAX_SESSIONS = 1_000
IDLE_SECONDS = 30 * 60.0
"""How long a session of a revision up to 2025-11-25 is kept that nobody uses."""


def mcp_application(
    *, hosts: Sequence[str] = (), origins: Sequence[str] = (), read_only: bool = False
) -> McpApplication:
    """Return the MCP server as an ASGI application, for a route such as `/mcp`.

    Each request is done with `request.state.home`, which an authentication step has set.

    Args:
        hosts: Names by which this server is reached, beside those of the loopback interface.
        origins: Origins of web pages that may use it, such as `https://inspector.example.org`,
            beside pages from the loopback interface.
        read_only: Whether only tools that change nothing are offered.
    """
    _require_mcp()
    from asterism.api.mcp_server import make_mcp_server

    server = make_mcp_server(home_of_request, read_only=read_only)
    return McpApplication(server, hosts=hosts, origins=origins)


def home_of_request(context: ServerRequestContext[Any, Any]) -> Asterism:
    """Return the home that an authentication step has set for a request over HTTP."""
    assert context.request is not None
    return context.request.state.home


class McpApplication:
    """An MCP server over streamable HTTP, in the revisions 2025-11-25 (and before) and 2026-07-28.

    A session belongs to the caller and the credential that opened it: to anybody else its id is
    unknown. It starts with the first request and ends with `close`.
    """

    def __init__(
        self,
        server: ProtocolServer[Any],
        *,
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
    ) -> None:
        """Make it; nothing runs yet."""
        from mcp.server.transport_security import TransportSecuritySettings

        self._server = server
        names = (*LOOPBACK, *hosts)
        self._security = TransportSecuritySettings(
            allowed_hosts=[form for name in names for form in (name, f"{name}:*")],
            allowed_origins=[
                *(f"http://{name}{port}" for name in LOOPBACK for port in ("", ":*")),
                *origins,
            ],
        )
        self._manager: StreamableHTTPSessionManager | None = None
        self._running: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._stop = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        manager = await self._started()
        known = {**scope, "user": _caller(scope)}

        async def answer(send: Send) -> None:
            await manager.handle_request(known, receive, send)

        await send_while_valid(scope, send, answer)

    async def _started(self) -> StreamableHTTPSessionManager:
        async with self._starting:
            if self._manager is None:
                from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

                manager = StreamableHTTPSessionManager(
                    self._server,
                    security_settings=self._security,
                    session_idle_timeout=IDLE_SECONDS,
                    max_request_body_size=MAX_BODY,
                    max_sessions=MAX_SESSIONS,
                )
                started = asyncio.Event()
                self._stop.clear()
                self._running = asyncio.create_task(self._run(manager, started))
                await started.wait()
                self._manager = manager
            return self._manager

    async def _run(self, manager: StreamableHTTPSessionManager, started: asyncio.Event) -> None:
        # Sessions live in a task of their own: whoever opens the application need not have one.
        async with manager.run():
            started.set()
            await self._stop.wait()

    async def close(self) -> None:
        """End all sessions; a later request starts anew."""
        async with self._starting:
            self._manager, running = None, self._running
            self._running = None
            self._stop.set()
            if running is not None:
                await running


def _caller(scope: Scope) -> Any:
    """Return who sends a request, to whom the SDK binds a session: actor and credential."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    actor = actor_of(scope["state"]["home"])
    # However it was sent: as a bearer token, as x-api-key or as the cookie of the web page.
    secret: str | None = scope["state"].get("secret")
    given = b"".join(value for name, value in scope["headers"] if name == b"authorization")
    digest = hashlib.sha256(given if secret is None else secret.encode()).hexdigest()
    token = AccessToken(token="", client_id=f"{actor.kind}:{actor.id}", scopes=[], subject=digest)
    return AuthenticatedUser(token)


async def serve_stdio(
    home: Asterism, *, agents: Collection[str] = (), read_only: bool = False
) -> None:
    """Serve a home on standard input and output until the input ends.

    Meanwhile descriptor 0 is empty and descriptor 1 is standard error, so that nothing but the
    protocol reaches the client.

    Args:
        home: The home, whoever has it open.
        agents: The ids of the agents that are offered; none: all.
        read_only: Whether only tools that change nothing are offered.
    """
    _require_mcp()
    from mcp.server.stdio import stdio_server

    from asterism.api.mcp_server import make_mcp_server

    server = make_mcp_server(lambda _: home, agents=agents, read_only=read_only)
    with _Lines() as lines:
        async with stdio_server(stdin=lines) as (reading, writing):  # pyright: ignore[reportArgumentType] - it is only gone through
            await server.run(reading, writing, server.create_initialization_options())


class _Lines:
    """The lines of standard input, read in a thread that nobody has to wait for.

    The SDK's own reader cannot be cancelled while it waits for a line, so that a signal would not
    end the server.
    """

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[str | None] = asyncio.Queue(100)
        self._kept = os.dup(0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        threading.Thread(target=self._read, name="asterism-mcp-stdin", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            os.dup2(self._kept, 0)

    def _read(self) -> None:
        with (
            contextlib.suppress(OSError, RuntimeError),  # the loop may have ended
            os.fdopen(self._kept, "rb", closefd=False) as lines,
        ):
            for line in lines:
                self._put(line.decode("utf-8", "replace"))
            self._put(None)

    def _put(self, line: str | None) -> None:
        asyncio.run_coroutine_threadsafe(self._queue.put(line), self._loop).result()

    async def __aiter__(self) -> AsyncIterator[str]:
        while (line := await self._queue.get()) is not None:
            yield line


def _require_mcp() -> None:
    if find_spec("mcp") is None:
        raise ConfigError(
            "The MCP server needs the library mcp, which is not installed. "
            "Install it with: pip install 'asterism[mcp]'. Nothing was started."
        )
