"""What is on a shelf, read from where it is stored: messages and passages as texts with a place."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from threading import Lock
from typing import Any

import orjson

from asterism.memory.forgetting.redaction import FORGOTTEN
from asterism.memory.search.analysis import analyse
from asterism.memory.search.texts import Analysed, Flag, Placed
from asterism.store import shelved
from asterism.store.database import Connection
from asterism.store.shelved import Kept, Said
from asterism.store.shelves import JOURNAL
from asterism.types.people import OWNER
from asterism.types.turns import text_of

AGENT = "agent"
"""Stands for the agent as the speaker of its replies."""
PERSON = "person"
"""In place of a channel: what follows is the id of a person."""
_OPENING = "in"
"""The key of the entry that opens a turn; other messages in it are asterism's own notes."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A text as it is stored, with its place."""

    number: int
    text: str
    at: int
    speaker: str
    thread: str
    audience: str
    reply: bool
    mark: tuple[Any, ...]
    """What tells it from another text that had its number in a transaction that was undone."""
    open_turn: str | None = None
    """Its turn, if that goes on: who may hear it can change."""

    def placed(self) -> Placed:
        """Return it with what it is found by."""
        found = analysis_of(self.text, self.at)
        if self.reply:
            found = replace(found, flags=found.flags | Flag.REPLY)
        return Placed(self.number, self.at, self.speaker, self.thread, self.audience, found)


async def read(tx: Connection, kind: str, owner_id: str, first: int, last: int) -> list[Raw]:
    """Return the texts of a stretch of a shelf, in order."""
    if kind == JOURNAL:
        said = await shelved.said(tx, owner_id, first, last)
        return [one for one in map(_of_journal, said) if one is not None]
    return [_of_archive(one) for one in await shelved.kept(tx, owner_id, first, last)]


async def read_at(tx: Connection, kind: str, owner_id: str, numbers: Sequence[int]) -> list[Raw]:
    """Return texts of a shelf by their numbers, in order."""
    if kind == JOURNAL:
        said = await shelved.said_at(tx, owner_id, numbers)
        return [one for one in map(_of_journal, said) if one is not None]
    return [_of_archive(one) for one in await shelved.kept_at(tx, owner_id, numbers)]


def _of_journal(one: Said) -> Raw | None:
    text = text_of(one.body)
    if not text.strip() or text == FORGOTTEN:
        return None
    reply = one.kind == "reply"
    channel = one.channel or ""
    return Raw(
        number=one.number,
        text=text,
        at=one.at,
        speaker=AGENT if reply else _speaker(one, channel),
        thread=channel if one.reply_to is None else f"{channel}:{one.reply_to}",
        audience=one.audience or OWNER,
        reply=reply,
        mark=(one.turn_id, one.key, one.at, hash(text)),
        open_turn=one.turn_id if one.channel is not None and one.ended_at is None else None,
    )


def _speaker(one: Said, channel: str) -> str:
    if one.key != _OPENING:
        return ""
    if one.meta is None or not ('"sender"' in one.meta or '"participants"' in one.meta):
        return OWNER
    kept: dict[str, str] = orjson.loads(one.meta)
    if sender := kept.get("sender"):
        return f"{channel}:{sender}"
    # Whoever acts by verbs has no account.
    persons: list[str] = (
        orjson.loads(kept["participants"])["persons"] if "participants" in kept else []
    )
    return f"{PERSON}:{persons[0]}" if persons and persons[0] != OWNER else OWNER


def _of_archive(one: Kept) -> Raw:
    return Raw(
        number=one.number,
        text=one.text,
        at=one.at,
        speaker="",
        thread=one.document or one.turn_id or "",
        audience=one.audience,
        reply=False,
        mark=(one.id, one.digest),
    )


# -- analyses that were made lately ----------------------------------------------------------------

_MOST_ANALYSES = 4_096
_analyses: OrderedDict[bytes, Analysed] = OrderedDict()
_lock = Lock()


def analysis_of(text: str, at: int) -> Analysed:
    """Return what a text is found by, perhaps as it was found out before."""
    # What a text says of days depends on the day on which it was said, in any time zone.
    key = blake2b(
        text.encode("utf-8", "surrogatepass"),
        digest_size=16,
        salt=at.to_bytes(8, "little", signed=True),
    ).digest()
    with _lock:
        known = _analyses.get(key)
        if known is not None:
            _analyses.move_to_end(key)
            return known
    made = analyse(text, at)
    with _lock:
        _analyses[key] = made
        while len(_analyses) > _MOST_ANALYSES:
            _analyses.popitem(last=False)
    return made


def clear() -> None:
    """Keep no analyses any more."""
    with _lock:
        _analyses.clear()
