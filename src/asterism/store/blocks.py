"""Blocks at rest, their history and whom they are shared with: reading."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from asterism.store.database import Connection, Row
from asterism.types.memory import CONSTELLATION, Line
from asterism.types.people import Audience, Label, Trust

OPEN = 0
"""The `last` of the era whose edits are still loose: it holds where they start from."""

_COLUMNS = (
    "id, constellation, owner_id, label, type, description, schema, max_chars, permission,"
    " audience, pinned, version, text, lines, created_at, updated_at, retired_at"
)
COLUMNS_WITH_SNAPSHOT = f"{_COLUMNS}, snapshot"


class BlockRow(NamedTuple):
    """A row of `blocks`."""

    id: str
    constellation: str
    owner_id: str
    label: str
    type: str
    description: str
    schema: str
    max_chars: int
    permission: str
    audience: str
    pinned: int
    version: int
    text: str
    lines: str
    created_at: int
    updated_at: int
    retired_at: int | None
    snapshot: bytes = b""
    """Empty where it was not asked for."""


class VisibleRow(NamedTuple):
    """A block that an agent can see."""

    row: BlockRow
    permission: str
    owner_name: str | None
    """None where it is the constellation's."""


class EditRow(NamedTuple):
    """A row of `block_edits`, without its block."""

    number: int
    kind: str
    author: str
    turn_id: str | None
    reason: str
    source: str
    undoes: int | None
    undone_by: int | None
    version: bytes
    at: int
    ops: bytes = b""
    """Empty where it was not asked for."""


class EraRow(NamedTuple):
    """A row of `block_eras`, without its block."""

    first: int
    last: int
    start: bytes
    ops: bytes
    edits: bytes
    since: int

    @staticmethod
    def read(row: Row) -> EraRow:
        """Return an era as it was before it was stored."""
        first, last, start, ops, edits, since = row
        return EraRow(first, last, _unpacked(start), _unpacked(ops), edits, since)

    @property
    def stored(self) -> EraRow:
        """The era with its Loro blobs compressed, as far as that makes them shorter."""
        return self._replace(start=_packed(self.start), ops=_packed(self.ops))


_ZLIB = b"\x78\xda"
"""What a compressed blob begins with; one of Loro begins with its name."""


def _packed(blob: bytes) -> bytes:
    packed = zlib.compress(blob, 9)
    return packed if len(packed) < len(blob) else blob


def _unpacked(blob: bytes) -> bytes:
    if not blob.startswith(_ZLIB):
        return blob
    try:
        return zlib.decompress(blob)
    except zlib.error:
        return blob  # Loro refuses it, and whoever asked hears that it is damaged


_EDIT = "number, kind, author, turn_id, reason, source, undoes, undone_by, version, at"
_ERA = "first, last, start, ops, edits, since"


# -- blocks ----------------------------------------------------------------------------------------


def _visible(row: Row) -> VisibleRow:
    block = BlockRow(*row[:17])
    return VisibleRow(block, row[17] or block.permission, row[18])


def _prefixed(columns: str) -> str:
    return ", ".join(f"b.{name.strip()}" for name in columns.split(","))


async def get(tx: Connection, block_id: str) -> BlockRow | None:
    """Return a block, also one that was put away, with its snapshot."""
    row = await tx.one(f"SELECT {COLUMNS_WITH_SNAPSHOT} FROM blocks WHERE id = ?", (block_id,))
    return BlockRow(*row) if row else None


async def by_label(
    tx: Connection, constellation: str, owner_id: str, label: str
) -> BlockRow | None:
    """Return the block that an owner has under a label."""
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM blocks"
        " WHERE constellation = ? AND owner_id = ? AND label = ? AND retired_at IS NULL",
        (constellation, owner_id, label),
    )
    return BlockRow(*row) if row else None


async def visible_to(tx: Connection, constellation: str, agent_id: str) -> list[VisibleRow]:
    """Return what an agent can see: its own blocks, those shared with it, the constellation's."""
    columns = _prefixed(_COLUMNS)
    rows = await tx.all(
        f"SELECT {columns}, s.permission, a.name FROM blocks b"
        " LEFT JOIN block_agents s ON s.block_id = b.id AND s.agent_id = ?"
        " LEFT JOIN agents a ON a.id = b.owner_id"
        " WHERE b.constellation = ? AND b.owner_id IN (?, ?) AND b.retired_at IS NULL"
        # CROSS JOIN has SQLite begin with the few that are shared, not with all blocks there are.
        f" UNION ALL SELECT {columns}, s.permission, a.name FROM block_agents s"
        " CROSS JOIN blocks b LEFT JOIN agents a ON a.id = b.owner_id"
        " WHERE b.id = s.block_id AND s.agent_id = ? AND b.constellation = ?"
        " AND b.owner_id NOT IN (?, ?) AND b.retired_at IS NULL",
        (
            *(agent_id, constellation, agent_id, CONSTELLATION),
            *(agent_id, constellation, agent_id, CONSTELLATION),
        ),
    )
    return [_visible(row) for row in rows]


async def everything(tx: Connection, constellation: str) -> list[VisibleRow]:
    """Return all blocks of a constellation that were not put away."""
    rows = await tx.all(
        f"SELECT {_prefixed(_COLUMNS)}, NULL, a.name FROM blocks b"
        " LEFT JOIN agents a ON a.id = b.owner_id"
        " WHERE b.constellation = ? AND b.retired_at IS NULL",
        (constellation,),
    )
    return [_visible(row) for row in rows]


async def share_of(tx: Connection, block_id: str, agent_id: str) -> str | None:
    """Return the permission with which a block is shared with an agent, or None."""
    row = await tx.one(
        "SELECT permission FROM block_agents WHERE block_id = ? AND agent_id = ?",
        (block_id, agent_id),
    )
    return row[0] if row else None


async def shares(tx: Connection, block_id: str) -> list[tuple[str, str, str]]:
    """Return whom a block is shared with: id, name and permission, by name."""
    rows = await tx.all(
        "SELECT s.agent_id, a.name, s.permission FROM block_agents s"
        " JOIN agents a ON a.id = s.agent_id WHERE s.block_id = ? ORDER BY a.name",
        (block_id,),
    )
    return [(row[0], row[1], row[2]) for row in rows]


# -- history ---------------------------------------------------------------------------------------


async def edits(
    tx: Connection, block_id: str, first: int, last: int, *, ops: bool = True
) -> list[EditRow]:
    """Return loose edits by number, the oldest first."""
    rows = await tx.all(
        f"SELECT {_EDIT}{', ops' if ops else ''} FROM block_edits"
        " WHERE block_id = ? AND number BETWEEN ? AND ? ORDER BY number",
        (block_id, first, last),
    )
    return [EditRow(*row) for row in rows]


async def newest_edits(tx: Connection, block_id: str, before: int, limit: int) -> list[EditRow]:
    """Return loose edits below a number, the newest first."""
    rows = await tx.all(
        f"SELECT {_EDIT} FROM block_edits WHERE block_id = ? AND number < ?"
        " ORDER BY number DESC LIMIT ?",
        (block_id, before, limit),
    )
    return [EditRow(*row) for row in rows]


async def edits_of_turn(tx: Connection, turn_id: str) -> list[tuple[str, EditRow]]:
    """Return the loose edits that a turn made, with their blocks, the oldest first."""
    rows = await tx.all(
        f"SELECT block_id, {_EDIT} FROM block_edits WHERE turn_id = ? ORDER BY block_id, number",
        (turn_id,),
    )
    return [(row[0], EditRow(*row[1:])) for row in rows]


async def last_edit_until(tx: Connection, block_id: str, moment: int) -> int | None:
    """Return the number of the latest loose edit that had been made at a moment."""
    row = await tx.one(
        "SELECT MAX(number) FROM block_edits WHERE block_id = ? AND at <= ?", (block_id, moment)
    )
    return int(row[0]) if row and row[0] is not None else None


async def eras(tx: Connection, block_id: str) -> list[EraRow]:
    """Return all eras of a block, the latest first."""
    rows = await tx.all(
        f"SELECT {_ERA} FROM block_eras WHERE block_id = ? ORDER BY first DESC", (block_id,)
    )
    return [EraRow.read(row) for row in rows]


async def era_with(tx: Connection, block_id: str, number: int) -> EraRow | None:
    """Return the era that an edit lies in: the latest that begins with it or before."""
    row = await tx.one(
        f"SELECT {_ERA} FROM block_eras WHERE block_id = ? AND first <= ?"
        " ORDER BY first DESC LIMIT 1",
        (block_id, number),
    )
    return EraRow.read(row) if row else None


async def era_at(tx: Connection, block_id: str, moment: int) -> EraRow | None:
    """Return the latest folded era that had begun at a moment."""
    row = await tx.one(
        f"SELECT {_ERA} FROM block_eras WHERE block_id = ? AND since <= ? AND last <> ?"
        " ORDER BY first DESC LIMIT 1",
        (block_id, moment, OPEN),
    )
    return EraRow.read(row) if row else None


async def folded_eras(tx: Connection, constellation: str) -> list[tuple[str, EraRow]]:
    """Return every folded era of a constellation, with its block."""
    rows = await tx.all(
        "SELECT e.block_id, e.first, e.last, e.start, e.ops, e.edits, e.since FROM block_eras e"
        " JOIN blocks b ON b.id = e.block_id WHERE b.constellation = ? AND e.last <> ?",
        (constellation, OPEN),
    )
    return [(row[0], EraRow.read(row[1:])) for row in rows]


# -- lines -----------------------------------------------------------------------------------------

Blame = tuple[tuple[int, ...], Label]
"""The edits a line comes from, who may hear it and how far it is trusted."""


@lru_cache(4_096)
def _label(audience: str, trust: str) -> Label:
    return Label(Trust(trust), Audience.read(audience))


def read_blame(runs: Iterable[Any]) -> list[Blame]:
    """Read runs of lines, `[count, audience, trust, edits …]`, as one entry a line."""
    found: list[Blame] = []
    for count, audience, trust, *numbers in runs:
        found += [(tuple(numbers), _label(audience, trust))] * count
    return found


def blame_runs(blame: Iterable[Blame]) -> list[list[Any]]:
    """Write one entry a line as runs."""
    told: dict[int, tuple[str, str]] = {}
    runs: list[list[Any]] = []
    latest: Blame | None = None
    for one in blame:
        if latest is not None and one == latest:
            runs[-1][0] += 1
            continue
        latest = one
        numbers, label = one
        if id(label) not in told:  # most lines of a block have the same few labels
            told[id(label)] = (str(label.audience), label.trust.value)
        runs.append([1, *told[id(label)], *numbers])
    return runs


def read_lines(text: str, runs: str) -> list[Line]:
    """Return the lines of a block from its columns `text` and `lines`."""
    blame = read_blame(orjson.loads(runs))
    if not blame:
        return []
    return [
        Line(line, numbers, label)
        for line, (numbers, label) in zip(text.split("\n"), blame, strict=True)
    ]


def write_lines(lines: Iterable[Line]) -> str:
    """Return the column `lines`."""
    return orjson.dumps(blame_runs((line.edits, line.label) for line in lines)).decode()
