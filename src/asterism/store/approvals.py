"""Questions to people at rest."""

from __future__ import annotations

from asterism.store.database import Connection, Row
from asterism.types.turns import Approval

_COLUMNS = "id, agent_id, turn_id, key, question, asked_at, approved, note, decided_by, decided_at"


def _approval(row: Row) -> Approval:
    values = list(row)
    values[6] = None if row[6] is None else bool(row[6])
    return Approval(*values)


async def put(tx: Connection, approval: Approval) -> None:
    """Store a question."""
    await tx.run(
        "INSERT INTO approvals (id, agent_id, turn_id, key, question, asked_at)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (
            approval.id,
            approval.agent_id,
            approval.turn_id,
            approval.key,
            approval.question,
            approval.asked_at,
        ),
    )


async def decide(
    tx: Connection, approval_id: str, approved: bool, note: str | None, by: str, at: int
) -> bool:
    """Store the answer; False if there was one before."""
    changed = await tx.run(
        "UPDATE approvals SET approved = ?, note = ?, decided_by = ?, decided_at = ?"
        " WHERE id = ? AND decided_at IS NULL",
        (int(approved), note, by, at, approval_id),
    )
    return changed > 0


async def get(tx: Connection, approval_id: str) -> Approval | None:
    """Return a question with its answer, if there is one."""
    row = await tx.one(f"SELECT {_COLUMNS} FROM approvals WHERE id = ?", (approval_id,))
    return _approval(row) if row else None


async def of_turn(tx: Connection, turn_id: str) -> list[Approval]:
    """Return all questions of a turn."""
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM approvals WHERE turn_id = ? ORDER BY asked_at, id", (turn_id,)
    )
    return [_approval(row) for row in rows]


async def waiting(tx: Connection, constellation: str) -> list[Approval]:
    """Return the questions nobody has answered yet, oldest first."""
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM approvals WHERE decided_at IS NULL"
        " AND agent_id IN (SELECT id FROM agents WHERE constellation = ?)"
        # A turn that a limit has ended takes no answer any more.
        " AND turn_id IN (SELECT id FROM turns WHERE ended_at IS NULL)"
        " ORDER BY asked_at, id",
        (constellation,),
    )
    return [_approval(row) for row in rows]
