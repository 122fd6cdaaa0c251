"""What a search looks through besides archives: the messages of an agent's journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from asterism.store.database import Connection
from asterism.types.turns import EntryKind


class Said(NamedTuple):
    """A message or a reply, with who may hear it and how far it is trusted."""

    seq: int
    turn_id: str
    kind: str
    body: bytes
    at: int
    audience: str | None
    """None: the owner."""
    tier: str | None


async def said(
    tx: Connection,
    agent_id: str,
    kinds: Sequence[EntryKind],
    most: int,
    *,
    before: int | None = None,
    since: int | None = None,
    until: int | None = None,
    audiences: Sequence[str] | None = None,
) -> list[Said]:
    """Return messages of an agent's journal, newest first.

    Args:
        kinds: Messages, replies, or both.
        most: How many.
        before: Only those before this number.
        since: Only those from this moment on.
        until: Only those up to this moment.
        audiences: Only those of turns with one of these audiences.
    """
    where = ["e.agent_id = ?", f"e.kind IN ({', '.join('?' * len(kinds))})"]
    values: list[Any] = [agent_id, *(kind.value for kind in kinds)]
    for column, sign, value in (("seq", "<", before), ("at", ">=", since), ("at", "<=", until)):
        if value is not None:
            where.append(f"e.{column} {sign} ?")
            values.append(value)
    if audiences is not None:
        where.append(f"t.audience IN ({', '.join('?' * len(audiences)) or 'NULL'})")
        values += audiences
    rows = await tx.all(
        "SELECT e.seq, e.turn_id, e.kind, e.body, e.at, t.audience, t.tier"
        " FROM entries e LEFT JOIN turns t ON t.id = e.turn_id"
        f" WHERE {' AND '.join(where)} ORDER BY e.seq DESC LIMIT ?",
        (*values, most),
    )
    return [Said(*row) for row in rows]


async def audiences(tx: Connection, agent_id: str) -> list[str]:
    """Return each audience that turns in an agent's journal have; the owner's own are left out."""
    rows = await tx.all(
        "SELECT DISTINCT audience FROM turns WHERE audience IS NOT NULL"
        " AND id IN (SELECT turn_id FROM entries WHERE agent_id = ?)",
        (agent_id,),
    )
    return [row[0] for row in rows]
