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
_BREAK = re.compile(r"(?:[ \t]*\r?\n[ \t>]*|\\+[rn])+")
_BASE64_LINES = re.compile(
    r"[A-Za-z0-9+/_-]{4,}(?:(?:[ \t]*\r?\n[ \t>]*|\\+[rn])+[A-Za-z0-9+/_-]{2,})+={0,2}"
)
"""Base64 as it stands in letters and in the output of `base64`: in lines."""
_MOST_SHIFTED = 1 << 20
_HEX = re.compile(
    r"[0-9a-fA-F]{2}"
    r"(?:(?:[ \t:,-]{1,2}|[ \t]*\r?\n[ \t]*|\\+[rn])?(?:0[xX]|\\+x|\\+u00)?[0-9a-fA-F]{2}){3,}"
)
_NO_HEX = re.compile(r"0[xX]|\\+u00|[^0-9a-fA-F]+")
_DIGESTS = frozenset({32, 40, 56, 64, 96, 128})
"""How many digits a digest has: there are many, and what is no text is not looked through."""
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


def _last(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the last number that holds, where the first does and none after one that does not."""
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


class Redactor:
    """Takes what is looked for out of one thing after the other, and counts how often."""

    def __init__(self, seeker: Seeker) -> None:
        self.seeker = seeker
        self.found = 0
        """How many times it was found so far."""

    # -- text ----------------------------------------------------------------------------------

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return where it is in a text, also when a run of Base64 or hexadecimal holds it."""
        found = spans(self.seeker, text)
        found += [run.span() for run in _HEX.finditer(text) if self._in_hex(run[0])]
        if len(text) >= 16:
            found += [run.span() for run in _BASE64.finditer(text) if self._in_base64(run[0])]
            for run in _BASE64_LINES.finditer(text):
                found += self._in_lines(run[0], run.start())
        return merged(found)

    def _in_base64(self, run: str) -> bool:
        run = run.rstrip("=").translate(_URL_SAFE)
        # A word in front of it may look like a part of it; a large one begins where it begins.
        for shift in range(4 if len(run) < _MOST_SHIFTED else 1):
            part = run[shift:]
            part = part[: len(part) - (len(part) % 4 == 1)]
            try:
                if self.in_bytes(base64.b64decode(part + "=" * (-len(part) % 4))):
                    return True
            except binascii.Error:
                continue
        return False

    def _in_lines(self, run: str, at: int) -> list[tuple[int, int]]:
        """Return which lines of Base64 hold it: as few as do, since others may be no part of it."""
        breaks = [one.span() for one in _BREAK.finditer(run)]
        starts = [0, *(end for _, end in breaks)]
        ends = [*(start for start, _ in breaks), len(run)]

        def holds(first: int, last: int) -> bool:
            lines = zip(starts[first:last], ends[first:last], strict=True)
            return self._in_base64("".join(run[start:end] for start, end in lines))

        found: list[tuple[int, int]] = []
        end = len(starts)
        while end > 0 and holds(0, end):
            first = _last(0, end - 1, lambda one, end=end: holds(one, end))
            spare = _last(
                0, end - first - 1, lambda one, first=first, end=end: holds(first, end - one)
            )
            last = end - spare
            found.append((at + starts[first], at + ends[last - 1]))
            end = first + 1 if last > first + 1 else first
        return found

    def _in_hex(self, run: str) -> bool:
        digits = _NO_HEX.sub("", run)
        digits = digits[: len(digits) & ~1]
        try:
            text = bytes.fromhex(digits).decode(
                "utf-8", "strict" if len(digits) in _DIGESTS else "replace"
            )
        except UnicodeDecodeError:
            return False
        return bool(spans(self.seeker, text))

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
