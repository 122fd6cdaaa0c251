"""The names that are left out of what is encoded: who spoke is asked apart from what was said."""

from __future__ import annotations

from asterism.store import agents, people
from asterism.store.database import Connection

_NO_NAMES = frozenset({"agent", "assistant", "owner", "somebody", "user"})


async def names_for(tx: Connection, constellation: str, owner_id: str) -> list[str]:
    """Return the names of all persons, and of the agent whose texts they are if it is one's."""
    found = [name for _, name in await people.names(tx, constellation)]
    agent = await agents.by_id(tx, owner_id)
    if agent is not None:
        found.append(agent.name)
    # Strangers are named after their accounts, as in `telegram:anna`.
    found += [name.partition(":")[2] for name in found if ":" in name]
    found += [name.split()[0] for name in found if len(name.split()) > 1]
    return [
        name
        for name in dict.fromkeys(found)
        if len(name) > 1 and name.casefold() not in _NO_NAMES and any(map(str.isalpha, name))
    ]
