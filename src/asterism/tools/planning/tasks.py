"""The tool `task`: what is to do, how long it was expected to take, and how long it took.

From both comes a time factor for each kind of task: what the owner says in minutes is told back as
what they usually take.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from asterism.errors import ToolError
from asterism.records import dataclass
from asterism.times import MINUTE, iso_text
from asterism.tools.builtin.arguments import OPERATION, TEXT, WORD, also, null_as
from asterism.tools.planning.records import (
    MAX_ROWS,
    TASKS,
    Rows,
    drop_reminder,
    figure_of,
    listed,
    moment_of,
    number_of,
    open_rows,
    put_reminder,
    quiet_hours,
    tool_errors,
)
from asterism.tools.tool import NothingFound, ToolContext, tool
from asterism.types.permissions import Effect, EffectKind

# -- the time factor -------------------------------------------------------------------------------

_SHRINKAGE = 3
"""So many tasks without any deviation are added to those that were recorded."""
_MAX_SAMPLES = 30
"""So many tasks of a kind count, the newest: people change."""
_MAX_RATIO = 10.0
"""A task that took longer by more was forgotten rather than worked on, and teaches nothing."""


@dataclass(frozen=True, slots=True)
class TaskTime:
    """What a task was expected to take and what it took, in minutes."""

    kind: str
    estimate: float
    spent: float

    @property
    def was_worked_on(self) -> bool:
        """Whether it took as long as it says, and was not forgotten while its time went on."""
        return self.spent <= self.estimate * _MAX_RATIO


@dataclass(frozen=True, slots=True)
class TimeFactor:
    """How much longer tasks take than their estimates say."""

    factor: float
    samples: int
    """Tasks of the kind that it was learned from; 0: of all kinds together, or of none."""


def time_factor(times: Sequence[TaskTime], kind: str = "") -> TimeFactor:
    """Return what an estimate of a kind of task is multiplied by, from what tasks took before.

    It is the median of the ratios, so that single tasks count little, and nearer to 1 the fewer
    tasks there are. A kind with few tasks is nearer to the factor of the other tasks instead.

    Args:
        times: Finished tasks, the oldest first.
        kind: The kind of task; empty: all.
    """
    worked = [time for time in times if time.was_worked_on]
    same = [_ratio(time) for time in worked if kind and same_kind(time.kind, kind)]
    # What is left out here counts below: one task must not count twice.
    others = [_ratio(time) for time in worked if not (kind and same_kind(time.kind, kind))]
    same, others = same[-_MAX_SAMPLES:], others[-_MAX_SAMPLES:]
    return TimeFactor(_towards(_towards(1.0, others), same), len(same))


def same_kind(first: str, second: str) -> bool:
    """Tell whether two kinds of task are the same, however they are written."""
    return first.strip().casefold() == second.strip().casefold()


def _ratio(time: TaskTime) -> float:
    return max(time.spent / time.estimate, 1 / _MAX_RATIO)


def _towards(start: float, ratios: Sequence[float]) -> float:
    """Return the median of ratios, drawn towards a value the more the fewer there are."""
    if not ratios:
        return start
    weight = len(ratios) / (len(ratios) + _SHRINKAGE)
    # Twice as long and half as long are equally far from 1.
    return math.exp(weight * math.log(median(ratios)) + (1 - weight) * math.log(start))


def task_times(rows: Iterable[Mapping[str, Any]]) -> list[TaskTime]:
    """Return what the finished tasks of a block took, those finished first at the beginning."""
    finished = [
        (moment_of(row, "finished") or 0, TaskTime(str(row.get("kind") or ""), estimate, spent))
        for row in rows
        if row.get("done")
        and (estimate := figure_of(row, "estimate")) is not None
        and (spent := figure_of(row, "spent")) is not None
        and estimate > 0
        and spent > 0
    ]
    return [time for _, time in sorted(finished, key=lambda pair: pair[0])]


def usual_minutes(minutes: float, factor: float) -> int:
    """Return what an estimate usually comes to, as people say it: in fives from 20 minutes on."""
    expected = minutes * factor
    return max(1, round(expected / 5) * 5 if expected >= 20 else round(expected))


def minutes_text(minutes: float) -> str:
    """Return minutes in words, such as `1 h 20 min`."""
    hours, rest = divmod(max(0, round(minutes)), 60)
    parts = [f"{hours} h"] if hours else []
    return " ".join([*parts, f"{rest} min"] if rest or not hours else parts)


def translation(minutes: float, times: Sequence[TaskTime], kind: str) -> str:
    """Return an estimate in the owner's own time, such as `you say 30 min, you usually take 50`."""
    times = [time for time in times if time.was_worked_on]
    learned = time_factor(times, kind)
    said, usual = round(minutes), usual_minutes(minutes, learned.factor)
    if not times:
        return f"{minutes_text(said)} by estimate; nothing is known yet of how long tasks take"
    basis = f"{learned.samples} {kind}" if learned.samples else f"{len(times)}"
    count = learned.samples or len(times)
    if abs(usual - said) <= 0.1 * said:
        return f"{minutes_text(said)}, and estimates were right so far ({basis} task{_s(count)})"
    return (
        f"you say {minutes_text(said)}, you usually take {minutes_text(usual)} "
        f"(factor {learned.factor:.1f} from {basis} task{_s(count)})"
    )


def _s(count: int) -> str:
    return "" if count == 1 else "s"


# -- check-ins -------------------------------------------------------------------------------------

CHECK_IN = "Check in on task"
"""How the message begins that a check-in comes with."""
MAX_CHECK_INS = 3
_LEAST_CHECK_IN = 10
"""Minutes until the first check-in of a task without an estimate, or with a tiny one."""
_UNESTIMATED = 45


def check_in_delay(minutes: float, check_ins: int) -> float:
    """Return after how many minutes an owner is asked how a task goes; twice as many each time.

    Args:
        minutes: What the task is expected to take.
        check_ins: How often it was asked before.
    """
    return max(_LEAST_CHECK_IN, minutes) * 2 ** min(check_ins, MAX_CHECK_INS)


def check_in_id(block_id: str, number: int) -> str:
    """Return the id of the schedule by which a task is asked about."""
    return f"sch_task_{block_id.removeprefix('block_')}_{number}"


# -- the tool --------------------------------------------------------------------------------------

Operation = Literal[
    "add", "split", "start", "pause", "done", "drop", "list", "next", "estimate", "check_in"
]
_READS = ("list", "next", "estimate")
_MAX_TITLE = 300
_MAX_STEPS = 20
_MAX_LISTED = 40
_MINUTES_IN_STEP = re.compile(
    r"[\s,:–(-]+(\d{1,4})\s*(min(?:ute)?s?|h(?:ours?)?)\b\.?\)?\s*$", re.IGNORECASE
)


def _as_steps(value: Any) -> Any:
    """Take a text with lines or semicolons as a list of steps, since models write it so."""
    if isinstance(value, str):
        return [part.strip(" -*•\t") for part in re.split(r"[\n;]", value) if part.strip(" -*•\t")]
    return [] if value is None else value


def _task_effects(arguments: Mapping[str, Any]) -> list[Effect]:
    operation = arguments.get("operation")
    if operation in _READS:
        return [Effect(EffectKind.READ, things=(TASKS.label,))]
    adds = operation in ("add", "split")
    texts = [str(arguments.get("task") or "")] if operation == "add" else []
    texts += [str(step) for step in arguments.get("steps") or ()]
    return [
        Effect(EffectKind.REMEMBER, things=(TASKS.label,), content=tuple(texts), amends=not adds)
    ]


@tool(
    transactional=True,
    trust=None,
    compact=True,
    effects=_task_effects,
    reserved=True,
    audience="owner",
    changes_by_itself=True,
)
async def task(  # noqa: PLR0911 - one for each operation
    ctx: ToolContext,
    operation: Annotated[Operation, OPERATION, WORD],
    task: Annotated[str, also("task", "title", "id", "number", "name"), TEXT] = "",
    minutes: Annotated[float, also("minutes", "estimate", "actual"), null_as(0)] = 0,
    kind: Annotated[str, also("kind", "category"), TEXT] = "",
    steps: Annotated[list[str], BeforeValidator(_as_steps)] | None = None,
) -> str:
    """Your owner's tasks: break them down, estimate, start, finish; learns how long they take.

    Args:
        operation: add; split (into steps); start; pause; done; drop; list; next (one thing to do
            now); estimate (minutes of a kind of task, as your owner usually takes them).
        task: For add its title, else its number or its words.
        minutes: The estimate; with done, what it really took if that differs from the clock.
        kind: Such as writing, email, errands.
        steps: Small steps for add or split, such as "find the form (5 min)".
    """
    if not 0 <= minutes <= 100_000 or not math.isfinite(minutes):
        raise ToolError(f"{minutes:g} is not a valid number of minutes. Use one such as 30.")
    with tool_errors(ctx):
        if operation == "estimate":
            return await _estimate(ctx, minutes, kind)
        rows = await open_rows(ctx, TASKS, write=operation not in _READS)
        if operation == "list":
            return task_list(rows.rows, ctx.now_ms)
        if operation == "next":
            return _next_action(rows.rows, ctx.now_ms)
        if operation == "add":
            return await _add(ctx, rows, task, minutes, kind, steps or [])
        row = _meant(rows, task, operation)
        match operation:
            case "split":
                return await _split(ctx, rows, row, steps or [])
            case "start":
                return await _start(ctx, rows, row, minutes)
            case "pause":
                return await _pause(ctx, rows, row)
            case "done":
                return await _finish(ctx, rows, row, minutes)
            case "drop":
                return await _drop(ctx, rows, row)
            case _:
                return await _check_in(ctx, rows, row)


def _meant(rows: Rows, wanted: str, operation: str) -> dict[str, Any]:
    """Return the task that a call is about; without a name, the one that is under way."""
    if not wanted.strip():
        active = [row for row in rows.rows if is_active(row)]
        if len(active) == 1:
            return active[0]
    row = rows.find(wanted, "title") if wanted.strip() else None
    if row is None:
        open_tasks = [other for other in rows.rows if not other.get("done")]
        raise ToolError(
            f"Which task should operation {operation} be for? {wanted[:80]!r} is none. Set `task` "
            f"to one of these numbers: {listed(open_tasks, 'title')}. Nothing was changed."
        )
    return row


def is_active(row: Mapping[str, Any]) -> bool:
    """Tell whether a task is under way."""
    return moment_of(row, "started") is not None and not row.get("done")


def spent_minutes(row: Mapping[str, Any], now: int) -> float:
    """Return how many minutes a task has taken so far."""
    started = moment_of(row, "started")
    running = max(0, now - started) / MINUTE if started is not None and not row.get("done") else 0
    return (figure_of(row, "spent") or 0) + running


def _checked_title(title: str) -> str:
    text = " ".join(title.split())
    if not text or len(text) > _MAX_TITLE:
        raise ToolError(
            f"A title has 1 to {_MAX_TITLE} characters, and this one has {len(text)}. Write a "
            "short one that begins with a verb. Nothing was added."
        )
    return text


async def _add(
    ctx: ToolContext, rows: Rows, title: str, minutes: float, kind: str, steps: Sequence[str]
) -> str:
    text = _checked_title(title)
    same = next(
        (row for row in rows.rows if not row.get("done") and row.get("title") == text), None
    )
    if same is not None:
        return f"It is there already as task {number_of(same)}. Nothing was added."
    await _make_room(rows, 1 + len(steps))
    row = await rows.add(
        title=text,
        number=rows.new_number(),
        kind=" ".join(kind.split())[:60],
        estimate=round(minutes, 1) or None,
        touched=iso_text(ctx.now_ms),
    )
    made = f"Added task {number_of(row)}: {text}."
    if minutes:
        made += f" {_sentence(translation(minutes, task_times(rows.rows), kind))}"
    return f"{made}\n{await _split(ctx, rows, row, steps)}" if steps else made


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


async def _make_room(rows: Rows, count: int) -> None:
    """Take the oldest finished tasks out where there is no room for new ones."""
    for row in [row for row in rows.rows if row.get("done")]:
        if len(rows.rows) + count <= MAX_ROWS:
            return
        await rows.remove(row)
    if len(rows.rows) + count > MAX_ROWS:
        raise ToolError(
            f"There are {len(rows.rows):,} open tasks, and no more than {MAX_ROWS:,} are kept. "
            "Drop some with your owner. Nothing was added."
        )


async def _split(ctx: ToolContext, rows: Rows, row: Mapping[str, Any], steps: Sequence[str]) -> str:
    if not 1 <= len(steps) <= _MAX_STEPS:
        raise ToolError(
            f"Set `steps` to 1 to {_MAX_STEPS} small steps, each beginning with a verb; there were "
            f"{len(steps)}. Nothing was changed."
        )
    await _make_room(rows, len(steps))
    made: list[str] = []
    for step in steps:
        found = _MINUTES_IN_STEP.search(step)
        title = _checked_title(step[: found.start()] if found else step)
        size = (60 if found[2][0] in "hH" else 1) if found else 0
        new = await rows.add(
            title=title,
            number=rows.new_number(),
            part_of=number_of(row),
            kind=row.get("kind"),
            estimate=int(found[1]) * size if found else None,
            touched=iso_text(ctx.now_ms),
        )
        made.append(f"{number_of(new)} {title}")
    return f"Steps of task {number_of(row)}: {'; '.join(made)}. The first is enough for now."


async def _start(ctx: ToolContext, rows: Rows, row: Mapping[str, Any], minutes: float) -> str:
    if row.get("done"):
        raise ToolError(f"Task {number_of(row)} is done. Add a new one, or start another.")
    if is_active(row):
        return f"Task {number_of(row)} is under way already. Nothing was changed."
    told = [
        await _pause(ctx, rows, other)
        for other in [other for other in rows.rows if is_active(other)]
    ]
    now = iso_text(ctx.now_ms)
    changes: dict[str, Any] = {"started": now, "touched": now, "check_ins": None}
    if minutes:
        changes["estimate"] = round(minutes, 1)
    row = await rows.change(row, **changes)
    expected = await _put_check_in(ctx, rows, row)
    kind, estimate = str(row.get("kind") or ""), figure_of(row, "estimate")
    told.append(f"Started task {number_of(row)}: {row['title']}.")
    if estimate:
        told.append(_sentence(translation(estimate, task_times(rows.rows), kind)))
    told.append(f"A check-in comes in about {minutes_text(expected)}.")
    return " ".join(told)


async def _put_check_in(ctx: ToolContext, rows: Rows, row: Mapping[str, Any]) -> float:
    """Let a check-in come when a task should be over; return in how many minutes."""
    times, kind = task_times(rows.rows), str(row.get("kind") or "")
    estimate = figure_of(row, "estimate") or 0
    expected = estimate * time_factor(times, kind).factor if estimate else _UNESTIMATED
    delay = check_in_delay(expected, int(figure_of(row, "check_ins") or 0))
    at = await put_reminder(
        ctx,
        check_in_id(rows.block.id, number_of(row)),
        ctx.now_ms + round(delay * MINUTE),
        f"{CHECK_IN} {number_of(row)}: {row['title']}",
        await quiet_hours(ctx),
    )
    return (at - ctx.now_ms) / MINUTE


async def _pause(ctx: ToolContext, rows: Rows, row: Mapping[str, Any]) -> str:
    if not is_active(row):
        return f"Task {number_of(row)} is not under way. Nothing was changed."
    spent = round(spent_minutes(row, ctx.now_ms), 1)
    await rows.change(row, spent=spent, started=None, touched=iso_text(ctx.now_ms))
    await drop_reminder(ctx, check_in_id(rows.block.id, number_of(row)))
    return f"Paused task {number_of(row)} ({row['title']}) after {minutes_text(spent)}."


async def _finish(ctx: ToolContext, rows: Rows, row: Mapping[str, Any], minutes: float) -> str:
    if row.get("done") and not minutes:
        return f"Task {number_of(row)} is done already. Nothing was changed."
    spent = round(minutes or spent_minutes(row, ctx.now_ms), 1)
    now = iso_text(ctx.now_ms)
    finished = row.get("finished") if row.get("done") else now
    row = await rows.change(
        row, done=True, spent=spent or None, started=None, touched=now, finished=finished
    )
    await drop_reminder(ctx, check_in_id(rows.block.id, number_of(row)))
    told = [f"Done: task {number_of(row)}, {row['title']}."]
    estimate = figure_of(row, "estimate")
    if estimate and spent:
        told.append(
            f"It took {minutes_text(spent)}; the estimate was {minutes_text(estimate)}. That is "
            "remembered for the next estimate."
        )
    parent = figure_of(row, "part_of")
    left = [
        other
        for other in rows.rows
        if parent is not None and figure_of(other, "part_of") == parent and not other.get("done")
    ]
    if left:
        told.append(f"Next step: {number_of(left[0])}, {left[0]['title']}.")
    elif parent is not None:
        told.append(f"All steps of task {parent:g} are done; is the whole task done, too?")
    return " ".join(told)


async def _drop(ctx: ToolContext, rows: Rows, row: Mapping[str, Any]) -> str:
    number = number_of(row)
    gone = [
        other
        for other in rows.rows
        if other is row or (figure_of(other, "part_of") == number and not other.get("done"))
    ]
    for other in gone:
        await rows.remove(other)
        await drop_reminder(ctx, check_in_id(rows.block.id, number_of(other)))
    steps = f" and {len(gone) - 1} of its steps" if len(gone) > 1 else ""
    return f"Dropped task {number} ({row['title']}){steps}. That is fine."


async def _estimate(ctx: ToolContext, minutes: float, kind: str) -> str:
    rows = await open_rows(ctx, TASKS)
    times = task_times(rows.rows)
    if minutes:
        return _sentence(translation(minutes, times, kind))
    if not times:
        return NothingFound("No finished task has an estimate and a time yet: nothing is known.")
    kinds = dict.fromkeys(time.kind for time in times if time.kind)
    lines = [f"All tasks: factor {time_factor(times).factor:.2f} from {len(times)}."]
    for name in kinds:
        learned = time_factor(times, name)
        lines.append(f"{name}: factor {learned.factor:.2f} from {learned.samples}.")
    return "\n".join(lines)


async def _check_in(ctx: ToolContext, rows: Rows, row: Mapping[str, Any]) -> str:
    """Note that the owner is asked how a task goes, and say how to ask."""
    if not is_active(row):
        return f"Task {number_of(row)} is not under way any more: there is nothing to ask about."
    count = int(figure_of(row, "check_ins") or 0) + 1
    row = await rows.change(row, check_ins=count)
    so_far = minutes_text(spent_minutes(row, ctx.now_ms))
    told = f"{row['title']} has taken {so_far} so far. "
    if count < MAX_CHECK_INS:
        await _put_check_in(ctx, rows, row)
        return told + (
            "Ask in one kind sentence how it goes: done, a break, or a smaller next step? Do not "
            "urge."
        )
    return told + (
        "This is the last check-in. Say in one kind sentence that stopping, pausing or going on "
        "are all fine."
    )


# -- showing them ----------------------------------------------------------------------------------


def task_list(rows: Sequence[Mapping[str, Any]], now: int) -> str:
    """Return the open tasks with their steps, and how many are done."""
    open_tasks = [row for row in rows if not row.get("done")]
    done = len(rows) - len(open_tasks)
    if not open_tasks:
        return NothingFound(f"No task is open; {done} are done." if done else "There are no tasks.")
    times = task_times(rows)
    lines = [_line(row, times, now) for row in ordered(open_tasks)[:_MAX_LISTED]]
    more = len(open_tasks) - len(lines)
    ends = [f"and {more} more"] if more > 0 else []
    return "\n".join((*lines, *ends, f"{done} done."))


def ordered(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return tasks with those under way first, and each with its steps after it."""
    numbers = {number_of(row) for row in rows}
    steps: dict[int, list[Mapping[str, Any]]] = {}
    first: list[Mapping[str, Any]] = []
    for row in rows:
        parent = int(figure_of(row, "part_of") or 0)
        if parent in numbers and parent != number_of(row):
            steps.setdefault(parent, []).append(row)
        else:
            first.append(row)
    first.sort(key=lambda row: not _has_active(row, steps))
    found: list[Mapping[str, Any]] = []
    seen: set[int] = set()
    # Those that were written by hand as steps of each other come last.
    waiting = [*reversed(rows), *reversed(first)]
    while waiting:
        row = waiting.pop()
        if id(row) not in seen:
            seen.add(id(row))
            found.append(row)
            waiting.extend(reversed(steps.get(number_of(row), [])))
    return found


def _has_active(row: Mapping[str, Any], steps: Mapping[int, list[Mapping[str, Any]]]) -> bool:
    return is_active(row) or any(map(is_active, steps.get(number_of(row), ())))


def _line(row: Mapping[str, Any], times: Sequence[TaskTime], now: int) -> str:
    details: list[str] = []
    if is_active(row):
        details.append(f"under way, {minutes_text(spent_minutes(row, now))}")
    elif spent := figure_of(row, "spent"):
        details.append(f"paused after {minutes_text(spent)}")
    if estimate := figure_of(row, "estimate"):
        kind = str(row.get("kind") or "")
        usual = usual_minutes(estimate, time_factor(times, kind).factor)
        details.append(f"estimate {minutes_text(estimate)}, usually {minutes_text(usual)}")
    indent = "  " if row.get("part_of") else ""
    return f"{indent}{number_of(row)} {row.get('title')}" + (
        f" ({'; '.join(details)})" if details else ""
    )


def next_task(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the one thing to do now: what is under way, or its first open step, else the first."""
    open_tasks = [row for row in rows if not row.get("done")]
    active = next((row for row in open_tasks if is_active(row)), None)
    current = active or next(iter(ordered(open_tasks)), None)
    seen: set[int] = set()
    while current is not None and number_of(current) not in seen:
        number = number_of(current)
        seen.add(number)
        step = next((row for row in open_tasks if figure_of(row, "part_of") == number), None)
        if step is None:
            return current
        current = step
    return current


def _next_action(rows: Sequence[Mapping[str, Any]], now: int) -> str:
    row = next_task(rows)
    if row is None:
        return NothingFound("No task is open. Ask what is on your owner's mind.")
    return f"Next: {_line(row, task_times(rows), now).strip()}. Offer only this one."
