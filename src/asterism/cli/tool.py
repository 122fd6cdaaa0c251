"""`asterism tool`: functions that agents may call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from asterism.cli.commands import Options, argument, command, flag, group, open_home, option
from asterism.cli.inputs import read_json, read_pair, read_text
from asterism.cli.output import Column, ItemTable, Result
from asterism.errors import InvalidInput
from asterism.times import local_short

if TYPE_CHECKING:
    from asterism.app import Asterism

app = group("Show tools, and register your own.")

Name = Annotated[str, argument("NAME", "The tool's name.")]


@command(app, "list", example="tool list", readonly=True)
async def list_tools(home: Asterism) -> Result:
    """Show all tools, and what a crash during a call means."""
    tools = await home.tools.offered()
    columns: list[Column[dict[str, Any]]] = [
        Column("tool", lambda tool: tool["name"]),
        Column("retry safety", lambda tool: tool["retry_safety"]),
        Column("asks", lambda tool: "yes" if tool["ask"] else "", least=80),
        Column("what it does", lambda tool: tool["description"].partition("\n")[0], prose=True),
    ]
    return Result(tools, ItemTable(columns, tools, "There are no tools."))


@command(
    app, "add", example="tool add weather --schema weather.json --http https://example.com/weather"
)
async def add(
    options: Options,
    name: Name,
    schema: Annotated[Path, option("--schema", "FILE", "A JSON schema of its parameters.")],
    description: Annotated[str, option("--description", "TEXT", "What it does, for models.")] = "",
    python: Annotated[
        Path | None, option("--python", "FILE", "Source with a function run.")
    ] = None,
    http: Annotated[str | None, option("--http", "URL", "An address, instead of source.")] = None,
    method: Annotated[str, option("--method", "WORD", "GET, POST, PUT, PATCH or DELETE.")] = "POST",
    header: Annotated[
        list[str] | None, option("--header", "NAME=VALUE", 'Such as "X-Key=secret:shop".')
    ] = None,
    effect: Annotated[
        list[str] | None,
        option("--effect", "JSON", 'Such as {"kind": "send", "recipients": "to"}.'),
    ] = None,
    trust: Annotated[str, option("--trust", "LEVEL", "How far its results are trusted.")] = "tool",
    retry_safety: Annotated[
        str, option("--retry-safety", "WORD", "unknown or repeatable.")
    ] = "unknown",
    ask: Annotated[bool, flag("--ask", "Ask a person before each call.")] = False,
    seconds: Annotated[float, option("--timeout", "SECONDS", "How long a call may take.")] = 30.0,
    audience: Annotated[str, option("--audience", "WHO", "Who may see its results.")] = "owner",
) -> Result:
    """Register a tool, or a new version of one: Python that runs in the sandbox, or a request."""
    from asterism.types.agents import HttpCall

    form = read_json(read_text(schema), str(schema))
    if not isinstance(form, dict):
        raise InvalidInput(
            f"{schema} is not a JSON schema: a JSON object is needed. Nothing was changed."
        )
    parameters = cast("dict[str, Any]", form)
    headers = dict(_header(text) for text in header or ())
    source = read_text(python) if python else None
    effects = [read_json(text, "--effect") for text in effect] if effect else None
    async with open_home(options) as home:
        tool = await home.tools.add(
            name,
            description or str(parameters.get("description", "")),
            parameters,
            python=source,
            http=HttpCall(http, method.upper(), headers) if http else None,
            effects=effects,
            trust=trust,
            retry_safety=retry_safety,
            ask=ask,
            timeout=seconds,
            audience=audience,
            by="cli",
        )
    return Result(
        {"name": name, "version": tool.version}, f"Registered {name}, version {tool.version}."
    )


def _header(text: str) -> tuple[str, str]:
    name, value = read_pair(text, "a valid header; write NAME=VALUE, such as X-Key=secret:shop")
    return name, value.strip()


@command(app, "show", example="tool show shell", readonly=True)
async def show(home: Asterism, name: Name) -> Result:
    """Show all versions of a registered tool."""
    versions = await home.tools.versions(name)
    lines: list[str] = []
    for tool in versions:
        state = f", removed {local_short(tool.removed_at_ms)}" if tool.removed_at_ms else ""
        when = local_short(tool.created_at_ms)
        lines.append(f"{name} version {tool.version}, by {tool.made_by}, {when}{state}")
    spec = versions[0].spec
    source = spec.python or (f"{spec.http.method} {spec.http.url}" if spec.http else "")
    return Result(versions, *lines, spec.description, source)


@command(app, "test", example='tool test weather \'{"city": "Bonn"}\'')
async def try_out(
    options: Options,
    name: Name,
    arguments: Annotated[
        str, argument("ARGUMENTS", 'Its arguments as JSON, such as {"city": "Bonn"}.')
    ] = "{}",
) -> Result:
    """Run a registered tool once, in its sandbox, and show its result."""
    given = read_json(arguments, "ARGUMENTS")
    if not isinstance(given, dict):
        raise InvalidInput(
            f"{arguments[:80]!r} is not a JSON object of arguments; write one such as "
            '{"city": "Bonn"}. Nothing was run.'
        )
    async with open_home(options) as home:
        result = await home.tools.test(name, cast("dict[str, Any]", given))
    return Result(result, result.text, code=0 if result.state == "ok" else 1)


@command(app, "remove", example="tool remove weather")
async def remove(home: Asterism, name: Name) -> Result:
    """Stop offering a registered tool."""
    await home.tools.remove(name)
    return Result({"name": name}, f"Removed {name}; its versions are kept.")
