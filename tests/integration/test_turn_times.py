"""When a message came in, when its turn began, and how long it worked, on either engine."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism, TurnState, tool
from asterism.testing.clock import ManualClock
from asterism.testing.postgres import postgres_server
from asterism.types.memory import Append
from asterism.types.permissions import ToolEffect
from asterism.types.turns import TurnRecord
from tests.conformance.memory_scene import ENGINES
from tests.scenes import open_home

Home = Callable[..., AbstractAsyncContextManager[Asterism]]


@pytest.fixture(params=ENGINES)
async def home(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Home, None]:
    """Opens the same home again and again, on either engine."""

    def opener(settings: dict[str, Any]) -> Home:
        return partial(open_home, tmp_path, settings=settings)

    if request.param == "sqlite":
        yield opener({})
        return
    with postgres_server().database() as url:
        yield opener({"store": {"url": url}})


class Gate:
    """A tool that holds a turn up until it is told to go on."""

    def __init__(self) -> None:
        self.reached, self.go = asyncio.Event(), asyncio.Event()

        @tool(repeatable=True, effects=ToolEffect("read"))
        async def hold() -> str:
            self.reached.set()
            await self.go.wait()
            return "held"

        self.tool = hold


async def record_of(home: Asterism, turn_id: str) -> TurnRecord:
    record, _ = await home.turns.get(turn_id)
    return record


@pytest.mark.promise("T11")
async def test_a_turn_is_opened_when_its_work_begins(home: Home, clock: ManualClock):
    gate = Gate()
    async with asyncio.timeout(120), home(clock=clock, tools=[gate.tool]) as one:
        await one.agents.create("aria")
        handed_in = clock.now
        first = await one.agents.send("aria", "[[call:hold {}]]")
        second = await one.agents.send("aria", "hello")
        await gate.reached.wait()
        clock.forward(seconds=90)
        gate.go.set()
        assert (await one.turns.wait(second)).state is TurnState.DONE
        begun = [await record_of(one, receipt.turn_id) for receipt in (first, second)]
        assert [record.arrived_at_ms for record in begun] == [handed_in, handed_in]
        assert [record.opened_at_ms for record in begun] == [handed_in, handed_in + 90_000]
        assert [record.ended_at_ms for record in begun] == [handed_in + 90_000] * 2


@pytest.mark.promise("T12")
async def test_a_fork_remembers_what_was_written_while_the_message_waited(
    home: Home, clock: ManualClock
):
    gate = Gate()
    async with asyncio.timeout(120), home(clock=clock, tools=[gate.tool]) as one:
        aria = await one.agents.create("aria")
        await one.blocks.create(aria, "human", content="Has a cat.")
        clock.forward(seconds=30)
        await one.agents.send(aria, "[[call:hold {}]]")
        second = await one.agents.send(aria, "hello")
        await gate.reached.wait()
        clock.forward(seconds=30)
        await one.blocks.write(aria, "human", Append("Has a dog."))
        clock.forward(seconds=30)
        gate.go.set()
        await one.turns.wait(second)
        clock.forward(seconds=30)
        await one.blocks.write(aria, "human", Append("Has a bird."))
        copy, _ = await one.turns.fork(second.turn_id, name="other")
        text = (await one.blocks.get(copy, "human")).block.text
        assert ("dog" in text, "bird" in text) == (True, False)


@pytest.mark.promise("T2")
async def test_a_turn_that_is_taken_up_again_keeps_when_it_was_opened(
    home: Home, clock: ManualClock
):
    gate = Gate()
    async with asyncio.timeout(120), home(clock=clock, tools=[gate.tool], grace=0.0) as one:
        await one.agents.create("aria")
        handed_in = clock.now
        receipt = await one.agents.send("aria", "[[call:hold {}]]")
        await gate.reached.wait()
        record = await record_of(one, receipt.turn_id)
        assert (record.state, record.arrived_at_ms) == (TurnState.OPEN, handed_in)
    clock.forward(seconds=3_600)
    gate.go.set()
    async with asyncio.timeout(120), home(clock=clock, tools=[gate.tool]) as one:
        assert (await one.turns.wait(receipt)).state is TurnState.DONE
        record = await record_of(one, receipt.turn_id)
        assert (record.arrived_at_ms, record.opened_at_ms) == (handed_in, handed_in)
        assert record.ended_at_ms == handed_in + 3_600_000
