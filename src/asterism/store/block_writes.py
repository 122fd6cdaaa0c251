"""Blocks at rest: writing. Only the gate calls this, since it checks nothing."""

from __future__ import annotations

from collections.abc import Sequence

from asterism.store import agents
from asterism.store.blocks import COLUMNS_WITH_CONTENT, BlockRow, EditRow, EraRow
from asterism.store.database import Connection
from asterism.types.memory import CONSTELLATION


async def insert(tx: Connection, row: BlockRow) -> bool:
    """Store a new block; False if its owner has one of that label."""
    places = ", ".join("?" * len(row))
    stored = await tx.one(
        f"INSERT INTO blocks ({COLUMNS_WITH_CONTENT}) VALUES ({places})"
        " ON CONFLICT DO NOTHING RETURNING id",
        row,
    )
    return stored is not None


async def lock(tx: Connection, block_id: str) -> BlockRow | None:
    """Return a block that nobody else writes until this transaction ends; None: it is gone."""
    row = await tx.one(
        "UPDATE blocks SET version = version WHERE id = ? AND retired_at IS NULL"
        f" RETURNING {COLUMNS_WITH_CONTENT}",
        (block_id,),
    )
    return BlockRow(*row) if row else None


async def update(tx: Connection, row: BlockRow) -> None:
    """Store what a block is now."""
    await tx.run(
        "UPDATE blocks SET label = ?, type = ?, description = ?, schema = ?, max_chars = ?,"
        " permission = ?, audience = ?, pinned = ?, version = ?, text = ?, lines = ?,"
        " content = ?, updated_at = ?, retired_at = ? WHERE id = ?",
        (
            *(row.label, row.type, row.description, row.schema, row.max_chars, row.permission),
            *(row.audience, row.pinned, row.version, row.text, row.lines, row.content),
            *(row.updated_at, row.retired_at, row.id),
        ),
    )


async def put_edit(tx: Connection, block_id: str, edit: EditRow) -> None:
    """Store an edit."""
    await tx.run(
        "INSERT INTO block_edits (block_id, number, kind, author, turn_id, reason, source, undoes,"
        " undone_by, at, change) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (block_id, *edit),
    )


async def mark_undone(tx: Connection, block_id: str, number: int, by: int) -> bool:
    """Note which edit took a loose edit back; False if it is not among the loose ones."""
    changed = await tx.run(
        "UPDATE block_edits SET undone_by = ? WHERE block_id = ? AND number = ?",
        (by, block_id, number),
    )
    return changed > 0


async def put_era(tx: Connection, block_id: str, era: EraRow) -> None:
    """Store an era, in the place of one that begins with the same edit."""
    await tx.run("DELETE FROM block_eras WHERE block_id = ? AND first = ?", (block_id, era.first))
    await tx.run(
        "INSERT INTO block_eras (block_id, first, last, content, edits, since)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (block_id, *era),
    )


async def drop_squashed(tx: Connection, block_id: str, first: int, last: int) -> None:
    """Remove edits that an era now holds."""
    await tx.run(
        "DELETE FROM block_edits WHERE block_id = ? AND number BETWEEN ? AND ?",
        (block_id, first, last),
    )


async def put_replica(tx: Connection, block_id: str, version: int, document: bytes) -> None:
    """Store the Loro document of a block, which says what the block says at a version."""
    await tx.run(
        "INSERT INTO block_replicas (block_id, version, document) VALUES (?, ?, ?)"
        " ON CONFLICT (block_id) DO UPDATE SET version = excluded.version,"
        " document = excluded.document",
        (block_id, version, document),
    )


async def set_share(
    tx: Connection, block_id: str, agent_id: str, permission: str, since: int
) -> None:
    """Share a block with an agent, or change the permission with which it is."""
    await tx.run(
        "INSERT INTO block_agents (block_id, agent_id, permission, since) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (block_id, agent_id) DO UPDATE SET permission = excluded.permission",
        (block_id, agent_id, permission, since),
    )


async def drop_share(tx: Connection, block_id: str, agent_id: str) -> bool:
    """Take a block away from an agent; False if it was not shared with it."""
    changed = await tx.run(
        "DELETE FROM block_agents WHERE block_id = ? AND agent_id = ?", (block_id, agent_id)
    )
    return changed > 0


async def note_change(tx: Connection, row: BlockRow, also: Sequence[str] = ()) -> None:
    """Count a change of memory for every agent that sees a block, and for others as told."""
    if row.owner_id == CONSTELLATION:
        await agents.all_memory_changed(tx, row.constellation)
        return
    shared = await tx.all("SELECT agent_id FROM block_agents WHERE block_id = ?", (row.id,))
    await agents.memory_changed(tx, [row.owner_id, *also, *(one[0] for one in shared)])
