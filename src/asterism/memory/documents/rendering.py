"""What a model sees of a document's lines."""

from __future__ import annotations

from collections.abc import Sequence

from asterism.memory.documents.values import HEADING, unescaped
from asterism.types.memory import (
    CompositeSchema,
    Field,
    ListSchema,
    LogSchema,
    MapSchema,
    Schema,
    SectionSchema,
    TextSchema,
)


def render(schema: Schema, lines: Sequence[str]) -> str:
    """Select, order and number lines, of which some may be withheld, as the schema wants it.

    Numbers and totals count the lines that are given, so that a withheld one leaves no trace. The
    headings of a composite have to be among them.
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
    told = value or (f"(not set: {field.description})" if field.description else "(not set)")
    return f"{field.name}{mark}: {told}"


def _sections(schema: CompositeSchema, lines: Sequence[str]) -> list[str]:
    parts: dict[str, list[str]] = {}
    headings = {HEADING + one.name: one.name for one in schema.sections}
    here: list[str] = []
    for line in lines:
        if line in headings:
            here = parts.setdefault(headings[line], [])
        else:
            here.append(unescaped(line))
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
