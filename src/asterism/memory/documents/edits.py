"""Edits as pure functions from a state to the next one; everything is checked here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from asterism.errors import InvalidInput, NotFound
from asterism.memory.documents import text as texts
from asterism.memory.documents.diffing import Splice, carried, sequence_splices, spliced
from asterism.memory.documents.fields import (
    clean_text,
    read_fields,
    read_value,
    tidy_number,
    unknown,
)
from asterism.memory.documents.merging import merged_rows
from asterism.memory.documents.schemas import LOG_TIME
from asterism.memory.documents.values import (
    ROW_ID,
    Row,
    from_json,
    initial,
    is_plain,
    new_row,
    parse,
    read_row,
    row_fields,
    to_json,
    to_lines,
    wrong,
)
from asterism.times import iso_text
from asterism.types.memory import (
    Add,
    Append,
    CompositeSchema,
    EditRange,
    Field,
    FieldType,
    ListSchema,
    LogSchema,
    MapSchema,
    Patch,
    RemoveItem,
    Replace,
    Schema,
    SectionSchema,
    SetField,
    SetItem,
    SetText,
    TextSchema,
)

DocumentEdit = (
    Append | Replace | Patch | EditRange | SetText | SetField | Add | SetItem | RemoveItem
)
"""The edits that a document can make by itself, without its history."""

_TAKES: dict[type[Any], tuple[str, tuple[type[Any], ...]]] = {
    TextSchema: ("a text", (Append, Replace, Patch, EditRange, SetText)),
    MapSchema: ("a map", (SetField, Add, SetText)),
    ListSchema: ("a list", (Append, SetItem, RemoveItem, SetText)),
    LogSchema: ("a log, to which entries are only added", (Append, SetText)),
}
_SPELT = {
    Append: "append",
    Replace: "replace",
    Patch: "patch",
    EditRange: "edit_range",
    SetText: "set_text",
    SetField: "set_field",
    Add: "add",
    SetItem: "set_item",
    RemoveItem: "remove_item",
}


def edited(
    schema: Schema, value: Any, edit: DocumentEdit, now: int, seen: Sequence[bool] | None = None
) -> Any:
    """Return the state after an edit, or raise InvalidInput or NotFound.

    Args:
        schema: Of the document.
        value: Its state.
        edit: What to do.
        now: The moment in ms, for a log's entries.
        seen: For each line of the document, whether the author sees it. Line and item numbers
            count those, errors quote those, and the others stay where and as they are.
    """
    if not isinstance(schema, CompositeSchema):
        if edit.section is not None:
            raise InvalidInput(
                f"This block has no sections, so there is no section {edit.section[:80]!r}. "
                "Leave the section out; nothing was changed."
            )
        return _edited_part(schema, value, edit, now, seen)
    if edit.section is None:
        if not isinstance(edit, SetText):
            names = ", ".join(repr(one.name) for one in schema.sections)
            raise InvalidInput(
                f"This block has sections. Say which one is meant: {names}. Nothing was changed."
            )
        return _all_sections(schema, value, edit, now, seen)
    section = section_of(schema, edit.section)
    inner = seen if seen is None else _part_seen(schema, value, seen)[section.name]
    made = _edited_part(section.schema, value[section.name], edit, now, inner)
    return {**value, section.name: made}


def section_of(schema: CompositeSchema, name: str) -> SectionSchema:
    """Return the section of a name."""
    for section in schema.sections:
        if section.name == name:
            return section
    raise unknown("section", name, [one.name for one in schema.sections])


def _part_seen(
    schema: CompositeSchema, value: Any, seen: Sequence[bool]
) -> dict[str, Sequence[bool]]:
    parts: dict[str, Sequence[bool]] = {}
    at = 0
    for section in schema.sections:
        count = len(to_lines(section.schema, value[section.name]))
        parts[section.name] = seen[at + 1 : at + 1 + count]
        at += 1 + count
    return parts


def _all_sections(
    schema: CompositeSchema, value: Any, edit: SetText, now: int, seen: Sequence[bool] | None
) -> Any:
    given = parse(schema, edit.content)
    if not isinstance(given, Mapping):
        raise wrong("an object with the sections", given)
    wire = cast("Mapping[str, Any]", given)
    for name in wire:
        section_of(schema, name)
    parts = None if seen is None else _part_seen(schema, value, seen)
    return {
        one.name: _written(
            one.schema,
            value[one.name],
            wire[one.name] if one.name in wire else to_json(one.schema, initial(one.schema)),
            now,
            None if parts is None else parts[one.name],
        )
        for one in schema.sections
    }


def _edited_part(
    schema: Schema, value: Any, edit: DocumentEdit, now: int, seen: Sequence[bool] | None
) -> Any:
    kind, takes = _TAKES[type(schema)]
    if not isinstance(edit, takes):
        raise InvalidInput(
            f"{_SPELT[type(edit)]!r} does not go with {kind}; "
            f"{', '.join(_SPELT[one] for one in takes)} would. Nothing was changed."
        )
    if isinstance(edit, SetText):
        return _written(schema, value, parse(schema, edit.content), now, seen)
    match schema:
        case TextSchema():
            return _edited_text(value, edit, seen)
        case MapSchema():
            return _edited_map(schema, value, cast("SetField | Add", edit))
        case ListSchema() | LogSchema() if isinstance(edit, Append):
            return _appended(schema, value, edit, now)
        case ListSchema():
            return _edited_list(schema, value, cast("SetItem | RemoveItem", edit), seen)
        case _:
            raise AssertionError(schema)


# -- the whole anew --------------------------------------------------------------------------------


def _written(schema: Schema, value: Any, given: Any, now: int, seen: Sequence[bool] | None) -> Any:
    if isinstance(schema, MapSchema):
        # What is required cannot be taken away; a new map may be without it until it is known.
        fields = (replace(f, required=f.required and f.name in value) for f in schema.fields)
        schema = MapSchema(tuple(fields))
    made = from_json(schema, given, now)
    match schema:
        case TextSchema():
            return made if seen is None else _lines_carried(value, made, seen)
        case MapSchema():
            hidden = _hidden_fields(schema, seen)
            kept = {n: v for n, v in value.items() if n in hidden and n not in given}
            return {**{n: v for n, v in made.items() if n not in hidden or n in given}, **kept}
        case ListSchema() | LogSchema():
            shown = value if seen is None else _seen_rows(value, seen)
            rows = _with_ids(schema, shown, made)
            if isinstance(schema, ListSchema):
                _check_count(schema, len(rows) + len(value) - len(shown))
            return rows if seen is None else merged_rows(shown, value, rows, keep_all=True)
        case _:
            raise AssertionError(schema)


def _hidden_fields(schema: MapSchema, seen: Sequence[bool] | None) -> set[str]:
    if seen is None:
        return set()
    return {field.name for field, see in zip(schema.fields, seen, strict=True) if not see}


def _with_ids(schema: ListSchema | LogSchema, old: list[Row], new: list[Row]) -> list[Row]:
    """Give rows that were there before, as they are or changed, the ids that they had."""
    names = [LOG_TIME, *(field.name for field in row_fields(schema))]

    def told(row: Row) -> str:
        return json.dumps([row.get(name) for name in names], sort_keys=True)

    old_told, new_told = [told(row) for row in old], [told(row) for row in new]
    ids: dict[int, str] = {}
    pairs: list[tuple[int, int]] = []
    splices = sequence_splices(old_told, new_told)
    shift = behind = 0
    for one in [*splices, Splice(len(old), 0, [])]:
        ids.update({i + shift: old[i][ROW_ID] for i in range(behind, one.at)})
        if one.delete == len(one.insert):
            pairs += [(one.at + k, one.at + shift + k) for k in range(one.delete)]
        shift += len(one.insert) - one.delete
        behind = one.end
    taken = set(ids.values())
    gone = {
        text: row[ROW_ID]
        for text, row in zip(old_told, old, strict=True)
        if row[ROW_ID] not in taken
    }
    for j, text in enumerate(new_told):
        if j not in ids and text in gone:
            ids[j] = gone.pop(text)
            taken.add(ids[j])
    for i, j in pairs:
        if j not in ids and old[i][ROW_ID] not in taken:
            ids[j] = old[i][ROW_ID]
            taken.add(ids[j])
    return [{**row, ROW_ID: ids.get(j, row[ROW_ID])} for j, row in enumerate(new)]


# -- text ------------------------------------------------------------------------------------------


def _edited_text(value: str, edit: DocumentEdit, seen: Sequence[bool] | None) -> str:
    if isinstance(edit, Append):
        return texts.appended(value, edit)
    view = value if seen is None else "\n".join(_seen_lines(value, seen))
    match edit:
        case Replace():
            made = texts.replaced(view, edit)
        case Patch():
            made = texts.patched(view, edit)
        case EditRange():
            made = texts.with_lines(view, edit)
        case _:
            raise AssertionError(edit)
    return made if seen is None else _lines_carried(value, made, seen)


def _seen_lines(value: str, seen: Sequence[bool]) -> list[str]:
    return [line for line, see in zip(texts.lines_of(value), seen, strict=True) if see]


def _lines_carried(value: str, made: str, seen: Sequence[bool]) -> str:
    """Do to the whole text what was done to the lines that are seen.

    By whole lines: a hidden line never becomes part of one that others see.
    """
    lines = texts.lines_of(value)
    hidden: list[Splice[list[str]]] = []
    place = 0
    for line, see in zip(lines, seen, strict=True):
        if see:
            place += 1
        elif hidden and hidden[-1].at == place:
            hidden[-1] = Splice(place, 0, [*hidden[-1].insert, line])
        else:
            hidden.append(Splice(place, 0, [line]))
    view = _seen_lines(value, seen)
    change = sequence_splices(view, texts.lines_of(made))
    moved = carried(
        [Splice(one.at, one.delete, list(one.insert)) for one in change], hidden, keep_all=True
    )
    return "\n".join(spliced(lines, moved))


# -- maps ------------------------------------------------------------------------------------------


def _edited_map(schema: MapSchema, value: Row, edit: SetField | Add) -> Row:
    field = field_of(schema, edit.field)
    if isinstance(edit, Add):
        if field.type is not FieldType.COUNTER:
            raise InvalidInput(
                f"Field {field.name!r} is no counter but {field.type.value}, so nothing can be "
                "added to it. Set it; nothing was changed."
            )
        amount = read_value(field, edit.amount)
        total = tidy_number(value.get(field.name, 0) + amount)
        return {**value, field.name: read_value(field, total)}
    if edit.value is None:
        if field.required:
            raise InvalidInput(
                f"Field {field.name!r} is required and cannot be left empty. Nothing was changed."
            )
        return {name: one for name, one in value.items() if name != field.name}
    return {**value, field.name: read_value(field, edit.value)}


def field_of(schema: MapSchema, name: str) -> Field:
    """Return the field of a name."""
    for field in schema.fields:
        if field.name == name:
            return field
    raise unknown("field", name, [one.name for one in schema.fields])


# -- lists and logs --------------------------------------------------------------------------------


def _appended(
    schema: ListSchema | LogSchema, value: list[Row], edit: Append, now: int
) -> list[Row]:
    if isinstance(schema, ListSchema):
        _check_count(schema, len(value) + 1)
    row = read_row(schema, given_row(schema, edit.content))
    if isinstance(schema, LogSchema):
        row = {LOG_TIME: iso_text(now), **row}
    return [*value, new_row(row)]


def given_row(schema: ListSchema | LogSchema, content: str) -> Any:
    """Return what was given for an item or an entry: an object if it is JSON of one."""
    if is_plain(schema) or not content.lstrip().startswith("{"):
        return clean_text(content, "The text").strip("\n")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"This begins like a JSON object and is none: {error}. Nothing was changed."
        ) from None


def _check_count(schema: ListSchema, count: int) -> None:
    if schema.max_items is not None and count > schema.max_items:
        raise InvalidInput(
            f"The list can hold {schema.max_items} items and would have {count}. Take some out "
            "first; nothing was changed."
        )


def _seen_rows(value: list[Row], seen: Sequence[bool]) -> list[Row]:
    return [row for row, see in zip(value, seen, strict=True) if see]


def _edited_list(
    schema: ListSchema, value: list[Row], edit: SetItem | RemoveItem, seen: Sequence[bool] | None
) -> list[Row]:
    shown = value if seen is None else _seen_rows(value, seen)
    if not 1 <= edit.index <= len(shown):
        count = f"{len(shown)} item{'' if len(shown) == 1 else 's'}" if shown else "no items"
        raise NotFound(f"There is no item {edit.index}; the list has {count}. Nothing was changed.")
    row = shown[edit.index - 1]
    if isinstance(edit, RemoveItem):
        return [one for one in value if one is not row]
    made = _changed_item(schema, row, edit.value)
    return [made if one is row else one for one in value]


def _changed_item(schema: ListSchema, row: Row, given: Any) -> Row:
    fields = row_fields(schema)
    if isinstance(given, str):
        given = given_row(schema, given)
    if is_plain(schema) or isinstance(given, str):
        return (
            {**row, **read_row(schema, given)}
            if is_plain(schema)
            else _with_lead(row, schema, given)
        )
    if not isinstance(given, Mapping):
        names = ", ".join(field.name for field in fields)
        raise InvalidInput(f"An object with {names} is needed for an item. Nothing was changed.")
    wire = cast("Mapping[str, Any]", given)
    values = read_fields(fields, wire, "an item", whole=False)
    for field in fields:
        if field.required and field.name in wire and wire[field.name] is None:
            raise InvalidInput(
                f"Field {field.name!r} is required and cannot be left empty. Nothing was changed."
            )
    return {n: v for n, v in {**row, **values}.items() if n not in wire or wire[n] is not None}


def _with_lead(row: Row, schema: ListSchema, given: Any) -> Row:
    made = read_row(
        ListSchema(tuple(f for f in schema.item if f.type is FieldType.TEXT)[:1]), given
    )
    return {**row, **made}
