"""What a command prints: tables and lines for people, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from asterism.cli.text import as_json, printable

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")

STATE_STYLES = {"done": "green", "failed": "red", "stopped": "dim", "dead": "red", "sent": "green"}
_WAITING_STYLE = "yellow"


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column of a table."""

    title: str
    text: Callable[[T], str]
    least: int = 0
    """The width that a terminal must have for this column to be shown."""
    prose: bool = False
    """May be broken over lines; anything else is kept whole."""
    state: bool = False
    """Coloured by what it says."""


class Output:
    """Where a command prints."""

    def __init__(self, *, json: bool) -> None:
        self.json = json

    def data(self, value: object) -> None:
        """Print a value as JSON."""
        print(as_json(value))  # noqa: T201

    def line(self, text: str = "") -> None:
        """Print a text of ours or of anybody's."""
        print(printable(text))  # noqa: T201

    def table(self, columns: Sequence[Column[T]], items: Sequence[T], *, empty: str) -> None:
        """Print items as a table, or `empty` if there are none."""
        if not items:
            self.line(empty)
        elif sys.stdout.isatty():
            _print_rich(columns, items)
        else:
            _print_plain(columns, items)

    def grid(self, rows: Sequence[Sequence[str]]) -> None:
        """Print rows whose last cells are texts; their lines stay under each other."""
        safe = [[printable(cell) for cell in row] for row in rows]
        if sys.stdout.isatty():
            _print_grid(safe)
            return
        widths = [max(map(len, column)) for column in zip(*(row[:-1] for row in safe), strict=True)]
        for *head, text in safe:
            cells = "".join(f"{cell:<{width}}  " for cell, width in zip(head, widths, strict=True))
            for line in text.split("\n"):
                self.line(f"{cells}{line}".rstrip())
                cells = " " * len(cells)


def console(*, stderr: bool = False) -> Console:
    """Return a rich console that takes text as it is."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def _print_grid(rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in rows[0][:-1]:
        table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console().print(table)


def _print_rich(columns: Sequence[Column[T]], items: Sequence[T]) -> None:
    from rich.table import Table
    from rich.text import Text

    screen = console()
    shown = [column for column in columns if screen.width >= column.least]
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for column in shown:
        table.add_column(column.title, no_wrap=not column.prose, overflow="fold")
    for item in items:
        row: list[Text] = []
        for column in shown:
            text = printable(column.text(item))
            style = STATE_STYLES.get(text, _WAITING_STYLE) if column.state else ""
            row.append(Text(text, style))
        table.add_row(*row)
    screen.print(table)


def _print_plain(columns: Sequence[Column[T]], items: Sequence[T]) -> None:
    rows = [[column.title for column in columns]]
    # A row stays a line, so that `grep` and `awk` can be used.
    rows += [[printable(one.text(item)).replace("\n", " ") for one in columns] for item in items]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{text:<{width}}" for text, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())  # noqa: T201
