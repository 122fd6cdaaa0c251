"""How a text is taken out of each kind of column."""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable
from typing import Any

import orjson

from asterism.memory.forgetting.columns import TABLES, How
from asterism.memory.forgetting.redaction import FORGOTTEN, Redactor, Shape
from asterism.store.blocks import EditRow
from asterism.types.memory import OriginKind

OWN: Shape = frozenset({"kind", "type", "audience", "permission", "trust"})
_REASONING = ("reasoning", "thought")
_META: Shape = frozenset(
    {"sender", "participants", "trust_levels", "model", "finish", "state", "approval"}
)


def redacted(how: How, value: Any, redactor: Redactor) -> Any:
    """Return the value of a column without what is looked for; the very same if it is not there."""
    change = _CHANGES.get(how)
    if change is None or value is None:
        return value
    try:
        return change(value, redactor)
    except (orjson.JSONDecodeError, zlib.error, ValueError, KeyError, TypeError):
        # Not as this release writes it, such as a column of an older one.
        return redactor.wire(value) if isinstance(value, bytes) else redactor.text(value)


def _unique(text: str, redactor: Redactor) -> str:
    changed = redactor.text(text)
    # Two rows may not have the same, so each gets another ending.
    return text if changed is text else f"{changed}-{secrets.token_hex(4)}"


def _meta(text: str, redactor: Redactor) -> str:
    meta: dict[str, Any] = orjson.loads(text)
    kept = dict(meta)
    for name in _REASONING:
        if name in kept and redactor.value(kept[name]) is not kept[name]:
            del kept[name]
    changed = redactor.value(kept, _META)
    return text if changed == meta else orjson.dumps(changed).decode()


def without_thought(meta: str) -> str:
    """Return what stands beside a reply without the vendor's record of its reasoning.

    It may be encrypted, so that nobody can tell what it holds.
    """
    kept: dict[str, Any] = orjson.loads(meta)
    if kept.pop("thought", None) is None:
        return meta
    return orjson.dumps(kept).decode()


def _origins(origins: list[list[Any]], redactor: Redactor) -> list[list[Any]]:
    changed = [
        [
            kind,
            redactor.text(ref) if kind == OriginKind.DOCUMENT else ref,
            *map(redactor.text, rest),
        ]
        for kind, ref, *rest in origins
    ]
    return origins if changed == origins else changed


def _origins_json(text: str, redactor: Redactor) -> str:
    origins = orjson.loads(text)
    changed = _origins(origins, redactor)
    return text if changed is origins else orjson.dumps(changed).decode()


def _source(text: str, redactor: Redactor) -> str:
    source: dict[str, Any] = orjson.loads(text)
    changed = dict(source)
    changed["origins"] = _origins(source["origins"], redactor)
    for name in source.keys() - {"origins", "audience", "trust", "lines"}:
        changed[name] = redactor.value(source[name], OWN)
    return text if changed == source else orjson.dumps(changed).decode()


def _before(text: str, redactor: Redactor) -> str:
    before: dict[str, Any] = orjson.loads(text)
    how = TABLES["passages"].columns
    # Besides columns there is the number of the edit that was taken back.
    changed = {
        name: redacted(how[name], value, redactor) if name in how else value
        for name, value in before.items()
    }
    if changed == before:
        return text
    # What was made of the former text tells of it.
    for name in changed.keys() & {"digest", "vector"}:
        changed[name] = None if name == "vector" else ""
    return orjson.dumps(changed).decode()


def _packed(body: bytes, redactor: Redactor) -> bytes:
    told: dict[str, Any] = orjson.loads(zlib.decompress(body))
    columns: list[list[Any]] = told["edits"]
    found = redactor.found
    if told["schema"] is not None:
        told["schema"] = redactor.json(told["schema"], OWN)
    if columns:
        for name, how in (("reason", How.TEXT), ("source", How.SOURCE)):
            place = EditRow._fields.index(name)
            columns[place] = [redacted(how, value, redactor) for value in columns[place]]
    return body if redactor.found == found else zlib.compress(orjson.dumps(told), 9)


def _salted(body: bytes, redactor: Redactor) -> bytes | None:
    return body if redactor.wire(body) is body else None


_CHANGES: dict[How, Callable[[Any, Redactor], Any]] = {
    How.TEXT: lambda text, redactor: redactor.text(text),
    How.PASSAGE: lambda text, redactor: redactor.text(text),
    How.UNIQUE: _unique,
    How.JSON: lambda text, redactor: redactor.json(text),
    How.OWN_JSON: lambda text, redactor: redactor.json(text, OWN),
    How.WIRE: lambda body, redactor: redactor.wire(body),
    How.META: _meta,
    How.ORIGINS: _origins_json,
    How.SOURCE: _source,
    How.BEFORE: _before,
    How.PACKED: _packed,
    How.SALTED: _salted,
}


def little_is_left(text: str) -> bool:
    """Tell whether a text says next to nothing once what was forgotten is out of it."""
    rest = text.replace(FORGOTTEN, " ")
    return sum(one.isalnum() for one in rest) < _LITTLE


_LITTLE = 12
