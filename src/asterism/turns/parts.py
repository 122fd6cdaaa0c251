"""What somebody who asked is told of a turn: its words, part by part, and how it stands."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from asterism.records import dataclass
from asterism.times import Moment
from asterism.types.turns import (
    Call,
    Entry,
    EntryKind,
    Reply,
    ResultMeta,
    TurnState,
    Usage,
)

BETWEEN = "\n\n"
"""What stands between the words of two steps."""
_REJECTED = ("retry", "shape")
"""Ends of the keys of entries that tell an agent that the words of a step do not stand."""


@dataclass(frozen=True, slots=True)
class TurnPart:
    """What an agent said in a turn, until it left calls to a program or came to rest."""

    texts: tuple[str, ...] = ()
    """The words of its steps."""
    calls: tuple[tuple[str, Call], ...] = ()
    """The calls that it left to the program that asked, with their keys."""
    usage: Usage = Usage()

    @property
    def text(self) -> str:
        """All that it said."""
        return BETWEEN.join(self.texts)


@dataclass(frozen=True, slots=True)
class TurnParts:
    """A turn as whoever asked is told of it."""

    turn_id: str
    agent_id: str
    state: TurnState
    opened_at_ms: int
    """When it began; for one that has yet to begin, when its message came in."""
    parts: tuple[TurnPart, ...] = (TurnPart(),)
    """Each ends with calls for the program that asked, but perhaps the last."""
    error: str = ""
    """Why there is no answer, if it failed or was stopped."""
    questions: tuple[tuple[str, str], ...] = ()
    """The approvals that it waits for: the id and the question of each."""

    opened_at = Moment()

    def part_of_call(self, key: str) -> int:
        """Return the number of the part that ended with a call."""
        return next((place for place, part in enumerate(self.parts) if key in dict(part.calls)), 0)


def parts_of(entries: Sequence[Entry]) -> tuple[TurnPart, ...]:
    """Return the parts of a turn with these entries."""
    keys = {entry.key for entry in entries}
    parts: list[TurnPart] = []
    texts: list[str] = []
    calls: list[tuple[str, Call]] = []
    made: dict[str, Call] = {}
    usage = Usage()
    for entry in entries:
        if entry.is_decision and calls and orjson.loads(entry.body).get("key") in dict(calls):
            parts.append(TurnPart(tuple(texts), tuple(calls), usage))
            texts, calls, usage = [], [], Usage()
        elif entry.kind is EntryKind.REPLY:
            reply, step = Reply.from_entry(entry.body, entry.meta), entry.key.partition("/")[0]
            made |= {f"{step}/call/{index}": call for index, call in enumerate(reply.calls)}
            usage += reply.usage
            if reply.text.strip() and not any(f"{step}/{end}" in keys for end in _REJECTED):
                texts.append(reply.text)
        elif entry.kind is EntryKind.RESULT and ResultMeta.from_json(entry.meta).client:
            calls.append((entry.key, made[entry.key]))
    return (*parts, TurnPart(tuple(texts), tuple(calls), usage))
