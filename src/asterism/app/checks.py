"""What agents may be called and given, each fault in a sentence with the next move."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import orjson

from asterism.errors import InvalidInput
from asterism.turns.loop import fault_of_schema
from asterism.types.agents import DEFAULT_MODEL, chain_of
from asterism.types.turns import LONGEST_MESSAGE, check_field


def checked_name(name: str) -> str:
    """Return an agent's name, or raise `InvalidInput` if it cannot be one."""
    check_field("The name", name)
    if not name.strip() or len(name) > 100 or any(ord(char) < 32 for char in name):
        raise InvalidInput(
            f"{name[:40]!r} cannot name an agent: a name has 1 to 100 characters on one line. "
            "Choose another. Nothing was changed."
        )
    return name


def shortened(text: str, most: int = 100) -> str:
    """Return a text for a message, which need not repeat all of it."""
    return text if len(text) <= most else f"{text[:most]}…"


def no_such(kind: str, name: str, there: list[str]) -> str:
    """Say that something is not there, and what there is instead."""
    name = shortened(name)
    near = difflib.get_close_matches(name, there, 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    if there:
        return (
            f"There is no {kind} named {name!r}.{hint} "
            f'"asterism {kind} list" shows all {len(there)}.'
        )
    remedy = {
        "agent": '"asterism agent create"',
        "key": '"asterism key set"',
        "source": '"asterism source add"',
        "tool": "A file named in tools.modules",
    }[kind]
    return f"There is no {kind} named {name!r}, nor any other. {remedy} makes one."


def checked_model(model: str) -> str:
    """Return the name of a model or of several, or raise `InvalidInput` if it is none."""
    check_field("The model", model)
    if model == DEFAULT_MODEL:
        return model
    for one in chain_of(model):
        vendor, _, name = one.partition(":")
        if not (vendor and name) or any(char.isspace() for char in one):
            raise InvalidInput(
                f"{one!r} does not name a model; it takes a vendor and a name such as "
                "'openai:gpt-4.1-mini' or 'demo:guide', several of them separated by commas, or "
                "'default' for the configured one. Nothing was changed."
            )
    return ", ".join(chain_of(model))


def checked_schema(schema: Mapping[str, Any] | None) -> str | None:
    """Return a JSON schema as text, or raise `InvalidInput` if it is none."""
    if schema is None:
        return None
    try:
        text = orjson.dumps(schema).decode()
    except TypeError as error:
        raise InvalidInput(f"The schema is no JSON: {error}. Nothing was stored.") from None
    if fault := fault_of_schema(orjson.loads(text)):
        raise InvalidInput(f"The schema is no JSON schema: {fault}. Nothing was stored.")
    return text


def checked_system(system: str) -> str:
    """Return a system prompt, or raise `InvalidInput` if it cannot be kept."""
    check_field("The system prompt", system, LONGEST_MESSAGE)
    return system
