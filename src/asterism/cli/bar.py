"""How far a download has come: a bar at a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Self

from asterism.cli.output import console
from asterism.models.embedded.weights import format_bytes

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from asterism.models.embedded.weights import PullProgress

_EVERY = 0.05
_NARROW = 60


class Bar:
    """Shows progress on standard error while it is entered; call it with what is new."""

    def __init__(self) -> None:
        self._bars = _bars() if sys.stderr.isatty() else None
        self._task: TaskID | None = None
        self._stage = ""
        self._told = 0.0

    def __enter__(self) -> Self:
        self._shown.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        self._shown.__exit__(None, None, None)

    def __call__(self, progress: PullProgress) -> None:
        """Show how far it is."""
        stage = progress.what.partition(" ")[0]
        is_new, self._stage = stage != self._stage, stage
        if self._bars is None:
            self._tell(progress, is_new=is_new)
            return
        if is_new and self._task is not None:
            self._bars.remove_task(self._task)
        if is_new or self._task is None:
            self._task = self._bars.add_task(
                progress.what, total=progress.total, completed=progress.done
            )
        self._bars.update(
            self._task,
            description=progress.what,
            total=progress.total,
            completed=progress.done,
        )

    @property
    def _shown(self) -> AbstractContextManager[object]:
        return self._bars or nullcontext()

    def _tell(self, progress: PullProgress, *, is_new: bool) -> None:
        share = progress.done / progress.total if progress.total else 1.0
        is_whole = share >= 1.0 > self._told
        if not is_new and share < self._told + _EVERY and not is_whole:
            return
        self._told = share
        of = f"{format_bytes(progress.done)} of {format_bytes(progress.total)}, {share:.0%}"
        print(f"{progress.name}: {progress.what} ({of})", file=sys.stderr, flush=True)  # noqa: T201


def _bars() -> Bars:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    screen = console(stderr=True)
    share = TextColumn("{task.percentage:>3.0f} %")
    left = TimeRemainingColumn(compact=True)
    if screen.width < _NARROW:
        return Progress(
            BarColumn(bar_width=None), share, left, console=screen, transient=True, expand=True
        )
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        share,
        DownloadColumn(),
        TransferSpeedColumn(),
        left,
        console=screen,
        transient=True,
        expand=True,
    )
