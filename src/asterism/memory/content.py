"""The content of a block as plain values: as JSON, as lines, stored by part, rendered and merged.

Of a text, the text; of a map, values by field; of a list or a log, rows: values by field and an
`_id` that a row keeps even when it is taken out and put back; of a composite, values by section.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from asterism.errors import InvalidInput, StoreDamaged
from asterism.memory.schemas import LOG_TIME, read_fields, read_value, tidy_number, value_text
from asterism.memory.texts import (
    Splice,
    clean_text,
    lines_of,
    rebase_splices,
    refine_splices,
    sequence_splices,
    splice_text,
    text_splices,
)
from asterism.times import iso_text
from asterism.types.memory import (
    CompositeSchema,
    Field,
    FieldType,
    ListSchema,
    LogSchema,
    MapSchema,
    Schema,
    SectionSchema,
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
            return {
                section.name: to_json(section.schema, value[section.name])
                for section in schema.sections
            }


def from_json(schema: Schema, value: Any, now: int) -> Any:
    """Return the value for what `to_json` gives, checked, of all but a composite.

    Rows get new ids.
    """
    match schema:
        case TextSchema():
            if not isinstance(value, str):
                raise wrong("text", value)
            return clean_text(value, "The text")
        case MapSchema():
            if not isinstance(value, Mapping):
                raise wrong("an object with the map's fields", value)
            return read_fields(
                schema.fields, cast("Mapping[str, Any]", value), "the map", whole=True
            )
        case ListSchema() | LogSchema():
            if not isinstance(value, list):
                raise wrong("a list", value)
            return [_row_from_json(schema, item, now) for item in cast("list[Any]", value)]
        case CompositeSchema():
            raise AssertionError(schema)


def wrong(needed: str, value: Any) -> InvalidInput:
    """Return the error for JSON of another kind than is needed."""
    kinds = {"dict": "an object", "list": "a list", "str": "a text", "bool": "a boolean"}
    kind = "nothing" if value is None else kinds.get(type(value).__name__, "a number")
    return InvalidInput(
        f"{needed[0].upper()}{needed[1:]} is needed, and {kind} was given. Nothing was changed."
    )


def _row_from_json(schema: ListSchema | LogSchema, value: Any, now: int) -> Row:
    if isinstance(schema, ListSchema):
        return new_row(read_row(schema, value))
    if not isinstance(value, Mapping):
        return new_row({LOG_TIME: iso_text(now), **read_row(schema, value)})
    entry = dict(cast("Mapping[str, Any]", value))
    time = entry.pop(LOG_TIME, None)
    at = iso_text(now) if time is None else read_value(_TIME, time)
    return new_row({LOG_TIME: at, **read_row(schema, entry)})


def read_row(schema: ListSchema | LogSchema, value: Any) -> dict[str, Any]:
    """Return the checked values of a new item or entry; text alone is its first field."""
    what = "an item" if isinstance(schema, ListSchema) else "an entry"
    fields = row_fields(schema)
    if isinstance(value, str):
        lead = lead_field(fields)
        if lead is None or not value.strip():
            raise InvalidInput(
                f"{what.capitalize()} is needed as a JSON object with "
                f"{', '.join(field.name for field in fields)}. Nothing was changed."
                if value.strip()
                else f"{what.capitalize()} without text says nothing. Nothing was changed."
            )
        value = {lead.name: value}
    if not isinstance(value, Mapping):
        raise wrong("text" if is_plain(schema) else f"{what} as an object", value)
    return read_fields(fields, cast("Mapping[str, Any]", value), what, whole=True)


def lead_field(fields: Sequence[Field]) -> Field | None:
    """Return the main field of a row: its first text field."""
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
                lines += map(escape_headings, to_lines(section.schema, value[section.name]))
            return lines


def _field_line(field: Field, value: Any) -> str:
    if value is None and field.type is FieldType.COUNTER:
        value = 0
    return f"{field.name}:" if value in (None, "", []) else f"{field.name}: {value_text(value)}"


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
            parts.append(f"{field.name}: {value_text(value)}")
    text = value_text(row.get(lead.name, "")) if lead else ""
    if lead and parts:
        text += f" ({', '.join(parts)})"
    elif parts:
        text = ", ".join(parts)
    at = f"{row.get(LOG_TIME, '')} " if isinstance(schema, LogSchema) else ""
    return (at + mark + text).replace("\n", "\\n").rstrip()


def escape_headings(line: str) -> str:
    r"""Keep a line of a section from being taken for a heading: `## x` becomes `\## x`."""
    return "\\" + line if line.lstrip("\\").startswith(HEADING) else line


def unescape_headings(line: str) -> str:
    """Undo `escape_headings`."""
    return line[1:] if line.startswith("\\") and line.lstrip("\\").startswith(HEADING) else line


# -- stored by part --------------------------------------------------------------------------------

# Each section (the whole: `""`) has a part of its own, named by what it is made of: `SECTION:text`
# is the text itself, `SECTION:fields` a JSON object, `SECTION:rows` JSON with one row a line. What
# a schema does not know stays where it is, so that one that comes back finds its values again.
Parts = Mapping[str, str]
Change = Mapping[str, Sequence[Sequence[Any]]]
"""The change of each part: `[at, how many characters go, the new text]`."""

TEXT_PART = ":text"


def sections_of(schema: Schema) -> list[tuple[str, Schema]]:
    """Return the sections of a composite by name; any other schema is one section `""`."""
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
    values = {
        name: _read_part(inner, parts.get(_part_name(inner, name), ""))
        for name, inner in sections_of(schema)
    }
    return values if isinstance(schema, CompositeSchema) else values[""]


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
        raise damaged_content(error) from error


def damaged_content(error: Exception) -> StoreDamaged:
    """Return the error for content that cannot be read as it is stored."""
    return StoreDamaged(
        f"A block's content cannot be read as it is stored ({error}). "
        "Restore the database from a backup; nothing was changed."
    )


def is_row(stored: Any) -> bool:
    """Tell whether an item of a list is a valid row."""
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


def apply_change(parts: Parts, change: Change) -> dict[str, str]:
    """Return the parts after a change."""
    made = dict(parts)
    for name, splices in change.items():
        made[name] = splice_text(made.get(name, ""), [Splice(*splice) for splice in splices])
    return {name: text for name, text in made.items() if text}


def composed_texts(changes: Iterable[Change], present: Parts) -> dict[str, list[Splice[str]]]:
    """Return the total change of each section's text after several changes.

    Characters are followed one by one: text that was removed and put back is new text. `present`
    is the state after the changes.
    """
    traces: dict[str, _Trace] = {}
    for change in changes:
        for name, splices in change.items():
            if name.endswith(TEXT_PART):
                trace = traces.setdefault(name, _Trace())
                for at, delete, insert in reversed(splices):
                    trace.replace(at, delete, len(insert))
    return {
        name.removesuffix(TEXT_PART): trace.splices(present.get(name, ""))
        for name, trace in traces.items()
    }


_INSERTED = -1


class _Trace:
    """The pieces of a text, as begin and size: ranges of the old text, and inserted text."""

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
        result: list[Splice[str]] = []
        behind = here = inserted = 0
        for begin, size in self._pieces:
            if begin == _INSERTED:
                inserted = size
            else:
                if inserted or begin > behind:
                    result.append(Splice(behind, begin - behind, present[here - inserted : here]))
                behind, inserted = begin + size, 0
            here += size
        return result


# -- what a model sees -----------------------------------------------------------------------------


def render(schema: Schema, lines: Sequence[str]) -> str:
    """Select, order and number lines as the schema demands. Some lines may be left out.

    Numbers and totals count the lines that you pass, so that a hidden line leaves no trace. Pass
    the headings of a composite as well.
    """
    return "\n".join(_rendered(schema, lines))


def _rendered(schema: Schema, lines: Sequence[str]) -> list[str]:
    match schema:
        case TextSchema():
            return _window(schema, lines)
        case MapSchema():
            return _fields(schema, lines)
        case ListSchema():
            return [f"{number}. {line}" for number, line in enumerate(lines, 1)]
        case LogSchema():
            newest = list(lines[: -schema.shown - 1 : -1])
            cut = len(newest) < len(lines)
            return [f"(the newest {len(newest)} of {len(lines)})", *newest] if cut else newest
        case CompositeSchema():
            return _sections(schema, lines)


def _window(schema: TextSchema, lines: Sequence[str]) -> list[str]:
    total = len(lines)
    first = schema.first_line
    last = total if schema.lines is None else min(total, first + schema.lines - 1)
    if first == 1 and last == total:
        return list(lines)
    if first > total:
        return [f"(from line {first} of {total}: nothing there)"]
    return [f"(lines {first}-{last} of {total})", *lines[first - 1 : last]]


def _fields(schema: MapSchema, lines: Sequence[str]) -> list[str]:
    fields = {field.name: field for field in schema.fields}
    result: list[str] = []
    for line in lines:
        name, _, value = line.partition(":")
        field = fields.get(name)
        result.append(line if field is None else _field(field, value.strip()))
    return result


def _field(field: Field, value: str) -> str:
    mark = " (read-only)" if field.read_only else ""
    text = value or (f"(not set: {field.description})" if field.description else "(not set)")
    return f"{field.name}{mark}: {text}"


def _sections(schema: CompositeSchema, lines: Sequence[str]) -> list[str]:
    parts: dict[str, list[str]] = {}
    headings = {HEADING + section.name: section.name for section in schema.sections}
    here: list[str] = []
    for line in lines:
        if line in headings:
            here = parts.setdefault(headings[line], [])
        else:
            here.append(unescape_headings(line))
    result: list[str] = []
    for section in schema.sections:
        if section.name in parts:
            result.append(_heading(section))
            result += _rendered(section.schema, parts[section.name]) or ["(empty)"]
    return result


def _heading(section: SectionSchema) -> str:
    mark = " (read-only)" if section.read_only else ""
    return f"{HEADING}{section.name}{mark}" + (
        f": {section.description}" if section.description else ""
    )


# -- merging ---------------------------------------------------------------------------------------

Deltas = Mapping[str, Sequence[Splice[str]]]
"""The later changes of each section's text (`""`: of the whole text)."""


def merge(
    schema: Schema,
    base: Any,
    ours: Any,
    theirs: Any,
    *,
    keep_all: bool,
    deltas: Deltas | None = None,
    section: str = "",
) -> Any:
    """Return `ours` with the changes from `base` to `theirs` applied.

    Args:
        schema: The schema of all three.
        base: The state before both changes.
        ours: The state now; its changes stay.
        theirs: The base with the other change.
        keep_all: Whether `theirs` wins where both wrote, and keeps its replacement for text that is
            gone by now. True when a person writes, False when an edit is taken back.
        deltas: The changes from `base` to `ours`, for texts.
        section: The name of this section.
    """
    if base == ours:
        return theirs
    if base == theirs:
        return ours
    match schema:
        case TextSchema():
            known = (deltas or {}).get(section)
            if known is None or splice_text(base, known) != ours:
                known = text_splices(base, ours)
            meanwhile = refine_splices(known, base)
            change = rebase_splices(text_splices(base, theirs), meanwhile, keep_all=keep_all)
            return splice_text(ours, change)
        case MapSchema():
            return _merged_fields(schema.fields, base, ours, theirs, keep_all=keep_all)
        case ListSchema() | LogSchema():
            return merge_rows(base, ours, theirs, keep_all=keep_all)
        case CompositeSchema():
            return {
                part.name: merge(
                    part.schema,
                    base[part.name],
                    ours[part.name],
                    theirs[part.name],
                    keep_all=keep_all,
                    deltas=deltas,
                    section=part.name,
                )
                for part in schema.sections
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
            result[name] = merge_sequences(was or [], now or [], wanted or [], keep_all=keep_all)
        elif was == now or keep_all:
            _put(result, name, wanted)
    return result


def _put(values: Row, name: str, value: Any) -> None:
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value


def merge_sequences(
    base: list[Any], ours: list[Any], theirs: list[Any], *, keep_all: bool
) -> list[Any]:
    """Return a list with both changes in it."""
    change = rebase_splices(
        sequence_splices(base, theirs), sequence_splices(base, ours), keep_all=keep_all
    )
    return splice_text(ours, change)


def merge_rows(base: list[Row], ours: list[Row], theirs: list[Row], *, keep_all: bool) -> list[Row]:
    """Return rows with both changes in them; a row is the same if its id is."""
    was = {row[ROW_ID]: row for row in base}
    wanted = {row[ROW_ID]: row for row in theirs}
    result = [
        _merged_row(was.get(row[ROW_ID]), row, wanted.get(row[ROW_ID]), keep_all=keep_all)
        for row in ours
        if row[ROW_ID] in wanted or row[ROW_ID] not in was
    ]
    there = [row[ROW_ID] for row in result]
    if [their[ROW_ID] for their in theirs if their[ROW_ID] in was] != [
        row[ROW_ID] for row in base if row[ROW_ID] in wanted
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
    places = [place for place, row_id in enumerate(there) if row_id in set(wanted)]
    by_id = {row_id: rows[place] for place, row_id in enumerate(there)}
    for place, row_id in zip(places, [row_id for row_id in wanted if row_id in by_id], strict=True):
        rows[place], there[place] = by_id[row_id], row_id


def _merged_row(was: Row | None, now: Row, wanted: Row | None, *, keep_all: bool) -> Row:
    if was is None or wanted is None or was == wanted:
        return now
    result = dict(now)
    for name in {**was, **wanted}:
        if was.get(name) != wanted.get(name) and (keep_all or was.get(name) == now.get(name)):
            _put(result, name, wanted.get(name))
    return result
