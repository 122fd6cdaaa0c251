"""How far encoders have come: which shelves lack vectors, and how many texts have one."""

from __future__ import annotations

from asterism.store.database import Connection

# A number of an embedding has two bytes, and a text's static vector `size`.
_JOINED = (
    " FROM segments s JOIN shelves h ON h.id = s.shelf"
    " LEFT JOIN embeddings e ON e.shelf = s.shelf AND e.first = s.first AND e.encoder = ?"
    " WHERE h.owner_id IN (SELECT id FROM agents WHERE constellation = ?"
    " UNION ALL SELECT id FROM sources WHERE constellation = ?)"
)


async def lacking(
    tx: Connection,
    constellation: str,
    encoder: str,
    size: int,
    whose: tuple[str, str] | None = None,
) -> list[tuple[str, str]]:
    """Return the shelves (kind, owner) with folded texts that have no vector of an encoder.

    Args:
        tx: The transaction.
        constellation: Whose shelves.
        encoder: By its name.
        size: How many bytes the static vector of a text has, which tells how many texts there are.
        whose: The one shelf to look at; None: all.
    """
    one = " AND h.kind = ? AND h.owner_id = ?" if whose is not None else ""
    rows = await tx.all(
        f"SELECT DISTINCT h.kind, h.owner_id{_JOINED}"
        f" AND COALESCE(LENGTH(e.numbers), 0) * ? < LENGTH(s.vectors) * 2{one}"
        " ORDER BY h.owner_id, h.kind",
        (encoder, constellation, constellation, size, *(whose or ())),
    )
    return [(row[0], row[1]) for row in rows]


async def progress(tx: Connection, constellation: str, encoder: str, size: int) -> tuple[int, int]:
    """Return how many folded texts have a vector of an encoder, and how many there are."""
    row = await tx.one(
        f"SELECT COALESCE(SUM(LENGTH(e.numbers)), 0), COALESCE(SUM(LENGTH(s.vectors)), 0){_JOINED}",
        (encoder, constellation, constellation),
    )
    assert row is not None
    total = int(row[1]) // size
    return min(int(row[0]) // 2, total), total
