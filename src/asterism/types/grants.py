"""Grants: what a person allowed once and for more than one call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast

from asterism.types.deeds import Deed, texts_at


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave to call a tool without asking each time."""

    id: str
    constellation: str
    tool: str
    """A tool's name, or a glob such as `file*`."""
    agent_id: str | None = None
    """Whose calls; None: those of every agent."""
    pattern: Mapping[str, str] = field(default_factory=dict[str, str])
    """Which calls: a glob for each argument that matters."""
    turn_id: str | None = None
    """For calls of this turn only."""
    until: int | None = None
    uses: int | None = None
    """For how many calls more."""
    given_by: str = "owner"
    given_at: int = 0
    approval_id: str | None = None
    """The question it was given with."""
    revoked_at: int | None = None


class Extent(StrEnum):
    """How far a yes reaches beyond the call that it was said to."""

    TURN = "turn"
    """Calls of this tool until the turn ends."""
    SCOPE = "scope"
    """Calls of this tool that are done to the same things."""
    UNTIL = "until"
    """Calls of this tool until a time."""
    ALWAYS = "always"
    """Calls of this tool."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person grants along with a yes."""

    extent: Extent
    until: int | None = None
    pattern: Mapping[str, str] | None = None
    """A glob for each argument that matters; None: as the extent has it."""


def scope_of(arguments: Mapping[str, Any], deeds: Iterable[Deed] = ()) -> dict[str, str]:
    """Return the pattern that means calls like this one.

    Arguments that say to whom, to what or how much it is done must be the same; others, such as the
    text of a message, may differ. Where the deeds do not tell which is which, all must be the same.
    """
    leaves = _leaves(arguments)
    everything = {path: _one_of(texts) for path, texts in leaves}
    all_deeds = tuple(deeds)
    said = {text for one in all_deeds for text in one.targets}
    amounts = {one.amount for one in all_deeds if one.amount is not None}
    kept = [
        (path, texts)
        for path, texts in leaves
        if not said.isdisjoint(texts) or any(_number(text) in amounts for text in texts)
    ]
    found = {text for _, texts in kept for text in texts}
    if not said or not said <= found:
        return everything
    return {path: _one_of(texts) for path, texts in kept}


def literal(text: str) -> str:
    """Return the pattern that means this text and no other."""
    if text.startswith("re:") or "*" in text or "?" in text:
        return f"re:{re.escape(text)}"
    return text


def _one_of(texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return literal(texts[0])
    return "re:" + "|".join(map(re.escape, texts))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _leaves(value: Mapping[str, Any], before: str = "") -> list[tuple[str, tuple[str, ...]]]:
    """Return the path and the texts of each argument that says something."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for name, inner in value.items():
        path = f"{before}{name}"
        if isinstance(inner, Mapping):
            found += _leaves(cast("Mapping[str, Any]", inner), f"{path}.")
        elif texts := tuple(dict.fromkeys(texts_at({"it": inner}, "it"))):
            found.append((path, texts))
    return found
