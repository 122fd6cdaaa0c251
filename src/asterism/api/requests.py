"""What surrounds every request: it is counted, traced, logged, and ended when the server stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import orjson
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from asterism.api.endpoints import EVENTS, PROBLEM
from asterism.telemetry.metrics import OTHER, RequestWatch
from asterism.views import problem_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from asterism.telemetry import Telemetry

_log = logging.getLogger(__name__)

_RECONNECT = b"retry: 1000\nevent: reconnect\ndata: {}\n\n"
"""Without an id, so that a client comes back with that of the last event it has seen."""
_RETRY_AFTER = "2"
_PIECE = 64 << 10
"""Bytes of an answer that are sent at once."""


class ServerStop:
    """The end of a server: what is under way is told, each kind in its time."""

    def __init__(self) -> None:
        self.is_begun = False
        self._open: set[_OpenRequest] = set()

    def begin(self) -> None:
        """Have whoever follows a stream connect again, elsewhere; others are answered."""
        self.is_begun = True
        for request in [*self._open]:
            if request.is_stream:
                request.interrupt()

    def cut_off(self) -> None:
        """Have whoever still waits for an answer ask again."""
        for request in [*self._open]:
            request.interrupt()

    def add(self, request: _OpenRequest) -> None:
        """Note a request that is under way."""
        self._open.add(request)

    def remove(self, request: _OpenRequest) -> None:
        """Note that a request has ended."""
        self._open.discard(request)


class EndedRequests:
    """Ends requests when the server stops: streams at once, others when their time is over."""

    def __init__(self, app: ASGIApp, stop: ServerStop) -> None:
        """Wrap an application."""
        self._app = app
        self._stop = stop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and end it if the server stops before it is answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _OpenRequest(send, self._stop)
        self._stop.add(request)
        try:
            await self._app(scope, receive, request.send)
        except asyncio.CancelledError:
            if not request.is_interrupted:
                raise
            request.task.uncancel()
            await request.end(scope, receive)
        finally:
            self._stop.remove(request)


class _OpenRequest:
    """One request under way, and how much of its answer was sent."""

    def __init__(self, send: Send, stop: ServerStop) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self._send = send
        self._stop = stop
        self._begun = False
        self.is_stream = False
        self.is_interrupted = False
        self._is_complete = False

    def interrupt(self) -> None:
        """End it where it stands."""
        if not self.is_interrupted and not self._is_complete:
            self.is_interrupted = True
            self.task.cancel()

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self._begun = True
            kind = Headers(raw=message["headers"]).get("content-type", "")
            self.is_stream = kind.startswith(EVENTS)
        elif message["type"] == "http.response.body":
            self._is_complete = not message.get("more_body", False)
            body = message.get("body", b"")
            if len(body) > _PIECE:
                await self._send_in_pieces(body)
                return
        await self._send(message)
        if self.is_stream and self._stop.is_begun:
            self.interrupt()  # it began while the server was stopping

    async def _send_in_pieces(self, body: bytes) -> None:
        """Send a part of the answer as fast as it is read; else all of it would wait in memory."""
        end = len(body)
        for start in range(0, end, _PIECE):
            more = not self._is_complete or start + _PIECE < end
            piece = body[start : start + _PIECE]
            await self._send({"type": "http.response.body", "body": piece, "more_body": more})

    async def end(self, scope: Scope, receive: Receive) -> None:
        """Send the end of an answer, or that there is none for now."""
        if self.is_stream:
            await self._send({"type": "http.response.body", "body": _RECONNECT})
        elif not self._begun:
            own = scope.get("state", {}).get("request_id")
            await _stopping(own)(scope, receive, self._send)
        # What was cut off in the middle must not look complete: the connection just closes.


def _stopping(request_id: str | None) -> Response:
    shape = {
        **problem_of(
            "stopping",
            "The server stops",
            "The server stops before this request has its answer. What it has stored is kept, and "
            "turns that it has begun go on. Try again in a moment, with the same Idempotency-Key "
            "if it had one: a message is answered once. If the answer is 409 then, look whether "
            "the request was done; if it was not, send it with a new key.",
        ),
        "status": 503,
        "instance": request_id,
    }
    return Response(orjson.dumps(shape), 503, {"retry-after": _RETRY_AFTER}, PROBLEM)


class ObservedRequests:
    """Counts each request by its route, traces it, and gives its log lines its id."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry, routes: Sequence[BaseRoute]) -> None:
        """Wrap an application; `routes` are all that it has."""
        self._app = app
        self._telemetry = telemetry
        self._templates = {id(endpoint): path for endpoint, path in _templates(routes, "")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and note how it went."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        own: str = scope.get("state", {}).get("request_id", "")
        status = 0

        async def send_noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        method = scope["method"] if scope["method"] in _METHODS else OTHER
        parent = ""
        if self._telemetry.spans is not None:
            parent = Headers(scope=scope).get("traceparent", "")
        with RequestWatch(self._telemetry, method, own, parent) as watch:
            try:
                await self._app(scope, receive, send_noting)
            finally:
                route = self._templates.get(id(scope.get("endpoint")), OTHER)
                watch.answered(route, status)
                if _log.isEnabledFor(logging.INFO):
                    seconds = watch.seconds * 1000
                    _log.info("%s %s: %d in %.1f ms", method, route, status, seconds)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def _templates(routes: Sequence[BaseRoute], prefix: str) -> list[tuple[object, str]]:
    """Return what answers each route, with the route as it is declared."""
    found: list[tuple[object, str]] = []
    for route in routes:
        if isinstance(route, Route):
            found.append((route.endpoint, prefix + route.path))
        elif isinstance(route, Mount):
            found += _templates(route.routes or _inner(route.app), prefix + route.path)
    return found


def _inner(app: object) -> Sequence[BaseRoute]:
    """Return the routes of an application that others are wrapped around."""
    while app is not None:
        routes = getattr(app, "routes", None)
        if routes:
            return routes
        app = getattr(app, "_app", None)
    return ()
