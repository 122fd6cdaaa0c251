"""Text for people and programs, made safe: a terminal shows characters and obeys none."""

from __future__ import annotations

import re
from datetime import datetime

import orjson

# Controls but for newline and tab, what turns the direction of text, and lone surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Of these JSON escapes only the first by itself.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_UNITS = (
    (_DAY, "d", _HOUR, "h"),
    (_HOUR, "h", _MINUTE, "min"),
    (_MINUTE, "min", 1, "s"),
)


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


def at(milliseconds: int) -> str:
    """Return a time of the store as local date and time."""
    return f"{_local(milliseconds):%Y-%m-%d %H:%M:%S}"


def stamp(milliseconds: int) -> str:
    """Return a time of the store as local date and time, to the minute."""
    return f"{_local(milliseconds):%Y-%m-%d %H:%M}"


def clock(milliseconds: int) -> str:
    """Return a time of the store as local time of day."""
    return f"{_local(milliseconds):%H:%M:%S}"


def when(milliseconds: int) -> str:
    """Return a time of the store in few characters: the time of today, the date of another day."""
    then = _local(milliseconds)
    if then.date() == datetime.now().astimezone().date():
        return f"{then:%H:%M:%S}"
    return f"{then:%Y-%m-%d}"


def duration(milliseconds: int) -> str:
    """Return how long something took, in its two largest units, such as `2 h 5 min`."""
    seconds = max(0, milliseconds) / 1000
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    for size, unit, smaller, part in _UNITS:
        if seconds >= size:
            whole, rest = divmod(int(seconds), size)
            return f"{whole} {unit}" + (f" {rest // smaller} {part}" if rest >= smaller else "")
    raise AssertionError("unreachable")


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, such as `2 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _local(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000).astimezone()


def _spell(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
