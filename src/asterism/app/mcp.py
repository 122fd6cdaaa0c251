"""The verbs about MCP servers: who is there, what they offer, and logging in at them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from asterism.app.reach import Reach
from asterism.app.verbs import verbs
from asterism.config import Settings
from asterism.config.settings import McpSettings, OAuthSettings
from asterism.errors import ConfigError, Conflict, InvalidInput, NotFound
from asterism.permissions import Act
from asterism.tools.mcp.landing import landing
from asterism.tools.mcp.listing import Listing
from asterism.tools.mcp.oauth import STALE, Vault, is_stale, kept_under, provider
from asterism.tools.mcp.reach import Elicit, Means
from asterism.tools.mcp.server import Backoff, Server
from asterism.tools.mcp.servers import Servers, Standing
from asterism.tools.mcp.values import filled
from asterism.tools.tool import Toolbox

if TYPE_CHECKING:
    import httpx2

_LOGIN_PATIENCE = 600.0

Show = Callable[[str], Awaitable[None]]
"""Shows a person the address at which to log in."""


class McpServers:
    """The MCP servers of a process, whose tools are in its toolbox: one set, whoever acts."""

    def __init__(
        self,
        place: Path,
        settings: Callable[[], Settings],
        toolbox: Toolbox,
        vault: Vault,
        *,
        elicit: Elicit | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """Prepare; what is kept of servers is in `place`, keys and tokens are in `vault`."""
        self.settings = settings
        self.vault = vault
        self.means = Means(vault.read, vault, elicit)
        self.servers = Servers(place, self.means, toolbox, backoff=backoff)

    def start(self, *, connect: bool) -> None:
        """Offer the tools that are known; with `connect`, ask servers for those that are not."""
        self.servers.configure(self.settings().mcp, connect=connect)

    def settings_changed(self, old: Settings, new: Settings, *, connect: bool) -> None:
        """Follow a change of the configuration; servers that did not change stay connected."""
        if old.mcp != new.mcp:
            self.servers.configure(new.mcp, connect=connect)

    def key_changed(self, name: str) -> None:
        """Try a server again at which somebody has logged in, maybe in another process."""
        for server, settings in self.settings().mcp.items():
            if settings.enabled and kept_under(server) == name:
                with suppress(NotFound):
                    self.servers.again(server)

    async def close(self) -> None:
        """Let all servers go."""
        await self.servers.stop()


@verbs(
    "mcp",
    list=Act.READ,
    ask=Act.APPEND,
    configured=Act.GOVERN,
    login=Act.GOVERN,
    forget=Act.GOVERN,
)
class Mcp:
    """The MCP servers of a home."""

    def __init__(self, reach: Reach, shared: McpServers) -> None:
        self._reach = reach
        self._settings = shared.settings
        self._vault = shared.vault
        self._means = shared.means
        self._servers = shared.servers

    def configured(self, name: str) -> McpSettings:
        """Return what is configured of a server, how it is reached included."""
        return self._configured(name)

    def _configured(self, name: str) -> McpSettings:
        there = self._settings().mcp
        if name not in there:
            from difflib import get_close_matches

            near = get_close_matches(name, there, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise NotFound(
                f'There is no MCP server {name!r}.{hint} "asterism mcp list" shows those that are '
                "configured. Nothing was done."
            )
        return there[name]

    def list(self) -> list[Standing]:
        """Return how the configured servers stand, by name, those that are off as well."""
        found = {one.name: one for one in self._servers.standings()}
        there = [
            found.get(name) or Standing(name, one, connected=False, trouble="", listing=None)
            for name, one in sorted(self._settings().mcp.items())
        ]
        return there if self._reach.sees_all else [_without_means(one) for one in there]

    async def ask(self, name: str) -> Standing:
        """Ask a server for its tools now."""
        if not self._configured(name).enabled:
            raise InvalidInput(
                f"MCP server {name!r} is off. Set mcp.{name}.enabled to true. It was not asked."
            )
        if await is_stale(self._vault, name):
            raise Conflict(f"MCP server {name!r} was not asked: {STALE}.")
        return await self._servers.ask(name)

    async def login(self, name: str, show: Show, *, port: int | None = None) -> Listing:
        """Log in at a server: `show` brings a person to the address, who then comes back here."""
        settings = self._configured(name)
        if settings.url is None:
            raise InvalidInput(
                f"MCP server {name!r} is a program, which needs no login. What it needs to know is "
                f"set in mcp.{name}.env. Nothing was done."
            )
        secret = settings.oauth.client_secret
        if secret is not None:
            secret = await filled(name, "oauth.client_secret", secret, self._vault.read)
        async with landing(settings.oauth.callback_port if port is None else port) as place:

            async def login(url: str, wanted: McpSettings) -> httpx2.Auth:
                return await provider(
                    name,
                    url,
                    wanted.oauth,
                    self._vault,
                    secret=secret,
                    visit=show,
                    callback=place.callback,
                    redirect=place.address,
                )

            patient = settings.model_copy(update={"connect_timeout": _LOGIN_PATIENCE})
            server = Server(name, patient, replace(self._means, login=login))
            try:
                listing = await server.listing()
            finally:
                await server.close()
        self._servers.shelf.write(name, settings, listing)
        if settings.enabled:
            self._servers.again(name)
        return listing

    async def forget(self, name: str) -> None:
        """Drop what is kept of a server: its list of tools and the login."""
        self._servers.shelf.forget(name)
        await self._vault.write(kept_under(name), None)


def check_server(table: dict[str, object]) -> McpSettings:
    """Return the settings of a server, or raise `ConfigError` with what is wrong in a table."""
    from pydantic import ValidationError

    try:
        return McpSettings.model_validate(table)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"])) or "it"
        raise ConfigError(f"{where}: {fault['msg']}. Nothing was changed.") from None


def _without_means(one: Standing) -> Standing:
    """Return how a server stands without how it is reached: that may name paths and hold keys."""
    shown: dict[str, object] = {
        "args": (),
        "env": {},
        "cwd": None,
        "url": None,
        "headers": {},
        "roots": (),
    }
    settings = one.settings.model_copy(update={**shown, "oauth": OAuthSettings()})
    return replace(one, settings=settings, trouble="It cannot be reached." if one.trouble else "")
