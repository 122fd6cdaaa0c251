"""JSON schemas of what the API answers: made from the records, as `views.view` shows them."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from asterism.types.agents import Audience
from asterism.types.memory import (
    CompositeSchema,
    ListSchema,
    LogSchema,
    MapSchema,
    TextSchema,
)

Schema = dict[str, Any]
ANY: Schema = {}
TEXT: Schema = {"type": "string"}
MOMENT: Schema = {
    "type": "integer",
    "description": "Milliseconds since 1970, UTC.",
}
_PLAIN: dict[Any, Schema] = {
    str: TEXT,
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    datetime: MOMENT,
    type(None): {"type": "null"},
    Any: ANY,
    object: ANY,
    Audience: TEXT,
    # As `views` writes them.
    TextSchema: ANY,
    MapSchema: ANY,
    ListSchema: ANY,
    LogSchema: ANY,
    CompositeSchema: ANY,
}


class Shapes:
    """The schemas of a document: each record is described once and referred to by its name."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}

    def of(self, kind: Any) -> Schema:
        """Return the schema of a value of some type."""
        if isinstance(kind, Shape):
            return self._shape(kind)
        if isinstance(kind, ItemsOf):
            return {"type": "array", "items": self.of(kind.item)}
        if isinstance(kind, dict):
            return cast("Schema", kind)
        origin = get_origin(kind)
        if origin is not None:
            return self._generic(origin, get_args(kind))
        return self._plain(kind)

    def _plain(self, kind: Any) -> Schema:
        if isinstance(kind, TypeVar):
            return ANY
        if kind in _PLAIN:
            return _PLAIN[kind]
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"type": "string", "enum": [str(member.value) for member in kind]}
        return self._record(kind) if isinstance(kind, type) and is_dataclass(kind) else ANY

    def _generic(self, origin: Any, parts: tuple[Any, ...]) -> Schema:
        if origin in (Union, types.UnionType):
            choices = [self.of(part) for part in parts]
            return ANY if ANY in choices else {"anyOf": choices}
        if origin is Literal:
            return {"enum": list(parts)}
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(parts[1])}
        if origin is tuple and parts and parts[-1] is not Ellipsis:
            return {"type": "array", "prefixItems": [self.of(part) for part in parts]}
        if isinstance(origin, type) and issubclass(origin, Sequence | Iterable):
            return {"type": "array", "items": self.of(parts[0])}
        if isinstance(origin, type) and is_dataclass(origin):
            return self._record(origin)
        return ANY

    def _record(self, kind: type[Any]) -> Schema:
        name = kind.__name__
        if name not in self.components:
            self.components[name] = {}  # for those that hold themselves
            self.components[name] = self._object(kind, _summary(kind), {})
        return {"$ref": f"#/components/schemas/{name}"}

    def _shape(self, shape: Shape) -> Schema:
        if shape.name not in self.components:
            self.components[shape.name] = {}
            own = self._object(shape.record, shape.summary, shape.more) if shape.record else None
            self.components[shape.name] = own or self._listed(shape.summary, shape.more)
        return {"$ref": f"#/components/schemas/{shape.name}"}

    def _object(self, kind: type[Any], summary: str, more: Mapping[str, Any]) -> Schema:
        hints = _hints(kind)
        properties: dict[str, Schema] = {}
        for field in fields(kind):
            if field.name.startswith("_"):
                continue
            shown = field.name.removesuffix("_ms")
            is_moment = shown != field.name and hasattr(kind, shown)
            properties[shown if is_moment else field.name] = (
                _moment(hints[field.name]) if is_moment else self.of(hints[field.name])
            )
        properties |= {name: self.of(part) for name, part in more.items()}
        return _closed(summary, properties)

    def _listed(self, summary: str, more: Mapping[str, Any]) -> Schema:
        return _closed(summary, {name: self.of(part) for name, part in more.items()})


class Shape:
    """A record with something beside it, or an object that is no record, with a name."""

    def __init__(
        self, name: str, record: type[Any] | None = None, summary: str = "", /, **more: Any
    ) -> None:
        self.name = name
        self.record = record
        self.summary = summary or (_summary(record) if record else "")
        self.more = more


def list_of(item: Any, name: str = "") -> Shape:
    """Return the shape of a page of items, which have a name unless they are records or shapes."""
    called = name or (item.name if isinstance(item, Shape) else item.__name__)
    return Shape(f"{called}List", None, "A page of a list.", items=ItemsOf(item), next=str | None)


class ItemsOf:
    """Stands for a list of shapes or schemas, which are no types."""

    def __init__(self, item: Any) -> None:
        self.item = item


def _closed(summary: str, properties: dict[str, Schema]) -> Schema:
    described = {"description": summary} if summary else {}
    return {
        "type": "object",
        **described,
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }


def _moment(kind: Any) -> Schema:
    return {"anyOf": [MOMENT, {"type": "null"}]} if type(None) in get_args(kind) else MOMENT


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _summary(kind: type[Any]) -> str:
    return (kind.__doc__ or "").strip().partition("\n")[0]
