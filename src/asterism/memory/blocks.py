"""Blocks as agents see them: which ones, found by label, rendered for those present, with blame."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from asterism.errors import Conflict, NotFound
from asterism.memory.content import render
from asterism.memory.lines import is_heading, is_visible, seen_with
from asterism.memory.schemas import schema_of
from asterism.store import blocks as rows
from asterism.store.blocks import BlockRow, VisibleRow
from asterism.store.database import Connection
from asterism.types.memory import (
    CONSTELLATION,
    Block,
    BlockType,
    Line,
    Permission,
)
from asterism.types.people import Audience, Participants

SHARED_BY_ALL = "constellation"
"""The name that stands for the owner of a block that belongs to no single agent."""

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
    """What this agent may do to it."""
    owner_name: str | None
    """Whose it is; None: the agent's own."""
    lines: tuple[Line, ...]
    """All of them; their labels include who may hear the block."""

    @property
    def name(self) -> str:
        """How the agent can name it so that no other is meant."""
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
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _seen(found: VisibleRow, agent_id: str | None) -> VisibleBlock:
    row = found.row
    own = row.owner_id == agent_id
    block = block_of(row)
    return VisibleBlock(
        block=block,
        permission=Permission(row.permission if own else found.permission),
        owner_name=None if own else found.owner_name or SHARED_BY_ALL,
        lines=seen_with(rows.read_lines(row.text, row.lines), block.audience),
    )


async def seen_by(tx: Connection, constellation: str, agent_id: str | None) -> list[VisibleBlock]:
    """Return the blocks that an agent sees, or for None all there are, in a stable order.

    Who is present is not asked here: `shown` and `wrapped` withhold what they may not hear.
    """
    return [_seen(one, agent_id) for one in await _visible(tx, constellation, agent_id)]


async def _visible(tx: Connection, constellation: str, agent_id: str | None) -> list[VisibleRow]:
    if agent_id is None:
        found = await rows.everything(tx, constellation)
    else:
        found = await rows.visible_to(tx, constellation, agent_id)
    return sorted(
        found,
        key=lambda one: (
            _ORDER[BlockType(one.row.type)],
            one.row.owner_id != agent_id,
            one.row.label,
            one.owner_name or "",
            one.row.id,
        ),
    )


async def find(
    tx: Connection,
    constellation: str,
    agent_id: str | None,
    label: str,
    participants: Participants | None = None,
) -> VisibleBlock:
    """Return the block that a label means to an agent, or for None to the owner.

    Its own come first, then those shared with it (`owner-name/label`, or the plain label if only
    one fits), then the constellation's. With participants, what they may not see is not there.
    """
    found = [
        one
        for one in await _visible(tx, constellation, agent_id)
        if participants is None or participants.can_see(Audience.read(one.row.audience))
    ]
    wanted = label.strip()
    for fitting in _by_rank(found, agent_id, wanted):
        if len(fitting) == 1:
            return _seen(fitting[0], agent_id)
        if fitting:
            names = " and ".join(sorted(_name(one, None) for one in fitting))
            raise Conflict(f"{wanted!r} may mean {names}. Name one of them.")
    raise _not_found(wanted, [_name(one, agent_id) for one in found])


def _name(one: VisibleRow, agent_id: str | None) -> str:
    if one.row.owner_id == agent_id:
        return one.row.label
    return f"{one.owner_name or SHARED_BY_ALL}/{one.row.label}"


def _by_rank(
    found: Sequence[VisibleRow], agent_id: str | None, wanted: str
) -> list[list[VisibleRow]]:
    plain = [one for one in found if one.row.label == wanted]
    if agent_id is None:
        named = [one for one in found if _name(one, None) == wanted]
        return [named, plain, [one for one in found if one.row.id == wanted]]
    return [
        [one for one in plain if one.row.owner_id == agent_id],
        [one for one in found if _name(one, None) == wanted],
        [one for one in plain if one.row.owner_id != CONSTELLATION],
        plain,
        [one for one in found if one.row.id == wanted],
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
    """Return the lines that everyone present may hear."""
    block = seen.block
    return [
        line.text
        for line in seen.lines
        if is_visible(block.schema, line, block.audience, participants)
    ]


def visible_to(seen: VisibleBlock, participants: Participants) -> VisibleBlock | None:
    """Return a block as those present may see it; None: it is not there for them.

    Where lines are hidden, size and version count what is heard, and when it was last written is
    not told: else they would tell of the rest.
    """
    block = seen.block
    if not participants.can_see(block.audience):
        return None
    lines = tuple(
        one for one in seen.lines if is_visible(block.schema, one, block.audience, participants)
    )
    if len(lines) == len(seen.lines):
        return seen
    return replace(
        seen,
        lines=lines,
        block=replace(
            block,
            text="\n".join(one.text for one in lines),
            version=len({number for one in lines for number in one.edits}),
            updated_at=block.created_at,
        ),
    )


def shown(seen: VisibleBlock, participants: Participants) -> str:
    """Return what a model sees of a block with these participants; "" if they may see nothing."""
    lines = visible_lines(seen, participants)
    if all(is_heading(seen.block.schema, line) for line in lines):
        return ""
    return render(seen.block.schema, lines)


_TAG = re.compile(r"<(?=\s*/?\s*block\b)", re.IGNORECASE)


def wrapped(seen: VisibleBlock, participants: Participants) -> str:
    """Return a block for a prompt, in tags that its content cannot fake.

    Nothing is returned of a block that those present may not hear. One of which they may hear no
    line looks like an empty one.
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
