"""The OpenAI-compatible API of a home at a real port, for clients of all kinds."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from asterism.api.openai import openai_routes
from asterism.app.home import Home
from tests.scenes import obedient, open_home

PLACE = "/openai/v1"


def application(home: Home) -> ASGIApp:
    """The routes, with a home as the authentication step would set it."""
    app = Starlette(routes=[Mount(PLACE, routes=openai_routes())])

    async def with_home(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["home"] = home
        await app(scope, receive, send)

    return with_home


class _Quiet(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """Leave signals to the test."""
        yield


@contextlib.asynccontextmanager
async def served(home: Home, port: int = 0) -> AsyncGenerator[str, None]:
    """Serve a home on loopback; yield the base URL for clients."""
    taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind(("127.0.0.1", port))
    taken.listen()
    config = uvicorn.Config(
        application(home), log_config=None, lifespan="off", timeout_graceful_shutdown=1
    )
    server = _Quiet(config)
    task = asyncio.create_task(server.serve([taken]))
    try:
        yield f"http://127.0.0.1:{taken.getsockname()[1]}{PLACE}"
    finally:
        server.should_exit = True
        await task
        taken.close()


def life(place: Path, port: int, delay: float) -> None:
    """A process that serves a home until it is killed; its model obeys directives, in its time."""

    async def live() -> None:
        async with open_home(place, obedient(delay=delay)) as home:
            await home.agents.ensure("aria", tools=())
            async with served(home, port):
                await asyncio.Event().wait()

    asyncio.run(live())
