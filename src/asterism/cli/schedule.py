"""`asterism schedule`: messages that agents get at a time."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.output import Column, Output
from asterism.times import local_text

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.agents import AgentRecord, Schedule

app = group("See what agents have planned.")


@command(app, "list")
def list_schedules(
    options: Options,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Only this agent's.")
    ] = None,
) -> None:
    """Show schedules, the next of each agent first."""

    async def errand(home: Asterism) -> list[tuple[AgentRecord, Schedule]]:
        whose = await home.agents.list() if agent is None else [await home.agents.get(agent)]
        return [(one, schedule) for one in whose for schedule in await home.schedules.list(one)]

    found = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data([{**asdict(schedule), "agent": who.name} for who, schedule in found])
        return
    columns: list[Column[tuple[AgentRecord, Schedule]]] = [
        Column("schedule", lambda one: one[1].id, least=100),
        Column("agent", lambda one: one[0].name, prose=True),
        Column("due", lambda one: local_text(one[1].due_at)),
        Column("rule", lambda one: one[1].cron or "once"),
        Column("message", lambda one: one[1].text, prose=True),
    ]
    out.table(columns, found, empty="Nothing is scheduled. Ask an agent to remind you.")
