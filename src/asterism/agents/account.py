"""The account of a context: what each of its entries is to the judgement of a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from asterism.permissions.readings import Reading
from asterism.store.journal import Draft, Told
from asterism.types.effects import EffectKind
from asterism.types.people import OWNER, Trust, least_trusted
from asterism.types.turns import Call, Entry, EntryKind, Reply, ResultMeta
from asterism.types.wire import text_of

Declares = Callable[[Call, str, Trust, str], Reading]
"""From a call, its result, how far that is trusted and its key, to what was read."""
_MAX_TAKEN = 2_000


@dataclass(frozen=True, slots=True)
class Said:
    """A message of somebody who is trusted."""

    speaker: str
    trust: Trust
    text: str
    read_before: int = 0
    """How many readings there were when it was said."""


@dataclass(slots=True)
class Account:
    """Goes through the entries of a context in order, each once.

    It goes on from turn to turn, so that a call costs what is new since the last one.
    """

    first: int
    """The entry that its context begins with."""
    upto: int
    """The entry up to which the journal was taken in."""
    blocks: dict[Trust, tuple[str, ...]]
    """What blocks say that those present may hear, by who could have written it."""
    said: list[Said] = field(default_factory=list[Said])
    readings: list[Reading] = field(default_factory=list[Reading])
    _calls: dict[str, Call] = field(default_factory=dict[str, Call])
    _taken: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    @property
    def is_long(self) -> bool:
        """Whether it should be begun anew, with what is newest."""
        return len(self._taken) > _MAX_TAKEN

    def take(
        self, turn_id: str, entry: Entry | Draft | Told, trust: Trust, declared: Declares
    ) -> None:
        """Take in an entry, unless that was done before."""
        if (turn_id, entry.key) in self._taken:
            return
        self._taken.add((turn_id, entry.key))
        match entry.kind:
            case EntryKind.MESSAGE:
                self._message(turn_id, entry, trust)
            case EntryKind.REPLY:
                step = entry.key.partition("/")[0]
                reply = Reply.from_entry(entry.body, entry.meta)
                for index, call in enumerate(reply.calls):
                    self._calls[f"{turn_id}/{step}/call/{index}"] = call
                if reply.text and trust is Trust.OWNER:
                    # Nothing untrusted was in its context, so that nobody else put it there.
                    self.said.append(Said("", trust, reply.text))
            case EntryKind.RESULT:
                self._result(f"{turn_id}/{entry.key}", entry, declared)
            case _:
                pass

    def _message(self, turn_id: str, entry: Entry | Draft | Told, trust: Trust) -> None:
        text = text_of(entry.body)
        if entry.key != "in":
            # Outcomes of calls that waited are told so, and may quote anything.
            if entry.key.endswith("/outcome"):
                self.readings.append(Reading("an approved call", text, Trust.TOOL, key=entry.key))
        elif trust.trusted:
            self.said.append(Said(speaker_of(entry), trust, text, len(self.readings)))
        else:
            self.readings.append(Reading("a message", text, trust, key=f"{turn_id}/in"))

    def _result(self, key: str, entry: Entry | Draft | Told, declared: Declares) -> None:
        trust_levels = ResultMeta.from_json(entry.meta).trust_levels
        if not trust_levels:
            return  # the system's own words
        trust, text = least_trusted(trust_levels), text_of(entry.body)
        call = self._calls.get(key)
        if call is None:
            reading = Reading("a call", text, trust, key=key)
        else:
            reading = declared(call, text, trust, key)
        if trust.trusted:
            self.said.append(Said("", trust, text))
        if not trust.trusted or any(effect.kind is EffectKind.PAY for effect in reading.effects):
            self.readings.append(reading)


def _kept(entry: Entry | Draft | Told) -> dict[str, Any]:
    return orjson.loads(entry.meta) if entry.meta else {}


def speaker_of(entry: Entry | Draft | Told) -> str:
    """Return the id of the person whose message opened a turn."""
    participants = _kept(entry).get("participants")
    if not participants:
        return OWNER
    persons: list[str] = orjson.loads(participants)["persons"]
    return persons[0] if persons else ""
