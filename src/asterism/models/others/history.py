"""A request in our wire form, turned into the messages that pydantic-ai hands to a vendor."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import orjson

if TYPE_CHECKING:
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequestPart,
        ModelResponse,
        ModelResponsePart,
        ToolReturnPart,
        UserContent,
    )
    from pydantic_ai.tools import ToolDefinition

    from asterism.ports import ModelRequest

MAX_CACHED_BYTES = 32 << 20
"""Bytes of wire forms whose conversion is kept."""

_Value = TypeVar("_Value")


class UnsupportedContent(Exception):
    """Something in the request cannot be said to this vendor; the message says what to do."""


@dataclass(slots=True)
class _ConvertedMessage:
    """One message, converted."""

    role: str
    request: list[ModelRequestPart] = field(default_factory=list["ModelRequestPart"])
    response: ModelResponse | None = None
    names: dict[str, str] = field(default_factory=dict[str, str])
    """The tools that it calls, by the id of the call."""
    answers: str = ""
    content: str | list[UserContent] = ""
    results: dict[str, ToolReturnPart] = field(default_factory=dict[str, "ToolReturnPart"])
    """What it is as a tool's result, by the tool's name, which only the call tells."""
    links: bool = False
    """Whether it names a picture by its address."""


@dataclass(frozen=True, slots=True)
class ConvertedHistory:
    """All that was said before, converted."""

    messages: list[ModelMessage]
    links: bool
    """Whether pictures are named by their addresses."""
    late: bool
    """Whether the system says something after the beginning, which not every vendor can take."""


class HistoryConverter:
    """Turns wire forms into messages and tools; what was converted once is kept for the next time.

    Kept by the bytes themselves, so that a turn converts what is new in it and no more.
    """

    def __init__(self, most: int = MAX_CACHED_BYTES) -> None:
        self._said: ConversionCache[_ConvertedMessage] = ConversionCache(most)
        self._thoughts: ConversionCache[ModelResponse | None] = ConversionCache(most // 4)
        self._tools: ConversionCache[list[ToolDefinition]] = ConversionCache(most // 4)

    def history(self, request: ModelRequest, by: str) -> ConvertedHistory:
        """Return what was said before; `by` is whose thoughts can be given back."""
        from pydantic_ai.messages import ModelRequest as Asked

        history: list[ModelMessage] = []
        names: dict[str, str] = {}
        links = late = begun = False
        parts: list[ModelRequestPart] = []
        for wire in request.messages:
            said = self._said.get(wire, _convert)
            links = links or said.links
            late = late or (begun and said.role == "system")
            begun = begun or said.role != "system"
            if said.role == "tool":
                parts.append(_result(said, names.get(said.answers, "tool")))
            elif said.role != "assistant":
                parts += said.request
            elif said.response is not None:
                if parts:
                    history.append(Asked(parts))
                    parts = []
                names.update(said.names)
                thought = request.thoughts.get(wire)
                whole = self._recall(thought, by) if thought else None
                history.append(whole or said.response)
        if parts:
            history.append(Asked(parts))
        return ConvertedHistory(history, links, late)

    def tools(self, wire: bytes | None) -> list[ToolDefinition]:
        """Return the descriptions of tools."""
        return self._tools.get(wire, _convert_tools) if wire else []

    def _recall(self, thought: bytes, by: str) -> ModelResponse | None:
        return self._thoughts.get(thought, lambda kept: load_thought(kept, by))


class ConversionCache(Generic[_Value]):
    """What was made of bytes, the least used given up first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._made: OrderedDict[bytes, _Value] = OrderedDict()

    def get(self, wire: bytes, make: Callable[[bytes], _Value]) -> _Value:
        """Return what was made of these bytes, or make it."""
        if wire in self._made:
            self._made.move_to_end(wire)
            return self._made[wire]
        made = make(wire)
        if len(wire) <= self._most:
            self._made[wire] = made
            self._size += len(wire)
        while self._size > self._most:
            self._size -= len(self._made.popitem(last=False)[0])
        return made


def dump_thought(response: ModelResponse, by: str) -> bytes:
    """Return a vendor's own record of a reply as JSON, to be given back while the turn goes on."""
    from dataclasses import replace

    from pydantic_ai.messages import ModelMessagesTypeAdapter
    from pydantic_ai.usage import RequestUsage

    plain = replace(response, usage=RequestUsage(), provider_details=None, metadata=None)
    dumped = ModelMessagesTypeAdapter.dump_json([plain])
    return orjson.dumps({"by": by, "said": orjson.Fragment(dumped)})


def load_thought(thought: bytes, by: str) -> ModelResponse | None:
    """Return the reply that a record tells, or None if it is another's or of another form."""
    from pydantic import ValidationError
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse

    try:
        kept = orjson.loads(thought)
        if kept["by"] != by:
            return None
        (said,) = ModelMessagesTypeAdapter.validate_python(kept["said"])
    except (ValueError, KeyError, TypeError, ValidationError):
        return None
    return said if isinstance(said, ModelResponse) else None


def _convert(wire: bytes) -> _ConvertedMessage:
    from pydantic_ai.messages import SystemPromptPart, UserPromptPart

    message: dict[str, Any] = orjson.loads(wire)
    role: str = message["role"]
    content = message.get("content")
    match role:
        case "assistant":
            return _convert_reply(message)
        case "tool":
            said = _ConvertedMessage(role, answers=message.get("tool_call_id") or "")
            said.content = _content(content, said)
        case "user":
            said = _ConvertedMessage(role)
            said.request = [UserPromptPart(_content(content, said))]
        case _:
            said = _ConvertedMessage("system", request=[SystemPromptPart(_text(content))])
    return said


def _convert_reply(message: dict[str, Any]) -> _ConvertedMessage:
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

    said = _ConvertedMessage("assistant")
    parts: list[ModelResponsePart] = []
    if text := _text(message.get("content")):
        parts.append(TextPart(text))
    for call in message.get("tool_calls") or ():
        function = call["function"]
        said.names[call["id"]] = function["name"]
        parts.append(ToolCallPart(function["name"], function["arguments"], call["id"]))
    said.response = ModelResponse(parts) if parts else None
    return said


def _result(said: _ConvertedMessage, name: str) -> ToolReturnPart:
    from pydantic_ai.messages import ToolReturnPart

    result = said.results.get(name)
    if result is None:
        result = said.results[name] = ToolReturnPart(name, said.content, said.answers)
    return result


def _content(content: Any, said: _ConvertedMessage) -> str | list[UserContent]:
    """Return text as it is, and a list with pictures in it part by part."""
    if not isinstance(content, list):
        return _text(content)
    pieces: list[UserContent] = []
    for table in cast("list[dict[str, Any]]", content):
        match table.get("type"):
            case "text":
                pieces.append(_text(table.get("text")))
            case "image_url":
                pieces.append(_image(table["image_url"]["url"], said))
            case other:
                raise UnsupportedContent(
                    f"a message holds a part of the type {other!r}, and only text and pictures can "
                    "be passed on"
                )
    return pieces


def _image(address: str, said: _ConvertedMessage) -> UserContent:
    from pydantic_ai.messages import BinaryContent, ImageUrl

    if not address.startswith("data:"):
        said.links = True
        return ImageUrl(address)
    try:
        return BinaryContent.from_data_uri(address)
    except ValueError:
        raise UnsupportedContent("a message holds a picture whose data is not in base64") from None


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(map(_text, cast("list[Any]", content)))
    if isinstance(content, dict):
        return _text(cast("dict[str, Any]", content).get("text"))
    return content if isinstance(content, str) else ""


def _convert_tools(wire: bytes) -> list[ToolDefinition]:
    from pydantic_ai.tools import ToolDefinition

    empty = {"type": "object", "properties": dict[str, Any]()}
    return [
        ToolDefinition(
            name=tool["function"]["name"],
            description=tool["function"].get("description"),
            parameters_json_schema=tool["function"].get("parameters") or empty,
        )
        for tool in orjson.loads(wire)
    ]
