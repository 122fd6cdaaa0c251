"""`asterism spend`: what models have cost, day by day, and how much of each cap is used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asterism.cli.home import visit
from asterism.cli.options import Options
from asterism.cli.output import Column, Output, console
from asterism.cli.text import plural, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from asterism.app import Asterism
    from asterism.types.spending import Spend, SpendLine, Standing

_ROWS = 6
_BAR = 20
_NARROW = 60
_BLOCKS = " ▁▂▃▄▅▆▇█"
_WARN, _FULL = 80, 100


class By(StrEnum):
    """What calls are added up by."""

    AGENT = "agent"
    MODEL = "model"
    DAY = "day"
    PERSON = "person"


@dataclass(slots=True)
class SpendSum:
    """Calls added up."""

    name: str
    calls: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    cost: int = 0
    presumed: int = 0
    paid: bool = False
    unknown: bool = False
    """Whether there were calls whose price nobody knows."""

    def add(self, line: SpendLine) -> None:
        """Count a line in."""
        self.calls += line.calls
        self.input += line.usage.input
        self.cached += line.usage.cached
        self.output += line.usage.output
        self.presumed += line.presumed
        self.cost += line.cost or 0
        self.unknown = self.unknown or line.cost is None
        self.paid = self.paid or bool(line.cost or line.presumed)

    @property
    def cost_text(self) -> str:
        """The cost in words."""
        from asterism.types.spending import dollars

        if not self.paid:
            return "unknown" if self.unknown else "free"
        return dollars(self.cost) + (" + unknown" if self.unknown else "")


def spend(
    options: Options,
    days: Annotated[
        int, typer.Option("--days", min=1, max=3660, help="How many days, today among them.")
    ] = 30,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Only this agent's calls.")
    ] = None,
    by: Annotated[By, typer.Option("--by", help="What calls are added up by.")] = By.AGENT,
) -> None:
    """Show what models have cost, and how much of each cap is used."""

    async def errand(home: Asterism) -> Spend:
        return await home.spending.report(days, agent=agent)

    found = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data(_data(found, by))
        return
    sums = _sums(found.lines, by)
    if sums:
        _print_table(out, found, sums, by)
        _print_plot(console(), found)
    else:
        span = "today" if found.first == found.last else f"from {found.first} to {found.last}"
        out.line(f"No model was asked {span}: nothing was spent.")
    if found.standings:
        _print_caps(console(), found.standings)
    else:
        out.line()
        out.line("There is no spending cap. To set one, write into asterism.toml:")
        out.line("[budget]")
        out.line("day = 5.00  # US dollars; month, agents and persons can be capped too")


# -- adding up -------------------------------------------------------------------------------------


def _sums(lines: Iterable[SpendLine], by: By) -> list[SpendSum]:
    sums: dict[str, SpendSum] = {}
    for line in lines:
        name = {
            By.AGENT: line.agent,
            By.MODEL: line.model or "(not recorded)",
            By.DAY: line.day,
            By.PERSON: line.person or "(nobody)",
        }[by]
        sums.setdefault(name, SpendSum(name)).add(line)
    if by is By.DAY:
        return [sums[name] for name in sorted(sums)]
    return sorted(sums.values(), key=lambda one: (-one.cost - one.presumed, -one.calls, one.name))


def _by_day(found: Spend) -> list[tuple[date, int, int]]:
    """Return for every day what was spent and what is presumed."""
    first, last = date.fromisoformat(found.first), date.fromisoformat(found.last)
    costs = {line.name: line for line in _sums(found.lines, By.DAY)}
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    nothing = SpendSum("")
    return [
        (day, one.cost, one.presumed)
        for day in days
        for one in (costs.get(f"{day:%Y-%m-%d}", nothing),)
    ]


def _data(found: Spend, by: By) -> dict[str, Any]:
    return {
        "first": found.first,
        "last": found.last,
        "by": by.value,
        "sums": [
            {
                "name": one.name,
                "calls": one.calls,
                "tokens_in": one.input,
                "tokens_cached": one.cached,
                "tokens_out": one.output,
                "cost_usd": None if one.unknown and not one.paid else _number(one.cost),
                "presumed_usd": _number(one.presumed),
                "price_unknown": one.unknown,
            }
            for one in _sums(found.lines, by)
        ],
        "days": [
            {"day": f"{day:%Y-%m-%d}", "cost_usd": _number(cost), "presumed_usd": _number(presumed)}
            for day, cost, presumed in _by_day(found)
        ],
        "caps": [
            {
                "scope": one.cap.scope,
                "who": one.cap.who,
                "span": one.cap.span.value,
                "setting": one.cap.setting,
                "cap_usd": _number(one.cap.amount),
                "spent_usd": _number(one.total.spent),
                "presumed_usd": _number(one.total.presumed),
                "reserved_usd": _number(one.total.reserved),
                "renewal": one.renewal,
            }
            for one in found.standings
        ],
    }


def _number(amount: int) -> float:
    return amount / 1_000_000_000


# -- the table -------------------------------------------------------------------------------------


def _print_table(out: Output, found: Spend, sums: list[SpendSum], by: By) -> None:
    from asterism.types.spending import dollars

    total = SpendSum("total")
    for line in found.lines:
        total.add(line)
    presumed = any(one.presumed for one in sums)
    columns: list[tuple[str, Callable[[SpendSum], str], int]] = [
        (by.value, lambda one: one.name, 0),
        ("calls", lambda one: f"{one.calls:,}", 50),
        ("in", lambda one: _tokens(one.input), _NARROW),
        ("cached", lambda one: _tokens(one.cached), 80),
        ("out", lambda one: _tokens(one.output), _NARROW),
        ("cost", lambda one: one.cost_text, 0),
    ]
    if presumed:
        columns.append(("presumed", lambda one: dollars(one.presumed), 50))
    rows = [*sums, total] if len(sums) > 1 else sums
    if not sys.stdout.isatty():
        out.table([Column(title, text) for title, text, _ in columns], rows, empty="")
        return
    _print_rich_table(console(), columns, rows, totalled=len(sums) > 1)


def _print_rich_table(
    screen: Console,
    columns: list[tuple[str, Callable[[SpendSum], str], int]],
    rows: list[SpendSum],
    *,
    totalled: bool,
) -> None:
    from rich.table import Table
    from rich.text import Text

    shown = [column for column in columns if screen.width >= column[2]]
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for number, (title, _, _) in enumerate(shown):
        table.add_column(title, justify="right" if number else "left", overflow="fold")
    for row in rows:
        last = totalled and row is rows[-1]
        table.add_row(*(Text(printable(text(row)), "bold" if last else "") for _, text, _ in shown))
    screen.print(table)


def _tokens(count: int) -> str:
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1_000:,.0f}k" if count < 1_000_000 else f"{count / 1_000_000:,.1f}M"


# -- the plot --------------------------------------------------------------------------------------


def _print_plot(screen: Console, found: Spend) -> None:
    from rich.text import Text

    from asterism.types.spending import dollars

    days = _by_day(found)
    top = max(cost + presumed for _, cost, presumed in days)
    if top == 0 or len(days) == 1:
        return
    label = dollars(top)
    room = max(10, screen.width - len(label) - 3)
    each = -(-len(days) // room)
    stacks = [days[start : start + each] for start in range(0, len(days), each)]
    amounts = [sum(cost + presumed for _, cost, presumed in stack) for stack in stacks]
    top = max(amounts)
    label = dollars(top).rjust(len(label))
    wide = max(1, min(4, room // len(stacks)))
    gap = 1 if wide > 1 else 0
    screen.print()
    what = "day" if each == 1 else f"{plural(each, 'day')} in a bar"
    screen.print(Text(f"Cost by {what}" if each == 1 else f"Cost, {what}", "dim"))
    for row in range(_ROWS, 0, -1):
        line = Text(label if row == _ROWS else "$0".rjust(len(label)) if row == 1 else "", "dim")
        line.pad_right(len(label) - len(line))
        line.append(" ┤" if row in (_ROWS, 1) else " │", "dim")
        for amount in amounts:
            filled = amount * _ROWS * 8 / top - (row - 1) * 8
            # A day with any cost at all shows.
            level = max(0, min(8, round(filled))) or (1 if row == 1 and amount else 0)
            line.append(_BLOCKS[level] * (wide - gap) + " " * gap, "cyan")
        line.rstrip()
        screen.print(line, no_wrap=True, crop=True)
    screen.print(_axis(days[0][0], days[-1][0], len(label) + 2, wide * len(stacks)))


def _axis(first: date, last: date, indent: int, width: int) -> Text:
    from rich.text import Text

    form = "%m-%d" if first.year == last.year else "%Y-%m-%d"
    left, right = first.strftime(form), last.strftime(form)
    between = max(1, width - len(left) - len(right))
    return Text(" " * indent + left + " " * between + right, "dim")


# -- the caps --------------------------------------------------------------------------------------


def _print_caps(screen: Console, standings: Iterable[Standing]) -> None:
    from rich.text import Text

    from asterism.types.spending import dollars

    for one in standings:
        total, cap = one.total, one.cap
        if cap.setting.startswith("budget.each_") and not total.counted:
            continue
        part = 100 * total.counted // cap.amount if cap.amount else _FULL
        style = "red" if part >= _FULL else "yellow" if part >= _WARN else "green"
        screen.print()
        head = Text(f"{printable(cap.who)}, this {cap.span}: ")
        head.append(f"{part} %", style)
        head.append(f" of {dollars(cap.amount)}")
        screen.print(head)
        filled = min(_BAR, -(-_BAR * total.counted // cap.amount) if cap.amount else _BAR)
        bar = Text("█" * filled, style).append("░" * (_BAR - filled), "dim")
        parts = [f"{dollars(total.spent)} spent"]
        if total.presumed:
            parts.append(f"{dollars(total.presumed)} presumed")
        if total.reserved:
            parts.append(f"{dollars(total.reserved)} held for calls under way")
        screen.print(bar.append(f" {', '.join(parts)}", "dim"))
        screen.print(Text(f"starts anew {one.renewal}", "dim"))
