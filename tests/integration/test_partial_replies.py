"""What a person has seen of an answer is kept, whatever cut it short."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from asterism import Asterism, Limits, TurnState
from asterism.errors import ModelUnavailable
from asterism.ports import Emit, ModelRequest
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import EntryKind, Reply
from tests.scenes import heard, open_home

PRICES = {"scripted:*": {"input": 1.0, "output": 2.0}}


class Slow(ScriptedModel):
    """Says some words, and then nothing for as long as it is waited for, or an error."""

    def __init__(self, error: Exception | None = None, *, times: int = 1) -> None:
        super().__init__(["What I said before was cut off."])
        self.said = asyncio.Event()
        self.left = times
        self._error = error

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Stream the beginning of a long answer."""
        if not self.left:
            return await super().complete(request, emit)
        self.left -= 1
        assert emit is not None
        for word in ("Once ", "upon ", "a ", "zebra "):
            emit("text", word)
            await asyncio.sleep(0)
        self.said.set()
        if self._error is not None:
            raise self._error
        await asyncio.Event().wait()
        raise AssertionError


@pytest.fixture
async def home_and_model(tmp_path: Path) -> AsyncGenerator[tuple[Asterism, Slow], None]:
    model = Slow()
    async with open_home(tmp_path / "data", model, settings={"prices": PRICES}) as home:
        await home.agents.create("aria", limits=Limits(seconds=0.5))
        yield home, model


async def watch(home: Asterism, text: str) -> tuple[str, str]:
    """Send a message and watch its turn to its end; return the turn and what was seen."""
    seen, turn_id = "", ""
    async for signal in home.agents.stream("aria", text):
        turn_id = signal.turn_id
        if signal.kind == "text":
            seen += signal.data["text"]
    return turn_id, seen


async def check(home: Asterism, model: ScriptedModel, turn_id: str, seen: str, finish: str) -> None:
    assert seen == "Once upon a zebra "
    record, entries = await home.turns.get(turn_id)
    (reply,) = [entry for entry in entries if entry.kind is EntryKind.REPLY]
    kept = Reply.from_entry(reply.body, reply.meta)
    assert kept.text == seen
    assert kept.finish == finish
    assert record.usage.output > 0
    spent = await home.spending.report()
    assert sum(line.calls for line in spent.lines) == 1
    assert sum(line.presumed for line in spent.lines) > 0
    aria = await home.agents.get("aria")
    assert any("zebra" in hit.text for hit in (await aria.search("zebra")).hits)
    await home.agents.ask("aria", "What did you just say?")
    told = [str(message["content"]) for message in heard(model.requests[-1])]
    assert seen in told
    assert any(text.startswith("[asterism] Your turn") for text in told)


@pytest.mark.promise("T14")
async def test_what_was_seen_before_a_stop_is_kept(home_and_model: tuple[Asterism, Slow]):
    home, model = home_and_model
    turn_id, seen = "", ""
    async for signal in home.agents.stream("aria", "Tell me a story"):
        turn_id = signal.turn_id
        if signal.kind == "text":
            seen += signal.data["text"]
            if seen.endswith("zebra "):
                await home.turns.stop(turn_id)
    assert (await home.turns.get(turn_id))[0].state is TurnState.STOPPED
    await check(home, model, turn_id, seen, "stopped")


@pytest.mark.promise("T14", "T10")
async def test_what_was_seen_before_a_limit_is_kept(home_and_model: tuple[Asterism, Slow]):
    home, model = home_and_model
    turn_id, seen = await watch(home, "Tell me a story")
    assert (await home.turns.get(turn_id))[0].state is TurnState.FAILED
    await check(home, model, turn_id, seen, "cut")


@pytest.mark.promise("T14")
async def test_what_was_seen_of_a_stream_that_broke_is_kept(tmp_path: Path):
    broken = ModelUnavailable("The connection broke off.", begun=True)
    model = Slow(broken, times=99)
    settings = {"models": {"scripted": {"retries": 0}}, "prices": PRICES}
    async with open_home(tmp_path / "data", model, settings=settings) as home:
        await home.agents.create("aria")
        turn_id, seen = await watch(home, "Tell me a story")
        model.left = 0
        await check(home, model, turn_id, seen, "cut")


@pytest.mark.promise("T14")
async def test_what_was_seen_of_an_attempt_that_was_made_again_is_in_the_journal(tmp_path: Path):
    model = Slow(ModelUnavailable("The connection broke off.", begun=True))
    async with open_home(tmp_path / "data", model) as home:
        await home.agents.create("aria")
        turn_id, seen = await watch(home, "Tell me a story")
        _, entries = await home.turns.get(turn_id)
    assert seen.endswith("What I said before was cut off.")
    (void,) = [entry for entry in entries if entry.key == "0/void"]
    assert b"Once upon a zebra" in void.body
