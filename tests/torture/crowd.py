"""A worker in a crowd: it serves many agents whose tool notes when each turn worked."""

import asyncio
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

from asterism import Tool, ToolContext, tool
from asterism.types.permissions import ToolEffect
from tests.scenes import open_home
from tests.torture.worker import append


@dataclass(frozen=True)
class Shift:
    """What a worker of the crowd is told."""

    place: Path
    store_url: str


def work_of(place: Path) -> Tool:
    """A tool that takes a moment, and writes down when it began and when it ended."""
    spans = place / "spans.jsonl"

    @tool(repeatable=True, effects=ToolEffect("read"))
    async def work(ctx: ToolContext, seconds: float = 0.002) -> str:
        began = time.time_ns()
        append(place / "begun.jsonl", key=ctx.key, pid=os.getpid(), at=began)
        await asyncio.sleep(seconds)
        ended = time.time_ns()
        append(
            spans, agent=ctx.agent.id, turn=ctx.turn_id, began=began, ended=ended, pid=os.getpid()
        )
        return "worked"

    return work


def serve(shift: Shift) -> None:
    """Serve until killed."""
    fd = os.open(shift.place / "worker.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(fd, 2)
    logging.basicConfig(level=logging.INFO, format=f"{os.getpid()} %(message)s")
    asyncio.run(_serve(shift))


async def _serve(shift: Shift) -> None:
    settings = {"store": {"url": shift.store_url}}
    async with open_home(shift.place, tools=[work_of(shift.place)], settings=settings):
        append(shift.place / "ready.jsonl", pid=os.getpid())
        await asyncio.Event().wait()
