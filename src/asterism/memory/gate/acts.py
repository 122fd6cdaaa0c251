"""What each write to a block counts as, and how it is told to the person who is asked about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

from asterism.permissions import Act
from asterism.types.memory import (
    Add,
    Append,
    Block,
    BlockType,
    BlockWrite,
    Describe,
    EditRange,
    Merge,
    Patch,
    Redo,
    RemoveItem,
    Replace,
    Restore,
    Retire,
    Revert,
    SetField,
    SetItem,
    SetText,
    Share,
    TextSchema,
    Undo,
    Unshare,
)

_EXCERPT = 200


def _of_add(write: Add, _: Block) -> Act:
    # Taking away from a counter undoes what others added.
    return Act.APPEND if write.amount >= 0 else Act.OVERWRITE


def _of_describe(write: Describe, block: Block) -> Act:
    of_rule = (write.permission, write.audience, write.limit, write.label)
    if any(one is not None for one in of_rule):
        return Act.GOVERN
    if write.type not in (None, block.type) and BlockType.CORE in (write.type, block.type):
        return Act.GOVERN
    if write.schema is not None and not _only_viewport(write, block):
        return Act.GOVERN
    return Act.OVERWRITE


def _only_viewport(write: Describe, block: Block) -> bool:
    if not isinstance(write.schema, TextSchema) or not isinstance(block.schema, TextSchema):
        return False
    old = block.schema
    return replace(write.schema, first_line=old.first_line, lines=old.lines) == old


def _always(act: Act) -> Callable[[Any, Block], Act]:
    return lambda _write, _block: act


ACTS: dict[type, Callable[[Any, Block], Act]] = {
    Append: _always(Act.APPEND),
    Add: _of_add,
    Replace: _always(Act.OVERWRITE),
    Patch: _always(Act.OVERWRITE),
    EditRange: _always(Act.OVERWRITE),
    SetText: _always(Act.OVERWRITE),
    SetField: _always(Act.OVERWRITE),
    SetItem: _always(Act.OVERWRITE),
    RemoveItem: _always(Act.OVERWRITE),
    Undo: _always(Act.OVERWRITE),
    Redo: _always(Act.OVERWRITE),
    Revert: _always(Act.OVERWRITE),
    Restore: _always(Act.OVERWRITE),
    Merge: _always(Act.OVERWRITE),
    Describe: _of_describe,
    Share: _always(Act.GOVERN),
    Unshare: _always(Act.GOVERN),
    Retire: _always(Act.DELETE),
}

_unjudged = [one.__name__ for one in get_args(BlockWrite) if one not in ACTS]
if _unjudged:
    raise TypeError(f"These writes have no act, so that nobody could judge them: {_unjudged}")


def act_of(write: BlockWrite, block: Block) -> Act:
    """Return what a write counts as."""
    return ACTS[type(write)](write, block)


def kind_of(write: BlockWrite) -> str:
    """Return the kind, such as `append` or `edit_range`, that the history keeps of a write."""
    name = type(write).__name__
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in name).lstrip("_")


CONTENT_KINDS = tuple(
    kind_of(one)
    for one in (
        *(Append(""), Add("", 0), Replace("", ""), Patch(""), EditRange(1, 1, ""), SetText("")),
        *(SetField("", None), SetItem(1, None), RemoveItem(1), Revert(1), Restore(1), Merge(b"")),
    )
)
"""Kinds of edits that an undo can take back, and that end what a redo could bring back."""


def told(write: BlockWrite, block: Block) -> str:  # noqa: PLR0911 - one for each kind
    """Say what a write would do: "append to block 'human': likes tea"."""
    named = f"block {block.label!r}"
    match write:
        case Append(content):
            return f"append to {named}: {_short(content)}"
        case Replace(old, new):
            return f"replace in {named}: {_short(old)} by {_short(new)}"
        case Patch(diff):
            return f"patch {named}: {_short(diff)}"
        case EditRange(first, last, content):
            return f"write lines {first} to {last} of {named} anew: {_short(content)}"
        case SetText(content):
            return f"write {named} anew: {_short(content)}"
        case SetField(name, value):
            return f"set {name!r} of {named} to {_short(repr(value))}"
        case Add(name, amount):
            return f"add {amount:g} to {name!r} of {named}"
        case SetItem(index, value):
            return f"change item {index} of {named} to {_short(repr(value))}"
        case RemoveItem(index):
            return f"remove item {index} of {named}"
        case Share(_, permission):
            return f"share {named} with the permission {permission.value}"
        case _:
            return f"{kind_of(write).replace('_', ' ')} {named}"


def _short(text: str) -> str:
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]} …"
