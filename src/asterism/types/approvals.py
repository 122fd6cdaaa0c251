"""Approvals: questions to people that a turn waits for, with the exact call and how it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from asterism.types.deeds import Deed, DeedKind

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
    """The exact call: its arguments as JSON, as the model wrote them."""
    deeds: str = ""
    """What the call does, as a JSON list; for people, and for the scopes of grants."""
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


def pretty(arguments: str) -> str:
    """Return JSON with a line for each member; what is none, as it is."""
    try:
        return orjson.dumps(orjson.loads(arguments or "{}"), option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONDecodeError:
        return arguments


def read_deeds(text: str) -> tuple[Deed, ...]:
    """Return the deeds of an approval; what is no list of them says nothing."""
    try:
        told: Any = orjson.loads(text) if text else []
        return tuple(
            Deed(
                DeedKind(one["kind"]),
                *(tuple(one.get(name, ())) for name in ("recipients", "hosts", "paths", "things")),
                amount=one.get("amount"),
                content=tuple(one.get("content", ())),
            )
            for one in told
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return ()  # some of it has been forgotten


_WORDS = {
    DeedKind.READ: "look at",
    DeedKind.REMEMBER: "change its memory",
    DeedKind.FETCH: "ask",
    DeedKind.SEND: "send something to",
    DeedKind.WRITE: "write",
    DeedKind.RUN: "run",
    DeedKind.DELETE: "delete",
    DeedKind.PAY: "pay",
    DeedKind.GRANT: "give access to",
    DeedKind.UNDECLARED: "do something that its tool does not declare",
}


def deeds_in_words(approval: Approval) -> str:
    """Return what the call of an approval would do, as people say it."""
    said: list[str] = []
    for deed in read_deeds(approval.deeds):
        words = _WORDS[deed.kind]
        if deed.amount is not None:
            words += f" {deed.amount:g}"
            words += " to" if deed.kind is DeedKind.PAY and deed.targets else ""
        if deed.targets and deed.kind is not DeedKind.UNDECLARED:
            words += f" {', '.join(deed.targets)}"
        said.append(words)
    return "; ".join(said)
