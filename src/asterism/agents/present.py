"""Who is present in a turn: what the agent is told of them, and how far the speaker is trusted."""

from __future__ import annotations

from typing import Any

import orjson

from asterism.memory import people
from asterism.store import people as people_at_rest
from asterism.store.database import Connection
from asterism.types.people import OWNER, Company, Tier, least_trusted

_MOST_NAMED = 20


async def who(tx: Connection, constellation: str, company: str) -> tuple[Company, Tier]:
    """Return those whom the JSON of an inbox item names, and the tier of the one who speaks."""
    told: dict[str, Any] = orjson.loads(company)
    speaker = next(iter(told["persons"]), "")
    if speaker == OWNER:
        tier = Tier.OWNER
    else:
        found = await people_at_rest.get(tx, constellation, speaker)
        tier = found.tier if found is not None else Tier.STRANGER
    # What an agent plans after reading something is trusted as far as that.
    tier = least_trusted((tier, Tier(told.get("tier", tier))))
    return await people.read_company(tx, constellation, company), tier


async def introduce(tx: Connection, constellation: str, company: Company) -> str:
    """Return in words who is present; nothing for the owner alone."""
    if company.owner_alone:
        return ""
    named: list[str] = []
    for one in company.hearers[:_MOST_NAMED]:
        found = await people_at_rest.get(tx, constellation, one.person_id)
        if one.person_id == OWNER:
            named.append("your owner")
        elif found is not None:
            roles = ", ".join(found.roles)
            named.append(f"{found.name} ({found.tier.value}{f'; {roles}' if roles else ''})")
        else:
            named.append("somebody unknown")
    if (more := len(company.hearers) - _MOST_NAMED) > 0:
        named.append(f"{more} more")
    where = f" in the room {company.room}" if company.room is not None else ""
    return (
        f"Present{where}: {', '.join(named)}. You see of your memory only what all of them may "
        "hear."
    )
