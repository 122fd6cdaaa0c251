"""Connections of clients that mean no good: what is waited for, and what is refused unread.

uvicorn reads and writes HTTP; it waits for as long as a client likes. Here a request has to arrive
and its answer has to be read in reasonable time, and of too many connections those are closed first
that have asked for nothing. Nobody else has to wait for any of it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import h11
import orjson
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from asterism.api.auth import is_loopback
from asterism.api.endpoints import PROBLEM
from asterism.views import problem_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

HEAD_PATIENCE = 10.0
"""Seconds until the head of a request has to be there."""
FIRST_PATIENCE = 2.0
"""Seconds in which a new connection may send its first request although the server stops."""
BODY_PATIENCE = 30.0
"""Seconds in which a body may come as slowly as it likes."""
MIN_BODY_RATE = 500
"""Bytes a second that a body has to come with after that."""
READ_PATIENCE = 60.0
"""Seconds for which a client may read nothing of what is sent to it."""
LINGER, MAX_LINGER = 5.0, 16 << 20
"""Seconds and bytes that a client may go on sending unread, so that it sees the answer."""
MAX_CONNECTIONS = 1_000
MAX_HEADERS = 100
MAX_HEAD = 64 << 10
MAX_TARGET = 32 << 10


def max_connections() -> int:
    """Return how many connections are open at the same time, at most."""
    # The rest is for files, the store and models.
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(16, min(MAX_CONNECTIONS, files // 2))


class _LingeringTransport:
    """A transport that hears a client out for a moment before it closes.

    A connection that is closed while the client sends is reset, and the answer may be lost with it.
    """

    def __init__(self, transport: asyncio.Transport, connection: HttpConnection) -> None:
        self._transport = transport
        self._connection = connection
        self.lingers = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Tell whether it closes, or waits to."""
        return self.lingers or self._transport.is_closing()

    def close(self) -> None:
        """Close, after a while if the client still sends."""
        if self.lingers:
            return
        if not self._connection.client_is_sending or not self._transport.can_write_eof():
            self._transport.close()
            return
        self.lingers = True
        self._transport.write_eof()
        self._transport.resume_reading()
        self._connection.loop.call_later(LINGER, self._transport.abort)


class HttpConnection(H11Protocol):
    """A connection of a client, which has to get on with it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; over the limit, somebody who waits longer has to leave."""
        lingering = _LingeringTransport(transport, self)
        super().connection_made(cast("asyncio.Transport", lingering))
        self._raw = transport
        self._lingering = lingering
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._body_began = 0.0
        self._body_bytes = 0
        self._unread = 0
        self._stopping = False
        self._await_head()
        if len(self.connections) > max_connections():
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._cancel_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what a client sends."""
        if self._lingering.lingers:
            self._unread += len(data)
            if self._unread > MAX_LINGER:
                self._raw.abort()
            return
        if self.is_idle and self._timer is None:
            self._await_head()
        self._body_bytes += len(data)
        before = self.cycle
        try:
            super().data_received(data)
        except h11.LocalProtocolError:
            # What comes after an answer that was sent early, or in the midst of one.
            self._raw.abort()
            return
        if self.cycle is not before:
            if self._stopping:
                self.cycle.keep_alive = False
            self._body_began, self._body_bytes = time.monotonic(), len(data)
            self._set_timer(BODY_PATIENCE, self._check_body)
        elif not self.client_is_sending and not self.is_idle:
            self._set_timer(None)

    def shutdown(self) -> None:
        """Let the request finish; whoever has just connected may still send one.

        Their connection was taken from a socket that other processes listen at too, so that a
        restart would refuse somebody whom another process would have answered.
        """
        if cast("RequestResponseCycle | None", self.cycle) is not None or self._stopping:
            super().shutdown()
            return
        self._stopping = True
        self.loop.call_later(FIRST_PATIENCE, self._end_unused)

    def _end_unused(self) -> None:
        if self.is_idle and not self.transport.is_closing():
            super().shutdown()

    def on_response_complete(self) -> None:
        """Wait for the next request, or let go of a client that still sends the last one."""
        self._set_timer(None)
        if self.client_is_sending:
            self.transport.close()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Note that the client does not read as fast as it is written to."""
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(READ_PATIENCE, self._raw.abort)

    def resume_writing(self) -> None:
        """Note that it does again."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is asked here at the moment."""
        # uvicorn declares it without None, which it is before the first request.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.response_complete

    @property
    def client_is_sending(self) -> bool:
        """Whether the body of a request has not come to its end."""
        return self.conn.their_state is h11.SEND_BODY

    def _make_room(self) -> None:
        """Close the connection that has been idle for longest, be it this one."""
        connections = cast("set[HttpConnection]", self.connections)
        there = [each for each in connections if not each.transport.is_closing()]
        if len(there) <= max_connections():
            return
        idle = [each for each in there if each.is_idle]
        min(idle, key=lambda each: each.idle_since, default=self).refuse(
            503, "too-many-connections", "There are too many connections. Try again in a moment."
        )

    def _await_head(self) -> None:
        self.idle_since = time.monotonic()
        self._set_timer(HEAD_PATIENCE, self._head_is_late)

    def _head_is_late(self) -> None:
        self.refuse(
            408, "request-timeout", f"No whole request came within {HEAD_PATIENCE:g} seconds."
        )

    def _check_body(self) -> None:
        """End a request whose body comes too slowly; what we do not take yet is not counted."""
        if not self.client_is_sending:
            return
        seconds = time.monotonic() - self._body_began
        if self.flow.read_paused or self._body_bytes >= MIN_BODY_RATE * seconds:
            self._set_timer(BODY_PATIENCE, self._check_body)
        else:
            self._raw.abort()

    def _set_timer(self, seconds: float | None, then: Callable[[], None] = lambda: None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, then)

    def _cancel_timers(self) -> None:
        self._set_timer(None)
        if self._stalled is not None:
            self._stalled.cancel()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, with the status that the reader of it proposes."""
        del msg
        error = sys.exc_info()[1]
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        self.refuse(status, "input.request", f"This is not a valid HTTP request ({error}).")

    def refuse(self, status: int, code: str, detail: str) -> None:
        """Answer with a problem, if nothing was answered yet, and close the connection."""
        self._set_timer(None)
        if self.transport.is_closing():
            return
        body = problem_body(status, code, detail)
        try:
            head = h11.Response(
                status_code=status,
                headers=[
                    (b"content-type", PROBLEM.encode()),
                    (b"content-length", b"%d" % len(body)),
                    (b"connection", b"close"),
                ],
            )
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:
            self._raw.abort()
        else:
            self.transport.close()


def problem_body(status: int, code: str, detail: str, request_id: str | None = None) -> bytes:
    """Return a refusal as problem+json."""
    shape = problem_of(code, _TITLES[code], f"{detail} Nothing was changed.")
    return orjson.dumps({**shape, "status": status, "instance": request_id})


_TITLES = {
    "input.request": "The request is not valid HTTP",
    "request-timeout": "The request took too long",
    "too-many-connections": "Too many connections",
    "input.too-large": "The request is too large",
    "misdirected-request": "The request is for another server",
    "input.encoding": "The body is encoded in a way that is not read",
}


class RequestChecks:
    """Refuses requests that no client sends that means well, before anything is done for them."""

    def __init__(self, app: ASGIApp, hosts: Callable[[], Sequence[str]]) -> None:
        """Wrap an application; `hosts` are further names that this server is known by."""
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        host = encoding = length = b""
        chunked = False
        size = 0
        for name, value in headers:
            size += len(name) + len(value)
            if name == b"host":
                host = value
            elif name == b"content-length":
                length = value
            elif name == b"transfer-encoding":
                chunked = True
            elif name == b"content-encoding":
                encoding = value
        has_body = chunked or length not in (b"", b"0")
        if scope["path"][:4].lower() == "http":
            host = _absolute(scope) or host
        refused = (
            _too_large(scope, len(headers), size)
            or _framing(scope, chunked, length)
            or _encoding(has_body, encoding)
            or self._misdirected(scope, host)
        )
        if refused is None and not has_body:
            await self._app(scope, receive, send)
            return
        receive, send = _closing(receive, send, has_body=has_body)
        if refused is None:
            await self._app(scope, receive, send)
            return
        status, code, detail = refused
        own = scope.get("state", {}).get("request_id")
        body = problem_body(status, code, detail, own)
        await Response(body, status, {}, PROBLEM)(scope, receive, send)

    def _misdirected(self, scope: Scope, host: bytes) -> tuple[int, str, str] | None:
        """Refuse names that are not ours: a web page can let its own name stand for this machine.

        With a number for a name, or without one, a browser could not have been misled.
        """
        named = _host_name(host)
        hosts = self._hosts()
        if not named or named == "localhost" or named.endswith(".localhost") or _is_number(named):
            return None
        server = scope.get("server")
        if named in hosts or not (hosts or (server and is_loopback(server[0]))):
            return None
        said = (
            f"This server is not known as {named[:100]!r}. Use its address, or add the name to "
            "api.hosts in asterism.toml."
        )
        return 421, "misdirected-request", said


def _absolute(scope: Scope) -> bytes:
    """Take the server out of a target such as `http://home/api`; return its name."""
    scheme, found, rest = scope["path"].partition("://")
    if not found or scheme.lower() not in ("http", "https"):
        return b""
    authority, slash, path = rest.partition("/")
    scope["path"] = slash + path or "/"
    raw: bytes = scope["raw_path"].partition(b"://")[2]
    scope["raw_path"] = b"/" + raw.partition(b"/")[2]
    return authority.rpartition("@")[2].encode("latin-1", "replace")


def _too_large(scope: Scope, count: int, size: int) -> tuple[int, str, str] | None:
    target = len(scope["raw_path"]) + len(scope["query_string"])
    if target > MAX_TARGET:
        said = f"The address has {target:,} bytes, and {MAX_TARGET:,} is the limit."
        return 414, "input.too-large", said
    if count > MAX_HEADERS or size > MAX_HEAD:
        said = (
            f"The request has {count:,} headers with {size:,} bytes; at most {MAX_HEADERS} with "
            f"{MAX_HEAD:,} bytes are read."
        )
        return 431, "input.too-large", said
    return None


def _framing(scope: Scope, chunked: bool, length: bytes) -> tuple[int, str, str] | None:
    if scope["http_version"] not in ("1.0", "1.1"):
        return 505, "input.request", f"HTTP/{scope['http_version']} is not spoken here, 1.1 is."
    if chunked and length:
        said = "It has content-length and transfer-encoding, so that its end is not clear."
        return 400, "input.request", said
    return None


def _encoding(has_body: bool, encoding: bytes) -> tuple[int, str, str] | None:
    if has_body and encoding.strip().lower() not in (b"", b"identity"):
        said = f"A body in {encoding.decode('latin-1')[:40]!r} is not read. Send it as it is."
        return 415, "input.encoding", said
    return None


def _closing(receive: Receive, send: Send, *, has_body: bool) -> tuple[Receive, Send]:
    """Have the connection closed after an answer to a request whose body was not read."""
    ended = not has_body

    async def receive_counted() -> Message:
        nonlocal ended
        message = await receive()
        ended = ended or not message.get("more_body", False)
        return message

    async def send_closing(message: Message) -> None:
        if message["type"] == "http.response.start" and not ended:
            message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
        await send(message)

    return receive_counted, send_closing


def _host_name(host: bytes) -> str:
    """Return the name in a header `Host`, without its port."""
    text = host.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text.partition("]")[0] + "]"
    return text.partition(":")[0].rstrip(".")


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
