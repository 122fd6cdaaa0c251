"""How the MCP server is reached: over streamable HTTP, or on standard input and output."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Collection, Generator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

import orjson
from starlette.requests import Request

from asterism.api.endpoints import problem_answer, read_body, send_while_valid
from asterism.app.home import actor_of
from asterism.errors import ConfigError, RequestTooLarge

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server as ProtocolServer
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.types import Message, Receive, Scope, Send

    from asterism.app import Asterism

SESSION = b"mcp-session-id"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MAX_BODY = 4 * 1024 * 1024
"""The largest request that is read, in bytes."""
MAX_OPENING = 64 << 10
"""The largest request that opens a session, in bytes."""
MAX_SESSIONS = 500
"""How many sessions there are; whoever has most loses the one that was not used for longest."""
MAX_OF_CALLER = 32
"""How many of them are of one token; with one more, the one not used for longest ends."""
_MAX_TEXT = 200
"""Characters that are kept of what a client says of itself."""
_KEPT = ("name", "title", "version")
_CAPABILITIES = ("elicitation", "experimental", "roots", "sampling", "tasks")
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
        self._sessions = _Sessions()
        self._running: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._stop = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        manager = await self._started()
        known = {**scope, "user": _caller(scope)}

        async def answer(send: Send) -> None:
            given = _header(scope, SESSION)
            if given:
                await self._use(given, manager, known, receive, send)
            elif scope["method"] == "POST" and _opens_session(scope):
                await self._open(manager, known, receive, send)
            else:
                await manager.handle_request(known, receive, send)

        await send_while_valid(scope, send, answer)

    async def _use(
        self,
        session: bytes,
        manager: StreamableHTTPSessionManager,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Answer a request of a session."""
        caller = _token_of(scope)

        async def send_noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                if status == 404 or (status < 400 and scope["method"] == "DELETE"):
                    self._sessions.remove(caller, session)
            await send(message)

        with self._sessions.using(caller, session):
            await manager.handle_request(scope, receive, send_noting)

    async def _open(
        self, manager: StreamableHTTPSessionManager, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Open a session, and end those that there are too many of."""
        try:
            body = await read_body(Request(scope, receive), MAX_OPENING)
        except RequestTooLarge as error:
            own = scope["state"].get("request_id", "")
            await problem_answer(error, own)(scope, receive, send)
            return
        caller, opened = _token_of(scope), b""

        async def send_noting(message: Message) -> None:
            nonlocal opened
            if message["type"] == "http.response.start" and message["status"] < 400:
                opened = next((value for name, value in message["headers"] if name == SESSION), b"")
                if opened:
                    self._sessions.add(caller, opened, scope["user"])
            await send(message)

        await manager.handle_request(*_with_body(scope, _shortened(body), receive), send_noting)
        for session, user in self._sessions.too_many(caller, opened):
            await manager.handle_request(*_with_body(_ending(session, user), b"", receive), _drop)

    async def _started(self) -> StreamableHTTPSessionManager:
        async with self._starting:
            if self._manager is None:
                from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

                manager = StreamableHTTPSessionManager(
                    self._server,
                    security_settings=self._security,
                    session_idle_timeout=IDLE_SECONDS,
                    max_request_body_size=MAX_BODY,
                    max_sessions=None,  # ours end the oldest ones, and refuse nobody
                )
                self._sessions = _Sessions()
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


class _Sessions:
    """The sessions that clients have opened: those of each caller, the last used one last.

    One that was forgotten since nobody used it is here for longer, and is ended first, in vain.
    """

    def __init__(self) -> None:
        self._of: dict[str, dict[bytes, _ClientSession]] = {}
        self._count = 0

    def add(self, caller: str, session: bytes, user: Any) -> None:
        """Note a session that was opened."""
        self._of.setdefault(caller, {})[session] = _ClientSession(user)
        self._count += 1

    def remove(self, caller: str, session: bytes) -> None:
        """Note that a session has ended."""
        known = self._of.get(caller, {})
        if known.pop(session, None) is not None:
            self._count -= 1
            if not known:
                del self._of[caller]

    @contextlib.contextmanager
    def using(self, caller: str, session: bytes) -> Generator[None, None, None]:
        """Note that a session is in use."""
        known = self._of.get(caller, {})
        found = known.pop(session, None)
        if found is None:
            yield
            return
        known[session] = found
        found.requests += 1
        try:
            yield
        finally:
            found.requests -= 1

    def too_many(self, caller: str, opened: bytes) -> list[tuple[bytes, Any]]:
        """Forget those that have to end for a new one; return them, and of whom each is."""
        ended: list[tuple[bytes, Any]] = []
        while len(self._of.get(caller, ())) > MAX_OF_CALLER:
            ended.append(self._take_oldest(caller, opened))
        while self._count > MAX_SESSIONS:
            most = max(self._of, key=lambda each: len(self._of[each]))
            ended.append(self._take_oldest(most, opened))
        return ended

    def _take_oldest(self, caller: str, opened: bytes) -> tuple[bytes, Any]:
        """Take out the session of a caller that was not used for longest; one in use comes last."""
        known = self._of[caller]
        session = min(known, key=lambda each: (each == opened, known[each].requests > 0))
        user = known[session].user
        self.remove(caller, session)
        return session, user


class _ClientSession:
    """A session: of whom it is, and how many requests in it are under way."""

    def __init__(self, user: Any) -> None:
        self.user = user
        self.requests = 0


def _token_of(scope: Scope) -> str:
    """Return the id of the token or the session of the web page that a request came with."""
    return str(getattr(scope["state"].get("token"), "id", ""))


def _opens_session(scope: Scope) -> bool:
    """Tell whether a request without a session opens one, as revisions up to 2025-11-25 do."""
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

    revision = _header(scope, b"mcp-protocol-version").decode("latin-1")
    return not revision or revision in HANDSHAKE_PROTOCOL_VERSIONS


def _header(scope: Scope, wanted: bytes) -> bytes:
    return next((value for name, value in scope["headers"] if name == wanted), b"")


def _shortened(body: bytes) -> bytes:
    """Return the request that opens a session with what is used of it, since it is kept."""
    try:
        request = orjson.loads(body)
        params = request["params"]
        about, able = params["clientInfo"], params["capabilities"]
        kept: dict[str, Any] = {
            "protocolVersion": params["protocolVersion"][:_MAX_TEXT],
            "clientInfo": {name: about[name][:_MAX_TEXT] for name in _KEPT if name in about},
            "capabilities": {name: {} for name in _CAPABILITIES if name in able},
        }
        return orjson.dumps({**request, "params": kept})
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body  # which is refused


def _with_body(scope: Scope, body: bytes, receive: Receive) -> tuple[Scope, Receive]:
    """Return a request whose body has been read, and what gives it once more."""
    length = [(name, value) for name, value in scope["headers"] if name not in _OF_BODY]
    scope = {**scope, "headers": [*length, (b"content-length", b"%d" % len(body))]}
    waiting = [body]

    async def receive_again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return scope, receive_again


_OF_BODY = (b"content-length", b"transfer-encoding")


def _ending(session: bytes, user: Any) -> Scope:
    """Return the request by which a client would end its session."""
    return {
        "type": "http",
        "method": "DELETE",
        "path": "/",
        "query_string": b"",
        "headers": [(b"host", LOOPBACK[0].encode()), (SESSION, session)],
        "user": user,
    }


async def _drop(_: Message) -> None:
    """Send an answer to nobody."""


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
