"""Writes that change what is said of a block, and who sees it, not what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from asterism.errors import Conflict, InvalidInput, NotAllowed, NotFound
from asterism.memory.documents import Document, read_schema, schema_wire
from asterism.memory.gate.drafts.desk import Desk, Draft, by_owner
from asterism.memory.gate.drafts.rules import (
    check_description,
    check_label,
    check_limit_itself,
    check_size,
)
from asterism.memory.lines import carry
from asterism.store import agents
from asterism.store import blocks as rows
from asterism.store.blocks import BlockRow
from asterism.types.memory import Describe, Schema, Share, Unshare


async def describe(desk: Desk, write: Describe) -> Draft:
    """Change what is said of a block."""
    block, row = desk.block, desk.row
    changes: dict[str, Any] = {}
    if write.description is not None:
        check_description(write.description)
        _refuse_telling(desk)
        changes["description"] = write.description
    if write.label is not None and write.label != row.label:
        check_label(write.label)
        _refuse_telling(desk)
        taken = await rows.by_label(desk.tx, row.constellation, row.owner_id, write.label)
        if taken is not None:
            raise Conflict(f"There is a block {write.label!r} already. Nothing was changed.")
        changes["label"] = write.label
    if write.limit is not None:
        check_limit_itself(write.limit)
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
        raise InvalidInput("Nothing is said that should change. Nothing was changed.")
    changed = row._replace(**changes)
    was = {name: getattr(row, name) for name in changes if changes[name] != getattr(row, name)}
    if write.schema is None:
        return Draft(
            *(changed, desk.lines),
            version=desk.document.version,
            more={"was": was},
            nothing=changed == row,
        )
    return _reschemed(desk, changed, write.schema, was)


def _refuse_telling(desk: Desk) -> None:
    """Refuse words that more people would read than may hear what is said here."""
    if by_owner(desk.writer):
        return
    if desk.block.audience & desk.writer.source.audience != desk.block.audience:
        raise NotAllowed(
            f"Everyone who hears of block {desk.block.label!r} reads its label and description, "
            "and not all of them may hear what is said here. Nothing was changed."
        )


def _reschemed(desk: Desk, row: BlockRow, given: Schema, was: dict[str, Any]) -> Draft:
    schema = read_schema(schema_wire(given))
    if type(schema) is not type(desk.block.schema) and desk.row.text:
        raise InvalidInput(
            f"Block {desk.block.label!r} is not empty, so it cannot become another kind of block. "
            "Make a new one and put this one away. Nothing was changed."
        )
    document = Document.load(schema, desk.row.snapshot, desk.peer)
    check_size(replace(desk.block, limit=row.max_chars), document.text, sees_all=desk.sees_all)
    wire = schema_wire(schema)
    stored = orjson.dumps(wire).decode()
    lines = carry(desk.lines, document.lines(), desk.stroke())
    return Draft(
        row._replace(schema=stored, text=document.text, lines=rows.write_lines(lines)),
        lines,
        version=document.version,
        more={"was": {**was, "schema": orjson.loads(desk.row.schema)}, "schema": wire},
        nothing=stored == desk.row.schema and row == desk.row,
    )


async def share(desk: Desk, write: Share) -> Draft:
    """Let another agent see a block."""
    found = await agents.by_id(desk.tx, write.agent_id)
    there = found and await agents.by_name(desk.tx, desk.writer.constellation, found.name)
    if found is None or there is None or there.id != write.agent_id:
        raise NotFound(f"There is no agent {write.agent_id!r}. Nothing was changed.")
    if write.agent_id == desk.row.owner_id:
        raise InvalidInput(
            f"Block {desk.block.label!r} is {found.name}'s own. Name another agent. Nothing was "
            "changed."
        )
    was = await rows.share_of(desk.tx, desk.row.id, write.agent_id)
    more = {"share": [write.agent_id, was, write.permission.value]}
    return Draft(
        *(desk.row, desk.lines),
        version=desk.document.version,
        share=(write.agent_id, write.permission.value),
        more=more,
        nothing=was == write.permission.value,
    )


async def unshare(desk: Desk, write: Unshare) -> Draft:
    """Take a shared block away from an agent."""
    was = await rows.share_of(desk.tx, desk.row.id, write.agent_id)
    if was is None:
        found = await agents.by_id(desk.tx, write.agent_id)
        raise NotFound(
            f"Block {desk.block.label!r} is not shared with "
            f"{found.name if found else write.agent_id!r}. Nothing was changed."
        )
    more = {"share": [write.agent_id, was, None]}
    return Draft(
        desk.row,
        desk.lines,
        version=desk.document.version,
        share=(write.agent_id, None),
        more=more,
    )
