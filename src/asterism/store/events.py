"""The audit log at rest: events in chains of hashes, only ever appended to."""

from __future__ import annotations

import os
from collections.abc import Sequence

import orjson

from asterism.store.database import Connection, Row
from asterism.telemetry.redaction import redact
from asterism.types.events import (
    ANCHORED,
    NOTHING,
    Event,
    Head,
    Recorded,
    body_bytes,
    digest_of,
    hash_of,
    home_chain,
)
from asterism.types.wire import plain

_SALT = 16
_COLUMNS = "chain, number, at, kind, actor, agent_id, turn_id, body, salt, digest, hash"
_ANCHORS_AT_ONCE = 200


async def append(tx: Connection, chain: str, events: Sequence[Event], *, place: str = "") -> None:
    """Append events to a chain, without any secret that is known; three statements.

    Args:
        tx: A transaction.
        chain: An agent's id, or that of a home.
        events: In their order.
        place: What stands before the names of the tables: nothing, or a snapshot's name and a dot.
    """
    if not events:
        return
    take = f"UPDATE {place}chains SET length = length + ? WHERE id = ? RETURNING length, hash"
    # The update locks the head, so that whoever else appends to this chain waits.
    head = await tx.one(take, (len(events), chain))
    if head is None:
        await tx.run(
            f"INSERT INTO {place}chains (id, length, hash) VALUES (?, 0, ?) ON CONFLICT DO NOTHING",
            (chain, NOTHING),
        )
        head = await tx.one(take, (len(events), chain))
        assert head is not None
    rows = _linked(chain, int(head[0]) - len(events), bytes(head[1]), events)
    values = ", ".join("?" * len(rows[0]))
    await tx.run_many(f"INSERT INTO {place}events ({_COLUMNS}) VALUES ({values})", rows)
    await tx.run(f"UPDATE {place}chains SET hash = ? WHERE id = ?", (rows[-1][10], chain))


def _linked(chain: str, length: int, before: bytes, events: Sequence[Event]) -> list[Row]:
    rows: list[Row] = []
    salts = os.urandom(_SALT * len(events))
    for number, event in enumerate(events, length + 1):
        at = (number - length - 1) * _SALT
        salt = salts[at : at + _SALT]
        body = redact(body_bytes(event.body).decode()).encode()
        digest = digest_of(salt, body)
        actor = plain(redact(event.actor))
        about = (event.agent_id or None, event.turn_id or None)
        facts = (chain, number, event.at, event.kind, actor, *about)
        before = hash_of(before, digest, facts)
        rows.append((*facts, body, salt, digest, before))
    return rows


def _recorded(row: Row) -> Recorded:
    chain, number, at, kind, actor, agent_id, turn_id, body, salt, digest, own = row
    return Recorded(
        chain,
        number,
        at,
        kind,
        actor,
        agent_id,
        turn_id,
        orjson.loads(body) if body is not None else None,
        bytes(salt) if salt is not None else None,
        bytes(digest),
        bytes(own),
    )


async def page(
    tx: Connection,
    constellation: str,
    *,
    agent_id: str | None = None,
    kind: str | None = None,
    actor: str | None = None,
    turn_id: str | None = None,
    since: int | None = None,
    until: int | None = None,
    limit: int = 50,
    before: tuple[int, str, int] | None = None,
) -> list[Recorded]:
    """Return events of a constellation, the newest first.

    Args:
        tx: A transaction.
        constellation: Whose.
        agent_id: Only those in an agent's chain, or about it.
        kind: Only those of a kind, such as `call.denied`, or all of a thing, such as `call`.
        actor: Only what this one did.
        turn_id: Only what belongs to a turn.
        since: The first moment in milliseconds.
        until: The last one.
        limit: How many at most.
        before: Time, chain and number of the last one of the page before.
    """
    home = home_chain(constellation)
    if agent_id is None:
        such = ["(chain = ? OR chain IN (SELECT id FROM agents WHERE constellation = ?))"]
        values: list[object] = [home, constellation]
    else:
        such = ["(chain = ? OR (chain = ? AND agent_id = ?))"]
        values = [agent_id, home, agent_id]
    for column, wanted in (("actor", actor), ("turn_id", turn_id)):
        if wanted is not None:
            such.append(f"{column} = ?")
            values.append(wanted)
    if kind is not None:
        such.append("(kind = ? OR SUBSTR(kind, 1, ?) = ?)")
        values += [kind, len(kind) + 1, f"{kind}."]
    if since is not None:
        such.append("at >= ?")
        values.append(since)
    if until is not None:
        such.append("at <= ?")
        values.append(until)
    if before is not None:
        such.append("(at, chain, number) < (?, ?, ?)")
        values += before
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM events WHERE {' AND '.join(such)}"
        " ORDER BY at DESC, chain DESC, number DESC LIMIT ?",
        (*values, limit),
    )
    return [_recorded(row) for row in rows]


async def get(tx: Connection, chain: str, number: int) -> Recorded | None:
    """Return one event."""
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM events WHERE chain = ? AND number = ?", (chain, number)
    )
    return _recorded(row) if row else None


async def following(tx: Connection, chain: str, after: int, limit: int) -> list[Row]:
    """Return rows of a chain in its order, as they are stored."""
    return await tx.all(
        f"SELECT {_COLUMNS} FROM events WHERE chain = ? AND number > ? ORDER BY number LIMIT ?",
        (chain, after, limit),
    )


async def heads(tx: Connection) -> list[Head]:
    """Return the heads of all chains in the database."""
    rows = await tx.all("SELECT id, length, hash FROM chains ORDER BY id")
    return [Head(*row) for row in rows]


async def chains_of(tx: Connection, constellation: str) -> list[str]:
    """Return the chains of a constellation, its own first."""
    home = home_chain(constellation)
    rows = await tx.all(
        "SELECT id FROM chains WHERE id IN (SELECT id FROM agents WHERE constellation = ?)"
        " ORDER BY id",
        (constellation,),
    )
    return [home, *(row[0] for row in rows)]


async def anchor(tx: Connection, constellation: str, at: int) -> int:
    """Write into the home's chain how far the others have come since; return how many had."""
    rows = await tx.all(
        "SELECT c.id, c.length, c.hash FROM chains c LEFT JOIN anchors a ON a.chain = c.id"
        " WHERE (a.length IS NULL OR c.length > a.length)"
        " AND c.id IN (SELECT id FROM agents WHERE constellation = ?) ORDER BY c.id",
        (constellation,),
    )
    home = home_chain(constellation)
    for first in range(0, len(rows), _ANCHORS_AT_ONCE):
        some = rows[first : first + _ANCHORS_AT_ONCE]
        told = {chain: [length, bytes(own).hex()] for chain, length, own in some}
        body = {"what": f"heads of {len(told)} chains", "heads": told}
        await append(tx, home, [Event(ANCHORED, "asterism", at, body)])
        await tx.run_many(
            "INSERT INTO anchors (chain, length) VALUES (?, ?)"
            " ON CONFLICT (chain) DO UPDATE SET length = excluded.length",
            [(chain, length) for chain, length, _ in some],
        )
    return len(rows)
