"""A past from elsewhere: a conversation that becomes finished turns of an agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import orjson

from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.memory import people
from asterism.runtime.checks import check_field, check_text
from asterism.store import inbox, journal
from asterism.store.database import Connection
from asterism.store.journal import Draft
from asterism.types.ids import new_id, turn_id_for
from asterism.types.marks import unmarked
from asterism.types.messages import Imported, PastMessage
from asterism.types.people import OWNER, Account, Trust, least_trusted
from asterism.types.turns import EntryKind, Reply, TurnRecord, TurnState
from asterism.types.wire import message_wire

CHANNEL = "import"
"""Where a past comes from; speakers are accounts in it."""


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A message of a person, and what the agent said to it."""

    id: str
    speaker: str | None
    """None: whoever imports it."""
    drafts: list[Draft] = field(default_factory=list[Draft])


def read_past(
    messages: Sequence[PastMessage | tuple[str, str]], now: int, by: str = OWNER
) -> list[PastTurn]:
    """Return a conversation as turns, each begun by a message of a person.

    What names no speaker was said by whoever imports it: `by` is their id.
    """
    unnamed = (
        None if by == OWNER else orjson.dumps({"participants": people.alone_with(by)}).decode()
    )
    past: list[PastTurn] = []
    before: int | None = None
    for index, given in enumerate(messages, 1):
        one = given if isinstance(given, PastMessage) else PastMessage(*given)
        if one.role not in ("user", "assistant") or not (past or one.role == "user"):
            raise InvalidInput(
                f"Message {index} is of the role {one.role!r}; a conversation is imported as "
                "messages of 'user' and 'assistant', the first of 'user'. Nothing was imported."
            )
        at = before = _time(index, one, before, now)
        body = message_wire(one.role, unmarked(check_text(one.text)))
        if one.role == "user":
            turn = PastTurn(turn_id_for(new_id("msg")), _speaker(index, one))
            meta = orjson.dumps({"sender": turn.speaker}).decode() if turn.speaker else unnamed
            turn.drafts.append(Draft(EntryKind.MESSAGE, "in", body, at, meta))
            past.append(turn)
        else:
            _speaker(index, one)
            entries = past[-1].drafts
            key = f"{len(entries) - 1}/reply"
            entries.append(Draft(EntryKind.REPLY, key, body, at, Reply(one.text).meta()))
    return past


def _time(index: int, one: PastMessage, before: int | None, now: int) -> int:
    """Return when a message was said."""
    if one.at is None:
        return now if before is None else before
    if one.at > now:
        raise InvalidInput(
            f"Message {index} is of {_shown(one.at)}, and now it is {_shown(now)}. Give times as "
            "milliseconds since 1970, none of them to come. Nothing was imported."
        )
    if before is not None and one.at < before:
        raise InvalidInput(
            f"Message {index} is of {_shown(one.at)}, before the one that precedes it "
            f"({_shown(before)}). Sort them by time; one without a time counts as said with the "
            "one before it, the first of all now. Nothing was imported."
        )
    return one.at


def _speaker(index: int, one: PastMessage) -> str | None:
    """Return who said a message, None being whoever imports it."""
    if one.speaker is None:
        return None
    if one.role != "user":
        raise InvalidInput(
            f"Message {index} is of the role 'assistant' and names the speaker {one.speaker!r}; "
            "what the agent said has none. Leave it out, or make it a message of 'user'. "
            "Nothing was imported."
        )
    if not one.speaker.strip():
        raise InvalidInput(
            f"Message {index} names a speaker without a name. Give the name, or None for "
            "whoever imports it. Nothing was imported."
        )
    check_field("speaker", one.speaker)
    return one.speaker


def _shown(at: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{at} ms"


async def append_past(
    tx: Connection,
    constellation: str,
    agent_id: str,
    past: Sequence[PastTurn],
    now: int,
    trust: Trust = Trust.OWNER,
) -> Imported:
    """Append finished turns to the journal of an agent that has nothing to do.

    `trust` says how far whoever imports it is trusted, and so at most all that they bring.
    """
    # The claim voids what is in the memory of other processes, and keeps messages out till the end.
    if await journal.claim(tx, agent_id) is None:
        raise NotFound(f"There is no agent {agent_id}. Nothing was imported.")
    if await inbox.first(tx, agent_id) or await journal.interrupted(tx, agent_id):
        raise Conflict(
            "The agent has something to answer first. Wait until it has, then import. "
            "Nothing was imported."
        )
    standing = await journal.standing(tx, agent_id)
    assert standing is not None
    claim, length = standing
    trust_levels = await _meet(tx, constellation, past, now, trust)
    ended: list[tuple[TurnRecord, list[Draft]]] = []
    ids: list[str] = []
    last = length
    for turn in past:
        first, last = last + 1, last + len(turn.drafts)
        record = TurnRecord(
            id=turn.id,
            agent_id=agent_id,
            state=TurnState.DONE,
            channel=CHANNEL,
            reply_to=None,
            first_seq=first,
            last_seq=last,
            opened_at=turn.drafts[0].at,
            ended_at=turn.drafts[-1].at,
            trust=trust_levels[turn.speaker],
            arrived_at=turn.drafts[0].at,
        )
        ended.append((record, turn.drafts))
        ids += [f"{turn.id}#{seq}" for seq in range(first, last + 1)]
    await journal.append_ended(tx, claim, length, ended)
    return Imported(tuple(turn.id for turn in past), tuple(ids))


async def _meet(
    tx: Connection, constellation: str, past: Sequence[PastTurn], now: int, trust: Trust
) -> dict[str | None, str | None]:
    """Note who has spoken; return how far each is trusted, as turns have it: None is the owner."""
    trust_levels: dict[str | None, str | None] = {
        None: None if trust is Trust.OWNER else trust.value
    }
    # In one order, so that two imports with the same speakers do not wait for each other.
    for speaker in sorted({turn.speaker for turn in past if turn.speaker is not None}):
        person = await people.person_for(tx, constellation, Account(CHANNEL, speaker), now)
        trust_levels[speaker] = least_trusted((person.trust, trust)).value
    return trust_levels
