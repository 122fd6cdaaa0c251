"""`asterism rule`: what an owner wants of an agent's calls, read by the model and enforced."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import Options, argument, command, group, open_home, option
from asterism.cli.inputs import AgentArgument
from asterism.cli.output import Column, ItemTable, Result, plural
from asterism.errors import InvalidInput
from asterism.views import rule_view

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.agents import Rule

app = group("Show, add and remove the rules for the tools of an agent.")


@command(app, "list", example="rule list aria", readonly=True)
async def list_rules(home: Asterism, agent: AgentArgument) -> Result:
    """Show the rules of an agent, with the sentences that its model reads."""
    rules = list(enumerate(await home.rules.list(agent), 1))
    columns: list[Column[tuple[int, Rule]]] = [
        Column("rule", lambda row: str(row[0])),
        Column("tool", lambda row: row[1].tool),
        Column("kind", lambda row: row[1].kind.value),
        Column("what its model reads", lambda row: str(row[1]), prose=True),
    ]
    empty = (
        f'{agent} has no rules. "asterism rule add {shlex.quote(agent)} TOOL KIND" gives it one.'
    )
    return Result([rule_view(*row) for row in rules], ItemTable(columns, rules, empty))


@command(app, "add", example="rule add aria web max_calls 3")
async def add(
    options: Options,
    agent: AgentArgument,
    tool: Annotated[str | None, argument("TOOL", "A tool, or a pattern such as 'web_*'.")] = None,
    kind: Annotated[str | None, argument("KIND", "The kind, such as max_calls.")] = None,
    values: Annotated[
        list[str] | None,
        argument("VALUE", "A number, a time such as 10m, other tools, or operations."),
    ] = None,
    file: Annotated[
        Path | None, option("--file", "FILE", "Add all rules of a TOML or JSON file instead.")
    ] = None,
) -> Result:
    """Add a rule to an agent; it takes effect at the next turn."""
    from asterism.config.rules import read_rules_file, rule_of

    if file is not None:
        if tool is not None:
            raise InvalidInput(
                "--file and a rule cannot be used together. Choose one. Nothing was changed."
            )
        new = read_rules_file(file)
    elif tool is None or kind is None:
        raise InvalidInput(
            'Name a tool and a kind, such as "web max_calls 3", or a file with --file. '
            "Nothing was changed."
        )
    else:
        new = rule_of(tool, kind, values or ())
    async with open_home(options) as home:
        rules = await home.rules.add(agent, *new)
    count = f"{agent} has {plural(len(rules), 'rule')} now; they take effect at its next turn."
    return Result([rule_view(*row) for row in enumerate(rules, 1)], *map(str, new), count)


@command(app, "remove", example="rule remove aria 1")
async def remove(
    home: Asterism,
    agent: AgentArgument,
    number: Annotated[int, argument("NUMBER", 'The number that "rule list" shows.')],
) -> Result:
    """Remove a rule from an agent."""
    rule = await home.rules.remove(agent, number)
    return Result(rule.form(), f"Removed: {rule}")
