"""Spellings: what models write for the arguments of built-in tools, beside what they are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from pydantic import AliasChoices, BeforeValidator, Field


def also(name: str, *others: str) -> Any:
    """Let an argument be given by other names, which are not shown."""
    return Field(validation_alias=AliasChoices(name, *others))


OPERATION = also("operation", "op", "action")


def _word(given: Any) -> Any:
    return given.strip().casefold().replace("-", "_") if isinstance(given, str) else given


WORD = BeforeValidator(_word)
"""A word of a fixed choice, in any case."""


def _text(given: Any) -> Any:
    """Take nothing as an empty text, and several as a list, since models write them so."""
    if isinstance(given, list):
        return ",".join(map(str, cast("list[Any]", given)))
    if isinstance(given, int | float) and not isinstance(given, bool):
        return str(given)
    return "" if given is None else given


TEXT = BeforeValidator(_text)


def unless_null(default: Any) -> BeforeValidator:
    """Take null as if nothing had been given."""
    take: Callable[[Any], Any] = lambda given: default if given is None else given  # noqa: E731
    return BeforeValidator(take)
