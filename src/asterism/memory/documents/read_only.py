"""Read-only fields and sections: what an edit would write of them, and where two states differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from asterism.errors import AsterismError
from asterism.memory.documents.edits import DocumentEdit, edited, given_row
from asterism.memory.documents.values import ROW_ID, lead_field, row_fields, to_json
from asterism.types.memory import (
    Add,
    Append,
    CompositeSchema,
    Field,
    ListSchema,
    LogSchema,
    MapSchema,
    Schema,
    SetField,
    SetItem,
    SetText,
)


def touched_read_only(
    schema: Schema, value: Any, edit: DocumentEdit, seen: Sequence[bool] | None = None
) -> str | None:
    """Return the read-only field or section that an edit would write, if any."""
    part = schema
    if isinstance(schema, CompositeSchema) and edit.section is not None:
        for section in schema.sections:
            if section.name == edit.section:
                if section.read_only:
                    return section.name
                part = section.schema
    named = _named_fields(part, edit)
    for field in _fields_of(part):
        if field.read_only and field.name in named:
            return field.name
    if not isinstance(edit, SetText):
        return None
    try:
        made = edited(schema, value, edit, 0, seen)
    except AsterismError:
        return None
    return read_only_difference(schema, value, made)


def _fields_of(schema: Schema) -> tuple[Field, ...]:
    match schema:
        case MapSchema():
            return schema.fields
        case ListSchema() | LogSchema():
            return row_fields(schema)
        case _:
            return ()


def _named_fields(schema: Schema, edit: DocumentEdit) -> frozenset[str]:
    """Return the fields that an edit names."""
    given: Any = None
    match edit:
        case SetField() | Add():
            return frozenset({edit.field})
        case Append() if isinstance(schema, ListSchema | LogSchema):
            given = edit.content
        case SetItem() if isinstance(schema, ListSchema):
            given = edit.value
        case _:
            return frozenset()
    rows = schema
    if isinstance(given, str):
        try:
            given = given_row(rows, given)
        except AsterismError:
            return frozenset()
    if isinstance(given, Mapping):
        return frozenset(map(str, cast("Mapping[str, Any]", given)))
    lead = lead_field(row_fields(rows))
    return frozenset({lead.name} if lead else ())


def read_only_difference(schema: Schema, one: Any, other: Any) -> str | None:
    """Return the read-only field or section in which two states differ, if any."""
    match schema:
        case CompositeSchema():
            for section in schema.sections:
                a, b = one[section.name], other[section.name]
                if section.read_only and to_json(section.schema, a) != to_json(section.schema, b):
                    return section.name
                if inner := read_only_difference(section.schema, a, b):
                    return inner
        case MapSchema():
            for field in schema.fields:
                if field.read_only and one.get(field.name) != other.get(field.name):
                    return field.name
        case ListSchema() | LogSchema():
            before = {row[ROW_ID]: row for row in one}
            for row in other:
                was = before.get(row[ROW_ID], {})
                for field in row_fields(schema):
                    old = was.get(field.name, None if was else field.default)
                    if field.read_only and row.get(field.name) != old:
                        return field.name
        case _:
            pass
    return None
