"""The figures to reach, and how they are put in a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Measured = dict[str, dict[str, float]]
"""By system, then by figure such as `S3.cpu_ms_10`."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    key: str
    title: str
    goal: float
    unit: str = ""
    digits: int = 2
    kind: Literal["ratio", "most", "least"] = "most"
    """`ratio`: at most `goal` times the floor; the others hold for our own figure."""

    @property
    def scenario(self) -> str:
        """The scenario that measures it."""
        return self.key.partition(".")[0]

    def ratio(self, measured: Measured) -> float | None:
        """Return how many times the floor it is, if both are known and the floor is not nothing."""
        floor, ours = (measured.get(name, {}).get(self.key) for name in ("floor", "ours"))
        return ours / floor if floor and ours is not None else None

    def verdict(self, measured: Measured) -> str:
        """Return whether the goal is reached."""
        ours = measured.get("ours", {}).get(self.key)
        value = self.ratio(measured) if self.kind == "ratio" else ours
        if value is None:
            return "not measured"
        reached = value >= self.goal if self.kind == "least" else value <= self.goal
        return "ok" if reached else "MISSED"

    def row(self, measured: Measured) -> list[str]:
        """Return the cells of the figure's line."""
        ratio = self.ratio(measured)
        sign = "≥" if self.kind == "least" else "≤"
        goal = f"{sign} {self.goal:g} ×" if self.kind == "ratio" else f"{sign} {self.goal:,g}"
        return [
            self.scenario,
            f"{self.title}, {self.unit}" if self.unit else self.title,
            *(
                self._cell(measured.get(name, {}).get(self.key))
                for name in ("floor", "raw", "ours")
            ),
            f"{ratio:.2f}" if ratio is not None else "–",
            goal,
            self.verdict(measured),
        ]

    def _cell(self, value: float | None) -> str:
        return "–" if value is None else f"{value:,.{self.digits}f}"


FIGURES = [
    Figure("SC.10", "calls in a plain turn, 10 messages", 4_000, digits=0),
    Figure("SC.100", "calls in a plain turn, 100 messages", 4_500, digits=0),
    Figure("SC.tool", "calls in a tool turn", 8_000, digits=0),
    Figure("S3.cpu_ms_10", "CPU of a plain turn, 10 messages", 1.2, "ms", kind="ratio"),
    Figure("S3.cpu_ms_1000", "CPU of a plain turn, 1,000 messages", 1.6, "ms", kind="ratio"),
    Figure("S3.disk_mb", "1,000 messages on disk", 2, "MB"),
    Figure("S4.cpu_ms", "CPU of a tool turn", 1.2, "ms", kind="ratio"),
    Figure("S1.cpu_s", "CPU until ready", 3, "s", kind="ratio"),
    Figure("S1.resident_mb", "resident memory when ready", 70, "MB", digits=0),
    Figure("S2.cpu_ms", "CPU to create an agent", 0.5, "ms"),
    Figure("S6.ms", "new process: load 1,000 messages, one turn", 60, "ms", digits=1),
    Figure("S5.turns_per_s_16", "16 conversations, turns/s", 280, digits=0, kind="least"),
    Figure("S5.turns_per_s_64", "64 conversations, turns/s", 700, digits=0, kind="least"),
    Figure("S5.turns_per_s_256", "256 conversations, turns/s", 900, digits=0, kind="least"),
    Figure("S7.more_runs", "kill -9 inside a tool: runs after it", 0, digits=0),
    Figure("S7.answered", "… and answered after a restart", 1, digits=0, kind="least"),
]

_HEAD = ["", "figure", "floor", "raw", "ours", "ratio", "goal", ""]


def table(measured: Measured) -> str:
    """Return the table of all figures that were measured."""
    known = {key for figures in measured.values() for key in figures}
    rows = [_HEAD, *(figure.row(measured) for figure in FIGURES if figure.key in known)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [
        "  ".join(
            # Words to the left, numbers to the right.
            cell.rjust(width) if column in range(2, 7) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "─" * max(map(len, lines)))
    return "\n".join(lines)
