"""Trouble with servers: what went wrong, in words that tell what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from asterism.errors import AsterismError
from asterism.tools.mcp.oauth import LoginNeeded, LoginStale, RenewalFailed
from asterism.tools.mcp.results import shortened

if TYPE_CHECKING:
    from asterism.tools.mcp.reach import Reached

_LONGEST = 600
_UNSTARTED = (FileNotFoundError, NotADirectoryError, PermissionError)


class Lost(Exception):
    """The connection went away under a call; `unsent` if the server surely did not act on it."""

    def __init__(self, reason: str, *, unsent: bool) -> None:
        super().__init__(reason)
        self.unsent = unsent


def _inner(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that it holds or comes from, the innermost of a group first."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - of anything
            yield from _inner(one)  # pyright: ignore[reportUnknownArgumentType] - of anything
        return
    yield error
    if error.__cause__ is not None:
        yield from _inner(error.__cause__)


def _code(error: BaseException) -> int | None:
    from mcp.shared.exceptions import MCPError

    return next((one.code for one in _inner(error) if isinstance(one, MCPError)), None)


def is_timeout(error: BaseException) -> bool:
    """Tell whether a server gave no answer in time."""
    import mcp_types

    return isinstance(error, TimeoutError) or _code(error) == mcp_types.REQUEST_TIMEOUT


def is_lost(error: BaseException) -> bool:
    """Tell whether the connection is of no use any more."""
    import anyio
    import mcp_types

    gone = (anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError)
    return _code(error) == mcp_types.CONNECTION_CLOSED or any(
        isinstance(one, gone) for one in _inner(error)
    )


def refused_before(error: BaseException) -> bool:
    """Tell whether a server says that it does not know this session: it did not act on the call."""
    import mcp_types

    # The library's words for a 404 to a request with a session id (mcp 2.3, 2026-11).
    return _code(error) == mcp_types.INVALID_REQUEST and "Session terminated" in str(error)


def wants_person(reached: Reached, error: BaseException) -> bool:
    """Tell whether trying again is of no use until a person has done something about it."""
    from mcp.client.auth import OAuthFlowError

    hopeless = (AsterismError, LoginNeeded, LoginStale, OAuthFlowError, *_UNSTARTED)
    return reached.status in (401, 403) or any(isinstance(one, hopeless) for one in _inner(error))


def told(reached: Reached | None, error: BaseException) -> str:
    """Return what happened, in a clause."""
    found = list(_inner(error))
    for one in found:
        if isinstance(one, AsterismError):
            return one.message
        if isinstance(one, _UNSTARTED):
            return f"{one.filename or 'its program'} cannot be started: {one.strerror or one}"
    for one in found:
        if isinstance(one, LoginStale | RenewalFailed):
            return str(one)
    status = reached.status if reached else 0
    if any(isinstance(one, LoginNeeded) for one in found) or status == 401:
        name = reached.name if reached else "NAME"
        return f'it wants a login; run "asterism mcp login {name}"'
    last = found[0] if found else error
    if is_timeout(last):
        return "it gave no answer in time"
    if reached is not None and status and is_lost(error):
        return f"it answered with HTTP status {status}"
    text = str(last).strip() or type(last).__name__
    return shortened(text, _LONGEST)


def explained(reached: Reached, clause: str) -> str:
    """Return a sentence about a server that cannot be used, with its last words."""
    words = f" Its last words: {' / '.join(list(reached.words)[-3:])}" if reached.words else ""
    garbled = ""
    if not words and reached.tap.garbled:
        garbled = f" What it last sent could not be read: {reached.tap.garbled[:200]}"
    return f"MCP server {reached.name!r} cannot be used: {clause.rstrip('.')}.{words}{garbled}"
