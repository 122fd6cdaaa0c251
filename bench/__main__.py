"""`python -m bench`: what a turn of asterism costs, against the floor of the same run."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from bench.figures import FIGURES, Measured, table
from bench.harness import KILL_IN_TOOL, TOOL_LOG
from bench.worker import SYSTEMS

_LONGEST = 120.0
_HIGHER_IS_BETTER = ("S5.turns_per_s", "S7.answered")
# Where this is set, a process compiles each file anew, and starting costs half as much again.
_ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}
_SCENARIOS = list(dict.fromkeys(figure.scenario for figure in FIGURES))


class Failed(Exception):
    """A scenario did not come to its end."""


@contextlib.contextmanager
def loopback_model() -> Generator[str]:
    """Start the model as a process of its own; yield its address without a path."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.loopback"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()


class Bench:
    """A run: every system goes through every scenario, turn by turn, several rounds."""

    def __init__(self, model: str, scratch: Path, systems: list[str], *, quick: bool) -> None:
        self.measured: Measured = {name: {} for name in systems}
        self._model = model
        self._scratch = scratch
        self._systems = systems
        self._quick = quick
        self._places = 0
        self._start = time.monotonic()

    def run(self, scenario: str) -> None:
        """Measure one scenario for all systems and keep the best of its rounds."""
        rounds = 1 if self._quick or scenario in ("S7", "SC") else 2 if scenario == "S5" else 3
        for number in range(rounds):
            for system in self._systems:
                self._say(f"{scenario} {system}, round {number + 1} of {rounds}")
                for name, value in getattr(self, f"_{scenario.lower()}")(system).items():
                    self._keep(system, f"{scenario}.{name}", value)

    def _keep(self, system: str, key: str, value: float) -> None:
        best = max if key.startswith(_HIGHER_IS_BETTER) else min
        figures = self.measured[system]
        figures[key] = best(value, figures.get(key, value))

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._start:5.0f} s  {text}", file=sys.stderr, flush=True)

    def _place(self) -> Path:
        self._places += 1
        return self._scratch / str(self._places)

    def _work(
        self,
        system: str,
        scenario: str,
        *,
        place: Path | None = None,
        path: str = "/v1",
        environ: dict[str, str] | None = None,
        killed: bool = False,
        **options: Any,
    ) -> dict[str, float]:
        """Run a scenario in a process of its own."""
        job = {
            "system": system,
            "scenario": scenario,
            "base_url": self._model + path,
            "directory": str(place or self._place()),
            "options": options,
        }
        command = [sys.executable, "-m", "bench.worker", json.dumps(job)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=_LONGEST,
                check=False,
                env={**_ENVIRONMENT, **(environ or {})},
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"{scenario} of {system} took more than {_LONGEST:g} s.") from None
        if killed and done.returncode == -signal.SIGKILL:
            return {}
        if done.returncode or killed:
            raise Failed(f"{scenario} of {system} failed.\n{done.stderr or done.stdout}")
        figures: dict[str, float] = json.loads(done.stdout)
        return figures

    def _s1(self, system: str) -> dict[str, float]:
        place = self._place()
        self._work(system, "ready", place=place)  # compiles and caches what later starts find
        return self._work(system, "ready", place=place)

    def _s2(self, system: str) -> dict[str, float]:
        return self._work(system, "create", agents=300 if self._quick else 1_000)

    def _s3(self, system: str) -> dict[str, float]:
        return self._work(system, "plain_turn")

    def _s4(self, system: str) -> dict[str, float]:
        return self._work(system, "tool_turn")

    def _s5(self, system: str) -> dict[str, float]:
        figures: dict[str, float] = {}
        for count in (16, 64, 256):
            found = self._work(
                system,
                "load",
                path="/wait/50/v1",
                conversations=count,
                turns=10 if self._quick else 20,
                seconds=5,
            )
            figures[f"turns_per_s_{count}"] = found["turns_per_s"]
            figures[f"cpu_ms_{count}"] = found["cpu_ms"]
        return figures

    def _s6(self, system: str) -> dict[str, float]:
        place = self._place()
        self._work(system, "grow", place=place, messages=1_000)
        return self._work(system, "resume", place=place, messages=1_000)

    def _s7(self, system: str) -> dict[str, float]:
        if system != "ours":
            return {}  # the floor knows nothing of interrupted turns
        place = self._place()
        log = {TOOL_LOG: str(self._scratch / "tool.log")}
        self._work(system, "killed", place=place, environ={**log, KILL_IN_TOOL: "1"}, killed=True)
        return self._work(system, "after_kill", place=place, environ=log)

    def _sc(self, system: str) -> dict[str, float]:
        return self._work(system, "calls")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="one round of everything, less precise"
    )
    parser.add_argument(
        "--scenario", action="append", choices=_SCENARIOS, help="only this one; may be repeated"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    return parser.parse_args()


def main() -> int:
    """Measure, and print the table."""
    arguments = _arguments()
    systems = list(SYSTEMS)
    if importlib.util.find_spec("httpx") is None:
        systems.remove("floor")
        print("httpx is not installed, so there is no floor; pip install httpx.", file=sys.stderr)
    with (
        loopback_model() as model,
        tempfile.TemporaryDirectory(prefix="asterism-bench-") as scratch,
    ):
        bench = Bench(model, Path(scratch), systems, quick=arguments.quick)
        try:
            for scenario in arguments.scenario or _SCENARIOS:
                bench.run(scenario)
        except Failed as problem:
            print(problem, file=sys.stderr)
            return 1
    print(f"\n{table(bench.measured)}\n")
    print(
        "floor: httpx and two SQLite commits; raw: the same over a bare socket.\n"
        "Each figure is the best of its rounds. "
        f"Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}; a busy machine makes times longer, not calls more."
    )
    if not arguments.scenario:
        # A table of its own: it is held against other ways to search, and not against the floor.
        sys.stdout.flush()
        subprocess.run([sys.executable, "-m", "bench.search"], check=False)
    if arguments.json:
        arguments.json.write_text(json.dumps(bench.measured, indent=1) + "\n", "utf-8")
    known = {key for figures in bench.measured.values() for key in figures}
    verdicts = [one.verdict(bench.measured) for one in FIGURES if one.key in known]
    return int(arguments.check and "MISSED" in verdicts)


if __name__ == "__main__":
    sys.exit(main())
