"""Schemas of blocks in their JSON form, and the values of their fields, checked as they come in."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, cast

import orjson

from asterism.errors import InvalidInput, NotFound
from asterism.memory.texts import clean_text
from asterism.times import read_iso
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

_MAX_EXACT = 2**53
"""Beyond it a JSON number is not exact any more."""
_TAKES = {
    FieldType.TEXT: 'text, such as "tea"',
    FieldType.NUMBER: "a number, such as 3 or 2.5",
    FieldType.BOOLEAN: "true or false",
    FieldType.LIST: 'a list of texts, numbers and booleans, such as ["tea", "quiet"]',
    FieldType.TIMESTAMP: 'a time in ISO 8601, such as "2026-10-12T09:00:00Z"',
    FieldType.COUNTER: "a number, such as 5",
}
_SHOWN_OF_VALUE = 60
_UNCHANGED = "Nothing was changed."


def read_value(field: Field, value: Any) -> Any:
    """Return a value in the type of its field, or refuse it.

    Text from a command line or a model is converted: `"5"` to a number, `"true"` to a boolean,
    `'["a"]'` to a list.
    """
    match field.type:
        case FieldType.TEXT if isinstance(value, str):
            return clean_text(value, f"The value of {field.name!r}")
        case FieldType.NUMBER | FieldType.COUNTER:
            number = _number(value)
            if number is not None:
                return number
        case FieldType.BOOLEAN:
            if isinstance(value, bool):
                return value
            if isinstance(value, str) and value.strip().lower() in ("true", "false", "yes", "no"):
                return value.strip().lower() in ("true", "yes")
        case FieldType.LIST:
            return _list(field, value)
        case FieldType.TIMESTAMP if isinstance(value, str) and _is_time(value.strip()):
            return value.strip()
        case _:
            pass
    raise _refused(field, value)


def _refused(field: Field, value: Any) -> InvalidInput:
    return InvalidInput(
        f"Field {field.name!r} takes {_TAKES[field.type]}, and was given {_short(value)}.",
        outcome=_UNCHANGED,
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_OF_VALUE else text[: _SHOWN_OF_VALUE - 1] + "…"


def _number(value: Any) -> int | float | None:
    if isinstance(value, str) and len(value) <= 40:
        try:
            value = json.loads(value.strip())
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value) or abs(value) > _MAX_EXACT:
        return None
    return value


def tidy_number(number: float) -> int | float:
    """Return a whole number as an int, and no float noise: what a counter's sum is shown as."""
    number = round(number, 9)
    return int(number) if number == int(number) else number


def _list(field: Field, value: Any) -> list[Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise _refused(field, value) from None
    if not isinstance(value, list | tuple):
        raise _refused(field, value)
    values: list[Any] = []
    for item in cast("Iterable[Any]", value):
        if isinstance(item, str):
            values.append(clean_text(item, f"The value of {field.name!r}"))
        elif isinstance(item, bool) or _number(item) is not None:
            values.append(item)
        else:
            raise _refused(field, item)
    return values


def _is_time(text: str) -> bool:
    try:
        read_iso(text)
    except ValueError:
        return False
    return True


def read_fields(
    fields: Iterable[Field], values: Mapping[str, Any], what: str, *, whole: bool
) -> dict[str, Any]:
    """Return checked values by name; with `whole`, missing fields get their defaults.

    Args:
        fields: The fields of the schema.
        values: Values by name; None leaves a field without one.
        what: What they belong to, for the error: `An item`.
        whole: Whether all required fields must be there.
    """
    known = {field.name: field for field in fields}
    for name in values:
        if name not in known:
            raise unknown_name("field", str(name), known, where=f" of {what}")
    result = {
        name: read_value(known[name], value) for name, value in values.items() if value is not None
    }
    if not whole:
        return result
    for field in known.values():
        if field.name in result:
            continue
        if field.default is not None and field.name not in values:
            result[field.name] = field.default
        elif field.required:
            raise InvalidInput(
                f"Field {field.name!r} is required in {what} and was left out. Give it "
                f"{_TAKES[field.type]}; nothing was changed."
            )
    return {name: result[name] for name in known if name in result}


def unknown_name(kind: str, name: str, known: Iterable[str], where: str = "") -> NotFound:
    """Return the error for a name that is not there, with the nearest one that is."""
    names = list(known)
    near = get_close_matches(name[:80], names, 1)
    listed = ", ".join(repr(known_name) for known_name in names[:12]) + (
        " …" if len(names) > 12 else ""
    )
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return NotFound(
        f"There is no {kind} {_short(name)}{where}.{hint} "
        + (f"There is {listed}. " if names else "")
        + "Nothing was changed."
    )


def value_text(value: Any) -> str:
    """Return a value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value.replace("\n", "\\n")
    if isinstance(value, int | float):
        return str(tidy_number(value))
    return json.dumps(value, ensure_ascii=False)


MAX_FIELDS = 200
MAX_SECTIONS = 50
MAX_NAME = 64
LOG_TIME = "time"
"""The field that every entry of a log has by itself."""

TEMPLATES: dict[str, Schema] = {
    "text": TextSchema(),
    "tasks": ListSchema(
        item=(
            Field("title", required=True),
            Field("done", FieldType.BOOLEAN, default=False),
            Field("priority", FieldType.NUMBER, "1 is the highest, 5 the lowest", default=3),
            Field("due", FieldType.TIMESTAMP),
        )
    ),
    "partner": MapSchema(
        (
            Field("name"),
            Field("preferences", FieldType.LIST),
            Field("energy_level", FieldType.COUNTER, "from 0 to 10", default=5),
            Field("current_focus"),
            Field("last_interaction", FieldType.TIMESTAMP),
        )
    ),
    "observations": LogSchema(entry=(Field("observation", required=True), Field("context"))),
    "scratchpad": TextSchema(lines=60),
}
"""Ready-made schemas by name."""

_FIELD_KEYS = ("name", "type", "description", "required", "default", "read_only")
_SECTION_KEYS = ("name", "schema", "description", "read_only")
_KINDS = {
    "text": ("first_line", "lines"),
    "map": ("fields",),
    "list": ("item", "max_items"),
    "log": ("entry", "shown"),
    "composite": ("sections",),
}
"""The keys of each kind of schema."""


def schema_wire(schema: Schema) -> dict[str, Any]:
    """Return a schema in its JSON form, without default values."""
    match schema:
        case TextSchema():
            wire: dict[str, Any] = {"kind": "text"}
            if schema.first_line != 1:
                wire["first_line"] = schema.first_line
            if schema.lines is not None:
                wire["lines"] = schema.lines
        case MapSchema():
            wire = {"kind": "map", "fields": [_field_wire(field) for field in schema.fields]}
        case ListSchema():
            wire = {"kind": "list"}
            if schema.item:
                wire["item"] = [_field_wire(field) for field in schema.item]
            if schema.max_items is not None:
                wire["max_items"] = schema.max_items
        case LogSchema():
            wire = {"kind": "log"}
            if schema.entry:
                wire["entry"] = [_field_wire(field) for field in schema.entry]
            if schema.shown != LogSchema().shown:
                wire["shown"] = schema.shown
        case CompositeSchema():
            wire = {"kind": "composite", "sections": [_section_wire(s) for s in schema.sections]}
    return wire


def _field_wire(field: Field) -> dict[str, Any]:
    wire: dict[str, Any] = {"name": field.name, "type": field.type.value}
    if field.description:
        wire["description"] = field.description
    if field.required:
        wire["required"] = True
    if field.default is not None:
        wire["default"] = field.default
    if field.read_only:
        wire["read_only"] = True
    return wire


def _section_wire(section: SectionSchema) -> dict[str, Any]:
    wire: dict[str, Any] = {"name": section.name, "schema": schema_wire(section.schema)}
    if section.description:
        wire["description"] = section.description
    if section.read_only:
        wire["read_only"] = True
    return wire


def read_schema(source: Mapping[str, Any] | str) -> Schema:
    """Read a schema from its JSON form or from the name of a template."""
    if isinstance(source, str):
        if source in TEMPLATES:
            return TEMPLATES[source]
        near = get_close_matches(source[:80], TEMPLATES, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InvalidInput(
            f"There is no schema named {source[:80]!r}.{hint} "
            f"Ready-made ones are {', '.join(TEMPLATES)}."
        )
    return _read(source, "The schema")


@lru_cache(1_024)
def schema_of(text: str) -> Schema:
    """Return a schema that was stored; the same text is read once."""
    return read_schema(orjson.loads(text))


def _read(value: object, where: str) -> Schema:
    if not isinstance(value, Mapping):
        raise InvalidInput(
            f'{where} is {type(value).__name__}; an object with a "kind" is needed, such as '
            '{"kind": "text"}.'
        )
    wire = cast("Mapping[str, Any]", value)
    kind = wire.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidInput(
            f"{where} has the kind {kind!r}; it can be {', '.join(_KINDS)}."
            if "kind" in wire
            else f'{where} has no "kind"; it can be {", ".join(_KINDS)}.'
        )
    _check_keys(wire, ("kind", *_KINDS[kind]), where)
    match kind:
        case "text":
            return TextSchema(
                _whole(wire.get("first_line", 1), "first_line", where),
                _whole_or_none(wire.get("lines"), "lines", where),
            )
        case "map":
            fields = _fields(wire.get("fields"), where, counters=True)
            if not fields:
                raise InvalidInput(f"{where} is a map without fields; at least one is needed.")
            return MapSchema(fields)
        case "list":
            return ListSchema(
                _fields(wire.get("item"), where),
                _whole_or_none(wire.get("max_items"), "max_items", where),
            )
        case "log":
            entry = _fields(wire.get("entry"), where)
            if any(field.name == LOG_TIME for field in entry):
                raise InvalidInput(
                    f"{where} has a field {LOG_TIME!r}, which every entry of a log has by itself. "
                    "Take it out, or give it another name."
                )
            shown = wire.get("shown", LogSchema().shown)
            return LogSchema(entry, _whole(shown, "shown", where))
        case _:
            return CompositeSchema(_sections(wire.get("sections"), where))


def _check_keys(wire: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    for key in wire:
        if key not in known:
            raise InvalidInput(
                f"{where} says {str(key)[:80]!r}, which has no meaning there; "
                f"it can say {', '.join(known)}."
            )


def _whole(value: Any, key: str, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**9:
        raise InvalidInput(
            f"{where} has {key} {value!r}; a whole number of at least 1 is needed, such as 20."
        )
    return value


def _whole_or_none(value: Any, key: str, where: str) -> int | None:
    return None if value is None else _whole(value, key, where)


def _listed(value: Any, what: str, where: str, most: int) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise InvalidInput(f"{where} has {what} that are not a list, but {type(value).__name__}.")
    listed = list(cast("Iterable[Any]", value))
    if len(listed) > most:
        raise InvalidInput(f"{where} has {len(listed)} {what}; the most is {most}.")
    return listed


def _fields(value: Any, where: str, *, counters: bool = False) -> tuple[Field, ...]:
    fields: list[Field] = []
    for item in _listed(value, "fields", where, MAX_FIELDS):
        field = _field(item, where)
        if any(field.name == other.name for other in fields):
            raise InvalidInput(f"{where} has two fields named {field.name!r}; one is enough.")
        if field.type is FieldType.COUNTER and not counters:
            raise InvalidInput(
                f"{where} has a counter {field.name!r}, and counters are for maps only. "
                "Make it a number."
            )
        fields.append(field)
    return tuple(fields)


def _field(value: Any, where: str) -> Field:
    if not isinstance(value, Mapping):
        raise InvalidInput(
            f'{where} has a field that is not an object. Use one such as {{"name": "due"}}.'
        )
    wire = cast("Mapping[str, Any]", value)
    name = _name(wire.get("name"), "field", where)
    what = f"{where[0].upper()}{where[1:]}, field {name!r},"
    _check_keys(wire, _FIELD_KEYS, what)
    kind = wire.get("type", FieldType.TEXT.value)
    if kind not in tuple(FieldType):
        known = ", ".join(field_type.value for field_type in FieldType)
        raise InvalidInput(f"{what} has the type {kind!r}; it can be {known}.")
    field = Field(
        name,
        FieldType(kind),
        _text(wire.get("description", ""), what),
        _flag(wire.get("required", False), "required", what),
        None,
        _flag(wire.get("read_only", False), "read_only", what),
    )
    if wire.get("default") is None:
        return field
    try:
        return replace(field, default=read_value(field, wire["default"]))
    except InvalidInput as error:
        raise InvalidInput(f"{what} has a default that does not fit: {error.reason}") from None


def _sections(value: Any, where: str) -> tuple[SectionSchema, ...]:
    sections: list[SectionSchema] = []
    for item in _listed(value, "sections", where, MAX_SECTIONS):
        section = _section(item, where)
        if any(section.name == other.name for other in sections):
            raise InvalidInput(f"{where} has two sections named {section.name!r}; one is enough.")
        sections.append(section)
    if not sections:
        raise InvalidInput(f"{where} is a composite without sections; at least one is needed.")
    return tuple(sections)


def _section(value: Any, where: str) -> SectionSchema:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{where} has a section that is not an object with a name and a schema.")
    wire = cast("Mapping[str, Any]", value)
    name = _name(wire.get("name"), "section", where)
    what = f"Section {name!r}"
    _check_keys(wire, _SECTION_KEYS, what)
    inner: Any = wire.get("schema")
    # Looked at before it is read, so that an object that contains itself is never followed.
    if isinstance(inner, Mapping) and cast("Mapping[str, Any]", inner).get("kind") == "composite":
        raise InvalidInput(
            f"{what} is a composite within a composite. A section is text, map, list or log."
        )
    schema = read_schema(inner) if isinstance(inner, str) else _read(cast("object", inner), what)
    description = _text(wire.get("description", ""), what)
    read_only = _flag(wire.get("read_only", False), "read_only", what)
    return SectionSchema(name, schema, description, read_only)


def _name(name: Any, kind: str, where: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(f"{where} has a {kind} without a name; give it one, such as 'notes'.")
    if len(name) > MAX_NAME:
        raise InvalidInput(
            f"{where} has a {kind} with a name of {len(name)} characters; the most is {MAX_NAME}."
        )
    # Names are parts of the names of stored parts and of lines such as `name: value`.
    fits = all(unicodedata.category(c)[0] in "LNM" or c in "_-. " for c in name)
    if not fits or name != name.strip() or name.startswith("_"):
        raise InvalidInput(
            f"{where} has a {kind} named {name!r}; a name has letters, digits, spaces and _-. "
            "in it, and begins with a letter or a digit."
        )
    return name


def _text(text: Any, where: str) -> str:
    if not isinstance(text, str):
        raise InvalidInput(f"{where} has the description {text!r}; text is needed.")
    return " ".join(clean_text(text, "A description").split())


def _flag(value: Any, key: str, where: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{where} has {key} {value!r}; true or false is needed.")
    return value
