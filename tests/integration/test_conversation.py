"""A conversation: begun anew, a message asked again, documents that go with a message."""

from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism, TurnState
from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.ports import ModelRequest
from asterism.testing.scripted import ScriptedModel
from asterism.types.agents import Trust
from asterism.types.turns import AttachedDocument, Reply, Usage
from tests.scenes import heard, open_home

SETTINGS: dict[str, Any] = {"pipeline.processors": []}


class Listener:
    """A model that answers in a word and keeps what it was sent."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.model = ScriptedModel.from_rule(self._answer)

    def _answer(self, request: ModelRequest) -> str:
        self.requests.append(request)
        return "Yes."

    @property
    def latest(self) -> str:
        """All that was sent with the latest request."""
        return "\n".join(str(message["content"]) for message in heard(self.requests[-1]))


@pytest.mark.promise("M11", "T11")
async def test_a_conversation_begins_anew_and_memory_stays(tmp_path: Path):
    listener = Listener()
    async with open_home(tmp_path, listener.model, settings=SETTINGS) as home:
        aria = await home.agents.create("aria")
        await aria.blocks["human"].append("Has a cat named Miso.")
        await aria.ask("The code of the shed is 4711")
        await aria.ask("I paint on Sundays")
        summary = await home.contexts.restart("aria")
        assert summary.messages == 4
        assert "4711" not in summary.text
        await aria.ask("And now?")
        assert "4711" not in listener.latest
        assert "Sundays" not in listener.latest
        assert "Miso" in listener.latest
        assert "4 messages" in listener.latest
        hits = (await home.search("aria", "code of the shed")).hits
        assert any("4711" in hit.text for hit in hits)
        assert await home.turns.count("aria") == 3
        kinds = [event.kind for event in await home.audit.list(limit=50)]
        assert "context.restarted" in kinds


async def test_there_may_be_nothing_to_begin_anew(tmp_path: Path):
    async with open_home(tmp_path, Listener().model, settings=SETTINGS) as home:
        aria = await home.agents.create("aria")
        with pytest.raises(Conflict, match="no finished turn"):
            await home.contexts.restart("aria")
        await aria.ask("One")
        await home.contexts.restart("aria")
        with pytest.raises(Conflict, match="Nothing was changed"):
            await home.contexts.restart("aria")
        await aria.ask("Two")
        assert (await home.contexts.restart("aria")).messages == 2


@pytest.mark.promise("M12")
async def test_what_follows_a_fresh_start_is_compacted_as_usual(tmp_path: Path):
    listener = Listener()
    settings = SETTINGS | {"context.tokens": 2_200}
    async with open_home(tmp_path, listener.model, settings=settings) as home:
        aria = await home.agents.create("aria")
        await aria.ask("The old word is heliotrope")
        await home.contexts.restart("aria")
        for number in range(60):
            outcome = await aria.ask(f"The number {number} " + "and so on " * 10)
            assert outcome.state is TurnState.DONE
        assert "heliotrope" not in listener.latest
        assert "The number 59" in listener.latest


@pytest.mark.promise("X6", "M10")
async def test_a_document_goes_with_a_message_and_is_trusted_as_one(tmp_path: Path):
    listener = Listener()
    async with open_home(tmp_path, listener.model, settings=SETTINGS) as home:
        aria = await home.agents.create("aria")
        document = AttachedDocument("house.md", "The boiler is in the cellar.")
        outcome = await aria.ask("Where is the boiler?", documents=[document])
        assert "'house.md'" in listener.latest
        assert "> The boiler is in the cellar." in listener.latest
        record, entries = await home.turns.get(outcome.turn_id)
        assert record.trust == Trust.DOCUMENT
        (note,) = [entry for entry in entries if entry.key == "note/client/document/0"]
        assert note.meta is not None
        assert '"trust":"document"' in note.meta
        assert "house.md" in note.meta
        message = next(entry for entry in entries if entry.key == "in")
        assert message.meta == '{"trust":"owner"}'


async def test_a_long_document_is_cut_to_what_the_model_can_read(tmp_path: Path):
    listener = Listener()
    settings = SETTINGS | {"context.tokens": 2_000}
    async with open_home(tmp_path, listener.model, settings=settings) as home:
        aria = await home.agents.create("aria")
        outcome = await aria.ask("Read", documents=[AttachedDocument("long.txt", "word " * 4_000)])
        assert outcome.state is TurnState.DONE
        assert "16,000 more characters were left out" in listener.latest


async def test_documents_that_cannot_go_along(tmp_path: Path):
    async with open_home(tmp_path, Listener().model, settings=SETTINGS) as home:
        aria = await home.agents.create("aria")
        many = [AttachedDocument(f"{number}.txt", "x") for number in range(17)]
        with pytest.raises(InvalidInput, match="the limit is 16"):
            await aria.send("Read", documents=many)
        with pytest.raises(InvalidInput, match="1,000,001 characters"):
            await aria.send("Read", documents=[AttachedDocument("big.txt", "x" * 1_000_001)])
        assert await home.turns.list() == []


@pytest.mark.promise("T11")
async def test_a_message_that_is_asked_again_is_recorded_as_such(tmp_path: Path):
    listener = Listener()
    async with open_home(tmp_path, listener.model, settings=SETTINGS) as home:
        aria, bea = await home.agents.create("aria"), await home.agents.create("bea")
        first = await aria.ask("What is the time?")
        second = await aria.ask("What is the time?", retry_of=first.turn_id)
        assert f"asks the message of {first.turn_id} again" in listener.latest
        _, entries = await home.turns.get(second.turn_id)
        (note,) = [entry for entry in entries if entry.key == "note/client/retry"]
        assert note.meta is not None
        assert first.turn_id in note.meta
        for agent, turn in ((aria, "turn_0"), (bea, first.turn_id)):
            with pytest.raises(NotFound, match="to ask again"):
                await agent.send("What is the time?", retry_of=turn)


@pytest.mark.parametrize(("price", "cost"), [(0.0, 0), (2.0, 200_000)])
async def test_what_a_turn_cost(tmp_path: Path, price: float, cost: int):
    reply = Reply("Yes.", usage=Usage(input=100, output=0))
    prices = {"scripted:one": {"input": price, "output": price}}
    model = ScriptedModel.from_rule(lambda _: reply)
    async with open_home(tmp_path, model, settings=SETTINGS | {"prices": prices}) as home:
        aria = await home.agents.create("aria")
        outcome = await aria.ask("Hello")
        assert await home.turns.cost(outcome.turn_id) == cost


async def test_turns_are_counted_for_those_who_may_see_them(tmp_path: Path):
    async with open_home(tmp_path, Listener().model, settings=SETTINGS) as home:
        await _three_turns(home)
        assert await home.turns.count("aria") == 3
        assert await home.turns.count("bea") == 0


async def _three_turns(home: Asterism) -> None:
    aria = await home.agents.create("aria")
    await home.agents.create("bea")
    for text in ("One", "Two", "Three"):
        await aria.ask(text)
