"""What is asked to be forgotten, and the receipt for it: how often where, never what."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

import orjson

from asterism.memory.forgetting.rows import Found


@dataclass(frozen=True, slots=True)
class Forgetting:
    """What is to be forgotten; at least one of these."""

    texts: tuple[str, ...] = ()
    """Wherever they occur, whatever their case and spaces."""
    passages: tuple[str, ...] = ()
    """By id: each with its history, and its words wherever they were repeated."""
    turns: tuple[str, ...] = ()
    """By id: the message and all that was said and written because of it."""
    persons: tuple[str, ...] = ()
    """By id: what they said, what only they may hear, their names and accounts."""
    sources: tuple[str, ...] = ()
    """By id: the documents that were read, not the files that they were read from."""
    blocks: tuple[str, ...] = ()
    """By id: each with its history."""
    agents: tuple[str, ...] = ()
    """By id: each with everything that it has."""

    @property
    def ids(self) -> dict[str, tuple[str, ...]]:
        """What is forgotten by its id, by kind."""
        named = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "texts"}
        return {kind: ids for kind, ids in named.items() if ids}


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was done. It says how often something was found and where, never what it was."""

    id: str
    at: int
    by: str
    reason: str
    places: dict[str, int] = field(default_factory=dict[str, int])
    """How often it was found, by table and column, or by file."""
    names: dict[str, int] = field(default_factory=dict[str, int])
    """Names and addresses that hold it and were left, since things are found by them."""
    unreached: tuple[str, ...] = ()
    """What could not be reached or not yet, in sentences."""
    agents: tuple[str, ...] = ()
    """Agents whose memory must be dropped where a process holds it."""
    summaries: tuple[str, ...] = ()
    """Summaries that were emptied, since nobody can tell which of their words came from it."""
    finished: bool = True

    @property
    def count(self) -> int:
        """How often it was found in all."""
        return sum(self.places.values())

    def wire(self) -> str:
        """Return the receipt as JSON."""
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        return orjson.dumps(told).decode()

    @staticmethod
    def read(text: str) -> Receipt:
        """Return a receipt that was stored."""
        told: dict[str, Any] = orjson.loads(text)
        for name in ("unreached", "agents", "summaries"):
            told[name] = tuple(told[name])
        return Receipt(**told)


def receipt_of(
    tomb_id: str, at: int, by: str, reason: str, found: Found, *, summaries: tuple[str, ...] = ()
) -> Receipt:
    """Return the receipt for what was found."""
    return Receipt(
        id=tomb_id,
        at=at,
        by=by,
        reason=reason,
        places=dict(sorted(_counted(found.places).items())),
        names=dict(sorted(_counted(found.names).items())),
        unreached=tuple(found.left),
        agents=tuple(sorted(found.agents)),
        summaries=summaries,
    )


def _counted(places: Counter[str]) -> dict[str, int]:
    return {place: count for place, count in places.items() if count}
