"""A block's state as it is stored: by part, each a text, and what an edit changed as splices.

Each section (the whole: `""`) has a part of its own, named by what it is made of: `SECTION:text`
is the text itself, `SECTION:fields` a JSON object, `SECTION:rows` JSON with one row a line. What a
schema does not know stays where it is, so that a schema that comes back finds its values again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from asterism.errors import StoreDamaged
from asterism.memory.documents.diffing import Splice, spliced, text_splices
from asterism.memory.documents.fields import tidy_number
from asterism.memory.documents.schemas import LOG_TIME
from asterism.memory.documents.values import ROW_ID, Row, row_fields
from asterism.types.memory import (
    CompositeSchema,
    FieldType,
    ListSchema,
    LogSchema,
    MapSchema,
    Schema,
    TextSchema,
)

Parts = Mapping[str, str]
Change = Mapping[str, Sequence[Sequence[Any]]]
"""What an edit made of each part: `[at, how many characters go, the text that comes]`."""

TEXT_PART = ":text"


def sections_of(schema: Schema) -> list[tuple[str, Schema]]:
    """Return the sections of a composite by name; of anything else, itself as `""`."""
    if isinstance(schema, CompositeSchema):
        return [(section.name, section.schema) for section in schema.sections]
    return [("", schema)]


def _part_name(schema: Schema, section: str) -> str:
    match schema:
        case TextSchema():
            return f"{section}{TEXT_PART}"
        case MapSchema():
            return f"{section}:fields"
        case _:
            return f"{section}:rows"


# -- reading ---------------------------------------------------------------------------------------


def read_parts(schema: Schema, parts: Parts) -> Any:
    """Return the state that stored parts hold."""
    found = {
        name: _read_part(inner, parts.get(_part_name(inner, name), ""))
        for name, inner in sections_of(schema)
    }
    return found if isinstance(schema, CompositeSchema) else found[""]


def _read_part(schema: Schema, stored: str) -> Any:
    match schema:
        case TextSchema():
            return stored
        case MapSchema():
            return read_map(schema, _loads(stored, "{}"))
        case ListSchema() | LogSchema():
            return read_rows(schema, _loads(stored, "[]"))
        case CompositeSchema():
            raise AssertionError(schema)


def read_map(schema: MapSchema, stored: Mapping[str, Any]) -> Row:
    """Return the values that a map shows of those that are stored."""
    values: Row = {}
    for field in schema.fields:
        value = stored.get(field.name)
        if field.type is FieldType.COUNTER:
            values[field.name] = tidy_number(value) if isinstance(value, int | float) else 0
        elif field.type is FieldType.LIST:
            if isinstance(value, list) and value:
                values[field.name] = cast("list[Any]", value)
        elif value is not None:
            values[field.name] = value
    return values


def read_rows(schema: ListSchema | LogSchema, stored: Sequence[Any]) -> list[Row]:
    """Return the rows that a list or a log shows of those that are stored."""
    names = {ROW_ID, LOG_TIME, *(field.name for field in row_fields(schema))}
    rows: dict[str, Row] = {}
    for row in stored:
        if is_row(row):
            # Two who put back the same row at once have it twice; it is shown once.
            values = {name: v for name, v in row.items() if name in names and v is not None}
            rows.setdefault(row[ROW_ID], values)
    if isinstance(schema, ListSchema):
        return list(rows.values())
    return sorted(rows.values(), key=lambda row: str(row.get(LOG_TIME, "")))


def _loads(stored: str, empty: str) -> Any:
    try:
        return json.loads(stored or empty)
    except ValueError as error:
        raise damaged(error) from error


def damaged(error: Exception) -> StoreDamaged:
    """Return the error for content that cannot be read as it is stored."""
    return StoreDamaged(
        f"A block's content cannot be read as it is stored ({error}). "
        "Restore the database from a backup; nothing was changed."
    )


def is_row(stored: Any) -> bool:
    """Tell whether what is in a list of rows is one."""
    return isinstance(stored, dict) and isinstance(cast("dict[str, Any]", stored).get(ROW_ID), str)


# -- writing ---------------------------------------------------------------------------------------


def write_parts(schema: Schema, parts: Parts, state: Any) -> dict[str, str]:
    """Return the parts with a state in them; empty ones are left out."""
    made = dict(parts)
    for name, inner in sections_of(schema):
        part = _part_name(inner, name)
        value = state[name] if isinstance(schema, CompositeSchema) else state
        made[part] = _write_part(inner, parts.get(part, ""), value)
    return {name: text for name, text in made.items() if text}


def _write_part(schema: Schema, stored: str, value: Any) -> str:
    match schema:
        case TextSchema():
            return value
        case MapSchema():
            names = [field.name for field in schema.fields]
            fields = _in_order(names, value, _loads(stored, "{}"))
            return part_json(fields) if fields else ""
        case ListSchema() | LogSchema():
            return _write_rows(schema, _loads(stored, "[]"), value)
        case CompositeSchema():
            raise AssertionError(schema)


def _write_rows(schema: ListSchema | LogSchema, stored: Sequence[Row], rows: Sequence[Row]) -> str:
    names = [ROW_ID, LOG_TIME, *(field.name for field in row_fields(schema))]
    was = {row[ROW_ID]: row for row in stored}
    made = [_in_order(names, row, was.get(row[ROW_ID], {})) for row in rows]
    return part_json(made) if made else ""


def _in_order(names: Sequence[str], values: Row, stored: Row) -> Row:
    """Return values in the order of a schema, so that the same are stored the same."""
    known = {name: values[name] for name in names if name in values}
    return {**known, **{name: value for name, value in stored.items() if name not in names}}


def part_json(value: Row | list[Row]) -> str:
    """Return a part of fields or rows as it is stored."""
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # One row a line, so that an edit of one row is told by that line alone.
    return "[" + ",\n".join(map(part_json, value)) + "]"


# -- changes ---------------------------------------------------------------------------------------


def change_between(old: Parts, new: Parts) -> dict[str, list[list[Any]]]:
    """Return what makes the new parts of the old ones; empty if they are the same."""
    return {
        name: [
            [splice.at, splice.delete, splice.insert]
            for splice in text_splices(old.get(name, ""), new.get(name, ""))
        ]
        for name in {**old, **new}
        if old.get(name, "") != new.get(name, "")
    }


def changed(parts: Parts, change: Change) -> dict[str, str]:
    """Return the parts after a change."""
    made = dict(parts)
    for name, told in change.items():
        made[name] = spliced(made.get(name, ""), [Splice(*splice) for splice in told])
    return {name: text for name, text in made.items() if text}


def composed_texts(changes: Iterable[Change], present: Parts) -> dict[str, list[Splice[str]]]:
    """Return what became of each section's text through changes that follow one another.

    Characters are followed one by one: what was taken out and put back is new text. `present` is
    what the changes have led to.
    """
    traces: dict[str, _Trace] = {}
    for change in changes:
        for name, told in change.items():
            if name.endswith(TEXT_PART):
                trace = traces.setdefault(name, _Trace())
                for at, delete, insert in reversed(told):
                    trace.replace(at, delete, len(insert))
    return {
        name.removesuffix(TEXT_PART): trace.splices(present.get(name, ""))
        for name, trace in traces.items()
    }


_INSERTED = -1


class _Trace:
    """The pieces of a text, as begin and size: ranges of what it was, and what was inserted."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, int]] = [(0, 1 << 62)]

    def replace(self, at: int, delete: int, size: int) -> None:
        """Follow one splice."""
        first, last = self._cut(at), self._cut(at + delete)
        # Neighbours that were inserted are one piece, or a long past would take ever longer.
        if first and self._pieces[first - 1][0] == _INSERTED:
            first -= 1
            size += self._pieces[first][1]
        if last < len(self._pieces) and self._pieces[last][0] == _INSERTED:
            size += self._pieces[last][1]
            last += 1
        self._pieces[first:last] = [(_INSERTED, size)] if size else []

    def _cut(self, at: int) -> int:
        """Return which piece begins at a place; one that lies across it is cut in two."""
        here = 0
        for index, (begin, size) in enumerate(self._pieces):
            if at <= here:
                return index
            if at < here + size:
                inner = at - here
                rest = (begin if begin == _INSERTED else begin + inner, size - inner)
                self._pieces[index : index + 1] = [(begin, inner), rest]
                return index + 1
            here += size
        return len(self._pieces)

    def splices(self, present: str) -> list[Splice[str]]:
        """Return what makes the present text of the text that it was."""
        found: list[Splice[str]] = []
        behind = here = inserted = 0
        for begin, size in self._pieces:
            if begin == _INSERTED:
                inserted = size
            else:
                if inserted or begin > behind:
                    found.append(Splice(behind, begin - behind, present[here - inserted : here]))
                behind, inserted = begin + size, 0
            here += size
        return found
