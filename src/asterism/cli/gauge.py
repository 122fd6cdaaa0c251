"""How far a long piece of work is: a bar at a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self

from asterism.cli.output import console
from asterism.cli.text import one_line

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

_EVERY = 0.1
_NARROW = 70


class Gauge:
    """Shows progress on standard error while it is entered."""

    def __init__(self, *, silent: bool = False) -> None:
        self._bars = None if silent or not sys.stderr.isatty() else _bars()
        self._silent = silent
        self._told = -1.0
        self.last = ""
        """What was said last, in words."""

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
            self._bars.add_task("looking …", total=None, told="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def show(self, done: int, total: int, told: str, what: str) -> None:
        """Show how far it is: `told` in figures, `what` is at hand."""
        self.last = told
        if self._bars is not None:
            task = self._bars.task_ids[0]
            said = one_line(what, 30)
            self._bars.update(
                task, description=said, total=total or None, completed=done, told=told
            )
            return
        share = done / total if total else 1.0
        if self._silent or (share < self._told + _EVERY and not share >= 1.0 > self._told):
            return
        self._told = share
        print(f"{share:.0%}: {told}", file=sys.stderr, flush=True)  # noqa: T201


def _bars() -> Bars:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    screen = console(stderr=True)
    bar = BarColumn(bar_width=None)
    told = TextColumn("{task.fields[told]}", markup=False)
    if screen.width < _NARROW:
        return Progress(bar, told, console=screen, transient=True, expand=True)
    what = TextColumn("{task.description}", markup=False)
    left = TimeRemainingColumn(compact=True)
    return Progress(what, bar, told, left, console=screen, transient=True, expand=True)
