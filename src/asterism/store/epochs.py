"""Epochs at rest: which prefix a context had, from where on its tail went, and why."""

from __future__ import annotations

from dataclasses import dataclass

from asterism.store.database import Connection, Row

_COLUMNS = "agent_id, number, company, first_seq, summary, sections, why, at"


@dataclass(frozen=True, slots=True)
class Epoch:
    """How long a context keeps the same prefix."""

    agent_id: str
    number: int
    company: str
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


async def put(tx: Connection, epoch: Epoch) -> None:
    """Store an epoch; one of the same number is replaced, since nothing was sent under it."""
    await tx.run(
        f"INSERT INTO epochs ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (agent_id, number) DO UPDATE SET company = excluded.company,"
        " first_seq = excluded.first_seq, summary = excluded.summary,"
        " sections = excluded.sections, why = excluded.why, at = excluded.at",
        (
            epoch.agent_id,
            epoch.number,
            epoch.company,
            epoch.first_seq,
            epoch.summary,
            epoch.sections,
            epoch.why,
            epoch.at,
        ),
    )


async def latest(tx: Connection, agent_id: str, company: str) -> Epoch | None:
    """Return the epoch that holds now for a company."""
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM epochs WHERE agent_id = ? AND company = ?"
        " ORDER BY number DESC LIMIT 1",
        (agent_id, company),
    )
    return _epoch(row) if row else None


async def get(tx: Connection, agent_id: str, number: int) -> Epoch | None:
    """Return an epoch by its number."""
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM epochs WHERE agent_id = ? AND number = ?", (agent_id, number)
    )
    return _epoch(row) if row else None


async def count(tx: Connection, agent_id: str) -> int:
    """Return the number of the latest epoch of an agent, whatever the company."""
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
