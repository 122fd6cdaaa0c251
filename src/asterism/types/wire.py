"""Wire forms: messages as chat-completions JSON, the bytes that are stored and sent."""

from __future__ import annotations

from typing import Any

import orjson


def message_wire(role: str, text: str) -> bytes:
    """Return the wire form of a plain message."""
    return orjson.dumps({"role": role, "content": text})


def result_wire(call_id: str, text: str) -> bytes:
    """Return the wire form of a call's result."""
    return orjson.dumps({"role": "tool", "tool_call_id": call_id, "content": text})


def plain(text: str) -> str:
    """Return text that every store can keep: PostgreSQL takes no NUL characters."""
    return text.replace("\x00", "\ufffd") if "\x00" in text else text


def text_of(body: bytes) -> str:
    """Return the text of a message's wire form."""
    message: dict[str, Any] = orjson.loads(body)
    content: Any = message.get("content")
    return content if isinstance(content, str) else ""
