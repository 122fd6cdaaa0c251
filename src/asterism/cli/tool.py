"""`asterism tool`: functions that agents may call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from asterism.cli.given import read_text
from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.output import Column, Output
from asterism.errors import InvalidInput
from asterism.times import local_short

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.agents import RegisteredTool

app = group("See the tools there are, and register your own.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tool's name.")]


@command(app, "list")
def list_tools(options: Options) -> None:
    """Show the tools there are, and what a crash in the middle of each means."""

    async def errand(home: Asterism) -> list[dict[str, Any]]:
        return [_described(home, name) for name in home.toolbox.names()]

    found = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data(found)
        return
    columns: list[Column[dict[str, Any]]] = [
        Column("tool", lambda one: one["name"]),
        Column("retry safety", lambda one: one["retry_safety"]),
        Column("asks", lambda one: "yes" if one["ask"] else "", least=80),
        Column("what it does", lambda one: one["description"].partition("\n")[0], prose=True),
    ]
    out.table(columns, found, empty="There are no tools.")


def _described(home: Asterism, name: str) -> dict[str, Any]:
    # Some are for agents only that name them.
    tool = home.toolbox.get(name, (name,))
    assert tool is not None
    return {**tool.wire()["function"], "retry_safety": tool.retry_safety, "ask": tool.ask}


@command(app, "add")
def add(
    options: Options,
    name: Name,
    schema: Annotated[
        Path, typer.Option("--schema", metavar="FILE", help="A JSON schema of its parameters.")
    ],
    description: Annotated[
        str, typer.Option("--description", metavar="TEXT", help="What it does, for models.")
    ] = "",
    python: Annotated[
        Path | None,
        typer.Option("--python", metavar="FILE", help="Source with a function run."),
    ] = None,
    http: Annotated[
        str | None, typer.Option("--http", metavar="URL", help="An address, instead of source.")
    ] = None,
    method: Annotated[
        str, typer.Option("--method", metavar="WORD", help="GET, POST, PUT, PATCH or DELETE.")
    ] = "POST",
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help='Such as "X-Key=secret:shop".'),
    ] = None,
    effect: Annotated[
        list[str] | None,
        typer.Option(
            "--effect", metavar="JSON", help='Such as {"kind": "send", "recipients": "to"}.'
        ),
    ] = None,
    trust: Annotated[
        str, typer.Option("--trust", metavar="LEVEL", help="How far its results are trusted.")
    ] = "tool",
    retry_safety: Annotated[
        str, typer.Option("--retry-safety", metavar="WORD", help="unknown or repeatable.")
    ] = "unknown",
    ask: Annotated[bool, typer.Option("--ask", help="Ask a person before each call.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long a call may take.")
    ] = 30.0,
    audience: Annotated[
        str, typer.Option("--audience", metavar="WHO", help="Who may see its results.")
    ] = "owner",
) -> None:
    """Register a tool, or a new version of one: Python that runs in the sandbox, or a request."""
    from asterism.types.agents import HttpCall

    form: Any = _json_of(read_text(schema), str(schema))
    if not isinstance(form, dict):
        raise InvalidInput(f"{schema} holds no JSON object, and so no schema. Nothing was changed.")
    known = cast("dict[str, Any]", form)
    told = description or str(known.get("description", ""))
    pairs = dict(_pair(one) for one in header or ())
    call = HttpCall(http, method.upper(), pairs) if http else None
    declared = [_json_of(text, "--effect") for text in effect] if effect else None
    source = read_text(python) if python else None

    async def errand(home: Asterism) -> RegisteredTool:
        return await home.tools.add(
            name,
            told,
            known,
            python=source,
            http=call,
            effects=declared,
            trust=trust,
            retry_safety=retry_safety,
            ask=ask,
            timeout=timeout,
            audience=audience,
            by="cli",
        )

    made = visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data({"name": name, "version": made.version})
    else:
        out.line(f"Registered {name}, version {made.version}.")


@command(app, "show")
def show(options: Options, name: Name) -> None:
    """Show all versions of a registered tool."""

    async def errand(home: Asterism) -> list[RegisteredTool]:
        return await home.tools.versions(name)

    found = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        from dataclasses import asdict

        out.data([asdict(one) for one in found])
        return
    for one in found:
        state = f", removed {local_short(one.removed_at)}" if one.removed_at else ""
        out.line(
            f"{name} version {one.version}, by {one.made_by}, {local_short(one.created_at)}{state}"
        )
    spec = found[0].spec
    out.line(spec.description)
    out.line(spec.python or (f"{spec.http.method} {spec.http.url}" if spec.http else ""))


@command(app, "remove")
def remove(options: Options, name: Name) -> None:
    """Offer a registered tool no more."""

    async def errand(home: Asterism) -> None:
        await home.tools.remove(name)

    visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data({"name": name})
    else:
        out.line(f"Removed {name}; its versions are kept.")


def _json_of(text: str, where: str) -> Any:
    import orjson

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"{where} is no JSON ({error}). Nothing was changed.") from None


def _pair(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found:
        raise InvalidInput(
            f"{text[:60]!r} is no header; write NAME=VALUE, such as X-Key=secret:shop. "
            "Nothing was changed."
        )
    return key.strip(), value.strip()
