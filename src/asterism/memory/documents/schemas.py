"""Schemas in their JSON form, checked as they are read."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, cast

import orjson

from asterism.errors import InvalidInput
from asterism.memory.documents.fields import read_value
from asterism.memory.documents.text import clean_text
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

MOST_FIELDS = 200
MOST_SECTIONS = 50
LONGEST_NAME = 64
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
"""What each kind of schema may say."""


def schema_wire(schema: Schema) -> dict[str, Any]:
    """Return a schema in its JSON form; what is as by default is left out."""
    match schema:
        case TextSchema():
            wire: dict[str, Any] = {"kind": "text"}
            if schema.first_line != 1:
                wire["first_line"] = schema.first_line
            if schema.lines is not None:
                wire["lines"] = schema.lines
        case MapSchema():
            wire = {"kind": "map", "fields": [_field_wire(one) for one in schema.fields]}
        case ListSchema():
            wire = {"kind": "list"}
            if schema.item:
                wire["item"] = [_field_wire(one) for one in schema.item]
            if schema.max_items is not None:
                wire["max_items"] = schema.max_items
        case LogSchema():
            wire = {"kind": "log"}
            if schema.entry:
                wire["entry"] = [_field_wire(one) for one in schema.entry]
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


def read_schema(given: Mapping[str, Any] | str) -> Schema:
    """Read a schema from its JSON form or from the name of a template."""
    if isinstance(given, str):
        if given in TEMPLATES:
            return TEMPLATES[given]
        near = get_close_matches(given[:80], TEMPLATES, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InvalidInput(
            f"There is no schema named {given[:80]!r}.{hint} "
            f"Ready-made ones are {', '.join(TEMPLATES)}."
        )
    return _read(given, "The schema")


@lru_cache(1_024)
def schema_of(text: str) -> Schema:
    """Return a schema that was stored; the same text is read once."""
    return read_schema(orjson.loads(text))


def _read(given: object, where: str) -> Schema:
    if not isinstance(given, Mapping):
        raise InvalidInput(
            f'{where} is {type(given).__name__}; an object with a "kind" is needed, such as '
            '{"kind": "text"}.'
        )
    wire = cast("Mapping[str, Any]", given)
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


def _whole(given: Any, key: str, where: str) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= 10**9:
        raise InvalidInput(
            f"{where} has {key} {given!r}; a whole number of at least 1 is needed, such as 20."
        )
    return given


def _whole_or_none(given: Any, key: str, where: str) -> int | None:
    return None if given is None else _whole(given, key, where)


def _listed(given: Any, what: str, where: str, most: int) -> list[Any]:
    if given is None:
        return []
    if not isinstance(given, list | tuple):
        raise InvalidInput(f"{where} has {what} that are no list, but {type(given).__name__}.")
    listed = list(cast("Iterable[Any]", given))
    if len(listed) > most:
        raise InvalidInput(f"{where} has {len(listed)} {what}; the most is {most}.")
    return listed


def _fields(given: Any, where: str, *, counters: bool = False) -> tuple[Field, ...]:
    fields: list[Field] = []
    for one in _listed(given, "fields", where, MOST_FIELDS):
        field = _field(one, where)
        if any(field.name == other.name for other in fields):
            raise InvalidInput(f"{where} has two fields named {field.name!r}; one is enough.")
        if field.type is FieldType.COUNTER and not counters:
            raise InvalidInput(
                f"{where} has a counter {field.name!r}, and counters are for maps only. "
                "Make it a number."
            )
        fields.append(field)
    return tuple(fields)


def _field(given: Any, where: str) -> Field:
    if not isinstance(given, Mapping):
        raise InvalidInput(
            f'{where} has a field that is no object; such as {{"name": "due"}} is needed.'
        )
    wire = cast("Mapping[str, Any]", given)
    name = _name(wire.get("name"), "field", where)
    what = f"{where[0].upper()}{where[1:]}, field {name!r},"
    _check_keys(wire, _FIELD_KEYS, what)
    kind = wire.get("type", FieldType.TEXT.value)
    if kind not in tuple(FieldType):
        raise InvalidInput(
            f"{what} has the type {kind!r}; it can be {', '.join(one.value for one in FieldType)}."
        )
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


def _sections(given: Any, where: str) -> tuple[SectionSchema, ...]:
    sections: list[SectionSchema] = []
    for one in _listed(given, "sections", where, MOST_SECTIONS):
        section = _section(one, where)
        if any(section.name == other.name for other in sections):
            raise InvalidInput(f"{where} has two sections named {section.name!r}; one is enough.")
        sections.append(section)
    if not sections:
        raise InvalidInput(f"{where} is a composite without sections; at least one is needed.")
    return tuple(sections)


def _section(given: Any, where: str) -> SectionSchema:
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{where} has a section that is no object with a name and a schema.")
    wire = cast("Mapping[str, Any]", given)
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


def _name(given: Any, kind: str, where: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise InvalidInput(f"{where} has a {kind} without a name; give it one, such as 'notes'.")
    if len(given) > LONGEST_NAME:
        raise InvalidInput(
            f"{where} has a {kind} with a name of {len(given)} characters; "
            f"the most is {LONGEST_NAME}."
        )
    # Names are parts of the names of stored parts and of lines such as `name: value`.
    fits = all(unicodedata.category(c)[0] in "LNM" or c in "_-. " for c in given)
    if not fits or given != given.strip() or given.startswith("_"):
        raise InvalidInput(
            f"{where} has a {kind} named {given!r}; a name has letters, digits, spaces and _-. "
            "in it, and begins with a letter or a digit."
        )
    return given


def _text(given: Any, where: str) -> str:
    if not isinstance(given, str):
        raise InvalidInput(f"{where} has the description {given!r}; text is needed.")
    return " ".join(clean_text(given, "A description").split())


def _flag(given: Any, key: str, where: str) -> bool:
    if not isinstance(given, bool):
        raise InvalidInput(f"{where} has {key} {given!r}; true or false is needed.")
    return given
