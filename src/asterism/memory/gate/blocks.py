"""The gate for blocks: create, ensure, write. There is no other way to change one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NotRequired, TypedDict, Unpack

import orjson

from asterism.errors import Conflict, InvalidInput, NotFound, StoreError
from asterism.memory import history
from asterism.memory.blocks import block_of
from asterism.memory.documents import Document, History, read_schema, schema_wire
from asterism.memory.folding import era_with_undone, folding
from asterism.memory.gate.acts import act_of, kind_of, told
from asterism.memory.gate.drafts import Desk, Draft, draft
from asterism.memory.gate.drafts.desk import by_owner, hears, resource_for
from asterism.memory.gate.drafts.past import label_of_merged
from asterism.memory.gate.drafts.rules import (
    check_description,
    check_label,
    check_limit_itself,
    check_size,
)
from asterism.memory.gate.writer import Writer, judge
from asterism.memory.history import source_json
from asterism.memory.lines import Stroke, carry, splice
from asterism.permissions import Act, Resource
from asterism.store import agents, block_writes
from asterism.store import blocks as rows
from asterism.store.blocks import BlockRow, EditRow
from asterism.store.database import Connection
from asterism.types.agents import new_id
from asterism.types.memory import (
    CONSTELLATION,
    DEFAULT_LIMIT,
    Block,
    BlockType,
    BlockWrite,
    Line,
    Permission,
    Schema,
    SetText,
    TextSchema,
)
from asterism.types.people import PUBLIC, Audience

ERA = 256
"""So many edits are folded into one era, and as many stay loose.

A loose edit takes four times the room of a folded one; a larger era saves little more.
"""


# -- creating --------------------------------------------------------------------------------------


class Given(TypedDict):
    """What a new block can be given."""

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
        owner_id: The agent it shall belong to, or `CONSTELLATION`.
        label: What it is called; unique among its owner's blocks.
        type: When a model sees it.
        schema: What it is made of.
        content: What it says at first, as `SetText` takes it.
        description: What it is for; models read it.
        limit: The most characters it may hold.
        permission: What its owner may do to it.
        audience: Who may hear it; with an agent, at most those who may hear what is said.
        pinned: Whether a working block is seen.
        updates: Of another replica (`history.ops_of`), of which this block shall be one more.
    """
    check_label(label)
    check_description(description)
    check_limit_itself(limit)
    schema = read_schema(schema_wire(schema))
    block = Block(
        *(new_id("block"), owner_id, label, type, schema, "", description, limit, permission),
        audience=audience if by_owner(writer) else audience & writer.source.audience,
        pinned=pinned,
    )
    await _judge_creation(tx, writer, block, content)
    peer = await block_writes.peer(tx, block.id)
    document = _first_document(schema, content, updates, peer, writer.now)
    seen_as = label_of_merged(writer) if updates is not None else writer.source.label
    lines = carry([], document.lines(), Stroke(1, seen_as))
    check_size(block, document.text, sees_all=True)
    row = _first_row(writer, block, document, lines)
    if not await block_writes.insert(tx, row):
        raise Conflict(
            f"There is a block {label!r} already. Write to that one, or choose another label. "
            "Nothing was changed."
        )
    begun = {"schema": schema_wire(schema), "lines": splice([], lines)}
    ops = document.ops_since(history.empty_version())
    await block_writes.put_edit(
        tx, row.id, _edit_row(writer, 1, "create", document.version, ops, None, begun)
    )
    await block_writes.note_change(tx, row)
    return block_of(row)


def _first_row(writer: Writer, block: Block, document: Document, lines: Sequence[Line]) -> BlockRow:
    return BlockRow(
        id=block.id,
        constellation=writer.constellation,
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
        text=document.text,
        lines=rows.write_lines(lines),
        created_at=writer.now,
        updated_at=writer.now,
        retired_at=None,
        snapshot=document.snapshot(),
    )


async def ensure(
    tx: Connection, writer: Writer, owner_id: str, label: str, **given: Unpack[Given]
) -> tuple[Block, bool]:
    """Return the block that an owner has under a label, made if there is none, and whether it was.

    What is given counts only for a new one.
    """
    found = await rows.by_label(tx, writer.constellation, owner_id, label)
    if found is None:
        try:
            async with tx.savepoint():
                return await create(tx, writer, owner_id, label, **given), True
        except Conflict:  # made by somebody else meanwhile
            found = await rows.by_label(tx, writer.constellation, owner_id, label)
            if found is None:
                raise
    block = block_of(found)
    if not hears(writer, block.audience):
        raise Conflict(f"The label {label!r} cannot be used here; choose another.")
    judge(writer, Act.READ, await resource_for(tx, writer, found), f"read block {label!r}")
    return block, False


async def _judge_creation(tx: Connection, writer: Writer, block: Block, content: str) -> None:
    if block.owner_id != CONSTELLATION:
        owner = await agents.by_id(tx, block.owner_id)
        known = owner and await agents.by_name(tx, writer.constellation, owner.name)
        if known is None or known.id != block.owner_id:
            raise NotFound(f"There is no agent {block.owner_id!r}, so it cannot own a block.")
    if by_owner(writer) or writer.by_verb:
        return
    own = writer.agent_id is not None and writer.agent_id == block.owner_id
    highest = block.type is BlockType.CORE or block.permission is Permission.ADMIN
    resource = Resource("block", block.label, Permission.READ_WRITE if own else None)
    act = Act.GOVERN if highest else Act.APPEND
    judge(writer, act, resource, f"make a new block {block.label!r}: {content[:200]}")


def _first_document(
    schema: Schema, content: str, updates: bytes | None, peer: int, now: int
) -> Document:
    if updates is not None:
        if content:
            raise InvalidInput("A replica says what the other one says; leave its content out.")
        try:
            document = History.load(schema, None, [updates], peer).document
        except StoreError:
            raise InvalidInput(
                "These are not all the updates of a block. Export them from its other replica. "
                "Nothing was changed."
            ) from None
        # What this schema does not take is found out by writing it once more.
        Document.new(schema, peer).apply(SetText(document.editable()), now=now)
        return document
    document = Document.new(schema, peer)
    if content:
        document.apply(SetText(content), now=now)
    return document


# -- writing ---------------------------------------------------------------------------------------


async def write(
    tx: Connection, writer: Writer, block_id: str, write: BlockWrite, *, era: int = ERA
) -> Block:
    """Do one thing to a block, if the writer may; return the block after it.

    Raises `NeedsConsent` where a person has to be asked first, and then nothing was changed.
    """
    row = await block_writes.lock(tx, block_id)
    if row is None or row.constellation != writer.constellation:
        raise NotFound(f"There is no block {block_id!r}. Nothing was changed.")
    block = block_of(row)
    act = act_of(write, block)
    resource = await resource_for(tx, writer, row)
    if resource.permission is None or not hears(writer, block.audience):
        raise NotFound(f"There is no block {row.label!r}. Nothing was changed.")
    # What is refused anyway is refused first; a person is asked only about what would work.
    judge(replace(writer, consent=True), act, resource, "")
    desk = Desk.of(tx, writer, row, block, await block_writes.peer(tx, block.id))
    written = await draft(desk, write)
    resource = replace(resource, read_only_part=written.read_only)
    judge(writer, act, resource, told(write, block))
    if written.nothing:
        return block
    return await keep(desk, kind_of(write), written, era)


async def keep(desk: Desk, kind: str, written: Draft, era: int = ERA) -> Block:
    """Store what was judged; only the gate itself may call this."""
    tx, writer, number = desk.tx, desk.writer, desk.number
    row = written.row._replace(version=number, updated_at=writer.now)
    await block_writes.update(tx, row)
    more = dict(written.more)
    change = splice(desk.lines, written.lines)
    if change[1] or change[2]:
        more["lines"] = change
    edit = _edit_row(*(writer, number, kind, written.version, written.ops, written.undoes, more))
    await block_writes.put_edit(tx, row.id, edit)
    if written.undoes is not None and not await block_writes.mark_undone(
        tx, row.id, written.undoes, number
    ):
        era_now = await era_with_undone(tx, row.id, written.undoes, number)
        await block_writes.put_era(tx, row.id, era_now)
    if written.share is not None:
        await _keep_share(tx, row, *written.share)
    gone = [written.share[0]] if written.share is not None else []
    await block_writes.note_change(tx, row, gone)
    if number >= 2 * era and number % era == 0:
        await _fold(tx, row.id, era)
    return block_of(row)


def _edit_row(
    writer: Writer,
    number: int,
    kind: str,
    version: bytes,
    ops: bytes,
    undoes: int | None,
    more: dict[str, Any],
) -> EditRow:
    return EditRow(
        number=number,
        kind=kind,
        author=str(writer.actor),
        turn_id=writer.turn_id,
        reason=writer.reason,
        source=source_json(writer.source, **more),
        undoes=undoes,
        undone_by=None,
        version=version,
        at=writer.now,
        ops=ops,
    )


async def _keep_share(tx: Connection, row: BlockRow, agent_id: str, permission: str | None) -> None:
    if permission is None:
        await block_writes.drop_share(tx, row.id, agent_id)
    else:
        await block_writes.set_share(tx, row.id, agent_id, permission, row.updated_at)


async def _fold(tx: Connection, block_id: str, size: int) -> None:
    while (folded := await folding(tx, block_id, size)) is not None:
        era = folded.era
        await block_writes.drop_folded(tx, block_id, era.first, era.last)
        await block_writes.put_era(tx, block_id, era)
        await block_writes.put_era(tx, block_id, folded.begin)
