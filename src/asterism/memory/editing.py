"""An edit by somebody who hears only some lines of a block: the others stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from asterism.errors import NotAllowed
from asterism.memory.documents.document import BlockContent
from asterism.memory.documents.edits import DocumentEdit
from asterism.memory.documents.values import HEADING
from asterism.memory.lines import EditStamp, carry
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
from asterism.types.people import Audience, Participants


def is_visible(schema: Schema, line: Line, block: Audience, participants: Participants) -> bool:
    """Tell whether everyone present may hear a line; headings say no more than the schema does."""
    if not participants.can_see(block):
        return False
    return is_heading(schema, line.text) or participants.can_see(line.label.audience)


def is_heading(schema: Schema, text: str) -> bool:
    """Tell whether a line opens a section."""
    return isinstance(schema, CompositeSchema) and text.startswith(HEADING)


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
    edit: DocumentEdit,
    stamp: EditStamp,
    now: int,
) -> list[Line]:
    """Make an edit in a document and return its lines after it.

    Args:
        content: What is edited.
        lines: Its lines before.
        heard: Which of them the writer hears: places and texts in the edit mean those alone.
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
    schema: Schema, lines: Sequence[Line], heard: Sequence[bool], edit: DocumentEdit
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
    """Raise `NotAllowed` unless all lines that the writer does not hear are there as they were."""
    rest = iter(after)
    if not all(any(line == one for one in rest) for line in hidden):
        raise _hidden_lost()


def _hidden_lost() -> NotAllowed:
    return NotAllowed(
        "This part of the block cannot be changed with these people present. Change another part, "
        "or do it when you talk with the owner alone. Nothing was changed."
    )
