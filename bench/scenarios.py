"""The scenarios, each run in a process of its own: one system in, figures out."""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import orjson

from bench.harness import ANSWER, TOOL_LOG, TOOL_TEXT, Adapter, bytes_in, resident_kb, user_text

Figures = dict[str, float]
Options = dict[str, Any]
Scenario = Callable[[Adapter, Options], Awaitable[Figures]]


async def plain_turn(system: Adapter, _options: Options) -> Figures:
    """S3: CPU of a plain turn in a conversation of 10 and of 1,000 messages; growth on disk."""
    await system.open()
    warm = await system.agent("warm")
    for number in range(50):  # until the log of the database and the caches have their size
        await _turn(system, warm, user_text(number))
    short: list[float] = []
    for one in range(12):
        handle = await system.agent(f"short-{one}")
        for number in range(8):
            spent = await _turn(system, handle, user_text(number))
            if number >= 3:  # 6 to 14 messages before it, 10 in the middle
                short.append(spent)
    await system.close()
    before = bytes_in(system.env.directory)
    await system.open()
    handle = await system.agent("long")
    for number in range(500):
        await _turn(system, handle, user_text(number))
    await system.close()
    grown = bytes_in(system.env.directory) - before
    await system.open()
    handle = await system.agent("long")
    long = [await _turn(system, handle, user_text(number)) for number in range(500, 526)][2:]
    sent = _seen_by_model(system)["messages"]
    await system.close()
    if sent != 1052:
        raise RuntimeError(f"{sent} messages were sent, and 1,052 are needed to compare.")
    return {
        "cpu_ms_10": _median_ms(short),
        "cpu_ms_1000": _median_ms(long),
        "disk_mb": grown / 1e6,
    }


async def tool_turn(system: Adapter, _options: Options) -> Figures:
    """S4: CPU of a turn with one tool call."""
    await system.open()
    spent: list[float] = []
    for one in range(7):
        handle = await system.agent(f"tool-{one}", tool=True)
        some = [await _turn(system, handle, TOOL_TEXT) for _ in range(5)]
        spent += some if one else []
    await system.close()
    return {"cpu_ms": _median_ms(spent)}


async def ready(system: Adapter, _options: Options) -> Figures:
    """S1: CPU and memory of a process that has imported and opened everything."""
    await system.open()
    await system.agent("ready")
    figures = {"cpu_s": time.process_time(), "resident_mb": resident_kb() / 1024}
    await system.close()
    return figures


async def create(system: Adapter, options: Options) -> Figures:
    """S2: CPU to create an agent."""
    await system.open()
    await system.agent("first")
    spent: list[float] = []
    for one in range(options["agents"]):
        start = time.process_time()
        await system.agent(f"agent-{one}")
        spent.append(time.process_time() - start)
    await system.close()
    return {"cpu_ms": _median_ms(spent)}


async def load(system: Adapter, options: Options) -> Figures:
    """S5: turns a second of many conversations at once, with a model that takes 50 ms."""
    await system.open()
    await _turn(system, await system.agent("warm"), user_text(0))
    count, stop = int(options["conversations"]), float(options["seconds"])
    handles = [await system.agent(f"one-of-{count}-{one}") for one in range(count)]
    gc.collect()
    start, cpu, done = time.perf_counter(), time.process_time(), 0

    async def converse(handle: Any) -> None:
        nonlocal done
        for number in range(options["turns"]):
            if time.perf_counter() - start > stop:
                return
            await _turn(system, handle, user_text(number))
            done += 1

    await asyncio.gather(*(converse(handle) for handle in handles))
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    await system.close()
    return {"turns_per_s": done / wall, "cpu_ms": cpu / done * 1000}


async def grow(system: Adapter, options: Options) -> Figures:
    """Before S6: hold a conversation of 1,000 messages."""
    await system.open()
    handle = await system.agent("long")
    for number in range(options["messages"] // 2):
        await _turn(system, handle, user_text(number))
    await system.close()
    return {}


async def resume(system: Adapter, options: Options) -> Figures:
    """S6: load a conversation in a new process and do a turn, once everything is open."""
    await system.open()
    start = time.perf_counter()
    await _turn(system, await system.agent("long"), user_text(0))
    spent = time.perf_counter() - start
    sent = _seen_by_model(system)["messages"]
    await system.close()
    if sent < options["messages"]:
        raise RuntimeError(f"{sent} messages were sent; there are {options['messages']}.")
    return {"ms": spent * 1000}


async def killed(system: Adapter, _options: Options) -> Figures:
    """S7, first half: a turn whose tool ends the process."""
    await system.open()
    handle = await system.agent("killed", tool=True)
    await system.turn(handle, TOOL_TEXT)
    raise RuntimeError("The tool was to end the process, and did not.")


async def after_kill(system: Adapter, _options: Options) -> Figures:
    """S7, second half: what becomes of that turn in a new process."""
    before = _tool_runs()
    await system.open()
    answer = await system.resume("killed")
    after = _tool_runs()
    await system.close()
    return {"more_runs": after - before, "answered": float(answer == ANSWER)}


async def calls(system: Adapter, _options: Options) -> Figures:
    """SC: calls of Python and C functions in a turn, in all threads; the same in every run."""
    counted = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    async def median_of_three(handle: Any, text: str) -> float:
        nonlocal counted
        found: list[int] = []
        for _ in range(3):
            counted = 0
            sys.setprofile(count)
            await system.turn(handle, text)
            sys.setprofile(None)
            found.append(counted)
        return statistics.median(found)

    threading.setprofile(count)  # for the threads that are yet to start
    await system.open()
    figures: Figures = {}
    handle = await system.agent("calls")
    for messages in (10, 100):
        while _seen_by_model(system)["messages"] < messages - 2:
            await _turn(system, handle, user_text(0))
        figures[str(messages)] = await median_of_three(handle, user_text(0))
    handle = await system.agent("calls-tool", tool=True)
    await _turn(system, handle, TOOL_TEXT)
    figures["tool"] = await median_of_three(handle, TOOL_TEXT)
    await system.close()
    return figures


SCENARIOS: dict[str, Scenario] = {
    one.__name__: one
    for one in (
        plain_turn,
        tool_turn,
        ready,
        create,
        load,
        grow,
        resume,
        killed,
        after_kill,
        calls,
    )
}


async def _turn(system: Adapter, handle: Any, text: str) -> float:
    """Do a turn and return its CPU time, of all threads, in seconds."""
    start = time.process_time()
    answer = await system.turn(handle, text)
    spent = time.process_time() - start
    if answer != ANSWER:
        raise RuntimeError(f"{system.name} did not give the model's answer but {answer[:200]!r}.")
    return spent


def _seen_by_model(system: Adapter) -> dict[str, int]:
    address = f"http://{urlsplit(system.env.base_url).netloc}/"
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address) as answer:
        return orjson.loads(answer.read())


def _tool_runs() -> int:
    return len(Path(os.environ[TOOL_LOG]).read_text("utf-8").splitlines())


def _median_ms(seconds: list[float]) -> float:
    return statistics.median(seconds) * 1000
