"""Reading stored blocks, their history and their shares."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from asterism.errors import Conflict, NotFound, StoreDamaged
from asterism.memory.content import HEADING, render
from asterism.memory.schemas import schema_of
from asterism.memory.texts import shared_ends
from asterism.records import dataclass
from asterism.store.database import Connection, Row
from asterism.types.agents import Audience, Label, Participants, Trust
from asterism.types.memory import (
    CONSTELLATION,
    Block,
    BlockType,
    CompositeSchema,
    Line,
    Origin,
    OriginKind,
    Permission,
    Schema,
    Source,
)

OPEN = 0
"""The `last` of the open era. It holds the content from which the loose edits start."""

_COLUMNS = (
    "id, constellation, owner_id, label, type, description, schema, max_chars, permission,"
    " audience, pinned, version, text, lines, created_at, updated_at, retired_at"
)
COLUMNS_WITH_CONTENT = f"{_COLUMNS}, content"


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
    content: str = ""
    """JSON, by part; empty where it is the text, and where it was not asked for."""


class VisibleRow(NamedTuple):
    """A block that an agent can see."""

    row: BlockRow
    permission: str
    owner_name: str | None
    """None where it is the constellation's."""


class PastBlock(NamedTuple):
    """A block that an agent may have seen once, as it is now."""

    row: BlockRow
    shared: str | None
    """The permission with which it is shared with the agent now."""
    owner_name: str | None


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
    at: int
    change: str = ""
    """The change of the content as JSON; empty if there is none or it was not read."""


class EraRow(NamedTuple):
    """A row of `block_eras`, without its block."""

    first: int
    last: int
    content: bytes
    """Compressed JSON: the content before its first edit, and what each edit made of it."""
    edits: bytes
    """The other columns of its edits, as compressed JSON."""
    since: int


class ReplicaRow(NamedTuple):
    """A row of `block_replicas`, without its block."""

    version: int
    document: bytes


_EDIT = "number, kind, author, turn_id, reason, source, undoes, undone_by, at"
_ERA = "first, last, content, edits, since"


# -- blocks ----------------------------------------------------------------------------------------


def _visible_row(row: Row) -> VisibleRow:
    block = BlockRow(*row[:17])
    return VisibleRow(block, row[17] or block.permission, row[18])


def _prefixed(columns: str) -> str:
    return ", ".join(f"b.{name.strip()}" for name in columns.split(","))


async def get(tx: Connection, block_id: str) -> BlockRow | None:
    """Return a block, also one that was put away, with its content."""
    row = await tx.one(f"SELECT {COLUMNS_WITH_CONTENT} FROM blocks WHERE id = ?", (block_id,))
    return BlockRow(*row) if row else None


async def by_label(tx: Connection, owner_id: str, label: str) -> BlockRow | None:
    """Return the block that an owner has under a label."""
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM blocks"
        " WHERE constellation = ? AND owner_id = ? AND label = ? AND retired_at IS NULL",
        (tx.constellation, owner_id, label),
    )
    return BlockRow(*row) if row else None


async def rows_visible_to(tx: Connection, agent_id: str) -> list[VisibleRow]:
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
            *(agent_id, tx.constellation, agent_id, CONSTELLATION),
            *(agent_id, tx.constellation, agent_id, CONSTELLATION),
        ),
    )
    return [_visible_row(row) for row in rows]


async def everything(tx: Connection) -> list[VisibleRow]:
    """Return all blocks of a constellation that were not put away."""
    rows = await tx.all(
        f"SELECT {_prefixed(_COLUMNS)}, NULL, a.name FROM blocks b"
        " LEFT JOIN agents a ON a.id = b.owner_id"
        " WHERE b.constellation = ? AND b.retired_at IS NULL",
        (tx.constellation,),
    )
    return [_visible_row(row) for row in rows]


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
    tx: Connection, block_id: str, first: int, last: int, *, changes: bool = True
) -> list[EditRow]:
    """Return loose edits by number, the oldest first."""
    rows = await tx.all(
        f"SELECT {_EDIT}{', change' if changes else ''} FROM block_edits"
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
    return [EraRow(*row) for row in rows]


async def era_with(tx: Connection, block_id: str, number: int) -> EraRow | None:
    """Return the era that an edit lies in: the latest that begins with it or before."""
    row = await tx.one(
        f"SELECT {_ERA} FROM block_eras WHERE block_id = ? AND first <= ?"
        " ORDER BY first DESC LIMIT 1",
        (block_id, number),
    )
    return EraRow(*row) if row else None


async def era_at(tx: Connection, block_id: str, moment: int) -> EraRow | None:
    """Return the latest squashed era that had begun at a moment."""
    row = await tx.one(
        f"SELECT {_ERA} FROM block_eras WHERE block_id = ? AND since <= ? AND last <> ?"
        " ORDER BY first DESC LIMIT 1",
        (block_id, moment, OPEN),
    )
    return EraRow(*row) if row else None


async def squashed_eras(tx: Connection) -> list[tuple[str, EraRow]]:
    """Return every squashed era of a constellation, with its block."""
    rows = await tx.all(
        "SELECT e.block_id, e.first, e.last, e.content, e.edits, e.since FROM block_eras e"
        " JOIN blocks b ON b.id = e.block_id WHERE b.constellation = ? AND e.last <> ?",
        (tx.constellation, OPEN),
    )
    return [(row[0], EraRow(*row[1:])) for row in rows]


async def blocks_at(tx: Connection, agent_id: str, moment: int) -> list[PastBlock]:
    """Return the blocks that an agent may have seen at a moment, with those put away since.

    Of others' blocks, all that are or were shared with it, and all with squashed edits, which may
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
            *(agent_id, tx.constellation, moment, moment, agent_id, CONSTELLATION),
            *(f"%{orjson.dumps(agent_id).decode()}%", OPEN),
        ),
    )
    return [PastBlock(BlockRow(*row[:18]), row[18], row[19]) for row in rows]


async def eras_after(tx: Connection, block_id: str, number: int) -> list[EraRow]:
    """Return the eras with edits above a number, the earliest first."""
    rows = await tx.all(
        "SELECT first, last, content, edits, since FROM block_eras"
        " WHERE block_id = ? AND last > ? ORDER BY first",
        (block_id, number),
    )
    return [EraRow(*row) for row in rows]


async def replica(tx: Connection, block_id: str) -> ReplicaRow | None:
    """Return the Loro document of a block that has one, and the version that it was made at."""
    row = await tx.one(
        "SELECT version, document FROM block_replicas WHERE block_id = ?", (block_id,)
    )
    return ReplicaRow(*row) if row else None


# -- sources ---------------------------------------------------------------------------------------


def write_source(source: Source, **more: Any) -> str:
    """Return the source of an edit as JSON for the history.

    `lines` is the change of the blame, `schema` a new schema, `was` the description before.
    """
    wire = {
        "origins": [
            [origin.kind.value, origin.ref, origin.detail]
            if origin.detail
            else [origin.kind.value, origin.ref]
            for origin in source.origins
        ],
        "audience": str(source.audience),
        "trust": source.trust.value,
        **more,
    }
    return orjson.dumps(wire).decode()


def read_source(text: str) -> Source:
    """Return where an edit comes from."""
    wire = orjson.loads(text)
    return Source(
        tuple(Origin(OriginKind(kind), *rest) for kind, *rest in wire["origins"]),
        Audience.read(wire["audience"]),
        Trust(wire["trust"]),
    )


# -- content ---------------------------------------------------------------------------------------

_TEXT = ":text"


def read_parts(row: BlockRow) -> dict[str, str]:
    """Return a block's content by part, from its columns `text` and `content`."""
    if row.content:
        try:
            return orjson.loads(row.content)
        except orjson.JSONDecodeError as error:
            raise StoreDamaged(
                f"The content of block {row.label!r} cannot be read as it is stored ({error}). "
                "Restore the database from a backup; nothing was changed."
            ) from error
    return {_TEXT: row.text} if row.text else {}


def write_parts(parts: Mapping[str, str], text: str) -> str:
    """Return the column `content`: nothing where the text says it all."""
    return "" if parts == ({_TEXT: text} if text else {}) else orjson.dumps(parts).decode()


# -- lines -----------------------------------------------------------------------------------------

Blame = tuple[tuple[int, ...], Label]
"""The edits a line comes from, who may see it and how far it is trusted."""


@lru_cache(4_096)
def _label(audience: str, trust: str) -> Label:
    return Label(Trust(trust), Audience.read(audience))


def read_blame(runs: Iterable[Any]) -> list[Blame]:
    """Read runs of lines, `[count, audience, trust, edits …]`, as one entry a line."""
    result: list[Blame] = []
    for count, audience, trust, *numbers in runs:
        result += [(tuple(numbers), _label(audience, trust))] * count
    return result


def blame_runs(blame: Iterable[Blame]) -> list[list[Any]]:
    """Write one entry a line as runs."""
    label_texts: dict[int, tuple[str, str]] = {}
    runs: list[list[Any]] = []
    latest: Blame | None = None
    for line_blame in blame:
        if latest is not None and line_blame == latest:
            runs[-1][0] += 1
            continue
        latest = line_blame
        numbers, label = line_blame
        if id(label) not in label_texts:  # most lines of a block have the same few labels
            label_texts[id(label)] = (str(label.audience), label.trust.value)
        runs.append([1, *label_texts[id(label)], *numbers])
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


SHARED_BY_ALL = "constellation"
"""The owner name of a block that belongs to all agents."""

_ORDER = {
    kind: place
    for place, kind in enumerate(
        (BlockType.CORE, BlockType.WORKING, BlockType.LOG, BlockType.ARCHIVAL)
    )
}


@dataclass(frozen=True, slots=True)
class VisibleBlock:
    """A block as one agent sees it."""

    block: Block
    permission: Permission
    """The permission of this agent."""
    owner_name: str | None
    """Whose it is; None: the agent's own."""
    lines: tuple[Line, ...]
    """All of them; their labels include who may see the block."""

    @property
    def name(self) -> str:
        """A name by which the agent can address this block and no other."""
        return (
            self.block.label if self.owner_name is None else f"{self.owner_name}/{self.block.label}"
        )


def block_of(row: BlockRow) -> Block:
    """Return a block from its row."""
    return Block(
        id=row.id,
        owner_id=row.owner_id,
        label=row.label,
        type=BlockType(row.type),
        schema=schema_of(row.schema),
        text=row.text,
        description=row.description,
        limit=row.max_chars,
        permission=Permission(row.permission),
        audience=Audience.read(row.audience),
        pinned=bool(row.pinned),
        version=row.version,
        created_at_ms=row.created_at,
        updated_at_ms=row.updated_at,
    )


def _visible_block(visible_row: VisibleRow, agent_id: str | None) -> VisibleBlock:
    row = visible_row.row
    own = row.owner_id == agent_id
    block = block_of(row)
    return VisibleBlock(
        block=block,
        permission=Permission(row.permission if own else visible_row.permission),
        owner_name=None if own else visible_row.owner_name or SHARED_BY_ALL,
        lines=with_full_labels(read_lines(row.text, row.lines), block.audience),
    )


async def seen_by(tx: Connection, agent_id: str | None) -> list[VisibleBlock]:
    """Return the blocks that an agent sees, or for None all there are, in a stable order.

    This ignores who is present: `visible_text` and `wrapped` leave out hidden lines.
    """
    return [_visible_block(visible_row, agent_id) for visible_row in await _visible(tx, agent_id)]


async def _visible(tx: Connection, agent_id: str | None) -> list[VisibleRow]:
    if agent_id is None:
        visible_rows = await everything(tx)
    else:
        visible_rows = await rows_visible_to(tx, agent_id)
    return sorted(
        visible_rows,
        key=lambda visible_row: (
            _ORDER[BlockType(visible_row.row.type)],
            visible_row.row.owner_id != agent_id,
            visible_row.row.label,
            visible_row.owner_name or "",
            visible_row.row.id,
        ),
    )


async def find(
    tx: Connection, agent_id: str | None, label: str, participants: Participants | None = None
) -> VisibleBlock:
    """Return the block that a label means to an agent, or for None to the owner.

    Its own come first, then those shared with it (`owner-name/label`, or the plain label if only
    one fits), then the constellation's. With participants, only blocks that they may see count.
    """
    candidates = [
        candidate
        for candidate in await _visible(tx, agent_id)
        if participants is None or participants.can_see(Audience.read(candidate.row.audience))
    ]
    wanted = label.strip()
    for fitting in _by_rank(candidates, agent_id, wanted):
        if len(fitting) == 1:
            return _visible_block(fitting[0], agent_id)
        if fitting:
            names = " and ".join(sorted(_name(candidate, None) for candidate in fitting))
            raise Conflict(f"{wanted!r} may mean {names}. Name one of them.")
    raise _not_found(wanted, [_name(candidate, agent_id) for candidate in candidates])


def _name(visible_row: VisibleRow, agent_id: str | None) -> str:
    if visible_row.row.owner_id == agent_id:
        return visible_row.row.label
    return f"{visible_row.owner_name or SHARED_BY_ALL}/{visible_row.row.label}"


def _by_rank(
    candidates: Sequence[VisibleRow], agent_id: str | None, wanted: str
) -> list[list[VisibleRow]]:
    plain = [candidate for candidate in candidates if candidate.row.label == wanted]
    if agent_id is None:
        named = [candidate for candidate in candidates if _name(candidate, None) == wanted]
        return [named, plain, [candidate for candidate in candidates if candidate.row.id == wanted]]
    return [
        [candidate for candidate in plain if candidate.row.owner_id == agent_id],
        [candidate for candidate in candidates if _name(candidate, None) == wanted],
        [candidate for candidate in plain if candidate.row.owner_id != CONSTELLATION],
        plain,
        [candidate for candidate in candidates if candidate.row.id == wanted],
    ]


def _not_found(wanted: str, names: list[str]) -> NotFound:
    close = get_close_matches(wanted, names, 1, 0.6)
    if close:
        return NotFound(f"There is no block {wanted!r}. Did you mean {close[0]!r}?")
    if names:
        more = " …" if len(names) > 10 else ""
        return NotFound(f"There is no block {wanted!r}. There are: {', '.join(names[:10])}{more}.")
    return NotFound(f"There is no block {wanted!r}; there are no blocks yet.")


def order(seen: VisibleBlock) -> tuple[int, bool, str, str, str]:
    """Return the place of a block among those that an agent sees, as a key to sort by."""
    block = seen.block
    owner = "" if block.owner_id == CONSTELLATION else seen.owner_name or ""
    return _ORDER[block.type], seen.owner_name is not None, block.label, owner, block.id


# -- for those present -----------------------------------------------------------------------------


def visible_lines(seen: VisibleBlock, participants: Participants) -> list[str]:
    """Return the lines that everyone present may see."""
    block = seen.block
    return [
        line.text
        for line in seen.lines
        if is_visible(block.schema, line, block.audience, participants)
    ]


def as_visible_to(seen: VisibleBlock, participants: Participants) -> VisibleBlock | None:
    """Return a block as those present may see it; None if they may not see it.

    If lines are hidden, size and version count the visible lines only, and the time of the last
    write is left out. Otherwise they would reveal that there is more.
    """
    block = seen.block
    if not participants.can_see(block.audience):
        return None
    lines = tuple(
        line for line in seen.lines if is_visible(block.schema, line, block.audience, participants)
    )
    if len(lines) == len(seen.lines):
        return seen
    return replace(
        seen,
        lines=lines,
        block=replace(
            block,
            text="\n".join(line.text for line in lines),
            version=len({number for line in lines for number in line.edits}),
            updated_at_ms=block.created_at_ms,
        ),
    )


def visible_text(seen: VisibleBlock, participants: Participants) -> str:
    """Return what a model sees of a block with these participants; "" if they may see nothing."""
    lines = visible_lines(seen, participants)
    if all(is_heading(seen.block.schema, line) for line in lines):
        return ""
    return render(seen.block.schema, lines)


_TAG = re.compile(r"<(?=\s*/?\s*block\b)", re.IGNORECASE)


def wrapped(seen: VisibleBlock, participants: Participants) -> str:
    """Return a block for a prompt, in tags that its content cannot fake.

    The result is empty if those present may not see the block. A block without visible lines
    looks like an empty block.
    """
    block = seen.block
    if not participants.can_see(block.audience):
        return ""
    lines = visible_lines(seen, participants)
    owner = f' owner="{_attribute(seen.owner_name)}"' if seen.owner_name is not None else ""
    used = len("\n".join(lines))
    head = (
        f'<block label="{_attribute(block.label)}" permission="{seen.permission.value}"{owner}'
        f' used="{used}/{block.limit}">'
    )
    content = render(block.schema, lines) if lines else ""
    inner = "\n".join(part for part in (block.description, content) if part)
    return f"{head}{_TAG.sub('&lt;', inner)}</block>"


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace("\n", " ")


def with_full_labels(lines: Sequence[Line], audience: Audience) -> tuple[Line, ...]:
    """Return lines with complete labels: who may see the line *and* the block."""
    return tuple(
        line
        if audience.public
        else replace(line, label=Label(line.label.trust, line.label.audience & audience))
        for line in lines
    )


def is_visible(schema: Schema, line: Line, block: Audience, participants: Participants) -> bool:
    """Tell whether everyone present may see a line; headings say no more than the schema does."""
    if not participants.can_see(block):
        return False
    return is_heading(schema, line.text) or participants.can_see(line.label.audience)


def is_heading(schema: Schema, text: str) -> bool:
    """Tell whether a line opens a section."""
    return isinstance(schema, CompositeSchema) and text.startswith(HEADING)


# -- what an edit changed of the blame -------------------------------------------------------------

# -- what changed of it, small enough to keep with every edit --------------------------------------


def blame_splice(old: Sequence[Line], new: Sequence[Line]) -> list[Any]:
    """Return `[at, how many go, new runs]`, which turns the old blame into the new blame."""
    was: list[Blame] = [(line.edits, line.label) for line in old]
    now: list[Blame] = [(line.edits, line.label) for line in new]
    before, after = shared_ends(was, now)
    return [
        before,
        len(was) - before - after,
        blame_runs(now[before : len(now) - after]),
    ]


def splice_blame(blame: list[Blame], change: Sequence[Any]) -> list[Blame]:
    """Return the blame after an edit from that before it."""
    at, gone, runs = change
    return [*blame[:at], *read_blame(runs), *blame[at + gone :]]
