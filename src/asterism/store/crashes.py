"""Crashes at rest: turns that were under way when a process ended abnormally, and how often."""

from __future__ import annotations

from asterism.records import dataclass
from asterism.store import journal, messages
from asterism.store.database import Connection, Row
from asterism.types.agents import message_id_for

_CRASH = "turn_id, agent_id, ends, total"


@dataclass(frozen=True, slots=True)
class Crash:
    """How often a process has ended with the same turn under way."""

    turn_id: str
    agent_id: str
    ends: int
    """While the process worked at it, and it got no further in between."""
    total: int
    """In all, also while it waited for a model and where it got further."""


def _crash(row: Row) -> Crash:
    return Crash(*row)


async def all_crashes(tx: Connection) -> list[Crash]:
    """Return the crashes of all turns, of all constellations: lanes work for all of them."""
    return [_crash(row) for row in await tx.all(f"SELECT {_CRASH} FROM crashes")]


async def crashes_of(tx: Connection, agent_id: str) -> list[Crash]:
    """Return the crashes of turns of an agent."""
    rows = await tx.all(f"SELECT {_CRASH} FROM crashes WHERE agent_id = ?", (agent_id,))
    return [_crash(row) for row in rows]


async def count(tx: Connection, turn_id: str, *, executing: bool) -> None:
    """Count an abnormal end of a process for a turn that was under way in it, if it may go on.

    `executing` tells whether the process worked at it, and did not only wait for a model.
    """
    stands = await tx.one(
        "SELECT agent_id, last_seq FROM turns WHERE id = ? AND ended_at IS NULL", (turn_id,)
    ) or await tx.one("SELECT agent_id, 0 FROM inbox WHERE id = ?", (message_id_for(turn_id),))
    if stands is None:
        return
    agent_id, seq = stands
    row = await tx.one("SELECT seq, ends, total FROM crashes WHERE turn_id = ?", (turn_id,))
    former, ends, total = row or (seq, 0, 0)
    # Whoever gets further each time is not what ends the process there.
    ends = (ends if former == seq else 0) + executing
    await tx.run(
        "INSERT INTO crashes (turn_id, agent_id, seq, ends, total, executing)"
        " VALUES (?, ?, ?, ?, ?, 0) ON CONFLICT (turn_id) DO UPDATE SET"
        " seq = excluded.seq, ends = excluded.ends, total = excluded.total, executing = 0",
        (turn_id, agent_id, seq, ends, total + 1),
    )


async def count_lane(tx: Connection, agent_id: str) -> None:
    """Count an abnormal end for the turn that a lane was at, as far as the store can tell."""
    record = await journal.find_open_turn(tx, agent_id)
    item = None if record is not None else await messages.first(tx, agent_id)
    turn_id = record.id if record is not None else item.turn_id if item is not None else None
    if turn_id is None:
        return
    row = await tx.one("SELECT executing FROM crashes WHERE turn_id = ?", (turn_id,))
    await count(tx, turn_id, executing=row is None or bool(row[0]))


async def note_executing(tx: Connection, turn_id: str, *, executing: bool) -> None:
    """Note whether a worker works at a turn with crashes, or only waits for a model."""
    await tx.run("UPDATE crashes SET executing = ? WHERE turn_id = ?", (int(executing), turn_id))


async def forget(tx: Connection, turn_id: str) -> None:
    """Forget the crashes of a turn that has ended."""
    await tx.run("DELETE FROM crashes WHERE turn_id = ?", (turn_id,))
