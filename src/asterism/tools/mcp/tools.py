"""Tools of MCP servers: what a server lists, what models call it, and what its results say."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import unicodedata
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism.config.settings import McpSettings
from asterism.errors import InvalidInput, ToolError
from asterism.private import make_directory
from asterism.records import dataclass
from asterism.times import Moment
from asterism.tools.schema import SchemaTool
from asterism.tools.tool import ToolContext
from asterism.types.agents import Trust
from asterism.types.permissions import EffectKind, ToolEffect
from asterism.types.turns import RetrySafety

if TYPE_CHECKING:
    import mcp_types

# -- names -----------------------------------------------------------------------------------------

MAX_NAME = 64
_INVALID_CHARACTERS = re.compile(r"[^a-zA-Z0-9_-]+")
_HASH_LENGTH = 8


def safe_name(name: str) -> str:
    """Return a name with everything replaced that a vendor would refuse; it may be empty."""
    return _INVALID_CHARACTERS.sub("_", name).strip("_")


def model_name(prefix: str, tool: str) -> str:
    """Return what models call a tool; empty if nothing of its own name can be kept.

    A name that is too long keeps its beginning and ends with a mark made of the whole, so that it
    stays the same from one day to the next and differs from its neighbours.
    """
    own = safe_name(tool)
    if not own:
        return ""
    # "git_add" of the server "git" says already whose it is.
    prefixed = not prefix or own.casefold().startswith(f"{prefix}_".casefold())
    whole = own if prefixed else f"{prefix}_{own}"
    if len(whole) <= MAX_NAME:
        return whole
    mark = hashlib.sha256(f"{prefix}\n{tool}".encode("utf-8", "replace")).hexdigest()[:_HASH_LENGTH]
    return f"{whole[: MAX_NAME - _HASH_LENGTH - 1]}_{mark}"


def model_names(prefix: str, tools: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names of tools that can be offered, and the reasons for those that cannot.

    Of several that would be called the same, the one that needed no change keeps the name.
    """
    names: dict[str, str] = {}
    refused: dict[str, str] = {}
    unique = list(dict.fromkeys(tools))
    taken: dict[str, str] = {}
    for tool in sorted(unique, key=lambda name: safe_name(name) != name):
        name = model_name(prefix, tool)
        if not name:
            refused[tool] = "its name has none of the characters that a tool's name may have"
        elif name in taken:
            refused[tool] = f"it would be called {name}, as {taken[name]!r} is"
        else:
            taken[name] = tool
            names[tool] = name
    return {tool: names[tool] for tool in unique if tool in names}, refused


# -- what a server lists ---------------------------------------------------------------------------

_VERSION = 1


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its server describes it; nothing of it is to be relied on."""

    name: str
    description: str
    schema: dict[str, Any]
    hints: dict[str, bool] = field(default_factory=dict[str, bool])
    """`readOnlyHint` and its like, as far as the server gives them."""


@dataclass(frozen=True, slots=True)
class ToolListing:
    """What a server had to offer when it was last asked."""

    tools: tuple[ListedTool, ...]
    refused: tuple[tuple[str, str], ...]
    """Tools that are not even well formed, each with the reason."""
    at_ms: int
    """When it was asked."""
    protocol: str
    server: str
    """What the server calls itself."""
    instructions: str = ""

    at = Moment()


class ListingCache:
    """A directory with the last listing of each server."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def read(self, name: str, settings: McpSettings) -> ToolListing | None:
        """Return what a server offered, unless it is reached otherwise now or never was."""
        try:
            raw: Any = orjson.loads(self._file(name).read_bytes())
            if raw["shape"] != _VERSION or raw["reached"] != _settings_hash(settings):
                return None
            return ToolListing(
                tools=tuple(ListedTool(**row) for row in raw["tools"]),
                refused=tuple((tool, reason) for tool, reason in raw["refused"]),
                at_ms=int(raw["at_ms"]),
                protocol=str(raw["protocol"]),
                server=str(raw["server"]),
                instructions=str(raw["instructions"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None  # it is asked again

    def write(self, name: str, settings: McpSettings, listing: ToolListing) -> None:
        """Keep a listing; where that fails, the server is asked again the next time."""
        with contextlib.suppress(OSError, TypeError):
            content = {"shape": _VERSION, "reached": _settings_hash(settings), **_as_json(listing)}
            write_private(self._file(name), orjson.dumps(content, option=orjson.OPT_INDENT_2))

    def forget(self, name: str) -> None:
        """Drop what is kept of a server."""
        with contextlib.suppress(OSError):
            self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._place / f"{file_name(name)}.json"


def file_name(name: str) -> str:
    """Return a name for files: readable, and another for every other name."""
    mark = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{safe_name(name)[:40] or 'server'}-{mark}"


def write_private(file: Path, content: bytes) -> None:
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


def _settings_hash(settings: McpSettings) -> str:
    # Values of headers and environment may be secrets: only this mark of them is kept.
    spelt = orjson.dumps(settings.reached(), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(spelt).hexdigest()


def _as_json(listing: ToolListing) -> dict[str, Any]:
    return cast("dict[str, Any]", orjson.loads(orjson.dumps(listing)))


# -- results ---------------------------------------------------------------------------------------

MAX_RESULT = 50_000
"""Characters of a result that a model is given."""
_MAX_PARTS = 200


def result_text(name: str, result: mcp_types.CallToolResult) -> str:
    """Return a result as text; raise `ToolError` with the server's words if the call failed."""
    parts = [_part_text(part) for part in result.content[:_MAX_PARTS]]
    if len(result.content) > _MAX_PARTS:
        parts.append(f"({len(result.content) - _MAX_PARTS:,} more parts are not shown.)")
    texts = [part for part in parts if part]
    structured = result.structured_content
    if structured is not None and not any(_is_same_json(text, structured) for text in texts):
        texts.append(_json(structured))
    whole = shortened("\n\n".join(texts))
    if result.is_error:
        raise ToolError(whole or f"{name} failed without saying why.")
    return whole or "Done; there was nothing to report."


def shortened(text: str, max_length: int = MAX_RESULT) -> str:
    """Return a text that a model can be given, with a note of what was left out."""
    if len(text) <= max_length:
        return text
    note = f"(Cut: the first {max_length:,} of {len(text):,} characters are shown.)"
    return f"{text[:max_length]}\n{note}"


def _part_text(part: mcp_types.ContentBlock) -> str:
    match part.type:
        case "text":
            return part.text
        case "image" | "audio":
            size = len(part.data) * 3 // 4
            return f"[{part.type} {part.mime_type}, {size:,} bytes, which cannot be shown here]"
        case "resource_link":
            about = f": {part.description}" if part.description else ""
            kind = f", {part.mime_type}" if part.mime_type else ""
            return f"[resource {part.uri}{kind}{about}]"
        case "resource":
            return _resource_text(part.resource)


def _resource_text(resource: Any) -> str:
    text = getattr(resource, "text", None)
    if isinstance(text, str):
        return f"[resource {resource.uri}]\n{text}"
    size = len(getattr(resource, "blob", "")) * 3 // 4
    kind = resource.mime_type or "of an unknown kind"
    return f"[resource {resource.uri}, {kind}, {size:,} bytes, which cannot be shown here]"


def _is_same_json(text: str, structured: Any) -> bool:
    """Tell whether a text is the structured content, which servers repeat for old clients."""
    if text[:1] not in '{["tfn-0123456789':
        return False
    try:
        return bool(orjson.loads(text) == structured)
    except orjson.JSONDecodeError:
        return False


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()


# -- which of them agents are given ----------------------------------------------------------------

MAX_TOOLS = 256
"""Tools of one server; each request to a model carries the descriptions of all."""

_MAX_DESCRIPTION = 20_000
_EXCLUDED = "allow and deny leave it out"

SendCall = Callable[[ListedTool, ToolContext, dict[str, Any], bool], Awaitable[str]]
"""Carries out a call of a tool; the last says whether it may safely be sent twice."""


@dataclass(frozen=True, slots=True)
class McpTool:
    """One tool of a server: offered under a name, or not, for a reason."""

    own_name: str
    """What the server calls it."""
    name: str = ""
    """What models call it."""
    refused: str = ""
    tool: SchemaTool | None = None

    @property
    def excluded(self) -> bool:
        """Whether it is the owner who does not want it."""
        return self.refused == _EXCLUDED


def make_tools(
    name: str, settings: McpSettings, listing: ToolListing, carry: SendCall
) -> list[McpTool]:
    """Return what becomes of each tool that a server listed, in its order."""
    mcp_tools: list[McpTool] = []
    wanted = [tool for tool in listing.tools if _is_wanted(settings, tool.name)]
    prefix = safe_name(name)[:32] if settings.prefix is None else settings.prefix
    names, unnamed = model_names(prefix, (tool.name for tool in wanted))
    seen: set[str] = set()
    count = 0
    for tool in listing.tools:
        if tool.name in seen:
            mcp_tools.append(McpTool(tool.name, refused="the server lists it twice"))
        elif not _is_wanted(settings, tool.name):
            mcp_tools.append(McpTool(tool.name, refused=_EXCLUDED))
        elif tool.name in unnamed:
            mcp_tools.append(McpTool(tool.name, refused=unnamed[tool.name]))
        elif count >= MAX_TOOLS:
            mcp_tools.append(
                McpTool(tool.name, refused=f"only {MAX_TOOLS} tools of one server are offered")
            )
        else:
            offer = _make_tool(names[tool.name], settings, tool, carry)
            count += offer.tool is not None
            mcp_tools.append(offer)
        seen.add(tool.name)
    return mcp_tools + [McpTool(own, refused=reason) for own, reason in listing.refused]


def _is_wanted(settings: McpSettings, tool: str) -> bool:
    allowed = not settings.allow or any(fnmatchcase(tool, pattern) for pattern in settings.allow)
    return allowed and not any(fnmatchcase(tool, pattern) for pattern in settings.deny)


def _make_tool(name: str, settings: McpSettings, listed: ListedTool, carry: SendCall) -> McpTool:
    tool_settings = settings.of(listed.name)
    retry_safety = (
        RetrySafety(tool_settings.retry_safety)
        if tool_settings.retry_safety
        else _hinted_retry_safety(settings, listed)
    )
    again = retry_safety is RetrySafety.REPEATABLE

    async def call(ctx: ToolContext, arguments: dict[str, Any]) -> str:
        return await carry(listed, ctx, arguments, again)

    try:
        tool = SchemaTool(
            name,
            visible_text(listed.description[:_MAX_DESCRIPTION])
            or f"The tool {visible_text(listed.name)!r}.",
            listed.schema,
            call,
            retry_safety=retry_safety,
            trust=Trust(tool_settings.trust or settings.trust or _usual_trust(listed)),
            effects=tool_settings.effects.effects
            if tool_settings.effects
            else hinted_effects(settings, listed),
            timeout=tool_settings.timeout or settings.timeout,
            ask=settings.ask if tool_settings.ask is None else tool_settings.ask,
            audience=tool_settings.audience or settings.audience,
            definition=[listed.name, listed.description, listed.hints],
        )
    except InvalidInput as error:
        return McpTool(listed.name, refused=error.message)
    return McpTool(listed.name, name, tool=tool)


def hinted_effects(settings: McpSettings, tool: ListedTool) -> ToolEffect | None:
    """Return what a tool does by its server's word, which counts if the owner trusts the server.

    Without that word, or that trust, it is not known what it does: it might do anything.
    """
    if not settings.trust_annotations or "readOnlyHint" not in tool.hints:
        return None
    arguments = tuple(tool.schema.get("properties") or ())
    if tool.hints["readOnlyHint"]:
        if tool.hints.get("openWorldHint", True):
            return ToolEffect(EffectKind.FETCH, hosts=arguments)
        return ToolEffect(EffectKind.READ, things=arguments)
    if tool.hints.get("destructiveHint", True):
        return ToolEffect(EffectKind.DELETE, things=arguments)
    return ToolEffect(EffectKind.WRITE, things=arguments)


def _hinted_retry_safety(settings: McpSettings, tool: ListedTool) -> RetrySafety:
    safe = tool.hints.get("readOnlyHint", False) or tool.hints.get("idempotentHint", False)
    return RetrySafety.REPEATABLE if settings.trust_annotations and safe else RetrySafety.UNKNOWN


def _usual_trust(tool: ListedTool) -> str:
    # Whose words a server passes on is not known: a mailbox holds anybody's.
    del tool
    return Trust.WEB.value


def visible_text(text: str) -> str:
    """Return a text without characters that a person who reads it would not see.

    A description is read by models as their owner's; what the owner cannot see in it, such as
    Unicode tags, has no place there.
    """
    return "".join(
        char
        for char in text
        if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Co", "Cn", "Cs")
    ).strip()
