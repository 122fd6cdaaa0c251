"""Stopping turns that wait: behind another, for a person, in another process, on either engine."""

# How a notice is lost shows nowhere else.
# pyright: reportPrivateUsage=false

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from asterism import Asterism, Receipt, TurnState, tool
from asterism.errors import Conflict
from asterism.ports import Emit, ModelRequest
from asterism.testing.channel import MemoryChannel
from asterism.testing.postgres import postgres_server
from asterism.testing.scripted import ScriptedModel
from asterism.types.permissions import ToolEffect
from asterism.types.turns import Reply
from tests.conformance.memory_scene import ENGINES
from tests.scenes import heard, obedient, open_home, until

Home = Callable[..., AbstractAsyncContextManager[Asterism]]


@pytest.fixture(params=ENGINES)
async def home(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Home, None]:
    """Opens the same home again and again, on either engine."""
    if request.param == "sqlite":
        yield partial(open_home, tmp_path)
        return
    with postgres_server().database() as url:
        yield partial(open_home, tmp_path, settings={"store": {"url": url}})


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncGenerator[Home, None]:
    """Opens the same home several times at once, as processes do."""
    with postgres_server().database() as url:
        yield partial(open_home, tmp_path, settings={"store": {"url": url}})


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


class Pausing(ScriptedModel):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__(["too late", "next"])
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        self.asked.set()
        await self.go.wait()
        return await super().complete(request, emit)


async def queue(home: Asterism, gate: Gate, *texts: str, **given: Any) -> list[Receipt]:
    """Hand messages in behind a turn that is held up."""
    await home.agents.create("aria")
    receipts = [await home.agents.send("aria", "[[call:hold {}]]")]
    receipts += [await home.agents.send("aria", text, **given) for text in texts]
    await gate.reached.wait()
    return receipts


def said_to(model: ScriptedModel) -> list[str]:
    """Return the last thing that each request told the model."""
    return [heard(request)[-1]["content"] for request in model.requests]


async def test_a_turn_that_waits_behind_another_is_stopped_at_once(home: Home):
    gate, model, room = Gate(), obedient(), MemoryChannel()
    async with (
        asyncio.timeout(120),
        home(model=model, tools=[gate.tool], channels={"room": room}) as one,
    ):
        first, second, third = await queue(
            one, gate, "second", "third", channel="room", reply_to="ada"
        )
        waiting = asyncio.create_task(one.turns.wait(second))
        await asyncio.sleep(0)
        await one.turns.stop(second.turn_id, "Enough.")
        # Before the turn that it waits for has ended.
        outcome = await waiting
        assert (outcome.state, outcome.text) == (TurnState.STOPPED, "Enough.")
        assert await one.turns.outcome(second.turn_id) == outcome
        assert second.turn_id not in await one.turns.unfinished()
        with pytest.raises(Conflict, match="stopped; there is nothing to stop"):
            await one.turns.stop(second.turn_id)
        gate.go.set()
        assert (await one.turns.wait(third)).text == "answer to: third"
        assert (await one.turns.wait(first)).state is TurnState.DONE
        record, entries = await one.turns.get(second.turn_id)
        assert (record.state, record.error) == (TurnState.STOPPED, "Enough.")
        assert [entry.key for entry in entries] == ["in", "end"]
        assert await one.turns.waiting() == []
        await until(lambda: len(room.delivered) == 2)
        assert [one.text for one in room.delivered] == ["Enough.", "answer to: third"]
    assert "second" not in said_to(model)


@pytest.mark.promise("T2")
async def test_a_turn_that_was_stopped_while_it_waited_is_not_begun_after_a_restart(home: Home):
    gate, model = Gate(), obedient()
    async with asyncio.timeout(120), home(tools=[gate.tool], grace=0.0) as one:
        _, second = await queue(one, gate, "second")
        await one.turns.stop(second.turn_id, "Enough.")
    gate.go.set()
    async with asyncio.timeout(120), home(model=model, tools=[gate.tool]) as one:
        third = await one.agents.send("aria", "third")
        assert (await one.turns.wait(third)).text == "answer to: third"
        assert (await one.turns.outcome(second.turn_id)).text == "Enough."
        assert (await one.turns.get(second.turn_id))[0].state is TurnState.STOPPED
    assert "second" not in said_to(model)


async def test_a_turn_that_waits_for_a_person_is_not_stopped_and_says_what_to_do(home: Home):
    @tool(ask=True)
    async def pay() -> str:
        return "paid"

    async with asyncio.timeout(120), home(tools=[pay]) as one:
        await one.agents.create("aria")
        parked = await one.agents.ask("aria", "[[call:pay {}]]")
        (question,) = await one.approvals.list()
        with pytest.raises(Conflict, match=f"parked.*asterism approval deny {question.id}"):
            await one.turns.stop(parked.turn_id)
        assert (await one.turns.outcome(parked.turn_id)).state is TurnState.PARKED
        done = await one.turns.wait(await one.approvals.decide(question.id, approved=True))
        assert done.state is TurnState.DONE


async def test_there_is_nothing_to_stop_in_a_turn_that_has_ended(home: Home):
    async with asyncio.timeout(120), home() as one:
        await one.agents.create("aria")
        outcome = await one.agents.ask("aria", "hello")
        with pytest.raises(Conflict, match="done; there is nothing to stop"):
            await one.turns.stop(outcome.turn_id)


async def test_a_turn_that_was_interrupted_is_stopped_before_it_goes_on(home: Home):
    gate, model = Gate(), obedient()
    async with asyncio.timeout(120), home(tools=[gate.tool], grace=0.0) as one:
        (first,) = await queue(one, gate)
    asked = len(model.requests)
    async with asyncio.timeout(120), home(tools=[gate.tool], work=False) as one:
        assert (await one.turns.outcome(first.turn_id)).state is TurnState.OPEN
        await one.turns.stop(first.turn_id, "Enough.")
    gate.go.set()
    async with asyncio.timeout(120), home(model=model, tools=[gate.tool]) as one:
        outcome = await one.turns.wait(first)
        assert (outcome.state, outcome.text) == (TurnState.STOPPED, "Enough.")
        assert (await one.agents.ask("aria", "next")).text == "answer to: next"
    assert len(model.requests) == asked + 1


@pytest.mark.postgres
async def test_another_process_stops_a_turn_that_waits_behind_another(shared: Home):
    gate, model = Gate(), obedient()
    async with (
        asyncio.timeout(120),
        shared(model=model, tools=[gate.tool]) as worker,
        shared(work=False) as other,
    ):
        _, second, third = await queue(worker, gate, "second", "third")
        waiting = asyncio.create_task(worker.turns.wait(second))
        await other.turns.stop(second.turn_id, "Enough.")
        assert (await waiting).text == (await other.turns.wait(second)).text == "Enough."
        gate.go.set()
        assert (await other.turns.wait(third)).text == "answer to: third"
        assert (await other.turns.get(second.turn_id))[0].state is TurnState.STOPPED
    assert "second" not in said_to(model)


@pytest.mark.postgres
@pytest.mark.parametrize("hears", [True, False], ids=["heard", "notice lost"])
async def test_another_process_stops_a_turn_that_has_written_nothing_yet(
    shared: Home, monkeypatch: pytest.MonkeyPatch, hears: bool
):
    model = Pausing()
    async with asyncio.timeout(120), shared(model=model) as worker, shared(work=False) as other:
        await worker.agents.create("aria")
        receipt = await worker.agents.send("aria", "hello")
        await model.asked.wait()
        if not hears:
            monkeypatch.setattr(worker._engine.runtime, "stop_turn", Mock())
        await other.turns.stop(receipt.turn_id, "Enough.")
        assert (await other.turns.wait(receipt)).text == "Enough."
        model.go.set()
        assert (await worker.turns.wait(await worker.agents.send("aria", "again"))).text in (
            "next",
            "too late",
        )
        outcome = await worker.turns.outcome(receipt.turn_id)
        assert (outcome.state, outcome.text) == (TurnState.STOPPED, "Enough.")
        _, entries = await worker.turns.get(receipt.turn_id)
        assert [entry.key for entry in entries] == ["in", "end"]
