"""Memory in the shapes that commands print: plain values for JSON, short words for people."""

from __future__ import annotations

import re
import sys
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from asterism.cli.output import console
from asterism.cli.text import one_line

if TYPE_CHECKING:
    from asterism.app import Asterism

_FEW, _MANY = 22, 60
_PERSON = re.compile(r"person:(person_\w+)")


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: audiences and schemas in the form they are written in."""
    from asterism.memory.schemas import schema_wire
    from asterism.types.agents import Audience
    from asterism.types.memory import (
        CompositeSchema,
        ListSchema,
        LogSchema,
        MapSchema,
        TextSchema,
    )

    if isinstance(value, Audience):
        return str(value)
    if isinstance(value, TextSchema | MapSchema | ListSchema | LogSchema | CompositeSchema):
        return schema_wire(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Mapping):
        given = cast("Mapping[Any, Any]", value)
        return {str(key): plain(one) for key, one in given.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in cast("list[Any]", value)]
    return value


async def called(home: Asterism) -> dict[str, str]:
    """Return the names of persons by id."""
    return {one.id: one.name for one in await home.people.list()}


def visible_to(audience: object, names: Mapping[str, str]) -> str:
    """Return an audience with the names of persons in it."""
    return _PERSON.sub(lambda found: f"person:{names.get(found[1], found[1])}", str(audience))


def first_words(text: str, wide: int = 110) -> str:
    """Return the beginning of a text: few words at a terminal that is not so wide."""
    narrow = sys.stdout.isatty() and console().width < wide
    return one_line(text, _FEW if narrow else _MANY)


def share(used: int, most: int) -> str:
    """Return how much of a limit is used."""
    return f"{used:,}/{most:,}"
