"""MCP clients: each is connected when first needed, supervised, asked for its tools, called.

`McpClient` is the one connection with a server that all turns share; `McpClients` are those of a
home, whose tools are put into the toolbox and follow what servers say.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from asterism.config.settings import McpSettings
from asterism.errors import AsterismError, ConfigError, NotFound, ToolError
from asterism.records import dataclass
from asterism.tools.mcp.connection import McpConnection, McpHost
from asterism.tools.mcp.login import LoginExpired, LoginNeeded, RenewalFailed
from asterism.tools.mcp.tools import (
    ListedTool,
    ListingCache,
    McpTool,
    ToolListing,
    make_tools,
    result_text,
    shortened,
)
from asterism.tools.tool import Tool, Toolbox, ToolContext
from asterism.types.agents import now_ms

if TYPE_CHECKING:
    from mcp import Client

_log = logging.getLogger(__name__)

_MAX_PAGES = 100
_STABLE_SECONDS = 10.0
"""Seconds after which a connection counts as one that lasts."""
_SHORT_WAIT = 1.5
"""Seconds to the next try for which a call waits instead of failing."""
_MAX_WAITED_FAILURES = 3
"""How many failures a call waits through."""
_MAX_RESTARTS = 6
"""How often a server is started again before it is left alone until it is needed."""
_PERSON_PAUSE = 60.0
"""Seconds for which a server is left alone that wants a login or a setting, not another try."""
_PROBE_SECONDS = 5.0
_CLOSE_SECONDS = 10.0
_ERRNO = re.compile(r"^\[Errno -?\d+\] ")
_MAX_REASON = 600
_START_ERRORS = (FileNotFoundError, NotADirectoryError, PermissionError)


# -- what went wrong -------------------------------------------------------------------------------


class ConnectionLost(Exception):
    """The connection went away under a call; `unsent` if the server surely did not act on it."""

    def __init__(self, reason: str, *, unsent: bool) -> None:
        super().__init__(reason)
        self.unsent = unsent


def _inner_errors(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that it holds or comes from, the innermost of a group first."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - of anything
            yield from _inner_errors(inner)  # pyright: ignore[reportUnknownArgumentType] - of anything
        return
    yield error
    if error.__cause__ is not None:
        yield from _inner_errors(error.__cause__)


def _error_code(error: BaseException) -> int | None:
    from mcp.shared.exceptions import MCPError

    return next((inner.code for inner in _inner_errors(error) if isinstance(inner, MCPError)), None)


def is_timeout(error: BaseException) -> bool:
    """Tell whether a server gave no answer in time."""
    import mcp_types

    return isinstance(error, TimeoutError) or _error_code(error) == mcp_types.REQUEST_TIMEOUT


def is_lost(error: BaseException) -> bool:
    """Tell whether the connection is of no use any more."""
    import anyio
    import mcp_types

    gone = (anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError)
    return _error_code(error) == mcp_types.CONNECTION_CLOSED or any(
        isinstance(inner, gone) for inner in _inner_errors(error)
    )


def is_unknown_session(error: BaseException) -> bool:
    """Tell whether a server says that it does not know this session: it did not act on the call."""
    import mcp_types

    # The library's words for a 404 to a request with a session id (mcp 2.3, 2026-11).
    return _error_code(error) == mcp_types.INVALID_REQUEST and "Session terminated" in str(error)


def needs_person(connection: McpConnection, error: BaseException) -> bool:
    """Tell whether trying again is of no use until a person has done something about it."""
    from mcp.client.auth import OAuthFlowError

    hopeless = (AsterismError, LoginNeeded, LoginExpired, OAuthFlowError, *_START_ERRORS)
    return connection.status in (401, 403) or any(
        isinstance(inner, hopeless) for inner in _inner_errors(error)
    )


def failure_reason(connection: McpConnection | None, error: BaseException) -> str:
    """Return what happened, in a clause."""
    errors = list(_inner_errors(error))
    for inner in errors:
        if isinstance(inner, AsterismError):
            return inner.message
        if isinstance(inner, _START_ERRORS):
            return f"{inner.filename or 'its program'} cannot be started: {inner.strerror or inner}"
    for inner in errors:
        if isinstance(inner, LoginExpired | RenewalFailed):
            return str(inner)
    status = connection.status if connection else 0
    if any(isinstance(inner, LoginNeeded) for inner in errors) or status == 401:
        name = connection.name if connection else "NAME"
        return f'it wants a login; run "asterism mcp login {name}"'
    last = errors[0] if errors else error
    if is_timeout(last):
        return "it gave no answer in time"
    if connection is not None and status and is_lost(error):
        return f"it answered with HTTP status {status}"
    text = _ERRNO.sub("", str(last).strip()) or type(last).__name__
    if connection is not None and _is_unreachable(last):
        text = f"{_server_of(connection)} was not reached ({text.rstrip('.')})"
    return shortened(text, _MAX_REASON)


def _is_unreachable(error: BaseException) -> bool:
    import httpx2

    return isinstance(error, httpx2.ConnectError)


def _server_of(connection: McpConnection) -> str:
    """Return scheme, host and port of a server, without what may be a secret in its address."""
    address = urlsplit(connection.settings.url or "")
    port = f":{address.port}" if address.port else ""
    return f"{address.scheme}://{address.hostname}{port}"


def failure_text(connection: McpConnection, clause: str) -> str:
    """Return a sentence about a server that cannot be used, with its last words."""
    words = (
        f" Last output: {' / '.join(list(connection.stderr_lines)[-3:])}"
        if connection.stderr_lines
        else ""
    )
    garbled = ""
    if not words and connection.filter.unreadable:
        garbled = f" What it last sent could not be read: {connection.filter.unreadable[:200]}"
    return f"MCP server {connection.name!r} cannot be used: {clause.rstrip('.')}.{words}{garbled}"


# -- one server ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class McpBackoff:
    """How long to wait before a server that fails is tried again."""

    first: float = 0.5
    longest: float = 60.0

    def after(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row."""
        wait = min(self.longest, self.first * 2 ** min(failures - 1, 20))
        return wait * random.uniform(0.8, 1.0)


async def _ignore_listing(_: ToolListing) -> None:
    """Hear of a listing that nobody asked to hear of."""


class McpClient:
    """A configured server and the one connection with it, which all turns share."""

    def __init__(
        self,
        name: str,
        settings: McpSettings,
        host: McpHost,
        *,
        on_listing: Callable[[ToolListing], Awaitable[None]] = _ignore_listing,
        backoff: McpBackoff | None = None,
    ) -> None:
        """Prepare; nothing is started before it is needed. `on_listing` gets each list of tools."""
        self.name = name
        self.settings = settings
        self.problem = ""
        """Why it could not be connection the last time; empty while all is well."""
        self.starts = 0
        """How often a connection was tried."""
        self._host = host
        self._on_listing = on_listing
        self._backoff = backoff or McpBackoff()
        self._client: Client | None = None
        self._connection: McpConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._scope: Any = None
        self._change = asyncio.Event()
        self._needed = asyncio.Event()
        self._stale = asyncio.Event()
        self._lost = asyncio.Event()
        self._probing: asyncio.Task[None] | None = None
        self._next_try = 0.0
        self._running = 0
        self._failed = 0
        self._closed = False
        self._was_ready = False
        self._needs_person = False

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._client is not None

    # -- what others ask for --------------------------------------------------------------------

    def connect_soon(self) -> None:
        """Connect in the background, unless it is done or under way."""
        if self._closed:
            return
        self._needed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._supervise(), name=f"mcp {self.name}")

    async def call(
        self, tool: ListedTool, ctx: ToolContext, arguments: dict[str, Any], again: bool
    ) -> str:
        """Carry out a call and return its result; `again`: it may safely be sent twice."""
        limit = self.settings.of(tool.name).timeout or self.settings.timeout
        until = asyncio.get_running_loop().time() + limit
        while True:
            client = await self._connected_client(min(self.settings.connect_timeout, 0.8 * limit))
            try:
                result = await self._send(client, tool.name, arguments, ctx, until)
            except ConnectionLost as lost:
                if lost.unsent or again:
                    again = False
                    continue
                raise ToolError(
                    f"The connection with MCP server {self.name!r} was lost while {tool.name} was "
                    f"running ({lost}). It may or may not have happened: find out before you try "
                    "it again."
                ) from None
            return result_text(tool.name, result)

    async def listing(self) -> ToolListing:
        """Return the tools that the server has now."""
        client = await self._connected_client(self.settings.connect_timeout)
        try:
            return await self._list(client)
        except Exception as error:
            raise ToolError(self._reason(error)) from error

    async def close(self) -> None:
        """Let the server go; a program is told to end, and killed if it does not."""
        self._closed = True
        for task in (self._probing, self._task):
            if task is None or task.done():
                continue
            if task is self._task and self._scope is not None:
                self._scope.cancel()
                await asyncio.wait({task}, timeout=_CLOSE_SECONDS)
            task.cancel()
            await asyncio.wait({task}, timeout=1.0)

    # -- the connection -------------------------------------------------------------------------

    async def _connected_client(self, patience: float) -> Client:
        """Return the connection, made now if there is none; raise `ToolError` if it cannot be."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        before = self._failed
        while (client := self._client) is None:
            if self._closed:
                raise ToolError(f"MCP server {self.name!r} is being closed. It was not asked.")
            hopeless = (
                self._failed - before >= _MAX_WAITED_FAILURES
                or self._next_try - loop.time() > _SHORT_WAIT
            )
            if self.problem and hopeless:
                raise ToolError(self.problem)
            self.connect_soon()
            change = self._change
            try:
                async with asyncio.timeout_at(until):
                    await change.wait()
            except TimeoutError:
                reason = self.problem or (
                    f"MCP server {self.name!r} is not ready after {patience:g} s. It was not asked."
                )
                raise ToolError(reason) from None
        return client

    def _notify(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def _supervise(self) -> None:
        """Keep the server connected from its first use on; one that dies is started again."""
        loop = asyncio.get_running_loop()
        failures = 0  # in a row
        while not self._closed:
            began = loop.time()
            await self._run_connection()
            if self._closed:
                return
            lasted = loop.time() - began > max(_STABLE_SECONDS, self._backoff.first)
            failures = 1 if lasted and self._was_ready else failures + 1
            self._failed += 1
            rests = self._needs_person or failures >= _MAX_RESTARTS
            wait = _PERSON_PAUSE if self._needs_person else self._backoff.after(failures)
            self._next_try = loop.time() + wait
            _log.warning("%s%s", self.problem, "" if rests else f" Trying again in {wait:.1f} s.")
            self._needed.clear()
            self._notify()
            await asyncio.sleep(wait)
            self._next_try = 0.0
            if rests:
                await self._needed.wait()

    async def _run_connection(self) -> None:
        """Connect, and stay so until the connection is lost."""
        import anyio

        self.starts += 1
        self._was_ready = self._needs_person = False
        self._lost = asyncio.Event()
        self._stale = asyncio.Event()
        connection = self._connection = McpConnection(self.name, self.settings)
        connection.filter.on_end = self._lost.set
        connection.on_tools_changed = self._stale.set
        try:
            with anyio.CancelScope() as self._scope:
                with anyio.fail_after(self.settings.connect_timeout) as patience:
                    async with connection.open(self._host) as client:
                        listing = await self._list(client)
                        patience.deadline = math.inf
                        self._was_ready = True
                        await self._on_listing(listing)
                        self._client, self.problem = client, ""
                        self._notify()
                        async with anyio.create_task_group() as beside:
                            beside.start_soon(self._listen_for_changes, client)
                            beside.start_soon(self._refresh, client)
                            await self._lost.wait()
                            self._client = None
                            beside.cancel_scope.cancel()
            if self._was_ready:
                self.problem = failure_text(self._connection, "it ended")
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, the server is tried again
            self.problem = self._reason(error)
            self._needs_person = needs_person(connection, error)
        finally:
            self._client = None
            self._scope = None

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, AsterismError):
            return error.message
        assert self._connection is not None
        return failure_text(self._connection, failure_reason(self._connection, error))

    # -- its tools ------------------------------------------------------------------------------

    async def _list(self, client: Client) -> ToolListing:
        """Ask for all tools, page by page."""
        assert self._connection is not None
        message_filter = self._connection.filter
        message_filter.refused = {}
        tools: dict[str, ListedTool] = {}
        twice: list[tuple[str, str]] = []
        if client.server_capabilities.tools is not None:
            cursor: str | None = None
            for _ in range(_MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                for tool in page.tools:
                    if tool.name in tools:
                        twice.append((tool.name, "the server lists it twice"))
                        continue
                    hints = tool.annotations.model_dump(by_alias=True) if tool.annotations else {}
                    tools[tool.name] = ListedTool(
                        tool.name,
                        tool.description or tool.title or "",
                        tool.input_schema,
                        {key: value for key, value in hints.items() if isinstance(value, bool)},
                    )
                cursor = page.next_cursor
                if cursor is None:
                    break
        info = client.server_info
        return ToolListing(
            tools=tuple(tools.values()),
            refused=(*message_filter.refused.items(), *twice),
            at_ms=now_ms(),
            protocol=client.protocol_version,
            server=f"{info.name} {info.version}" if info else "",
            instructions=client.instructions or "",
        )

    async def _listen_for_changes(self, client: Client) -> None:
        """Hear of changes from servers of the newer protocol, which send them when asked to."""
        tools = client.server_capabilities.tools
        if client.session.discover_result is None or not (tools and tools.list_changed):
            return
        while True:
            try:
                async with client.listen(tools_list_changed=True) as events:
                    async for _ in events:
                        self._stale.set()
            except Exception as error:  # noqa: BLE001 - lists are refreshed without it, later
                _log.debug("MCP server %s sends no changes: %s", self.name, error)
            await asyncio.sleep(self._backoff.longest)

    async def _refresh(self, client: Client) -> None:
        """Ask for the tools again when they have changed, and from time to time."""
        while True:
            try:
                async with asyncio.timeout(self.settings.refresh):
                    await self._stale.wait()
            except TimeoutError:
                pass
            self._stale.clear()
            try:
                async with asyncio.timeout(self.settings.connect_timeout):
                    listing = await self._list(client)
            except Exception as error:  # noqa: BLE001 - the last list stays in use
                _log.warning("%s Its last list of tools stays in use.", self._reason(error))
                if is_lost(error):
                    self._lost.set()
                continue
            await self._on_listing(listing)

    # -- calls ----------------------------------------------------------------------------------

    async def _send(
        self,
        client: Client,
        tool: str,
        arguments: dict[str, Any],
        ctx: ToolContext,
        until: float,
    ) -> Any:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g} of {total:g}" if total else f"{progress:g}"
            ctx.progress(f"{message} ({share})" if message else share)

        seconds = max(0.05, until - asyncio.get_running_loop().time())
        self._running += 1
        try:
            return await client.call_tool(
                tool, arguments, read_timeout_seconds=seconds, progress_callback=on_progress
            )
        except asyncio.CancelledError:
            self._probe_soon(client)
            raise
        except Exception as error:
            if is_timeout(error):
                self._probe_soon(client)
                raise TimeoutError from None
            if is_unknown_session(error):
                self._give_up(client)
                raise ConnectionLost(str(error), unsent=True) from None
            if is_lost(error):
                self._give_up(client)
                raise ConnectionLost(
                    failure_reason(self._connection, error), unsent=False
                ) from None
            raise ToolError(f"{tool} failed: {failure_reason(self._connection, error)}") from error
        finally:
            self._running -= 1

    def _give_up(self, client: Client) -> None:
        """Give up a connection that turned out to be lost."""
        if self._client is client:
            self._client = None
            self._lost.set()

    def _probe_soon(self, client: Client) -> None:
        """Find out whether a server that gave no answer is stuck, and start it anew if it is."""
        if self._client is client and (self._probing is None or self._probing.done()):
            self._probing = asyncio.create_task(self._probe(client))

    async def _probe(self, client: Client) -> None:
        try:
            async with asyncio.timeout(min(_PROBE_SECONDS, self.settings.connect_timeout)):
                await client.list_tools()
        except Exception as error:  # noqa: BLE001 - no answer is an answer
            # A server that works on one call after the other may be busy with somebody else's.
            if self._running == 0 or is_lost(error):
                _log.warning("MCP server %s does not answer; it is started anew.", self.name)
                self._give_up(client)


# -- all servers of a home -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class McpServerStatus:
    """How a server stands."""

    name: str
    settings: McpSettings
    connected: bool
    problem: str
    listing: ToolListing | None
    tools: tuple[McpTool, ...] = ()

    @property
    def offered(self) -> int:
        """How many of its tools agents are given."""
        return sum(mcp_tool.tool is not None for mcp_tool in self.tools)


class McpClients:
    """The configured servers; each is connected when first needed and shared by all turns."""

    def __init__(
        self,
        place: Path,
        host: McpHost,
        toolbox: Toolbox,
        *,
        backoff: McpBackoff | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        """Prepare; `place` is the directory for what is kept of servers."""
        self.cache = ListingCache(place)
        self._host = host
        self._toolbox = toolbox
        self._backoff = backoff
        self._clock = clock
        self._clients: dict[str, McpClient] = {}
        self._listings: dict[str, ToolListing] = {}
        self._tools: dict[str, tuple[McpTool, ...]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._stopped = False

    # -- life -----------------------------------------------------------------------------------

    def configure(self, wanted: Mapping[str, McpSettings], *, connect: bool = True) -> None:
        """Make these the servers there are; those that did not change stay connected.

        Tools that are kept from an earlier time are offered at once. With `connect`, a server
        whose tools are not known yet, or not any more, is asked in the background.
        """
        enabled = {name: settings for name, settings in wanted.items() if settings.enabled}
        for name in [name for name in self._clients if name not in enabled]:
            self._remove(name)
        for name, settings in enabled.items():
            known = self._clients.get(name)
            if known is not None and known.settings == settings:
                continue
            if known is not None:
                self._remove(name)
            self._add(name, settings, connect=connect)

    async def stop(self) -> None:
        """Let all servers go."""
        self._stopped = True
        await asyncio.gather(*(server.close() for server in self._clients.values()))
        if self._closing:
            await asyncio.wait(self._closing, timeout=15.0)
        await self._host.renewals.close()

    def _add(self, name: str, settings: McpSettings, *, connect: bool) -> None:
        async def on_listing(listing: ToolListing) -> None:
            await self._update(name, server, listing)

        server = McpClient(name, settings, self._host, on_listing=on_listing, backoff=self._backoff)
        self._clients[name] = server
        cached = self.cache.read(name, settings)
        if cached is not None:
            self._replace_tools(server, cached, make_tools(name, settings, cached, server.call))
        if connect and (cached is None or self._clock() - cached.at_ms > settings.refresh * 1000):
            server.connect_soon()

    def _remove(self, name: str) -> None:
        server = self._clients.pop(name)
        self._listings.pop(name, None)
        self._remove_tools(name)
        task = asyncio.create_task(server.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    # -- tools ----------------------------------------------------------------------------------

    async def _update(self, name: str, server: McpClient, listing: ToolListing) -> None:
        before = self._listings.get(name)
        tools: list[McpTool] | None = None
        if before is None or replace(before, at_ms=listing.at_ms) != listing:
            # Schemas that mean harm can take a second to be refused: the turns go on meanwhile.
            tools = await asyncio.to_thread(make_tools, name, server.settings, listing, server.call)
        if self._stopped or self._clients.get(name) is not server:
            return
        if tools is not None:
            self._replace_tools(server, listing, tools)
        self._listings[name] = listing
        await asyncio.to_thread(self.cache.write, name, server.settings, listing)

    def _replace_tools(self, server: McpClient, listing: ToolListing, tools: list[McpTool]) -> None:
        self._remove_tools(server.name)
        added = [self._add_tool(mcp_tool) for mcp_tool in tools]
        self._listings[server.name] = listing
        self._tools[server.name] = tuple(added)
        if refused := [
            mcp_tool
            for mcp_tool in added
            if mcp_tool.refused and mcp_tool.own_name in server.settings.tools
        ]:
            _log.warning(
                "MCP server %s: %s: %s", server.name, refused[0].own_name, refused[0].refused
            )

    def _add_tool(self, mcp_tool: McpTool) -> McpTool:
        if mcp_tool.tool is None:
            return mcp_tool
        try:
            self._toolbox.add(mcp_tool.tool)
        except ConfigError:
            reason = f"another tool is called {mcp_tool.name} already; choose another prefix"
            return McpTool(mcp_tool.own_name, refused=reason)
        return mcp_tool

    def _remove_tools(self, name: str) -> None:
        for mcp_tool in self._tools.pop(name, ()):
            if mcp_tool.tool is not None:
                self._toolbox.remove(mcp_tool.tool)

    # -- what others ask for --------------------------------------------------------------------

    def client(self, name: str) -> McpClient:
        """Return a server by its name."""
        server = self._clients.get(name)
        if server is None:
            raise NotFound(
                f"There is no MCP server {name!r} in use. "
                '"asterism mcp list" shows those that are configured.'
            )
        return server

    async def ask(self, name: str) -> McpServerStatus:
        """Ask a server for its tools now, and return how it stands."""
        server = self.client(name)
        await self._update(name, server, await server.listing())
        return self.status(name)

    def retry(self, name: str) -> None:
        """Try a server again that could not be reached, as after a login."""
        server = self.client(name)
        if server.connected or not server.problem:
            return
        self._remove(name)
        self._add(name, server.settings, connect=True)

    def status(self, name: str) -> McpServerStatus:
        """Return how a server stands."""
        server = self.client(name)
        return McpServerStatus(
            name,
            server.settings,
            server.connected,
            server.problem,
            self._listings.get(name),
            self._tools.get(name, ()),
        )

    def statuses(self) -> list[McpServerStatus]:
        """Return how all servers stand."""
        return [self.status(name) for name in self._clients]

    def tools(self) -> list[Tool]:
        """Return the tools that servers offer at this time."""
        return [
            mcp_tool.tool
            for tools in self._tools.values()
            for mcp_tool in tools
            if mcp_tool.tool is not None
        ]
