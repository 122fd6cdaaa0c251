"""Approvals: questions to people that a turn waits for, with the exact call and how it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from asterism.types.effects import Effect, EffectKind
from asterism.types.labels import Label

OWNER = "owner"
"""The reviewer that is always one: whoever the constellation belongs to."""
PRESENT = "present"
"""The reviewer that is the person who opened the turn."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A question to a person that a turn waits for."""

    id: str
    agent_id: str
    turn_id: str
    key: str
    """The call that waits, such as `0/call/0`."""
    question: str
    asked_at: int
    tool: str = ""
    arguments: str = ""
    """The exact call: its arguments as the tool reads them, as JSON."""
    effects: str = ""
    """What the call does, as a JSON list; for people, and for what is granted along with a yes."""
    reason: str = ""
    """Why it must be asked."""
    reviewers: tuple[str, ...] = (OWNER,)
    """Who may answer: `owner`, `person:ID`, `role:NAME` or `present`; the first answer counts."""
    rounds: int = 0
    """How often it was announced."""
    next_at: int | None = None
    """When it is announced again or to others."""
    expires_at: int | None = None
    """When it ends as denied; None: never."""
    approved: bool | None = None
    note: str | None = None
    decided_by: str | None = None
    decided_at: int | None = None
    place: str | None = None
    """Where it was answered, as `channel:address`."""
    edited: str | None = None
    """The arguments as the person changed them, as JSON."""
    grant: str | None = None
    """The id of the grant that was given with the answer."""
    announced: Mapping[str, int] = field(default_factory=dict[str, int])
    """Where it was announced, as `channel:address`, and in which round the last time."""
    announced_at: int | None = None
    """When the latest round began."""
    definition: str = ""
    """The digest of the tool that was asked about, which alone is run; empty: not known."""

    @property
    def verdict(self) -> str:
        """How it was answered, in a word or two."""
        if self.decided_at is None:
            return "waiting"
        if not self.approved:
            return "denied"
        return "approved with changes" if self.edited is not None else "approved"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person says to a question."""

    approved: bool
    by: str = OWNER
    """The id of the person, or `owner`."""
    name: str = OWNER
    """What they are called: the agent reads it."""
    note: str | None = None
    edited: str | None = None
    """Other arguments than those that were asked for, as JSON."""
    place: str | None = None
    """Where it was said, as `channel:address`."""
    definition: str | None = None
    """With other arguments, the digest of the tool for these; None: as it was asked."""
    effects: str | None = None
    """With other arguments, what the call does with these, as JSON; None: as it was asked."""
    label: Label = field(default_factory=Label)
    """How far what they say is trusted, and who may hear it."""


def write_effects(effects: Iterable[Effect]) -> str:
    """Return effects as JSON, for people who are asked."""
    shown = [
        # An amount of 0 says more than none.
        {name: value for name, value in asdict(one).items() if value or type(value) is float}
        for one in effects
    ]
    return orjson.dumps(shown).decode()


def plain_effects(text: str) -> Any:
    """Return effects that were written as plain lists and texts; None if it is not JSON."""
    try:
        return orjson.loads(text) if text else []
    except orjson.JSONDecodeError:
        return None


def read_effects(text: str) -> tuple[Effect, ...]:
    """Return effects that were written; what is no list of them says nothing."""
    try:
        told: Any = orjson.loads(text) if text else []
        return tuple(
            Effect(
                EffectKind(one["kind"]),
                *(tuple(one.get(name, ())) for name in ("recipients", "hosts", "paths", "things")),
                amount=one.get("amount"),
                content=tuple(one.get("content", ())),
                amends=bool(one.get("amends")),
                amount_unreadable=bool(one.get("amount_unreadable")),
                unreadable=bool(one.get("unreadable")),
            )
            for one in told
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return ()  # some of it has been forgotten
