"""The form of what an archive takes: how long, how many, and which characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson

from asterism.errors import InvalidInput

LONGEST_TEXT = 100_000
MOST_TAGS = 50
LONGEST_TAG = 80
LARGEST_METADATA = 20_000


def check_text(text: str) -> str:
    """Return the text of a passage as it is stored."""
    if "\x00" in text:
        raise InvalidInput("The text has a NUL character in it. Leave it out. Nothing was stored.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"Character {error.start + 1} of the text is half of a pair and means nothing by "
            "itself. Leave it out. Nothing was stored."
        ) from None
    text = text.strip()
    if not text:
        raise InvalidInput("There is no text. Say what shall be kept. Nothing was stored.")
    if len(text) > LONGEST_TEXT:
        raise InvalidInput(
            f"The text has {len(text):,} characters; a passage takes {LONGEST_TEXT:,}. Cut it into "
            "several passages, or add it as a document of a source. Nothing was stored."
        )
    return text


def check_tags(given: Sequence[str]) -> tuple[str, ...]:
    """Return the tags of a passage as they are stored: in one case, each once."""
    tags = tuple(dict.fromkeys(" ".join(tag.split()).casefold() for tag in given))
    if len(tags) > MOST_TAGS:
        raise InvalidInput(
            f"{len(tags)} tags are too many; {MOST_TAGS} is the most. Nothing was changed."
        )
    for tag in tags:
        if not 1 <= len(tag) <= LONGEST_TAG or not tag.isprintable():
            raise InvalidInput(
                f"{tag[:LONGEST_TAG]!r} cannot be a tag: it has 1 to {LONGEST_TAG} characters that "
                "can be printed. Nothing was changed."
            )
    return tags


def check_metadata(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a passage as it is stored: a JSON object."""
    try:
        wire = orjson.dumps(given)
    except (TypeError, RecursionError) as error:
        raise InvalidInput(
            f"The metadata cannot be written as JSON ({error}). Use texts, numbers, lists and "
            "objects. Nothing was stored."
        ) from None
    if len(wire) > LARGEST_METADATA:
        raise InvalidInput(
            f"The metadata has {len(wire):,} bytes; {LARGEST_METADATA:,} is the most. Keep what is "
            "long in the text. Nothing was stored."
        )
    read: Any = orjson.loads(wire)
    if not isinstance(read, dict) or _has_nul(cast("object", read)):
        raise InvalidInput(
            "The metadata must be a JSON object without NUL characters. Nothing was stored."
        )
    return cast("dict[str, Any]", read)


def _has_nul(value: object) -> bool:
    match value:
        case str():
            return "\x00" in value
        case dict():
            inner = cast("dict[str, object]", value)
            return any(_has_nul(each) for pair in inner.items() for each in pair)
        case list():
            return any(_has_nul(each) for each in cast("list[object]", value))
        case _:
            return False
