"""Blobs at rest: contents kept by their digest."""

from __future__ import annotations

from collections.abc import Sequence

from asterism.store.database import Connection
from asterism.types.blobs import Blob


async def put(tx: Connection, blob: Blob, at: int) -> None:
    """Keep a blob; it may be there already."""
    await tx.run(
        "INSERT INTO blobs (id, type, body, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (blob.id, blob.type, blob.body, at),
    )


async def get(tx: Connection, ids: Sequence[str]) -> dict[str, Blob]:
    """Return those blobs that are there, by id."""
    marks = ", ".join("?" * len(ids))
    rows = await tx.all(f"SELECT id, type, body FROM blobs WHERE id IN ({marks})", tuple(ids))
    return {row[0]: Blob(row[0], row[1], bytes(row[2])) for row in rows}
