"""`asterism schedule`: messages that agents get at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import command, group, option
from asterism.cli.output import Column, ItemTable, Result
from asterism.times import local_text
from asterism.views import schedule_view

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.agents import AgentRecord, Schedule

app = group("See what agents have planned.")


@command(app, "list", readonly=True)
async def list_schedules(
    home: Asterism,
    agent: Annotated[str | None, option("--agent", "NAME", "Only this agent's.")] = None,
) -> Result:
    """Show schedules, the next of each agent first."""
    agents = await home.agents.list() if agent is None else [await home.agents.get(agent)]
    found = [(who, schedule) for who in agents for schedule in await home.schedules.list(who)]
    columns: list[Column[tuple[AgentRecord, Schedule]]] = [
        Column("schedule", lambda row: row[1].id, least=100),
        Column("agent", lambda row: row[0].name, prose=True),
        Column("due", lambda row: local_text(row[1].due_at)),
        Column("rule", lambda row: row[1].cron or "once"),
        Column("message", lambda row: row[1].text, prose=True),
    ]
    empty = "Nothing is scheduled. Ask an agent to remind you."
    shapes = [schedule_view(who, schedule) for who, schedule in found]
    return Result(shapes, ItemTable(columns, found, empty))
