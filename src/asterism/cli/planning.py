"""`asterism task`, `asterism energy` and `asterism habit`: what the planning tools have kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from asterism.cli.commands import argument, command, group, option
from asterism.cli.output import Column, Grid, ItemTable, Result, console, one_line, plural
from asterism.errors import InvalidInput, NotFound
from asterism.records import dataclass
from asterism.times import DAY, local_text, local_zone

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.cli.output import Output
    from asterism.tools.planning.energy import Average, EnergyTrends
    from asterism.tools.planning.records import BlockKind
    from asterism.tools.planning.tasks import TaskTime

tasks = group("Show tasks, and what they took compared with their estimates.")
energies = group("Show energy and mood, by hour, weekday and day.")
habits = group("Show habits and their reminders.")

AgentOption = Annotated[
    str | None, option("--agent -a", "NAME", "The agent that keeps them, where there are several.")
]
_MAX_TIMES = 12
_LEAST_BAR, _MAX_BAR = 10, 50
_SPARKS = "▁▂▃▄▅▆▇█"
Row = dict[str, Any]


async def _rows(home: Asterism, kind: BlockKind, agent: str | None) -> list[Row]:
    """Return the rows of the block of a planning tool; none if there is no such block."""
    from asterism.tools.planning.records import fits

    there = [
        seen
        for seen in await home.blocks.list(agent)
        if seen.block.label == kind.label and fits(seen.block.schema, kind)
    ]
    if not there:
        return []
    if len(there) > 1:
        owners = ", ".join(seen.owner_name or "" for seen in there)
        raise InvalidInput(
            f"Several agents keep {kind.label}: {owners}. Choose one with --agent. Nothing was "
            "done."
        )
    _, text = await home.blocks.editable(agent, there[0].name)
    return json.loads(text)


def _now() -> int:
    import time

    return int(time.time() * 1_000)


# -- tasks -----------------------------------------------------------------------------------------


@command(tasks, "list", example="task list --done 5", readonly=True)
async def list_tasks(
    home: Asterism,
    agent: AgentOption = None,
    done: Annotated[
        int, option("--done", None, "Show so many finished ones, too, the newest.", min=0)
    ] = 0,
) -> Result:
    """Show open tasks, with what they usually take."""
    from asterism.tools.planning.records import TASKS
    from asterism.tools.planning.tasks import ordered, task_times

    rows = await _rows(home, TASKS, agent)
    times, now = task_times(rows), _now()
    finished = [row for row in rows if row.get("done")]
    shown = [
        *ordered([row for row in rows if not row.get("done")]),
        *(finished[-done:][::-1] if done else ()),
    ]
    columns: list[Column[Mapping[str, Any]]] = [
        Column("task", lambda row: str(row.get("number") or "")),
        Column("title", _title, prose=True),
        Column("state", lambda row: _state(row, now)),
        Column("kind", lambda row: str(row.get("kind") or ""), least=90),
        Column("estimate", lambda row: _minutes(row, "estimate"), least=80),
        Column("usually", lambda row: _usually(row, times), least=64),
    ]
    empty = "No task is open. Tell an agent with the tool task what is on your mind."
    more = [f"{plural(len(finished), 'task')} done."] if finished else []
    return Result([_shape(row, times) for row in shown], ItemTable(columns, shown, empty), *more)


def _title(row: Mapping[str, Any]) -> str:
    return f"{'  ' if row.get('part_of') else ''}{row.get('title')}"


def _minutes(row: Mapping[str, Any], field: str) -> str:
    from asterism.tools.planning.records import figure_of
    from asterism.tools.planning.tasks import minutes_text

    minutes = figure_of(row, field)
    return minutes_text(minutes) if minutes else ""


def _state(row: Mapping[str, Any], now: int) -> str:
    from asterism.tools.planning.tasks import is_active, minutes_text, spent_minutes

    spent = spent_minutes(row, now)
    if row.get("done"):
        return f"done in {minutes_text(spent)}" if spent else "done"
    if is_active(row):
        return f"under way, {minutes_text(spent)}"
    return f"paused, {minutes_text(spent)}" if spent else "open"


def _usual_minutes(row: Mapping[str, Any], times: Sequence[TaskTime]) -> int | None:
    from asterism.tools.planning.records import figure_of
    from asterism.tools.planning.tasks import time_factor, usual_minutes

    estimate = figure_of(row, "estimate")
    if not estimate or row.get("done"):
        return None
    return usual_minutes(estimate, time_factor(times, str(row.get("kind") or "")).factor)


def _usually(row: Mapping[str, Any], times: Sequence[TaskTime]) -> str:
    from asterism.tools.planning.tasks import minutes_text

    usual = _usual_minutes(row, times)
    return minutes_text(usual) if usual is not None else ""


def _shape(row: Mapping[str, Any], times: Sequence[TaskTime]) -> Row:
    return {**row, "usual_minutes": _usual_minutes(row, times)}


@command(tasks, "show", example="task show 3", readonly=True)
async def show_task(
    home: Asterism,
    number: Annotated[int, argument("NUMBER", 'The number that "task list" shows.')],
    agent: AgentOption = None,
) -> Result:
    """Show one task with its steps and times."""
    from asterism.tools.planning.records import TASKS, figure_of, moment_of
    from asterism.tools.planning.tasks import task_times

    rows = await _rows(home, TASKS, agent)
    found = next((row for row in rows if row.get("number") == number), None)
    if found is None:
        raise NotFound(f'There is no task {number}. "asterism task list" shows them.')
    times, now = task_times(rows), _now()
    steps = [row for row in rows if figure_of(row, "part_of") == number]
    pairs = [
        ("title", str(found.get("title"))),
        ("state", _state(found, now)),
        ("kind", str(found.get("kind") or "")),
        ("estimate", _minutes(found, "estimate")),
        ("usually", _usually(found, times)),
        *(
            (field, local_text(moment))
            for field in ("started", "touched", "finished")
            if (moment := moment_of(found, field)) is not None
        ),
        ("steps", "\n".join(_step_line(step, now) for step in steps)),
    ]
    shape = {**_shape(found, times), "steps": [_shape(step, times) for step in steps]}
    return Result(shape, Grid([pair for pair in pairs if pair[1]]))


def _step_line(step: Mapping[str, Any], now: int) -> str:
    return f"{step.get('number')} {step.get('title')} ({_state(step, now)})"


@command(tasks, "times", example="task times", readonly=True)
async def show_times(home: Asterism, agent: AgentOption = None) -> Result:
    """Show what tasks took compared with their estimates, and the factors learned from it."""
    from asterism.tools.planning.records import TASKS
    from asterism.tools.planning.tasks import task_times, time_factor

    rows = await _rows(home, TASKS, agent)
    times = task_times(rows)
    kinds = dict.fromkeys(time.kind for time in times if time.kind)
    factors = {
        kind: {"factor": learned.factor, "tasks": learned.samples}
        for kind in kinds
        for learned in [time_factor(times, kind)]
    }
    shape = {
        "factor": time_factor(times).factor,
        "tasks": len(times),
        "kinds": factors,
        "times": [
            {"kind": time.kind, "estimate": time.estimate, "spent": time.spent} for time in times
        ],
    }
    titles = [
        str(row.get("title"))
        for row in sorted(rows, key=lambda row: str(row.get("finished") or ""))
        if row.get("done") and task_times([row])
    ]
    return Result(shape, _TimesChart(times, titles, time_factor(times).factor, factors))


@dataclass(frozen=True, slots=True)
class _TimesChart:
    """Finished tasks as bars: the estimate, and what it took beyond or below it."""

    times: Sequence[TaskTime]
    titles: Sequence[str]
    factor: float
    kinds: Mapping[str, Mapping[str, Any]]

    def show(self, out: Output) -> None:
        from rich.text import Text

        from asterism.tools.planning.tasks import minutes_text

        if not self.times:
            out.line("No finished task has an estimate and a time yet.")
            return
        screen = console()
        recent = list(zip(self.titles, self.times, strict=True))[-_MAX_TIMES:]
        label = min(max(len(title) for title, _ in recent), max(12, screen.width // 3))
        room = min(_MAX_BAR, max(_LEAST_BAR, screen.width - label - 26))
        most = max(max(time.spent, time.estimate) for _, time in recent)
        for title, time in recent:
            estimate = round(room * time.estimate / most)
            spent = round(room * time.spent / most)
            bar = Text("█" * min(estimate, spent), "cyan")
            bar.append("▒" * max(0, spent - estimate), "yellow")
            bar.append("░" * max(0, estimate - spent), "dim")
            line = Text(f"{one_line(title, label):<{label}}  ").append_text(bar)
            line.append(" " * (room - max(estimate, spent)))
            line.append(f"  {minutes_text(time.estimate)} → {minutes_text(time.spent)}")
            screen.print(line, soft_wrap=True)
        screen.print(Text("█ as estimated  ▒ longer  ░ shorter", "dim"))
        out.line()
        count = plural(len(self.times), "task")
        out.line(f"All tasks take {self.factor:.1f} times their estimates ({count}).")
        for kind, learned in self.kinds.items():
            out.line(f"{kind}: {learned['factor']:.1f} times ({learned['tasks']}).")


# -- energy ----------------------------------------------------------------------------------------


@command(energies, "show", example="energy show --days 14", readonly=True)
async def show_energy(
    home: Asterism,
    agent: AgentOption = None,
    days: Annotated[int, option("--days", None, "How far back to look.", min=1, max=3660)] = 28,
) -> Result:
    """Show energy and mood by hour, weekday and day."""
    from asterism.tools.planning.energy import Figure, energy_entries, energy_trends
    from asterism.tools.planning.records import ENERGY

    rows = await _rows(home, ENERGY, agent)
    now, zone = _now(), local_zone()
    entries = [entry for entry in energy_entries(rows) if entry.at_ms > now - days * DAY]
    figures: tuple[Figure, ...] = ("energy", "mood")
    found = {
        figure: trends
        for figure in figures
        if (trends := energy_trends(entries, zone, now, figure=figure)) is not None
    }
    if not found:
        empty = f"Nothing was noted in the last {plural(days, 'day')}."
        return Result({}, f"{empty} Tell an agent with the tool energy how you are.")
    charts = [_EnergyChart(figure, trends) for figure, trends in found.items()]
    return Result(found, *charts[:1], *("" for _ in charts[1:]), *charts[1:])


@dataclass(frozen=True, slots=True)
class _EnergyChart:
    """Means as bars by hour and weekday, and one small bar for each day."""

    figure: str
    trends: EnergyTrends

    def show(self, out: Output) -> None:
        from asterism.tools.planning.energy import WEEKDAY_NAMES, trends_text

        for line in trends_text(self.trends, self.figure.capitalize()):
            out.line(line)
        out.line()
        hours = {f"{hour:02}:00": found for hour, found in self.trends.by_hour.items()}
        weekdays = {WEEKDAY_NAMES[day]: found for day, found in self.trends.by_weekday.items()}
        _print_bars(out, "by hour", hours)
        _print_bars(out, "by weekday", weekdays)
        _print_days(out, self.trends.by_day)


def _print_bars(out: Output, title: str, groups: Mapping[str, Average]) -> None:
    from rich.text import Text

    screen = console()
    screen.print(Text(title, "dim"))
    label = max(map(len, groups))
    room = min(_MAX_BAR, max(_LEAST_BAR, screen.width - label - 22))
    for name, found in groups.items():
        filled = round(room * found.mean / 10)
        line = Text(f"{name:<{label}}  ")
        line.append("█" * filled, _style(found.mean)).append("░" * (room - filled), "dim")
        line.append(f"  {found.mean:4.1f}  {plural(found.count, 'note')}")
        screen.print(line, soft_wrap=True)
    out.line()


def _print_days(out: Output, days: Mapping[str, Average]) -> None:
    """Print a small bar for each day with notes, as many of the newest as fit."""
    from rich.text import Text

    screen = console()
    newest = list(days.items())[-max(1, screen.width - 2) :]
    line = Text()
    for _, found in newest:
        line.append(_SPARKS[min(7, round((found.mean - 1) / 9 * 7))], _style(found.mean))
    screen.print(Text("by day", "dim"))
    screen.print(line, soft_wrap=True)
    first, last = newest[0][0], newest[-1][0]
    out.line(first if first == last else f"{first} to {last}")


def _style(mean: float) -> str:
    return "red" if mean < 4 else "yellow" if mean < 7 else "green"


# -- habits ----------------------------------------------------------------------------------------


@command(habits, "list", example="habit list", readonly=True)
async def list_habits(home: Asterism, agent: AgentOption = None) -> Result:
    """Show habits, how often they were done, and what becomes of their reminders."""
    from asterism.tools.planning.records import HABITS, figure_of, moment_of

    rows = await _rows(home, HABITS, agent)

    def reminders(row: Row) -> str:
        ignored = int(figure_of(row, "ignored") or 0)
        if row.get("paused"):
            return "paused"
        return f"less often ({ignored} without an answer)" if ignored else "as planned"

    def last(row: Row) -> str:
        moment = moment_of(row, "last_done")
        return local_text(moment)[:16] if moment is not None else ""

    columns: list[Column[Row]] = [
        Column("habit", lambda row: str(row.get("number") or "")),
        Column("name", lambda row: str(row.get("name")), prose=True),
        Column("when", lambda row: str(row.get("rule") or ""), prose=True),
        Column("done", lambda row: f"{int(figure_of(row, 'times') or 0)}"),
        Column("last", last, least=80),
        Column("reminders", reminders, prose=True),
    ]
    empty = "There are no habits. Tell an agent with the tool habit which one would help."
    return Result(rows, ItemTable(columns, rows, empty))
