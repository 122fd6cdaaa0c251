"""Epochs at rest: which prefix a context had, from where on its tail went, and why."""

from __future__ import annotations

from dataclasses import replace

from asterism.records import dataclass
from asterism.store.database import Connection, Row

_COLUMNS = "agent_id, number, participants, first_seq, summary, sections, why, at"


@dataclass(frozen=True, slots=True)
class Epoch:
    """How long a context keeps the same prefix."""

    agent_id: str
    number: int
    """Of an epoch that is not stored yet, the number that was free when it was compiled."""
    participants: str
    """The key of those it was compiled for."""
    first_seq: int
    """The entry of the journal that its tail begins with."""
    summary: str | None
    """The summary that stands for what came before."""
    sections: str
    """What the prefix is made of, as JSON."""
    why: str
    at: int


def _epoch(row: Row) -> Epoch:
    return Epoch(*row)


async def begin(tx: Connection, epoch: Epoch) -> Epoch:
    """Store an epoch under the next free number of its agent, and return it as it is stored.

    Where the past was compacted while a turn went on in the epoch before, the new one is stored
    once more behind that turn's: it holds from the next turn on.
    """
    await hold(tx, epoch.agent_id)
    former = await latest(tx, epoch.agent_id, epoch.participants)
    number = await count(tx, epoch.agent_id) + 1
    begun = replace(epoch, number=number)
    await _insert(tx, begun)
    if former is not None and former.summary and former.first_seq > epoch.first_seq:
        await _insert(tx, replace(former, number=number + 1))
    return begun


async def hold(tx: Connection, agent_id: str) -> None:
    """Lock the epochs of an agent until this transaction ends."""
    await tx.run("UPDATE agents SET length = length WHERE id = ?", (agent_id,))


async def _insert(tx: Connection, epoch: Epoch) -> None:
    await tx.run(
        f"INSERT INTO epochs ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(epoch.agent_id, epoch.number, epoch.participants, epoch.first_seq, epoch.summary),
            *(epoch.sections, epoch.why, epoch.at),
        ),
    )


async def find(tx: Connection, epoch: Epoch) -> Epoch | None:
    """Return an epoch as it was stored, under any number; None if it was not stored."""
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM epochs WHERE agent_id = ? AND participants = ? AND number >= ?"
        " AND first_seq = ? AND at = ? AND sections = ? ORDER BY number LIMIT 1",
        (
            *(epoch.agent_id, epoch.participants, epoch.number),
            *(epoch.first_seq, epoch.at, epoch.sections),
        ),
    )
    return _epoch(row) if row else None


async def latest(tx: Connection, agent_id: str, participants: str) -> Epoch | None:
    """Return the epoch that holds now for some participants."""
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM epochs WHERE agent_id = ? AND participants = ?"
        " ORDER BY number DESC LIMIT 1",
        (agent_id, participants),
    )
    return _epoch(row) if row else None


async def get(tx: Connection, agent_id: str, number: int) -> Epoch | None:
    """Return an epoch by its number."""
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM epochs WHERE agent_id = ? AND number = ?", (agent_id, number)
    )
    return _epoch(row) if row else None


async def count(tx: Connection, agent_id: str) -> int:
    """Return the number of the latest epoch of an agent, whatever the participants."""
    row = await tx.one("SELECT MAX(number) FROM epochs WHERE agent_id = ?", (agent_id,))
    return int(row[0] or 0) if row else 0


async def until(tx: Connection, agent_id: str, moment: int, most: int) -> list[Epoch]:
    """Return the epochs that an agent had begun by a moment, the latest first."""
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM epochs WHERE agent_id = ? AND at <= ?"
        " ORDER BY number DESC LIMIT ?",
        (agent_id, moment, most),
    )
    return [_epoch(row) for row in rows]
