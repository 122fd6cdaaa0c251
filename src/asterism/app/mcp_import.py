"""Servers from the configuration of other programs: `.mcp.json` and its relatives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson

from asterism.config.settings import SERVER_NAME
from asterism.errors import InvalidInput, NotFound
from asterism.private import TooLarge, read_regular
from asterism.tools.mcp.naming import fitted
from asterism.tools.mcp.values import looks_secret

_LARGEST = 1_000_000
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
class Imported:
    """A server found in a file, as it would be configured here."""

    name: str
    table: dict[str, Any] = field(default_factory=dict[str, Any])
    secrets: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Values to store as keys, by the names that the table has for them."""
    notes: tuple[str, ...] = ()
    refused: str = ""


def read_foreign(path: Path) -> list[Imported]:
    """Return the servers in a file of Claude, VS Code, Cursor or their like."""
    try:
        raw = read_regular(path, _LARGEST)
    except TooLarge:
        raise InvalidInput(
            f"{path} is larger than {_LARGEST:,} bytes. Nothing was imported."
        ) from None
    except OSError as error:
        raise NotFound(
            f"{path} cannot be read: {error.strerror or error}. Nothing was imported."
        ) from None
    text = raw.decode("utf-8-sig", "replace")
    try:
        found: Any = orjson.loads(_strict(text))
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"{path} is no JSON ({error}). Nothing was imported.") from None
    servers = _servers_in(found)
    if servers is None:
        raise InvalidInput(
            f'{path} has neither "mcpServers" nor "servers". Name a file such as .mcp.json, '
            "claude_desktop_config.json or .vscode/mcp.json. Nothing was imported."
        )
    folder = path.absolute().parent
    folder = folder.parent if folder.name in (".vscode", ".cursor") else folder
    return [_one(str(name), one, folder) for name, one in servers.items()]


def _strict(text: str) -> str:
    for loose in (_COMMENT, _COMMA):
        text = loose.sub(lambda one: one[0] if one[0][0] == '"' else "", text)
    return text


def _servers_in(found: object) -> dict[str, Any] | None:
    if not isinstance(found, dict):
        return None
    whole = cast("dict[str, Any]", found)
    inner = whole.get("mcp")
    for table in (whole, cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}):
        for key in ("mcpServers", "servers"):
            if isinstance(table.get(key), dict):
                return cast("dict[str, Any]", table[key])
    return None


def _one(given_name: str, given: object, folder: Path) -> Imported:
    name = fitted(given_name)[:32].lstrip("-")
    if not SERVER_NAME.fullmatch(name):
        return Imported(given_name, refused="its name has none of a-z, A-Z and 0-9")
    if not isinstance(given, dict):
        return Imported(name, refused="it is no JSON object")
    server = cast("dict[str, Any]", given)
    kind = str(server.get("type") or server.get("transport") or "")
    if kind == "sse":
        return Imported(
            name, refused="it speaks the old SSE transport; ask for its streamable HTTP address"
        )
    made = _Made(name, folder)
    if kind in _HTTP or (not server.get("command") and server.get("url")):
        made.text("url", server.get("url"))
        made.table_of("headers", server.get("headers"))
    else:
        made.text("command", server.get("command"))
        made.texts("args", server.get("args"))
        made.table_of("env", server.get("env"))
        made.text("cwd", server.get("cwd"))
    if server.get("disabled") is True:
        made.table["enabled"] = False
        made.notes.append("it is off there, and here as well")
    for key in server:
        if key not in _KNOWN:
            made.notes.append(_LEFT_OUT.get(key, f"{key} is not known here and left out"))
    if not made.table.get("url") and not made.table.get("command"):
        return Imported(name, refused="it has neither a command nor a url")
    return Imported(name, made.table, made.secrets, tuple(dict.fromkeys(made.notes)))


class _Made:
    """A server's table in the making."""

    def __init__(self, name: str, folder: Path) -> None:
        self.table: dict[str, Any] = {}
        self.secrets: dict[str, str] = {}
        self.notes: list[str] = []
        self._name = name
        self._folder = folder

    def text(self, key: str, value: object) -> None:
        if isinstance(value, str) and value:
            self.table[key] = self._here(value)

    def texts(self, key: str, value: object) -> None:
        if isinstance(value, list) and value:
            self.table[key] = [self._here(str(one)) for one in cast("list[object]", value)]

    def table_of(self, key: str, value: object) -> None:
        if not isinstance(value, Mapping) or not value:
            return
        found: dict[str, str] = {}
        for name, one in cast("Mapping[str, object]", value).items():
            text = self._here(str(one))
            if looks_secret(name) and text and not _REFERENCE.search(text):
                text = self._hidden(name, text)
            found[name] = text
        self.table[key] = found

    def _hidden(self, name: str, text: str) -> str:
        """Put a secret aside, so that it is stored encrypted and only named in the table."""
        stored = f"mcp.{self._name}.{fitted(name)}"
        before, bearer, rest = text.partition("Bearer ")
        if bearer and not before:
            self.secrets[stored] = rest
            return f"Bearer ${{secret:{stored}}}"
        self.secrets[stored] = text
        return f"secret:{stored}"

    def _here(self, text: str) -> str:
        for asked in _INPUT.findall(text):
            self.notes.append(f'it asks for {asked}: store it with "asterism key set {asked}"')
        text = _INPUT.sub(r"${secret:\1}", text)
        return _FOLDER.sub(lambda _: str(self._folder), text)
