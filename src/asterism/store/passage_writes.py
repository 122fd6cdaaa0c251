"""Writing to archives at rest. Only the gate of memory may import this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from asterism.store.database import Connection
from asterism.store.passages import COLUMNS, PassageEdit, origins_wire
from asterism.types.documents import STAGED
from asterism.types.memory import Passage

_ALL = f"constellation, {COLUMNS}, document, place, digest, vector"
_CHANGEABLE = {"text", "tags", "metadata", "origins", "audience", "tier", "digest", "vector"} | {
    "superseded_by",
    "superseded_at",
    "retracted_at",
}


@dataclass(frozen=True, slots=True)
class Fresh:
    """A passage that is not stored yet, with what it is found by."""

    passage: Passage
    digest: str
    vector: bytes | None
    document: str | None = None
    place: int | None = None


async def insert(tx: Connection, constellation: str, rows: Sequence[Fresh]) -> None:
    """Store new passages."""
    marks = ", ".join("?" * len(_ALL.split(",")))
    await tx.run_many(
        f"INSERT INTO passages ({_ALL}) VALUES ({marks})",
        [
            (
                constellation,
                one.passage.id,
                one.passage.archive_id,
                one.passage.text,
                orjson.dumps(one.passage.tags).decode(),
                orjson.dumps(one.passage.metadata).decode(),
                origins_wire(one.passage.source.origins),
                str(one.passage.source.audience),
                one.passage.source.tier.value,
                one.passage.author,
                one.passage.turn_id,
                one.passage.known_from,
                one.passage.true_from,
                one.passage.superseded_by,
                one.passage.superseded_at,
                one.passage.retracted_at,
                one.document,
                one.place,
                one.digest,
                one.vector,
            )
            for one in rows
        ],
    )


async def change(tx: Connection, passage_id: str, columns: Mapping[str, Any]) -> None:
    """Give columns of a passage other values."""
    assert columns.keys() <= _CHANGEABLE, f"not to be changed: {columns.keys() - _CHANGEABLE}"
    put = ", ".join(f"{column} = ?" for column in columns)
    await tx.run(f"UPDATE passages SET {put} WHERE id = ?", (*columns.values(), passage_id))


async def note(tx: Connection, edit: PassageEdit) -> int:
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
            edit.at,
            edit.passage_id,
        ),
    )
    assert row is not None
    return int(row[0])


async def hold_archive(tx: Connection, archive_id: str) -> None:
    """Keep others from writing to an archive until this transaction ends, and count the change."""
    await tx.run("UPDATE agents SET memory = memory WHERE id = ?", (archive_id,))
    await tx.run("UPDATE sources SET name = name WHERE id = ?", (archive_id,))


async def delete_document(
    tx: Connection, archive_id: str, document: str, keep: Sequence[str]
) -> int:
    """Remove the passages of a document but some; return how many were removed."""
    rows = await tx.all(
        "SELECT id FROM passages WHERE archive_id = ? AND document = ?", (archive_id, document)
    )
    kept = frozenset(keep)
    gone = [(row[0],) for row in rows if row[0] not in kept]
    await tx.run_many("DELETE FROM passage_edits WHERE passage_id = ?", gone)
    await tx.run_many("DELETE FROM passages WHERE id = ?", gone)
    return len(gone)


async def publish_document(tx: Connection, archive_id: str, document: str, now: int) -> int:
    """Put the staged passages of a document in the place of the others; return how many."""
    former = (
        "FROM passages WHERE archive_id = ? AND document = ?"
        " AND (retracted_at IS NULL OR retracted_at <> ?)"
    )
    values = (archive_id, document, STAGED)
    await tx.run(f"DELETE FROM passage_edits WHERE passage_id IN (SELECT id {former})", values)
    await tx.run(f"DELETE {former}", values)
    return await tx.run(
        "UPDATE passages SET retracted_at = NULL, known_from = ?"
        " WHERE archive_id = ? AND document = ? AND retracted_at = ?",
        (now, *values),
    )


async def delete_staged(tx: Connection, archive_id: str, document: str) -> int:
    """Remove the staged passages of a document; return how many were removed."""
    return await tx.run(
        "DELETE FROM passages WHERE archive_id = ? AND document = ? AND retracted_at = ?",
        (archive_id, document, STAGED),
    )
