"""The rows of blocks and passages as they are written: nothing but the gate may import this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from asterism.memory.blocks import COLUMNS_WITH_CONTENT, BlockRow, EditRow, EraRow
from asterism.records import dataclass
from asterism.store import agents, search_index
from asterism.store.database import Connection, Row
from asterism.store.passages import COLUMNS, PassageEdit, origins_wire
from asterism.types.documents import STAGED
from asterism.types.memory import CONSTELLATION, Passage


async def insert_block(tx: Connection, row: BlockRow) -> bool:
    """Store a new block; False if its owner has one of that label."""
    places = ", ".join("?" * len(row))
    stored = await tx.one(
        f"INSERT INTO blocks ({COLUMNS_WITH_CONTENT}) VALUES ({places})"
        " ON CONFLICT DO NOTHING RETURNING id",
        row,
    )
    return stored is not None


async def delete_block(tx: Connection, block_id: str) -> None:
    """Delete a block with its history, as if it had never been there."""
    for table in ("block_edits", "block_eras", "block_replicas", "block_agents"):
        await tx.run(f"DELETE FROM {table} WHERE block_id = ?", (block_id,))
    await tx.run(
        "DELETE FROM blocks WHERE id = ? AND constellation = ?", (block_id, tx.constellation)
    )


async def lock_block(tx: Connection, block_id: str) -> BlockRow | None:
    """Lock a block until the end of the transaction and return it; None: it is gone."""
    row = await tx.one(
        "UPDATE blocks SET version = version WHERE id = ? AND retired_at IS NULL"
        f" RETURNING {COLUMNS_WITH_CONTENT}",
        (block_id,),
    )
    return BlockRow(*row) if row else None


async def update_block(tx: Connection, row: BlockRow) -> None:
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
    """Store an era; it replaces an era that begins with the same edit."""
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


async def block_changed(tx: Connection, row: BlockRow, also: Sequence[str] = ()) -> None:
    """Count a change of memory for every agent that sees a block, and for those in `also`."""
    if row.owner_id == CONSTELLATION:
        await agents.all_memory_changed(tx)
        return
    shared = await tx.all("SELECT agent_id FROM block_agents WHERE block_id = ?", (row.id,))
    await agents.memory_changed(tx, [row.owner_id, *also, *(share[0] for share in shared)])


_ALL = f"constellation, {COLUMNS}, document, place, digest, vector, number"
_CHANGEABLE = {"text", "tags", "metadata", "origins", "audience", "trust", "digest", "vector"} | {
    "superseded_by",
    "superseded_at",
    "retracted_at",
}


@dataclass(frozen=True, slots=True)
class Fresh:
    """A passage that is not stored yet, with its digest and its vector."""

    passage: Passage
    digest: str
    vector: bytes | None
    document: str | None = None
    place: int | None = None


async def insert_passages(tx: Connection, rows: Sequence[Fresh]) -> None:
    """Store new passages; lock their archives first. Staged passages are not indexed yet."""
    visible = [row.passage for row in rows if row.passage.retracted_at_ms != STAGED]
    free = {
        archive_id: await search_index.next_number(tx, archive_id)
        for archive_id in dict.fromkeys(passage.archive_id for passage in visible)
    }
    numbers: dict[str, int] = {}
    for passage in visible:
        numbers[passage.id] = free[passage.archive_id]
        free[passage.archive_id] += 1
    marks = ", ".join("?" * len(_ALL.split(",")))
    await tx.run_many(
        f"INSERT INTO passages ({_ALL}) VALUES ({marks})",
        [
            (
                tx.constellation,
                row.passage.id,
                row.passage.archive_id,
                row.passage.text,
                orjson.dumps(row.passage.tags).decode(),
                orjson.dumps(row.passage.metadata).decode(),
                origins_wire(row.passage.source.origins),
                str(row.passage.source.audience),
                row.passage.source.trust.value,
                row.passage.author,
                row.passage.turn_id,
                row.passage.known_from_ms,
                row.passage.true_from_ms,
                row.passage.superseded_by,
                row.passage.superseded_at_ms,
                row.passage.retracted_at_ms,
                row.document,
                row.place,
                row.digest,
                row.vector,
                numbers.get(row.passage.id),
            )
            for row in rows
        ],
    )


async def change_passages(tx: Connection, passage_id: str, columns: Mapping[str, Any]) -> None:
    """Change columns of a passage; lock its archive first."""
    assert columns.keys() <= _CHANGEABLE, f"not to be changed: {columns.keys() - _CHANGEABLE}"
    if "text" in columns or "audience" in columns:
        await _renumber(tx, passage_id)
    put = ", ".join(f"{column} = ?" for column in columns)
    await tx.run(f"UPDATE passages SET {put} WHERE id = ?", (*columns.values(), passage_id))


async def _renumber(tx: Connection, passage_id: str) -> None:
    """Put a passage at the end of its index, since what the index has of it holds no more."""
    row = await tx.one("SELECT archive_id, number FROM passages WHERE id = ?", (passage_id,))
    if row is None or row[1] is None:
        return
    number = await search_index.next_number(tx, row[0])
    await tx.run("UPDATE passages SET number = ? WHERE id = ?", (number, passage_id))
    await search_index.mark_stale(tx, search_index.ARCHIVE, row[0], [row[1]])


async def passages_changed(tx: Connection, edit: PassageEdit) -> int:
    """Add to a passage's history; return the number that the edit was given."""
    row = await tx.one(
        "INSERT INTO passage_edits"
        " (passage_id, number, kind, author, turn_id, reason, before, at)"
        " SELECT ?, COALESCE(MAX(number), 0) + 1, ?, ?, ?, ?, ?, ? FROM passage_edits"
        " WHERE passage_id = ? RETURNING number",
        (
            edit.passage_id,
            edit.kind,
            edit.author,
            edit.turn_id,
            edit.reason,
            orjson.dumps(edit.before).decode(),
            edit.at_ms,
            edit.passage_id,
        ),
    )
    assert row is not None
    return int(row[0])


async def lock_archive(tx: Connection, archive_id: str) -> None:
    """Keep others from writing to an archive until this transaction ends, and count the change."""
    await tx.run("UPDATE agents SET memory = memory WHERE id = ?", (archive_id,))
    await tx.run("UPDATE sources SET name = name WHERE id = ?", (archive_id,))
    await tx.notify("search_index", archive_id)


async def remove_document(
    tx: Connection, archive_id: str, document: str, keep: Sequence[str]
) -> int:
    """Remove the passages of a document but some; return how many were removed."""
    rows = await tx.all(
        "SELECT id, number FROM passages WHERE archive_id = ? AND document = ?",
        (archive_id, document),
    )
    kept_ids = frozenset(keep)
    gone = [row for row in rows if row[0] not in kept_ids]
    await _remove(tx, archive_id, gone)
    return len(gone)


async def put_document(tx: Connection, archive_id: str, document: str, now: int) -> int:
    """Replace the passages of a document by its staged ones; return how many."""
    former = await tx.all(
        "SELECT id, number FROM passages WHERE archive_id = ? AND document = ?"
        " AND (retracted_at IS NULL OR retracted_at <> ?)",
        (archive_id, document, STAGED),
    )
    staged = await tx.all(
        "SELECT id FROM passages WHERE archive_id = ? AND document = ? AND retracted_at = ?"
        " ORDER BY place, id",
        (archive_id, document, STAGED),
    )
    free = await search_index.next_number(tx, archive_id)
    await _remove(tx, archive_id, former)
    await tx.run_many(
        "UPDATE passages SET retracted_at = NULL, known_from = ?, number = ? WHERE id = ?",
        [(now, number, row[0]) for number, row in enumerate(staged, free)],
    )
    return len(staged)


async def _remove(tx: Connection, archive_id: str, rows: Sequence[Row]) -> None:
    """Remove passages of an archive by (id, number)."""
    ids = [(row[0],) for row in rows]
    await tx.run_many("DELETE FROM passage_edits WHERE passage_id = ?", ids)
    await tx.run_many("DELETE FROM passages WHERE id = ?", ids)
    numbers = [row[1] for row in rows if row[1] is not None]
    await search_index.mark_stale(tx, search_index.ARCHIVE, archive_id, numbers)


async def delete_staged(tx: Connection, archive_id: str, document: str) -> int:
    """Remove the staged passages of a document; return how many were removed."""
    return await tx.run(
        "DELETE FROM passages WHERE archive_id = ? AND document = ? AND retracted_at = ?",
        (archive_id, document, STAGED),
    )
