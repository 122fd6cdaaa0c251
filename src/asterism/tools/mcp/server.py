"""One server: connected when first needed, supervised, asked for its tools, called."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asterism.config.settings import McpSettings
from asterism.errors import AsterismError, ToolError
from asterism.tools.mcp.listing import Listed, Listing
from asterism.tools.mcp.reach import Means, Reached
from asterism.tools.mcp.results import result_text
from asterism.tools.mcp.trouble import (
    Lost,
    explained,
    is_lost,
    is_timeout,
    refused_before,
    told,
    wants_person,
)
from asterism.tools.tool import ToolContext
from asterism.types.ids import now_ms

if TYPE_CHECKING:
    from mcp import Client

_log = logging.getLogger(__name__)

_MOST_PAGES = 100
_SETTLED = 10.0
"""Seconds after which a connection counts as one that lasts."""
_SHORT = 1.5
"""Seconds to the next try for which a call waits instead of failing."""
_ENOUGH = 3
"""How many failures a call waits through."""
_TRIES = 6
"""How often a server is started again before it is left alone until it is needed."""
_REST = 60.0
"""Seconds for which a server is left alone that wants a login or a setting, not another try."""
_PROBE = 5.0
_CLOSING = 10.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before a server that fails is tried again."""

    first: float = 0.5
    longest: float = 60.0

    def after(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row."""
        wait = min(self.longest, self.first * 2 ** min(failures - 1, 20))
        return wait * random.uniform(0.8, 1.0)


async def _unheard(_: Listing) -> None:
    """Hear of a listing that nobody asked to hear of."""


class Server:
    """A configured server and the one connection with it, which all turns share."""

    def __init__(
        self,
        name: str,
        settings: McpSettings,
        means: Means,
        *,
        listed: Callable[[Listing], Awaitable[None]] = _unheard,
        backoff: Backoff | None = None,
    ) -> None:
        """Prepare a server; nothing is started before it is needed. `listed` hears of its tools."""
        self.name = name
        self.settings = settings
        self.trouble = ""
        """Why it could not be reached the last time; empty while all is well."""
        self.starts = 0
        """How often a connection was tried."""
        self._means = means
        self._listed = listed
        self._backoff = backoff or Backoff()
        self._client: Client | None = None
        self._reached: Reached | None = None
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
        self._refused = False

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._client is not None

    # -- what others ask for --------------------------------------------------------------------

    def need(self) -> None:
        """Connect in the background, unless it is done or under way."""
        if self._closed:
            return
        self._needed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._supervise(), name=f"mcp {self.name}")

    async def call(
        self, tool: Listed, ctx: ToolContext, arguments: dict[str, Any], again: bool
    ) -> str:
        """Carry out a call and return its result; `again`: it may safely be sent twice."""
        limit = self.settings.of(tool.name).timeout or self.settings.timeout
        until = asyncio.get_running_loop().time() + limit
        while True:
            client = await self._reach(min(self.settings.connect_timeout, 0.8 * limit))
            try:
                result = await self._send(client, tool.name, arguments, ctx, until)
            except Lost as lost:
                if lost.unsent or again:
                    again = False
                    continue
                raise ToolError(
                    f"The connection with MCP server {self.name!r} was lost while {tool.name} was "
                    f"running ({lost}). It may or may not have happened: find out before you try "
                    "it again."
                ) from None
            return result_text(tool.name, result)

    async def listing(self) -> Listing:
        """Return the tools that the server has now."""
        client = await self._reach(self.settings.connect_timeout)
        try:
            return await self._list(client)
        except Exception as error:
            raise ToolError(self._why(error)) from error

    async def close(self) -> None:
        """Let the server go; a program is told to end, and killed if it does not."""
        self._closed = True
        for task in (self._probing, self._task):
            if task is None or task.done():
                continue
            if task is self._task and self._scope is not None:
                self._scope.cancel()
                await asyncio.wait({task}, timeout=_CLOSING)
            task.cancel()
            await asyncio.wait({task}, timeout=1.0)

    # -- the connection -------------------------------------------------------------------------

    async def _reach(self, patience: float) -> Client:
        """Return the connection, made now if there is none; raise `ToolError` if it cannot be."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        before = self._failed
        while (client := self._client) is None:
            if self._closed:
                raise ToolError(f"MCP server {self.name!r} is being closed. It was not asked.")
            hopeless = self._failed - before >= _ENOUGH or self._next_try - loop.time() > _SHORT
            if self.trouble and hopeless:
                raise ToolError(self.trouble)
            self.need()
            change = self._change
            try:
                async with asyncio.timeout_at(until):
                    await change.wait()
            except TimeoutError:
                reason = self.trouble or (
                    f"MCP server {self.name!r} is not ready after {patience:g} s. It was not asked."
                )
                raise ToolError(reason) from None
        return client

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def _supervise(self) -> None:
        """Keep the server connected from its first use on; one that dies is started again."""
        loop = asyncio.get_running_loop()
        failures = 0  # in a row
        while not self._closed:
            began = loop.time()
            await self._hold()
            if self._closed:
                return
            lasted = loop.time() - began > max(_SETTLED, self._backoff.first)
            failures = 1 if lasted and self._was_ready else failures + 1
            self._failed += 1
            rests = self._refused or failures >= _TRIES
            wait = _REST if self._refused else self._backoff.after(failures)
            self._next_try = loop.time() + wait
            _log.warning("%s%s", self.trouble, "" if rests else f" Trying again in {wait:.1f} s.")
            self._needed.clear()
            self._changed()
            await asyncio.sleep(wait)
            self._next_try = 0.0
            if rests:
                await self._needed.wait()

    async def _hold(self) -> None:
        """Connect, and stay so until the connection is lost."""
        import anyio

        self.starts += 1
        self._was_ready = self._refused = False
        self._lost = asyncio.Event()
        self._stale = asyncio.Event()
        reached = self._reached = Reached(self.name, self.settings)
        reached.tap.ended = self._lost.set
        reached.changed = self._stale.set
        try:
            with anyio.CancelScope() as self._scope:
                with anyio.fail_after(self.settings.connect_timeout) as patience:
                    async with reached.connected(self._means) as client:
                        listing = await self._list(client)
                        patience.deadline = math.inf
                        self._was_ready = True
                        await self._listed(listing)
                        self._client, self.trouble = client, ""
                        self._changed()
                        async with anyio.create_task_group() as beside:
                            beside.start_soon(self._follow, client)
                            beside.start_soon(self._refresh, client)
                            await self._lost.wait()
                            self._client = None
                            beside.cancel_scope.cancel()
            if self._was_ready:
                self.trouble = explained(self._reached, "it ended")
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, the server is tried again
            self.trouble = self._why(error)
            self._refused = wants_person(reached, error)
        finally:
            self._client = None
            self._scope = None

    def _why(self, error: BaseException) -> str:
        if isinstance(error, AsterismError):
            return error.message
        assert self._reached is not None
        return explained(self._reached, told(self._reached, error))

    # -- its tools ------------------------------------------------------------------------------

    async def _list(self, client: Client) -> Listing:
        """Ask for all tools, page by page."""
        assert self._reached is not None
        tap = self._reached.tap
        tap.refused = {}
        found: dict[str, Listed] = {}
        twice: list[tuple[str, str]] = []
        if client.server_capabilities.tools is not None:
            cursor: str | None = None
            for _ in range(_MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                for one in page.tools:
                    if one.name in found:
                        twice.append((one.name, "the server lists it twice"))
                        continue
                    hints = one.annotations.model_dump(by_alias=True) if one.annotations else {}
                    found[one.name] = Listed(
                        one.name,
                        one.description or one.title or "",
                        one.input_schema,
                        {key: value for key, value in hints.items() if isinstance(value, bool)},
                    )
                cursor = page.next_cursor
                if cursor is None:
                    break
        info = client.server_info
        return Listing(
            tools=tuple(found.values()),
            refused=(*tap.refused.items(), *twice),
            at=now_ms(),
            protocol=client.protocol_version,
            server=f"{info.name} {info.version}" if info else "",
            instructions=client.instructions or "",
        )

    async def _follow(self, client: Client) -> None:
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
                _log.warning("%s Its last list of tools stays in use.", self._why(error))
                if is_lost(error):
                    self._lost.set()
                continue
            await self._listed(listing)

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

        left = max(0.05, until - asyncio.get_running_loop().time())
        self._running += 1
        try:
            return await client.call_tool(
                tool, arguments, read_timeout_seconds=left, progress_callback=on_progress
            )
        except asyncio.CancelledError:
            self._suspect(client)
            raise
        except Exception as error:
            if is_timeout(error):
                self._suspect(client)
                raise TimeoutError from None
            if refused_before(error):
                self._drop(client)
                raise Lost(str(error), unsent=True) from None
            if is_lost(error):
                self._drop(client)
                raise Lost(told(self._reached, error), unsent=False) from None
            raise ToolError(f"{tool} failed: {told(self._reached, error)}") from error
        finally:
            self._running -= 1

    def _drop(self, client: Client) -> None:
        """Give up a connection that turned out to be lost."""
        if self._client is client:
            self._client = None
            self._lost.set()

    def _suspect(self, client: Client) -> None:
        """Find out whether a server that gave no answer is stuck, and start it anew if it is."""
        if self._client is client and (self._probing is None or self._probing.done()):
            self._probing = asyncio.create_task(self._probe(client))

    async def _probe(self, client: Client) -> None:
        try:
            async with asyncio.timeout(min(_PROBE, self.settings.connect_timeout)):
                await client.list_tools()
        except Exception as error:  # noqa: BLE001 - no answer is an answer
            # A server that works on one call after the other may be busy with somebody else's.
            if self._running == 0 or is_lost(error):
                _log.warning("MCP server %s does not answer; it is started anew.", self.name)
                self._drop(client)
