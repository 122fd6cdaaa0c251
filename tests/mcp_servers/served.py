"""Our MCP server over HTTP on loopback, where a bearer token says who asks."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette
from starlette.routing import Route

from asterism.api.mcp_transport import McpApplication, mcp_application
from asterism.api.server import bind
from asterism.app.home import Home

MODES = {"2025-11-25": "legacy", "2026-07-28": "2026-07-28"}
"""How the SDK's client is told to speak a revision."""


class _Quiet(uvicorn.Server):
    """A server that leaves signals to pytest."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Do nothing."""
        yield


@asynccontextmanager
async def serving(
    homes: Mapping[str, Home], application: McpApplication | None = None
) -> AsyncGenerator[str, None]:
    """Serve homes by their tokens, the one of "" to whoever has none; yield the address."""
    served = application or mcp_application()
    routes = Starlette(routes=[Route("/mcp", served)])

    async def authenticated(scope: Any, receive: Any, send: Any) -> None:
        given = dict(scope["headers"]).get(b"authorization", b"").decode()
        scope.setdefault("state", {})["home"] = homes[given.removeprefix("Bearer ")]
        await routes(scope, receive, send)

    with bind("127.0.0.1", 0) as socket:
        config = uvicorn.Config(
            authenticated, log_config=None, lifespan="off", timeout_graceful_shutdown=1
        )
        server = _Quiet(config)
        socket.listen()
        running = asyncio.create_task(server.serve([socket]))
        try:
            yield f"http://127.0.0.1:{socket.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True
            await served.close()
            await running


@asynccontextmanager
async def connected(
    url: str, revision: str, token: str = "", **options: Any
) -> AsyncGenerator[Client, None]:
    """Connect the SDK's client, which speaks a revision."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(
            streamable_http_client(url, http_client=http), mode=MODES[revision], **options
        ) as client,
    ):
        assert client.protocol_version == revision
        yield client
