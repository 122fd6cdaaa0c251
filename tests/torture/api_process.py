"""A process of a home on PostgreSQL: it takes turns, or it serves the API. Killed by others."""

import asyncio
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from asterism import Asterism
from asterism.api.server import Server, bind


@dataclass(frozen=True)
class ApiLife:
    """What a process is told."""

    place: Path
    model_url: str
    store_url: str
    port: int | None = None
    """Where it serves the API, and takes no turns; None: it takes turns."""

    def settings(self) -> dict[str, object]:
        """The configuration of every process."""
        return {
            "model": "loop:scripted",
            "models": {"loop": {"api": "openai", "base_url": self.model_url, "timeout": 20.0}},
            "runtime": {"heartbeat": 0.3, "stalled_after": 1.0, "crashes": 1_000},
            "store": {"url": self.store_url},
        }


def live(life: ApiLife) -> None:
    """Work until killed."""
    fd = os.open(life.place / "processes.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    logging.basicConfig(level=logging.WARNING, format=f"{os.getpid()} %(message)s")
    asyncio.run(_live(life))


async def _live(life: ApiLife) -> None:
    async with Asterism.open(
        life.place, environ={}, settings=life.settings(), work=life.port is None
    ) as home:
        if life.port is None:
            await asyncio.Event().wait()
            return
        with bind("127.0.0.1", life.port) as socket:
            async with Server(home, socket, tuple):
                await asyncio.Event().wait()
