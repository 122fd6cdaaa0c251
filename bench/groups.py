"""`python -m bench.groups`: what a turn of a group costs, and how long a choice takes."""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from asterism import Asterism, GroupMember, GroupRecord, GroupState, Pattern
from asterism.groups.patterns.dynamic import DynamicPattern
from asterism.groups.patterns.pipeline import PipelinePattern
from asterism.groups.patterns.round_robin import RoundRobinPattern
from asterism.groups.patterns.supervisor import SupervisorPattern
from asterism.groups.patterns.voting import VotingPattern
from asterism.store import groups
from asterism.testing.scripted import ScriptedModel

MAX_RATIO = 3.5
"""A turn of three agents may cost this many single turns of CPU."""
MAX_SELECTION_MS = 5.0
TEXT = (
    "Please write down what we should look at next in the garden, since the roses and the hedge "
    "need some care before the winter begins."
)
NAMES = ("ada", "ben", "cy")
SETTINGS = {"model": "s:x", "search": {"encoder": "none"}}
"""Without the encoder, which works in the background and would be counted."""


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _turn_ms(kind: str, turns: int) -> float:
    """Return the CPU of one turn in milliseconds, in a home of its own.

    What is done behind the turns counts, too, such as the index of the search: it comes every so
    many messages, so that part of a conversation would show it or not.
    """
    model = ScriptedModel.from_rule(lambda _: "An answer of some words.")
    stages: dict[str, list[object]] = {"stages": [*NAMES], "parallel": [{"agents": [*NAMES]}]}
    with tempfile.TemporaryDirectory() as place:
        async with Asterism.open(
            Path(place), models={"s": model}, settings=SETTINGS, environ={}
        ) as home:
            asked = home.agents if kind == "single" else home.groups
            for name in (kind,) if kind == "single" else NAMES:
                await home.agents.create(name)
            if kind != "single":
                options = {"stages": stages[kind]}
                await home.groups.create(kind, pattern="pipeline", options=options, members=NAMES)
            for _ in range(5):
                await asked.ask(kind, TEXT)
            before = _cpu()
            for _ in range(turns):
                await asked.ask(kind, TEXT)
            return (_cpu() - before) / turns * 1_000


async def turn_costs(turns: int) -> dict[str, float]:
    """Return the CPU in milliseconds of a single turn and of turns of three agents.

    They take turns, round by round, and each keeps the best of five.
    """
    costs: dict[str, float] = {}
    for _ in range(5):
        for kind in ("single", "stages", "parallel"):
            spent = await _turn_ms(kind, turns)
            costs[kind] = min(spent, costs.get(kind, spent))
    return costs


def selection_ms(members: int) -> dict[str, float]:
    """Return the median milliseconds of one decision of each pattern, and of the slowest run."""
    rng = random.Random(1)
    words = ["tax", "garden", "music", "travel", "cooking", "code", "law", "health"]
    everybody = tuple(
        GroupMember(
            f"agent_{number}",
            f"member{number}",
            capabilities=tuple(f"{rng.choice(words)} and {rng.choice(words)}" for _ in range(3)),
            position=number,
        )
        for number in range(members)
    )
    patterns: dict[str, tuple[Pattern, dict[str, object]]] = {
        "round_robin": (RoundRobinPattern(), {}),
        "pipeline": (PipelinePattern(), {}),
        "supervisor": (SupervisorPattern(), {}),
        "dynamic": (DynamicPattern(), {"selector": "capability"}),
        "load_balancing": (DynamicPattern(), {"selector": "load_balancing"}),
        "voting": (VotingPattern(), {}),
    }
    found: dict[str, float] = {}
    for name, (pattern, options) in patterns.items():
        memory = {"chosen": [[f"agent_{n % members}", 1] for n in range(1_000)]}
        group = GroupRecord(
            "group_1", "g", name, pattern.check(options), "", memory, members=everybody
        )
        times: list[float] = []
        for number in range(50):
            text = f"Question {number} about {rng.choice(words)} and {rng.choice(words)}"
            state = GroupState(group, f"turn_{number}", text, "you", 1)
            before = time.perf_counter()
            pattern.decide(state)
            times.append((time.perf_counter() - before) * 1_000)
        found[name] = statistics.median(times)
    return found


async def loading_ms(count: int) -> float:
    """Return the median milliseconds of reading one of many groups of ten members."""
    model = ScriptedModel.from_rule(lambda _: "ok")
    with tempfile.TemporaryDirectory() as place:
        async with Asterism.open(
            Path(place), models={"s": model}, settings=SETTINGS, environ={}
        ) as home:
            names = [f"agent{number}" for number in range(10)]
            for name in names:
                await home.agents.create(name)
            made = [await home.groups.create(f"group{n}", members=names) for n in range(count)]
            times: list[float] = []
            for group in random.Random(1).sample(made, 100):
                before = time.perf_counter()
                await home.database.read(lambda tx, id=group.id: groups.by_id(tx, id))
                times.append((time.perf_counter() - before) * 1_000)
    return statistics.median(times)


def main() -> int:
    """Print the figures; with --check, fail if one is beyond its budget."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--check", action="store_true")
    reader.add_argument("--turns", type=int, default=200)
    reader.add_argument("--groups", type=int, default=1_000)
    options = reader.parse_args()
    costs = asyncio.run(turn_costs(options.turns))
    worst = 0.0
    print(f"single turn      {costs['single']:.2f} ms CPU")
    for name in ("stages", "parallel"):
        ratio = costs[name] / costs["single"]
        worst = max(worst, ratio)
        print(f"3 agents, {name:8} {costs[name]:.2f} ms CPU = {ratio:.2f} single turns")
    choices = selection_ms(50)
    for name, spent in choices.items():
        print(f"choice among 50  {name:14} {spent:.3f} ms")
    loading = asyncio.run(loading_ms(options.groups))
    print(f"one of {options.groups:,} groups read in {loading:.3f} ms")
    slowest = max(choices.values()) + loading
    return int(options.check and (worst > MAX_RATIO or slowest > MAX_SELECTION_MS))


if __name__ == "__main__":
    sys.exit(main())
