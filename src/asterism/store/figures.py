"""How much there is and how much waits, in one read."""

from __future__ import annotations

from typing import Any

from asterism.store.database import Connection
from asterism.types.figures import Figures

_OURS = "agent_id IN (SELECT id FROM agents WHERE constellation = ?)"


async def read(tx: Connection, constellation: str) -> Figures:
    """Return the figures of a constellation."""
    own = (constellation,)

    async def one(sql: str) -> tuple[Any, ...]:
        return await tx.one(sql, own) or (0, None)

    agents = await one("SELECT COUNT(*) FROM agents WHERE constellation = ? AND deleted_at IS NULL")
    inbox = await one(f"SELECT COUNT(*), MIN(at) FROM inbox WHERE {_OURS}")
    approvals = await one(
        "SELECT COUNT(*) FROM approvals JOIN turns ON turns.id = approvals.turn_id"
        " JOIN agents ON agents.id = approvals.agent_id WHERE agents.constellation = ?"
        " AND approvals.decided_at IS NULL AND turns.ended_at IS NULL"
    )
    notices = await one(f"SELECT COUNT(*) FROM notices WHERE seen_at IS NULL AND {_OURS}")
    unsent = await tx.all(
        f"SELECT state, COUNT(*) FROM outbox WHERE state <> 'sent' AND {_OURS} GROUP BY state",
        own,
    )
    schedules = await one(f"SELECT COUNT(*) FROM schedules WHERE {_OURS}")
    # A month's period is written as 2026-11; those of days are parts of it.
    money = await one(
        "SELECT SUM(spent), SUM(presumed), SUM(reserved) FROM totals"
        " WHERE constellation = ? AND scope = 'all' AND LENGTH(period) = 7"
    )
    return Figures(
        agents=int(agents[0]),
        inbox=int(inbox[0]),
        oldest=int(inbox[1]) if inbox[1] is not None else None,
        approvals=int(approvals[0]),
        notices=int(notices[0]),
        deliveries={str(state): int(count) for state, count in unsent},
        schedules=int(schedules[0]),
        money={
            state: int(amount or 0)
            for state, amount in zip(("spent", "presumed", "reserved"), money, strict=False)
        },
    )
