"""Halts at rest, on every engine."""

import asyncio
from pathlib import Path

import pytest

from asterism.store import agents
from asterism.turns.runtime import HaltWatch
from asterism.types.agents import Halt
from tests.conformance.memory_scene import ENGINES, HOME, NOW, opened
from tests.scenes import until

pytestmark = pytest.mark.parametrize("engine", ENGINES)


@pytest.mark.promise("S1")
async def test_a_constellation_stands_until_every_halt_is_lifted(engine: str, tmp_path: Path):
    async with opened(engine, tmp_path) as database:
        heard: list[str] = []
        await database.listen(agents.TOPIC, heard.append)
        assert await database.read(agents.current_halt) is None
        first = Halt("halt_1", "agent_1", "turn_1", "critical", "danger", NOW)
        for one in (first, Halt("halt_2", None, None, "high", "more", NOW + 1)):
            await database.write(lambda tx, one=one: agents.put_halt(tx, one))
        assert await database.read(agents.current_halt) == first
        another = database.for_constellation("another")
        assert await another.read(agents.current_halt) is None
        assert await another.write(lambda tx: agents.lift_halt(tx, "owner", NOW)) == 0
        assert await database.write(lambda tx: agents.lift_halt(tx, "owner", NOW + 2)) == 2
        assert await database.read(agents.current_halt) is None
        assert await database.write(lambda tx: agents.lift_halt(tx, "owner", NOW + 3)) == 0
        await until(lambda: heard.count(HOME) >= len(("put", "put", "lifted")))


async def test_whoever_asks_while_the_store_is_read_takes_no_turn(engine: str, tmp_path: Path):
    """A halt is known once it was read, not when reading began."""
    async with opened(engine, tmp_path) as database:
        watch = HaltWatch(database)
        await watch.start()
        heard: list[str] = []
        await database.listen(agents.TOPIC, heard.append)
        assert await watch.current_halt() is None
        halt = Halt("halt_1", None, None, "critical", "fire", NOW)
        await database.write(lambda tx: agents.put_halt(tx, halt))
        await until(lambda: bool(heard))
        assert await asyncio.gather(watch.current_halt(), watch.current_halt()) == [halt, halt]
