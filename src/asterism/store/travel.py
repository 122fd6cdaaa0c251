"""What the past is read from: blocks that are gone, what a turn wrote, whole archives to copy."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from asterism.store.blocks import COLUMNS_WITH_CONTENT, OPEN, BlockRow, EraRow
from asterism.store.database import Connection
from asterism.store.passages import COLUMNS as PASSAGE
from asterism.store.passages import PassageEdit, read_passage
from asterism.types.memory import CONSTELLATION, Passage


class OnceSeen(NamedTuple):
    """A block that an agent may have seen once, as it is now."""

    row: BlockRow
    shared: str | None
    """The permission with which it is shared with the agent now."""
    owner_name: str | None


async def blocks_of_then(
    tx: Connection, constellation: str, agent_id: str, moment: int
) -> list[OnceSeen]:
    """Return the blocks that an agent may have seen at a moment, with those put away since.

    Of others' blocks, all that are or were shared with it, and all with folded edits, which may
    say that they were.
    """
    columns = ", ".join(f"b.{name}" for name in COLUMNS_WITH_CONTENT.split(", "))
    rows = await tx.all(
        f"SELECT {columns}, s.permission, a.name FROM blocks b"
        " LEFT JOIN block_agents s ON s.block_id = b.id AND s.agent_id = ?"
        " LEFT JOIN agents a ON a.id = b.owner_id"
        " WHERE b.constellation = ? AND b.created_at <= ?"
        " AND (b.retired_at IS NULL OR b.retired_at > ?)"
        " AND (b.owner_id IN (?, ?) OR s.permission IS NOT NULL"
        " OR EXISTS (SELECT 1 FROM block_edits e WHERE e.block_id = b.id"
        " AND e.kind IN ('share', 'unshare') AND e.source LIKE ?)"
        " OR EXISTS (SELECT 1 FROM block_eras r WHERE r.block_id = b.id AND r.last <> ?))",
        (
            *(agent_id, constellation, moment, moment, agent_id, CONSTELLATION),
            *(f"%{orjson.dumps(agent_id).decode()}%", OPEN),
        ),
    )
    return [OnceSeen(BlockRow(*row[:18]), row[18], row[19]) for row in rows]


async def eras_after(tx: Connection, block_id: str, number: int) -> list[EraRow]:
    """Return the folded eras with edits above a number, the earliest first."""
    rows = await tx.all(
        "SELECT first, last, content, edits, since FROM block_eras"
        " WHERE block_id = ? AND last > ? ORDER BY first",
        (block_id, number),
    )
    return [EraRow(*row) for row in rows]


async def inserted_by(tx: Connection, constellation: str, turn_id: str) -> list[Passage]:
    """Return the passages that a turn stored, in order."""
    rows = await tx.all(
        f"SELECT {PASSAGE} FROM passages WHERE turn_id = ? AND constellation = ?"
        " ORDER BY known_from, id",
        (turn_id, constellation),
    )
    return [read_passage(row) for row in rows]


async def passage_edits_by(tx: Connection, constellation: str, turn_id: str) -> list[PassageEdit]:
    """Return what a turn did to passages that were there, in order for each."""
    rows = await tx.all(
        "SELECT e.passage_id, e.number, e.kind, e.author, e.turn_id, e.reason, e.at, e.before"
        " FROM passage_edits e JOIN passages p ON p.id = e.passage_id"
        " WHERE e.turn_id = ? AND p.constellation = ? ORDER BY e.passage_id, e.number",
        (turn_id, constellation),
    )
    return [PassageEdit(*row[:7], before=orjson.loads(row[7])) for row in rows]


class StoredPassage(NamedTuple):
    """A passage with what it is found by."""

    passage: Passage
    digest: str
    vector: bytes | None


async def stored_passages(
    tx: Connection, archive_id: str, after: str, most: int
) -> list[StoredPassage]:
    """Return the passages of an archive by id, those that come after one."""
    rows = await tx.all(
        f"SELECT {PASSAGE}, digest, vector FROM passages WHERE archive_id = ? AND id > ?"
        " ORDER BY id LIMIT ?",
        (archive_id, after, most),
    )
    return [StoredPassage(read_passage(row[:15]), row[15], row[16]) for row in rows]


async def attached_then(
    tx: Connection, agent_id: str, moment: int
) -> list[tuple[str, str, int, int]]:
    """Return the sources attached to an agent before a moment, and what had been read of them.

    Each as id, name, how many documents and how many passages of them.
    """
    rows = await tx.all(
        "SELECT s.id, s.name, COUNT(DISTINCT p.document), COUNT(p.id) FROM source_agents a"
        " JOIN sources s ON s.id = a.source_id"
        " LEFT JOIN passages p ON p.archive_id = s.id AND p.known_from <= ?"
        " WHERE a.agent_id = ? AND a.since <= ? GROUP BY s.id, s.name ORDER BY s.name",
        (moment, agent_id, moment),
    )
    return [(row[0], row[1], int(row[2]), int(row[3])) for row in rows]


_CHANGEABLE = (
    *("text", "tags", "metadata", "origins", "audience", "trust"),
    *("superseded_by", "superseded_at", "retracted_at"),
)


async def stored_columns(tx: Connection, passage_id: str) -> dict[str, Any]:
    """Return what can change of a passage, as it is stored."""
    row = await tx.one(f"SELECT {', '.join(_CHANGEABLE)} FROM passages WHERE id = ?", (passage_id,))
    return dict(zip(_CHANGEABLE, row, strict=True)) if row else {}
