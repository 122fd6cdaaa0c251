"""The tool `habit`: habits and needs, with reminders that come less often when they do not help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Annotated, Any, Literal

from asterism.errors import InvalidInput, ToolError
from asterism.times import (
    ago_text,
    iso_text,
    next_time,
    quiet_until,
    read_future,
    to_datetime,
    weekday_text,
)
from asterism.tools.builtin.arguments import OPERATION, TEXT, WORD, also
from asterism.tools.planning.records import (
    HABITS,
    REMINDERS,
    Rows,
    drop_reminder,
    figure_of,
    listed,
    moment_of,
    number_of,
    open_rows,
    put_reminder,
    quiet_hours,
    set_quiet_hours,
    tool_errors,
)
from asterism.tools.tool import NothingFound, ToolContext, tool
from asterism.types.permissions import Effect, EffectKind

# -- when a reminder comes -------------------------------------------------------------------------

MAX_IGNORED = 5
"""After so many reminders in a row without an answer, there are no more until the owner wants."""
_MAX_STRIDE = 8
_OCCASIONS = 64
"""So many times of a rule are looked at for one outside of quiet hours."""
REMINDER = "Remind of habit"
"""How the message begins that a reminder comes with."""


def stride(ignored: int) -> int:
    """Return at which of the times to come a reminder comes: 1, 2, 4, 8 as more are ignored."""
    return min(2 ** max(0, ignored), _MAX_STRIDE)


def next_reminder(
    cron: str, after: int, zone: tzinfo, *, ignored: int = 0, quiet: str, done: bool = False
) -> int:
    """Return when the next reminder of a habit comes.

    Times in quiet hours come together at their end. What was done a moment ago is not asked for: a
    time nearer than half of the usual gap is left out.

    Args:
        cron: When, in five cron fields of the zone.
        after: The moment from which on it counts.
        zone: The owner's time zone.
        ignored: How many reminders in a row had no answer.
        quiet: The hours without reminders.
        done: Whether it was done at that moment.
    """
    times: list[int] = []
    at = after
    wanted = stride(ignored) + 1
    for _ in range(_OCCASIONS * wanted):
        at = next_time(cron, at, zone)
        heard = quiet_until(quiet, at, zone) or at
        if not times or heard > times[-1]:
            times.append(heard)
        if len(times) > wanted:
            break
    if done and len(times) > 1 and times[0] - after < (times[1] - times[0]) / 2:
        del times[0]
    return times[min(stride(ignored), len(times)) - 1]


def reminder_id(block_id: str, number: int) -> str:
    """Return the id of the schedule of a habit's next reminder."""
    return f"sch_habit_{block_id.removeprefix('block_')}_{number}"


# -- the tool --------------------------------------------------------------------------------------

Operation = Literal[
    "add", "done", "skip", "pause", "resume", "remove", "list", "quiet_hours", "remind"
]
_MAX_HABITS = 100
_MAX_NAME = 120


def _habit_effects(arguments: Mapping[str, Any]) -> list[Effect]:
    operation = arguments.get("operation")
    if operation == "list":
        return [Effect(EffectKind.READ, things=(HABITS.label,))]
    label = REMINDERS.label if operation == "quiet_hours" else HABITS.label
    text = str(arguments.get("habit") or "") if operation == "add" else ""
    return [
        Effect(
            EffectKind.REMEMBER,
            things=(label,),
            content=(text,) if text else (),
            amends=operation != "add",
        )
    ]


@tool(
    transactional=True,
    trust=None,
    compact=True,
    effects=_habit_effects,
    reserved=True,
    audience="owner",
    changes_by_itself=True,
)
async def habit(  # noqa: PLR0911 - one for each operation
    ctx: ToolContext,
    operation: Annotated[Operation, OPERATION, WORD],
    habit: Annotated[str, also("habit", "name", "need", "id", "number"), TEXT] = "",
    when: Annotated[str, also("when", "rule", "every", "hours", "time"), TEXT] = "",
) -> str:
    """Habits and needs with gentle reminders: water, food, medicine, a walk, sleep.

    Reminders that are ignored come less often. Say done as soon as your owner did it.

    Args:
        operation: add; done; skip (not this time); pause; resume; remove; list; quiet_hours.
        habit: Its name, or its number.
        when: For add: "every 2 hours", "every day at 9". For quiet_hours: "22:00-08:00".
    """
    with tool_errors(ctx):
        if operation == "quiet_hours":
            return await _quiet_hours(ctx, when or habit)
        rows = await open_rows(ctx, HABITS, write=operation != "list")
        if operation == "list":
            return await _list(ctx, rows)
        if operation == "add":
            return await _add(ctx, rows, habit, when)
        row = rows.find(habit, "name") if habit.strip() else None
        if row is None:
            raise ToolError(
                f"There is no habit {habit[:80]!r}. Set `habit` to one of these numbers: "
                f"{listed(rows.rows, 'name')}. Nothing was changed."
            )
        match operation:
            case "done":
                return await _done(ctx, rows, row)
            case "skip":
                return await _skip(ctx, rows, row)
            case "pause":
                await rows.change(row, paused=True, reminded=None)
                await drop_reminder(ctx, reminder_id(rows.block.id, number_of(row)))
                return f"No more reminders of {row['name']} until you resume it."
            case "resume":
                row = await rows.change(row, paused=None, ignored=None, reminded=None)
                return f"Reminders of {row['name']} go on: {await _plan(ctx, rows, row)}."
            case "remove":
                await rows.remove(row)
                await drop_reminder(ctx, reminder_id(rows.block.id, number_of(row)))
                return f"Removed {row['name']}, with its reminders."
            case _:
                return await _remind(ctx, rows, row)


async def _quiet_hours(ctx: ToolContext, hours: str) -> str:
    if not hours.strip():
        return f"No reminders come in {await quiet_hours(ctx)}."
    checked = await set_quiet_hours(ctx, hours)
    rows = await open_rows(ctx, HABITS, write=True)
    for row in rows.rows:
        if not row.get("paused"):
            await _plan(ctx, rows, row)
    return f"No reminders come in {checked} any more; what falls due then comes once afterwards."


async def _add(ctx: ToolContext, rows: Rows, name: str, when: str) -> str:
    text = " ".join(name.split())
    if not text or len(text) > _MAX_NAME:
        raise ToolError(
            f"A habit has a name of 1 to {_MAX_NAME} characters, such as 'drink water'. Nothing "
            "was added."
        )
    if any(str(row.get("name")).casefold() == text.casefold() for row in rows.rows):
        raise ToolError(f"There is a habit {text!r} already. Remove it first to change its rule.")
    if len(rows.rows) >= _MAX_HABITS:
        raise ToolError(f"There are {_MAX_HABITS} habits, which is the most. Remove one first.")
    found = read_future(when or "every day at 9", ctx.now_ms, ctx.settings().zone, regular=True)
    if found.cron is None:
        raise InvalidInput(f"{when[:80]!r} is not a rule. Write one such as 'every day at 9'.")
    row = await rows.add(
        name=text, number=rows.new_number(), rule=when or "every day at 9", cron=found.cron
    )
    return f"Added habit {number_of(row)}: {text}. {_sentence(await _plan(ctx, rows, row))}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


async def _plan(ctx: ToolContext, rows: Rows, row: Mapping[str, Any], *, done: bool = False) -> str:
    """Let the next reminder of a habit come, and return in words when."""
    zone, quiet = ctx.settings().zone, await quiet_hours(ctx)
    at = next_reminder(
        str(row.get("cron") or "0 9 * * *"),
        ctx.now_ms,
        zone,
        ignored=int(figure_of(row, "ignored") or 0),
        quiet=quiet,
        done=done,
    )
    number = number_of(row)
    text = f"{REMINDER} {number}: {row['name']}"
    at = await put_reminder(ctx, reminder_id(rows.block.id, number), at, text, quiet)
    return f"the next reminder comes on {weekday_text(at, zone)}"


async def _done(ctx: ToolContext, rows: Rows, row: Mapping[str, Any]) -> str:
    times = int(figure_of(row, "times") or 0) + 1
    row = await rows.change(
        row,
        times=times,
        last_done=iso_text(ctx.now_ms),
        reminded=None,
        ignored=None,
        paused=None,
    )
    return (
        f"Noted: {row['name']}, done {times} time{'s' * (times != 1)}. "
        f"{_sentence(await _plan(ctx, rows, row, done=True))}"
    )


async def _skip(ctx: ToolContext, rows: Rows, row: Mapping[str, Any]) -> str:
    row = await rows.change(row, reminded=None, ignored=None)
    return (
        f"Skipped {row['name']} this time, which is fine. {_sentence(await _plan(ctx, rows, row))}"
    )


async def _remind(ctx: ToolContext, rows: Rows, row: Mapping[str, Any]) -> str:
    """Note that a reminder is given, plan the next one, and say how to word this one."""
    if row.get("paused"):
        return f"{row['name']} is paused: do not remind of it."
    unanswered = moment_of(row, "reminded") is not None
    ignored = int(figure_of(row, "ignored") or 0) + (1 if unanswered else 0)
    last = ignored >= MAX_IGNORED
    row = await rows.change(
        row,
        reminded=iso_text(ctx.now_ms),
        ignored=ignored or None,
        paused=True if last else None,
    )
    if last:
        await drop_reminder(ctx, reminder_id(rows.block.id, number_of(row)))
        return (
            f"This is the last reminder of {row['name']} for now. Say in one kind sentence that "
            "you will not mention it again unless your owner wants, and ask whether another time "
            "or a smaller version would suit better. No blame."
        )
    await _plan(ctx, rows, row)
    return f"{_wording(row, ignored)} {_since(row, ctx.now_ms)}".strip()


def _wording(row: Mapping[str, Any], ignored: int) -> str:
    if ignored == 0:
        return f"Remind your owner of this in one friendly sentence: {row['name']}."
    if ignored == 1:
        return f"Mention this lightly, in one short sentence, as an offer: {row['name']}."
    return (
        f"Offer this in a few kind words, without any pressure, and say that later is fine: "
        f"{row['name']}. Do not say how often you have asked."
    )


def _since(row: Mapping[str, Any], now: int) -> str:
    last = moment_of(row, "last_done")
    return f"It was last done {ago_text(now - last)}." if last is not None else ""


async def _list(ctx: ToolContext, rows: Rows) -> str:
    if not rows.rows:
        return NothingFound("There are no habits yet. Ask which one would help most.")
    return "\n".join(habit_lines(rows.rows, ctx.settings().zone))


def habit_lines(rows: Sequence[Mapping[str, Any]], zone: tzinfo) -> list[str]:
    """Return each habit on a line."""
    lines: list[str] = []
    for row in rows:
        last, times = moment_of(row, "last_done"), int(figure_of(row, "times") or 0)
        done = (
            f", done {times} times, last {to_datetime(last, zone):%a %d %b %H:%M}" if last else ""
        )
        state = ", paused" if row.get("paused") else ""
        lines.append(f"{number_of(row)} {row.get('name')}: {row.get('rule') or ''}{done}{state}")
    return lines
