"""The HTTP server: Starlette on uvicorn, in the event loop of the home it shows."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self, cast

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router

from asterism import __version__
from asterism.api.auth import Authentication
from asterism.api.calls import call_route
from asterism.api.connections import (
    MAX_HEAD,
    ConnectionTaker,
    HttpConnection,
    OpenConnections,
    RequestChecks,
    max_connections,
)
from asterism.api.endpoints import (
    ENCODED_SLASHES,
    EVENTS,
    JSON,
    PROBLEM,
    ApiEndpoint,
    answer_of,
    call_of,
    fault_answer,
    path_with_encoded_slashes,
    problem_answer,
)
from asterism.api.idempotency import answer_once
from asterism.api.limits import ANSWER_HEADERS, Limiter, Origins, RateLimit, RequestShares
from asterism.api.openai import OpenAIErrors, openai_routes
from asterism.api.openapi import document, page
from asterism.api.requests import EndedRequests, ObservedRequests, ServerStop
from asterism.api.routes import ENDPOINTS
from asterism.api.tls import TlsFiles, check_exposed, tls_of
from asterism.app.home import is_full
from asterism.errors import AsterismError, BadRequest, Conflict, InvalidInput
from asterism.store.database import end_tasks
from asterism.telemetry.redaction import redact
from asterism.types.agents import new_id
from asterism.views import problem_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from asterism.api.mcp_transport import McpApplication
    from asterism.app import Asterism
    from asterism.config import ApiSettings

_log = logging.getLogger(__name__)

_PATIENCE = 5.0


def bind(host: str, port: int) -> socket.socket:
    """Take a port, or raise a sentence that says why it cannot be had."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise InvalidInput(
            f"{host!r} is not an address of this machine. Take 127.0.0.1, or 0.0.0.0 for all."
        ) from None
    # With the protocol named, asyncio sends small pieces at once (TCP_NODELAY); without it, each
    # answer of headers and body waits 40 ms for the client's acknowledgement.
    taken = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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


class _UvicornServer(uvicorn.Server):
    """A server that leaves signals to whoever runs it, and takes no more connections than fit."""

    def __init__(self, config: uvicorn.Config, tls: TlsFiles | None) -> None:
        super().__init__(config)
        self._tls = None if tls is None else tls.context
        self._connections = OpenConnections()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take connections."""
        takers = [self._taker(listening) for listening in sockets or ()]
        # uvicorn closes them and waits for them, and does nothing else with servers of asyncio.
        self.servers = cast("list[asyncio.base_events.Server]", takers)
        self.started = True

    def _taker(self, listening: socket.socket) -> ConnectionTaker:
        def make() -> HttpConnection:
            return HttpConnection(self.config, self.server_state, self.lifespan.state)

        return ConnectionTaker(listening, make, self._connections, self._tls)

    async def on_tick(self, counter: int) -> bool:
        """Tell whether to stop."""
        try:
            return await super().on_tick(counter)
        except OverflowError:  # the clock of the machine stands beyond the year 2262
            return self.should_exit

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Do nothing."""
        yield


_FIRST_FD = 3
"""The first descriptor that a service manager hands over (`man 3 sd_listen_fds`)."""


def inherited_socket(environ: Mapping[str, str]) -> socket.socket | None:
    """Return the socket that systemd, or whoever started this, listens at for it; None if none."""
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    if environ.get("LISTEN_FDS") != "1":
        raise InvalidInput(
            f"LISTEN_FDS is {environ.get('LISTEN_FDS')!r}; asterism takes one socket, so name one "
            "ListenStream in the socket unit. Nothing was started."
        )
    try:
        return socket.socket(fileno=_FIRST_FD)
    except OSError as error:
        raise InvalidInput(
            f"LISTEN_FDS promises a socket as descriptor {_FIRST_FD}, which is none "
            f"({error.strerror}). Start it from a socket unit. Nothing was started."
        ) from None


@contextlib.contextmanager
def listening_socket(
    settings: ApiSettings, environ: Mapping[str, str], *, others: int = 0
) -> Generator[tuple[socket.socket, TlsFiles | None], None, None]:
    """Give the socket that the settings name, or an inherited one, and what is used for TLS.

    Args:
        settings: Where to listen, and how.
        environ: The environment, which tells of an inherited socket.
        others: How many ports after the wanted one may be taken in its place.
    """
    tls = tls_of(settings)
    taken = inherited_socket(environ) or _bind_first(settings.host, settings.port, others)
    with taken:
        check_exposed(taken.getsockname()[0], tls, settings)
        yield taken, tls


def _bind_first(host: str, port: int, others: int) -> socket.socket:
    """Take a port, or the first free one after it."""
    for number in range(port, min(port + others, 65_535)):
        with contextlib.suppress(Conflict):
            return bind(host, number)
    return bind(host, min(port + others, 65_535))


class Server:
    """Serves a home until left; use it as an async context manager."""

    def __init__(
        self,
        home: Asterism,
        taken: socket.socket,
        problems: Callable[[], Sequence[str]],
        *,
        tls: TlsFiles | None = None,
        grace: float = _PATIENCE,
    ) -> None:
        """Make a server at a port that was taken.

        Args:
            home: The home that it serves.
            taken: A socket that is bound.
            problems: Told by `/health`.
            tls: What is used for TLS; None: it is served without.
            grace: Seconds that requests under way have when it stops.
        """
        self._home = home
        self._socket = taken
        self._tls = tls
        self._grace = grace
        self._stop = ServerStop()
        self._app = HttpApplication(home, problems, self._stop)
        api = home.settings.api
        config = uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            http=HttpConnection,
            ws="none",
            h11_max_incomplete_event_size=MAX_HEAD,
            # Without a proxy, these headers are words of whoever asks.
            proxy_headers=api.behind_proxy,
            forwarded_allow_ips=[*api.trusted_proxies],
            timeout_graceful_shutdown=int(grace + _PATIENCE),
        )
        self._server = _UvicornServer(config, tls)
        self._serving: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._socket.getsockname()[:2]
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    async def __aenter__(self) -> Self:
        # From here on the kernel takes connections, so that nobody is turned away meanwhile.
        self._socket.listen(_BACKLOG)
        self._serving = asyncio.create_task(self._server.serve([self._socket]))
        if self._tls is not None:
            self._renewing = asyncio.create_task(self._read_certificates(self._tls))
        self._home.listens_at(self.url)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._home.listens_at(None)
        # A load balancer sees this first, and sends no more while others can still be answered.
        self._stop.is_begun = True
        await asyncio.sleep(self._home.settings.api.drain)
        self._server.should_exit = True
        self._stop.begin()
        await self._app.close()
        if self._renewing is not None:
            await end_tasks([self._renewing])
        if self._serving is not None:
            await asyncio.wait([self._serving], timeout=self._grace)
            if not self._serving.done():
                self._stop.cut_off()
            await self._serving
        self._socket.close()

    async def _read_certificates(self, tls: TlsFiles) -> None:
        """Use renewed certificates for new connections; keep the old ones if those are broken."""
        while True:
            await asyncio.sleep(_LOOK_FOR_CERTIFICATES)
            try:
                if await asyncio.to_thread(tls.read_again):
                    _log.warning("%s has changed and is in use", tls.certificate)
            except InvalidInput as error:
                _log.error("%s The certificate from before stays in use.", error.message)


_BACKLOG = 2_048
_LOOK_FOR_CERTIFICATES = 60.0


class HttpApplication:
    """The ASGI application of a home: its APIs, the MCP server, health and metrics."""

    def __init__(
        self,
        home: Asterism,
        problems: Callable[[], Sequence[str]] = tuple,
        stop: ServerStop | None = None,
    ) -> None:
        """Make it.

        Args:
            home: The home that it shows.
            problems: Returns what `/health` tells beside what it finds.
            stop: Says whether the server stops.
        """
        self._home = home
        self._problems = problems
        self._stop = stop or ServerStop()
        self._limiter = Limiter(lambda: home.settings.api.requests_per_minute)
        self._refused = Limiter(self._limiter.per_minute)
        self._measuring: tuple[str, asyncio.Future[tuple[bytes, str]] | None] = "", None
        self._shares = RequestShares(
            home.database.constellation,
            max_connections,
            lambda: home.settings.api.requests_at_once,
        )
        self._looking: asyncio.Task[tuple[dict[str, Any], bool]] | None = None
        self._mcp = self._make_mcp()
        routes: list[BaseRoute] = [
            Route("/health", self._health),
            Route("/ready", self._ready),
            Route("/metrics", self._metrics),
            Mount("/api", app=self._guarded(rest_application())),
            Mount("/openai/v1", app=OpenAIErrors(self._guarded(Router(routes=openai_routes())))),
        ]
        if self._mcp is not None:
            routes.append(Route("/mcp", self._guarded(self._mcp), methods=_ALL_METHODS))
        self._app = Starlette(
            routes=routes,
            exception_handlers={HTTPException: _http_problem},
            middleware=[
                Middleware(RequestIds),
                Middleware(ObservedRequests, telemetry=home.telemetry, routes=routes),
                Middleware(RequestChecks, hosts=lambda: home.settings.api.hosts),
                Middleware(EndedRequests, stop=self._stop),
                Middleware(_Compression, minimum_size=1_000),
            ],
        )
        self._app.state.server = home

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, send)

    async def close(self) -> None:
        """End the sessions of MCP clients."""
        if self._mcp is not None:
            await self._mcp.close()

    def _make_mcp(self) -> McpApplication | None:
        """Return the MCP server; None where its library is not installed."""
        if find_spec("mcp") is None:
            return None
        from asterism.api.mcp_transport import mcp_application

        api = self._home.settings.api
        return mcp_application(hosts=api.hosts, origins=api.origins)

    def _guarded(self, app: ASGIApp) -> Origins:
        """Return an application for callers who are known; the requests of each are counted."""
        # From the inside out: who asks is known before their requests are counted.
        limited: ASGIApp = RateLimit(app, self._limiter, self._shares)
        known = Authentication(limited, self._home, OPEN_PATHS, self._refused)
        return Origins(known, lambda: self._home.settings.api.origins)

    async def _look(self) -> tuple[dict[str, Any], bool]:
        """Return how it goes, and whether it can work, to all who ask at the same time."""
        looking = self._looking
        if looking is None or looking.done():
            looking = asyncio.create_task(_health(self._home, self._problems()))
            self._looking = looking
        return await asyncio.shield(looking)

    async def _health(self, _: Request) -> JSONResponse:
        found, fit = await self._look()
        return JSONResponse(found, 200 if fit else 503, {"cache-control": "no-store"})

    async def _ready(self, _: Request) -> JSONResponse:
        fit = not self._stop.is_begun and (await self._look())[1]
        return JSONResponse({"ready": fit}, 200 if fit else 503, {"cache-control": "no-store"})

    async def _metrics(self, request: Request) -> Response:
        accept = request.headers.get("accept", "")
        asked, made = self._measuring
        if made is None or made.done() or asked != accept:
            # Nobody needs a token for it, and whoever asks meanwhile is told the same.
            made = asyncio.ensure_future(self._home.metrics(accept))
            self._measuring = accept, made
        body, kind = await asyncio.shield(made)
        return Response(body, 200, {"cache-control": "no-store", "content-type": kind})


_ALL_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def rest_application() -> Router:
    """Return the REST API: its endpoints, its document and a page that shows it."""

    async def openapi(_: Request) -> Response:
        return Response((await asyncio.to_thread(_documentation))[0], 200, {}, JSON)

    async def docs(_: Request) -> HTMLResponse:
        shown = (await asyncio.to_thread(_documentation))[1]
        return HTMLResponse(shown, headers={"content-security-policy": _DOCS_POLICY})

    routes: list[BaseRoute] = [
        Route("/openapi.json", openapi),
        Route("/docs", docs),
        Route("/call", call_route(), methods=["POST"]),
    ]
    by_path: dict[str, dict[str, ApiEndpoint]] = {}
    for one in ENDPOINTS:
        by_path.setdefault(one.path, {})[one.method] = one
    # Keys of deliveries and of secrets may have slashes inside, also as they are.
    routes += [
        Route(path.replace("{key}", "{key:path}"), _handler(methods), methods=[*methods])
        for path, methods in by_path.items()
    ]
    # Not an application of its own: what it does not know is told by the one around it.
    return _EncodedSlashes(routes=routes)


class _EncodedSlashes(Router):
    """Routes to endpoints; a slash that was sent as `%2F` belongs to a name in the path."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or b""
        if b"%2f" in raw.lower():
            # In place: the middlewares around look for the endpoint in the same scope.
            scope["path"] = path_with_encoded_slashes(raw)
            scope[ENCODED_SLASHES] = True
        await super().__call__(scope, receive, send)


OPEN_PATHS = ("/api/openapi.json", "/api/docs", "/api/login")
"""What needs no token: how the API is used, and how somebody without one logs in."""
_DOCS_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


@functools.cache
def _documentation() -> tuple[bytes, str]:
    """Return the OpenAPI document and the page that shows it; most servers are never asked."""
    doc = document(ENDPOINTS)
    return orjson.dumps(doc), page(doc)


def _handler(methods: Mapping[str, ApiEndpoint]) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers all methods of a path."""

    async def answer(request: Request) -> Response:
        one = methods["GET" if request.method == "HEAD" else request.method]
        own = request_id(request)
        try:
            call = await call_of(request, one)
            if one.upload or one.media != JSON:  # before any of it is read, or answered
                await call.home.check_verb(one.verb)
            if one.media == EVENTS and request.method == "HEAD":
                return Response(None, one.status, {}, EVENTS)

            async def done() -> Response:
                return answer_of(one, await one.run(call))

            return await answer_once(call, one, done)
        except AsterismError as error:
            return problem_answer(error, own)
        except HTTPException as error:  # of a form that cannot be read
            return problem_answer(BadRequest(f"{error.detail} Nothing was stored."), own)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:  # noqa: BLE001 - whatever goes wrong in a verb must not end the server
            _log.exception("request %s to %s failed", own, one.path)
            return fault_answer(own)

    return answer


async def _http_problem(request: Request, error: Exception) -> Response:
    """Return problem+json for a path or a method that does not exist."""
    assert isinstance(error, HTTPException)
    kind, title = _REFUSED.get(error.status_code, ("input", "The request is not valid"))
    detail = f"{request.method} {request.url.path[:200]} is not part of the API. See /api/docs."
    shape = {
        **problem_of(kind, title, detail),
        "status": error.status_code,
        "instance": request_id(request) or None,
    }
    return Response(orjson.dumps(shape), error.status_code, error.headers, PROBLEM)


_REFUSED = {
    404: ("not-found", "There is nothing there"),
    405: ("method-not-allowed", "The method is not one of this path"),
}


class _Compression(GZipMiddleware):
    """Compresses answers for those who ask for it; the others pay nothing for it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "http" and "gzip" in Headers(scope=scope).get("accept-encoding", ""):
            await super().__call__(scope, receive, send)
        else:
            await self.app(scope, receive, send)


class RequestIds:
    """Gives each request an id, for its answer and the log, and each answer its safety headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        own = new_id("req")
        state = scope.setdefault("state", {})
        state["request_id"] = own
        added: list[tuple[bytes, bytes]] = [(b"x-request-id", own.encode())]
        state[ANSWER_HEADERS] = added
        safe = (*_SAFE, _TLS_ONLY) if _is_public_tls(scope) else _SAFE

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers: list[tuple[bytes, bytes]] = [*message.get("headers", ()), *added]
                names = {name for name, _ in headers}
                headers.extend(header for header in safe if header[0] not in names)
                message["headers"] = headers
            await send(message)

        await self._app(scope, receive, send_with_headers)


_SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_TLS_ONLY = (b"strict-transport-security", b"max-age=31536000")
"""Has browsers come by TLS alone for a year, also where somebody on the way would prevent it."""


def _is_public_tls(scope: Scope) -> bool:
    """Tell whether a request came over TLS, to a name that is not of every program of a machine."""
    if scope["scheme"] != "https":
        return False
    host = Headers(scope=scope).get("host", "").partition(":")[0].lower()
    return not f".{host}".endswith(".localhost")


def request_id(request: Request) -> str:
    """Return the id of a request."""
    return getattr(request.state, "request_id", "")


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
            alerts = [alert for alert in await home.alerts.list() if alert.cause != "deliveries"]
    except (AsterismError, TimeoutError) as error:
        said = error.message if isinstance(error, AsterismError) else "The store does not answer."
        found["status"] = "failing"
        found["problems"] = [*map(redact, (*found["problems"], said))]
        return found, False
    if is_full(home):
        found["status"] = "failing"
        said = "The disk is full, so that nothing can be stored. Free some space."
        found["problems"] = [*map(redact, (*found["problems"], said))]
        return found, False
    if dead:
        found["problems"].append(
            f"{'1 delivery was' if dead == 1 else f'{dead:,} deliveries were'} given up. "
            '"asterism outbox list --state dead" shows them.'
        )
    found["problems"] += [alert.text for alert in alerts]
    if found["problems"]:
        found["status"] = "troubled"
        found["problems"] = [*map(redact, found["problems"])]
    return found, True
