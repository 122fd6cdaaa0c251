"""What is on the shelves of search: messages of journals, and passages of archives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from asterism.store.database import MOST_VALUES, Connection, marks
from asterism.store.shelves import JOURNAL


class Said(NamedTuple):
    """A message or a reply of a journal."""

    number: int
    kind: str
    key: str
    turn_id: str
    body: bytes
    meta: str | None
    at: int
    channel: str | None
    """None: its turn is not stored."""
    reply_to: str | None
    audience: str | None
    """None: the owner."""
    ended_at: int | None
    trust: str | None


class Kept(NamedTuple):
    """A passage of an archive."""

    number: int
    id: str
    text: str
    at: int
    audience: str
    document: str | None
    turn_id: str | None
    digest: str


_SAID = (
    "SELECT e.seq, e.kind, e.key, e.turn_id, e.body, e.meta, e.at, t.channel, t.reply_to,"
    " t.audience, t.ended_at, t.trust FROM entries e LEFT JOIN turns t ON t.id = e.turn_id"
    " WHERE e.agent_id = ? AND e.kind IN ('message', 'reply')"
)
_KEPT = (
    "SELECT number, id, text, known_from, audience, document, turn_id, digest FROM passages"
    " WHERE archive_id = ?"
)


async def said(tx: Connection, agent_id: str, first: int, last: int) -> list[Said]:
    """Return what was said in a stretch of a journal."""
    rows = await tx.all(
        f"{_SAID} AND e.seq BETWEEN ? AND ? ORDER BY e.seq", (agent_id, first, last)
    )
    return [Said(*row) for row in rows]


async def said_at(tx: Connection, agent_id: str, numbers: Sequence[int]) -> list[Said]:
    """Return what was said at some places of a journal."""
    found: list[Said] = []
    for start in range(0, len(numbers), MOST_VALUES):
        part = numbers[start : start + MOST_VALUES]
        rows = await tx.all(
            f"{_SAID} AND e.seq IN ({marks(part)}) ORDER BY e.seq", (agent_id, *part)
        )
        found += [Said(*row) for row in rows]
    return found


async def kept(tx: Connection, archive_id: str, first: int, last: int) -> list[Kept]:
    """Return the passages of a stretch of an archive."""
    rows = await tx.all(
        f"{_KEPT} AND number BETWEEN ? AND ? ORDER BY number", (archive_id, first, last)
    )
    return [Kept(*row) for row in rows]


async def kept_at(tx: Connection, archive_id: str, numbers: Sequence[int]) -> list[Kept]:
    """Return some passages of an archive by their numbers."""
    found: list[Kept] = []
    for start in range(0, len(numbers), MOST_VALUES):
        part = numbers[start : start + MOST_VALUES]
        rows = await tx.all(
            f"{_KEPT} AND number IN ({marks(part)}) ORDER BY number", (archive_id, *part)
        )
        found += [Kept(*row) for row in rows]
    return found


async def count(tx: Connection, kind: str, owner_id: str, first: int, last: int) -> int:
    """Return how many texts there are in a stretch of a shelf."""
    stretch = (
        "entries WHERE agent_id = ? AND kind IN ('message', 'reply') AND seq"
        if kind == JOURNAL
        else "passages WHERE archive_id = ? AND number"
    )
    row = await tx.one(f"SELECT COUNT(*) FROM {stretch} BETWEEN ? AND ?", (owner_id, first, last))
    return int(row[0]) if row else 0


async def ends(tx: Connection, turn_ids: Sequence[str]) -> dict[str, tuple[str | None, int | None]]:
    """Return who may hear turns, and when they ended, by their ids."""
    found: dict[str, tuple[str | None, int | None]] = {}
    for start in range(0, len(turn_ids), MOST_VALUES):
        part = turn_ids[start : start + MOST_VALUES]
        rows = await tx.all(
            f"SELECT id, audience, ended_at FROM turns WHERE id IN ({marks(part)})", part
        )
        found |= {row[0]: (row[1], row[2]) for row in rows}
    return found


async def open_since(tx: Connection, agent_id: str) -> int | None:
    """Return where the turn of an agent begins that is under way; None: there is none."""
    row = await tx.one(
        "SELECT MIN(first_seq) FROM turns WHERE agent_id = ? AND state = 'open'", (agent_id,)
    )
    return row[0] if row else None
