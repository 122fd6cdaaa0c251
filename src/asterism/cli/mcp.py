"""`asterism mcp`: servers whose tools agents may call, and asterism as a server for others."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from asterism.cli.commands import (
    Options,
    argument,
    command,
    flag,
    group,
    open_home,
    option,
    run_command,
)
from asterism.cli.inputs import read_bytes, read_pair
from asterism.cli.output import Column, Grid, ItemTable, Result, note, plural
from asterism.cli.terminal import until_stopped
from asterism.errors import (
    AsterismError,
    Conflict,
    InvalidInput,
    StoreInUse,
    StoreMissing,
    StoreReadOnly,
)
from asterism.times import local_short
from asterism.views import imported_server_view, mcp_server_view, mcp_tool_view

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.mcp import ImportedServer
    from asterism.tools.mcp.clients import McpServerStatus
    from asterism.tools.mcp.tools import McpTool

T = TypeVar("T")


def _serve_in_pipe(options: Options) -> None:
    """Do as `asterism mcp serve` does: the configuration of a client may say `asterism mcp`."""
    run_command(serve, options, {})


app = group("Connect MCP servers, whose tools agents may call, and be one.", in_pipe=_serve_in_pipe)

Name = Annotated[str, argument("NAME", "A server, by its name.")]


@command(app, "list", example="mcp list")
async def list_servers(
    options: Options,
    check: Annotated[bool, flag("--check", "Connect to each server and list its tools.")] = False,
) -> Result:
    """Show the servers that are configured, and how many tools each offers."""

    async def find(home: Asterism) -> list[tuple[McpServerStatus, str]]:
        servers = home.mcp.list()
        return await asyncio.gather(*(_status(home, server, check=check) for server in servers))

    rows = await (_in_home_to_ask(options, find) if check else _in_home_to_read(options, find))
    columns: list[Column[tuple[McpServerStatus, str]]] = [
        Column("server", lambda row: row[0].name),
        Column("reached by", lambda row: row[0].settings.transport, least=80),
        Column("tools", lambda row: _count(row[0])),
        Column(
            "asked", lambda row: local_short(row[0].listing.at_ms) if row[0].listing else "never"
        ),
        Column("state", lambda row: _state(*row), prose=True),
    ]
    empty = 'No MCP server is configured. "asterism mcp add" adds one.'
    shapes = [mcp_server_view(server, problem) for server, problem in rows]
    return Result(shapes, ItemTable(columns, rows, empty))


async def _in_home_to_read(options: Options, find: Callable[[Asterism], Awaitable[T]]) -> T:
    """Read beside a running process; a home that is not there yet is made."""
    try:
        async with open_home(options, readonly=True) as home:
            return await find(home)
    except StoreMissing:
        async with open_home(options) as home:
            return await find(home)


async def _in_home_to_ask(options: Options, find: Callable[[Asterism], Awaitable[T]]) -> T:
    """Ask servers: a login may have to be renewed, and the new one kept.

    Beside a process that works there nothing can be kept, and so nothing is renewed.
    """
    try:
        async with open_home(options) as home:
            return await find(home)
    except (StoreInUse, StoreReadOnly):
        async with open_home(options, readonly=True) as home:
            return await find(home)


async def _status(
    home: Asterism, server: McpServerStatus, *, check: bool
) -> tuple[McpServerStatus, str]:
    if not check or not server.settings.enabled:
        return server, server.problem
    try:
        return await home.mcp.ask(server.name), ""
    except AsterismError as error:
        return server, error.message


def _count(server: McpServerStatus) -> str:
    return f"{server.offered} of {len(server.tools)}" if server.listing else "?"


def _state(server: McpServerStatus, problem: str) -> str:
    if not server.settings.enabled:
        return "off"
    return problem or ("known" if server.listing else "not asked yet")


@command(app, "tools", example="mcp tools mail")
async def tools(options: Options, name: Name) -> Result:
    """Ask a server for its tools: what each is called here, or why it is not offered."""
    server = await _in_home_to_ask(options, lambda home: home.mcp.ask(name))
    columns: list[Column[McpTool]] = [
        Column("tool", lambda offered: offered.own_name[:80]),
        Column("offered as", lambda offered: offered.name),
        Column("effects", _effects, least=80),
        Column(
            "asks", lambda offered: "yes" if offered.tool and offered.tool.ask else "", least=80
        ),
        Column("what it is for", _about, prose=True),
    ]
    shapes = [mcp_tool_view(offered) for offered in server.tools]
    return Result(shapes, ItemTable(columns, server.tools, f"MCP server {name!r} has no tools."))


def _effects(offered: McpTool) -> str:
    if offered.tool is None:
        return ""
    return ", ".join(str(effect.kind) for effect in offered.tool.effects({}))


def _about(offered: McpTool) -> str:
    if offered.tool is None:
        return f"Not offered: {offered.refused}."
    return offered.tool.description.partition("\n")[0][:200]


@command(app, "add", example="mcp add mail https://example.org/mcp")
async def add(
    options: Options,
    name: Name,
    where: Annotated[
        list[str],
        argument("WHERE", "An address, or a program with its arguments (put -- before it)."),
    ],
    env: Annotated[
        list[str] | None, option("--env", "NAME=VALUE", "A variable for the program.")
    ] = None,
    header: Annotated[
        list[str] | None, option("--header", "NAME=VALUE", "A header for requests.")
    ] = None,
    prefix: Annotated[
        str | None, option("--prefix", "TEXT", "The prefix of its tools' names.")
    ] = None,
    ask: Annotated[bool, flag("--ask", "Ask a person before each call of its tools.")] = False,
    trust_annotations: Annotated[
        bool, flag("--trust-annotations", "Trust the server's description of what its tools do.")
    ] = False,
    replace: Annotated[bool, flag("--replace", "Replace a server of this name.")] = False,
) -> Result:
    """Add a server to the configuration. Its tools are listed when asterism runs."""
    from asterism.app.mcp import check_server

    table: dict[str, Any] = {}
    if where[0].startswith(("http://", "https://")):
        if len(where) > 1:
            raise InvalidInput(
                f"After the address there is {where[1]!r}. Write one address, or a program. "
                "Nothing was changed."
            )
        table["url"] = where[0]
    else:
        table["command"] = where[0]
        if where[1:]:
            table["args"] = list(where[1:])
    for key, pairs in (("env", env), ("headers", header)):
        if pairs:
            table[key] = dict(read_pair(pair, "NAME=VALUE") for pair in pairs)
    table |= {} if prefix is None else {"prefix": prefix}
    table |= {"ask": True} if ask else {}
    table |= {"trust_annotations": True} if trust_annotations else {}
    check_server(table)
    _check_name(name)
    file = _write(options, {name: table}, replace=replace)
    shape = {"name": name, **{key: value for key, value in table.items() if key != "env"}}
    return Result(shape, f'Added {name} to {file}. "asterism mcp tools {name}" shows its tools.')


def _check_name(name: str) -> None:
    from asterism.config.settings import SERVER_NAME

    if not SERVER_NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r} is not a valid server name. Use 1 to 32 of a-z, A-Z, 0-9, _ and -, "
            "such as 'github'. Nothing was changed."
        )


def _write(options: Options, tables: dict[str, dict[str, Any]], *, replace: bool) -> Path:
    from asterism.config import load
    from asterism.config.edit import save

    configured = load(options.place, options.config, os.environ).mcp
    taken = [name for name in tables if name in configured]
    if taken and not replace:
        raise Conflict(
            f"The MCP server {taken[0]!r} already exists. Choose another name, or use --replace. "
            "Nothing was changed."
        )
    changes: dict[tuple[str | int, ...], object] = {
        ("mcp", name): table for name, table in tables.items()
    }
    return save(options.place, options.config, os.environ, changes)


@command(app, "remove", example="mcp remove mail")
async def remove(options: Options, name: Name) -> Result:
    """Remove a server from the configuration, with its tools and its login."""
    from asterism.config.edit import save

    async with open_home(options) as home:
        home.mcp.configured(name)
        await home.mcp.forget(name)
        is_only = len(home.mcp.list()) == 1
    key = ("mcp",) if is_only else ("mcp", name)
    file = save(options.place, options.config, os.environ, {key: None})
    return Result({"name": name}, f"Removed {name} from {file}.")


@command(app, "import", example="mcp import ~/.cursor/mcp.json")
async def import_servers(
    options: Options,
    file: Annotated[
        Path, argument("FILE", "Such as .mcp.json, claude_desktop_config.json, .vscode/mcp.json.")
    ],
    dry_run: Annotated[bool, flag("--dry-run", "Only show what would be imported.")] = False,
    replace: Annotated[bool, flag("--replace", "Replace servers of the same names.")] = False,
) -> Result:
    """Import MCP servers from the configuration of another program.

    Tokens and keys in the file are stored encrypted; the configuration only names them.
    """
    from asterism.app.mcp import read_foreign
    from asterism.config import load

    if file.exists():
        read_bytes(file)  # raises if it is not a regular file, or has no end
    configured = load(options.place, options.config, os.environ).mcp
    servers = [_checked(server, configured, replace=replace) for server in read_foreign(file)]
    taken = [server for server in servers if not server.refused]
    if taken and not dry_run:
        secrets = {key: value for server in taken for key, value in server.secrets.items()}
        if secrets:
            async with open_home(options) as home:
                for key, value in secrets.items():
                    await home.keys.set(key, value, by="cli")
        _write(options, {server.name: server.table for server in taken}, replace=True)
    rows = [
        (server.name, server.refused or "; ".join(server.notes) or "as it is") for server in servers
    ]
    done = "would be" if dry_run else "was" if len(taken) == 1 else "were"
    return Result(
        [imported_server_view(server, dry_run=dry_run) for server in servers],
        Grid(
            [("server", "what becomes of it"), *rows] if rows else [("no", "servers in the file")]
        ),
        f"{plural(len(taken), 'server')} of {len(servers)} {done} imported.",
    )


def _checked(server: ImportedServer, configured: Any, *, replace: bool) -> ImportedServer:
    """Refuse what is there already, or what its own file has wrong."""
    from asterism.app.mcp import check_server

    if server.refused:
        return server
    if server.name in configured and not replace:
        taken = "not imported: a server of this name exists; --replace replaces it"
        return dataclasses.replace(server, refused=taken)
    try:
        check_server(server.table)
    except AsterismError as error:
        return dataclasses.replace(server, refused=error.message)
    return server


@command(app, "login", example="mcp login mail")
async def login(
    home: Asterism,
    name: Name,
    no_browser: Annotated[
        bool, flag("--no-browser", "Only print the address; do not open a browser.")
    ] = False,
    port: Annotated[
        int | None, option("--port", "N", "The port that the browser comes back to.")
    ] = None,
) -> Result:
    """Log in at a server with a browser; the tokens are stored encrypted."""

    async def show(address: str) -> None:
        typer.echo(f"Log in here, in a browser on this machine:\n\n  {address}\n", err=True)
        if not no_browser:
            import webbrowser

            await asyncio.to_thread(webbrowser.open, address)

    count = len((await home.mcp.login(name, show, port=port)).tools)
    return Result(
        {"name": name, "tools": count},
        f"You are logged in at {name}, which has {plural(count, 'tool')}.",
    )


@command(app, "serve", example="mcp serve")
async def serve(
    options: Options,
    agent: Annotated[
        list[str] | None, option("--agent", "NAME", "Offer this agent alone; repeat for others.")
    ] = None,
    read_only: Annotated[
        bool, flag("--read-only", "Offer only tools that change nothing.")
    ] = False,
) -> None:
    """Serve the agents to an MCP client, on standard input and output.

    The client starts this command. It ends with its input.
    """
    from asterism.api.mcp_transport import serve_stdio

    async with open_home(options, work=not read_only, readonly=read_only) as home:
        offered = [(await home.agents.get(name)).id for name in agent or ()]
        note("Serving MCP on standard input and output. It ends with its input, or with Ctrl-C.")
        serving = asyncio.create_task(serve_stdio(home, agents=offered, read_only=read_only))
        stopped = asyncio.create_task(until_stopped())
        try:
            await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (serving, stopped):
                task.cancel()
            await asyncio.gather(serving, stopped, return_exceptions=True)
        if not serving.cancelled():
            await serving
