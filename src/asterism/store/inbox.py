"""The inbox at rest: accepted once, waiting in order of arrival."""

from __future__ import annotations

from typing import Any

from asterism.store.database import Connection, Row
from asterism.types.turns import InboxItem, InboxKind, Origin

_NEW = (
    "agent_id, arrival, id, kind, channel, body, at, sender, reply_to, schema, participants,"
    " turn_id"
)
_COLUMNS = f"{_NEW}, stopped"


def _item(row: Row) -> InboxItem:
    return InboxItem(*row)


async def accept_once(
    tx: Connection,
    constellation: str,
    channel: str,
    external_id: str,
    message_id: str,
    agent_id: str,
) -> tuple[str, str] | None:
    """Note an external id. Return the (message, agent) that had it before, or None if it is new."""
    new = await tx.one(
        "INSERT INTO accepted VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING message_id",
        (constellation, channel, external_id, message_id, agent_id),
    )
    if new is not None:
        return None
    former = await tx.one(
        "SELECT message_id, agent_id FROM accepted"
        " WHERE constellation = ? AND channel = ? AND external_id = ?",
        (constellation, channel, external_id),
    )
    assert former is not None
    return former[0], former[1]


async def put_message(
    tx: Connection,
    agent_id: str,
    message_id: str,
    body: bytes,
    origin: Origin,
    at: int,
    *,
    schema: str | None = None,
    participants: str | None = None,
    announce: bool = True,
) -> InboxItem | None:
    """Put a message at the end of an agent's inbox; None if there is no such agent.

    `participants` are those present, resolved to persons. Without `announce` the caller wakes the
    lane in its own process after the commit.
    """
    told = (origin.channel, body, at, origin.sender, origin.reply_to, schema, participants, None)
    return await _put(tx, agent_id, message_id, InboxKind.MESSAGE, told, announce=announce)


async def put_decision(
    tx: Connection, agent_id: str, decision_id: str, turn_id: str, body: bytes, at: int
) -> InboxItem | None:
    """Put the answer to a question of a parked turn at the end of an agent's inbox."""
    told = ("", body, at, None, None, None, None, turn_id)
    return await _put(tx, agent_id, decision_id, InboxKind.DECISION, told, announce=True)


async def _put(
    tx: Connection,
    agent_id: str,
    item_id: str,
    kind: InboxKind,
    rest: tuple[Any, ...],
    *,
    announce: bool,
) -> InboxItem | None:
    # The row lock that this takes on PostgreSQL makes arrival numbers follow the commits.
    row = await tx.one(
        "UPDATE agents SET arrivals = arrivals + 1 WHERE id = ? AND deleted_at IS NULL"
        " RETURNING arrivals",
        (agent_id,),
    )
    if row is None:
        return None
    values = (agent_id, row[0], item_id, kind.value, *rest)
    await tx.run(f"INSERT INTO inbox ({_NEW}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    await tx.enqueue(agent_id)
    if announce:
        await tx.notify("lane", agent_id)
    return InboxItem(*values)


async def first(tx: Connection, agent_id: str) -> InboxItem | None:
    """Return what has waited longest for this agent."""
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM inbox WHERE agent_id = ? ORDER BY arrival LIMIT 1", (agent_id,)
    )
    return _item(row) if row else None


async def waiting(
    tx: Connection, constellation: str, agent_id: str | None = None
) -> list[InboxItem]:
    """Return everything that waits, in order of arrival for each agent."""
    one = " AND agent_id = ?" if agent_id else ""
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM inbox"
        f" WHERE agent_id IN (SELECT id FROM agents WHERE constellation = ?){one}"
        " ORDER BY agent_id, arrival",
        (constellation, agent_id) if agent_id else (constellation,),
    )
    return [_item(row) for row in rows]


async def count(tx: Connection, constellation: str) -> int:
    """Return how much waits."""
    row = await tx.one(
        "SELECT COUNT(*) FROM inbox"
        " WHERE agent_id IN (SELECT id FROM agents WHERE constellation = ?)",
        (constellation,),
    )
    return int(row[0]) if row else 0


async def busy_agents(tx: Connection) -> list[str]:
    """Return the agents that have something to do: a waiting item or an open turn."""
    rows = await tx.all(
        "SELECT agent_id FROM inbox UNION SELECT agent_id FROM turns WHERE state = 'open'"
    )
    return [row[0] for row in rows]


async def take(tx: Connection, item: InboxItem, *, stopped: bool = False) -> bool:
    """Take an item out; False if it is not there any more, or was stopped and is not to be."""
    any_more = "" if stopped else " AND stopped IS NULL"
    changed = await tx.run(
        f"DELETE FROM inbox WHERE agent_id = ? AND arrival = ?{any_more}",
        (item.agent_id, item.arrival),
    )
    return changed > 0


async def stop(tx: Connection, message_id: str, reason: str) -> str | None:
    """Keep the turn of a waiting message from beginning; return whose it is.

    None if no such message waits, or if it was stopped before.
    """
    row = await tx.one(
        "UPDATE inbox SET stopped = ? WHERE id = ? AND kind = 'message' AND stopped IS NULL"
        " RETURNING agent_id",
        (reason, message_id),
    )
    return row[0] if row else None


async def find(tx: Connection, message_id: str) -> InboxItem | None:
    """Return a waiting item by its id."""
    row = await tx.one(f"SELECT {_COLUMNS} FROM inbox WHERE id = ?", (message_id,))
    return _item(row) if row else None
