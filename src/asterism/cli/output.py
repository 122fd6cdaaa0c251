"""What a command prints: tables and lines for people, JSON for programs, progress meanwhile.

A command returns a `Result`: a value for programs, and parts for people. Text is made safe here,
since a terminal must show characters and obey none.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import orjson

from asterism.records import dataclass
from asterism.views import view

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

T = TypeVar("T")

STATE_STYLES = {"done": "green", "failed": "red", "stopped": "dim", "dead": "red", "sent": "green"}
_WAITING_STYLE = "yellow"
_FEW, _MANY = 22, 60
_NARROW = 70
_PERSON = re.compile(r"person:(person_\w+)")
# Controls but for newline and tab, what turns the direction of text, and lone surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Of these JSON escapes only the first by itself.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


# -- text ------------------------------------------------------------------------------------------


def printable(text: str) -> str:
    r"""Return a text with its control characters spelled out, such as `\x1b`; lines stay lines."""
    return _UNSAFE.sub(
        lambda match: match[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n")
    )


def one_line(text: str, limit: int = 0) -> str:
    """Return a text on one line, cut to `limit` characters unless that is 0."""
    if limit:
        text = text[: limit * 4]  # enough of it, as whitespace shrinks
    line = " ".join(printable(text).split())
    return line if not limit or len(line) <= limit else line[: limit - 1] + "…"


def as_json(value: object) -> str:
    """Return a value as JSON over several lines; unsafe characters are escaped."""
    text = orjson.dumps(view(value), option=orjson.OPT_INDENT_2).decode()
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, such as `2 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def up_to(items: Sequence[T], limit: int) -> tuple[Sequence[T], list[str]]:
    """Return at most `limit` of the items, and a note if there are more; ask for one more."""
    if len(items) <= limit:
        return items, []
    return items[:limit], [more_than(limit)]


def more_than(limit: int) -> str:
    """Return the note below a list that stops at its limit."""
    return f"There are more than these {limit:,}; --limit {limit * 5} shows more."


def visible_to(audience: object, names: Mapping[str, str]) -> str:
    """Return an audience with the names of persons in it."""
    return _PERSON.sub(lambda match: f"person:{names.get(match[1], match[1])}", str(audience))


def first_words(text: str, wide: int = 110) -> str:
    """Return the beginning of a text: few words at a terminal that is not so wide."""
    narrow = sys.stdout.isatty() and console().width < wide
    return one_line(text, _FEW if narrow else _MANY)


def console(*, stderr: bool = False) -> Console:
    """Return a rich console that takes text as it is."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def note(text: str) -> None:
    """Print a text on standard error, beside the output."""
    print(printable(text), file=sys.stderr, flush=True)  # noqa: T201


# -- results ---------------------------------------------------------------------------------------


class Part(Protocol):
    """A part of a result that prints itself for people."""

    def show(self, out: Output) -> None:
        """Print it."""
        ...


class Result:
    """What a command returns: data for programs, parts for people, and the code it ends with."""

    def __init__(
        self, data: object, *parts: Part | str, notes: Sequence[str] = (), code: int = 0
    ) -> None:
        """Make a result; a part that is a text is printed as it is, notes on standard error."""
        self.data = data
        self.parts = parts
        self.notes = notes
        self.code = code


class Output:
    """Where a command prints."""

    def __init__(self, *, json: bool) -> None:
        self.json = json

    def result(self, result: Result) -> None:
        """Print a result as JSON, or part by part."""
        if self.json:
            print(as_json(result.data))  # noqa: T201
            return
        for part in result.parts:
            if isinstance(part, str):
                self.line(part)
            else:
                part.show(self)
        for text in result.notes:
            note(text)

    def line(self, text: str = "") -> None:
        """Print a text of ours or of anybody's."""
        print(printable(text))  # noqa: T201


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column of a table."""

    title: str
    text: Callable[[T], str]
    least: int = 0
    """The width that a terminal must have for this column to be shown."""
    prose: bool = False
    """May be broken over lines; anything else stays whole."""
    state: bool = False
    """Coloured by what it says."""


@dataclass(frozen=True, slots=True)
class ItemTable(Generic[T]):
    """Items as rows of a table; `empty` is printed if there are none."""

    columns: Sequence[Column[T]]
    items: Sequence[T]
    empty: str = ""

    def show(self, out: Output) -> None:
        """Print the table: coloured at a terminal, one line for each row elsewhere."""
        if not self.items:
            out.line(self.empty)
        elif sys.stdout.isatty():
            self._show_rich()
        else:
            self._show_plain()

    def _show_rich(self) -> None:
        from rich.table import Table
        from rich.text import Text

        screen = console()
        columns = [column for column in self.columns if screen.width >= column.least]
        table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
        for column in columns:
            table.add_column(column.title, no_wrap=not column.prose, overflow="fold")
        for item in self.items:
            row: list[Text] = []
            for column in columns:
                text = printable(column.text(item))
                style = STATE_STYLES.get(text, _WAITING_STYLE) if column.state else ""
                row.append(Text(text, style))
            table.add_row(*row)
        screen.print(table)

    def _show_plain(self) -> None:
        rows = [[column.title for column in self.columns]]
        # A row stays a line, so that `grep` and `awk` can be used.
        rows += [
            [printable(column.text(item)).replace("\n", " ") for column in self.columns]
            for item in self.items
        ]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        for row in rows:
            cells = (f"{text:<{width}}" for text, width in zip(row, widths, strict=True))
            print("  ".join(cells).rstrip())  # noqa: T201


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows whose last cells are texts; the lines of these stay under each other."""

    rows: Sequence[Sequence[str]]

    def show(self, out: Output) -> None:
        """Print the rows."""
        rows = [[printable(cell) for cell in row] for row in self.rows]
        if sys.stdout.isatty():
            self._show_rich(rows)
            return
        heads = zip(*(row[:-1] for row in rows), strict=True)
        widths = [max(map(len, cells)) for cells in heads]
        for *head, text in rows:
            cells = "".join(f"{cell:<{width}}  " for cell, width in zip(head, widths, strict=True))
            for line in text.split("\n"):
                out.line(f"{cells}{line}".rstrip())
                cells = " " * len(cells)

    def _show_rich(self, rows: Sequence[Sequence[str]]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2, 0, 0))
        for _ in rows[0][:-1]:
            table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        console().print(table)


# -- progress --------------------------------------------------------------------------------------


class ProgressBar:
    """Shows on standard error how far work is: a bar at a terminal, a line now and then elsewhere.

    With `download` the bar counts bytes, and shows their speed.
    """

    def __init__(self, *, silent: bool = False, download: bool = False) -> None:
        self._bar = None if silent or not sys.stderr.isatty() else _bar(download=download)
        self._task: TaskID | None = None
        self._silent = silent
        self._download = download
        self._every = 0.05 if download else 0.1
        self._shown = -1.0
        self._stage = ""
        self.last = ""
        """How far it was the last time, in words."""

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("looking …", total=None, figures="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(
        self, done: int, total: int, figures: str, what: str, *, name: str = "", stage: str = ""
    ) -> None:
        """Show how far it is: `figures` in words, and `what` it is about.

        A new `stage` begins anew, since its speed is another one. A line in a pipe names what is
        downloaded by its `name`.
        """
        self.last = figures
        is_new, self._stage = stage != self._stage, stage
        if self._bar is not None:
            self._update_bar(done, total, figures, what, is_new=is_new)
            return
        share = done / total if total else 1.0
        is_whole = share >= 1.0 > self._shown
        if self._silent or not (is_new or is_whole or share >= self._shown + self._every):
            return
        self._shown = share
        download = f"{name}: {what} ({figures}, {share:.0%})"
        note(download if self._download else f"{share:.0%}: {figures}")

    def _update_bar(self, done: int, total: int, figures: str, what: str, *, is_new: bool) -> None:
        assert self._bar is not None
        assert self._task is not None
        label = one_line(what, 0 if self._download else 30)
        facts: dict[str, Any] = {"total": total or None, "completed": done, "figures": figures}
        if is_new:
            self._bar.remove_task(self._task)
            self._task = self._bar.add_task(label, **facts)
        self._bar.update(self._task, description=label, **facts)


def _bar(*, download: bool) -> Progress:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    screen = console(stderr=True)
    bar, left = BarColumn(bar_width=None), TimeRemainingColumn(compact=True)
    columns: list[ProgressColumn]
    if download:
        share = TextColumn("{task.percentage:>3.0f} %")
        columns = [bar, share, left]
        wide = [bar, share, DownloadColumn(), TransferSpeedColumn(), left]
    else:
        figures = TextColumn("{task.fields[figures]}", markup=False)
        columns = [bar, figures]
        wide = [bar, figures, left]
    if screen.width >= _NARROW:
        columns = [TextColumn("{task.description}", markup=False), *wide]
    return Progress(*columns, console=screen, transient=True, expand=True)
