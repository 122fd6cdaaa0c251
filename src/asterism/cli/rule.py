"""`asterism rule`: what an owner wants of an agent's calls, told to it and enforced."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.output import Column, Output
from asterism.cli.text import plural
from asterism.errors import InvalidInput

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.agents import Rule

app = group("Give agents rules for their tools, see them and take them back.")

AgentRecord = Annotated[str, typer.Argument(metavar="AGENT", help="The agent's name or id.")]


@command(app, "list")
def list_rules(options: Options, agent: AgentRecord) -> None:
    """Show the rules of an agent, with the sentences that its model reads."""

    async def errand(home: Asterism) -> list[Rule]:
        return await home.rules.list(agent)

    found = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data([_form(number, one) for number, one in enumerate(found, 1)])
        return
    columns: list[Column[tuple[int, Rule]]] = [
        Column("rule", lambda one: str(one[0])),
        Column("tool", lambda one: one[1].tool),
        Column("kind", lambda one: one[1].kind.value),
        Column("what its model reads", lambda one: str(one[1]), prose=True),
    ]
    empty = f'{agent} has no rules. "asterism rule add {agent} TOOL KIND" gives it one.'
    out.table(columns, list(enumerate(found, 1)), empty=empty)


@command(app, "add")
def add(
    options: Options,
    agent: AgentRecord,
    tool: Annotated[
        str | None, typer.Argument(metavar="TOOL", help="A tool, or a pattern such as 'web_*'.")
    ] = None,
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="The kind, such as max_calls.")
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="VALUE", help="A number, a time such as 10m, other tools, or operations."
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", metavar="FILE", help="Add all rules of a TOML or JSON file instead."
        ),
    ] = None,
) -> None:
    """Give an agent a rule; it counts from its next turn on."""
    from asterism.config.rules import read_rules_file, rule_of

    if file is not None:
        if tool is not None:
            raise InvalidInput("--file and a rule exclude each other. Nothing was changed.")
        new = read_rules_file(file)
    elif tool is None or kind is None:
        raise InvalidInput(
            'Name a tool and a kind, such as "web max_calls 3", or a file with --file. '
            "Nothing was changed."
        )
    else:
        new = rule_of(tool, kind, values or ())

    async def errand(home: Asterism) -> list[Rule]:
        return await home.rules.add(agent, *new)

    found = visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data([_form(number, one) for number, one in enumerate(found, 1)])
        return
    for one in new:
        out.line(str(one))
    out.line(f"{agent} has {plural(len(found), 'rule')} now; its next turn goes by them.")


@command(app, "remove")
def remove(
    options: Options,
    agent: AgentRecord,
    number: Annotated[
        int, typer.Argument(metavar="NUMBER", help='The number that "rule list" shows.')
    ],
) -> None:
    """Take a rule from an agent."""

    async def errand(home: Asterism) -> Rule:
        return await home.rules.remove(agent, number)

    gone = visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data(gone.form())
    else:
        out.line(f"Removed: {gone}")


def _form(number: int, rule: Rule) -> dict[str, Any]:
    return {"number": number, **rule.form(), "text": str(rule)}
