"""Connections of clients that mean no good: what is waited for, and what is refused unread.

uvicorn reads and writes HTTP; it waits for as long as a client likes. Here a request has to arrive
and its answer has to be read in reasonable time. Connections are counted from the moment they are
taken, before TLS, and of too many those are closed first that have shown no valid token.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import resource
import socket
import ssl
import sys
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, cast

import h11
import orjson
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from asterism.api.auth import is_loopback
from asterism.api.endpoints import PROBLEM
from asterism.api.limits import NOTE_CALLER, OWNER_CALLER
from asterism.views import problem_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

_log = logging.getLogger(__name__)

HEAD_PATIENCE = 10.0
"""Seconds for each of: TLS, the head of a request, and a body that is read without a token."""
FIRST_PATIENCE = 2.0
"""Seconds in which a new connection may send its first request although the server stops."""
BODY_PATIENCE = 30.0
"""Seconds in which `MIN_BODY_RATE` times as many bytes of a body have to come, again and again."""
MIN_BODY_RATE = 500
"""Bytes a second that a body has to come with."""
READ_PATIENCE = 60.0
"""Seconds for which a client may read nothing of what is sent to it."""
LINGER, MAX_LINGER = 5.0, 16 << 20
"""Seconds and bytes that a client may go on sending unread, so that it sees the answer."""
UNKNOWN_LINGER = 1.0
"""Seconds in which a client without a token may read a refusal; nothing more is read of it."""
MAX_CONNECTIONS = 1_000
MAX_HEADERS = 100
MAX_HEAD = 64 << 10
MAX_TARGET = 32 << 10
_MAX_TAKEN = 4
"""Connections that are taken before those from before get their turn."""
_LOOK_EVERY = 1.0
_TAKE_AGAIN = 0.2
"""Seconds until connections are taken again after the system has refused one."""


def max_connections() -> int:
    """Return how many connections are open at the same time, at most."""
    # The rest is for files, the store, models and the socket of the command line.
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(16, min(MAX_CONNECTIONS, files // 2))


class _Connections:
    """Connections that are in the same state, by whose they are; of each the oldest first."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[HttpConnection, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: str, connection: HttpConnection) -> None:
        """Add one as the newest."""
        self._groups.setdefault(key, {})[connection] = None
        self._count += 1

    def remove(self, key: str, connection: HttpConnection) -> None:
        """Remove one."""
        group = self._groups[key]
        del group[connection]
        if not group:
            del self._groups[key]
        self._count -= 1

    def oldest(self) -> HttpConnection:
        """Return the oldest one of whoever has most; the owner comes last."""
        groups = self._groups
        largest = max(groups, key=lambda key: (key != OWNER_CALLER, len(groups[key])))
        return next(iter(groups[largest]))


class OpenConnections:
    """The connections of a server: how many there are, and which has to leave for a new one.

    A connection is silent while something is awaited of a client that has shown no valid token:
    TLS, a head, a body, or that it reads. It asks while such a request is looked at, is busy with
    one that has shown a token, and rests after the answer. Silent ones leave first, then those that
    ask, then those that rest; of the first two some may stay, so that a newcomer gets as far as to
    show its token. Busy ones never leave: `limits.RequestShares` bounds how many there are.
    """

    def __init__(self) -> None:
        self.is_closing = False
        self._all: set[HttpConnection] = set()
        self._silent, self._asking, self._resting = (_Connections() for _ in range(3))
        self._place: dict[HttpConnection, tuple[_Connections, str]] = {}

    def add(self, connection: HttpConnection) -> None:
        """Count a new connection, which others may have to leave for."""
        self._all.add(connection)
        self.note_silent(connection)
        most = max_connections()
        # Each takes memory for TLS, and for what it has sent or does not read.
        while len(self._silent) > most // 4:
            self._end_oldest(self._silent)
        while len(self._all) > most and self.make_room(most // 8):
            pass

    def remove(self, connection: HttpConnection) -> None:
        """Count a connection no more."""
        self._take_out(connection)
        self._all.discard(connection)

    def note_silent(self, connection: HttpConnection) -> None:
        """Note that something is awaited of a client without a token."""
        self._put(connection, self._silent, connection.address)

    def note_asking(self, connection: HttpConnection) -> None:
        """Note that a request has come, whose token was not looked at."""
        self._put(connection, self._asking, connection.address)

    def note_busy(self, connection: HttpConnection) -> None:
        """Note that a request with a valid token is under way."""
        self._take_out(connection)

    def note_resting(self, connection: HttpConnection, caller: str) -> None:
        """Note that a request with a valid token was answered."""
        self._put(connection, self._resting, caller)

    def make_room(self, kept: int = 0) -> bool:
        """End a connection; False if all are busy.

        Args:
            kept: How many silent ones, and how many that ask, stay if there are others.
        """
        for state, stay in (
            *((self._silent, kept), (self._asking, kept), (self._resting, 0)),
            *((self._silent, 0), (self._asking, 0)),
        ):
            if len(state) > stay:
                self._end_oldest(state)
                return True
        return False

    def _end_oldest(self, state: _Connections) -> None:
        connection = state.oldest()
        self.remove(connection)
        connection.end_for_others()

    def _put(self, connection: HttpConnection, state: _Connections, key: str) -> None:
        self._take_out(connection)
        if connection in self._all:
            state.add(key, connection)
            self._place[connection] = (state, key)

    def _take_out(self, connection: HttpConnection) -> None:
        place = self._place.pop(connection, None)
        if place is not None:
            place[0].remove(place[1], connection)


class ConnectionTaker:
    """Takes connections from a socket one by one: each is counted before anything is read of it.

    asyncio takes as many as there are in one go, and knows of them only when TLS is agreed upon.
    """

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], HttpConnection],
        connections: OpenConnections,
        tls: ssl.SSLContext | None,
    ) -> None:
        """Begin to take them.

        Args:
            listening: The socket; it has begun to listen.
            make: Makes what a new connection is read by.
            connections: Those that there are.
            tls: How TLS is spoken; None: it is not.
        """
        self._listening = listening
        self._make = make
        self._connections = connections
        self._tls = tls
        self._opening: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        listening.settimeout(0)
        self._resume()

    def close(self) -> None:
        """Take no more."""
        if not self._is_closed:
            self._is_closed = True
            self._connections.is_closing = True
            self._loop.remove_reader(self._listening)

    async def wait_closed(self) -> None:
        """End those that have not begun, and wait for it."""
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)

    def _resume(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._listening, self._take)

    def _take(self) -> None:
        for _ in range(_MAX_TAKEN):
            try:
                taken, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.warning("no connection can be taken: %s", error.strerror or error)
                self._connections.make_room()
                self._loop.remove_reader(self._listening)
                self._loop.call_later(_TAKE_AGAIN, self._resume)
                return
            self._begin(taken, str(address[0]) if address else "")

    def _begin(self, taken: socket.socket, address: str) -> None:
        connection = self._make()
        opening = self._loop.create_task(self._open(connection, taken))
        self._opening.add(opening)
        opening.add_done_callback(lambda task: self._opened(task, connection, taken))
        connection.join(self._connections, address, opening)

    async def _open(self, connection: HttpConnection, taken: socket.socket) -> None:
        if self._tls is None:
            await self._loop.connect_accepted_socket(lambda: connection, taken)
            return
        agreed: asyncio.Future[None] = self._loop.create_future()
        spoken = _Tls(
            *(self._loop, connection, self._tls, agreed),
            server_side=True,
            ssl_handshake_timeout=ceil(HEAD_PATIENCE),
            ssl_shutdown_timeout=ceil(LINGER),
        )
        transport, _ = await self._loop.connect_accepted_socket(lambda: spoken, taken)
        try:
            await agreed
        except BaseException:
            transport.abort()
            raise

    def _opened(
        self, task: asyncio.Task[None], connection: HttpConnection, taken: socket.socket
    ) -> None:
        self._opening.discard(task)
        connection.opening = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            error.with_traceback(None)  # it holds the memory of TLS until the garbage is collected
        if error is not None or task.cancelled():
            self._connections.remove(connection)
            if not connection.is_open:
                taken.close()


class _Tls(SSLProtocol):
    """TLS with a small buffer: that of asyncio takes 256 KB for each client, silent or not."""

    max_size = 32 << 10


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
        transport, connection = self._transport, self._connection
        is_sending, can_write_eof = connection.client_is_sending, transport.can_write_eof()
        if not is_sending or not (can_write_eof or connection.caller is None):
            transport.close()
            connection.end_after(READ_PATIENCE)
            return
        self.lingers = True
        if can_write_eof:
            transport.write_eof()
        if connection.caller is None:
            transport.pause_reading()
        else:
            transport.resume_reading()
        connection.end_after(UNKNOWN_LINGER if connection.caller is None else LINGER)


class HttpConnection(H11Protocol):
    """A connection of a client, which has to get on with it."""

    opening: asyncio.Task[None] | None = None
    """What ends when there is something to read; None: it has ended."""
    address = ""
    """Where it comes from: the client, or a proxy."""
    caller: str | None = None
    """Whose token its request has shown; None: none yet."""
    _timer: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _end: asyncio.TimerHandle | None = None
    _body_bytes = 0
    _unread = 0
    _stopping = False

    def join(self, connections: OpenConnections, address: str, opening: asyncio.Task[None]) -> None:
        """Be counted, before there is anything to read."""
        self.address = address
        self._open_connections = connections
        self.opening = opening
        connections.add(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        lingering = _LingeringTransport(transport, self)
        super().connection_made(cast("asyncio.Transport", lingering))
        self._raw = transport
        self._lingering = lingering
        self._await_head()
        if self._open_connections.is_closing:
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        for timer in (self._timer, self._stalled, self._end):
            if timer is not None:
                timer.cancel()
        self._open_connections.remove(self)
        super().connection_lost(exc)

    def end_for_others(self) -> None:
        """Close at once: there are too many connections."""
        if (self.opening is not None and self.opening.cancel()) or not self.is_open:
            return
        self.refuse(
            503, "too-many-connections", "There are too many connections. Try again in a moment."
        )
        self._raw.abort()

    def end_after(self, seconds: float) -> None:
        """Close by then, whatever the client reads or sends."""
        if self._end is None:
            self._end = self.loop.call_later(seconds, self._raw.abort)

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
        try:
            super().data_received(data)
        except h11.LocalProtocolError:
            # What comes after an answer that was sent early, or in the midst of one.
            self._raw.abort()
            return
        if not self.client_is_sending and not self.is_idle:
            self._set_timer(None)

    def handle_events(self) -> None:
        """Go through what has come, which may be the head of a request."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._begin_request()

    def _begin_request(self) -> None:
        if self._stopping:
            self.cycle.keep_alive = False
        self.caller = None
        cast("dict[str, Any]", self.scope)["state"][NOTE_CALLER] = self._note_caller
        self._set_timer(None)
        self._open_connections.note_asking(self)
        if self.client_is_sending:
            # Nothing is read before somebody wants it, which is after the token was looked at.
            self.flow.pause_reading()
            self._await_body()

    def _note_caller(self, caller: str) -> None:
        """Take note of who asks: their token is valid, and they may have one request more."""
        self.caller = caller
        self._open_connections.note_busy(self)
        if self.client_is_sending:
            self._await_body()

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
        if self.caller is None:
            self._open_connections.note_silent(self)
        else:
            self._open_connections.note_resting(self, self.caller)
        # Without a token, each connection has one request at a time: no client sends the next one
        # before it has its answer, and thousands of them would wait before those of others.
        is_ahead = self.caller is None and bool(self.conn.trailing_data[0])
        if self.client_is_sending or is_ahead:
            self.transport.close()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Note that the client does not read as fast as it is written to."""
        super().pause_writing()
        if self.caller is None:
            self._open_connections.note_silent(self)
        if self._stalled is None:
            self._stalled = self.loop.call_later(READ_PATIENCE, self._raw.abort)

    def resume_writing(self) -> None:
        """Note that it does again."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    @property
    def is_open(self) -> bool:
        """Whether it can be read and written; before, TLS may not be agreed upon."""
        return cast("asyncio.Transport | None", self.transport) is not None

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

    def _await_head(self) -> None:
        self._set_timer(HEAD_PATIENCE, self._head_is_late)

    def _head_is_late(self) -> None:
        self.refuse(
            408, "request-timeout", f"No whole request came within {HEAD_PATIENCE:g} seconds."
        )

    def _await_body(self) -> None:
        """Begin to look how fast a body comes, once we take it."""
        self._body_bytes = 0
        patience = HEAD_PATIENCE if self.caller is None else BODY_PATIENCE
        if self.flow.read_paused:
            self._set_timer(min(_LOOK_EVERY, patience), self._await_body)
        else:
            if self.caller is None:
                self._open_connections.note_silent(self)
            self._set_timer(patience, self._check_body)

    def _check_body(self) -> None:
        """End a request whose body comes too slowly, or for too long without a token."""
        if not self.client_is_sending:
            return
        is_fast = self._body_bytes >= MIN_BODY_RATE * BODY_PATIENCE
        if self.flow.read_paused or (self.caller is not None and is_fast):
            self._await_body()
        else:
            self._raw.abort()

    def _set_timer(self, seconds: float | None, then: Callable[[], None] = lambda: None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, then)

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
        if not self.is_idle:
            self.cycle.disconnected = True
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
        if named is None:
            told = host.decode("latin-1")[:100]
            said = f"The header Host is {told!r}; a name or an address is needed, and its port."
            return 400, "input.request", said
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


def _host_name(host: bytes) -> str | None:
    """Return the name in a header `Host`, without its port; None if it is not a valid one."""
    match = _HOST.fullmatch(host.decode("latin-1").strip().lower())
    if match is None or int(match["port"] or 0) > _MAX_PORT:
        return None
    if match["name"] is None and not _is_number(match["number"]):
        return None
    return match["number"] or match["name"].rstrip(".")


_HOST = re.compile(
    r"(?:\[(?P<number>[0-9a-f:.]+)\]|(?P<name>[a-z0-9_.-]*))(?::(?P<port>[0-9]{0,5}))?", re.ASCII
)
_MAX_PORT = 65_535


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
