"""How many requests a caller may make, and which web pages may make them."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING

import orjson
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

from asterism.api.endpoints import PROBLEM
from asterism.views import problem_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MAX_CALLERS = 10_000
ANSWER_HEADERS = "answer_headers"
"""Where the state of a request keeps headers for its answer, whoever makes that."""
_BURST = 0.2
"""The share of a minute's requests that may come at once."""


class Limiter:
    """Counts the requests of each caller, over all that a server answers."""

    def __init__(self, per_minute: Callable[[], int]) -> None:
        """Make it; `per_minute` is asked at each request."""
        self.per_minute = per_minute
        self._callers: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What each may still use, and since when; the latest last."""

    def take(self, caller: str, limit: int, now: float) -> tuple[float, float]:
        """Return how many requests are left after this one, and how long to wait if none was."""
        most, each = max(1.0, limit * _BURST), limit / 60
        left, since = self._callers.pop(caller, (most, now))
        left = min(most, left + (now - since) * each)
        allowed = left >= 1
        self._callers[caller] = (left - 1 if allowed else left, now)
        if len(self._callers) > _MAX_CALLERS:
            self._callers.popitem(last=False)
        return (left - 1, 0.0) if allowed else (0.0, (1 - left) / each)


class RateLimit:
    """Lets each caller make so many requests a minute, and tells the others when to come again."""

    def __init__(self, app: ASGIApp, limiter: Limiter) -> None:
        """Wrap an application."""
        self._app = app
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._limiter.per_minute()
        left, wait = self._limiter.take(_caller(scope), limit, time.monotonic())
        seconds = ceil(wait) if wait else 0
        scope["state"].setdefault(ANSWER_HEADERS, []).extend(
            (
                (b"ratelimit-limit", b"%d" % limit),
                (b"ratelimit-remaining", b"%d" % left),
                (b"ratelimit-reset", b"%d" % seconds),
            )
        )
        if wait:
            await _refusal(scope, limit, wait)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _caller(scope: Scope) -> str:
    token = scope.get("state", {}).get("token")
    if token is not None:
        return str(getattr(token, "id", token))
    client = scope.get("client")
    return client[0] if client else ""


def _refusal(scope: Scope, limit: int, wait: float) -> Response:
    shape = {
        **problem_of(
            "too-many-requests",
            "Too many requests",
            f"More than {limit:,} requests a minute were made. Try again in {ceil(wait)} s. "
            "Nothing was changed.",
        ),
        "status": 429,
        "instance": scope.get("state", {}).get("request_id"),
    }
    return Response(orjson.dumps(shape), 429, {"retry-after": str(ceil(wait))}, PROBLEM)


class Origins:
    """Lets web pages of some origins use the API from a browser; by default none may."""

    def __init__(self, app: ASGIApp, allowed: Callable[[], Sequence[str]]) -> None:
        """Wrap an application; `allowed` is asked at each request that names an origin."""
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with leave for the browser where the origin is allowed."""
        origin = Headers(scope=scope).get("origin") if scope["type"] == "http" else None
        if origin is None or origin not in self._allowed():
            await self._app(scope, receive, send)
            return
        leave = {"access-control-allow-origin": origin, "vary": "Origin"}
        if scope["method"] == "OPTIONS":
            leave |= {
                "vary": "Origin, Access-Control-Request-Headers",
                "access-control-allow-methods": "GET, POST, PUT, PATCH, DELETE",
                "access-control-allow-headers": _allowed_headers(scope),
                "access-control-max-age": "600",
            }
            await Response(status_code=204, headers=leave)(scope, receive, send)
            return
        leave["access-control-expose-headers"] = ", ".join(_READ_BY_PAGES)

        async def send_with_leave(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(leave)
            await send(message)

        await self._app(scope, receive, send_with_leave)


def _allowed_headers(scope: Scope) -> str:
    """Return the headers that a page may send; those of OpenAI's clients have many names."""
    wanted = Headers(scope=scope).get("access-control-request-headers", "").lower().split(",")
    theirs = [name.strip() for name in wanted if _OF_OPENAI.fullmatch(name.strip())]
    return ", ".join((*_SENT_BY_PAGES, *theirs[:_MAX_OF_OPENAI]))


_OF_OPENAI = re.compile(r"x-stainless-[a-z-]{1,40}")
_MAX_OF_OPENAI = 30
_SENT_BY_PAGES = (
    *("authorization", "content-type", "x-api-key", "x-csrf-token"),
    *("idempotency-key", "if-match", "last-event-id"),
    *("mcp-protocol-version", "mcp-session-id"),
)
_READ_BY_PAGES = (
    *("etag", "idempotency-replayed", "location", "mcp-session-id", "retry-after", "x-request-id"),
    *("ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"),
)
