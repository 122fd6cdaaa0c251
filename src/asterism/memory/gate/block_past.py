"""Taking back one edit of a block, whatever it did; judged like the edit itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from asterism.errors import Conflict, NotFound
from asterism.memory import history
from asterism.memory.blocks import block_of
from asterism.memory.documents import Document, read_schema, schema_wire
from asterism.memory.gate import blocks
from asterism.memory.gate.acts import act_of
from asterism.memory.gate.drafts import Desk, Draft, draft
from asterism.memory.gate.drafts.desk import hears, resource_for
from asterism.memory.gate.writer import Writer, judge
from asterism.memory.travel import (
    edits_after,
    was_of,
)
from asterism.permissions import Act
from asterism.store import block_writes
from asterism.store import blocks as rows
from asterism.store.blocks import BlockRow, EditRow
from asterism.store.database import Connection
from asterism.types.memory import (
    BlockType,
    Describe,
    Line,
    Permission,
    Revert,
    Schema,
    Share,
    Unshare,
)
from asterism.types.people import Audience

_OF_CONTENT = frozenset({"fork", "import"})
"""Kinds of edits that fill a block which the same turn has made."""
_READER = 1
"""The peer of documents that are only looked at."""


async def take_back(
    tx: Connection, writer: Writer, block_id: str, edit: EditRow, era: int, left: list[str]
) -> bool:
    """Take back one edit of a block that nothing has taken back; False if nothing of it is left.

    What could not be taken back is added to `left`, in sentences.
    """
    match edit.kind:
        case "describe":
            return await _describe_back(tx, writer, block_id, edit, era, left)
        case "share" | "unshare":
            return await _share_back(tx, writer, block_id, edit, era)
        case "retire":
            await _bring_back(tx, writer, block_id, edit, era)
        case "create" | "bring_back":
            await put_away(tx, writer, block_id, edit, era)
        case kind if kind in _OF_CONTENT:
            return False
        case _:
            await blocks.write(tx, writer, block_id, Revert(edit.number), era=era)
    return True


async def row_of(tx: Connection, block_id: str) -> BlockRow:
    """Return a block that has edits, also one that was put away."""
    row = await rows.get(tx, block_id)
    assert row is not None, "a block with edits is there"
    return row


async def _desk(tx: Connection, writer: Writer, row: BlockRow | None, act: Act, what: str) -> Desk:
    """Lay a block out for a writer who may do that to it."""
    if row is None:
        raise NotFound("The block was put away meanwhile. Nothing was changed.")
    resource = await resource_for(tx, writer, row)
    block = block_of(row)
    if resource.permission is None or not hears(writer, block.audience):
        raise NotFound(f"There is no block {row.label!r}. Nothing was changed.")
    judge(writer, act, resource, f"{what} block {row.label!r}")
    return Desk.of(tx, writer, row, block, await block_writes.peer(tx, row.id))


async def _describe_back(
    tx: Connection, writer: Writer, block_id: str, edit: EditRow, era: int, left: list[str]
) -> bool:
    row = await row_of(tx, block_id)
    later = [
        was_of(orjson.loads(one.source)) for one in await edits_after(tx, block_id, edit.number)
    ]
    back: dict[str, Any] = {}
    for column, value in was_of(orjson.loads(edit.source)).items():
        made = next((was[column] for was in later if column in was), getattr(row, column))
        if getattr(row, column) == made:
            back[column] = value
    before = await history.raw_lines_at(tx, block_id, edit.number - 1)
    await _drop_what_no_longer_fits(tx, row, back, before, left)
    if not back:
        return False
    write = _as_described(back)
    act = act_of(write, block_of(row))
    desk = await _desk(tx, writer, await block_writes.lock(tx, block_id), act, "describe anew")
    if "schema" in back and _lines_under(row, back["schema"]) == [line.text for line in before]:
        written = await _described_exactly(desk, write, before)
    else:
        written = await draft(desk, write)
    await blocks.keep(desk, "describe", replace(written, undoes=edit.number), era)
    return True


async def _drop_what_no_longer_fits(
    tx: Connection, row: BlockRow, back: dict[str, Any], before: Sequence[Line], left: list[str]
) -> None:
    """Leave out of what was said of a block what others have made impossible since."""
    label: str | None = back.get("label")
    if label is not None and await rows.by_label(tx, row.constellation, row.owner_id, label):
        del back["label"]
        left.append(f"Block {row.label!r} keeps its label, since there is another {label!r} now.")
    if back.get("max_chars", len(row.text)) < len(row.text):
        del back["max_chars"]
        left.append(f"Block {row.label!r} keeps its limit, since it holds more than the former.")
    if (
        "schema" in back
        and type(_schema(back["schema"])) is not type(_schema(row.schema))
        and _lines_under(row, back["schema"]) != [line.text for line in before]
    ):
        del back["schema"]
        left.append(f"Block {row.label!r} keeps its schema, since it is not empty.")


def _lines_under(row: BlockRow, schema: str) -> list[str]:
    return Document.load(_schema(schema), row.snapshot, _READER).lines()


async def _described_exactly(desk: Desk, write: Describe, lines: list[Line]) -> Draft:
    """Return a description with a former schema, and the lines as they were under it."""
    rest = replace(write, schema=None)
    assert write.schema is not None
    wire = schema_wire(write.schema)
    was: dict[str, Any] = {"schema": orjson.loads(desk.row.schema)}
    row = desk.row
    if rest != Describe():
        written = await draft(desk, rest)
        row, was = written.row, {**written.more["was"], **was}
    text = "\n".join(line.text for line in lines)
    schema = orjson.dumps(wire).decode()
    return Draft(
        row._replace(schema=schema, text=text, lines=rows.write_lines(lines)),
        lines,
        version=desk.document.version,
        more={"was": was, "schema": wire},
    )


def _schema(text: str) -> Schema:
    return read_schema(orjson.loads(text))


def _as_described(back: Mapping[str, Any]) -> Describe:
    read: dict[str, Any] = {
        "max_chars": int,
        "type": BlockType,
        "permission": Permission,
        "audience": Audience.read,
        "pinned": bool,
        "schema": _schema,
    }
    given = {column: read.get(column, str)(value) for column, value in back.items()}
    if "max_chars" in given:
        given["limit"] = given.pop("max_chars")
    return Describe(**given)


async def _share_back(
    tx: Connection, writer: Writer, block_id: str, edit: EditRow, era: int
) -> bool:
    agent_id, was, made = orjson.loads(edit.source)["share"]
    if await rows.share_of(tx, block_id, agent_id) != made:
        return False
    write = Unshare(agent_id) if was is None else Share(agent_id, Permission(was))
    row = await block_writes.lock(tx, block_id)
    desk = await _desk(tx, writer, row, Act.GOVERN, "change who sees")
    try:
        written = await draft(desk, write)
    except NotFound:  # that agent is gone
        return False
    kind = "unshare" if was is None else "share"
    await blocks.keep(desk, kind, replace(written, undoes=edit.number), era)
    return True


async def put_away(tx: Connection, writer: Writer, block_id: str, edit: EditRow, era: int) -> None:
    """Put a block away that would not be there without an edit."""
    row = await block_writes.lock(tx, block_id)
    # Whoever may overwrite a block may take back that they have made it.
    desk = await _desk(tx, writer, row, Act.OVERWRITE, "put away")
    await _set_retired(desk, writer.now, edit, "retire", era)


async def _bring_back(
    tx: Connection, writer: Writer, block_id: str, edit: EditRow, era: int
) -> None:
    row = await row_of(tx, block_id)
    act = Act.OVERWRITE if edit.undoes is not None else Act.DELETE
    desk = await _desk(tx, writer, row, act, "bring back")
    if await rows.by_label(tx, row.constellation, row.owner_id, row.label) is not None:
        raise Conflict(
            f"Block {row.label!r} cannot come back, since there is another one with that label. "
            "Rename or retire that one first. Nothing was changed."
        )
    await _set_retired(desk, None, edit, "bring_back", era)


async def _set_retired(desk: Desk, at: int | None, edit: EditRow, kind: str, era: int) -> None:
    row = desk.row._replace(retired_at=at)
    version = desk.document.version
    made = Draft(row, desk.lines, version=version, undoes=edit.number)
    await blocks.keep(desk, kind, made, era)
