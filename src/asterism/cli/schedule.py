"""`asterism schedule`: messages that agents get at a time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import argument, command, group, option
from asterism.cli.halt import halt_notes
from asterism.cli.inputs import AgentArgument
from asterism.cli.output import Column, ItemTable, Part, Result
from asterism.errors import Conflict, NotFound
from asterism.times import local_text, weekday_text, zone_named
from asterism.views import schedule_view

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.agents import AgentRecord, Schedule

app = group("Show, add and cancel the schedules of agents.")
LATEST = "latest"
_MIN_PART = 4
"""Characters of an id that are enough to mean one."""
_MAX_NAMED = 5


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
    parts: list[Part | str] = [ItemTable(columns, rows, empty)]
    if rows and sys.stdout.isatty():
        parts.append('"asterism schedule cancel" takes an id, words of the message, or latest.')
    return Result(shapes, *parts, notes=await halt_notes(home))


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


@command(app, "cancel", example="schedule cancel water the plants")
async def cancel(
    home: Asterism,
    which: Annotated[
        list[str],
        argument("ID", "Its id or a part of it, words of its message, or latest."),
    ],
) -> Result:
    """Cancel the one schedule that is meant; if several could be, none is cancelled."""
    agents = {agent.id: agent for agent in await home.agents.list()}
    entries = [entry for agent in agents.values() for entry in await home.schedules.list(agent)]
    meant = _meant(entries, " ".join(which).strip())
    schedule = await home.schedules.cancel(meant.id, by="cli")
    told = f"Cancelled {schedule.id}: {schedule.text}"
    return Result(schedule_view(agents[schedule.agent_id], schedule), told)


def _meant(entries: Sequence[Schedule], which: str) -> Schedule:
    """Return the schedule with an id or a part of it, the latest, or the only one on something."""
    if which == LATEST and entries:
        return max(entries, key=lambda entry: (entry.created_at_ms, entry.id))
    found = [entry for entry in entries if entry.id == which]
    if not found and len(which) >= _MIN_PART:
        found = [entry for entry in entries if _has_id_part(entry.id, which)]
    if not found and (words := which.casefold().split()):
        found = [entry for entry in entries if all(word in entry.text.casefold() for word in words)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound(
            f'There is no schedule {which[:80]!r}. "asterism schedule list" shows them. '
            "Nothing was changed."
        )
    named = "; ".join(f"{entry.id}: {entry.text[:60]}" for entry in found[:_MAX_NAMED])
    raise Conflict(
        f"{which[:80]!r} could be {len(found)} schedules: {named}. Write more of the one that is "
        "meant, or its id. Nothing was changed."
    )


def _has_id_part(schedule_id: str, part: str) -> bool:
    return schedule_id.startswith(part) or schedule_id.endswith(part)
