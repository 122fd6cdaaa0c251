"""Values in a server's settings that name a stored secret or a variable of the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Mapping

from asterism.errors import ToolError
from asterism.telemetry.redaction import add_secret

Secret = Callable[[str], Awaitable[str | None]]
"""Returns a stored secret by its name."""

_NAMED = re.compile(r"\$\{(?P<name>secret:\w[\w.:/@-]*|(?:env:)?\w+)(?::-(?P<otherwise>[^}]*))?\}")
_WHOLE = re.compile(r"secret:(?P<name>\w[\w.:/@-]*)")
_LOOKS_SECRET = re.compile(r"(?i)auth|cookie|credential|key|pass|secret|token")


def looks_secret(name: str) -> bool:
    """Tell whether a variable or a header of this name is likely to hold a secret."""
    return _LOOKS_SECRET.search(name) is not None


async def filled(
    server: str, where: str, text: str, secret: Secret, environ: Mapping[str, str] | None = None
) -> str:
    """Return a text with what it names put in: `secret:NAME`, `${secret:NAME}`, `${NAME}`."""
    variables = os.environ if environ is None else environ
    if whole := _WHOLE.fullmatch(text):
        return await _stored(server, where, whole["name"], secret)
    parts: list[str] = []
    end = 0
    for found in _NAMED.finditer(text):
        parts.append(text[end : found.start()])
        end = found.end()
        name = found["name"]
        if name.startswith("secret:"):
            parts.append(await _stored(server, where, name.removeprefix("secret:"), secret))
            continue
        name = name.removeprefix("env:")
        value = variables.get(name) or found["otherwise"]
        if value is None:
            raise ToolError(
                f"{where} of MCP server {server!r} names the variable {name}, which is not set. "
                f'Set it, or store it with "asterism key set {name}" and write '
                f"${{secret:{name}}}. The server was not started."
            )
        parts.append(value)
    return "".join((*parts, text[end:]))


async def all_filled(
    server: str, where: str, values: Mapping[str, str], secret: Secret
) -> dict[str, str]:
    """Return a table with what its values name put in."""
    found: dict[str, str] = {}
    for key, value in values.items():
        found[key] = await filled(server, f"{where}.{key}", value, secret)
        if looks_secret(key):
            add_secret(f"mcp {server} {key}", found[key].removeprefix("Bearer "))
    return found


async def _stored(server: str, where: str, name: str, secret: Secret) -> str:
    value = await secret(name)
    if value is None:
        raise ToolError(
            f"{where} of MCP server {server!r} names the secret {name}, which is not stored. "
            f'Store it with "asterism key set {name}". The server was not started.'
        )
    return value
