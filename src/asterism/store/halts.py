"""Halts at rest: what keeps a constellation from taking turns, through restarts too."""

from __future__ import annotations

from asterism.store import inbox
from asterism.store.database import Connection
from asterism.types.halts import Halt

_COLUMNS = "id, agent_id, turn_id, severity, reason, at"
TOPIC = "halt"
"""What is announced when a constellation is halted or goes on, with its name."""


async def put(tx: Connection, constellation: str, halt: Halt) -> None:
    """Halt a constellation; those that work hear of it at the commit."""
    await tx.run(
        f"INSERT INTO halts (constellation, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            constellation,
            halt.id,
            halt.agent_id,
            halt.turn_id,
            halt.severity,
            halt.reason,
            halt.at,
        ),
    )
    await tx.notify(TOPIC, constellation)


async def current(tx: Connection, constellation: str) -> Halt | None:
    """Return the first halt that was not lifted, if there is one."""
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM halts WHERE constellation = ? AND lifted_at IS NULL"
        " ORDER BY at, id LIMIT 1",
        (constellation,),
    )
    return Halt(*row) if row else None


async def lift(tx: Connection, constellation: str, by: str, at: int) -> int:
    """Let a constellation go on; return how many halts stood in its way."""
    changed = await tx.run(
        "UPDATE halts SET lifted_at = ?, lifted_by = ?"
        " WHERE constellation = ? AND lifted_at IS NULL",
        (at, by, constellation),
    )
    if changed:
        await tx.notify(TOPIC, constellation)
        # Lanes that had nothing to do while it stood must look again.
        for agent_id in await inbox.busy_agents(tx):
            await tx.enqueue(agent_id)
            await tx.notify("lane", agent_id)
    return changed
