"""The verbs about MCP servers: who is there, what they offer, and logging in at them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism.app.session import Session, verbs
from asterism.config import Settings
from asterism.config.settings import SERVER_NAME, McpSettings, OAuthSettings
from asterism.errors import ConfigError, Conflict, InvalidInput, NotFound
from asterism.permissions import Act
from asterism.private import TooLarge, read_regular
from asterism.records import dataclass
from asterism.tools.mcp.clients import McpBackoff, McpClient, McpClients, McpServerStatus
from asterism.tools.mcp.connection import Elicit, McpHost, looks_secret, resolve_value
from asterism.tools.mcp.login import (
    LOGIN_EXPIRED,
    Vault,
    callback_server,
    is_login_expired,
    login_key,
    login_provider,
)
from asterism.tools.mcp.tools import ToolListing, safe_name
from asterism.tools.tool import Toolbox

if TYPE_CHECKING:
    import httpx2

_LOGIN_PATIENCE = 600.0

Show = Callable[[str], Awaitable[None]]
"""Shows a person the address at which to log in."""


class McpServers:
    """The MCP servers of a process, whose tools are in its toolbox, for every actor."""

    def __init__(
        self,
        place: Path,
        settings: Callable[[], Settings],
        toolbox: Toolbox,
        vault: Vault,
        *,
        elicit: Elicit | None = None,
        backoff: McpBackoff | None = None,
    ) -> None:
        """Prepare; the lists of tools are in `place`, keys and tokens are in `vault`."""
        self.settings = settings
        self.vault = vault
        self.host = McpHost(vault.read, vault, elicit)
        self.servers = McpClients(place, self.host, toolbox, backoff=backoff)

    def start(self, *, connect: bool) -> None:
        """Offer the known tools; with `connect`, ask the other servers for their tools."""
        self.servers.configure(self.settings().mcp, connect=connect)

    def settings_changed(self, old: Settings, new: Settings, *, connect: bool) -> None:
        """Follow a change of the configuration; servers that did not change stay connected."""
        if old.mcp != new.mcp:
            self.servers.configure(new.mcp, connect=connect)

    def key_changed(self, name: str) -> None:
        """Try a server again at which somebody has logged in, maybe in another process."""
        for server, settings in self.settings().mcp.items():
            if settings.enabled and login_key(server) == name:
                with suppress(NotFound):
                    self.servers.retry(server)

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

    def __init__(self, session: Session, shared: McpServers) -> None:
        self._session = session
        self._settings = shared.settings
        self._vault = shared.vault
        self._host = shared.host
        self._servers = shared.servers

    def configured(self, name: str) -> McpSettings:
        """Return the settings of a server, with its address or command."""
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

    def list(self) -> list[McpServerStatus]:
        """Return the states of all configured servers by name, also of disabled servers."""
        statuses = {status.name: status for status in self._servers.statuses()}
        there = [
            statuses.get(name)
            or McpServerStatus(name, server, connected=False, problem="", listing=None)
            for name, server in sorted(self._settings().mcp.items())
        ]
        return there if self._session.sees_all else [_without_details(status) for status in there]

    async def ask(self, name: str) -> McpServerStatus:
        """Ask a server for its tools now."""
        if not self._configured(name).enabled:
            raise InvalidInput(
                f"MCP server {name!r} is off. Set mcp.{name}.enabled to true. It was not asked."
            )
        if await is_login_expired(self._vault, name):
            raise Conflict(f"MCP server {name!r} was not asked: {LOGIN_EXPIRED}.")
        return await self._servers.ask(name)

    async def login(self, name: str, show: Show, *, port: int | None = None) -> ToolListing:
        """Log in at a server: `show` brings a person to the address, who then comes back here."""
        settings = self._configured(name)
        if settings.url is None:
            raise InvalidInput(
                f"MCP server {name!r} is a program, which needs no login. What it needs to know is "
                f"set in mcp.{name}.env. Nothing was done."
            )
        secret = settings.oauth.client_secret
        if secret is not None:
            secret = await resolve_value(name, "oauth.client_secret", secret, self._vault.read)
        async with callback_server(settings.oauth.callback_port if port is None else port) as place:

            async def login(url: str, wanted: McpSettings) -> httpx2.Auth:
                return await login_provider(
                    name,
                    url,
                    wanted.oauth,
                    self._vault,
                    secret=secret,
                    show_address=show,
                    callback=place.wait,
                    redirect=place.address,
                )

            patient = settings.model_copy(update={"connect_timeout": _LOGIN_PATIENCE})
            server = McpClient(name, patient, replace(self._host, login=login))
            try:
                listing = await server.listing()
            finally:
                await server.close()
        self._servers.cache.write(name, settings, listing)
        if settings.enabled:
            self._servers.retry(name)
        return listing

    async def forget(self, name: str) -> None:
        """Drop the list of tools and the login of a server."""
        self._servers.cache.forget(name)
        await self._vault.write(login_key(name), None)


def check_server(table: dict[str, object]) -> McpSettings:
    """Return the settings of a server, or raise `ConfigError` with the problem in a table."""
    from pydantic import ValidationError

    try:
        return McpSettings.model_validate(table)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"])) or "it"
        raise ConfigError(f"{where}: {fault['msg']}. Nothing was changed.") from None


def _without_details(status: McpServerStatus) -> McpServerStatus:
    """Return how a server stands without how it is reached: that may name paths and hold keys."""
    shown: dict[str, object] = {
        "args": (),
        "env": {},
        "cwd": None,
        "url": None,
        "headers": {},
        "roots": (),
    }
    settings = status.settings.model_copy(update={**shown, "oauth": OAuthSettings()})
    return replace(
        status, settings=settings, problem="It cannot be reached." if status.problem else ""
    )


_MAX_FILE_BYTES = 1_000_000
# A text as a whole, or what JSON does not know and editors allow: comments, and commas at the end.
_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_COMMA = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)
_INPUT = re.compile(r"\$\{input:([\w.-]+)\}")
_FOLDER = re.compile(r"\$\{workspaceFolder\}")
_REFERENCE = re.compile(r"\$\{[^}]+\}|secret:")
_HTTP = ("http", "streamable-http", "streamableHttp", "streamable_http")
_KNOWN = ("type", "transport", "command", "args", "env", "cwd", "url", "headers", "disabled")
_LEFT_OUT = {
    "autoApprove": "what it approves by itself is not taken over; see authorizations",
    "alwaysAllow": "what it approves by itself is not taken over; see authorizations",
    "envFile": "its file of variables is not read; put them into env",
}


@dataclass(frozen=True, slots=True)
class ImportedServer:
    """A server found in a file, as it would be configured here."""

    name: str
    table: dict[str, Any] = field(default_factory=dict[str, Any])
    secrets: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Values to store as keys, by the names that the table has for them."""
    notes: tuple[str, ...] = ()
    refused: str = ""


def read_foreign(path: Path) -> list[ImportedServer]:
    """Return the servers in a file of Claude, VS Code, Cursor or their like."""
    try:
        raw = read_regular(path, _MAX_FILE_BYTES)
    except TooLarge:
        raise InvalidInput(
            f"{path} is larger than {_MAX_FILE_BYTES:,} bytes. Nothing was imported."
        ) from None
    except OSError as error:
        raise NotFound(
            f"{path} cannot be read: {error.strerror or error}. Nothing was imported."
        ) from None
    text = raw.decode("utf-8-sig", "replace")
    try:
        document: Any = orjson.loads(_strict_json(text))
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"{path} is not JSON ({error}). Nothing was imported.") from None
    servers = _find_servers(document)
    if servers is None:
        raise InvalidInput(
            f'{path} has neither "mcpServers" nor "servers". Name a file such as .mcp.json, '
            "claude_desktop_config.json or .vscode/mcp.json. Nothing was imported."
        )
    folder = path.absolute().parent
    folder = folder.parent if folder.name in (".vscode", ".cursor") else folder
    return [_read_server(str(name), server, folder) for name, server in servers.items()]


def _strict_json(text: str) -> str:
    for loose in (_COMMENT, _COMMA):
        text = loose.sub(lambda match: match[0] if match[0][0] == '"' else "", text)
    return text


def _find_servers(document: object) -> dict[str, Any] | None:
    if not isinstance(document, dict):
        return None
    whole = cast("dict[str, Any]", document)
    inner = whole.get("mcp")
    for table in (whole, cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}):
        for key in ("mcpServers", "servers"):
            if isinstance(table.get(key), dict):
                return cast("dict[str, Any]", table[key])
    return None


def _read_server(original_name: str, value: object, folder: Path) -> ImportedServer:
    name = safe_name(original_name)[:32].lstrip("-")
    if not SERVER_NAME.fullmatch(name):
        return ImportedServer(original_name, refused="its name has none of a-z, A-Z and 0-9")
    if not isinstance(value, dict):
        return ImportedServer(name, refused="it is not a JSON object")
    server = cast("dict[str, Any]", value)
    kind = str(server.get("type") or server.get("transport") or "")
    if kind == "sse":
        return ImportedServer(
            name, refused="it speaks the old SSE transport; ask for its streamable HTTP address"
        )
    table = _ServerTable(name, folder)
    if kind in _HTTP or (not server.get("command") and server.get("url")):
        table.text("url", server.get("url"))
        table.table_of("headers", server.get("headers"))
    else:
        table.text("command", server.get("command"))
        table.texts("args", server.get("args"))
        table.table_of("env", server.get("env"))
        table.text("cwd", server.get("cwd"))
    if server.get("disabled") is True:
        table.table["enabled"] = False
        table.notes.append("it is off there, and here as well")
    for key in server:
        if key not in _KNOWN:
            table.notes.append(_LEFT_OUT.get(key, f"{key} is not known here and left out"))
    if not table.table.get("url") and not table.table.get("command"):
        return ImportedServer(name, refused="it has neither a command nor a url")
    return ImportedServer(name, table.table, table.secrets, tuple(dict.fromkeys(table.notes)))


class _ServerTable:
    """Builds the table of a server."""

    def __init__(self, name: str, folder: Path) -> None:
        self.table: dict[str, Any] = {}
        self.secrets: dict[str, str] = {}
        self.notes: list[str] = []
        self._name = name
        self._folder = folder

    def text(self, key: str, value: object) -> None:
        if isinstance(value, str) and value:
            self.table[key] = self._adapted(value)

    def texts(self, key: str, value: object) -> None:
        if isinstance(value, list) and value:
            self.table[key] = [self._adapted(str(item)) for item in cast("list[object]", value)]

    def table_of(self, key: str, value: object) -> None:
        if not isinstance(value, Mapping) or not value:
            return
        table: dict[str, str] = {}
        for name, item in cast("Mapping[str, object]", value).items():
            text = self._adapted(str(item))
            if looks_secret(name) and text and not _REFERENCE.search(text):
                text = self._secret_reference(name, text)
            table[name] = text
        self.table[key] = table

    def _secret_reference(self, name: str, text: str) -> str:
        """Collect a secret to be stored encrypted, and return its reference for the table."""
        stored = f"mcp.{self._name}.{safe_name(name)}"
        before, bearer, rest = text.partition("Bearer ")
        if bearer and not before:
            self.secrets[stored] = rest
            return f"Bearer ${{secret:{stored}}}"
        self.secrets[stored] = text
        return f"secret:{stored}"

    def _adapted(self, text: str) -> str:
        for name in _INPUT.findall(text):
            self.notes.append(f'it asks for {name}: store it with "asterism key set {name}"')
        text = _INPUT.sub(r"${secret:\1}", text)
        return _FOLDER.sub(lambda _: str(self._folder), text)
