"""Taking a text out of what holds it: plain text, JSON, wire forms, any bytes."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, cast

import orjson

from asterism.memory.forgetting.needle import Seeker, fold_bytes, merged, spans

FORGOTTEN = "[forgotten]"

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_URL_SAFE = str.maketrans("-_", "+/")
_NESTED = ("{", "[", '"')
_OWN_WORD = re.compile(r"[a-z]+_[0-9a-f]{24}|asterism:blob/[0-9a-f]{64}")

Shape = frozenset[str]
"""Of JSON whose form is our own: the names of fields that hold no words of people. Its names and
numbers stay as they are; in JSON of others, everything may be such words."""

WIRE: Shape = frozenset({"role", "type", "id", "tool_call_id", "name"})


def same_length(text: str) -> str:
    """Return what stands in the place of a text where nothing may move."""
    return "".join(one if one.isspace() else "*" for one in text)


class Redactor:
    """Takes what is looked for out of one thing after the other, and counts how often."""

    def __init__(self, seeker: Seeker) -> None:
        self.seeker = seeker
        self.found = 0
        """How many times it was found so far."""

    # -- text ----------------------------------------------------------------------------------

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return where it is in a text, also when a run of Base64 holds it."""
        found = spans(self.seeker, text)
        if len(text) >= 16:
            found += [run.span() for run in _BASE64.finditer(text) if self._in_base64(run[0])]
        return merged(found)

    def _in_base64(self, run: str) -> bool:
        run = run.rstrip("=").translate(_URL_SAFE)
        run = run[: len(run) - (len(run) % 4 == 1)]
        try:
            return self.in_bytes(base64.b64decode(run + "=" * (-len(run) % 4)))
        except binascii.Error:
            return False

    def text(self, text: str, put: Callable[[str], str] = lambda _: FORGOTTEN) -> str:
        """Return a text without it; the very same text if it is not there."""
        parts: list[str] = []
        at = 0
        for start, end in self.spans(text):
            parts += [text[at:start], put(text[start:end])]
            at = end
            self.found += 1
        return "".join([*parts, text[at:]]) if parts else text

    # -- JSON ----------------------------------------------------------------------------------

    def value(self, value: Any, shape: Shape | None = None) -> Any:
        """Return a JSON value without it; the very same value if it is not there."""
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, list):
            items = cast("list[Any]", value)
            changed = [self.value(item, shape) for item in items]
            same = all(new is old for new, old in zip(changed, items, strict=True))
            return cast("Any", value) if same else changed
        if isinstance(value, dict):
            return self._fields(cast("dict[str, Any]", value), shape)
        if shape is None and isinstance(value, int | float) and not isinstance(value, bool):
            # A telephone number may be written as a number; digits inside of others mean nothing.
            text = str(value)
            if spans(self.seeker, text) == [(0, len(text))]:
                self.found += 1
                return FORGOTTEN
        return value

    def _fields(self, fields: dict[str, Any], shape: Shape | None) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        same = True
        for name, item in fields.items():
            fixed = shape is not None and name in shape and isinstance(item, str)
            put = item if fixed else self.value(item, shape)
            key = name if shape is not None else self.text(name)
            same = same and put is item and key is name
            changed[key] = put
        return fields if same else changed

    def _string(self, text: str) -> str:
        if _OWN_WORD.fullmatch(text):
            return text
        if text.startswith(_NESTED):
            try:
                nested = orjson.loads(text)
            except orjson.JSONDecodeError:
                return self.text(text)
            changed = self.value(nested)
            return text if changed is nested else orjson.dumps(changed).decode()
        return self.text(text)

    def json(self, text: str, shape: Shape | None = None) -> str:
        """Return JSON as text without it; what is no JSON is taken as plain text."""
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            return self.text(text)
        changed = self.value(value, shape)
        return text if changed is value else orjson.dumps(changed).decode()

    def wire(self, body: bytes) -> bytes:
        """Return a wire form (or text) as bytes without it."""
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return FORGOTTEN.encode() if self.counted_in_bytes(body) else body
        changed = self.json(text, WIRE)
        return body if changed is text else changed.encode()

    # -- bytes ---------------------------------------------------------------------------------

    def in_bytes(self, body: bytes) -> bool:
        """Tell whether any bytes hold it, as UTF-8 or as UTF-16."""
        seeker = self.seeker
        if seeker.plain:
            forms = (body, body[::2], body[1::2]) if b"\0" in body else (body,)
            return any(seeker.find_bytes(fold_bytes(form)) for form in forms)
        texts = [body.decode("utf-8", "replace")]
        if b"\0" in body:
            forms = (body, body[1:])
            texts += [form.decode("utf-16-le", "replace") for form in forms]
            texts += [form.decode("utf-16-be", "replace") for form in forms]
        return any(spans(seeker, text) for text in texts)

    def counted_in_bytes(self, body: bytes) -> bool:
        """Tell whether any bytes hold it, and count them if they do."""
        held = self.in_bytes(body)
        self.found += held
        return held
