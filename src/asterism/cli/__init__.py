"""The command line: the verbs of the home as commands, one file per noun."""

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
    background,
    backup,
    block,
    chat,
    context,
    debug,
    doctor,
    grant,
    group,
    halt,
    key,
    mcp,
    memory,
    model,
    notice,
    outbox,
    person,
    planning,
    rule,
    schedule,
    search,
    serve,
    setup,
    source,
    spend,
    template,
    token,
    tool,
    turn,
    units,
    user,
)
from asterism.cli.commands import (
    FAILED,
    Config,
    Data,
    Json,
    Options,
    command,
    misuse,
    output_closed,
    run_command,
    usage_error,
)

app = typer.Typer(
    name="asterism",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
command(app)(chat.chat)
command(app)(search.search)
for name, noun in (
    ("agent", agent.app),
    ("group", group.app),
    ("constellation", template.app),
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
    ("task", planning.tasks),
    ("habit", planning.habits),
    ("energy", planning.energies),
    ("tool", tool.app),
    ("rule", rule.app),
    ("model", model.app),
    ("mcp", mcp.app),
    ("key", key.app),
    ("token", token.app),
    ("user", user.app),
    ("audit", audit.app),
    ("backup", backup.app),
    ("service", units.app),
):
    app.add_typer(noun, name=name)
app.add_typer(debug.app, name="debug", hidden=True)
command(app)(background.up)
command(app)(background.down)
command(app)(background.status)
command(app)(serve.serve)
command(app)(serve.worker)
command(app)(setup.setup)
command(app, readonly=True)(spend.spend)
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
    """A self-hosted home for long-lived AI agents. Alone it opens a chat with the first agent."""
    del version
    context.obj = options = Options(data, config, json, url=url)
    if context.invoked_subcommand is None:
        run_command(chat.chat, options, {})


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
