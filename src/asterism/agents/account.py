"""The account of a context: what each of its entries is to the judgement of a call."""

from __future__ import annotations

from typing import Any, cast

import orjson

from asterism.store.journal import Draft
from asterism.types.people import OWNER, Tier, least_trusted
from asterism.types.turns import Call, Entry, EntryKind, Reply
from asterism.types.wire import text_of

_MOST_TAKEN = 2_000


class Account:
    """Goes through entries in order, each once, and tells what it is to the readings.

    It goes on from turn to turn, so that a call costs what is new since the last one.
    """

    def __init__(self, first: int, upto: int) -> None:
        from asterism.permissions.readings import Readings  # most turns never need it

        self.readings = Readings()
        self.first = first
        """The entry that its context begins with."""
        self.upto = upto
        """The entry up to which the journal was taken in."""
        self._tiers: dict[str, Tier] = {}
        self._requests: list[str] = []
        self._calls: dict[str, Call] = {}
        self._taken: set[tuple[str, str]] = set()

    @property
    def is_long(self) -> bool:
        """Whether it should be begun anew, with what is newest."""
        return len(self._taken) > _MOST_TAKEN

    def speaks(self, person_id: str | None, tier: Tier) -> None:
        """Note how far somebody who opened a turn is trusted."""
        if person_id is not None:
            self._tiers[person_id] = tier

    def ask_of(self, newest: int) -> None:
        """Take so many of the newest messages of trusted people as what is asked for."""
        self.readings.wants(self._requests[-newest:])

    def take(self, turn_id: str, key: str, entry: Entry | Draft) -> None:
        """Take in an entry, unless that was done before."""
        if (turn_id, key) in self._taken:
            return
        self._taken.add((turn_id, key))
        match entry.kind:
            case EntryKind.MESSAGE:
                self._message(turn_id, entry)
            case EntryKind.REPLY:
                step = entry.key.partition("/")[0]
                for index, call in enumerate(Reply.from_entry(entry.body, entry.meta).calls):
                    self._calls[f"{turn_id}/{step}/call/{index}"] = call
            case EntryKind.RESULT:
                self._result(f"{turn_id}/{entry.key}", entry)
            case _:
                pass

    def _message(self, turn_id: str, entry: Entry | Draft) -> None:
        text = text_of(entry.body)
        if entry.key != "in":
            # Outcomes of calls that waited are told so, and may quote anything.
            if entry.key.endswith("/outcome"):
                self.readings.read("an approved call", text, tier=Tier.TOOL, key=entry.key)
            return
        speaker = speaker_of(entry)
        tier = Tier.OWNER
        if speaker is not None and speaker != OWNER:
            tier = self._tiers.get(speaker, Tier.STRANGER)
        kept = _kept(entry)
        company: dict[str, Any] = orjson.loads(kept["company"]) if kept.get("company") else {}
        tier = least_trusted((tier, Tier(company.get("tier", tier))))
        if tier.trusted:
            self.readings.trust(text)
            self._requests.append(text)
        else:
            self.readings.read("a message", text, tier=tier, key=f"{turn_id}/in")

    def _result(self, key: str, entry: Entry | Draft) -> None:
        tiers = [Tier(one) for one in _kept(entry).get("tiers", ())]
        tier = least_trusted(tiers)
        if tier.trusted:
            if tiers:  # it quotes what trusted people said
                self.readings.trust(text_of(entry.body))
            return
        call = self._calls.get(key)
        self.readings.read(
            call.name if call is not None else "a call",
            text_of(entry.body),
            tier=tier,
            arguments=_arguments(call),
            key=key,
        )


def _arguments(call: Call | None) -> dict[str, Any]:
    try:
        given: Any = orjson.loads(call.arguments) if call is not None else {}
    except orjson.JSONDecodeError:
        given = {}
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}


def _kept(entry: Entry | Draft) -> dict[str, Any]:
    return orjson.loads(entry.meta) if entry.meta else {}


def speaker_of(entry: Entry | Draft) -> str | None:
    """Return the id of the person who opened a turn; None: the owner, on their own machine."""
    if entry.kind is not EntryKind.MESSAGE or entry.key != "in":
        return None
    company = _kept(entry).get("company")
    if not company:
        return None
    persons: list[str] = orjson.loads(company)["persons"]
    return persons[0] if persons else None
