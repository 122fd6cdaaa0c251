"""Lines of a block through an edit: which edits made them, who may see them, what stays hidden."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from asterism.errors import NotAllowed
from asterism.memory.blocks import Blame, blame_runs, is_heading, read_blame
from asterism.memory.content import HEADING
from asterism.memory.edits import BlockContent, ContentEdit
from asterism.types.agents import Label
from asterism.types.memory import (
    Add,
    CompositeSchema,
    Line,
    MapSchema,
    RemoveItem,
    Schema,
    SetField,
    SetText,
)

_ALIKE = 0.6
_HARDLY = 0.3
_COMPARED = 2_000
"""Only so many characters of two lines, and so many pairs of lines, are compared."""
_FIRST_EDITS, _LAST_EDITS = 16, 48
"""A line names its first and its latest edits, so that one edited forever stays small."""


@dataclass(frozen=True, slots=True)
class EditStamp:
    """What an edit leaves on the lines that it makes."""

    number: int
    label: Label
    own_hands: bool = False
    """The owner wrote it: what is not like the old line is not made from it."""


def _edits(lines: Sequence[Line], number: int) -> tuple[int, ...]:
    found = sorted({edit for line in lines for edit in line.edits} | {number})
    if len(found) > _FIRST_EDITS + _LAST_EDITS:
        found = found[:_FIRST_EDITS] + found[-_LAST_EDITS:]
    return tuple(found)


def _alike(one: str, other: str) -> bool:
    one, other = one[:_COMPARED], other[:_COMPARED]
    pairs, others = _pairs(one), _pairs(other)
    # Cheap, and what has few pairs of letters in common is not alike by any measure.
    if 2 * len(pairs & others) < _HARDLY * (len(pairs) + len(others)):
        return False
    return SequenceMatcher(None, one, other, autojunk=False).ratio() > _ALIKE


def _pairs(text: str) -> set[str]:
    return {text[at : at + 2] for at in range(max(len(text) - 1, 1))}


def _shared_ends(old: Sequence[Any], new: Sequence[Any]) -> tuple[int, int]:
    """Return how many entries are the same at the beginning, and then at the end."""
    shorter = min(len(old), len(new))
    before = 0
    while before < shorter and old[before] == new[before]:
        before += 1
    after = 0
    while after < shorter - before and old[-1 - after] == new[-1 - after]:
        after += 1
    return before, after


def carry(
    old: Sequence[Line], new: Sequence[str], stamp: EditStamp, past: Sequence[Line] | None = None
) -> list[Line]:
    """Return the lines after an edit, each with what is known of it.

    Args:
        old: The lines before.
        new: The texts after.
        stamp: What lines that the edit makes get.
        past: For an edit that brings back what was there: the lines as they were then.
    """
    before, after = _shared_ends([line.text for line in old], new)
    middle = old[before : len(old) - after]
    texts = new[before : len(new) - after]
    if past is not None:
        carried = _recalled(middle, texts, stamp, past)
    else:
        carried = _changed(middle, texts, stamp)
    return [*old[:before], *carried, *old[len(old) - after :]]


def _changed(old: Sequence[Line], new: Sequence[str], stamp: EditStamp) -> list[Line]:
    if not old:
        return [Line(text, (stamp.number,), stamp.label) for text in new]
    matcher = SequenceMatcher(None, [line.text for line in old], new, autojunk=False)
    steps = matcher.get_opcodes()
    removed = [
        line
        for tag, first, last, _, _ in steps
        if tag in ("delete", "replace")
        for line in old[first:last]
        if line.text.strip()
    ]
    exact: defaultdict[str, list[Line]] = defaultdict(list)
    for line in removed:
        exact[line.text].append(line)
    made = sum(last - first for tag, _, _, first, last in steps if tag != "equal")
    compared = removed if made * len(removed) <= _COMPARED else []
    found: list[Line] = []
    for tag, first, last, begin, end in steps:
        if tag == "equal":
            found += old[first:last]
            continue
        for text in new[begin:end]:
            # A line that was moved is the same line, wherever it went.
            moved = exact[text]
            if len(moved) == 1:
                found.append(moved[0])
                continue
            alike = moved or [line for line in compared if _alike(line.text, text)]
            replaced = old[first:last] if not stamp.own_hands or not compared else ()
            label = Label.join([stamp.label, *(line.label for line in (*alike, *replaced))])
            found.append(Line(text, _edits(alike, stamp.number), label))
    return found


def _recalled(
    old: Sequence[Line], new: Sequence[str], stamp: EditStamp, past: Sequence[Line]
) -> list[Line]:
    known: defaultdict[str, list[Line]] = defaultdict(list)
    for line in (*past, *old):
        if line not in known[line.text]:
            known[line.text].append(line)
    # What is neither as it was nor as it is was put together from both, no one knows how.
    rest = Label.join([stamp.label, *(line.label for line in (*old, *past))])
    in_turn: defaultdict[str, list[Line]] = defaultdict(list)
    for line in past:
        in_turn[line.text].append(line)
    found: list[Line] = []
    for text in new:
        if in_turn[text]:
            found.append(in_turn[text].pop(0))
        elif known[text]:
            found.append(known[text][0])
        else:
            similar = [line for line in old if _alike(line.text, text)][:8]
            found.append(Line(text, _edits(similar, stamp.number), rest))
    return found


# -- what changed of it, small enough to keep with every edit --------------------------------------


def splice(old: Sequence[Line], new: Sequence[Line]) -> list[Any]:
    """Return `[at, how many go, runs that come]`, which makes the blame of old that of new."""
    was: list[Blame] = [(line.edits, line.label) for line in old]
    now: list[Blame] = [(line.edits, line.label) for line in new]
    before, after = _shared_ends(was, now)
    return [
        before,
        len(was) - before - after,
        blame_runs(now[before : len(now) - after]),
    ]


def spliced(blame: list[Blame], change: Sequence[Any]) -> list[Blame]:
    """Return the blame after an edit from that before it."""
    at, gone, runs = change
    return [*blame[:at], *read_blame(runs), *blame[at + gone :]]


@dataclass(frozen=True, slots=True)
class _Part:
    """The lines of a whole document, or of one section, and the schema they are under."""

    schema: Schema
    begin: int
    end: int


def _part(schema: Schema, lines: Sequence[Line], section: str | None) -> _Part | None:
    if not isinstance(schema, CompositeSchema):
        return _Part(schema, 0, len(lines)) if section is None else None
    for one in schema.sections:
        if one.name == section:
            begin = [line.text for line in lines].index(HEADING + one.name) + 1
            rest = (at for at in range(begin, len(lines)) if is_heading(schema, lines[at].text))
            return _Part(one.schema, begin, next(rest, len(lines)))
    return None


def make(
    content: BlockContent,
    lines: Sequence[Line],
    heard: Sequence[bool],
    edit: ContentEdit,
    stamp: EditStamp,
    now: int,
) -> list[Line]:
    """Make an edit in a document and return its lines after it.

    Args:
        content: What is edited.
        lines: Its lines before.
        heard: Which of them the writer sees: places and texts in the edit mean those alone.
        edit: What to do.
        stamp: What lines that the edit makes get.
        now: The moment in ms.
    """
    if not all(heard):
        _refuse_guesses(content.schema, lines, heard, edit)
        content.apply(edit, now=now, seen=heard)
    else:
        content.apply(edit, now=now)
    visible = [line for line, hears in zip(lines, heard, strict=True) if hears]
    hidden = [line for line, hears in zip(lines, heard, strict=True) if not hears]
    after = content.lines()
    places = _places([line.text for line in hidden], after)
    texts = [text for at, text in enumerate(after) if at not in places]
    if isinstance(edit, RemoveItem) and len(texts) == len(visible) - 1:
        part = _part(content.schema, lines, edit.section)
        begin = sum(heard[: part.begin]) if part is not None else 0
        del visible[begin + edit.index - 1]
    carried = iter(_carried(visible, texts, stamp))
    return [hidden[places[at]] if at in places else next(carried) for at in range(len(after))]


def _places(hidden: Sequence[str], after: Sequence[str]) -> dict[int, int]:
    """Return where the hidden lines are after an edit, which must have left them all in order.

    Of several lines that say the same, any will do.
    """
    found: dict[int, int] = {}
    for at, text in enumerate(after):
        if len(found) < len(hidden) and text == hidden[len(found)]:
            found[at] = len(found)
    if len(found) < len(hidden):
        raise _hidden_lost()
    return found


def _refuse_guesses(
    schema: Schema, lines: Sequence[Line], heard: Sequence[bool], edit: ContentEdit
) -> None:
    """Refuse what would write over hidden fields, before it is known whether that changes them.

    Otherwise whether a guess is refused would tell whether it is right.
    """
    part = _part(schema, lines, edit.section)
    if part is None:
        if isinstance(edit, SetText):
            raise _hidden_lost()
        return
    if not isinstance(part.schema, MapSchema):
        return
    names = [field.name for field in part.schema.fields]
    hidden = {name for at, name in enumerate(names) if not heard[part.begin + at]}
    touched = {edit.field} if isinstance(edit, SetField | Add) else set(names)
    if hidden & touched:
        raise _hidden_lost()


def _carried(old: Sequence[Line], new: Sequence[str], stamp: EditStamp) -> list[Line]:
    """Carry line by line where lines keep their places, as fields and items do."""
    if len(old) != len(new):
        return carry(old, new, stamp)
    apart = [at for at, line in enumerate(old) if line.text != new[at]]
    if len(apart) > 1:
        return carry(old, new, stamp)
    found = list(old)
    for at in apart:
        found[at] = carry([old[at]], [new[at]], stamp)[0]
    return found


def refuse_if_lost(hidden: Sequence[Line], after: Sequence[Line]) -> None:
    """Raise `NotAllowed` unless all lines that the writer does not see are there as they were."""
    rest = iter(after)
    if not all(any(line == one for one in rest) for line in hidden):
        raise _hidden_lost()


def _hidden_lost() -> NotAllowed:
    return NotAllowed(
        "This part of the block cannot be changed with these people present. Change another part, "
        "or do it when you talk with the owner alone. Nothing was changed."
    )
