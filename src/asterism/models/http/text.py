"""Text and JSON as servers send them: in pieces, cut anywhere, not always sound."""

from __future__ import annotations

import json
from typing import Any, cast

import orjson

from asterism.models.http.trouble import MalformedAnswer, is_html, shorten


class StreamedText:
    """Text that comes in pieces; half a surrogate pair waits for the other half."""

    __slots__ = ("_half", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._half = ""

    def add(self, piece: str) -> str:
        """Take a piece; return what can be shown by now."""
        piece = self._half + piece
        self._half = piece[-1:] if "\ud800" <= piece[-1:] <= "\udbff" else ""
        piece = fix_surrogates(piece[:-1] if self._half else piece)
        self._pieces.append(piece)
        return piece

    def __str__(self) -> str:
        return "".join(self._pieces) + fix_surrogates(self._half)


class EventLines:
    """The data lines of an event stream, wherever its bytes were cut."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; return the data of the events that are whole by now."""
        self._rest.append(chunk)
        if b"\n" not in chunk:
            return []
        *lines, rest = b"".join(self._rest).split(b"\n")
        self._rest = [rest]
        # An event's data is one line; others are comments, event names and keep-alives.
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]


def parse_json(data: bytes, hint: str) -> Any:
    """Return the JSON that a server sent; `hint` says how its address should look."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if is_html(data):
            raise MalformedAnswer(
                f"with an HTML page (HTTP 200) instead of JSON. Is base_url right? {hint}"
            ) from None
        # The standard library also takes halves of surrogate pairs, which are mended later.
        try:
            return json.loads(data.decode(errors="replace"))
        except (ValueError, RecursionError):
            raise MalformedAnswer(
                f"with malformed JSON ({error}): {shorten(data[:2000].decode(errors='replace'))!r}."
                " Ask again; if it stays so, its server is at fault."
            ) from None


def fix_surrogates(text: str) -> str:
    """Replace halves of surrogate pairs, which no encoding can hold; join whole pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def fix_surrogates_in(value: Any) -> Any:
    """Mend every text inside of a JSON value."""
    if isinstance(value, str):
        return fix_surrogates(value)
    if isinstance(value, list):
        return [fix_surrogates_in(each) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {fix_surrogates(key): fix_surrogates_in(each) for key, each in table.items()}
    return value
