"""The command line: the verbs of the home as commands, one file per noun."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from asterism import __version__
from asterism.cli import (
    agent,
    alert,
    approval,
    archive,
    audit,
    background,
    backup,
    block,
    chat,
    constellation,
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
    tour,
    turn,
    units,
    user,
)
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

app = typer.Typer(
    name="asterism",
    cls=HelpGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=HELP_WIDTH,
)
command(app, example='chat --once "Good morning"')(chat.chat)
command(app, example="search where is the boiler invoice")(search.search)
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
    ("alert", alert.app),
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
    ("constellation", constellation.app),
    ("audit", audit.app),
    ("backup", backup.app),
    ("service", units.app),
):
    app.add_typer(noun, name=name)
app.add_typer(debug.app, name="debug", hidden=True)
command(app, example="up")(background.up)
command(app, example="down")(background.down)
command(app, example="status")(background.status)
command(app, example="serve --port 8080")(serve.serve)
command(app, example="worker")(serve.worker)
command(app, example="setup --model ollama:llama3.2")(setup.setup)
command(app, example="tour")(tour.tour)
command(app, readonly=True, example="spend --days 7 --by model")(spend.spend)
command(app, example="doctor --offline")(doctor.doctor)
command(app, example='halt "it sends too many messages"')(halt.halt)
command(app, example="resume")(halt.resume)


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
