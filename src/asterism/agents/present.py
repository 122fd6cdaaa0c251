"""Who is present in a turn: what the agent is told of them, and how far the speaker is trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from asterism.memory import people
from asterism.permissions import Actor
from asterism.store import people as people_at_rest
from asterism.store.database import Connection
from asterism.types.marks import unmarked
from asterism.types.people import OWNER, OWNER_ALONE, Participants, Trust, least_trusted

_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class Meeting:
    """Who is present in a turn, and who speaks."""

    participants: Participants = OWNER_ALONE
    trust: Trust = Trust.OWNER
    """How far the one who speaks is trusted."""
    speaker: frozenset[str] = frozenset({OWNER})
    """Every way in which a policy may name the one who speaks."""


async def who(tx: Connection, constellation: str, participants: str) -> Meeting:
    """Return those whom the JSON of an inbox item names, with what is known of them."""
    told: dict[str, Any] = orjson.loads(participants)
    speaker = next(iter(told["persons"]), "")
    trust, names = Trust.STRANGER, frozenset({Trust.STRANGER.value})
    if speaker == OWNER:
        trust, names = Trust.OWNER, frozenset({OWNER})
    elif (found := await people_at_rest.get(tx, constellation, speaker)) is not None:
        trust = found.trust
        names = Actor("person", found.id, found.name, trust, frozenset(found.roles)).tokens
    # What an agent plans after reading something is trusted as far as that.
    trust = least_trusted((trust, Trust(told.get("trust", trust))))
    return Meeting(await people.read_company(tx, constellation, participants), trust, names)


async def introduce(tx: Connection, constellation: str, participants: Participants) -> str:
    """Return in words who is present; nothing for the owner alone."""
    if participants.owner_alone:
        return ""
    named: list[str] = []
    for one in participants.people[:_MOST_NAMED]:
        found = await people_at_rest.get(tx, constellation, one.person_id)
        if one.person_id == OWNER:
            named.append("your owner")
        elif found is not None:
            roles = ", ".join(found.roles)
            named.append(f"{found.name} ({found.trust.value}{f'; {roles}' if roles else ''})")
        else:
            named.append("somebody unknown")
    if (more := len(participants.people) - _MOST_NAMED) > 0:
        named.append(f"{more} more")
    where = f" in the room {participants.room}" if participants.room is not None else ""
    # Strangers choose their names, and those of rooms.
    return unmarked(
        f"Present{where}: {', '.join(named)}. You see of your memory only what all of them may "
        "hear."
    )
