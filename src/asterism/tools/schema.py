"""Tools made from a JSON schema: by MCP servers, or registered by a person.

A schema that a server or a person hands in is read by models, by their vendors and by a validator.
Each of them has limits, and a schema beyond them is refused here, with a reason, before a turn
depends on it. A registered tool is Python source that runs in the sandbox, or a request to a
server.
"""

from __future__ import annotations

import ast
import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from typing import Any, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import orjson

from asterism.errors import AsterismError, InvalidInput, SandboxError, ToolError
from asterism.patterns import MAX_WORK, InvalidPattern, RegularExpression, compile_pattern
from asterism.tools.builtin.shell import Workspaces
from asterism.tools.tool import Tool, ToolContext, as_text, read_object
from asterism.types.agents import OWNER, Audience, HttpCall, ToolSpec, Trust
from asterism.types.permissions import Declared, ToolEffect
from asterism.types.turns import RetrySafety

MAX_SCHEMA = 64_000
"""Bytes of a schema as JSON; each request to a model carries it."""
MAX_DEPTH = 40
MAX_CHECKS = 50_000
"""How many keywords may be looked at for one call's arguments."""
MAX_PATTERNS = 100
MAX_LEAST = 10_000
"""How many items or characters a schema may ask for at least: a model would have to write them."""
_MAX_PATTERN_SIZE = 20_000
_MAX_EXPANDED = 5_000

# OpenAI and Anthropic refuse a whole request for one name outside of these (2026-11).
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PARAMETER = re.compile(r"[a-zA-Z0-9_.-]{1,64}")

_SINGLE_SCHEMA = ("not", "if", "then", "else")
_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf")
_INNER_SCHEMA = (
    "items",
    "additionalItems",
    "prefixItems",
    "contains",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
)
_SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LEAST = ("minItems", "minLength", "minProperties", "minContains")
_UNSUPPORTED = ("$dynamicRef", "$recursiveRef", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary")

Node = dict[str, Any]


def checked_tool_name(name: str) -> str:
    """Return a name that every vendor takes for a tool; else raise `InvalidInput`."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name[:80]!r} is not a valid tool name. Use 1 to 64 of a-z, A-Z, 0-9, _ and -, "
            "such as 'look_up_order'. Nothing was changed."
        )
    return name


def checked_schema(name: str, schema: object) -> dict[str, Any]:
    """Return the JSON schema of a tool's parameters, ready for use.

    It describes an object, is no larger or deeper than models read, refers to nothing outside of
    itself and ends for every argument; what is not so raises `InvalidInput` with the reason. A
    schema that says nothing of its type is taken for one of an object.
    """
    try:
        return _checked_schema(schema)
    except _UnfitSchema as error:
        raise InvalidInput(
            f"The parameters of tool {name[:80]!r} cannot be used: {error}. The tool was not added."
        ) from None


def _checked_schema(schema: object) -> Node:
    checked = _read_schema(schema)
    kind = checked.setdefault("type", "object")
    if kind != "object":
        raise _UnfitSchema(f"it has the type {_quoted(kind)}; parameters are an object")
    checked.setdefault("properties", {})
    checked.pop("$id", None)
    checked.pop("id", None)
    _check_keywords(checked)
    _check_against_draft(checked)
    for parameter in checked["properties"]:
        if not _PARAMETER.fullmatch(parameter):
            raise _UnfitSchema(
                f"it has a parameter {_quoted(parameter)}; vendors accept 1 to 64 of a-z, "
                "A-Z, 0-9, _, . and -",
            )
    _check_termination(checked)
    return checked


def schema_for_model(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checked schema as models are given it.

    Vendors refuse `anyOf` and its like at the top, so the parameters of all its branches are shown
    as optional ones; arguments are still held against the whole schema.
    """
    visible = {key: value for key, value in schema.items() if key not in ("$schema", "$comment")}
    properties: Node = dict(visible.get("properties") or {})
    for keyword in (*_SCHEMA_LISTS, *_SINGLE_SCHEMA, "dependentSchemas", "dependencies"):
        branches = visible.pop(keyword, None)
        if keyword not in _SCHEMA_LISTS:
            continue
        for branch in cast("list[Any]", branches or []):
            inner: object = _resolve_refs(branch, schema)
            if isinstance(inner, dict):
                branch_properties = cast("Node", inner).get("properties")
                for key, value in cast(
                    "Node", branch_properties if isinstance(branch_properties, dict) else {}
                ).items():
                    if _PARAMETER.fullmatch(key):
                        properties.setdefault(key, value)
    return {**visible, "properties": properties}


def argument_faults(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
    """Say in what arguments do not fit a checked schema; nothing if they do."""
    faults: list[str] = []
    try:
        for fault in _validator(schema).iter_errors(arguments):
            where = ".".join(map(str, cast("Iterable[object]", fault.absolute_path)))
            faults.append(f"{where or 'arguments'}: {str(fault.message)[:300]}")
            if len(faults) == 5:
                break
    except _TooManyChecks as error:
        faults.append(str(error))
    except RecursionError:
        faults.append("they are nested too deeply")
    return faults


def answer_schema_fault(schema: Mapping[str, Any]) -> str:
    """Say why answers cannot be held against a schema; nothing if they can.

    As parameters of a tool, it refers to nothing outside of itself and ends for every answer.
    """
    try:
        read = _read_schema(schema)
        _check_against_draft(read)
        _check_keywords(read)
        _check_termination(read)
    except _UnfitSchema as error:
        return str(error)
    return ""


def answer_fault(schema: Mapping[str, Any], answer: object) -> str:
    """Say in what an answer does not fulfil a schema; nothing if it does."""
    if unfit := answer_schema_fault(schema):  # of a message that was stored before this was refused
        return f"the schema cannot be used: {unfit}"
    try:
        fault = next(iter(_validator(schema).iter_errors(answer)), None)
    except (_TooManyChecks, RecursionError):
        return "it takes too long to hold it against the schema"
    return "" if fault is None else f"at {fault.json_path}, {fault.message[:300]}"


# -- the checks -----------------------------------------------------------------------------------


def _read_schema(schema: object) -> Node:
    if schema is None:
        return {"type": "object", "properties": {}}
    if not isinstance(schema, Mapping):
        raise _UnfitSchema(f"it is {type(schema).__name__}; a JSON object is needed")
    if (depth := _depth(cast("object", schema))) > MAX_DEPTH:
        raise _UnfitSchema(f"it is nested more than {depth - 1} deep; the most is {MAX_DEPTH}")
    try:
        text = orjson.dumps(schema)
    except TypeError as error:
        raise _UnfitSchema(f"it is not valid JSON ({error})") from None
    if len(text) > MAX_SCHEMA:
        raise _UnfitSchema(f"it has {len(text):,} bytes; the most is {MAX_SCHEMA:,}")
    return orjson.loads(text)


def _depth(value: object) -> int:
    """Return how deep a value is nested, looking no deeper than one may be."""
    level: list[object] = [value]
    depth = seen = 0
    while level and depth <= MAX_DEPTH:
        depth += 1
        inner: list[object] = []
        for node in level:
            if isinstance(node, Mapping):
                inner.extend(cast("Mapping[str, object]", node).values())
            elif isinstance(node, list | tuple):
                inner.extend(cast("Iterable[object]", node))
        seen += len(inner)
        if seen > MAX_SCHEMA:  # it contains itself more than once, or is far too long
            return MAX_DEPTH + 1
        level = [
            cast("object", child) for child in inner if isinstance(child, Mapping | list | tuple)
        ]
    return depth


def _check_keywords(schema: Node) -> None:
    patterns: list[tuple[str, str]] = []
    is_open = names_by_pattern = False
    for where, node in _nodes(schema):
        for keyword in _UNSUPPORTED:
            if keyword in node:
                raise _UnfitSchema(f"{where} has {keyword}, which is not supported")
        for keyword in ("$id", "id", "$schema"):
            if node is not schema and isinstance(node.get(keyword), str):
                raise _UnfitSchema(f"{where} has its own {keyword}, which changes what $ref means")
        for keyword in _LEAST:
            least = node.get(keyword)
            if isinstance(least, int | float) and least > MAX_LEAST:
                raise _UnfitSchema(f"{where} has {keyword} {least:,}; the most is {MAX_LEAST:,}")
        reference = node.get("$ref")
        if isinstance(reference, str):
            if not reference.startswith("#") or (reference != "#" and reference[1:2] != "/"):
                problem = f"{where} refers to {_quoted(reference)}"
                raise _UnfitSchema(f"{problem}; only '#/…' within the schema is followed")
            if not isinstance(_follow_pointer(schema, reference), dict | bool):
                raise _UnfitSchema(f"{where} refers to {_quoted(reference)}, which is not a schema")
        patterns += [(where, pattern) for pattern in _patterns(node)]
        is_open = is_open or "unevaluatedProperties" in node
        names_by_pattern = names_by_pattern or "patternProperties" in node
    if is_open and names_by_pattern:
        raise _UnfitSchema("unevaluatedProperties beside patternProperties is not supported")
    _check_patterns(patterns)


def _check_patterns(patterns: Sequence[tuple[str, str]]) -> None:
    if len(patterns) > MAX_PATTERNS:
        raise _UnfitSchema(f"it has {len(patterns):,} patterns; the most is {MAX_PATTERNS}")
    size = 0
    for where, pattern in patterns:
        try:
            size += compile_pattern(pattern).size
        except InvalidPattern as error:
            raise _UnfitSchema(f"{where} has the pattern {_quoted(pattern)}: {error}") from None
        if size > _MAX_PATTERN_SIZE:
            raise _UnfitSchema(
                f"{where} has the pattern {_quoted(pattern)}, with which all patterns are too "
                "large; use lower counts"
            )


def _check_against_draft(schema: Node) -> None:
    """Hold the schema against the draft that it names, or the current one."""
    from jsonschema import FormatChecker
    from jsonschema.exceptions import SchemaError

    try:
        # The format that is left out is that of patterns, which it would compile by its own means.
        _validator_class(schema).check_schema(schema, format_checker=FormatChecker(formats=()))
    except SchemaError as error:
        raise _UnfitSchema(f"at {error.json_path}, {str(error.message)[:200]}") from None
    except RecursionError:
        raise _UnfitSchema("it is nested too deeply") from None


def _check_termination(schema: Node) -> None:
    """Refuse references that lead in a circle without going deeper, or unfold without end."""
    costs: dict[int, int] = {}

    def cost(node: object, above: frozenset[int]) -> int:
        if not isinstance(node, dict):
            return 1
        here = id(cast("object", node))
        if here in above:
            raise _UnfitSchema("a $ref refers to itself, so it could never be checked")
        if here not in costs:
            known = cast("Node", node)
            inner = [known[keyword] for keyword in _SINGLE_SCHEMA if keyword in known]
            inner += [each for keyword in _SCHEMA_LISTS for each in known.get(keyword, ())]
            for keyword in ("dependentSchemas", "dependencies"):
                inner += list(cast("Node", known.get(keyword, {})).values())
            if isinstance(known.get("$ref"), str):
                inner.append(_follow_pointer(schema, known["$ref"]))
            costs[here] = 1 + sum(cost(each, above | {here}) for each in inner)
            if costs[here] > _MAX_EXPANDED:
                raise _UnfitSchema(f"its references unfold into more than {_MAX_EXPANDED:,} parts")
        return costs[here]

    try:
        for _, node in _nodes(schema):
            cost(node, frozenset())
    except RecursionError:
        raise _UnfitSchema("its references are nested too deeply") from None


# -- walking --------------------------------------------------------------------------------------


def _nodes(schema: Node) -> Iterator[tuple[str, Node]]:
    """Yield every schema within a schema once, with where it stands; also what a $ref names."""
    waiting: list[tuple[str, object]] = [("the schema", schema)]
    seen: set[int] = set()
    while waiting:
        where, node = waiting.pop()
        if isinstance(node, list):
            for index, child in enumerate(cast("list[object]", node)):
                waiting.append((f"{where}[{index}]", child))
            continue
        if not isinstance(node, dict) or id(cast("object", node)) in seen:
            continue
        known = cast("Node", node)
        seen.add(id(known))
        yield where, known
        if isinstance(known.get("$ref"), str):
            waiting.append((known["$ref"][:80], _follow_pointer(schema, known["$ref"])))
        at = "" if where == "the schema" else f"{where}."
        direct = (*_SINGLE_SCHEMA, *_SCHEMA_LISTS, *_INNER_SCHEMA)
        waiting += [(f"{at}{keyword}", known[keyword]) for keyword in direct if keyword in known]
        for keyword in (*_SCHEMA_MAPS, "dependentSchemas", "dependencies"):
            inner = known.get(keyword)
            if isinstance(inner, dict):
                for key, value in cast("Node", inner).items():
                    waiting.append((f"{at}{keyword}.{key[:40]}", value))


def _follow_pointer(schema: Mapping[str, Any], reference: str) -> object:
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


def _resolve_refs(node: object, schema: Mapping[str, Any]) -> object:
    for _ in range(MAX_DEPTH):
        if not isinstance(node, dict) or not isinstance(cast("Node", node).get("$ref"), str):
            return cast("object", node)
        node = _follow_pointer(schema, cast("Node", node)["$ref"])
    return None


def _patterns(node: Node) -> Iterator[str]:
    if isinstance(node.get("pattern"), str):
        yield node["pattern"]
    named = node.get("patternProperties")
    if isinstance(named, dict):
        yield from cast("Node", named)


# -- arguments against a schema -------------------------------------------------------------------


class _TooManyChecks(Exception):
    """Checking takes longer than it may."""


_COMPILING = 100
"""How much more work it is to compile a part of a pattern than to match it."""


class _Checks:
    """What may still be done for one value, and the patterns of its schema."""

    def __init__(self) -> None:
        self._left = MAX_CHECKS
        self._work_left = MAX_WORK
        self._patterns: dict[str, RegularExpression] = {}

    def count(self) -> None:
        """Count one keyword that is looked at."""
        self._left -= 1
        if self._left < 0:
            raise _TooManyChecks(
                f"they take more than {MAX_CHECKS:,} checks; use simpler arguments"
            )

    def matches(self, pattern: str, text: str) -> bool:
        """Tell whether a pattern matches anywhere in a text."""
        compiled = self._patterns.get(pattern)
        if compiled is None:
            compiled = self._patterns[pattern] = compile_pattern(pattern)
            self._work_left -= compiled.size * _COMPILING
        self._work_left -= compiled.work(text)
        if self._work_left < 0:
            raise _TooManyChecks(f"the pattern {_quoted(pattern)} takes too long on them")
        return compiled.search(text)


_checks: ContextVar[_Checks] = ContextVar("checks")


def _validator_class(schema: Mapping[str, Any]) -> Any:
    from jsonschema.validators import Draft202012Validator, validator_for

    return validator_for(schema, default=Draft202012Validator)


def _validator(schema: Mapping[str, Any]) -> Any:
    """Return a validator that gives up after `MAX_CHECKS` or a pattern that takes too long."""
    from referencing import Registry

    nothing: Registry[Any] = Registry()
    bare = {key: value for key, value in schema.items() if key != "$schema"}
    _checks.set(_Checks())
    # Without a registry of its own, jsonschema would fetch what a $ref names from the network.
    return _bounded_validator(_validator_class(schema))(bare, registry=nothing)


@cache
def _bounded_validator(kind: Any) -> Any:
    from jsonschema import validators

    extend = cast("Callable[..., Any]", cast("Any", validators).extend)
    # The library matches patterns by backtracking, and compares items each with each.
    own: dict[str, Any] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
    }
    keywords = {**kind.VALIDATORS, **own}
    return extend(kind, {key: _counted(check) for key, check in keywords.items()})


def _counted(check: Callable[..., Any]) -> Callable[..., Any]:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        _checks.get().count()
        return check(validator, value, instance, schema)

    return counted


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if isinstance(instance, str) and not _checks.get().matches(pattern, instance):
        yield ValidationError(f"{_quoted(instance)} does not match {_quoted(pattern)}")


def _pattern_properties(validator: Any, named: Node, instance: Any, _: Any) -> Iterator[Any]:
    if isinstance(instance, dict):
        for pattern, inner in named.items():
            for key, value in cast("Node", instance).items():
                if _checks.get().matches(pattern, key):
                    yield from validator.descend(value, inner, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, inner: Any, instance: Any, schema: Node
) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if not isinstance(instance, dict):
        return
    patterns: Node = schema.get("patternProperties", {})
    for key, value in cast("Node", instance).items():
        if key in schema.get("properties", {}):
            continue
        if any(_checks.get().matches(pattern, key) for pattern in patterns):
            continue
        if isinstance(inner, dict):
            yield from validator.descend(value, inner, path=key)
        elif not inner:
            yield ValidationError(
                f"Additional properties are not allowed ({_quoted(key)} was unexpected)"
            )


def _unique_items(_: Any, wanted: Any, instance: Any, __: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if wanted and isinstance(instance, list):
        items = cast("list[object]", instance)
        if len({orjson.dumps(item, option=orjson.OPT_SORT_KEYS) for item in items}) < len(items):
            yield ValidationError(f"{_quoted(items)} has the same item twice")


class _UnfitSchema(Exception):
    """Values cannot be held against a schema; it says why."""


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


# -- a tool with a schema --------------------------------------------------------------------------

RunCall = Callable[[ToolContext, dict[str, Any]], Awaitable[Any]]
"""Carries a call out, with arguments that fit the schema; what it returns is the result."""

MAX_DESCRIPTION = 4_000


class SchemaTool(Tool):
    """A tool made of a JSON schema: from a server, or registered by a person."""

    def __init__(
        self,
        name: str,
        description: str,
        schema: Mapping[str, Any] | None,
        call: RunCall,
        *,
        retry_safety: RetrySafety = RetrySafety.UNKNOWN,
        trust: Trust | None = Trust.TOOL,
        effects: Declared | None = None,
        timeout: float | None = None,
        ask: bool = False,
        compact: bool = False,
        audience: str = OWNER,
        definition: Any = None,
    ) -> None:
        """Check name and schema, raising `InvalidInput` for what models or vendors cannot take."""
        self.schema = checked_schema(checked_tool_name(name), schema)

        async def carry_out(ctx: ToolContext) -> str:
            raise NotImplementedError  # `run` below goes another way

        super().__init__(
            carry_out,
            name=name,
            retry_safety=retry_safety,
            check=None,
            ask=ask,
            timeout=timeout,
            trust=trust,
            compact=compact,
            effects=effects,
            audience=audience,
        )
        self._call = call
        self.definition = [self.schema, definition]
        self.description = _clean_description(description)

    def wire(self) -> dict[str, Any]:
        """Return the description that models are given."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": schema_for_model(self.schema),
            },
        }

    def read(self, arguments: str) -> dict[str, Any]:
        """Return the arguments of a call, held against the schema; `ToolError` if unfit."""
        known = read_object(self.name, arguments)
        if faults := argument_faults(self.schema, known):
            raise ToolError(
                f"The arguments do not fit {self.name}: {'; '.join(faults)}. "
                "Correct them and call it again."
            )
        return known

    async def run(self, context: ToolContext, arguments: dict[str, Any]) -> str:
        """Carry the call out and return its result as text."""
        return as_text(await self._call(context, arguments))


class ClientTool(SchemaTool):
    """A tool of the program that sent a message: it carries out the calls itself.

    Nothing happens here, so it has no effects to be judged by; what the program does with a call is
    decided there. A policy that names the tool holds all the same.
    """

    def __init__(self, name: str, description: str, schema: Mapping[str, Any] | None) -> None:
        """Check name and schema, raising `InvalidInput` for what models or vendors cannot take."""

        async def call(context: ToolContext, arguments: dict[str, Any]) -> str:
            del context, arguments
            raise ToolError(f"{name} is carried out by the program that asked, and by nobody else.")

        super().__init__(
            name,
            description,
            schema,
            call,
            effects=(),
            compact=True,
            audience="public",
        )

    @staticmethod
    def from_wire(described: Mapping[str, Any]) -> ClientTool:
        """Return the tool that a description for models is about."""
        function: Mapping[str, Any] = described["function"]
        return ClientTool(
            function["name"], function.get("description") or "", function.get("parameters")
        )


def _clean_description(text: str) -> str:
    """Return a description that can be sent; a lone surrogate or a control character cannot."""
    clean = "".join(
        char for char in text.encode("utf-8", "replace").decode() if char >= " " or char in "\n\t"
    ).strip()
    if len(clean) <= MAX_DESCRIPTION:
        return clean
    return f"{clean[: MAX_DESCRIPTION - 1]}…"


# -- registered tools ------------------------------------------------------------------------------

MAX_SOURCE = 100_000
MAX_RESULT = 100_000
_MAX_SECONDS = 600.0
_UNCHANGED = "Nothing was changed."
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_IN_ADDRESS = ("GET", "DELETE")
_RESERVED = "%:/?#[]@!$&'()*+,;="
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")

RevealSecret = Callable[[str], str]
"""Returns what a text such as `secret:NAME` stands for."""

# What it prints goes before the mark; the result after it.
_RUNNER = """
import asyncio, inspect, json, sys
given = json.load(sys.stdin)
names = {"__name__": "tool"}
try:
    exec(compile(given["source"], given["name"] + ".py", "exec"), names)
    value = names["run"](**given["arguments"])
    if inspect.iscoroutine(value):
        value = asyncio.run(value)
    text = json.dumps({"value": value}, allow_nan=False)
except BaseException as error:
    import traceback
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if frame.filename == given["name"] + ".py"]
    where = f" in line {lines[-1]}" if lines else ""
    text = json.dumps({"error": f"{type(error).__name__}{where}: {error}"[:2000]})
sys.stdout.flush()
sys.stderr.flush()
print("\\n" + given["mark"] + text, flush=True)
"""


def checked_spec(spec: ToolSpec) -> ToolSpec:
    """Return a tool that can be registered; raise `InvalidInput` with the reason if it cannot."""
    name = checked_tool_name(spec.name)
    checked_schema(name, spec.schema)
    if (spec.python is None) == (spec.http is None):
        raise _invalid_tool(name, "it needs exactly one of Python source and an address")
    if not spec.description.strip():
        raise _invalid_tool(
            name, "it has no description; a model needs one to know when to call it"
        )
    if not 0 < spec.timeout <= _MAX_SECONDS:
        raise _invalid_tool(
            name, f"its timeout is {spec.timeout:g}; up to {_MAX_SECONDS:g} s are needed"
        )
    if spec.retry_safety not in ("unknown", "repeatable"):
        raise _invalid_tool(
            name, f'its retry safety is {spec.retry_safety!r}; it can be "unknown" or "repeatable"'
        )
    if spec.trust not in tuple(Trust)[2:]:
        raise _invalid_tool(
            name, f"its trust is {spec.trust!r}; it can be {', '.join(tuple(Trust)[2:])}"
        )
    try:
        Audience.from_declaration(spec.audience)
    except InvalidInput as error:
        raise InvalidInput(
            f"The tool {name!r} cannot be registered: {error.reason}", outcome=_UNCHANGED
        ) from None
    _declared_effects(spec)
    if spec.python is not None:
        _check_source(name, spec.python)
    if spec.http is not None:
        _check_request(name, spec.http, spec.schema)
    return spec


def registered_tool(spec: ToolSpec, workspaces: Workspaces, reveal: RevealSecret) -> SchemaTool:
    """Return a registered tool, ready to be called."""

    async def carry(ctx: ToolContext, arguments: dict[str, Any]) -> str:
        if spec.python is not None:
            return await _run_python(spec, workspaces, ctx, arguments)
        assert spec.http is not None
        return await _send_request(spec, spec.http, workspaces, reveal, arguments)

    return SchemaTool(
        spec.name,
        spec.description,
        spec.schema,
        carry,
        retry_safety=RetrySafety(spec.retry_safety),
        trust=Trust(spec.trust),
        effects=_declared_effects(spec),
        timeout=spec.timeout + 30,
        ask=spec.ask,
        audience=spec.audience,
        definition=[spec.python, spec.http],
    )


def _declared_effects(spec: ToolSpec) -> tuple[ToolEffect, ...] | None:
    if spec.effects is None:
        return None
    effects: list[ToolEffect] = []
    for effect in spec.effects:
        try:
            effects.append(ToolEffect(**dict(effect)))
        except (TypeError, ValueError) as error:
            raise _invalid_tool(
                spec.name,
                f'its effects are not valid ({error}); write them such as {{"kind": "send", '
                '"recipients": "to", "content": "text"}}',
            ) from None
    return tuple(effects)


def _invalid_tool(name: str, reason: str) -> InvalidInput:
    return InvalidInput(f"The tool {name!r} cannot be registered: {reason}.", outcome=_UNCHANGED)


# -- Python ---------------------------------------------------------------------------------------


def _check_source(name: str, source: str) -> None:
    if len(source) > MAX_SOURCE:
        raise _invalid_tool(name, f"its source has {len(source):,} characters, of {MAX_SOURCE:,}")
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _invalid_tool(name, f"its source is not valid Python ({error})") from None
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    if not any(
        isinstance(statement, functions) and statement.name == "run" for statement in tree.body
    ):
        raise _invalid_tool(
            name, 'its source has no function "run", which gets the arguments by name'
        )


async def _run_python(
    spec: ToolSpec, workspaces: Workspaces, ctx: ToolContext, arguments: Mapping[str, Any]
) -> str:
    mark = f"result-{secrets.token_hex(16)}:"
    request = {"source": spec.python, "name": spec.name, "arguments": arguments, "mark": mark}
    try:
        box = await workspaces.sandbox()
        ran = await box.run(
            (box.python(), "-I", "-S", "-c", _RUNNER),
            workspaces.view(ctx.agent.id),
            replace(workspaces.bounds(spec.timeout), tail_bytes=MAX_RESULT),
            orjson.dumps(request),
        )
    except SandboxError as error:
        raise ToolError(error.message) from None
    printed, separator, result = ran.text.rpartition(f"\n{mark}")
    if not separator:
        from asterism.tools.builtin.shell import describe_result

        raise ToolError(
            f"{spec.name} returned no result. {describe_result(ran, spec.timeout)[-2_000:]}"
        )
    answer: dict[str, Any] = orjson.loads(result)
    if "error" in answer:
        raise ToolError(f"{spec.name} failed: {answer['error']}")
    text = as_text(answer["value"])
    return f"{text}\n(It printed: {printed[-2_000:].strip()})" if printed.strip() else text


# -- requests -------------------------------------------------------------------------------------


def _check_request(name: str, call: HttpCall, schema: Mapping[str, Any]) -> None:
    if call.method not in _METHODS:
        raise _invalid_tool(name, f"its method is {call.method!r}; it can be {', '.join(_METHODS)}")
    host = call.url.partition("//")[2].partition("/")[0].partition("?")[0]
    if not re.fullmatch(r"https?://[^\s]+", call.url) or not host:
        raise _invalid_tool(name, f"{call.url[:100]!r} is not an http or https address")
    if "{" in host or "@" in host:
        raise _invalid_tool(
            name, "the host of its address has to be fixed, without names or passwords"
        )
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    for placeholder in _placeholders(call.url):
        if placeholder not in properties:
            raise _invalid_tool(
                name, f"its address names {{{placeholder}}}, which is not a parameter"
            )
    if call.method in _IN_ADDRESS:
        placed = set(_placeholders(call.url))
        for parameter in _fixed_parameters(call.url):
            if parameter in properties and parameter not in placed:
                raise _invalid_tool(
                    name, f"its address fixes {parameter!r}, which is also a parameter"
                )
    for key, value in call.headers.items():
        if not _HEADER.fullmatch(key) or any(char < " " or char == "\x7f" for char in value):
            raise _invalid_tool(
                name, f"{key[:60]!r} is not a header name, or its value has more than one line"
            )


def _placeholders(url: str) -> list[str]:
    return _PLACEHOLDER.findall(url)


def _fixed_parameters(url: str) -> set[str]:
    """Return the names of the parameters that stand in an address itself."""
    query = url.partition("#")[0].partition("?")[2]
    return {name for name, _ in parse_qsl(query, keep_blank_values=True)}


def _fill_address(url: str, arguments: Mapping[str, Any]) -> str:
    """Return an address with arguments in place of its placeholders, each within its segment."""

    def fill(match: re.Match[str]) -> str:
        return quote(as_text(arguments.get(match[1], "")), safe="", errors="replace")

    path, mark, query = url.partition("?")
    parts: list[str] = []
    for segment in path.split("/"):
        filled = _PLACEHOLDER.sub(fill, segment)
        if filled != segment and _leaves_segment(filled):
            names = " and ".join(repr(name) for name in _placeholders(segment))
            raise ToolError(
                f"{unquote(filled)[:100]!r} cannot be used for {names}: it is one part of a path, "
                'and must not be empty or hold ".." or "." as a part. Nothing was sent.'
            )
        parts.append(filled)
    return "/".join(parts) + mark + _PLACEHOLDER.sub(fill, query)


def _leaves_segment(segment: str) -> bool:
    """Tell whether a server may take a segment for a step to another folder."""
    # Some servers decode more than once, and take an encoded slash for a slash.
    for _ in range(4):
        if any(part in (".", "..") for part in re.split(r"[/\\]", segment)):
            return True
        segment = unquote(segment)
    return not segment


async def _send_request(
    spec: ToolSpec,
    call: HttpCall,
    workspaces: Workspaces,
    reveal: RevealSecret,
    arguments: Mapping[str, Any],
) -> str:
    """Carry a call out by a request; redirects are not followed."""
    import aiohttp

    from asterism.tools.addresses import AllowedHosts, checked_url, public_resolver

    in_address = call.method in _IN_ADDRESS
    placed = set(_placeholders(call.url))
    remaining = {key: value for key, value in arguments.items() if key not in placed}
    if in_address and (fixed := sorted(_fixed_parameters(call.url) & remaining.keys())):
        raise ToolError(
            f"{fixed[0]!r} is fixed by the address of {spec.name} and cannot be set. Leave it "
            "out. Nothing was sent."
        )
    address = _fill_address(call.url, arguments)
    allowed = AllowedHosts(workspaces.settings().web.allow)
    try:
        headers = {key: reveal(value) for key, value in call.headers.items()}
    except AsterismError as error:
        raise ToolError(error.message) from None
    headers.setdefault("Content-Type", "application/json")
    query = {key: as_text(value) for key, value in remaining.items()} if in_address else {}
    url = checked_url(address, allowed)
    # As it was encoded here: yarl would decode what some servers take for more than a character.
    path = quote(urlsplit(address).path, safe=_RESERVED)
    url = url.with_path(path, encoded=True).with_query(url.query).update_query(query)
    connector = aiohttp.TCPConnector(resolver=public_resolver(allowed))
    try:
        async with (
            asyncio.timeout(spec.timeout),
            aiohttp.ClientSession(connector=connector, trust_env=False) as session,
            session.request(
                call.method,
                url,
                headers=headers,
                data=None if in_address else orjson.dumps(remaining),
                allow_redirects=False,
            ) as response,
        ):
            body = await response.content.read(MAX_RESULT)
            status = response.status
    except TimeoutError:
        raise ToolError(
            f"{spec.name} did not answer within {spec.timeout:g} s. "
            "It is unknown whether it happened."
        ) from None
    except aiohttp.ClientError as error:
        raise ToolError(f"{spec.name} could not be reached ({type(error).__name__}).") from None
    text = body.decode("utf-8", "replace")
    if status >= 300:
        raise ToolError(f"{spec.name} answered with status {status}: {text[:2_000]}")
    return text or "Done."
