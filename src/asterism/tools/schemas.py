"""Schemas from outside: what a tool's parameters may look like, and whether arguments fit them.

A schema that a server or a person hands in is read by models, by their vendors and by a validator.
Each of them has limits, and a schema beyond them is refused here, with a reason, before a turn
depends on it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache
from typing import Any, cast

import orjson

from asterism.errors import InvalidInput

LONGEST_SCHEMA = 64_000
"""Bytes of a schema as JSON; each request to a model carries it."""
DEEPEST = 40
MOST_CHECKS = 50_000
"""How many keywords may be looked at for one call's arguments."""
_SECONDS_A_PATTERN = 0.2
_MOST_UNFOLDED = 5_000

# OpenAI and Anthropic refuse a whole request for one name outside of these (2026-11).
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PARAMETER = re.compile(r"[a-zA-Z0-9_.-]{1,64}")

_ONE = ("not", "if", "then", "else")
_SEVERAL = ("allOf", "anyOf", "oneOf")
_DEEPER = (
    "items",
    "additionalItems",
    "prefixItems",
    "contains",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
)
_NAMED = ("properties", "patternProperties", "$defs", "definitions")
_UNWANTED = ("$dynamicRef", "$recursiveRef", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary")

# A repetition that is counted is unrolled when the pattern is compiled.
_REPEATS = re.compile(r"\{(?:\d*,)?(\d{1,20})\}?")
_MOST_REPEATS = 100_000

Node = dict[str, Any]


def checked_tool_name(name: str) -> str:
    """Return a name that every vendor takes for a tool; else raise `InvalidInput`."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name[:80]!r} cannot name a tool: 1 to 64 of a-z, A-Z, 0-9, _ and - are needed, such "
            "as 'look_up_order'. Choose another. Nothing was changed."
        )
    return name


def checked_schema(name: str, schema: object) -> dict[str, Any]:
    """Return the JSON schema of a tool's parameters, ready for use.

    It describes an object, is no larger or deeper than models read, refers to nothing outside of
    itself and ends for every argument; what is not so raises `InvalidInput` with the reason. A
    schema that says nothing of its type is taken for one of an object.
    """
    found = _as_json(name, schema)
    kind = found.setdefault("type", "object")
    if kind != "object":
        raise _unfit(name, f"it has the type {_cut(kind)}; parameters are an object")
    found.setdefault("properties", {})
    found.pop("$id", None)
    found.pop("id", None)
    _check_keywords(name, found)
    _check_drafted(name, found)
    for parameter in found["properties"]:
        if not _PARAMETER.fullmatch(parameter):
            raise _unfit(
                name,
                f"it has a parameter {_cut(parameter)}; vendors of models take 1 to 64 of a-z, "
                "A-Z, 0-9, _, . and -",
            )
    _check_ends(name, found)
    return found


def shown_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checked schema as models are given it.

    Vendors refuse `anyOf` and its like at the top, so the parameters of all its branches are shown
    as optional ones; arguments are still held against the whole schema.
    """
    shown = {key: value for key, value in schema.items() if key not in ("$schema", "$comment")}
    properties: Node = dict(shown.get("properties") or {})
    for keyword in (*_SEVERAL, *_ONE, "dependentSchemas", "dependencies"):
        branches = shown.pop(keyword, None)
        if keyword not in _SEVERAL:
            continue
        for branch in cast("list[Any]", branches or []):
            inner: object = _resolved(branch, schema)
            if isinstance(inner, dict):
                found = cast("Node", inner).get("properties")
                for key, value in cast("Node", found if isinstance(found, dict) else {}).items():
                    if _PARAMETER.fullmatch(key):
                        properties.setdefault(key, value)
    return {**shown, "properties": properties}


def faults_of(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
    """Say in what arguments do not fit a checked schema; nothing if they do."""
    found: list[str] = []
    try:
        for fault in _validator(schema).iter_errors(arguments):
            where = ".".join(map(str, cast("Iterable[object]", fault.absolute_path)))
            found.append(f"{where or 'arguments'}: {str(fault.message)[:300]}")
            if len(found) == 5:
                break
    except _TooMuch as error:
        found.append(str(error))
    except RecursionError:
        found.append("they are nested too deeply")
    return found


# -- the checks -----------------------------------------------------------------------------------


def _as_json(name: str, schema: object) -> Node:
    if schema is None:
        return {"type": "object", "properties": {}}
    if not isinstance(schema, Mapping):
        raise _unfit(name, f"it is {type(schema).__name__}; a JSON object is needed")
    if (depth := _depth(cast("object", schema))) > DEEPEST:
        raise _unfit(name, f"it is nested more than {depth - 1} deep; the most is {DEEPEST}")
    try:
        text = orjson.dumps(schema)
    except TypeError as error:
        raise _unfit(name, f"it is no JSON ({error})") from None
    if len(text) > LONGEST_SCHEMA:
        raise _unfit(name, f"it has {len(text):,} bytes; the most is {LONGEST_SCHEMA:,}")
    return orjson.loads(text)


def _depth(value: object) -> int:
    """Return how deep a value is nested, looking no deeper than one may be."""
    level: list[object] = [value]
    depth = seen = 0
    while level and depth <= DEEPEST:
        depth += 1
        inner: list[object] = []
        for one in level:
            if isinstance(one, Mapping):
                inner.extend(cast("Mapping[str, object]", one).values())
            elif isinstance(one, list | tuple):
                inner.extend(cast("Iterable[object]", one))
        seen += len(inner)
        if seen > LONGEST_SCHEMA:  # it contains itself more than once, or is far too long
            return DEEPEST + 1
        level = [cast("object", one) for one in inner if isinstance(one, Mapping | list | tuple)]
    return depth


def _check_keywords(name: str, schema: Node) -> None:
    for where, node in _nodes(schema):
        for keyword in _UNWANTED:
            if keyword in node:
                raise _unfit(name, f"{where} has {keyword}, which is not understood here")
        for keyword in ("$id", "id", "$schema"):
            if node is not schema and isinstance(node.get(keyword), str):
                raise _unfit(name, f"{where} has its own {keyword}, which changes what $ref means")
        reference = node.get("$ref")
        if isinstance(reference, str):
            if not reference.startswith("#") or (reference != "#" and reference[1:2] != "/"):
                told = f"{where} refers to {_cut(reference)}"
                raise _unfit(name, f"{told}; only '#/…' within the schema is followed")
            if not isinstance(_pointed(schema, reference), dict | bool):
                raise _unfit(name, f"{where} refers to {_cut(reference)}, where no schema is")
        for pattern in _patterns(node):
            if fault := _fault_of_pattern(pattern):
                raise _unfit(name, f"{where} has the pattern {_cut(pattern)}: {fault}")


def _check_drafted(name: str, schema: Node) -> None:
    """Hold the schema against the draft that it names, or the current one."""
    from jsonschema.exceptions import SchemaError

    try:
        _class_of(schema).check_schema(schema)
    except SchemaError as error:
        raise _unfit(name, f"at {error.json_path}, {str(error.message)[:200]}") from None
    except RecursionError:
        raise _unfit(name, "it is nested too deeply") from None


def _check_ends(name: str, schema: Node) -> None:
    """Refuse references that lead in a circle without going deeper, or unfold without end."""
    costs: dict[int, int] = {}

    def cost(node: object, above: frozenset[int]) -> int:
        if not isinstance(node, dict):
            return 1
        here = id(cast("object", node))
        if here in above:
            raise _unfit(name, "a $ref leads back to itself, so that it could never be checked")
        if here not in costs:
            known = cast("Node", node)
            inner = [known[one] for one in _ONE if one in known]
            inner += [each for one in _SEVERAL for each in known.get(one, ())]
            for one in ("dependentSchemas", "dependencies"):
                inner += list(cast("Node", known.get(one, {})).values())
            if isinstance(known.get("$ref"), str):
                inner.append(_pointed(schema, known["$ref"]))
            costs[here] = 1 + sum(cost(each, above | {here}) for each in inner)
            if costs[here] > _MOST_UNFOLDED:
                raise _unfit(name, f"its references unfold into more than {_MOST_UNFOLDED:,} parts")
        return costs[here]

    try:
        for _, node in _nodes(schema):
            cost(node, frozenset())
    except RecursionError:
        raise _unfit(name, "its references are nested too deeply") from None


# -- walking --------------------------------------------------------------------------------------


def _nodes(schema: Node) -> Iterator[tuple[str, Node]]:
    """Yield every schema within a schema, with where it stands."""
    waiting: list[tuple[str, object]] = [("the schema", schema)]
    while waiting:
        where, node = waiting.pop()
        if isinstance(node, list):
            for index, one in enumerate(cast("list[object]", node)):
                waiting.append((f"{where}[{index}]", one))
            continue
        if not isinstance(node, dict):
            continue
        known = cast("Node", node)
        yield where, known
        at = "" if where == "the schema" else f"{where}."
        direct = (*_ONE, *_SEVERAL, *_DEEPER)
        waiting += [(f"{at}{keyword}", known[keyword]) for keyword in direct if keyword in known]
        for keyword in (*_NAMED, "dependentSchemas", "dependencies"):
            inner = known.get(keyword)
            if isinstance(inner, dict):
                for key, value in cast("Node", inner).items():
                    waiting.append((f"{at}{keyword}.{key[:40]}", value))


def _pointed(schema: Mapping[str, Any], reference: str) -> object:
    """Return what a reference within a schema points at; None where nothing is."""
    from urllib.parse import unquote

    value = cast("object", schema)
    for part in unquote(reference).removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = cast("Node", value).get(key)
        elif isinstance(value, list) and key.isdecimal() and len(key) < 6:
            several = cast("list[object]", value)
            value = several[int(key)] if int(key) < len(several) else None
        else:
            return None
    return value


def _resolved(node: object, schema: Mapping[str, Any]) -> object:
    for _ in range(DEEPEST):
        if not isinstance(node, dict) or not isinstance(cast("Node", node).get("$ref"), str):
            return cast("object", node)
        node = _pointed(schema, cast("Node", node)["$ref"])
    return None


def _patterns(node: Node) -> Iterator[str]:
    if isinstance(node.get("pattern"), str):
        yield node["pattern"]
    named = node.get("patternProperties")
    if isinstance(named, dict):
        yield from cast("Node", named)


def _fault_of_pattern(pattern: str) -> str:
    import regex

    if len(pattern) > 1_000:
        return f"it has {len(pattern):,} characters, and the most is 1,000"
    if math.prod(int(most) or 1 for most in _REPEATS.findall(pattern)) > _MOST_REPEATS:
        return f"it repeats more than {_MOST_REPEATS:,} times"
    try:
        regex.compile(pattern)
    except (regex.error, OverflowError, ValueError, RecursionError) as error:
        return str(error)[:100]
    return ""


# -- arguments against a schema -------------------------------------------------------------------


class _TooMuch(Exception):
    """Checking takes longer than it may."""


_left: ContextVar[list[int]] = ContextVar("checks left")


def _class_of(schema: Mapping[str, Any]) -> Any:
    from jsonschema.validators import Draft202012Validator, validator_for

    return validator_for(schema, default=Draft202012Validator)


def _validator(schema: Mapping[str, Any]) -> Any:
    """Return a validator that gives up after `MOST_CHECKS` or a pattern that takes too long."""
    from referencing import Registry

    nothing: Registry[Any] = Registry()
    bare = {key: value for key, value in schema.items() if key != "$schema"}
    _left.set([MOST_CHECKS])
    # Without a registry of its own, jsonschema would fetch what a $ref names from the network.
    return _bounded(_class_of(schema))(bare, registry=nothing)


@cache
def _bounded(kind: Any) -> Any:
    from jsonschema import validators

    extend = cast("Callable[..., Any]", cast("Any", validators).extend)
    own: dict[str, Any] = {"pattern": _pattern, "patternProperties": _pattern_properties}
    keywords = {**kind.VALIDATORS, **own}
    return extend(kind, {key: _counted(check) for key, check in keywords.items()})


def _counted(check: Callable[..., Any]) -> Callable[..., Any]:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        left = _left.get()
        left[0] -= 1
        if left[0] < 0:
            raise _TooMuch(f"they take more than {MOST_CHECKS:,} checks; give simpler ones")
        return check(validator, value, instance, schema)

    return counted


def _matches(pattern: str, text: str) -> bool:
    import regex

    try:
        return regex.search(pattern, text, timeout=_SECONDS_A_PATTERN) is not None
    except TimeoutError:
        raise _TooMuch(f"the pattern {_cut(pattern)} takes too long on them") from None


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if isinstance(instance, str) and not _matches(pattern, instance):
        yield ValidationError(f"{_cut(instance)} does not match {_cut(pattern)}")


def _pattern_properties(validator: Any, named: Node, instance: Any, _: Any) -> Iterator[Any]:
    if isinstance(instance, dict):
        for pattern, inner in named.items():
            for key, value in cast("Node", instance).items():
                if _matches(pattern, key):
                    yield from validator.descend(value, inner, path=key, schema_path=pattern)


def _unfit(name: str, reason: str) -> InvalidInput:
    return InvalidInput(
        f"The parameters of tool {name[:80]!r} cannot be used: {reason}. The tool was not added."
    )


def _cut(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
