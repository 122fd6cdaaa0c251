"""Three states into one: what others made of a state meanwhile, and what one change made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from asterism.memory.documents.diffing import (
    Splice,
    carried,
    refined,
    sequence_splices,
    spliced,
    text_splices,
)
from asterism.memory.documents.fields import tidy_number
from asterism.memory.documents.values import ROW_ID, Row
from asterism.types.memory import (
    CompositeSchema,
    Field,
    FieldType,
    ListSchema,
    LogSchema,
    MapSchema,
    Schema,
    TextSchema,
)

Deltas = Mapping[str, Sequence[Splice[str]]]
"""What became of each section's text (`""`: of the whole) through later changes."""


def merged(
    schema: Schema,
    base: Any,
    ours: Any,
    theirs: Any,
    *,
    keep_all: bool,
    deltas: Deltas | None = None,
    section: str = "",
) -> Any:
    """Return `ours` with what makes `theirs` of `base` done to it.

    Args:
        schema: Of all three.
        base: What both began from.
        ours: What it has become meanwhile; this stays.
        theirs: What the one change makes of the base.
        keep_all: Whether the change wins where both wrote, and keeps what it put in the place of
            something that is gone: so when a person writes; not when an edit is taken back.
        deltas: What made `ours` of `base`, for texts.
        section: Which section this is.
    """
    if base == ours:
        return theirs
    if base == theirs:
        return ours
    match schema:
        case TextSchema():
            known = (deltas or {}).get(section)
            if known is None or spliced(base, known) != ours:
                known = text_splices(base, ours)
            meanwhile = refined(known, base)
            change = carried(text_splices(base, theirs), meanwhile, keep_all=keep_all)
            return spliced(ours, change)
        case MapSchema():
            return _merged_fields(schema.fields, base, ours, theirs, keep_all=keep_all)
        case ListSchema() | LogSchema():
            return merged_rows(base, ours, theirs, keep_all=keep_all)
        case CompositeSchema():
            return {
                one.name: merged(
                    one.schema,
                    base[one.name],
                    ours[one.name],
                    theirs[one.name],
                    keep_all=keep_all,
                    deltas=deltas,
                    section=one.name,
                )
                for one in schema.sections
            }


def _merged_fields(
    fields: Sequence[Field], base: Row, ours: Row, theirs: Row, *, keep_all: bool
) -> Row:
    result = dict(ours)
    for field in fields:
        name = field.name
        was, now, wanted = base.get(name), ours.get(name), theirs.get(name)
        if was == wanted:
            continue
        if field.type is FieldType.COUNTER:
            result[name] = tidy_number((now or 0) + (wanted or 0) - (was or 0))
        elif field.type is FieldType.LIST and was != now:
            result[name] = merged_sequence(was or [], now or [], wanted or [], keep_all=keep_all)
        elif was == now or keep_all:
            _put(result, name, wanted)
    return result


def _put(values: Row, name: str, value: Any) -> None:
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value


def merged_sequence(
    base: list[Any], ours: list[Any], theirs: list[Any], *, keep_all: bool
) -> list[Any]:
    """Return a list with both changes in it."""
    change = carried(
        sequence_splices(base, theirs), sequence_splices(base, ours), keep_all=keep_all
    )
    return spliced(ours, change)


def merged_rows(
    base: list[Row], ours: list[Row], theirs: list[Row], *, keep_all: bool
) -> list[Row]:
    """Return rows with both changes in them; a row is the same if its id is."""
    was = {row[ROW_ID]: row for row in base}
    wanted = {row[ROW_ID]: row for row in theirs}
    result = [
        _merged_row(was.get(row[ROW_ID]), row, wanted.get(row[ROW_ID]), keep_all=keep_all)
        for row in ours
        if row[ROW_ID] in wanted or row[ROW_ID] not in was
    ]
    there = [row[ROW_ID] for row in result]
    if [one[ROW_ID] for one in theirs if one[ROW_ID] in was] != [
        one[ROW_ID] for one in base if one[ROW_ID] in wanted
    ]:
        _reorder(result, there, [row[ROW_ID] for row in theirs])
    behind = -1
    for row in theirs:
        if row[ROW_ID] in there:
            behind = there.index(row[ROW_ID])
        elif row[ROW_ID] not in was:
            behind += 1
            result.insert(behind, row)
            there.insert(behind, row[ROW_ID])
    return result


def _reorder(rows: list[Row], there: list[str], wanted: Sequence[str]) -> None:
    """Put those rows that are wanted in another order in it, at the places that they have."""
    places = [place for place, one in enumerate(there) if one in set(wanted)]
    by_id = {one: rows[place] for place, one in enumerate(there)}
    for place, one in zip(places, [one for one in wanted if one in by_id], strict=True):
        rows[place], there[place] = by_id[one], one


def _merged_row(was: Row | None, now: Row, wanted: Row | None, *, keep_all: bool) -> Row:
    if was is None or wanted is None or was == wanted:
        return now
    result = dict(now)
    for name in {**was, **wanted}:
        if was.get(name) != wanted.get(name) and (keep_all or was.get(name) == now.get(name)):
            _put(result, name, wanted.get(name))
    return result
