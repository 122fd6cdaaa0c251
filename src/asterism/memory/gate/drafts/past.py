"""Writes that need a block's past: undo, redo, revert, restore, merge, text against a version."""

from __future__ import annotations

from dataclasses import replace

from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.memory import history
from asterism.memory.documents import Document
from asterism.memory.documents.history import StartTooLate
from asterism.memory.gate.acts import CONTENT_KINDS
from asterism.memory.gate.drafts.desk import Desk, Draft, content, hears
from asterism.memory.gate.writer import Writer
from asterism.memory.lines import carry
from asterism.store.blocks import EditRow
from asterism.types.memory import Line, Merge, Redo, Restore, Revert, SetText, Undo
from asterism.types.people import OWNER_ONLY, Label


async def revert(desk: Desk, write: Undo | Redo | Revert) -> Draft:
    """Take one edit back; what came after it stays."""
    meant = await _meant(desk, write)
    tx, block_id = desk.tx, desk.row.id
    stretch = await history.stretch_with(tx, block_id, meant.number, ops=False)
    assert stretch is not None
    past = await history.load(tx, block_id, desk.block.schema, meant.number, desk.peer)
    was = await history.raw_lines_at(tx, block_id, meant.number - 1, past)
    past.revert(stretch.version_before(meant.number), meant.version)
    return _brought_back(desk, past.document, was, undoes=meant.number)


async def _meant(desk: Desk, write: Undo | Redo | Revert) -> EditRow:
    """Return the edit that is to be taken back."""
    tx, block_id, label = desk.tx, desk.row.id, desk.block.label

    def heard(edit: EditRow) -> bool:
        return hears(desk.writer, history.read_source(edit.source).audience)

    def fits(edit: EditRow, stands: bool) -> bool:
        return stands and heard(edit)

    if isinstance(write, Undo):
        found = await history.latest(tx, block_id, (*CONTENT_KINDS, "redo"), fits)
        if found is None:
            raise Conflict(f"There is nothing to undo in block {label!r}. Nothing was changed.")
        return found
    if isinstance(write, Redo):
        fresh = await history.latest(tx, block_id, CONTENT_KINDS, lambda _edit, _stands: True)
        found = await history.latest(tx, block_id, ("undo",), fits, fresh.number if fresh else 0)
        if found is None:
            raise Conflict(f"There is nothing to redo in block {label!r}. Nothing was changed.")
        return found
    stretch = await history.stretch_with(tx, block_id, write.edit, ops=False)
    if stretch is None or not heard(stretch.edit(write.edit)):
        there = f"; its edits go from 1 to {desk.row.version}" if desk.sees_all else ""
        raise NotFound(f"Block {label!r} has no edit {write.edit}{there}. Nothing was changed.")
    named = stretch.edit(write.edit)
    if named.kind not in (*CONTENT_KINDS, "undo", "redo"):
        raise InvalidInput(
            f"Edit {write.edit} of block {label!r} ({named.kind}) wrote nothing that could be "
            "taken back. Nothing was changed."
        )
    found = await history.standing(tx, block_id, write.edit)
    if found is None:
        raise Conflict(
            f"Edit {write.edit} of block {label!r} was taken back by edit {named.undone_by}. "
            "Nothing was changed."
        )
    return found


def _brought_back(
    desk: Desk, document: Document, was: list[Line], *, undoes: int | None = None
) -> Draft:
    read_only = desk.document.read_only_changed(document)
    texts = document.lines()
    if texts == [line.text for line in was]:
        lines = was
    else:
        lines = carry(desk.lines, texts, desk.stroke(), was)
    return content(desk, document, desk.document.version, lines, read_only=read_only, undoes=undoes)


async def restore(desk: Desk, write: Restore) -> Draft:
    """Make a block what it was at a version."""
    tx, block_id = desk.tx, desk.row.id
    stretch = await history.stretch_with(tx, block_id, write.version, ops=False)
    if stretch is None:
        there = f"; its versions go from 1 to {desk.row.version}" if desk.sees_all else ""
        named = f"Block {desk.block.label!r} has no version {write.version}"
        raise NotFound(f"{named}{there}. Nothing was changed.")
    past = await history.load(tx, block_id, desk.block.schema, write.version, desk.peer)
    was = await history.raw_lines_at(tx, block_id, write.version, past)
    past.restore(stretch.edit(write.version).version)
    return _brought_back(desk, past.document, was)


async def write_at(desk: Desk, write: SetText) -> Draft:
    """Write the whole anew as against an earlier version."""
    assert write.base is not None
    stretch = await history.stretch_with(desk.tx, desk.row.id, write.base, ops=False)
    if stretch is None or not desk.sees_all:
        now = f"has version {desk.row.version}" if desk.sees_all else "has changed"
        raise Conflict(
            f"Block {desk.block.label!r} {now}, and this was written against version {write.base}. "
            "Look at it again. Nothing was changed."
        )
    past = await history.load(desk.tx, desk.row.id, desk.block.schema, write.base, desk.peer)
    past.write_at(stretch.edit(write.base).version, write)
    lines = carry(desk.lines, past.document.lines(), desk.stroke())
    read_only = desk.document.read_only_changed(past.document)
    return content(desk, past.document, desk.document.version, lines, read_only=read_only)


async def merge(desk: Desk, write: Merge) -> Draft:
    """Take in the updates of another replica."""
    tx, block_id, schema = desk.tx, desk.row.id, desk.block.schema
    past = await history.load(tx, block_id, schema, desk.row.version, desk.peer)
    try:
        past.merge(write.updates)
    except StartTooLate:
        # They may build on what lies before the loose edits.
        past = await history.load(tx, block_id, schema, 1, desk.peer)
        past.merge(write.updates)
    stroke = desk.stroke(label_of_merged(desk.writer))
    lines = carry(desk.lines, past.document.lines(), replace(stroke, own_hands=False))
    read_only = desk.document.read_only_changed(past.document)
    return content(desk, past.document, desk.document.version, lines, read_only=read_only)


def label_of_merged(writer: Writer) -> Label:
    """Return the label of lines that another replica brings, which do not say who hears them."""
    audience = writer.source.audience
    return Label(writer.source.trust, OWNER_ONLY if audience.public else audience)
