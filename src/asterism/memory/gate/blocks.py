"""The gate for blocks: create, ensure, write. Nothing else changes a block.

A write becomes a pending edit first. It is judged, and only then stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Any, NotRequired, TypedDict, Unpack

import orjson

from asterism.errors import Changed, Conflict, InvalidInput, NotAllowed, NotFound
from asterism.memory import blocks as rows
from asterism.memory import history
from asterism.memory.blocks import (
    BlockRow,
    EditRow,
    blame_splice,
    block_of,
    is_visible,
    write_source,
)
from asterism.memory.content import Parts, change_between
from asterism.memory.edits import UNDOABLE_KINDS, BlockContent, act_of, description_of, kind_of
from asterism.memory.gate import replicas
from asterism.memory.gate.replicas import Replica
from asterism.memory.gate.rows import (
    block_changed,
    delete_block,
    drop_share,
    drop_squashed,
    insert_block,
    lock_block,
    mark_undone,
    put_edit,
    put_era,
    set_share,
    update_block,
)
from asterism.memory.gate.writer import (
    Writer,
    by_owner,
    can_see,
    check_hidden_lines,
    judge,
    make,
    resource_for,
)
from asterism.memory.schemas import read_schema, schema_wire
from asterism.memory.texts import EditStamp, carry
from asterism.permissions import Act, Resource
from asterism.records import dataclass
from asterism.store import agents
from asterism.store.database import Connection
from asterism.types.agents import OWNER, OWNER_ONLY, PUBLIC, Audience, Label, new_id
from asterism.types.memory import (
    CONSTELLATION,
    DEFAULT_LIMIT,
    MAX_LIMIT,
    Block,
    BlockType,
    BlockWrite,
    Describe,
    Line,
    Merge,
    Permission,
    Redo,
    Restore,
    Retire,
    Revert,
    Schema,
    SetText,
    Share,
    TextSchema,
    Undo,
    Unshare,
)

ERA = 256
"""So many edits are squashed into one era, and as many stay loose.

A loose edit takes four times the room of a squashed one; a larger era saves little more.
"""
_MAX_DESCRIPTION = 2_000
_LABEL = re.compile(r"\w(?:[\w.:/-]{0,78}\w)?")


# -- creating --------------------------------------------------------------------------------------

HUMAN = "human"
STARTER_BLOCKS = {
    HUMAN: (
        "Facts about your owner that you always see, one a line, mostly in your owner's own words: "
        '"I" and "my" there mean your owner. Keep what lasts, and correct what has changed.'
    ),
    "persona": "Who you are and how you speak, beyond your system prompt.",
}
"""The blocks that every new agent begins with, and what they are for."""


async def create_starter_blocks(tx: Connection, writer: Writer, agent_id: str) -> None:
    """Give a new agent its first blocks, empty and visible to the owner only."""
    for label, description in STARTER_BLOCKS.items():
        await create(tx, writer, agent_id, label, description=description, audience=OWNER_ONLY)


async def drop_untouched(
    tx: Connection, writer: Writer, owner_id: str, labels: Iterable[str]
) -> None:
    """Make room for copies of blocks with these labels where a first block was never written to."""
    if not (by_owner(writer) or writer.by_verb or writer.agent_id == owner_id):
        raise NotAllowed(f"{writer.actor} may not replace blocks of others. Nothing was changed.")
    await _drop_untouched(tx, owner_id, labels)


async def _drop_untouched(tx: Connection, owner_id: str, labels: Iterable[str]) -> None:
    for label in STARTER_BLOCKS.keys() & set(labels):
        row = await rows.by_label(tx, owner_id, label)
        if row is not None and _is_untouched(row):
            await delete_block(tx, row.id)


def _is_untouched(row: BlockRow) -> bool:
    return row.version == 1 and not row.text and row.description == STARTER_BLOCKS.get(row.label)


class BlockOptions(TypedDict):
    """Options of a new block, as `create` takes them."""

    type: NotRequired[BlockType]
    schema: NotRequired[Schema]
    content: NotRequired[str]
    description: NotRequired[str]
    limit: NotRequired[int]
    permission: NotRequired[Permission]
    audience: NotRequired[Audience]
    pinned: NotRequired[bool]
    updates: NotRequired[bytes | None]


async def create(
    tx: Connection,
    writer: Writer,
    owner_id: str,
    label: str,
    *,
    type: BlockType = BlockType.CORE,  # noqa: A002 - the word for it everywhere
    schema: Schema = TextSchema(),
    content: str = "",
    description: str = "",
    limit: int = DEFAULT_LIMIT,
    permission: Permission = Permission.READ_WRITE,
    audience: Audience = PUBLIC,
    pinned: bool = False,
    updates: bytes | None = None,
) -> Block:
    """Make a block.

    Args:
        tx: The transaction.
        writer: Who makes it.
        owner_id: The agent that owns it, or `CONSTELLATION`.
        label: Its name; unique among its owner's blocks.
        type: When a model sees it.
        schema: Its structure.
        content: Its first content, as `SetText` takes it.
        description: Its purpose; models read it.
        limit: The most characters it may hold.
        permission: What its owner may do to it.
        audience: Who may see it; with an agent, at most those who may see what is said.
        pinned: Whether a working block is seen.
        updates: Of another replica (`export_updates`), of which this block shall be one more.
    """
    check_label(label)
    check_description(description)
    check_limit(limit)
    schema = read_schema(schema_wire(schema))
    block = Block(
        *(new_id("block"), owner_id, label, type, schema, "", description, limit, permission),
        audience=audience if by_owner(writer) else audience & writer.source.audience,
        pinned=pinned,
    )
    await _judge_creation(tx, writer, block, content)
    replica = None if updates is None else _read_replica(schema, content, updates)
    made, lines = _first_content(writer, schema, content, replica)
    check_size(block, made.text, sees_all=True)
    row = _first_row(tx.constellation, writer, block, made, lines)
    await _drop_untouched(tx, owner_id, [label])
    if not await insert_block(tx, row):
        raise Conflict(
            f"There is a block {label!r} already. Write to that one, or choose another label. "
            "Nothing was changed."
        )
    begun = {"schema": schema_wire(schema), "lines": blame_splice([], lines)}
    change = _change_json({}, made.parts)
    await put_edit(tx, row.id, _edit_row(writer, 1, "create", change, None, begun))
    if replica is not None:
        await replicas.store(tx, row.id, row.version, replica)
    await block_changed(tx, row)
    return block_of(row)


def _read_replica(schema: Schema, content: str, updates: bytes) -> Replica:
    if content:
        raise InvalidInput(
            "A replica takes its content from the other replica. Leave the content out."
        )
    return Replica.read(schema, updates)


def _first_content(
    writer: Writer, schema: Schema, content: str, replica: Replica | None
) -> tuple[BlockContent, list[Line]]:
    result = BlockContent.new(schema)
    if replica is not None:
        result.write(replica.state)
    elif content:
        result.apply(SetText(content), now=writer.now)
    label = writer.source.label if replica is None else label_of_merged(writer)
    return result, carry([], result.lines(), EditStamp(1, label))


def _first_row(
    constellation: str, writer: Writer, block: Block, content: BlockContent, lines: Sequence[Line]
) -> BlockRow:
    return BlockRow(
        id=block.id,
        constellation=constellation,
        owner_id=block.owner_id,
        label=block.label,
        type=block.type.value,
        description=block.description,
        schema=orjson.dumps(schema_wire(block.schema)).decode(),
        max_chars=block.limit,
        permission=block.permission.value,
        audience=str(block.audience),
        pinned=int(block.pinned),
        version=1,
        text=content.text,
        lines=rows.write_lines(lines),
        created_at=writer.now,
        updated_at=writer.now,
        retired_at=None,
        content=rows.write_parts(content.parts, content.text),
    )


async def ensure(
    tx: Connection, writer: Writer, owner_id: str, label: str, **options: Unpack[BlockOptions]
) -> tuple[Block, bool]:
    """Return the block of an owner with a label, and whether it had to be made.

    The options count only for a new block.
    """
    row = await rows.by_label(tx, owner_id, label)
    if row is None or _is_untouched(row):
        try:
            async with tx.savepoint():
                return await create(tx, writer, owner_id, label, **options), True
        except Conflict:  # made by somebody else meanwhile
            row = await rows.by_label(tx, owner_id, label)
            if row is None:
                raise
    block = block_of(row)
    if not can_see(writer, block.audience):
        raise Conflict(f"The label {label!r} cannot be used here; choose another.")
    judge(writer, Act.READ, await resource_for(tx, writer, row), f"read block {label!r}")
    return block, False


async def _judge_creation(tx: Connection, writer: Writer, block: Block, content: str) -> None:
    if block.owner_id != CONSTELLATION:
        owner = await agents.by_id(tx, block.owner_id)
        known = owner and await agents.by_name(tx, owner.name)
        if known is None or known.id != block.owner_id:
            raise NotFound(f"There is no agent {block.owner_id!r}, so it cannot own a block.")
    if by_owner(writer) or writer.by_verb:
        return
    own = writer.agent_id is not None and writer.agent_id == block.owner_id
    highest = block.type is BlockType.CORE or block.permission is Permission.ADMIN
    resource = Resource("block", block.label, Permission.READ_WRITE if own else None)
    act = Act.GOVERN if highest else Act.APPEND
    judge(writer, act, resource, f"make a new block {block.label!r}: {content[:200]}")


# -- what a block may be ---------------------------------------------------------------------------


def check_label(label: str) -> None:
    """Refuse what cannot be a label."""
    if not _LABEL.fullmatch(label):
        raise InvalidInput(
            f"{label[:100]!r} cannot be a label. It has 1 to 80 letters, digits or any of _ - . : "
            "/, and begins and ends with a letter, a digit or _. Nothing was changed."
        )


def check_description(description: str) -> None:
    """Refuse a description that is too long."""
    if len(description) > _MAX_DESCRIPTION or "\x00" in description:
        raise InvalidInput(
            f"The description has {len(description):,} characters; at most "
            f"{_MAX_DESCRIPTION:,}, and no null character, are taken. Nothing was changed."
        )


def check_limit(limit: int) -> None:
    """Refuse a limit that no block may have."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput(
            f"A block cannot have the limit {limit:,}. Choose from 1 to {MAX_LIMIT:,} "
            "characters. Nothing was changed."
        )


def check_size(block: Block, text: str, *, sees_all: bool) -> None:
    """Refuse text that is longer than the block may be."""
    size, old_size = len(text), len(block.text)
    if size <= block.limit or size < old_size:
        return
    if not sees_all:  # any number here would tell how much there is of what is not visible
        raise InvalidInput(
            f"Block {block.label!r} does not take this text. Shorten it, replace a part of the "
            "block, or keep it in the archive. Nothing was changed."
        )
    raise InvalidInput(
        f"Block {block.label!r} holds {old_size:,} of {block.limit:,} characters and this text "
        f"adds {size - old_size:,}. Shorten it, replace a part of the block, or keep it in the "
        "archive. Nothing was changed."
    )


# -- writing ---------------------------------------------------------------------------------------


async def write(
    tx: Connection, writer: Writer, block_id: str, write: BlockWrite, *, era: int = ERA
) -> Block:
    """Do one thing to a block, if the writer may; return the block after it.

    Raises `WriteNeedsApproval` where a person has to be asked first, and then nothing was changed.
    """
    row = await lock_block(tx, block_id)
    if row is None or row.constellation != tx.constellation:
        raise NotFound(f"There is no block {block_id!r}. Nothing was changed.")
    block = block_of(row)
    act = act_of(write, block)
    resource = await resource_for(tx, writer, row)
    if resource.permission is None or not can_see(writer, block.audience):
        raise NotFound(f"There is no block {row.label!r}. Nothing was changed.")
    # What is refused anyway is refused first; a person is asked only about what would work.
    judge(replace(writer, approved=True), act, resource, "")
    target = OpenBlock.of(tx, writer, row, block)
    pending = await prepare(target, write)
    resource = replace(resource, read_only_part=pending.read_only)
    judge(writer, act, resource, description_of(write, block))
    if pending.replica is not None:
        version = row.version if pending.nothing else target.number
        await replicas.store(tx, row.id, version, pending.replica)
    if pending.nothing:
        return block
    return await store_edit(target, kind_of(type(write)), pending, era)


async def lock(tx: Connection, block_id: str, version: int | None = None) -> None:
    """Let nobody else change a block until the end of the transaction.

    Raises `Changed` if it must have a version, and has another.
    """
    row = await lock_block(tx, block_id)
    if row is not None and version not in (None, row.version):
        raise Changed(
            f"Block {row.label!r} has version {row.version}, and this edit is based on version "
            f"{version}. Read it again and base the edit on what it says now. Nothing was changed."
        )


async def store_edit(target: OpenBlock, kind: str, pending: PendingEdit, era: int = ERA) -> Block:
    """Store a judged edit; only the gate itself may call this."""
    tx, writer, number = target.tx, target.writer, target.number
    row = pending.row._replace(version=number, updated_at=writer.now)
    await update_block(tx, row)
    more = dict(pending.more)
    lines = blame_splice(target.lines, pending.lines)
    if lines[1] or lines[2]:
        more["lines"] = lines
    change = _change_json(target.content.parts, rows.read_parts(row))
    edit = _edit_row(writer, number, kind, change, pending.undoes, more)
    await put_edit(tx, row.id, edit)
    if pending.undoes is not None and not await mark_undone(tx, row.id, pending.undoes, number):
        era_now = await history.era_with_undone(tx, row.id, pending.undoes, number)
        await put_era(tx, row.id, era_now)
    if pending.share is not None:
        await _store_share(tx, row, *pending.share)
    gone = [pending.share[0]] if pending.share is not None else []
    await block_changed(tx, row, gone)
    if number >= 2 * era and number % era == 0:
        await _squash(tx, row.id, era)
    return block_of(row)


def _change_json(old: Parts, new: Parts) -> str:
    change = change_between(old, new)
    return orjson.dumps(change).decode() if change else ""


def _edit_row(
    writer: Writer, number: int, kind: str, change: str, undoes: int | None, more: dict[str, Any]
) -> EditRow:
    return EditRow(
        number=number,
        kind=kind,
        author=str(writer.actor),
        turn_id=writer.turn_id,
        reason=writer.reason,
        source=write_source(writer.source, **more),
        undoes=undoes,
        undone_by=None,
        at=writer.now,
        change=change,
    )


async def _store_share(
    tx: Connection, row: BlockRow, agent_id: str, permission: str | None
) -> None:
    if permission is None:
        await drop_share(tx, row.id, agent_id)
    else:
        await set_share(tx, row.id, agent_id, permission, row.updated_at)


async def _squash(tx: Connection, block_id: str, size: int) -> None:
    while (made := await history.squash_era(tx, block_id, size)) is not None:
        era, begin = made
        await drop_squashed(tx, block_id, era.first, era.last)
        await put_era(tx, block_id, era)
        await put_era(tx, block_id, begin)


# -- pending edits ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenBlock:
    """A block that is about to be written, with the lines that its writer sees."""

    tx: Connection
    writer: Writer
    row: BlockRow
    block: Block
    lines: list[Line]
    is_visible_edit: list[bool]
    """Which of the lines the writer sees."""
    content: BlockContent

    @staticmethod
    def of(tx: Connection, writer: Writer, row: BlockRow, block: Block) -> OpenBlock:
        """Open a block for a writer."""
        lines = rows.read_lines(row.text, row.lines)
        owner = by_owner(writer)
        is_visible_edit = [
            owner or is_visible(block.schema, line, block.audience, writer.participants)
            for line in lines
        ]
        content = BlockContent(block.schema, rows.read_parts(row))
        return OpenBlock(tx, writer, row, block, lines, is_visible_edit, content)

    @property
    def number(self) -> int:
        """The number that the edit will have."""
        return self.row.version + 1

    @property
    def sees_all(self) -> bool:
        """Whether the writer sees every line."""
        return all(self.is_visible_edit)

    def stamp(self, label: Label | None = None) -> EditStamp:
        """Return what lines that the edit makes get."""
        source = self.writer.source
        own = self.writer.actor.kind == OWNER
        return EditStamp(self.number, label or source.label, own)

    def copy(self) -> BlockContent:
        """Return its content, to be changed."""
        return BlockContent(self.block.schema, self.content.parts)


@dataclass(frozen=True, slots=True)
class PendingEdit:
    """The result of a write, before it is stored."""

    row: BlockRow
    lines: list[Line]
    read_only: str | None = None
    """The read-only field or section that is written."""
    undoes: int | None = None
    share: tuple[str, str | None] | None = None
    """An agent, and its permission from now on; None: it does not see the block any more."""
    more: dict[str, Any] = field(default_factory=dict[str, Any])
    """More fields for the history."""
    nothing: bool = False
    """Nothing is different, and nothing is to be remembered."""
    replica: Replica | None = None
    """The Loro document, if something was merged into it."""


async def prepare(target: OpenBlock, write: BlockWrite) -> PendingEdit:  # noqa: PLR0911 - one for each kind
    """Return the result of a write; raise an error if the write is not valid."""
    match write:
        case Describe():
            return await _describe(target, write)
        case Share():
            return await _share(target, write)
        case Unshare():
            return await _unshare(target, write)
        case Retire():
            return PendingEdit(target.row._replace(retired_at=target.writer.now), target.lines)
        case Undo() | Redo() | Revert():
            return await _revert(target, write)
        case Restore():
            return await _restore(target, write)
        case Merge():
            return await _merge(target, write)
        case SetText() if write.base is not None and write.base != target.row.version:
            return await _write_against(target, write)
        case _:
            content = target.copy()
            read_only = content.touched_read_only(write, seen=target.is_visible_edit)
            if read_only is not None and not by_owner(target.writer):
                return PendingEdit(target.row, target.lines, read_only=read_only)  # refused later
            lines = make(
                content,
                target.lines,
                target.is_visible_edit,
                write,
                target.stamp(),
                target.writer.now,
                target.block.limit,
            )
            return pending_content(target, content, lines, read_only=read_only)


def pending_content(
    target: OpenBlock,
    content: BlockContent,
    lines: list[Line],
    *,
    read_only: str | None = None,
    undoes: int | None = None,
) -> PendingEdit:
    """Return the pending edit for new content, after its size was checked."""
    check_size(target.block, content.text, sees_all=target.sees_all)
    hidden = [
        line
        for line, is_visible_edit in zip(target.lines, target.is_visible_edit, strict=True)
        if not is_visible_edit
    ]
    check_hidden_lines(hidden, lines)
    return PendingEdit(
        target.row._replace(
            text=content.text,
            lines=rows.write_lines(lines),
            content=rows.write_parts(content.parts, content.text),
        ),
        lines,
        read_only=read_only,
        undoes=undoes,
        nothing=content.parts == target.content.parts and undoes is None,
    )


# -- with the past ---------------------------------------------------------------------------------


async def _revert(target: OpenBlock, write: Undo | Redo | Revert) -> PendingEdit:
    """Take one edit back; what came after it stays."""
    number = (await _edit_to_revert(target, write)).number
    tx, block_id = target.tx, target.row.id
    was = await history.raw_lines_at(tx, block_id, number - 1)
    content = target.copy()
    content.take_back(*await history.parts_and_since(tx, block_id, number))
    return _restored_edit(target, content, was, undoes=number)


async def _edit_to_revert(target: OpenBlock, write: Undo | Redo | Revert) -> EditRow:
    """Return the edit that is to be taken back."""
    tx, block_id, label = target.tx, target.row.id, target.block.label

    def is_visible_edit(edit: EditRow) -> bool:
        return can_see(target.writer, history.read_source(edit.source).audience)

    def fits(edit: EditRow, stands: bool) -> bool:
        return stands and is_visible_edit(edit)

    if isinstance(write, Undo):
        edit = await history.latest(tx, block_id, (*UNDOABLE_KINDS, "redo"), fits)
        if edit is None:
            raise Conflict(f"There is nothing to undo in block {label!r}. Nothing was changed.")
        return edit
    if isinstance(write, Redo):
        fresh = await history.latest(tx, block_id, UNDOABLE_KINDS, lambda _edit, _stands: True)
        edit = await history.latest(tx, block_id, ("undo",), fits, fresh.number if fresh else 0)
        if edit is None:
            raise Conflict(f"There is nothing to redo in block {label!r}. Nothing was changed.")
        return edit
    run = await history.run_with(tx, block_id, write.edit, changes=False)
    if run is None or not is_visible_edit(run.edit(write.edit)):
        there = f"; its edits go from 1 to {target.row.version}" if target.sees_all else ""
        raise NotFound(f"Block {label!r} has no edit {write.edit}{there}. Nothing was changed.")
    named = run.edit(write.edit)
    if named.kind not in (*UNDOABLE_KINDS, "undo", "redo"):
        raise InvalidInput(
            f"Edit {write.edit} of block {label!r} ({named.kind}) wrote nothing that could be "
            "taken back. Nothing was changed."
        )
    edit = await history.standing(tx, block_id, write.edit)
    if edit is None:
        raise Conflict(
            f"Edit {write.edit} of block {label!r} was taken back by edit {named.undone_by}. "
            "Nothing was changed."
        )
    return edit


def _restored_edit(
    target: OpenBlock, content: BlockContent, was: list[Line], *, undoes: int | None = None
) -> PendingEdit:
    read_only = target.content.read_only_changed(content)
    texts = content.lines()
    if texts == [line.text for line in was]:
        lines = was
    else:
        lines = carry(target.lines, texts, target.stamp(), was)
    return pending_content(target, content, lines, read_only=read_only, undoes=undoes)


async def _restore(target: OpenBlock, write: Restore) -> PendingEdit:
    """Restore a block to a version."""
    run = await history.run_with(target.tx, target.row.id, write.version)
    if run is None:
        there = f"; its versions go from 1 to {target.row.version}" if target.sees_all else ""
        named = f"Block {target.block.label!r} has no version {write.version}"
        raise NotFound(f"{named}{there}. Nothing was changed.")
    was = await history.raw_lines_at(target.tx, target.row.id, write.version)
    content = target.copy()
    content.write(BlockContent(target.block.schema, run.parts_at(write.version)).state)
    return _restored_edit(target, content, was)


async def _write_against(target: OpenBlock, write: SetText) -> PendingEdit:
    """Replace the whole content, based on an earlier version."""
    assert write.base is not None
    known = 0 < write.base <= target.row.version
    if not known or not target.sees_all:
        now = f"has version {target.row.version}" if target.sees_all else "has changed"
        raise Conflict(
            f"Block {target.block.label!r} {now}, and this was written against version "
            f"{write.base}. Look at it again. Nothing was changed."
        )
    _, base, since = await history.parts_and_since(target.tx, target.row.id, write.base)
    content = target.copy()
    content.write_against(base, write, since)
    lines = carry(target.lines, content.lines(), target.stamp())
    read_only = target.content.read_only_changed(content)
    return pending_content(target, content, lines, read_only=read_only)


async def _merge(target: OpenBlock, write: Merge) -> PendingEdit:
    """Take in the updates of another replica."""
    replica = await replicas.replica_of(target.tx, target.row)
    replica.merge(write.updates)
    content = target.copy()
    content.write(replica.state)
    stamp = target.stamp(label_of_merged(target.writer))
    lines = carry(target.lines, content.lines(), replace(stamp, own_hands=False))
    read_only = target.content.read_only_changed(content)
    return replace(pending_content(target, content, lines, read_only=read_only), replica=replica)


def label_of_merged(writer: Writer) -> Label:
    """Return the label of lines that another replica brings, which do not say who sees them."""
    audience = writer.source.audience
    return Label(writer.source.trust, OWNER_ONLY if audience.public else audience)


# -- what is said of a block, and who sees it ------------------------------------------------------


async def _describe(target: OpenBlock, write: Describe) -> PendingEdit:
    """Change the description of a block, its label, limit and so on."""
    block, row = target.block, target.row
    changes: dict[str, Any] = {}
    if write.description is not None:
        check_description(write.description)
        _check_readers(target)
        changes["description"] = write.description
    if write.label is not None and write.label != row.label:
        check_label(write.label)
        _check_readers(target)
        taken = await rows.by_label(target.tx, row.owner_id, write.label)
        if taken is not None:
            raise Conflict(f"There is a block {write.label!r} already. Nothing was changed.")
        changes["label"] = write.label
    if write.limit is not None:
        check_limit(write.limit)
        if write.limit < len(row.text):
            raise InvalidInput(
                f"Block {block.label!r} holds {len(row.text):,} characters, more than the limit of "
                f"{write.limit:,}. Shorten it first. Nothing was changed."
            )
        changes["max_chars"] = write.limit
    if write.type is not None:
        changes["type"] = write.type.value
    if write.permission is not None:
        changes["permission"] = write.permission.value
    if write.audience is not None:
        changes["audience"] = str(write.audience)
    if write.pinned is not None:
        changes["pinned"] = int(write.pinned)
    if not changes and write.schema is None:
        raise InvalidInput("You named no change. Give at least one option. Nothing was changed.")
    changed = row._replace(**changes)
    was = {name: getattr(row, name) for name in changes if changes[name] != getattr(row, name)}
    if write.schema is None:
        return PendingEdit(changed, target.lines, more={"was": was}, nothing=changed == row)
    return _change_schema(target, changed, write.schema, was)


def _check_readers(target: OpenBlock) -> None:
    """Refuse a text whose readers include people who may not see this conversation."""
    if by_owner(target.writer):
        return
    if target.block.audience & target.writer.source.audience != target.block.audience:
        raise NotAllowed(
            f"Everyone who sees block {target.block.label!r} reads its label and description, "
            "and not all of them may see what is said here. Nothing was changed."
        )


def _change_schema(
    target: OpenBlock, row: BlockRow, new_schema: Schema, was: dict[str, Any]
) -> PendingEdit:
    schema = read_schema(schema_wire(new_schema))
    if type(schema) is not type(target.block.schema) and target.row.text:
        raise InvalidInput(
            f"Block {target.block.label!r} is not empty, so it cannot become another kind of "
            "block. Make a new one and put this one away. Nothing was changed."
        )
    content = BlockContent(schema, target.content.parts)
    check_size(replace(target.block, limit=row.max_chars), content.text, sees_all=target.sees_all)
    wire = schema_wire(schema)
    stored = orjson.dumps(wire).decode()
    lines = carry(target.lines, content.lines(), target.stamp())
    return PendingEdit(
        row._replace(
            schema=stored,
            text=content.text,
            lines=rows.write_lines(lines),
            content=rows.write_parts(content.parts, content.text),
        ),
        lines,
        more={"was": {**was, "schema": orjson.loads(target.row.schema)}, "schema": wire},
        nothing=stored == target.row.schema and row == target.row,
    )


async def _share(target: OpenBlock, write: Share) -> PendingEdit:
    """Let another agent see a block."""
    agent = await agents.by_id(target.tx, write.agent_id)
    there = agent and await agents.by_name(target.tx, agent.name)
    if agent is None or there is None or there.id != write.agent_id:
        raise NotFound(f"There is no agent {write.agent_id!r}. Nothing was changed.")
    if write.agent_id == target.row.owner_id:
        raise InvalidInput(
            f"Block {target.block.label!r} is {agent.name}'s own. Name another agent. Nothing was "
            "changed."
        )
    was = await rows.share_of(target.tx, target.row.id, write.agent_id)
    more = {"share": [write.agent_id, was, write.permission.value]}
    return PendingEdit(
        *(target.row, target.lines),
        share=(write.agent_id, write.permission.value),
        more=more,
        nothing=was == write.permission.value,
    )


async def _unshare(target: OpenBlock, write: Unshare) -> PendingEdit:
    """Take a shared block away from an agent."""
    was = await rows.share_of(target.tx, target.row.id, write.agent_id)
    if was is None:
        agent = await agents.by_id(target.tx, write.agent_id)
        raise NotFound(
            f"Block {target.block.label!r} is not shared with "
            f"{agent.name if agent else write.agent_id!r}. Nothing was changed."
        )
    more = {"share": [write.agent_id, was, None]}
    return PendingEdit(target.row, target.lines, share=(write.agent_id, None), more=more)
