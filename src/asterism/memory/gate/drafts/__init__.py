"""Drafts: what a write would make of a block, worked out in full before the gate lets it in."""

from __future__ import annotations

from asterism.memory.editing import make
from asterism.memory.gate.drafts.desk import Desk, Draft, by_owner, content
from asterism.memory.gate.drafts.past import merge, restore, revert, write_at
from asterism.memory.gate.drafts.sayings import describe, share, unshare
from asterism.types.memory import (
    BlockWrite,
    Describe,
    Merge,
    Redo,
    Restore,
    Retire,
    Revert,
    SetText,
    Share,
    Undo,
    Unshare,
)

__all__ = ["Desk", "Draft", "draft"]


async def draft(desk: Desk, write: BlockWrite) -> Draft:  # noqa: PLR0911 - one for each kind
    """Work out what a write makes of a block; raise what is wrong with it."""
    match write:
        case Describe():
            return await describe(desk, write)
        case Share():
            return await share(desk, write)
        case Unshare():
            return await unshare(desk, write)
        case Retire():
            row = desk.row._replace(retired_at=desk.writer.now)
            return Draft(row, desk.lines, version=desk.document.version)
        case Undo() | Redo() | Revert():
            return await revert(desk, write)
        case Restore():
            return await restore(desk, write)
        case Merge():
            return await merge(desk, write)
        case SetText() if write.base is not None and write.base != desk.row.version:
            return await write_at(desk, write)
        case _:
            document = desk.document
            read_only = document.touched_read_only(write, seen=desk.heard)
            if read_only is not None and not by_owner(desk.writer):
                return Draft(desk.row, desk.lines, read_only=read_only)  # it will be refused
            before = document.version
            lines = make(document, desk.lines, desk.heard, write, desk.stroke(), desk.writer.now)
            return content(desk, document, before, lines, read_only=read_only)
