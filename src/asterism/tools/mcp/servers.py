"""All servers of a home: their tools are put into the toolbox, and follow what servers say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from asterism.config.settings import McpSettings
from asterism.errors import ConfigError, NotFound
from asterism.tools.mcp.listing import Listing, Shelf
from asterism.tools.mcp.offers import Offer, offers
from asterism.tools.mcp.reach import Means
from asterism.tools.mcp.server import Backoff, Server
from asterism.tools.tool import Tool, Toolbox
from asterism.types.ids import now_ms

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a server stands."""

    name: str
    settings: McpSettings
    connected: bool
    trouble: str
    listing: Listing | None
    offers: tuple[Offer, ...] = ()

    @property
    def offered(self) -> int:
        """How many of its tools agents are given."""
        return sum(one.tool is not None for one in self.offers)


class Servers:
    """The configured servers; each is connected when first needed and shared by all turns."""

    def __init__(
        self,
        place: Path,
        means: Means,
        toolbox: Toolbox,
        *,
        backoff: Backoff | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        """Prepare; `place` is the directory for what is kept of servers."""
        self.shelf = Shelf(place)
        self._means = means
        self._toolbox = toolbox
        self._backoff = backoff
        self._clock = clock
        self._servers: dict[str, Server] = {}
        self._listings: dict[str, Listing] = {}
        self._offers: dict[str, tuple[Offer, ...]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._stopped = False

    # -- life -----------------------------------------------------------------------------------

    def configure(self, wanted: Mapping[str, McpSettings], *, connect: bool = True) -> None:
        """Make these the servers there are; those that did not change stay connected.

        Tools that are kept from an earlier time are offered at once. With `connect`, a server
        whose tools are not known yet, or not any more, is asked in the background.
        """
        enabled = {name: one for name, one in wanted.items() if one.enabled}
        for name in [name for name in self._servers if name not in enabled]:
            self._let_go(name)
        for name, settings in enabled.items():
            known = self._servers.get(name)
            if known is not None and known.settings == settings:
                continue
            if known is not None:
                self._let_go(name)
            self._take_up(name, settings, connect=connect)

    async def stop(self) -> None:
        """Let all servers go."""
        self._stopped = True
        await asyncio.gather(*(server.close() for server in self._servers.values()))
        if self._closing:
            await asyncio.wait(self._closing, timeout=15.0)
        await self._means.renewals.close()

    def _take_up(self, name: str, settings: McpSettings, *, connect: bool) -> None:
        async def listed(listing: Listing) -> None:
            await self._heard(name, server, listing)

        server = Server(name, settings, self._means, listed=listed, backoff=self._backoff)
        self._servers[name] = server
        kept = self.shelf.read(name, settings)
        if kept is not None:
            self._offer(server, kept, offers(name, settings, kept, server.call))
        if connect and (kept is None or self._clock() - kept.at > settings.refresh * 1000):
            server.need()

    def _let_go(self, name: str) -> None:
        server = self._servers.pop(name)
        self._listings.pop(name, None)
        self._withdraw(name)
        task = asyncio.create_task(server.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    # -- tools ----------------------------------------------------------------------------------

    async def _heard(self, name: str, server: Server, listing: Listing) -> None:
        before = self._listings.get(name)
        made: list[Offer] | None = None
        if before is None or replace(before, at=listing.at) != listing:
            # Schemas that mean harm can take a second to be refused: the turns go on meanwhile.
            made = await asyncio.to_thread(offers, name, server.settings, listing, server.call)
        if self._stopped or self._servers.get(name) is not server:
            return
        if made is not None:
            self._offer(server, listing, made)
        self._listings[name] = listing
        await asyncio.to_thread(self.shelf.write, name, server.settings, listing)

    def _offer(self, server: Server, listing: Listing, made: list[Offer]) -> None:
        self._withdraw(server.name)
        found = [self._put(one) for one in made]
        self._listings[server.name] = listing
        self._offers[server.name] = tuple(found)
        if refused := [one for one in found if one.refused and one.own in server.settings.tools]:
            _log.warning("MCP server %s: %s: %s", server.name, refused[0].own, refused[0].refused)

    def _put(self, one: Offer) -> Offer:
        if one.tool is None:
            return one
        try:
            self._toolbox.add(one.tool)
        except ConfigError:
            reason = f"another tool is called {one.name} already; choose another prefix"
            return Offer(one.own, refused=reason)
        return one

    def _withdraw(self, name: str) -> None:
        for one in self._offers.pop(name, ()):
            if one.tool is not None:
                self._toolbox.remove(one.tool)

    # -- what others ask for --------------------------------------------------------------------

    def server(self, name: str) -> Server:
        """Return a server by its name."""
        server = self._servers.get(name)
        if server is None:
            raise NotFound(
                f"There is no MCP server {name!r} in use. "
                '"asterism mcp list" shows those that are configured.'
            )
        return server

    async def ask(self, name: str) -> Standing:
        """Ask a server for its tools now, and return how it stands."""
        server = self.server(name)
        await self._heard(name, server, await server.listing())
        return self.standing(name)

    def again(self, name: str) -> None:
        """Try a server again that could not be reached, as after a login."""
        server = self.server(name)
        if server.connected or not server.trouble:
            return
        self._let_go(name)
        self._take_up(name, server.settings, connect=True)

    def standing(self, name: str) -> Standing:
        """Return how a server stands."""
        server = self.server(name)
        return Standing(
            name,
            server.settings,
            server.connected,
            server.trouble,
            self._listings.get(name),
            self._offers.get(name, ()),
        )

    def standings(self) -> list[Standing]:
        """Return how all servers stand."""
        return [self.standing(name) for name in self._servers]

    def tools(self) -> list[Tool]:
        """Return the tools that servers offer at this time."""
        return [
            one.tool for found in self._offers.values() for one in found if one.tool is not None
        ]
