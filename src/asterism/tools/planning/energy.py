"""The tool `energy`: a log of energy and mood, and what hours and weekdays are good ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Annotated, Any, Literal

from asterism.errors import ToolError
from asterism.records import dataclass
from asterism.times import DAY, WEEK, to_datetime
from asterism.tools.builtin.arguments import OPERATION, TEXT, WORD, also, null_as
from asterism.tools.planning.records import ENERGY, figure_of, moment_of, open_rows, tool_errors
from asterism.tools.tool import NothingFound, ToolContext, tool
from asterism.types.permissions import Effect, EffectKind

LOWEST, HIGHEST = 1, 10
STATES = ("hyperfocus", "flow", "neutral", "scattered", "depleted")
WEEKDAY_NAMES = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_SHRINKAGE = 2
"""So many notes at the mean are added to those of an hour or weekday, so that one says little."""
_LEAST_NOTES = 2
"""An hour or weekday with fewer notes is not called good or bad."""
_MAX_NOTE = 500

Figure = Literal["energy", "mood"]


# -- trends ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EnergyEntry:
    """One note of the log."""

    at_ms: int
    energy: float | None
    mood: float | None
    state: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Average:
    """The mean of some notes and how many they are."""

    mean: float
    count: int


@dataclass(frozen=True, slots=True)
class EnergyTrends:
    """What a log says about energy, or about mood."""

    overall: Average
    by_hour: dict[int, Average]
    """By hour of the day, those with notes only."""
    by_weekday: dict[int, Average]
    """By weekday, Monday being 0."""
    by_day: dict[str, Average]
    """By date, such as `2026-11-16`, in order."""
    last_week: Average | None
    week_before: Average | None
    states: dict[str, int]
    """How often each state was noted."""


def energy_entries(rows: Iterable[Mapping[str, Any]]) -> list[EnergyEntry]:
    """Return the notes of a log in order, without figures that are out of range."""
    found = [
        EnergyEntry(
            at,
            _in_range(figure_of(row, "energy")),
            _in_range(figure_of(row, "mood")),
            str(row.get("state") or ""),
            str(row.get("note") or ""),
        )
        for row in rows
        if (at := moment_of(row, "time")) is not None
    ]
    return sorted(found, key=lambda entry: entry.at_ms)


def _in_range(figure: float | None) -> float | None:
    return figure if figure is not None and LOWEST <= figure <= HIGHEST else None


def energy_trends(
    entries: Sequence[EnergyEntry], zone: tzinfo, now: int, *, figure: Figure = "energy"
) -> EnergyTrends | None:
    """Return the means by hour, weekday and day; None if there are no figures."""
    figures = [
        (to_datetime(entry.at_ms, zone), entry.at_ms, value)
        for entry in entries
        if (value := entry.energy if figure == "energy" else entry.mood) is not None
    ]
    if not figures:
        return None

    def by(key: Callable[[datetime], Any]) -> dict[Any, Average]:
        groups: dict[Any, list[float]] = {}
        for moment, _, value in figures:
            groups.setdefault(key(moment), []).append(value)
        return {name: _average(values) for name, values in sorted(groups.items())}

    def between(first: int, last: int) -> Average | None:
        values = [value for _, at, value in figures if first < at <= last]
        return _average(values) if values else None

    return EnergyTrends(
        overall=_average([value for _, _, value in figures]),
        by_hour=by(lambda moment: moment.hour),
        by_weekday=by(lambda moment: moment.weekday()),
        by_day=by(lambda moment: f"{moment:%Y-%m-%d}"),
        last_week=between(now - WEEK, now),
        week_before=between(now - 2 * WEEK, now - WEEK),
        states=dict(Counter(entry.state for entry in entries if entry.state)),
    )


def _average(values: Sequence[float]) -> Average:
    return Average(sum(values) / len(values), len(values))


def extremes(groups: Mapping[int, Average], overall: Average) -> tuple[int, int] | None:
    """Return which hour or weekday is the best and which the hardest; None if nothing differs.

    One with few notes is drawn towards the mean, so that a single good morning proves nothing.
    """
    known = {
        name: (group.mean * group.count + overall.mean * _SHRINKAGE) / (group.count + _SHRINKAGE)
        for name, group in groups.items()
        if group.count >= _LEAST_NOTES
    }
    if len(known) < 2:
        return None
    best = max(known, key=lambda name: (known[name], -name))
    hardest = min(known, key=lambda name: (known[name], name))
    return (best, hardest) if known[best] - known[hardest] >= 0.5 else None


def trends_text(trends: EnergyTrends, what: str = "Energy") -> list[str]:
    """Return what a log says, in sentences."""
    overall = trends.overall
    lines = [f"{what}: {overall.mean:.1f} of 10 on average, from {_count(overall.count)}."]
    if hours := extremes(trends.by_hour, overall):
        best, hardest = hours
        lines.append(f"Best around {best:02}:00, lowest around {hardest:02}:00.")
    if days := extremes(trends.by_weekday, overall):
        best, hardest = days
        lines.append(f"Best on {WEEKDAY_NAMES[best]}, lowest on {WEEKDAY_NAMES[hardest]}.")
    now, before = trends.last_week, trends.week_before
    if now is not None and before is not None:
        lines.append(f"The last 7 days: {now.mean:.1f}; the 7 days before: {before.mean:.1f}.")
    if trends.states:
        named = sorted(trends.states.items(), key=lambda pair: (-pair[1], pair[0]))
        lines.append(f"States: {', '.join(f'{state} {count}' for state, count in named)}.")
    return lines


def _count(count: int) -> str:
    return f"{count} note{'s' * (count != 1)}"


# -- the tool --------------------------------------------------------------------------------------


def _energy_effects(arguments: Mapping[str, Any]) -> list[Effect]:
    if arguments.get("operation") == "trends":
        return [Effect(EffectKind.READ, things=(ENERGY.label,))]
    note = str(arguments.get("note") or "")
    content = (note,) if note else ()
    return [Effect(EffectKind.REMEMBER, things=(ENERGY.label,), content=content)]


@tool(
    transactional=True,
    trust=None,
    compact=True,
    effects=_energy_effects,
    reserved=True,
    audience="owner",
    changes_by_itself=True,
)
async def energy(
    ctx: ToolContext,
    operation: Annotated[Literal["log", "trends"], OPERATION, WORD],
    level: Annotated[float, also("level", "energy"), null_as(0)] = 0,
    mood: Annotated[float, null_as(0)] = 0,
    state: Annotated[
        Literal["", "hyperfocus", "flow", "neutral", "scattered", "depleted"], null_as(""), WORD
    ] = "",
    note: Annotated[str, also("note", "text", "reason"), TEXT] = "",
    days: Annotated[int, null_as(28)] = 28,
) -> str:
    """Log your owner's energy and mood, or see which hours and weekdays are good ones.

    Args:
        operation: log, or trends.
        level: Energy from 1 (none) to 10 (full).
        mood: From 1 (low) to 10 (high).
        note: What it has to do with, in a few words.
        days: How far back trends look.
    """
    with tool_errors(ctx):
        if operation == "trends":
            return await _trends(ctx, days)
        for figure in (level, mood):
            if figure and not LOWEST <= figure <= HIGHEST:
                raise ToolError(
                    f"{figure:g} is not a valid level. Use {LOWEST} to {HIGHEST}. Nothing was "
                    "noted."
                )
        if not (level or mood or state):
            raise ToolError("Set `level`, `mood` or `state`. Nothing was noted.")
        rows = await open_rows(ctx, ENERGY, write=True)
        await rows.shorten_log()
        await rows.add(
            note=" ".join(note.split())[:_MAX_NOTE],
            energy=level or None,
            mood=mood or None,
            state=state,
        )
        parts = [
            f"energy {level:g}" * bool(level),
            f"mood {mood:g}" * bool(mood),
            state,
        ]
        return f"Noted: {', '.join(part for part in parts if part)}."


async def _trends(ctx: ToolContext, days: int) -> str:
    rows = await open_rows(ctx, ENERGY)
    since = ctx.now_ms - max(1, min(days, 3_650)) * DAY
    entries = [entry for entry in energy_entries(rows.rows) if entry.at_ms > since]
    zone, now = ctx.settings().zone, ctx.now_ms
    lines: list[str] = []
    figures: tuple[Figure, ...] = ("energy", "mood")
    for figure in figures:
        found = energy_trends(entries, zone, now, figure=figure)
        if found is not None:
            lines += trends_text(found, figure.capitalize())
    return "\n".join(lines) or NothingFound("Nothing was noted yet. Ask how much energy there is.")
