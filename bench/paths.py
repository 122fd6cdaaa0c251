"""`python -m bench.paths`: how many files of the product a real call passes through."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import asterism
from asterism import Agent, Asterism, tool
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import Call, Reply

_SOURCE = Path(asterism.__file__).parent
MAX_FILES = {"message": 20, "approval": 28, "block": 20, "search": 18}
"""How many files a reader should have to open at most."""
SLACK = 1
"""How many more `--check` lets pass: a new feature may add a file before others are merged."""


class Trace:
    """The files of the product that functions were called in, in all threads."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        """How many calls there were in each."""
        self.switches = 0
        """How often a function was called from another file."""
        self.on = False

    def watch(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call; a profile function of Python."""
        if not self.on or event != "call":
            return
        name = _product_file(frame)
        if name is None:
            return
        self.files[name] = self.files.get(name, 0) + 1
        caller = frame.f_back
        while caller is not None and _product_file(caller) is None:
            caller = caller.f_back
        self.switches += caller is not None and _product_file(caller) != name


_names: dict[str, str | None] = {}


def _product_file(frame: FrameType) -> str | None:
    path = frame.f_code.co_filename
    if path not in _names:
        inside = path.startswith(str(_SOURCE)) and "/testing/" not in path
        _names[path] = str(Path(path).relative_to(_SOURCE)) if inside else None
    return _names[path]


@tool(ask=True)
def pay(amount: int) -> str:
    """Pay an amount.

    Args:
        amount: How much.
    """
    return f"Paid {amount}."


def _answer(request: Any) -> Reply | str:
    last = request.messages[-1]
    if b"pay 5" in last:
        return Reply(calls=(Call("call_1", "pay", '{"amount": 5}'),), finish="tool_calls")
    return "Hello."


@asynccontextmanager
async def _home() -> AsyncGenerator[tuple[Asterism, Agent]]:
    with tempfile.TemporaryDirectory() as place:
        model = ScriptedModel.from_rule(_answer)
        async with Asterism.open(
            place,
            models={"scripted": model},
            settings={"model": "scripted:one"},
            tools=[pay],
            environ={},
        ) as home:
            aria = await home.agents.create("aria")
            await aria.blocks.create("human", "Likes tea.")
            await aria.ask("We have a red bicycle.")
            yield home, aria


async def _approve(home: Asterism, aria: Agent) -> None:
    """Ask for a call that needs an approval, give it, and wait for the answer."""
    await aria.ask("pay 5")
    (question,) = await home.approvals.list()
    await home.turns.wait(await question.approve())


PATHS: dict[str, Callable[[Asterism, Agent], Awaitable[object]]] = {
    "message": lambda _, aria: aria.ask("Hello!"),
    "approval": _approve,
    "block": lambda _, aria: aria.blocks["human"].append("Has a cat."),
    "search": lambda _, aria: aria.search("bicycle"),
}


async def trace(name: str) -> Trace:
    """Trace a path in a home where it was gone once before."""
    async with _home() as (home, aria):
        await PATHS[name](home, aria)
        TRACE.files.clear()
        TRACE.switches, TRACE.on = 0, True
        try:
            await PATHS[name](home, aria)
        finally:
            TRACE.on = False
    return TRACE


TRACE = Trace()


def main() -> int:
    """Print the files of each path; exit with 1 if there are too many with `--check`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *PATHS], help="some of the paths")
    parser.add_argument("--files", action="store_true", help="list the files, most calls first")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bound is passed")
    given = parser.parse_args()
    threading.setprofile(TRACE.watch)
    sys.setprofile(TRACE.watch)
    failed = 0
    print(f"{'path':<10} {'files':>5} {'at most':>8} {'switches':>9} {'calls':>6}")
    for name in given.names or PATHS:
        found = asyncio.run(trace(name))
        too_many = len(found.files) > MAX_FILES[name]
        failed += len(found.files) > MAX_FILES[name] + SLACK
        print(
            f"{name:<10} {len(found.files):>5} {MAX_FILES[name]:>8} {found.switches:>9} "
            f"{sum(found.files.values()):>6}{'  too many' if too_many else ''}"
        )
        if given.files:
            for file, calls in sorted(found.files.items(), key=lambda one: -one[1]):
                print(f"    {calls:>5}  {file}")
    return 1 if failed and given.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
