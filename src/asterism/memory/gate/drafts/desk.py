"""A block that is about to be written, what its writer sees of it, and what is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from asterism.memory.documents import Document
from asterism.memory.editing import is_visible, refuse_if_lost
from asterism.memory.gate.drafts.rules import check_size
from asterism.memory.gate.writer import Writer
from asterism.memory.lines import Stroke
from asterism.permissions import Resource
from asterism.store import blocks as rows
from asterism.store.blocks import BlockRow
from asterism.store.database import Connection
from asterism.types.memory import CONSTELLATION, Block, Line, Permission
from asterism.types.people import OWNER, Audience, Label


def by_owner(writer: Writer) -> bool:
    """Tell whether the owner writes, or a rule of theirs, who hear everything."""
    return writer.actor.kind in (OWNER, "system")


def hears(writer: Writer, audience: Audience) -> bool:
    """Tell whether a writer hears what has this audience, in the participants it is in."""
    return by_owner(writer) or writer.participants.can_see(audience)


async def resource_for(tx: Connection, writer: Writer, row: BlockRow) -> Resource:
    """Return a block as the decision sees it: with what the writer may do to it."""
    permission: str | None = None
    if by_owner(writer) or writer.by_verb:
        permission = Permission.ADMIN.value
    elif writer.agent_id is not None and writer.actor.kind == "agent":
        if writer.agent_id == row.owner_id:
            permission = row.permission
        else:
            permission = await rows.share_of(tx, row.id, writer.agent_id)
            if permission is None and row.owner_id == CONSTELLATION:
                permission = row.permission
    return Resource("block", row.label, Permission(permission) if permission else None)


@dataclass(frozen=True, slots=True)
class Desk:
    """A block that is about to be written, and what its writer sees of it."""

    tx: Connection
    writer: Writer
    row: BlockRow
    block: Block
    lines: list[Line]
    heard: list[bool]
    """Which of the lines the writer hears."""
    peer: int
    document: Document

    @staticmethod
    def of(tx: Connection, writer: Writer, row: BlockRow, block: Block, peer: int) -> Desk:
        """Lay a block out."""
        lines = rows.read_lines(row.text, row.lines)
        owner = by_owner(writer)
        heard = [
            owner or is_visible(block.schema, line, block.audience, writer.participants)
            for line in lines
        ]
        document = Document.load(block.schema, row.snapshot, peer)
        return Desk(tx, writer, row, block, lines, heard, peer, document)

    @property
    def number(self) -> int:
        """The number that the edit will have."""
        return self.row.version + 1

    @property
    def sees_all(self) -> bool:
        """Whether the writer hears every line."""
        return all(self.heard)

    def stroke(self, label: Label | None = None) -> Stroke:
        """Return what lines that the edit makes get."""
        source = self.writer.source
        own = self.writer.actor.kind == OWNER
        return Stroke(self.number, label or source.label, own)


@dataclass(frozen=True, slots=True)
class Draft:
    """What a write makes of a block; nothing of it is stored yet."""

    row: BlockRow
    lines: list[Line]
    ops: bytes = b""
    version: bytes = b""
    read_only: str | None = None
    """The read-only field or section that is written."""
    undoes: int | None = None
    share: tuple[str, str | None] | None = None
    """An agent, and its permission from now on; None: it does not see the block any more."""
    more: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the history keeps besides."""
    nothing: bool = False
    """Nothing is different, and nothing is to be remembered."""


def content(
    desk: Desk,
    document: Document,
    before: bytes,
    lines: list[Line],
    *,
    read_only: str | None = None,
    undoes: int | None = None,
) -> Draft:
    """Return what was made of the content, once it was found to fit."""
    check_size(desk.block, document.text, sees_all=desk.sees_all)
    hidden = [line for line, heard in zip(desk.lines, desk.heard, strict=True) if not heard]
    refuse_if_lost(hidden, lines)
    version = document.version
    return Draft(
        desk.row._replace(
            text=document.text, lines=rows.write_lines(lines), snapshot=document.snapshot()
        ),
        lines,
        ops=document.ops_since(before),
        version=version,
        read_only=read_only,
        undoes=undoes,
        nothing=version == before and undoes is None,
    )
