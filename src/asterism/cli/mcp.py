"""`asterism mcp`: servers whose tools agents may call."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from asterism.cli.given import read_bytes
from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.output import Column, Output
from asterism.cli.text import plural
from asterism.errors import (
    AsterismError,
    Conflict,
    InvalidInput,
    StoreInUse,
    StoreMissing,
    StoreReadOnly,
)
from asterism.times import local_short

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.mcp import ImportedServer
    from asterism.tools.mcp.clients import McpServerStatus
    from asterism.tools.mcp.tools import McpTool

T = TypeVar("T")

app = group("Connect MCP servers, whose tools agents may call.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="A server, by its name.")]


@command(app, "list")
def list_servers(
    options: Options,
    check: Annotated[
        bool, typer.Option("--check", help="Connect with each and ask for its tools.")
    ] = False,
) -> None:
    """Show the servers that are configured, and how many tools each offers."""

    async def errand(home: Asterism) -> list[tuple[McpServerStatus, str]]:
        return list(await asyncio.gather(*(_stands(home, one, check) for one in home.mcp.list())))

    found = _ask(options, errand) if check else _look(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data([_described(one, trouble) for one, trouble in found])
        return
    columns: list[Column[tuple[McpServerStatus, str]]] = [
        Column("server", lambda one: one[0].name),
        Column("reached by", lambda one: one[0].settings.transport, least=80),
        Column("tools", lambda one: _count(one[0])),
        Column("asked", lambda one: local_short(one[0].listing.at) if one[0].listing else "never"),
        Column("state", lambda one: _state(*one), prose=True),
    ]
    out.table(columns, found, empty='No MCP server is configured. "asterism mcp add" adds one.')


def _look(options: Options, errand: Callable[[Asterism], Awaitable[T]]) -> T:
    """Visit the home beside a running process; one that is not there yet is made."""
    try:
        return visit(options, errand, readonly=True)
    except StoreMissing:
        return visit(options, errand)


def _ask(options: Options, errand: Callable[[Asterism], Awaitable[T]]) -> T:
    """Visit the home to ask servers: a login may have to be renewed, and the new one kept.

    Beside a process that works there nothing can be kept, and so nothing is renewed.
    """
    try:
        return visit(options, errand)
    except (StoreInUse, StoreReadOnly):
        return visit(options, errand, readonly=True)


async def _stands(home: Asterism, one: McpServerStatus, check: bool) -> tuple[McpServerStatus, str]:
    if not check or not one.settings.enabled:
        return one, one.problem
    try:
        return await home.mcp.ask(one.name), ""
    except AsterismError as error:
        return one, error.message


def _count(one: McpServerStatus) -> str:
    return f"{one.offered} of {len(one.tools)}" if one.listing else "?"


def _state(one: McpServerStatus, trouble: str) -> str:
    if not one.settings.enabled:
        return "off"
    return trouble or ("known" if one.listing else "not asked yet")


def _described(one: McpServerStatus, trouble: str) -> dict[str, Any]:
    return {
        "name": one.name,
        "transport": one.settings.transport,
        "enabled": one.settings.enabled,
        "tools": one.offered,
        "refused": sum(bool(offer.refused) for offer in one.tools),
        "asked_at": one.listing.at if one.listing else None,
        "protocol": one.listing.protocol if one.listing else None,
        "server": one.listing.server if one.listing else None,
        "problem": trouble or None,
    }


@command(app, "tools")
def tools(options: Options, name: Name) -> None:
    """Ask a server for its tools: what each is called here, or why it is not offered."""

    async def errand(home: Asterism) -> McpServerStatus:
        return await home.mcp.ask(name)

    found = _ask(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data([_offered(one) for one in found.tools])
        return
    columns: list[Column[McpTool]] = [
        Column("tool", lambda one: one.own_name[:80]),
        Column("offered as", lambda one: one.name),
        Column("effects", _effects_of, least=80),
        Column("asks", lambda one: "yes" if one.tool and one.tool.ask else "", least=80),
        Column("what it is for", _about, prose=True),
    ]
    out.table(columns, found.tools, empty=f"MCP server {name!r} has no tools.")


def _effects_of(one: McpTool) -> str:
    if one.tool is None:
        return ""
    return ", ".join(str(effect.kind) for effect in one.tool.effects({}))


def _about(one: McpTool) -> str:
    if one.tool is None:
        return f"Not offered: {one.refused}."
    return one.tool.description.partition("\n")[0][:200]


def _offered(one: McpTool) -> dict[str, Any]:
    found: dict[str, Any] = {"tool": one.own_name, "name": one.name or None}
    if one.tool is None:
        return {**found, "refused": one.refused}
    effects = [str(effect.kind) for effect in one.tool.effects({})]
    return {
        **found,
        **one.tool.wire()["function"],
        "effects": effects,
        "ask": one.tool.ask,
        "retry_safety": one.tool.retry_safety,
        "trust": one.tool.trust,
    }


@command(app, "add")
def add(
    options: Options,
    name: Name,
    where: Annotated[
        list[str],
        typer.Argument(
            metavar="WHERE", help="An address, or a program with its arguments (put -- before it)."
        ),
    ],
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="A variable for the program."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="A header for requests."),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option("--prefix", metavar="TEXT", help="What its tools' names begin with here."),
    ] = None,
    ask: Annotated[
        bool, typer.Option("--ask", help="Have each call of its tools approved by a person.")
    ] = False,
    trust_annotations: Annotated[
        bool, typer.Option("--trust-annotations", help="Believe what the server says its tools do.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Take the place of a server of this name.")
    ] = False,
) -> None:
    """Add a server to the configuration. It is asked for its tools when asterism runs."""
    from asterism.app.mcp import check_server

    table: dict[str, Any] = {}
    if where[0].startswith(("http://", "https://")):
        if len(where) > 1:
            raise InvalidInput(
                f"Behind the address there is {where[1]!r}. Give one address, or a program. "
                "Nothing was changed."
            )
        table["url"] = where[0]
    else:
        table["command"] = where[0]
        if where[1:]:
            table["args"] = list(where[1:])
    for key, given in (("env", env), ("headers", header)):
        if given:
            table[key] = dict(_pair(one) for one in given)
    table |= {} if prefix is None else {"prefix": prefix}
    table |= {"ask": True} if ask else {}
    table |= {"trust_annotations": True} if trust_annotations else {}
    check_server(table)
    file = _write(options, {_checked(name): table}, replace=replace)
    out = Output(json=options.json)
    if out.json:
        out.data({"name": name, **{key: value for key, value in table.items() if key != "env"}})
    else:
        out.line(f'{name} is in {file}. "asterism mcp tools {name}" shows what it offers.')


def _checked(name: str) -> str:
    from asterism.config.settings import SERVER_NAME

    if not SERVER_NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r} cannot name a server: 1 to 32 of a-z, A-Z, 0-9, _ and - are needed, such as "
            "'github'. Nothing was changed."
        )
    return name


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise InvalidInput(f"{text[:40]!r} is not NAME=VALUE. Nothing was changed.")
    return name, value


def _write(options: Options, tables: dict[str, dict[str, Any]], *, replace: bool) -> Path:
    from asterism.config import load
    from asterism.config.edit import save

    there = load(options.place, options.config, os.environ).mcp
    taken = [name for name in tables if name in there]
    if taken and not replace:
        raise Conflict(
            f"There is an MCP server {taken[0]!r} already. Choose another name, or give --replace. "
            "Nothing was changed."
        )
    changes: dict[tuple[str | int, ...], object] = {
        ("mcp", name): table for name, table in tables.items()
    }
    return save(options.place, options.config, os.environ, changes)


@command(app, "remove")
def remove(options: Options, name: Name) -> None:
    """Take a server out of the configuration, and forget its tools and the login at it."""
    from asterism.config.edit import save

    async def errand(home: Asterism) -> bool:
        home.mcp.configured(name)
        await home.mcp.forget(name)
        return len(home.settings.mcp) == 1

    key = ("mcp",) if visit(options, errand) else ("mcp", name)
    file = save(options.place, options.config, os.environ, {key: None})
    out = Output(json=options.json)
    if out.json:
        out.data({"name": name})
    else:
        out.line(f"{name} is removed from {file}.")


@command(app, "import")
def import_servers(
    options: Options,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Such as .mcp.json, claude_desktop_config.json, .vscode/mcp.json."
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be imported.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Take the place of servers of the same names.")
    ] = False,
) -> None:
    """Take over the servers that another program is configured for.

    Tokens and keys in the file are stored encrypted; the configuration only names them.
    """
    from asterism.app.mcp import read_foreign
    from asterism.config import load

    if file.exists():
        read_bytes(file)  # says so if it is no regular file, or has no end
    there = load(options.place, options.config, os.environ).mcp
    found = [_fitting(one, there, replace=replace) for one in read_foreign(file)]
    taken = [one for one in found if not one.refused]
    if taken and not dry_run:
        secrets = {key: value for one in taken for key, value in one.secrets.items()}

        async def errand(home: Asterism) -> None:
            for key, value in secrets.items():
                await home.keys.set(key, value, by="cli")

        if secrets:
            visit(options, errand)
        _write(options, {one.name: one.table for one in taken}, replace=True)
    out = Output(json=options.json)
    if out.json:
        out.data([_reported(one, dry_run=dry_run) for one in found])
        return
    rows = [(one.name, one.refused or "; ".join(one.notes) or "as it is") for one in found]
    out.grid([("server", "what becomes of it"), *rows] if rows else [("no", "servers in the file")])
    done = "would be" if dry_run else "were"
    out.line(f"{plural(len(taken), 'server')} of {len(found)} {done} imported.")


def _fitting(one: ImportedServer, there: Any, *, replace: bool) -> ImportedServer:
    """Refuse what is there already, or what its own file has wrong."""
    import dataclasses

    from asterism.app.mcp import check_server

    if one.refused:
        return one
    if one.name in there and not replace:
        taken = "not imported: there is one of this name already; --replace takes its place"
        return dataclasses.replace(one, refused=taken)
    try:
        check_server(one.table)
    except AsterismError as error:
        return dataclasses.replace(one, refused=error.message)
    return one


def _reported(one: ImportedServer, *, dry_run: bool) -> dict[str, Any]:
    return {
        "name": one.name,
        "imported": not one.refused and not dry_run,
        "refused": one.refused or None,
        "notes": list(one.notes),
        "keys": sorted(one.secrets),
    }


@command(app, "login")
def login(
    options: Options,
    name: Name,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address, and open no browser.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", help="The port that the browser comes back to."),
    ] = None,
) -> None:
    """Log in at a server with a browser; the tokens are stored encrypted."""

    async def show(address: str) -> None:
        typer.echo(f"Log in here, in a browser on this machine:\n\n  {address}\n", err=True)
        if not no_browser:
            import webbrowser

            await asyncio.to_thread(webbrowser.open, address)

    async def errand(home: Asterism) -> int:
        return len((await home.mcp.login(name, show, port=port)).tools)

    count = visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data({"name": name, "tools": count})
    else:
        out.line(f"You are logged in at {name}, which has {plural(count, 'tool')}.")
