"""One message as Anthropic's content blocks, made from its chat-completions wire form."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import orjson

from asterism.models.http.trouble import shorten

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_DATA_URL = re.compile(r"data:([\w.+/-]+);base64,(.*)", re.DOTALL)
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_MAX_NAME = 128


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call: its block is `tool_use_block(id, rest)`."""

    id: str
    """As the wire form has it; not necessarily unique."""
    safe_id: str
    """The same in the characters that an id may have."""
    name: str
    rest: bytes
    """The block after its id."""


@dataclass(frozen=True, slots=True)
class ConvertedMessage:
    """What one message adds to a conversation."""

    role: str
    """`system`, `user`, `assistant`, or `tool` for the result of a call."""
    blocks: tuple[bytes, ...]
    """Its blocks; those of a result are what to say if nobody asked for it."""
    uses: tuple[ToolUse, ...] = ()
    call_id: str = ""
    """The id of the call that a result belongs to."""
    rest: bytes = b""
    """A result's block after that id."""


def convert_message(wire: bytes) -> ConvertedMessage:
    """Return what a chat-completions message adds to a conversation."""
    message: dict[str, Any] = orjson.loads(wire)
    role, content = message.get("role"), message.get("content")
    if role == "assistant":
        uses = tuple(_tool_use(call) for call in message.get("tool_calls") or ())
        return ConvertedMessage("assistant", _blocks(content, _text_only), uses)
    if role == "tool":
        blocks = _blocks(content, _part)
        told = text_block("[asterism] The result of a call that is no longer shown:")
        rest = b',"content":[%b]}' % b",".join(blocks) if blocks else b"}"
        return ConvertedMessage(
            "tool", (*told, *blocks), call_id=str(message.get("tool_call_id") or ""), rest=rest
        )
    if role == "user":
        return ConvertedMessage("user", _blocks(content, _part))
    return ConvertedMessage("system", _blocks(content, _text_only))


def text_block(text: str) -> tuple[bytes, ...]:
    """Return a block of text, or none: the API takes no text that is empty or only white space."""
    return (orjson.dumps({"type": "text", "text": text}),) if text.strip() else ()


def tool_use_block(id: str, rest: bytes) -> bytes:
    """Return the block of a tool call."""
    return b'{"type":"tool_use","id":"%b"%b' % (id.encode(), rest)


def tool_result_block(id: str, rest: bytes) -> bytes:
    """Return the block of a call's result."""
    return b'{"type":"tool_result","tool_use_id":"%b"%b' % (id.encode(), rest)


def _blocks(content: Any, read: Callable[[dict[str, Any]], tuple[bytes, ...]]) -> tuple[bytes, ...]:
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        return tuple(block for part in parts for block in read(_as_table(part)))
    return text_block(content) if isinstance(content, str) else ()


def _text_only(part: dict[str, Any]) -> tuple[bytes, ...]:
    return text_block(str(part.get("text") or part.get("refusal") or ""))


def _part(part: dict[str, Any]) -> tuple[bytes, ...]:
    """Return a part of a message's content: text, an image, a document, or a word instead of it."""
    kind = part.get("type")
    if kind == "text":
        return text_block(str(part.get("text") or ""))
    if kind == "image_url":
        return _sourced("image", str(_as_table(part.get("image_url")).get("url") or ""), _IMAGES)
    if kind == "file":
        data = str(_as_table(part.get("file")).get("file_data") or "")
        return _sourced("document", data, frozenset({"application/pdf"}))
    return text_block(f"[asterism] Here was a part of the kind {kind!r}, which cannot be shown.")


def _sourced(kind: str, url: str, types: frozenset[str]) -> tuple[bytes, ...]:
    source: dict[str, str]
    if url.startswith(("https://", "http://")):
        source = {"type": "url", "url": url}
    elif (match := _DATA_URL.match(url)) and match[1] in types:
        source = {"type": "base64", "media_type": match[1], "data": match[2]}
    else:
        what = match[1] if match else shorten(url, 40) or "empty"
        return text_block(
            f"[asterism] Here was an attachment ({what}), which cannot be shown; it would have to "
            f"be {' or '.join(sorted(types))}."
        )
    return (orjson.dumps({"type": kind, "source": source}),)


def _tool_use(call: dict[str, Any]) -> ToolUse:
    function = _as_table(call.get("function"))
    id, name = str(call.get("id") or ""), str(function.get("name") or "")
    # Hallucinated names are part of the past as well, and the API checks names there too.
    name = _NOT_IN_NAMES.sub("_", name)[:_MAX_NAME] or "unnamed"
    rest = b',"name":"%b","input":%b}' % (name.encode(), _input(function.get("arguments")))
    return ToolUse(id, _NOT_IN_NAMES.sub("_", id) or "call", name, rest)


def _as_table(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return {"type": "text", "text": value, "url": value} if isinstance(value, str) else {}


def _input(arguments: Any) -> bytes:
    """Return a call's arguments as a JSON object, which the API wants them to be."""
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
    try:
        if isinstance(orjson.loads(text or "{}"), dict):
            return text.encode() or b"{}"
    except orjson.JSONDecodeError:
        pass
    return orjson.dumps({"malformed_arguments": text})
