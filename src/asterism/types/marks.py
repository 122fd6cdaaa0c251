"""The mark of the system's own notices, and how it is kept out of everybody else's texts."""

from __future__ import annotations

import re
import unicodedata
from typing import Any, cast

import orjson

MARK = "[asterism]"
"""What a message that comes from the system begins with."""
_NOT_OURS = "[not asterism]"
_WORD = "asterism"
_OPENING = (
    "[\uff3b\u2045\u2772\u3014\u298b\u298d\u298f\u27e6\u301a\u3010\u2308\u230a\u23a1\u23a3"
    "\ufe5d\ufe39\ufe3b\u300c\u300e\uff62\u2e22\u2e24\u27ec\u2e55\u2e57"
)
_CLOSING = (
    "]\uff3d\u2046\u2773\u3015\u298c\u298e\u2990\u27e7\u301b\u3011\u2309\u230b\u23a4\u23a6"
    "\ufe5e\ufe3a\ufe3c\u300d\u300f\uff63\u2e23\u2e25\u27ed\u2e56\u2e58"
)
_BETWEEN = f"[^{re.escape(_OPENING + _CLOSING)}]"
_BRACKETED = re.compile(
    f"[{re.escape(_OPENING)}]({_BETWEEN}{{7,2000}})[{re.escape(_CLOSING)}]", re.DOTALL
)
_OPENS = re.compile(f"[{re.escape(_OPENING)}]")
_ALIKE = {
    ord(char): letter
    for letter, drawn in {
        "a": "\u0430\u03b1\u0251\u0250\u1d00\u13aa",
        "s": "\u0455\ua731\u0282\u13da\u057f",
        "t": "\u0442\u03c4\u1d1b\u13a2",
        "e": "\u0435\u03b5\u0454\u1d07\u13ac",
        "r": "\u0433\u0280\u13d2",
        "i": "\u0456\u03b9\u026a\u0131\u0269\u13c6",
        "m": "\u043c\u1d0d\u13b7",
    }.items()
    for char in drawn
}
"""Letters that are drawn like Latin ones."""
_DRAWN = str.maketrans("1l|!5$4@37+", "iiiissaaett")
"""Digits and signs that stand for letters to an eye."""
_LETTERS = ((0x1F130, 26), (0x1F150, 26), (0x1F170, 26), (0x1F1E6, 26))
"""Where letters in boxes, in circles and of flags begin, which have no plain form."""


def unmarked(text: str) -> str:
    """Return a text of a person, a tool or a document without the system's mark.

    However it is written (other brackets and letters that look alike, capitals, invisible
    characters): in its place stands that it is not the system's. Any other text is the very same.
    """
    if "[" not in text and (text.isascii() or _OPENS.search(text) is None):
        return text
    return _BRACKETED.sub(_without_mark, text)


def unmarked_wire(body: bytes) -> bytes:
    """Return the wire form of a message without the system's mark; mostly the very same bytes."""
    if b"[" not in body and body.isascii():
        return body
    message: dict[str, Any] = orjson.loads(body)
    content: Any = message.get("content")
    parts = cast("list[dict[str, Any]]", content) if isinstance(content, list) else None
    texts = [message] if parts is None else [one for one in parts if one.get("type") == "text"]
    name = "content" if parts is None else "text"
    changed = False
    for one in texts:
        text = one.get(name)
        if isinstance(text, str) and (left := unmarked(text)) != text:
            one[name], changed = left, True
    return orjson.dumps(message) if changed else body


def _without_mark(found: re.Match[str]) -> str:
    inner = found[1]
    if not inner.isascii():
        inner = "".join(map(_plain, unicodedata.normalize("NFKD", inner)))
    inner = inner.casefold().translate(_ALIKE)
    for seen in (inner, inner.translate(_DRAWN)):
        letters = "".join(filter(str.isalnum, seen))
        if _WORD in (letters, letters.replace("rn", "m")):
            return _NOT_OURS
    return found[0]


def _plain(char: str) -> str:
    """Return a letter in a box or a circle as the letter."""
    place = ord(char)
    for first, count in _LETTERS:
        if first <= place < first + count:
            return chr(ord("a") + place - first)
    return char
