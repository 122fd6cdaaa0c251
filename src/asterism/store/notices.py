"""What an owner must be told, at rest."""

from __future__ import annotations

from asterism.store.database import Connection
from asterism.types.messages import Notice


async def put(tx: Connection, notice: Notice) -> None:
    """Store a notice in the transaction of what it tells."""
    await tx.run(
        "INSERT INTO notices (id, agent_id, turn_id, kind, text, at) VALUES (?, ?, ?, ?, ?, ?)",
        (notice.id, notice.agent_id, notice.turn_id, notice.kind, notice.text, notice.at),
    )


async def listing(tx: Connection, constellation: str, *, unseen: bool, most: int) -> list[Notice]:
    """Return notices, oldest first; only those not seen yet if `unseen`."""
    where = "AND seen_at IS NULL" if unseen else ""
    rows = await tx.all(
        "SELECT id, agent_id, turn_id, kind, text, at FROM notices"
        f" WHERE agent_id IN (SELECT id FROM agents WHERE constellation = ?) {where}"
        " ORDER BY at, id LIMIT ?",
        (constellation, most),
    )
    return [Notice(*row) for row in rows]


async def mark_seen(tx: Connection, ids: list[str], at: int) -> None:
    """Note that the owner has seen these."""
    await tx.run_many(
        "UPDATE notices SET seen_at = ? WHERE id = ? AND seen_at IS NULL",
        [(at, notice_id) for notice_id in ids],
    )
