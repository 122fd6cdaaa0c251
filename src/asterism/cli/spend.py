"""`asterism spend`: what models have cost, day by day, and how much of each cap is used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from datetime import date
from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import option
from asterism.cli.output import Column, ItemTable, Result, console, plural, printable
from asterism.records import dataclass
from asterism.views import SpendBy, SpendSum, spend_by_day, spend_sums, spend_view

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from asterism.app import Asterism
    from asterism.cli.output import Output
    from asterism.types.spending import Spend, Standing

_ROWS = 6
_BAR = 20
_NARROW = 60
_BLOCKS = " ▁▂▃▄▅▆▇█"
_WARN, _FULL = 80, 100


async def spend(
    home: Asterism,
    days: Annotated[
        int, option("--days", None, "The number of days, including today.", min=1, max=3660)
    ] = 30,
    agent: Annotated[str | None, option("--agent", "NAME", "Only this agent's calls.")] = None,
    by: Annotated[SpendBy, option("--by", None, "How to group the calls.")] = SpendBy.AGENT,
) -> Result:
    """Show what models have cost, and how much of each cap is used."""
    report = await home.spending.report(days, agent=agent)
    return Result(spend_view(report, by), _Spending(report, by))


@dataclass(frozen=True, slots=True)
class _Spending:
    """What models have cost: a table, a plot by day, and the caps."""

    spend: Spend
    by: SpendBy

    def show(self, out: Output) -> None:
        spend, sums = self.spend, spend_sums(self.spend.lines, self.by)
        if sums:
            _print_table(out, spend, sums, self.by)
            _print_plot(console(), spend)
        else:
            span = "today" if spend.first == spend.last else f"from {spend.first} to {spend.last}"
            out.line(f"There were no calls to models {span}: nothing was spent.")
        if spend.standings:
            _print_caps(console(), spend.standings)
        else:
            out.line()
            out.line("There is no spending cap. To set one, write into asterism.toml:")
            out.line("[budget]")
            out.line("day = 5.00  # US dollars; month, agents and persons can be capped too")


# -- the table -------------------------------------------------------------------------------------


def _print_table(out: Output, spend: Spend, sums: list[SpendSum], by: SpendBy) -> None:
    from asterism.types.spending import dollars

    total = SpendSum("total")
    for line in spend.lines:
        total.add(line)
    columns: list[tuple[str, Callable[[SpendSum], str], int]] = [
        (by.value, lambda row: row.name, 0),
        ("calls", lambda row: f"{row.calls:,}", 50),
        ("in", lambda row: _tokens(row.input), _NARROW),
        ("cached", lambda row: _tokens(row.cached), 80),
        ("out", lambda row: _tokens(row.output), _NARROW),
        ("cost", lambda row: row.cost_text, 0),
    ]
    if any(row.presumed for row in sums):
        columns.append(("presumed", lambda row: dollars(row.presumed), 50))
    rows = [*sums, total] if len(sums) > 1 else sums
    if not sys.stdout.isatty():
        ItemTable([Column(title, text) for title, text, _ in columns], rows).show(out)
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

    visible = [column for column in columns if screen.width >= column[2]]
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for number, (title, _, _) in enumerate(visible):
        table.add_column(title, justify="right" if number else "left", overflow="fold")
    for row in rows:
        last = totalled and row is rows[-1]
        table.add_row(
            *(Text(printable(text(row)), "bold" if last else "") for _, text, _ in visible)
        )
    screen.print(table)


def _tokens(count: int) -> str:
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1_000:,.0f}k" if count < 1_000_000 else f"{count / 1_000_000:,.1f}M"


# -- the plot --------------------------------------------------------------------------------------


def _print_plot(screen: Console, spend: Spend) -> None:
    from rich.text import Text

    from asterism.types.spending import dollars

    days = spend_by_day(spend)
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

    for standing in standings:
        total, cap = standing.total, standing.cap
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
            parts.append(f"{dollars(total.reserved)} reserved for running calls")
        screen.print(bar.append(f" {', '.join(parts)}", "dim"))
        screen.print(Text(f"resets {standing.renewal}", "dim"))
