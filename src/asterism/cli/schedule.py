"""`asterism schedule`: messages that agents get at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import argument, command, group, option
from asterism.cli.halt import halt_notes
from asterism.cli.inputs import AgentArgument
from asterism.cli.output import Column, ItemTable, Result
from asterism.times import local_text, weekday_text, zone_named
from asterism.views import schedule_view

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.agents import AgentRecord, Schedule

app = group("Show, add and cancel the schedules of agents.")


@command(app, "list", example="schedule list --agent aria", readonly=True)
async def list_schedules(
    home: Asterism,
    agent: Annotated[str | None, option("--agent", "NAME", "Only this agent's.")] = None,
) -> Result:
    """Show schedules, the next of each agent first."""
    agents = await home.agents.list() if agent is None else [await home.agents.get(agent)]
    rows = [(who, schedule) for who in agents for schedule in await home.schedules.list(who)]
    columns: list[Column[tuple[AgentRecord, Schedule]]] = [
        Column("schedule", lambda row: row[1].id, least=100),
        Column("agent", lambda row: row[0].name, prose=True),
        Column("due", lambda row: local_text(row[1].due_at_ms)),
        Column("rule", lambda row: row[1].cron or "once"),
        Column("message", lambda row: row[1].text, prose=True),
    ]
    empty = "Nothing is scheduled. Ask an agent to remind you."
    shapes = [schedule_view(who, schedule) for who, schedule in rows]
    return Result(shapes, ItemTable(columns, rows, empty), notes=await halt_notes(home))


@command(app, "add", example='schedule add aria "every Monday at 8" "What is due this week?"')
async def add(
    home: Asterism,
    agent: AgentArgument,
    when: Annotated[
        str, argument("WHEN", "Your local time, such as 'tomorrow at 9' or 'every Monday at 8'.")
    ],
    text: Annotated[str, argument("TEXT", "The message that the agent gets then.")],
    quiet: Annotated[
        str | None,
        option("--quiet", "HOURS", "Hours in which it does not come, such as 22:00-08:00."),
    ] = None,
) -> Result:
    """Send an agent a message later, once or by a rule."""
    found = await home.agents.get(agent)
    schedule = await home.schedules.add(found, when, text, quiet=quiet, by="cli")
    due = weekday_text(schedule.due_at_ms, zone_named(schedule.zone))
    rule = f", then by the rule {schedule.cron}" if schedule.cron else ""
    hours = f", but not in {schedule.quiet}" if schedule.quiet else ""
    told = f"Scheduled for {due} ({schedule.zone}){rule}{hours}, as {schedule.id}."
    return Result(schedule_view(found, schedule), told)


@command(app, "cancel", example="schedule cancel sch_01a1ed55")
async def cancel(
    home: Asterism,
    schedule_id: Annotated[str, argument("ID", 'The id that "schedule list" shows.')],
) -> Result:
    """Take a schedule back."""
    schedule = await home.schedules.cancel(schedule_id, by="cli")
    agent = await home.agents.get(schedule.agent_id)
    told = f"Cancelled {schedule.id}: {schedule.text}"
    return Result(schedule_view(agent, schedule), told)
