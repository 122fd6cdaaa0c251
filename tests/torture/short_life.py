"""Short lives: one conversation or one migration, small enough to be killed at its every write."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from asterism import Asterism, Delivery
from asterism.store.database import Migration
from asterism.store.sqlite import open_sqlite
from asterism.testing.channel import MemoryChannel
from tests.scenes import open_home
from tests.torture.disk import MeddledDisk
from tests.torture.worker import Aim, Doom, append, finished, prepare, tools_of

_CALLS = (
    '[[call:enter {"word": "0"}]] [[call:stamp {"word": "1"}]] [[call:post {"word": "2"}]]'
    ' [[call:mail {"word": "3"}]] [[call:heartbeat {"reason": "4"}]]'
)
CONVERSATION = (f"m0 {_CALLS}", "m1")


class FileChannel(MemoryChannel):
    """People who write down what they get."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self._received = place / "received.jsonl"

    async def deliver(self, delivery: Delivery) -> None:
        append(self._received, key=delivery.key, text=delivery.text)


@dataclass(frozen=True)
class Migrating:
    """A database to be brought to the last of some migrations."""

    place: Path
    migrations: Sequence[Migration]


async def converse(place: Path, doom: Doom) -> None:
    """Hand the conversation in, and stay until all of it is answered and delivered."""
    channel = FileChannel(place)
    async with open_home(place, tools=tools_of(place, doom), channels={"room": channel}) as home:
        await prepare(home)
        await hand_in(home)
        await finished(home)


async def hand_in(home: Asterism) -> None:
    """Hand the conversation in, again or for the first time."""
    for number, text in enumerate(CONVERSATION):
        await home.agents.send(
            "aria", text, channel="room", external_id=str(number), reply_to="ada"
        )


async def migrate(work: Migrating) -> None:
    """Open a database, which brings it up to date."""
    await (await open_sqlite(work.place, migrations=list(work.migrations))).close()


def short_life(work: Path | Migrating, aim: Aim) -> None:
    """Converse or migrate until the disk is touched once too often."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    doom = Doom(aim)
    disk = MeddledDisk(doom.meddle, default=True)
    asyncio.run(converse(work, doom) if isinstance(work, Path) else migrate(work))
    del disk
