"""How the command line tells waiting from working."""

import asyncio

import pytest

from asterism import tool
from asterism.testing.clock import ManualClock
from asterism.types.agents import now_ms
from asterism.types.permissions import ToolEffect
from tests.e2e.command import Installed
from tests.scenes import open_home


@pytest.mark.promise("T11")
async def test_waiting_is_not_counted_as_work(installed: Installed):
    """A message waits for an hour behind another, and its turn is not stuck when it has begun."""
    begun = [asyncio.Event(), asyncio.Event()]
    go = [asyncio.Event(), asyncio.Event()]
    clock = ManualClock(now_ms() - 3_600_000)

    @tool(repeatable=True, effects=ToolEffect("read"))
    async def hold(number: int) -> str:
        begun[number].set()
        await go[number].wait()
        return "held"

    async with asyncio.timeout(120), open_home(installed.data, clock=clock, tools=[hold]) as home:
        await home.agents.create("aria")
        first = await home.agents.send("aria", '[[call:hold {"number": 0}]]')
        second = await home.agents.send("aria", '[[call:hold {"number": 1}]]')
        await begun[0].wait()
        (waiting,) = [
            one
            for one in await asyncio.to_thread(installed.json, "turn", "list")
            if one["id"] == second.turn_id
        ]
        assert (waiting["state"], waiting["opened_at"]) == ("waiting", None)
        assert waiting["arrived_at"] == clock.now
        clock.forward(seconds=3_600)
        go[0].set()
        await begun[1].wait()
        said = await asyncio.to_thread(installed.run, "doctor", "--offline")
        assert "none is stuck" in said.stdout
        clock.forward(seconds=2)
        go[1].set()
        await home.turns.wait(second)
        shown = await asyncio.to_thread(installed.ok, "turn", "show", second.turn_id)
        assert "waited 1 h · worked 2.0 s\n" in shown
        shown = await asyncio.to_thread(installed.ok, "turn", "show", first.turn_id)
        assert "waited 0.0 s · worked 1 h\n" in shown


async def test_the_time_until_people_answer_is_told_by_itself(installed: Installed):
    clock = ManualClock()

    @tool(ask=True)
    async def pay() -> str:
        clock.forward(seconds=3)
        return "paid"

    async with asyncio.timeout(120), open_home(installed.data, clock=clock, tools=[pay]) as home:
        await home.agents.create("aria")
        receipt = await home.agents.send("aria", "[[call:pay {}]]")
        await home.turns.wait(receipt)
        clock.forward(seconds=2 * 86_400 + 3_700)
        (question,) = await home.approvals.list()
        await home.turns.wait(await home.approvals.decide(question.id, approved=True))
        shown = await asyncio.to_thread(installed.ok, "turn", "show", receipt.turn_id)
        assert "waited 0.0 s · worked 3.0 s · 2 d 1 h until people answered\n" in shown
