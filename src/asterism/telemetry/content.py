"""Content in the form of the GenAI conventions, for those who have asked to have it in spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from asterism.telemetry.redaction import redact

if TYPE_CHECKING:
    from asterism.types.turns import Reply

_LARGEST = 256 * 1024
"""Bytes of messages in one span: what is older is left out, since collectors refuse large spans."""


def input_messages(wires: Sequence[bytes]) -> tuple[str, int]:
    """Return the latest messages that fit as JSON, and how many older ones were left out."""
    room = _LARGEST
    chosen: list[bytes] = []
    for wire in reversed(wires):
        message = orjson.dumps(_message(orjson.loads(wire)))
        room -= len(message)
        if room < 0:
            break
        chosen.append(message)
    told = f"[{b','.join(reversed(chosen)).decode()}]"
    return redact(told), len(wires) - len(chosen)


def output_messages(reply: Reply) -> str:
    """Return a reply as JSON."""
    parts: list[dict[str, Any]] = []
    if reply.reasoning:
        parts.append({"type": "reasoning", "content": reply.reasoning})
    if reply.text:
        parts.append({"type": "text", "content": reply.text})
    parts += [_call(call.id, call.name, call.arguments) for call in reply.calls]
    message = {"role": "assistant", "parts": parts, "finish_reason": reply.finish}
    return redact(orjson.dumps([message]).decode())


def text_message(role: str, text: str) -> str:
    """Return one message of plain text as JSON."""
    told = [{"role": role, "parts": [{"type": "text", "content": text}]}]
    return redact(orjson.dumps(told).decode())


def _message(wire: dict[str, Any]) -> dict[str, Any]:
    role: str = wire.get("role", "")
    content: Any = wire.get("content")
    if role == "tool":
        answer = {
            "type": "tool_call_response",
            "id": wire.get("tool_call_id"),
            "response": content,
        }
        return {"role": role, "parts": [answer]}
    parts: list[dict[str, Any]] = []
    if isinstance(content, str) and content:
        parts.append({"type": "text", "content": content})
    elif isinstance(content, list):
        parts += map(_part, content)  # pyright: ignore[reportUnknownArgumentType] - it is JSON
    for call in wire.get("tool_calls") or ():
        parts.append(_call(call["id"], call["function"]["name"], call["function"]["arguments"]))
    return {"role": role, "parts": parts}


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") == "text":
        return {"type": "text", "content": part.get("text", "")}
    image: dict[str, Any] = part.get("image_url") or {}
    address = str(image.get("url", ""))
    if address.startswith("data:"):
        kind = address[5:].partition(";")[0]
        return {"type": "blob", "modality": "image", "mime_type": kind, "content": ""}
    return {"type": "uri", "modality": "image", "uri": address}


def _call(id: str, name: str, arguments: str) -> dict[str, Any]:
    try:
        read: Any = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        read = arguments
    return {"type": "tool_call", "id": id, "name": name, "arguments": read}
