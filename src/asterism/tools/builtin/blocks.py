"""The tools `block` and `block_edit`: an agent looks after the blocks of its memory."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, Literal

from asterism.errors import AsterismError, StoreError, ToolError
from asterism.memory import blocks
from asterism.memory import blocks as rows
from asterism.memory.blocks import VisibleBlock, is_visible
from asterism.memory.gate import blocks as gate
from asterism.memory.gate.writer import WriteNeedsApproval
from asterism.store import agents
from asterism.tools.builtin.arguments import OPERATION, TEXT, WORD, also, null_as
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
from asterism.types.permissions import Effect, EffectKind, ToolEffect

Operation = Literal[
    "load", "list", "pin", "unpin", "archive", "info", "viewport", "share", "unshare", "swap"
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
_LABEL = also("label", "name", "block", "block_label")
SharePermission = Literal["read_only", "partner", "human", "append", "read_write", "admin"]


@contextmanager
def _tool_errors(ctx: ToolContext) -> Generator[list[VisibleBlock]]:
    """Ask a person where one must be asked, and tell the model what else is wrong.

    Gives a list for blocks that an error may quote.
    """
    quoted: list[VisibleBlock] = []
    try:
        yield quoted
    except WriteNeedsApproval as needed:
        ctx.ask(needed.question, needed.reviewers)
        raise ToolError("This needs an approval, and it was denied.") from None
    except (StoreError, ToolError):
        raise
    except AsterismError as error:
        for seen in quoted:
            _quote_lines(ctx, seen)
        raise ToolError(error.message) from None


def _quote_lines(ctx: ToolContext, seen: VisibleBlock) -> None:
    """Let the turn know of the lines that its model now reads, who may see and trust them."""
    block = seen.block
    ctx.quotes(
        Source((), block.audience & line.label.audience, line.label.trust)
        for line in seen.lines
        if is_visible(block.schema, line, block.audience, ctx.participants)
    )


def _block_text(ctx: ToolContext, seen: VisibleBlock) -> str:
    _quote_lines(ctx, seen)
    return blocks.visible_text(seen, ctx.participants) or f"Block {seen.name!r} is empty."


async def _find(ctx: ToolContext, label: str) -> VisibleBlock:
    if not label.strip():
        raise ToolError('Which block? Set `label`; operation "list" of tool block shows all.')
    return await blocks.find(ctx.tx, ctx.agent.id, label, ctx.participants)


async def _write(
    ctx: ToolContext, seen: VisibleBlock, write: BlockWrite, reason: str = ""
) -> VisibleBlock:
    await gate.write(ctx.tx, ctx.writer(reason), seen.block.id, write)
    all_seen = await blocks.seen_by(ctx.tx, ctx.agent.id)
    return next((other for other in all_seen if other.block.id == seen.block.id), seen)


def _size(ctx: ToolContext, seen: VisibleBlock) -> int:
    """Return how much of a block can be seen here; how much there is would tell of the rest."""
    return len("\n".join(blocks.visible_lines(seen, ctx.participants)))


def _block_effects(arguments: Mapping[str, Any]) -> list[Effect]:
    label = (str(arguments.get("label") or ""),)
    match arguments.get("operation"):
        case "load" | "list" | "info":
            return [Effect(EffectKind.READ, things=label)]
        case "share" | "unshare":
            return [Effect(EffectKind.GRANT, recipients=(str(arguments["agent"]),), things=label)]
        case _:
            return [Effect(EffectKind.REMEMBER, things=label)]


@tool(transactional=True, trust=None, compact=False, effects=_block_effects, audience="public")
async def block(
    ctx: ToolContext,
    operation: Annotated[Operation, OPERATION, WORD],
    label: Annotated[str, _LABEL, TEXT] = "",
    agent: Annotated[str, also("agent", "target_agent"), TEXT] = "",
    permission: Annotated[SharePermission, null_as("append"), WORD] = "append",
    first_line: Annotated[int, also("first_line", "start_line"), null_as(1)] = 1,
    lines: Annotated[int, also("lines", "display_lines"), null_as(0)] = 0,
    other: Annotated[str, also("other", "with", "new_label", "load_label"), TEXT] = "",
) -> str:
    """Look after your memory blocks. Blocks of others are named owner/label.

    Args:
        operation: load: read; pin: always see; archive: see no more; viewport: show a part;
            share with an agent; swap: archive it and pin `other`.
        lines: How many; 0 for all.
    """
    with _tool_errors(ctx):
        if operation == "list":
            return await _list_blocks(ctx)
        seen = await _find(ctx, label)
        named = f"Block {seen.name!r}"
        match operation:
            case "load":
                return _block_text(ctx, seen)
            case "info":
                return await _info(ctx, seen)
            case "pin" | "unpin":
                await _write(ctx, seen, Describe(pinned=operation == "pin"))
                return f"{named} is {'pinned' if operation == 'pin' else 'no longer pinned'}."
            case "archive":
                await _write(ctx, seen, Describe(type=BlockType.ARCHIVAL, pinned=False))
                return f"{named} is archived; search finds it, and load reads it."
            case "viewport":
                return await _viewport(ctx, seen, first_line, lines)
            case "swap":
                return await _swap(ctx, seen, other)
            case "share" | "unshare":
                return await _change_share(ctx, seen, operation, agent, permission)


async def _viewport(ctx: ToolContext, seen: VisibleBlock, first_line: int, lines: int) -> str:
    if not isinstance(seen.block.schema, TextSchema):
        raise ToolError(f"Block {seen.name!r} is not text, so it has no viewport.")
    window = TextSchema(first_line, lines or None)
    return _block_text(ctx, await _write(ctx, seen, Describe(schema=window)))


async def _swap(ctx: ToolContext, seen: VisibleBlock, label: str) -> str:
    """Archive a block and see another one instead, both or none."""
    if not label.strip():
        raise ToolError("Which block should replace it? Set its label as `other`.")
    instead = await _find(ctx, label)
    if instead.block.id == seen.block.id:
        raise ToolError(f"Block {seen.name!r} cannot be swapped with itself. Name another block.")
    await _write(ctx, seen, Describe(type=BlockType.ARCHIVAL, pinned=False))
    after = await _write(ctx, instead, Describe(type=BlockType.WORKING, pinned=True))
    return (
        f"Block {seen.name!r} is archived, and {after.name!r} is pinned.\n{_block_text(ctx, after)}"
    )


async def _list_blocks(ctx: ToolContext) -> str:
    lines = [
        f"{seen.name}: {seen.block.type.value}{', pinned' if seen.block.pinned else ''}, "
        f"{seen.permission.value}, {_size(ctx, seen):,} of {seen.block.limit:,} characters"
        + (f". {seen.block.description}" if seen.block.description else "")
        for seen in await blocks.seen_by(ctx.tx, ctx.agent.id)
        if ctx.participants.can_see(seen.block.audience)
    ]
    return "\n".join(lines) or "You have no blocks yet."


async def _info(ctx: ToolContext, seen: VisibleBlock) -> str:
    block = (blocks.as_visible_to(seen, ctx.participants) or seen).block
    kind = type(block.schema).__name__.removesuffix("Schema").lower()
    shared = [
        f"{name} ({permission})" for _, name, permission in await rows.shares(ctx.tx, block.id)
    ]
    lines = [
        f"{seen.name}: {block.type.value} {kind}{', pinned' if block.pinned else ''}",
        block.description,
        f"You may: {seen.permission.value}.",
        f"Visible to: {block.audience}." if ctx.participants.owner_alone else "",
        f"{_size(ctx, seen):,} of {block.limit:,} characters, version {block.version}.",
        f"Shared with {', '.join(shared)}." if shared else "",
    ]
    return "\n".join(part for part in lines if part)


async def _change_share(
    ctx: ToolContext, seen: VisibleBlock, operation: str, name: str, permission: SharePermission
) -> str:
    other = await agents.by_name(ctx.tx, name)
    if other is None:
        names = [other.name for other in await agents.everyone(ctx.tx)]
        other_names = ", ".join(name for name in names if name != ctx.agent.name) or "none but you"
        raise ToolError(f"There is no agent named {name!r}. Existing agents: {other_names}.")
    if operation == "unshare":
        await _write(ctx, seen, Unshare(other.id))
        return f"{other.name} no longer sees block {seen.name!r}."
    await _write(ctx, seen, Share(other.id, Permission(permission)))
    return f"{other.name} now sees block {seen.name!r} ({permission})."


def _read_combined(arguments: dict[str, Any]) -> tuple[str, str, int, int]:
    """Return content, old, number and last, with what older spellings write inside the texts."""
    content, old = str(arguments["content"]), str(arguments["old"])
    number, last = int(arguments["number"]), int(arguments["last"])
    if arguments["operation"] == "replace" and arguments["which"] == "nth" and number == 1:
        nth = _NTH.match(old)
        if nth is not None:
            number, old = int(nth[1]), nth[2]
    if arguments["operation"] == "edit_range" and number == 1 and not last:
        span = _RANGE.match(content)
        if span is not None:
            number, last, content = int(span[1]), int(span[2]), span[3]
    return content, old, number, last


_NTH = re.compile(r"(\d{1,6}):\s?(.+)", re.DOTALL)
_RANGE = re.compile(r"(\d{1,9})\s*(?:-|\.\.)\s*(\d{1,9}):[ \t]?\n?(.*)", re.DOTALL)


_EDITS = ToolEffect("remember", things="label", content=("content", "value"))


def _edit_effects(arguments: Mapping[str, Any]) -> list[Effect]:
    return [replace(_EDITS.effect(arguments), amends=arguments.get("operation") != "append")]


_ABOUT_BLOCKS = (
    r"\b(?:memory )?blocks?\b|\bpersona\b|\bbl[oö]cke?\b|\bbloques?\b|\bblocs?\b|\bblocos?\b"
)


@tool(transactional=True, trust=None, compact=_ABOUT_BLOCKS, effects=_edit_effects)
async def block_edit(
    ctx: ToolContext,
    operation: Annotated[EditOperation, OPERATION, WORD],
    label: Annotated[str, _LABEL, TEXT],
    content: Annotated[str, also("content", "new", "patch", "text"), TEXT] = "",
    old: Annotated[str, also("old", "pattern"), TEXT] = "",
    which: Annotated[
        Literal["first", "all", "nth", "regex"], also("which", "mode"), null_as("first"), WORD
    ] = "first",
    number: Annotated[int, also("number", "index", "first"), null_as(1)] = 1,
    last: Annotated[int, null_as(0)] = 0,
    field: Annotated[str, TEXT] = "",
    value: Any = None,
    section: Annotated[str, TEXT] = "",
    reason: Annotated[str, TEXT] = "",
) -> str:
    """Change a memory block.

    Args:
        content: Text to append or put in place; for patch a unified diff; JSON for items.
        old: Text or regex to replace.
        number: Which match, first line or item, from 1.
        last: Last line of edit_range.
        field: For set_field and add (to a counter).
        reason: Why, for the history.
    """
    content, old, number, last = _read_combined(
        {
            "operation": operation,
            "which": which,
            "content": content,
            "old": old,
            "number": number,
            "last": last,
        }
    )
    with _tool_errors(ctx) as quoted:
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
    return _edit_result(ctx, after, seen.block)


def _amount(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise ToolError(f"{value!r} is not a number to add. Set `value`, such as 1 or -0.5.")


def _edit_result(ctx: ToolContext, after: VisibleBlock, before: Block) -> str:
    if after.block.version == before.version:
        return f"Block {after.name!r} already has this text. Nothing was changed."
    return (
        f"Block {after.name!r} now holds {_size(ctx, after):,} of {after.block.limit:,} characters."
    )


TOOLS: list[Tool] = [block, block_edit]
