"""Arguments of built-in tools: what models write for them, beside what they are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from pydantic import AliasChoices, BeforeValidator, Field


def also(name: str, *others: str) -> Any:
    """Let an argument be given by other names, which are not shown."""
    return Field(validation_alias=AliasChoices(name, *others))


OPERATION = also("operation", "op", "action")


def _word(value: Any) -> Any:
    return value.strip().casefold().replace("-", "_") if isinstance(value, str) else value


WORD = BeforeValidator(_word)
"""A word of a fixed choice, in any case."""


def _text(value: Any) -> Any:
    """Take nothing as an empty text, and several as a list, since models write them so."""
    if isinstance(value, list):
        return ",".join(map(str, cast("list[Any]", value)))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return "" if value is None else value


TEXT = BeforeValidator(_text)


def null_as(default: Any) -> BeforeValidator:
    """Take null as if nothing had been given."""
    take: Callable[[Any], Any] = lambda value: default if value is None else value  # noqa: E731
    return BeforeValidator(take)
