"""The tools `block` and `block_edit`: an agent looks after the blocks of its memory."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Literal

from asterism.errors import AsterismError, StoreError, ToolError
from asterism.memory import blocks
from asterism.memory.blocks import Seen
from asterism.memory.editing import is_heard
from asterism.memory.gate import blocks as gate
from asterism.memory.gate.writer import NeedsConsent
from asterism.store import agents
from asterism.store import blocks as rows
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.types.memory import (
    Add,
    Append,
    Block,
    BlockType,
    BlockWrite,
    Describe,
    EditRange,
    Patch,
    Permission,
    Redo,
    RemoveItem,
    Replace,
    SetField,
    SetItem,
    Share,
    Source,
    TextSchema,
    Undo,
    Unshare,
    Which,
)

Operation = Literal[
    "load", "list", "pin", "unpin", "archive", "info", "viewport", "share", "unshare"
]
EditOperation = Literal[
    "append",
    "replace",
    "patch",
    "edit_range",
    "set_field",
    "add",
    "set_item",
    "remove_item",
    "undo",
    "redo",
]
Grant = Literal["read_only", "partner", "human", "append", "read_write", "admin"]


@contextmanager
def _told(ctx: ToolContext) -> Generator[list[Seen]]:
    """Ask a person where one must be asked, and tell the model what else is wrong.

    Gives a list for blocks that an error may quote.
    """
    quoted: list[Seen] = []
    try:
        yield quoted
    except NeedsConsent as needed:
        ctx.ask(needed.question)
        raise ToolError("This needs a person's consent, and it was not given.") from None
    except (StoreError, ToolError):
        raise
    except AsterismError as error:
        for seen in quoted:
            _bring_to_light(ctx, seen)
        raise ToolError(error.message) from None


def _bring_to_light(ctx: ToolContext, seen: Seen) -> None:
    """Let the turn know of the lines that its model now reads, who may hear and trust them."""
    block = seen.block
    ctx.quotes(
        Source((), block.audience & line.mark.audience, line.mark.tier)
        for line in seen.lines
        if is_heard(block.schema, line, block.audience, ctx.company)
    )


def _shown(ctx: ToolContext, seen: Seen) -> str:
    _bring_to_light(ctx, seen)
    return blocks.shown(seen, ctx.company) or f"Block {seen.name!r} is empty."


async def _find(ctx: ToolContext, label: str) -> Seen:
    if not label.strip():
        raise ToolError('Which block? Give `label`; operation "list" of tool block shows all.')
    return await blocks.find(ctx.tx, ctx.constellation, ctx.agent.id, label, ctx.company)


async def _write(ctx: ToolContext, seen: Seen, write: BlockWrite, reason: str = "") -> Seen:
    await gate.write(ctx.tx, ctx.writer(reason), seen.block.id, write)
    found = await blocks.seen_by(ctx.tx, ctx.constellation, ctx.agent.id)
    return next((one for one in found if one.block.id == seen.block.id), seen)


def _size(ctx: ToolContext, seen: Seen) -> int:
    """Return how much of a block can be heard here; how much there is would tell of the rest."""
    return len("\n".join(blocks.heard_lines(seen, ctx.company)))


@tool(transactional=True, tier=None, compact=False)
async def block(
    ctx: ToolContext,
    operation: Operation,
    label: str = "",
    agent: str = "",
    permission: Grant = "append",
    first_line: int = 1,
    lines: int = 0,
) -> str:
    """Look after your memory blocks. Blocks of others are named owner/label.

    Args:
        operation: load (read it now), pin (always see a working block), archive (see it no more),
            viewport (show a part of a long text), share and unshare (with an agent), …
        agent: For share and unshare, its name.
        permission: For share.
        first_line: For viewport.
        lines: For viewport, how many; 0 for all.
    """
    with _told(ctx):
        if operation == "list":
            return await _listing(ctx)
        seen = await _find(ctx, label)
        named = f"Block {seen.name!r}"
        match operation:
            case "load":
                return _shown(ctx, seen)
            case "info":
                return await _info(ctx, seen)
            case "pin" | "unpin":
                await _write(ctx, seen, Describe(pinned=operation == "pin"))
                return f"{named} is {'pinned' if operation == 'pin' else 'no longer pinned'}."
            case "archive":
                await _write(ctx, seen, Describe(type=BlockType.ARCHIVAL, pinned=False))
                return f"{named} is archived; search finds it, and load reads it."
            case "viewport":
                if not isinstance(seen.block.schema, TextSchema):
                    raise ToolError(f"{named} is no text, so that it has no viewport.")
                window = TextSchema(first_line, lines or None)
                after = await _write(ctx, seen, Describe(schema=window))
                return _shown(ctx, after)
            case "share" | "unshare":
                return await _sharing(ctx, seen, operation, agent, permission)


async def _listing(ctx: ToolContext) -> str:
    found = [
        f"{one.name}: {one.block.type.value}{', pinned' if one.block.pinned else ''}, "
        f"{one.permission.value}, {_size(ctx, one):,} of {one.block.limit:,} characters"
        + (f". {one.block.description}" if one.block.description else "")
        for one in await blocks.seen_by(ctx.tx, ctx.constellation, ctx.agent.id)
        if ctx.company.may_hear(one.block.audience)
    ]
    return "\n".join(found) or "You have no blocks yet."


async def _info(ctx: ToolContext, seen: Seen) -> str:
    one = seen.block
    kind = type(one.schema).__name__.removesuffix("Schema").lower()
    shared = [f"{name} ({permission})" for _, name, permission in await rows.shares(ctx.tx, one.id)]
    told = [
        f"{seen.name}: {one.type.value} {kind}{', pinned' if one.pinned else ''}",
        one.description,
        f"You may: {seen.permission.value}.",
        f"Heard by: {one.audience}." if ctx.company.owner_alone else "",
        f"{_size(ctx, seen):,} of {one.limit:,} characters, version {one.version}.",
        f"Shared with {', '.join(shared)}." if shared else "",
    ]
    return "\n".join(part for part in told if part)


async def _sharing(
    ctx: ToolContext, seen: Seen, operation: str, name: str, permission: Grant
) -> str:
    other = await agents.by_name(ctx.tx, ctx.constellation, name)
    if other is None:
        names = [one.name for one in await agents.everyone(ctx.tx, ctx.constellation)]
        there = ", ".join(one for one in names if one != ctx.agent.name) or "none but you"
        raise ToolError(f"There is no agent named {name!r}. There are: {there}.")
    if operation == "unshare":
        await _write(ctx, seen, Unshare(other.id))
        return f"{other.name} does not see block {seen.name!r} any more."
    await _write(ctx, seen, Share(other.id, Permission(permission)))
    return f"{other.name} now sees block {seen.name!r} ({permission})."


@tool(transactional=True, tier=None)
async def block_edit(
    ctx: ToolContext,
    operation: EditOperation,
    label: str,
    content: str = "",
    old: str = "",
    which: Literal["first", "all", "nth", "regex"] = "first",
    number: int = 1,
    last: int = 0,
    field: str = "",
    value: Any = None,
    section: str = "",
    reason: str = "",
) -> str:
    """Change a memory block.

    Args:
        content: Text to append, in place of old, or of the lines; for patch a unified diff; JSON
            for items and entries with fields.
        old: For replace, the text (or regex) to look for.
        number: For replace nth: which; edit_range: the first line; set_item, remove_item: the
            item. Counted from 1.
        last: For edit_range, the last line; 0 for only one.
        field: For set_field and add (to a counter).
        value: For set_field, add and set_item.
        section: Of a block with sections.
        reason: Why, for the history.
    """
    with _told(ctx) as quoted:
        seen = await _find(ctx, label)
        quoted.append(seen)
        part = section or None
        write: BlockWrite
        match operation:
            case "append":
                write = Append(content, part)
            case "replace":
                write = Replace(old, content, Which(which), number, part)
            case "patch":
                write = Patch(content, part)
            case "edit_range":
                write = EditRange(number, last or number, content, part)
            case "set_field":
                write = SetField(field, value, part)
            case "add":
                write = Add(field, _amount(value), part)
            case "set_item":
                write = SetItem(number, content if value is None else value, part)
            case "remove_item":
                write = RemoveItem(number, part)
            case "undo":
                write = Undo()
            case "redo":
                write = Redo()
        after = await _write(ctx, seen, write, reason)
    return _holds(ctx, after, seen.block)


def _amount(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise ToolError(f"{value!r} is no number to add. Give `value`, such as 1 or -0.5.")


def _holds(ctx: ToolContext, after: Seen, before: Block) -> str:
    if after.block.version == before.version:
        return f"Block {after.name!r} says that already; nothing was changed."
    return (
        f"Block {after.name!r} now holds {_size(ctx, after):,} of {after.block.limit:,} characters."
    )


TOOLS: list[Tool] = [block, block_edit]
