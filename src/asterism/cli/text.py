"""Text for people and programs, made safe: a terminal shows characters and obeys none."""

from __future__ import annotations

import re

import orjson

# Controls but for newline and tab, what turns the direction of text, and lone surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Of these JSON escapes only the first by itself.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Return a text with its control characters spelled out, such as `\x1b`; lines stay lines."""
    return _UNSAFE.sub(_spell, text.replace("\r\n", "\n"))


def one_line(text: str, most: int = 0) -> str:
    """Return a text on one line, cut to `most` characters if given."""
    if most:
        text = text[: most * 4]  # enough of it, as whitespace shrinks
    line = " ".join(printable(text).split())
    return line if not most or len(line) <= most else line[: most - 1] + "…"


def as_json(value: object) -> str:
    """Return a value as JSON over several lines; unsafe characters are escaped."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, such as `2 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _spell(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
