"""What a search shows: messages and passages by their numbers on a shelf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from asterism.store.database import Connection
from asterism.store.passages import COLUMNS, read_passage
from asterism.types.memory import Passage

_MOST_VALUES = 500


class Said(NamedTuple):
    """A message or a reply, with who may hear it and how far it is trusted."""

    number: int
    turn_id: str
    kind: str
    body: bytes
    at: int
    audience: str | None
    """None: the owner."""
    tier: str | None
    channel: str | None
    reply_to: str | None


class Kept(NamedTuple):
    """A passage with its place."""

    number: int
    document: str | None
    passage: Passage


async def said(tx: Connection, agent_id: str, numbers: Sequence[int]) -> dict[int, Said]:
    """Return messages of an agent's journal by their numbers."""
    found: dict[int, Said] = {}
    for first in range(0, len(numbers), _MOST_VALUES):
        part = numbers[first : first + _MOST_VALUES]
        rows = await tx.all(
            "SELECT e.seq, e.turn_id, e.kind, e.body, e.at, t.audience, t.tier, t.channel,"
            " t.reply_to FROM entries e LEFT JOIN turns t ON t.id = e.turn_id"
            f" WHERE e.agent_id = ? AND e.seq IN ({_marks(part)})",
            (agent_id, *part),
        )
        found.update({row[0]: Said(*row) for row in rows})
    return found


async def kept(tx: Connection, archive_id: str, numbers: Sequence[int]) -> dict[int, Kept]:
    """Return passages of an archive by their numbers."""
    found: dict[int, Kept] = {}
    for first in range(0, len(numbers), _MOST_VALUES):
        part = numbers[first : first + _MOST_VALUES]
        rows = await tx.all(
            f"SELECT {COLUMNS}, number, document FROM passages"
            f" WHERE archive_id = ? AND number IN ({_marks(part)})",
            (archive_id, *part),
        )
        found.update({row[-2]: Kept(row[-2], row[-1], read_passage(row)) for row in rows})
    return found


async def worded_otherwise(tx: Connection, archive_id: str, moment: int) -> list[Kept]:
    """Return the passages of an archive whose text was changed after a moment, as they are now."""
    rows = await tx.all(
        f"SELECT {COLUMNS}, number, document FROM passages WHERE archive_id = ? AND known_from <= ?"
        " AND id IN (SELECT passage_id FROM passage_edits WHERE at > ? AND before LIKE ?)"
        " ORDER BY number",
        (archive_id, moment, moment, '%"text":%'),
    )
    return [Kept(row[-2], row[-1], read_passage(row)) for row in rows]


async def terms_like(
    tx: Connection, shelves: Sequence[int], beginning: str, most: int
) -> list[str]:
    """Return terms on shelves that begin so, in their order."""
    if not shelves:
        return []
    rows = await tx.all(
        f"SELECT DISTINCT term FROM postings WHERE shelf IN ({_marks(shelves)})"
        " AND term >= ? AND term < ? ORDER BY term LIMIT ?",
        (*shelves, beginning, beginning + "\U0010ffff", most),
    )
    return [row[0] for row in rows]


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
