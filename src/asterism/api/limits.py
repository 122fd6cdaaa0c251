"""How many requests a caller may make, in a minute and at once, and which web pages may."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING

import orjson
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

from asterism.api.endpoints import PROBLEM
from asterism.types.agents import OWNER
from asterism.views import problem_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from asterism.app.authentication import AccessToken, WebSession

_MAX_CALLERS = 10_000
ANSWER_HEADERS = "answer_headers"
"""Where the state of a request keeps headers for its answer, whoever makes that."""
NOTE_CALLER = "note_caller"
"""Where the state of a request keeps what its connection is told of whose token it has shown."""
OWNER_CALLER = "owner"
"""The owner of the server's own constellation, for whom room is kept."""
_BURST = 0.2
"""The share of a minute's requests that may come at once."""
_SMALL_BODY = 64 << 10
_LARGE_BODIES = 4
"""Larger bodies than `_SMALL_BODY` of one caller that are read at the same time."""


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


class RequestShares:
    """Who has how many requests under way, streams among them: nobody may have them all.

    Each is a connection that is not closed for others, so that a quarter is left for whoever has
    shown no token yet. Of the rest a part is kept for the owner of the server's own constellation,
    and no other constellation and no person has all that remains.
    """

    def __init__(self, own: str, most: Callable[[], int], at_once: Callable[[], int]) -> None:
        """Make it.

        Args:
            own: The server's own constellation.
            most: Returns how many connections there are at most.
            at_once: Returns how many requests of a caller may be under way.
        """
        self._own = own
        self._most = most
        self._at_once = at_once
        self._under_way: Counter[str] = Counter()
        self._large: dict[str, asyncio.Semaphore] = {}

    def shares_of(self, token: AccessToken | WebSession, constellation: str) -> dict[str, int]:
        """Return what a request with a token counts for, the caller first: each with its limit."""
        most = self._most()
        everybody = {"": most - most // 4}
        person = token.person_id or OWNER
        if constellation == self._own:
            if person == OWNER:
                return {OWNER_CALLER: most, **everybody}
            others = {"others": most // 2}
        else:
            others = {f"in {constellation}": most // 4, "others": most // 2}
        limit = min(self._at_once(), most // 4)
        return {f"{person} in {constellation}": limit, **others, **everybody}

    def begin(self, shares: dict[str, int]) -> bool:
        """Count one request more; False if that is too many."""
        if any(self._under_way[share] >= limit for share, limit in shares.items()):
            return False
        self._under_way.update(shares.keys())
        return True

    def end(self, shares: dict[str, int]) -> None:
        """Count one request less."""
        for share in shares:
            self._under_way[share] -= 1
            if not self._under_way[share]:
                del self._under_way[share]
                self._large.pop(share, None)

    def turn_of(self, caller: str) -> asyncio.Semaphore:
        """Return what the large bodies of a caller wait for, who has a request under way."""
        return self._large.setdefault(caller, asyncio.Semaphore(_LARGE_BODIES))


class _BodyInTurn:
    """Reads a large body once few enough others of its caller are being read."""

    def __init__(self, receive: Receive, turn: asyncio.Semaphore) -> None:
        self._receive = receive
        self._turn = turn
        self._is_whole = self._has_turn = False

    async def receive(self) -> Message:
        """Return the next part of it."""
        if not (self._is_whole or self._has_turn):
            await self._turn.acquire()
            self._has_turn = True
        message = await self._receive()
        if not message.get("more_body", False):
            self._is_whole = True
            self.leave()
        return message

    def leave(self) -> None:
        """Let others be read."""
        if self._has_turn:
            self._has_turn = False
            self._turn.release()


class RateLimit:
    """Lets each caller make so many requests in a minute and at once, and refuses the others."""

    def __init__(self, app: ASGIApp, limiter: Limiter, shares: RequestShares) -> None:
        """Wrap an application."""
        self._app = app
        self._limiter = limiter
        self._shares = shares

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
            said = f"More than {limit:,} requests a minute were made. Try again in {seconds} s."
            await _refusal(scope, said, seconds)(scope, receive, send)
        elif scope["state"].get("token") is None:
            await self._app(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that came with a token, unless too many of its caller are under way."""
        state = scope["state"]
        shares = self._shares.shares_of(state["token"], state["asterism"].database.constellation)
        if not self._shares.begin(shares):
            said = (
                "Too many requests of this caller are under way, streams among them. End a stream "
                "or wait for an answer, and try again."
            )
            await _refusal(scope, said, 1)(scope, receive, send)
            return
        caller, body = next(iter(shares)), None
        if NOTE_CALLER in state:
            state[NOTE_CALLER](caller)
        if caller != OWNER_CALLER and _has_large_body(scope):
            body = _BodyInTurn(receive, self._shares.turn_of(caller))
        try:
            await self._app(scope, receive if body is None else body.receive, send)
        finally:
            if body is not None:
                body.leave()
            self._shares.end(shares)


def _has_large_body(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        if name == b"transfer-encoding" or (name == b"content-length" and int(value) > _SMALL_BODY):
            return True
    return False


def _caller(scope: Scope) -> str:
    token = scope.get("state", {}).get("token")
    if token is not None:
        return str(getattr(token, "id", token))
    client = scope.get("client")
    return client[0] if client else ""


def _refusal(scope: Scope, said: str, seconds: int) -> Response:
    shape = {
        **problem_of("too-many-requests", "Too many requests", f"{said} Nothing was changed."),
        "status": 429,
        "instance": scope.get("state", {}).get("request_id"),
    }
    return Response(orjson.dumps(shape), 429, {"retry-after": str(seconds)}, PROBLEM)


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
