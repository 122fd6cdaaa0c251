"""The outbox at rest: what must go out, in order for each target, tried until sent or given up."""

from __future__ import annotations

from collections.abc import Sequence

from asterism.store.database import Connection, Row, marks
from asterism.types.turns import Delivery

_COLUMNS = (
    "key, agent_id, turn_id, channel, target, body, attempts, state, next_at, created_at, error"
)

# Times may be equal or go back; numbers follow the order in which an agent's turns were written.
_LAST_NUMBER = (
    "SELECT COALESCE(MAX(number), 0) FROM outbox"
    " WHERE channel = ? AND target = ? AND state <> 'sent'"
)
_FIRST_OF_ITS_TARGET = (
    "NOT EXISTS (SELECT 1 FROM outbox b WHERE b.state = 'waiting'"
    " AND b.channel = o.channel AND b.target = o.target"
    " AND (b.number < o.number OR (b.number = o.number AND b.key < o.key)))"
)


def _delivery(row: Row) -> Delivery:
    return Delivery(*row)


async def put(tx: Connection, delivery: Delivery) -> None:
    """Put a message on its way, in the transaction that makes it true."""
    await tx.run(
        f"INSERT INTO outbox ({_COLUMNS}, number)"
        f" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ({_LAST_NUMBER}) + 1) ON CONFLICT DO NOTHING",
        (
            delivery.key,
            delivery.agent_id,
            delivery.turn_id,
            delivery.channel,
            delivery.target,
            delivery.text,
            delivery.attempts,
            delivery.state,
            delivery.next_at,
            delivery.created_at,
            delivery.error,
            delivery.channel,
            delivery.target,
        ),
    )


async def due(tx: Connection, now: int, most: int) -> list[Delivery]:
    """Return deliveries that may be tried now: the oldest waiting one of each target."""
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM outbox o WHERE state = 'waiting' AND next_at <= ?"
        f" AND {_FIRST_OF_ITS_TARGET} ORDER BY created_at, key LIMIT ?",
        (now, most),
    )
    return [_delivery(row) for row in rows]


async def next_time(tx: Connection) -> int | None:
    """Return when the next delivery may be tried."""
    row = await tx.one(
        f"SELECT MIN(next_at) FROM outbox o WHERE state = 'waiting' AND {_FIRST_OF_ITS_TARGET}"
    )
    return int(row[0]) if row and row[0] is not None else None


async def claim(tx: Connection, delivery: Delivery, until: int, worker: int | None) -> bool:
    """Reserve a delivery until a time, for a worker; False if another process was quicker."""
    changed = await tx.run(
        "UPDATE outbox SET attempts = attempts + 1, next_at = ?, claimed_by = ?"
        " WHERE key = ? AND state = 'waiting' AND next_at = ? AND attempts = ?",
        (until, worker, delivery.key, delivery.next_at, delivery.attempts),
    )
    return changed > 0


async def release(tx: Connection, delivery: Delivery, now: int) -> None:
    """Make a claimed delivery due, if nobody else has claimed it since."""
    await tx.run(
        "UPDATE outbox SET next_at = ?, claimed_by = NULL"
        " WHERE key = ? AND state = 'waiting' AND attempts = ?",
        (now, delivery.key, delivery.attempts),
    )


async def release_of(tx: Connection, workers: Sequence[int]) -> None:
    """Make due what workers had claimed that have died."""
    await tx.run(
        "UPDATE outbox SET next_at = created_at, claimed_by = NULL"
        f" WHERE state = 'waiting' AND claimed_by IN ({marks(workers)})",
        workers,
    )


async def sent(tx: Connection, key: str, at: int) -> None:
    """Record that a delivery arrived."""
    await tx.run(
        "UPDATE outbox SET state = 'sent', sent_at = ?, error = NULL, claimed_by = NULL"
        " WHERE key = ?",
        (at, key),
    )


async def failed(tx: Connection, delivery: Delivery, error: str, next_at: int | None) -> bool:
    """Record that a try failed; without a next time the delivery is dead.

    False if another process has claimed it since, which then records what becomes of it.
    """
    state = "dead" if next_at is None else "waiting"
    changed = await tx.run(
        "UPDATE outbox SET state = ?, error = ?, next_at = COALESCE(?, next_at), claimed_by = NULL"
        " WHERE key = ? AND state = 'waiting' AND attempts = ?",
        (state, error, next_at, delivery.key, delivery.attempts),
    )
    return changed > 0


async def revive(tx: Connection, key: str, now: int) -> bool:
    """Put a dead delivery back on its way."""
    changed = await tx.run(
        "UPDATE outbox SET state = 'waiting', attempts = 0, next_at = ?, error = NULL"
        " WHERE key = ? AND state = 'dead'",
        (now, key),
    )
    return changed > 0


async def release_claims(tx: Connection, now: int) -> None:
    """Make every waiting delivery due: no other process can be trying it."""
    await tx.run(
        "UPDATE outbox SET next_at = ?, claimed_by = NULL WHERE state = 'waiting' AND next_at > ?",
        (now, now),
    )


async def listing(
    tx: Connection, constellation: str, state: str | None, most: int
) -> list[Delivery]:
    """Return deliveries in a state (or all that are not sent), oldest first."""
    where = "state <> 'sent'" if state is None else "state = ?"
    values = (constellation, most) if state is None else (constellation, state, most)
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM outbox"
        f" WHERE agent_id IN (SELECT id FROM agents WHERE constellation = ?) AND {where}"
        " ORDER BY created_at, key LIMIT ?",
        values,
    )
    return [_delivery(row) for row in rows]
