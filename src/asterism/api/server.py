"""The HTTP server: Starlette on uvicorn, in the event loop of the home it shows."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from asterism import __version__
from asterism.errors import AsterismError, Conflict, InvalidInput
from asterism.telemetry.redaction import redact

if TYPE_CHECKING:
    from starlette.requests import Request

    from asterism.app import Asterism

_PATIENCE = 5.0


def bind(host: str, port: int) -> socket.socket:
    """Take a port, or raise a sentence that says why it cannot be had."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise InvalidInput(
            f"{host!r} is not an address of this machine. Take 127.0.0.1, or 0.0.0.0 for all."
        ) from None
    taken = socket.socket(family)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind(address)
    except OSError as error:
        taken.close()
        raise Conflict(
            f"{host}:{port} cannot be listened at ({error.strerror}). Another program may have it: "
            "stop that one, or choose another with --port. Nothing was started."
        ) from None
    return taken


class _Quiet(uvicorn.Server):
    """A server that leaves signals to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Do nothing."""
        yield


class Server:
    """Serves a home until left; use it as an async context manager."""

    def __init__(
        self, home: Asterism, taken: socket.socket, problems: Callable[[], Sequence[str]]
    ) -> None:
        """Make a server at a port that was taken; `problems` are told by `/health`."""
        self._socket = taken
        config = uvicorn.Config(
            application(home, problems),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=int(_PATIENCE),
        )
        self._server = _Quiet(config)
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def __aenter__(self) -> Self:
        # From here on the kernel takes connections, so that nobody is turned away meanwhile.
        self._socket.listen()
        self._serving = asyncio.create_task(self._server.serve([self._socket]))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        self._socket.close()


def application(home: Asterism, problems: Callable[[], Sequence[str]] = tuple) -> Starlette:
    """Return the ASGI application of a home."""

    async def health(_: Request) -> JSONResponse:
        found, fit = await _health(home, problems())
        return JSONResponse(found, 200 if fit else 503, {"cache-control": "no-store"})

    async def metrics(request: Request) -> Response:
        body, kind = await home.metrics(request.headers.get("accept", ""))
        return Response(body, 200, {"cache-control": "no-store", "content-type": kind})

    return Starlette(routes=[Route("/health", health), Route("/metrics", metrics)])


async def _health(home: Asterism, problems: Sequence[str]) -> tuple[dict[str, Any], bool]:
    """Return how it goes, and whether it can work."""
    found: dict[str, Any] = {
        "status": "ok",
        "version": __version__,
        "store": "postgresql" if home.database.distributed else "sqlite",
        "agents": None,
        "waiting": None,
        "problems": [*problems],
    }
    try:
        async with asyncio.timeout(_PATIENCE):
            found["agents"], found["waiting"] = await home.counts()
            dead = len(await home.outbox.list("dead"))
    except (AsterismError, TimeoutError) as error:
        said = error.message if isinstance(error, AsterismError) else "The store does not answer."
        found["status"] = "failing"
        found["problems"] = [*map(redact, (*found["problems"], said))]
        return found, False
    if dead:
        found["problems"].append(
            f'{dead} deliveries were given up. "asterism outbox list --state dead" shows them.'
        )
    if found["problems"]:
        found["status"] = "troubled"
        found["problems"] = [*map(redact, found["problems"])]
    return found, True
