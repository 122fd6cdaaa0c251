"""Grants at rest."""

from __future__ import annotations

import orjson

from asterism.store.database import Connection, Row
from asterism.types.approvals import read_effects, write_effects
from asterism.types.grants import Grant

_COLUMNS = (
    "id, constellation, tool, agent_id, pattern, turn_id, until, uses, given_by, given_at,"
    " approval_id, revoked_at, effects, arguments, amount, per_day, definition"
)


def _grant(row: Row) -> Grant:
    values = list(row)
    values[4] = orjson.loads(row[4])
    values[12] = read_effects(row[12]) if row[12] is not None else None
    return Grant(*values)


async def put(tx: Connection, grant: Grant) -> None:
    """Store a grant; it counts from the next call on."""
    await tx.run(
        f"INSERT INTO grants ({_COLUMNS})"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            grant.id,
            grant.constellation,
            grant.tool,
            grant.agent_id,
            orjson.dumps(dict(grant.pattern), option=orjson.OPT_SORT_KEYS).decode(),
            grant.turn_id,
            grant.until,
            grant.uses,
            grant.given_by,
            grant.given_at,
            grant.approval_id,
            grant.revoked_at,
            write_effects(grant.effects) if grant.effects is not None else None,
            grant.arguments,
            grant.amount,
            grant.per_day,
            grant.definition,
        ),
    )
    await tx.notify("grant", grant.constellation)


async def live(
    tx: Connection, constellation: str, agent_id: str, now: int, turn_id: str | None = None
) -> list[Grant]:
    """Return what an agent has been granted and may still use, the oldest first.

    With a turn, without those that were given for other turns.
    """
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM grants WHERE constellation = ? AND revoked_at IS NULL"
        " AND (agent_id IS NULL OR agent_id = ?) AND (until IS NULL OR until > ?)"
        " AND (uses IS NULL OR uses > 0) AND (turn_id IS NULL OR turn_id = COALESCE(?, turn_id))"
        " ORDER BY given_at, id",
        (constellation, agent_id, now, turn_id),
    )
    return [_grant(row) for row in rows]


async def listing(
    tx: Connection, constellation: str, now: int, *, everything: bool = False
) -> list[Grant]:
    """Return the grants that still count, or all that were ever given, the oldest first."""
    still = "" if everything else _STILL
    values = (constellation,) if everything else (constellation, now)
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM grants WHERE constellation = ?{still} ORDER BY given_at, id",
        values,
    )
    return [_grant(row) for row in rows]


# One for a turn that has ended covers nothing any more.
_STILL = (
    " AND revoked_at IS NULL AND (until IS NULL OR until > ?) AND (uses IS NULL OR uses > 0)"
    " AND (turn_id IS NULL OR turn_id IN (SELECT id FROM turns WHERE ended_at IS NULL))"
)


async def get(tx: Connection, constellation: str, grant_id: str) -> Grant | None:
    """Return a grant."""
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM grants WHERE constellation = ? AND id = ?",
        (constellation, grant_id),
    )
    return _grant(row) if row else None


async def use(tx: Connection, grant_id: str) -> bool:
    """Count one call; False if the grant does not cover it any more."""
    changed = await tx.run(
        "UPDATE grants SET uses = uses - 1"
        " WHERE id = ? AND revoked_at IS NULL AND (uses IS NULL OR uses > 0)",
        (grant_id,),
    )
    return changed > 0


async def revoke(tx: Connection, constellation: str, grant_id: str, at: int) -> bool:
    """Take a grant back; False if it was before."""
    changed = await tx.run(
        "UPDATE grants SET revoked_at = ? WHERE constellation = ? AND id = ?"
        " AND revoked_at IS NULL",
        (at, constellation, grant_id),
    )
    if changed:
        await tx.notify("grant", constellation)
    return changed > 0
