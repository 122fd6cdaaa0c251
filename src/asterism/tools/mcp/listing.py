"""Listings: the tools that a server says it has, kept at rest so that they are known before it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson

from asterism.config.settings import McpSettings
from asterism.private import make_directory
from asterism.tools.mcp.naming import fitted

_SHAPE = 1


@dataclass(frozen=True, slots=True)
class Listed:
    """A tool as its server describes it; nothing of it is to be relied on."""

    name: str
    description: str
    schema: dict[str, Any]
    hints: dict[str, bool] = field(default_factory=dict[str, bool])
    """`readOnlyHint` and its like, as far as the server gives them."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server had to offer when it was last asked."""

    tools: tuple[Listed, ...]
    refused: tuple[tuple[str, str], ...]
    """Tools that are not even well formed, each with the reason."""
    at: int
    """When, in milliseconds since 1970."""
    protocol: str
    server: str
    """What the server calls itself."""
    instructions: str = ""


class Shelf:
    """A directory with the last listing of each server."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def read(self, name: str, settings: McpSettings) -> Listing | None:
        """Return what a server offered, unless it is reached otherwise now or never was."""
        try:
            raw: Any = orjson.loads(self._file(name).read_bytes())
            if raw["shape"] != _SHAPE or raw["reached"] != _mark(settings):
                return None
            return Listing(
                tools=tuple(Listed(**one) for one in raw["tools"]),
                refused=tuple((tool, reason) for tool, reason in raw["refused"]),
                at=int(raw["at"]),
                protocol=str(raw["protocol"]),
                server=str(raw["server"]),
                instructions=str(raw["instructions"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None  # it is asked again

    def write(self, name: str, settings: McpSettings, listing: Listing) -> None:
        """Keep a listing; where that fails, the server is asked again the next time."""
        with contextlib.suppress(OSError, TypeError):
            kept = {"shape": _SHAPE, "reached": _mark(settings), **_plain(listing)}
            put(self._file(name), orjson.dumps(kept, option=orjson.OPT_INDENT_2))

    def forget(self, name: str) -> None:
        """Drop what is kept of a server."""
        with contextlib.suppress(OSError):
            self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._place / f"{filed(name)}.json"


def filed(name: str) -> str:
    """Return a name for files: readable, and another for every other name."""
    mark = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{fitted(name)[:40] or 'server'}-{mark}"


def put(file: Path, content: bytes) -> None:
    """Write a file that only its owner reads, at once or not at all."""
    make_directory(file.parent)
    handle, draft = tempfile.mkstemp(dir=file.parent, prefix=".draft-")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
        Path(draft).replace(file)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _mark(settings: McpSettings) -> str:
    # Values of headers and environment may be secrets: only this mark of them is kept.
    spelt = orjson.dumps(settings.reached(), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(spelt).hexdigest()


def _plain(listing: Listing) -> dict[str, Any]:
    return cast("dict[str, Any]", orjson.loads(orjson.dumps(listing)))
