"""Schedules at rest: messages that an agent gets when they fall due."""

from __future__ import annotations

from asterism.store.database import Connection, Row
from asterism.types.agents import Schedule

_COLUMNS = "id, agent_id, text, due_at, cron, channel, reply_to, created_at, participants"


def _schedule(row: Row) -> Schedule:
    return Schedule(*row)


async def put(tx: Connection, schedule: Schedule) -> None:
    """Store a schedule."""
    await tx.run(
        f"INSERT INTO schedules ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (
            schedule.id,
            schedule.agent_id,
            schedule.text,
            schedule.due_at,
            schedule.cron,
            schedule.channel,
            schedule.reply_to,
            schedule.created_at,
            schedule.participants,
        ),
    )


async def due(tx: Connection, now: int, most: int) -> list[Schedule]:
    """Return schedules that have fallen due, the longest overdue first."""
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM schedules WHERE due_at <= ? ORDER BY due_at, id LIMIT ?",
        (now, most),
    )
    return [_schedule(row) for row in rows]


async def next_time(tx: Connection) -> int | None:
    """Return when the next schedule falls due."""
    row = await tx.one("SELECT MIN(due_at) FROM schedules")
    return int(row[0]) if row and row[0] is not None else None


async def advance(tx: Connection, schedule: Schedule, next_due: int | None) -> bool:
    """Move a schedule on to its next time, or remove it; False if another process did."""
    if next_due is None:
        changed = await tx.run(
            "DELETE FROM schedules WHERE id = ? AND due_at = ?", (schedule.id, schedule.due_at)
        )
    else:
        changed = await tx.run(
            "UPDATE schedules SET due_at = ? WHERE id = ? AND due_at = ?",
            (next_due, schedule.id, schedule.due_at),
        )
    return changed > 0


async def of_agent(tx: Connection, agent_id: str) -> list[Schedule]:
    """Return an agent's schedules, the next one first."""
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM schedules WHERE agent_id = ? ORDER BY due_at, id", (agent_id,)
    )
    return [_schedule(row) for row in rows]


async def cancel(tx: Connection, agent_id: str, schedule_id: str) -> bool:
    """Remove a schedule of an agent; False if it has none of that id."""
    changed = await tx.run(
        "DELETE FROM schedules WHERE id = ? AND agent_id = ?", (schedule_id, agent_id)
    )
    return changed > 0
