"""The tap: everything that a server sends passes here, before the library reads it.

One tool that is not well formed would make the library refuse the whole list, and it would hold
results against a schema of the server's own, however long that takes. So lists are cleaned here.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self, cast

import orjson

if TYPE_CHECKING:
    from types import TracebackType

    from mcp.client import Transport
    from mcp.shared.message import SessionMessage

_LONGEST_NAME = 256
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")

Node = dict[str, Any]


class Tap:
    """Reads what a server sends, and notes what became of it."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        """Tools of the list that is being read which are not well formed, with the reason."""
        self.garbled = ""
        """What was wrong with the last message that could not be read at all."""
        self.ended: Callable[[], None] = lambda: None
        """Called when the server will send nothing any more."""

    def on(self, transport: Transport) -> Tapped:
        """Return the transport with this tap on it."""
        return Tapped(transport, self)

    def passed(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        """Look at a message, and clean it if it is a list of tools."""
        if isinstance(item, Exception):
            self.garbled = str(item).partition(" [type=")[0]
            return _as_failure(item, self.garbled) or item
        result: Any = getattr(item.message, "result", None)
        if isinstance(result, dict):
            known = cast("Node", result)
            if isinstance(known.get("tools"), list):
                known["tools"] = self._cleaned(cast("list[object]", known["tools"]))
        return item

    def _cleaned(self, tools: list[object]) -> list[Node]:
        kept: list[Node] = []
        for index, one in enumerate(tools):
            found = clean_tool(one)
            if isinstance(found, str):
                self.refused[_name_of(one) or f"(tool {index + 1})"] = found
            else:
                kept.append(found)
        return kept


def clean_tool(one: object) -> Node | str:
    """Return a tool with nothing but what is used of it, or the reason why it cannot be used."""
    if not isinstance(one, dict):
        return "it is no JSON object"
    tool = cast("Node", one)
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        return "it has no name"
    if len(name) > _LONGEST_NAME:
        return f"its name has {len(name):,} characters; the most is {_LONGEST_NAME}"
    schema = tool.get("inputSchema")
    if not isinstance(schema, dict):
        return "it has no inputSchema, or one that is no JSON object"
    known = dict(cast("Node", schema))
    if fault := _fault_of(known):
        return fault
    clean: Node = {"name": name, "inputSchema": {**known, "type": "object"}}
    for key in ("title", "description"):
        if isinstance(tool.get(key), str):
            clean[key] = tool[key]
    try:
        orjson.dumps(clean)
    except TypeError as error:  # a number of many digits, half of a character
        return f"it cannot be kept as JSON ({error})"
    hints = tool.get("annotations")
    if isinstance(hints, dict):
        said = cast("Node", hints)
        clean["annotations"] = {key: said[key] for key in _HINTS if isinstance(said.get(key), bool)}
    return clean


def _fault_of(schema: Node) -> str:
    """Say what the library could not read in a schema, and mend what means nothing."""
    if schema.get("type", "object") != "object":
        return f"its inputSchema has the type {str(schema['type'])[:40]!r}; 'object' is needed"
    if not isinstance(schema.get("$schema", ""), str):
        del schema["$schema"]
    for key in ("properties", "required"):
        if schema.get(key, ...) is None:
            del schema[key]
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        return "the properties of its inputSchema are no JSON object"
    for key, value in cast("Node", properties).items():
        if not isinstance(value, dict | bool):
            return f"its parameter {key[:40]!r} is described by no schema"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(
        isinstance(one, str) for one in cast("list[object]", required)
    ):
        return "what its inputSchema requires is no list of names"
    return ""


def _as_failure(error: Exception, why: str) -> SessionMessage | None:
    """Return an answer that cannot be read as a failure, so that nobody waits for it in vain.

    Such an answer may be nested too deeply; other lines that are no JSON may be anything.
    """
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return None
    line: Any = error.errors(include_url=False)[0].get("input")
    if not isinstance(line, str) or not re.search(r'"(result|error)"\s*:', line):
        return None
    id = re.search(r'"id"\s*:\s*(\d{1,15})\b', line)
    if '"jsonrpc"' not in line or id is None:
        return None
    from mcp.shared.message import SessionMessage
    from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError

    told = ErrorData(code=PARSE_ERROR, message=f"its answer cannot be read ({why[:200]})")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=int(id[1]), error=told))


def _name_of(one: object) -> str:
    name = cast("Node", one).get("name") if isinstance(one, dict) else None
    return name[:_LONGEST_NAME] if isinstance(name, str) else ""


class Tapped:
    """A transport whose incoming messages pass a tap."""

    def __init__(self, transport: Transport, tap: Tap) -> None:
        self._transport = transport
        self._tap = tap

    async def __aenter__(self) -> tuple[Any, Any]:
        incoming, outgoing = await self._transport.__aenter__()
        return _Incoming(incoming, self._tap), outgoing

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._transport.__aexit__(kind, error, trace)


class _Incoming:
    """The stream that the library reads from."""

    def __init__(self, stream: Any, tap: Tap) -> None:
        self._stream = stream
        self._tap = tap

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._tap.passed(await self._noticed(self._stream.receive))

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> AsyncIterator[SessionMessage | Exception]:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._tap.passed(await self._noticed(self._stream.__anext__))

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)

    async def _noticed(self, read: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await read()
        except Exception:  # the end of the stream, in whatever form
            self._tap.ended()
            raise
