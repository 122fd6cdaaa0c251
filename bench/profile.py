"""`python -m bench.profile [plain|tool|load|resume]`: where the time of a turn goes.

Counts every call of a Python or C function in all threads and clocks what each spends in itself.
The counts are exact and repeatable. The clocking slows everything down about threefold, small
functions most, so read the times as shares and measure a change with `python -m bench`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType
from typing import Any

from bench.__main__ import loopback_model
from bench.harness import TOOL_TEXT, Adapter, user_text
from bench.worker import make_system

_Key = CodeType | str


class _Stack(threading.local):
    """What a thread is in the middle of."""

    def __init__(self) -> None:
        self.round = 0
        self.last = 0
        self.keys: list[_Key] = []


class Profiler:
    """Calls and own time by function, over all threads that start after `install`."""

    def __init__(self) -> None:
        self.calls: Counter[_Key] = Counter()
        self.nanoseconds: Counter[_Key] = Counter()
        self._on = False
        self._round = 0
        self._stack = _Stack()

    def install(self) -> None:
        """Watch this thread and those that it starts."""
        threading.setprofile(self._hook)
        sys.setprofile(self._hook)

    def start(self) -> None:
        """Begin to count."""
        self._round += 1
        self._on = True

    def stop(self) -> None:
        """Count no more."""
        self._on = False

    def _hook(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self._on:
            return
        now = time.thread_time_ns()
        here = self._stack
        if here.round != self._round:
            here.round, here.keys = self._round, []
        keys = here.keys
        if keys:
            self.nanoseconds[keys[-1]] += now - here.last
        if event in ("call", "c_call"):
            key = frame.f_code if event == "call" else _c_name(argument)
            self.calls[key] += 1
            keys.append(key)
        elif keys:
            keys.pop()
        here.last = time.thread_time_ns()


def _c_name(function: BuiltinFunctionType) -> str:
    return f"{function.__module__ or 'C'}:{function.__qualname__}"


def _name(key: _Key) -> tuple[str, str]:
    """Return the part of the system that a function belongs to, and its own name."""
    if isinstance(key, str):
        return "C", key
    path = Path(key.co_filename)
    parts = path.parts
    if "asterism" in parts:
        start = len(parts) - 1 - parts[::-1].index("asterism")
        place = "/".join(parts[start + 1 :])
        return f"asterism/{place}", f"{place}:{key.co_qualname}"
    if "site-packages" in parts:
        package = parts[parts.index("site-packages") + 1]
        return package, f"{package}/{path.name}:{key.co_qualname}"
    if "asyncio" in parts:
        return "asyncio", f"asyncio/{path.name}:{key.co_qualname}"
    return "other", f"{path.name}:{key.co_qualname}"


def _print(title: str, rows: dict[str, tuple[int, int]], turns: int, most: int) -> None:
    whole = sum(spent for _, spent in rows.values()) or 1
    print(f"\n{'calls':>8} {'µs':>8} {'share':>6}  {title}")
    for name, (count, spent) in sorted(rows.items(), key=lambda row: -row[1][1])[:most]:
        print(
            f"{count / turns:8.1f} {spent / turns / 1000:8.1f} {100 * spent / whole:5.1f}%  {name}"
        )


def _report(profiler: Profiler, turns: int, most: int) -> None:
    parts: dict[str, tuple[int, int]] = {}
    functions: dict[str, tuple[int, int]] = {}
    for key, count in profiler.calls.items():
        spent = profiler.nanoseconds[key]
        for rows, name in zip((parts, functions), _name(key), strict=True):
            counted, clocked = rows.get(name, (0, 0))
            rows[name] = counted + count, clocked + spent
    print(f"{sum(profiler.calls.values()) / turns:,.0f} calls a turn, mean of {turns}")
    _print("part", parts, turns, most)
    _print("function, without what it calls", functions, turns, most)


async def _plain(system: Adapter, messages: int, text: str = "") -> Callable[[], Awaitable[int]]:
    handle = await system.agent("profiled", tool=bool(text))
    for number in range(messages // 2):
        await system.turn(handle, user_text(number))
    await system.turn(handle, text or user_text(0))

    async def go() -> int:
        for number in range(20):
            await system.turn(handle, text or user_text(number))
        return 20

    return go


async def _load(system: Adapter, conversations: int) -> Callable[[], Awaitable[int]]:
    handles = [await system.agent(f"profiled-{one}") for one in range(conversations)]
    await asyncio.gather(*(system.turn(handle, user_text(0)) for handle in handles))

    async def go() -> int:
        for number in range(3):
            await asyncio.gather(*(system.turn(handle, user_text(number)) for handle in handles))
        return 3 * conversations

    return go


async def _resume(system: Adapter, messages: int) -> Callable[[], Awaitable[int]]:
    await _plain(system, messages)
    await system.close()
    await system.open()

    async def go() -> int:
        await system.turn(await system.agent("profiled"), user_text(0))
        return 1

    return go


async def _profile(arguments: argparse.Namespace, address: str, scratch: Path) -> None:
    path = "/wait/50/v1" if arguments.what == "load" else "/v1"
    system = make_system(arguments.system, address + path, scratch)
    profiler = Profiler()
    profiler.install()
    await system.open()
    what, messages = arguments.what, arguments.messages
    if what == "load":
        go = await _load(system, arguments.conversations)
    elif what == "resume":
        go = await _resume(system, messages)
    else:
        go = await _plain(system, messages, TOOL_TEXT if what == "tool" else "")
    profiler.start()
    turns = await go()
    profiler.stop()
    start = time.process_time()
    if what != "resume":
        turns_again = await go()
        spent = (time.process_time() - start) / turns_again * 1000
        print(f"{spent:.3f} ms CPU a turn with the hook in place but idle")
    await system.close()
    _report(profiler, turns, arguments.lines)


def main() -> None:
    """Profile one kind of turn."""
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument(
        "what", nargs="?", default="plain", choices=["plain", "tool", "load", "resume"]
    )
    parser.add_argument("--messages", type=int, default=10, help="in the conversation before")
    parser.add_argument("--conversations", type=int, default=64, help="at once, for load")
    parser.add_argument("--system", default="ours", choices=["ours", "floor", "raw"])
    parser.add_argument("--lines", type=int, default=40, help="of each table")
    arguments = parser.parse_args()
    with loopback_model() as address, tempfile.TemporaryDirectory() as scratch:
        asyncio.run(_profile(arguments, address, Path(scratch)))


if __name__ == "__main__":
    main()
