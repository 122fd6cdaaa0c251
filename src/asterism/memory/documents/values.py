"""A document's state as plain values: what is in it, what of it may be seen, as JSON and as lines.

Of a text, the text; of a map, values by field; of a list or a log, rows: values by field and an
`_id` that a row keeps even when it is taken out and put back; of a composite, values by section.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, cast

from asterism.errors import InvalidInput
from asterism.memory.documents.fields import clean_text, read_fields, read_value, shown
from asterism.memory.documents.schemas import LOG_TIME
from asterism.memory.documents.text import lines_of
from asterism.times import iso_text
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

ROW_ID = "_id"
HEADING = "## "
_PLAIN_ITEM = (Field("text", required=True),)
_PLAIN_ENTRY = (Field("message", required=True),)
_TIME = Field(LOG_TIME, FieldType.TIMESTAMP)

Row = dict[str, Any]


def row_fields(schema: ListSchema | LogSchema) -> tuple[Field, ...]:
    """Return the fields that a row has; a plain one has a single text."""
    if isinstance(schema, ListSchema):
        return schema.item or _PLAIN_ITEM
    return schema.entry or _PLAIN_ENTRY


def is_plain(schema: ListSchema | LogSchema) -> bool:
    """Tell whether a row is a text by itself."""
    return not (schema.item if isinstance(schema, ListSchema) else schema.entry)


def new_row(values: Mapping[str, Any]) -> Row:
    """Return a row with an id of its own."""
    return {ROW_ID: secrets.token_hex(5), **values}


def initial(schema: Schema) -> Any:
    """Return the value of a new document: its fields' defaults."""
    match schema:
        case TextSchema():
            return ""
        case MapSchema():
            return {
                field.name: [*field.default] if field.type is FieldType.LIST else field.default
                for field in schema.fields
                if field.default is not None
            }
        case CompositeSchema():
            return {section.name: initial(section.schema) for section in schema.sections}
        case _:
            return []


# -- JSON ------------------------------------------------------------------------------------------


def to_json(schema: Schema, value: Any) -> Any:
    """Return a value as others see it: rows without ids, plain ones as texts."""
    match schema:
        case TextSchema():
            return value
        case MapSchema():
            return {field.name: value.get(field.name) for field in schema.fields}
        case ListSchema() if is_plain(schema):
            return [row.get("text", "") for row in value]
        case ListSchema() | LogSchema():
            timed = [_TIME.name] if isinstance(schema, LogSchema) else []
            names = [*timed, *(field.name for field in row_fields(schema))]
            # A field without its default is told as null, or reading it back would fill it in.
            filled = {f.name for f in row_fields(schema) if f.default is not None}
            return [
                {name: row.get(name) for name in names if name in row or name in filled}
                for row in value
            ]
        case CompositeSchema():
            return {one.name: to_json(one.schema, value[one.name]) for one in schema.sections}


def from_json(schema: Schema, given: Any, now: int) -> Any:
    """Return the value for what `to_json` gives, checked, of all but a composite.

    Rows get new ids.
    """
    match schema:
        case TextSchema():
            if not isinstance(given, str):
                raise wrong("text", given)
            return clean_text(given, "The text")
        case MapSchema():
            if not isinstance(given, Mapping):
                raise wrong("an object with the map's fields", given)
            return read_fields(
                schema.fields, cast("Mapping[str, Any]", given), "the map", whole=True
            )
        case ListSchema() | LogSchema():
            if not isinstance(given, list):
                raise wrong("a list", given)
            return [_row_from_json(schema, one, now) for one in cast("list[Any]", given)]
        case CompositeSchema():
            raise AssertionError(schema)


def wrong(needed: str, given: Any) -> InvalidInput:
    """Return the error for JSON of another kind than is needed."""
    kinds = {"dict": "an object", "list": "a list", "str": "a text", "bool": "a boolean"}
    kind = "nothing" if given is None else kinds.get(type(given).__name__, "a number")
    return InvalidInput(
        f"{needed[0].upper()}{needed[1:]} is needed, and {kind} was given. Nothing was changed."
    )


def _row_from_json(schema: ListSchema | LogSchema, given: Any, now: int) -> Row:
    if isinstance(schema, ListSchema):
        return new_row(read_row(schema, given))
    if not isinstance(given, Mapping):
        return new_row({LOG_TIME: iso_text(now), **read_row(schema, given)})
    entry = dict(cast("Mapping[str, Any]", given))
    time = entry.pop(LOG_TIME, None)
    at = iso_text(now) if time is None else read_value(_TIME, time)
    return new_row({LOG_TIME: at, **read_row(schema, entry)})


def read_row(schema: ListSchema | LogSchema, given: Any) -> dict[str, Any]:
    """Return the checked values of a new item or entry; text alone is its first field."""
    what = "an item" if isinstance(schema, ListSchema) else "an entry"
    fields = row_fields(schema)
    if isinstance(given, str):
        lead = lead_field(fields)
        if lead is None or not given.strip():
            raise InvalidInput(
                f"{what.capitalize()} is needed as a JSON object with "
                f"{', '.join(field.name for field in fields)}. Nothing was changed."
                if given.strip()
                else f"{what.capitalize()} without text says nothing. Nothing was changed."
            )
        given = {lead.name: given}
    if not isinstance(given, Mapping):
        raise wrong("text" if is_plain(schema) else f"{what} as an object", given)
    return read_fields(fields, cast("Mapping[str, Any]", given), what, whole=True)


def lead_field(fields: Sequence[Field]) -> Field | None:
    """Return the field that stands for a whole row: its first text."""
    return next((field for field in fields if field.type is FieldType.TEXT), None)


def parse(schema: Schema, content: str) -> Any:
    """Return the JSON that `SetText` was given; for a text schema the text itself."""
    if isinstance(schema, TextSchema):
        return content
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidInput(
            f"This is not JSON{where}: {getattr(error, 'msg', 'too deep')}. A whole "
            f"{type(schema).__name__.removesuffix('Schema').lower()} is written as JSON; "
            "nothing was changed."
        ) from None


# -- lines -----------------------------------------------------------------------------------------


def to_lines(schema: Schema, value: Any) -> list[str]:
    """Return one line for each line of text, field, item or entry."""
    match schema:
        case TextSchema():
            return lines_of(value)
        case MapSchema():
            return [_field_line(field, value.get(field.name)) for field in schema.fields]
        case ListSchema() | LogSchema():
            return [_row_line(schema, row) for row in value]
        case CompositeSchema():
            lines: list[str] = []
            for section in schema.sections:
                lines.append(HEADING + section.name)
                lines += map(escaped, to_lines(section.schema, value[section.name]))
            return lines


def _field_line(field: Field, value: Any) -> str:
    if value is None and field.type is FieldType.COUNTER:
        value = 0
    return f"{field.name}:" if value in (None, "", []) else f"{field.name}: {shown(value)}"


def _row_line(schema: ListSchema | LogSchema, row: Row) -> str:
    fields = row_fields(schema)
    lead = lead_field(fields)
    parts: list[str] = []
    mark = ""
    for field in fields:
        value = row.get(field.name)
        if field is lead:
            continue
        if field.name == "done" and field.type is FieldType.BOOLEAN:
            mark = "[x] " if value else "[ ] "
        elif value not in (None, "", []):
            parts.append(f"{field.name}: {shown(value)}")
    told = shown(row.get(lead.name, "")) if lead else ""
    if lead and parts:
        told += f" ({', '.join(parts)})"
    elif parts:
        told = ", ".join(parts)
    at = f"{row.get(LOG_TIME, '')} " if isinstance(schema, LogSchema) else ""
    return (at + mark + told).replace("\n", "\\n").rstrip()


def escaped(line: str) -> str:
    r"""Keep a line of a section from being taken for a heading: `## x` becomes `\## x`."""
    return "\\" + line if line.lstrip("\\").startswith(HEADING) else line


def unescaped(line: str) -> str:
    """Undo `escaped`."""
    return line[1:] if line.startswith("\\") and line.lstrip("\\").startswith(HEADING) else line
