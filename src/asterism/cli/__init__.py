"""The command line: a coat over the verbs of `asterism.app`, one file per noun."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from asterism import __version__
from asterism.cli import (
    agent,
    approval,
    archive,
    audit,
    block,
    block_edit,
    block_past,
    chat,
    context,
    debug,
    doctor,
    grant,
    halt,
    key,
    mcp,
    memory,
    model,
    notice,
    outbox,
    person,
    rule,
    schedule,
    search,
    serve,
    setup,
    source,
    spend,
    tool,
    turn,
    worker,
)
from asterism.cli.options import Config, Data, Json, Options, command
from asterism.cli.problem import FAILED, MISUSED, TITLES, abandoned, misused, tell, told

app = typer.Typer(
    name="asterism",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
command(app)(chat.chat)
command(app)(search.search)
for name, noun in (
    ("agent", agent.app),
    ("block", block.app),
    ("archive", archive.app),
    ("source", source.app),
    ("person", person.app),
    ("memory", memory.app),
    ("context", context.app),
    ("turn", turn.app),
    ("approval", approval.app),
    ("grant", grant.app),
    ("outbox", outbox.app),
    ("notice", notice.app),
    ("schedule", schedule.app),
    ("tool", tool.app),
    ("rule", rule.app),
    ("model", model.app),
    ("mcp", mcp.app),
    ("key", key.app),
    ("audit", audit.app),
):
    app.add_typer(noun, name=name)
app.add_typer(debug.app, name="debug", hidden=True)
assert block_edit.app is block_past.app is block.app, "they add their commands to it"
command(app)(serve.serve)
command(app)(worker.worker)
command(app)(setup.setup)
command(app)(spend.spend)
command(app)(doctor.doctor)
command(app)(halt.halt)
command(app)(halt.resume)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"asterism {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    data: Data = None,
    config: Config = None,
    json: Json = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """A self-hosted home for long-lived AI agents. Alone it opens a chat with the first agent."""
    del version
    context.obj = options = Options(data, config, json)
    if context.invoked_subcommand is None:
        with told(lambda: options.place, json=json):
            chat.chat(options)


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
        code: int = app(arguments, standalone_mode=False) or 0
        sys.stdout.flush()
    except UnicodeEncodeError:
        tell(
            "usage",
            TITLES["usage"],
            "An argument is not UTF-8, as when a name in another encoding is pasted. "
            "Write it in UTF-8. Nothing was done.",
            json=json,
        )
        return MISUSED
    except typer.TyperException as error:
        return misused(error, json=json)
    except typer.Abort:
        return FAILED
    except BrokenPipeError:
        return abandoned()
    return code
