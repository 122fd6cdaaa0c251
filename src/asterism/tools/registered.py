"""Registered tools: Python source that runs in the sandbox, or a request to a server."""

from __future__ import annotations

import ast
import asyncio
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import orjson

from asterism.errors import AsterismError, InvalidInput, SandboxError, ToolError
from asterism.tools.given import SchemaTool
from asterism.tools.schemas import checked_schema, checked_tool_name
from asterism.tools.tool import ToolContext, as_text
from asterism.tools.workplace import Workplace
from asterism.types.agents import HttpCall, ToolSpec
from asterism.types.effects import ToolEffect
from asterism.types.people import Audience, Trust
from asterism.types.turns import RetrySafety

LONGEST_SOURCE = 100_000
LONGEST_RESULT = 100_000
_LONGEST_TIME = 600.0
_UNCHANGED = "Nothing was changed."
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_IN_ADDRESS = ("GET", "DELETE")
_RESERVED = "%:/?#[]@!$&'()*+,;="
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")

Reveal = Callable[[str], str]
"""Returns what a text such as `secret:NAME` stands for."""

# What it prints goes before the mark; the result after it.
_CARRIER = """
import asyncio, inspect, json, sys
given = json.load(sys.stdin)
names = {"__name__": "tool"}
try:
    exec(compile(given["source"], given["name"] + ".py", "exec"), names)
    value = names["run"](**given["arguments"])
    if inspect.iscoroutine(value):
        value = asyncio.run(value)
    told = {"value": value}
    text = json.dumps(told)
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
        raise _unfit(name, "it needs either Python source or an address, and only one of them")
    if not spec.description.strip():
        raise _unfit(name, "it has no description, by which a model could know when to call it")
    if not 0 < spec.timeout <= _LONGEST_TIME:
        raise _unfit(name, f"its timeout is {spec.timeout:g}; up to {_LONGEST_TIME:g} s are needed")
    if spec.retry_safety not in ("unknown", "repeatable"):
        raise _unfit(
            name, f'its retry safety is {spec.retry_safety!r}; it can be "unknown" or "repeatable"'
        )
    if spec.trust not in tuple(Trust)[2:]:
        raise _unfit(name, f"its trust is {spec.trust!r}; it can be {', '.join(tuple(Trust)[2:])}")
    try:
        Audience.declared(spec.audience)
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


def registered_tool(spec: ToolSpec, workplace: Workplace, reveal: Reveal) -> SchemaTool:
    """Return a registered tool, ready to be called."""

    async def carry(ctx: ToolContext, arguments: dict[str, Any]) -> str:
        if spec.python is not None:
            return await _run_python(spec, workplace, ctx, arguments)
        assert spec.http is not None
        return await _request(spec, spec.http, workplace, reveal, arguments)

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
    found: list[ToolEffect] = []
    for one in spec.effects:
        try:
            found.append(ToolEffect(**dict(one)))
        except (TypeError, ValueError) as error:
            raise _unfit(
                spec.name,
                f'what it does is not understood ({error}); such as {{"kind": "send", '
                '"recipients": "to", "content": "text"}} is needed',
            ) from None
    return tuple(found)


def _unfit(name: str, reason: str) -> InvalidInput:
    return InvalidInput(f"The tool {name!r} cannot be registered: {reason}.", outcome=_UNCHANGED)


# -- Python ---------------------------------------------------------------------------------------


def _check_source(name: str, source: str) -> None:
    if len(source) > LONGEST_SOURCE:
        raise _unfit(name, f"its source has {len(source):,} characters, of {LONGEST_SOURCE:,}")
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _unfit(name, f"its source is no Python ({error})") from None
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    if not any(isinstance(one, functions) and one.name == "run" for one in tree.body):
        raise _unfit(name, 'its source has no function "run", which gets the arguments by name')


async def _run_python(
    spec: ToolSpec, workplace: Workplace, ctx: ToolContext, arguments: Mapping[str, Any]
) -> str:
    mark = f"result-{secrets.token_hex(16)}:"
    given = {"source": spec.python, "name": spec.name, "arguments": arguments, "mark": mark}
    try:
        box = await workplace.sandbox()
        ran = await box.run(
            (box.python(), "-I", "-S", "-c", _CARRIER),
            workplace.view(ctx.agent.id),
            replace(workplace.bounds(spec.timeout), kept=LONGEST_RESULT),
            orjson.dumps(given),
        )
    except SandboxError as error:
        raise ToolError(error.message) from None
    printed, found, result = ran.text.rpartition(f"\n{mark}")
    if not found:
        from asterism.tools.shell import told

        raise ToolError(f"{spec.name} gave no result. {told(ran, spec.timeout)[-2_000:]}")
    answer: dict[str, Any] = orjson.loads(result)
    if "error" in answer:
        raise ToolError(f"{spec.name} failed: {answer['error']}")
    text = as_text(answer["value"])
    return f"{text}\n(It printed: {printed[-2_000:].strip()})" if printed.strip() else text


# -- requests -------------------------------------------------------------------------------------


def _check_request(name: str, call: HttpCall, schema: Mapping[str, Any]) -> None:
    if call.method not in _METHODS:
        raise _unfit(name, f"its method is {call.method!r}; it can be {', '.join(_METHODS)}")
    host = call.url.partition("//")[2].partition("/")[0].partition("?")[0]
    if not re.fullmatch(r"https?://[^\s]+", call.url) or not host:
        raise _unfit(name, f"{call.url[:100]!r} is no http or https address")
    if "{" in host or "@" in host:
        raise _unfit(name, "the host of its address has to be fixed, without names or passwords")
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    for one in _placeholders(call.url):
        if one not in properties:
            raise _unfit(name, f"its address names {{{one}}}, which is no parameter")
    if call.method in _IN_ADDRESS:
        placed = set(_placeholders(call.url))
        for one in _fixed(call.url):
            if one in properties and one not in placed:
                raise _unfit(name, f"its address fixes {one!r}, which is also a parameter")
    for key, value in call.headers.items():
        if not _HEADER.fullmatch(key) or any(char < " " or char == "\x7f" for char in value):
            raise _unfit(name, f"{key[:60]!r} is no header, or its value has more than one line")


def _placeholders(url: str) -> list[str]:
    return _PLACEHOLDER.findall(url)


def _fixed(url: str) -> set[str]:
    """Return the names of the parameters that stand in an address itself."""
    query = url.partition("#")[0].partition("?")[2]
    return {name for name, _ in parse_qsl(query, keep_blank_values=True)}


def _filled_in(url: str, arguments: Mapping[str, Any]) -> str:
    """Return an address with arguments in place of its placeholders, each within its segment."""

    def fill(found: re.Match[str]) -> str:
        return quote(as_text(arguments.get(found[1], "")), safe="", errors="replace")

    path, mark, query = url.partition("?")
    parts: list[str] = []
    for segment in path.split("/"):
        filled = _PLACEHOLDER.sub(fill, segment)
        if filled != segment and _leaves_its_place(filled):
            names = " and ".join(repr(one) for one in _placeholders(segment))
            raise ToolError(
                f"{unquote(filled)[:100]!r} cannot be used for {names}: it is one part of a path, "
                'and must not be empty or hold ".." or "." as a part. Nothing was sent.'
            )
        parts.append(filled)
    return "/".join(parts) + mark + _PLACEHOLDER.sub(fill, query)


def _leaves_its_place(segment: str) -> bool:
    """Tell whether a server may take a segment for a step to another folder."""
    # Some servers decode more than once, and take an encoded slash for a slash.
    for _ in range(4):
        if any(part in (".", "..") for part in re.split(r"[/\\]", segment)):
            return True
        segment = unquote(segment)
    return not segment


async def _request(
    spec: ToolSpec,
    call: HttpCall,
    workplace: Workplace,
    reveal: Reveal,
    arguments: Mapping[str, Any],
) -> str:
    """Carry a call out by a request; redirects are not followed."""
    import aiohttp

    from asterism.tools.addresses import Allowed, checked, resolver

    in_address = call.method in _IN_ADDRESS
    placed = set(_placeholders(call.url))
    left = {key: value for key, value in arguments.items() if key not in placed}
    if in_address and (fixed := sorted(_fixed(call.url) & left.keys())):
        raise ToolError(
            f"{fixed[0]!r} is fixed by the address of {spec.name} and cannot be given. Leave it "
            "out. Nothing was sent."
        )
    address = _filled_in(call.url, arguments)
    allowed = Allowed(workplace.settings().web.allow)
    try:
        headers = {key: reveal(value) for key, value in call.headers.items()}
    except AsterismError as error:
        raise ToolError(error.message) from None
    headers.setdefault("Content-Type", "application/json")
    query = {key: as_text(value) for key, value in left.items()} if in_address else {}
    url = checked(address, allowed)
    # As it was encoded here: yarl would decode what some servers take for more than a character.
    path = quote(urlsplit(address).path, safe=_RESERVED)
    url = url.with_path(path, encoded=True).with_query(url.query).update_query(query)
    connector = aiohttp.TCPConnector(resolver=resolver(allowed))
    try:
        async with (
            asyncio.timeout(spec.timeout),
            aiohttp.ClientSession(connector=connector, trust_env=False) as session,
            session.request(
                call.method,
                url,
                headers=headers,
                data=None if in_address else orjson.dumps(left),
                allow_redirects=False,
            ) as response,
        ):
            body = await response.content.read(LONGEST_RESULT)
            status = response.status
    except TimeoutError:
        raise ToolError(
            f"{spec.name} did not answer within {spec.timeout:g} s. Whether it happened is unknown."
        ) from None
    except aiohttp.ClientError as error:
        raise ToolError(f"{spec.name} could not be reached ({type(error).__name__}).") from None
    text = body.decode("utf-8", "replace")
    if status >= 300:
        raise ToolError(f"{spec.name} answered with status {status}: {text[:2_000]}")
    return text or "Done."
