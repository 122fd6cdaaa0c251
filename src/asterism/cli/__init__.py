"""The command line: the verbs of the home as commands, one file per noun."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer

from asterism import __version__
from asterism.cli.commands import (
    FAILED,
    HELP_WIDTH,
    Config,
    Data,
    HelpGroup,
    Json,
    Options,
    command,
    misuse,
    output_closed,
    run_command,
    usage_error,
)

_COMMANDS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("chat", {"example": 'chat --once "Good morning"'}),
    "search": ("search", {"example": "search where is the boiler invoice"}),
    "up": ("background", {"example": "up"}),
    "down": ("background", {"example": "down"}),
    "status": ("background", {"example": "status"}),
    "serve": ("serve", {"example": "serve --port 8080"}),
    "worker": ("serve", {"example": "worker"}),
    "setup": ("setup", {"example": "setup --model ollama:llama3.2"}),
    "tour": ("tour", {"example": "tour"}),
    "spend": ("spend", {"example": "spend --days 7 --by model", "readonly": True}),
    "doctor": ("doctor", {"example": "doctor --offline"}),
    "halt": ("halt", {"example": 'halt "it sends too many messages"'}),
    "resume": ("halt", {"example": "resume"}),
    "config": ("about", {"example": "config"}),
    "logs": ("about", {"example": "logs"}),
    "version": ("about", {"example": "version"}),
}
"""Commands by name: the module that has a function of that name, and how it is made a command."""
_NOUNS: dict[str, tuple[str, str]] = {
    "agent": ("agent", "app"),
    "group": ("group", "app"),
    "constellation": ("template", "app"),
    "block": ("block", "app"),
    "archive": ("archive", "app"),
    "source": ("source", "app"),
    "person": ("person", "app"),
    "memory": ("memory", "app"),
    "context": ("context", "app"),
    "turn": ("turn", "app"),
    "approval": ("approval", "app"),
    "grant": ("grant", "app"),
    "outbox": ("outbox", "app"),
    "notice": ("notice", "app"),
    "alert": ("alert", "app"),
    "schedule": ("schedule", "app"),
    "task": ("planning", "tasks"),
    "habit": ("planning", "habits"),
    "energy": ("planning", "energies"),
    "tool": ("tool", "app"),
    "rule": ("rule", "app"),
    "model": ("model", "app"),
    "mcp": ("mcp", "app"),
    "key": ("key", "app"),
    "token": ("token", "app"),
    "user": ("user", "app"),
    "audit": ("audit", "app"),
    "backup": ("backup", "app"),
    "service": ("units", "app"),
    "debug": ("debug", "app"),
}
"""Nouns by name: the module that has their commands, and what these are in there."""
_WITH_VALUE = frozenset({"--data", "--config", "--url"})


def _module(name: str) -> Any:
    return import_module(f"asterism.cli.{name}")


def build(only: str | None = None) -> typer.Typer:
    """Return the command line; with `only`, just that command or noun, which starts sooner."""
    app = typer.Typer(
        name="asterism",
        cls=HelpGroup,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=HELP_WIDTH,
    )
    for name, (module, how) in _COMMANDS.items():
        if only in (None, name):
            register: Callable[[Any], Any] = command(app, **how)
            register(getattr(_module(module), name))
    for name, (module, commands) in _NOUNS.items():
        if only in (None, name):
            app.add_typer(getattr(_module(module), commands), name=name, hidden=name == "debug")
    app.callback(invoke_without_command=True)(root)
    return app


def _named(arguments: list[str]) -> str | None:
    """Return the command or noun that arguments begin with; None if all must be known for them."""
    rest = iter(arguments)
    for argument in rest:
        if argument in _WITH_VALUE:
            next(rest, None)
        elif argument != "--json":
            return argument if argument in _COMMANDS or argument in _NOUNS else None
    return "chat"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"asterism {__version__}")
        raise typer.Exit


def root(
    context: typer.Context,
    data: Data = None,
    config: Config = None,
    json: Json = False,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="A home that runs elsewhere (default: $ASTERISM_URL), with $ASTERISM_TOKEN.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """A self-hosted home for long-lived AI agents. Alone it opens a chat."""
    del version
    context.obj = options = Options(data, config, json, url=url)
    if context.invoked_subcommand is None:
        run_command(_module("chat").chat, options, {})


def main() -> None:
    """Run the command that was typed, and end with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - a TextIOWrapper
    json = "--json" in arguments
    try:
        for argument in arguments:
            argument.encode()
        # A shell that completes a word asks for the names of all commands.
        only = None if "_ASTERISM_COMPLETE" in os.environ else _named(arguments)
        code: int = build(only)(arguments, standalone_mode=False) or 0
        sys.stdout.flush()
    except UnicodeEncodeError:
        return usage_error(
            "An argument is not UTF-8, as when a name in another encoding is pasted. "
            "Write it in UTF-8. Nothing was done.",
            json=json,
        )
    except typer.TyperException as error:
        return misuse(error, json=json)
    except typer.Abort:
        return FAILED
    except BrokenPipeError:
        return output_closed()
    return code
