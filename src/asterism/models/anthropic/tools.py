"""Tools, the choice between them, and the schema of an answer, as the Messages API takes them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, cast

import orjson

from asterism.models.anthropic.conversation import CACHE_MARK

# https://platform.claude.com/docs/en/build-with-claude/structured-outputs, 2026-11
_UNSUPPORTED = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    }
)
_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)
_ANYTHING: dict[str, Any] = {"type": "object", "properties": {}}


@lru_cache(maxsize=64)
def convert_tools(tools: bytes) -> bytes:
    """Return chat-completions tools as the API takes them, the last one marked for its cache."""
    converted: list[bytes] = []
    for tool in orjson.loads(tools):
        function: dict[str, Any] = tool["function"]
        fields = {name: function[name] for name in ("description", "strict") if function.get(name)}
        schema = {"type": "object", **(function.get("parameters") or _ANYTHING)}
        converted.append(orjson.dumps({"name": function["name"], **fields, "input_schema": schema}))
    converted[-1] = converted[-1][:-1] + CACHE_MARK
    return b"[%b]" % b",".join(converted)


def placeholder_tools(names: Iterable[str]) -> bytes:
    """Return tools that only exist since a conversation with calls in it must name some."""
    return orjson.dumps([{"name": name, "input_schema": _ANYTHING} for name in names])


def convert_choice(choice: str) -> bytes:
    """Return a choice of tools: `none`, `required`, or the name of one."""
    if choice == "none":
        return b'{"type":"none"}'
    if choice == "required":
        return b'{"type":"any"}'
    return orjson.dumps({"type": "tool", "name": choice})


@lru_cache(maxsize=64)
def convert_schema(schema: bytes) -> bytes:
    """Return a JSON schema without what the API refuses; bounds become words for the model."""
    return orjson.dumps(_strict(orjson.loads(schema)))


def _strict(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    schema, strict, bounds = cast("dict[str, Any]", node), dict[str, Any](), list[str]()
    for name, value in schema.items():
        if _is_bound(name, value):
            bounds.append(f"{name}: {orjson.dumps(value).decode()}")
        elif name in {"properties", "$defs", "definitions"}:
            strict[name] = {key: _strict(each) for key, each in value.items()}
        elif name in {"anyOf", "oneOf", "allOf"}:
            strict["anyOf" if name == "oneOf" else name] = [_strict(each) for each in value]
        else:
            strict[name] = _strict(value) if name == "items" else value
    if strict.get("type") == "object" or "properties" in strict:
        strict["additionalProperties"] = False
    if bounds:
        told = f"({', '.join(bounds)})"
        strict["description"] = f"{strict.get('description', '')} {told}".strip()
    return strict


def _is_bound(name: str, value: Any) -> bool:
    if name == "minItems":
        return value not in {0, 1}
    return name in _UNSUPPORTED or (name == "format" and value not in _FORMATS)
