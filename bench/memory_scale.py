"""`python -m bench.memory_scale`: what 10,000 agents with their memory cost while they rest."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from asterism import Asterism
from asterism.memory.gate import blocks as gate
from asterism.memory.gate.writer import Writer
from asterism.store import agents
from asterism.store.database import Connection
from asterism.types.agents import AgentRecord, new_id, now_ms
from bench.harness import resident_kb

LABELS = ("persona", "human", "notes")
TEXT = "Likes tea and long walks.\nLives in Bergen since 2019.\nHas a dog called Nansen."
MODEL = "mock:model"
TOGETHER = 250
"""Agents made in one transaction."""
CALLS = 50
LONGEST = 120.0


@dataclass(frozen=True, slots=True)
class Goal:
    """One line of the table."""

    key: str
    title: str
    most: float | None = None
    """None: only told."""
    unit: str = "ms"

    def row(self, found: dict[str, float]) -> tuple[str, str, str, str]:
        """Return the cells of its line."""
        value = found[self.key]
        goal = "" if self.most is None else f"< {self.most:g}"
        verdict = "" if self.most is None else "ok" if value < self.most else "MISSED"
        return f"{self.title}, {self.unit}", f"{value:,.2f}", goal, verdict


GOALS = [
    Goal("list_p50", "agent list, p50 of 50 calls"),
    Goal("list_p95", "agent list, p95 of 50 calls", 50),
    Goal("list_cpu", "… its CPU, median"),
    Goal("list_cpu_p95", "… its CPU, p95"),
    Goal("command", "asterism agent list, the whole command"),
    Goal("command_few", "… with 10 agents"),
    Goal("warm_p50", "open one agent's memory, warm, p50"),
    Goal("warm_p95", "open one agent's memory, warm, p95", 5),
    Goal("cold", "open one agent's memory, fresh process", 30),
    Goal("cold_second", "… another agent's right after it"),
    Goal("resident", "resident memory at rest", None, "MB"),
    Goal("resident_few", "… with 10 agents", None, "MB"),
    Goal("resident_ratio", "… the one by the other", 1.05, "×"),
]


# -- making them -----------------------------------------------------------------------------------


async def build(place: Path, count: int) -> None:
    """Make agents with three blocks each, through the gate."""
    async with Asterism.open(place, environ={}) as home:
        for first in range(0, count, TOGETHER):
            made = [
                AgentRecord(new_id("agent"), f"agent-{number:05}", MODEL, "Be kind.", now_ms())
                for number in range(first, min(first + TOGETHER, count))
            ]
            await home.database.write(lambda tx, made=made: _put(tx, made))


async def _put(tx: Connection, made: list[AgentRecord]) -> None:
    writer = Writer.owner(now_ms(), by="bench")
    for agent in made:
        assert await agents.create(tx, agent)
        for label in LABELS:
            await gate.create(tx, writer, agent.id, label, content=f"{TEXT}\nI am {agent.name}.")


# -- measuring, each in a process of its own -------------------------------------------------------


def _ms(begun: float) -> float:
    return (time.perf_counter() - begun) * 1_000


def _p(spans: list[float], share: float) -> float:
    return sorted(spans)[min(len(spans) - 1, int(len(spans) * share))]


async def _listing(home: Asterism, count: int) -> dict[str, float]:
    spans: list[float] = []
    cpu: list[float] = []
    for _ in range(CALLS):
        begun, before = time.perf_counter(), time.process_time()
        found = await home.agents.list()
        spans.append(_ms(begun))
        cpu.append((time.process_time() - before) * 1_000)
        assert len(found) == count
    return {
        "list_p50": statistics.median(spans),
        "list_p95": _p(spans, 0.95),
        "list_cpu": statistics.median(cpu),
        "list_cpu_p95": _p(cpu, 0.95),
    }


async def _open_memory(home: Asterism, name: str) -> float:
    """Return how long it takes to read an agent's blocks and to compile what it sees, in ms."""
    begun = time.perf_counter()
    seen = await home.blocks.list(name)
    shown = await home.contexts.now(name)
    took = _ms(begun)
    assert len(seen) == len(LABELS)
    assert name.encode() in shown.messages[0]
    return took


async def _warm(home: Asterism, count: int) -> dict[str, float]:
    names = [f"agent-{number * 37 % count:05}" for number in range(CALLS + 1)]
    spans = [await _open_memory(home, name) for name in names][1:]
    return {"warm_p50": statistics.median(spans), "warm_p95": _p(spans, 0.95)}


async def _cold(home: Asterism, count: int) -> dict[str, float]:
    # The first opening imports what it needs; the second finds it there.
    first = await _open_memory(home, f"agent-{count // 2:05}")
    return {"cold": first, "cold_second": await _open_memory(home, f"agent-{count // 3:05}")}


async def _resident(home: Asterism, count: int) -> dict[str, float]:
    del home, count
    gc.collect()
    return {"resident": resident_kb() / 1_024}


MEASURES: dict[str, Callable[[Asterism, int], Awaitable[dict[str, float]]]] = {
    "listing": _listing,
    "warm": _warm,
    "cold": _cold,
    "resident": _resident,
}


async def work(name: str, place: Path, count: int) -> dict[str, float]:
    """Measure one thing in a home that is there."""
    async with Asterism.open(place, environ={}) as home:
        return await MEASURES[name](home, count)


def _run(place: Path, *command: str) -> str:
    """Run a module in a process of its own, which finds its code compiled as an installed one."""
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(place.parent / "compiled")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(
        [sys.executable, "-m", *command],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LONGEST,
        env=environ,
    ).stdout


def _in_a_process(name: str, place: Path, count: int) -> dict[str, float]:
    said = _run(place, "bench.memory_scale", "--measure", name, str(place), str(count))
    found: dict[str, float] = json.loads(said)
    return found


def _command(place: Path) -> float:
    """Return how long the installed command takes to list all agents, in ms."""
    begun = time.perf_counter()
    _run(place, "asterism", "agent", "list", "--data", str(place))
    return _ms(begun)


def measure(scratch: Path, count: int, rounds: int) -> dict[str, float]:
    """Make many agents and few, measure both, and return the best of the rounds."""
    many, few = scratch / "many", scratch / "few"
    begun = time.perf_counter()
    asyncio.run(build(many, count))
    asyncio.run(build(few, 10))
    _say(f"{count:,} agents with {len(LABELS)} blocks each: {time.perf_counter() - begun:.0f} s")
    for name in MEASURES:
        _in_a_process(name, few, 10)  # compiles what later processes find
    _command(few)
    found: dict[str, float] = {}
    for number in range(rounds):
        _say(f"round {number + 1} of {rounds}")
        fresh: dict[str, float] = {}
        for name in MEASURES:
            fresh |= _in_a_process(name, many, count)
        fresh["resident_few"] = _in_a_process("resident", few, 10)["resident"]
        fresh["command"], fresh["command_few"] = _command(many), _command(few)
        found = {key: min(value, found.get(key, value)) for key, value in fresh.items()}
    found["resident_ratio"] = found["resident"] / found["resident_few"]
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(found: dict[str, float]) -> str:
    """Return the figures with their goals."""
    rows = [("figure", "measured", "goal", ""), *(goal.row(found) for goal in GOALS)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join(
            cell.rjust(width) if column in (1, 2) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "─" * max(map(len, lines)))
    return "\n".join(lines)


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory_scale", description=__doc__)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3, help="the best of them counts")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        name, place, count = arguments.measure
        print(json.dumps(asyncio.run(work(name, Path(place), int(count)))))
        return 0
    with tempfile.TemporaryDirectory(prefix="asterism-bench-") as scratch:
        found = measure(Path(scratch), arguments.agents, arguments.rounds)
    print(f"\n{table(found)}\n")
    print(
        f"The best of {arguments.rounds} rounds. Python {platform.python_version()}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; a busy machine makes times longer."
    )
    return int(arguments.check and any(goal.row(found)[3] == "MISSED" for goal in GOALS))


if __name__ == "__main__":
    sys.exit(main())
