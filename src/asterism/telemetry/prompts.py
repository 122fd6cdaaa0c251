"""Requests to models without known keys, whatever they are composed of.

Messages, results and replies are cleaned before they are recorded. What reaches a prompt another
way, such as a block, a system prompt or a message from before a key was stored, is cleaned here.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, cast

import orjson

from asterism.ports import ModelRequest
from asterism.telemetry.redaction import KNOWN, redact, redact_json

_MOST = 64 << 20
"""How many bytes of messages are kept beside what became of them."""
_PICTURE = re.compile(r"data:[\w/+.-]+;base64,[A-Za-z0-9+/=]{1000,}")
_FIXED = frozenset({"role", "type", "url"})
"""Members that hold no words of anybody."""
_NAMES = frozenset({"id", "tool_call_id", "name"})
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")


class Cleaned(dict[bytes, bytes]):
    """Wire forms and what they are without keys; most stay the very same bytes.

    A past is sent again with every request, so that each message of it is looked through once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._size = 0
        self._known: object = None

    def request(self, request: ModelRequest) -> ModelRequest:
        """Return a request without known keys; the very same one if it holds none."""
        if self._known is not KNOWN.order or self._size > _MOST:
            # Another key is known by now.
            self.clear()
            self._known, self._size = KNOWN.order, 0
        messages = [self[one] for one in request.messages]
        tools = request.tools if request.tools is None else self[request.tools]
        if tools is request.tools and all(
            new is old for new, old in zip(messages, request.messages, strict=True)
        ):
            return request
        return replace(request, messages=messages, tools=tools)

    def __missing__(self, wire: bytes) -> bytes:
        self._size += len(wire)
        text = wire.decode()
        # Pictures are large, and hold no keys that anybody could read.
        words = _PICTURE.sub("", text) if len(text) > 1000 else text
        clean = wire
        if redact(words) is not words:
            changed = orjson.dumps(_in_wire(orjson.loads(wire), ""))
            clean = wire if changed == wire else changed
        self[wire] = clean
        return clean


def clean_name(name: str) -> str:
    """Return an id or a name without known keys, made of signs that every vendor takes."""
    changed = redact(name)
    return name if changed is name else _NO_NAME.sub("_", changed).strip("_")


def _in_wire(value: Any, name: str) -> Any:
    if isinstance(value, str):
        if name in _FIXED:
            return value
        if name in _NAMES:
            return clean_name(value)
        return redact_json(value) if name == "arguments" else redact(value)
    if isinstance(value, list):
        return [_in_wire(one, name) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: _in_wire(one, key) for key, one in items}
    return value
