"""Replay and fork: a recorded turn comes out the same, and can be tried another way."""

from pathlib import Path

import pytest

from asterism import Asterism, ToolContext, TurnState, tool
from asterism.errors import Conflict, ModelRefused, NotFound
from asterism.testing.scripted import ScriptedModel
from asterism.types.permissions import ToolEffect
from asterism.types.turns import Outcome
from tests.scenes import calls, heard, open_home


@tool(effects=ToolEffect("read"))
async def act(word: str) -> str:
    """Act."""
    if word == "badly":
        raise ValueError("no")
    return f"acted {word}"


@tool(repeatable=True, effects=ToolEffect("read"))
async def look(where: str) -> str:
    """Look."""
    return f"nothing {where}"


@tool
async def pay(ctx: ToolContext, euros: int) -> str:
    """Pay."""
    ctx.ask(f"Pay {euros}?")
    return f"paid {euros}"


TOOLS = [act, look, pay]


async def replayed(home: Asterism, outcome: Outcome) -> None:
    replay = await home.turns.replay(outcome.turn_id)
    assert (replay.same, replay.differences, replay.text) == (True, (), outcome.text)


@pytest.mark.promise("T12")
async def test_a_turn_with_calls_replays_to_the_same_bytes_without_model_or_tools(tmp_path: Path):
    model = ScriptedModel(
        [
            calls(
                ("act", '{"word": "well"}'),
                ("look", '{"where": "here"}'),
                ("look", '{"where": "there"}'),
                ("act", '{"word": "badly"}'),
                ("act", '{"word": 3}'),
                ("nobody", "{}"),
                ("heartbeat", '{"reason": "more"}'),
            ),
            calls(("act", '{"word": "again"}')),
            "done",
            "more done",
        ]
    )
    async with open_home(tmp_path, model, tools=TOOLS) as home:
        await home.agents.create("aria")
        outcome = await home.agents.ask("aria", "go")
        asked = len(model.requests)
        before = await home.turns.get(outcome.turn_id)
    # Offline: the tools are gone, the model has nothing to say, the home is only read.
    async with open_home(tmp_path, ScriptedModel([]), readonly=True) as home:
        await replayed(home, outcome)
        assert await home.turns.get(outcome.turn_id) == before
    assert len(model.requests) >= asked


@pytest.mark.promise("T12")
async def test_a_turn_that_waited_for_people_replays_with_their_decisions(tmp_path: Path):
    model = ScriptedModel(
        [calls(("pay", '{"euros": 5}'), ("pay", '{"euros": 7}')), "meanwhile", "paid one"]
    )
    async with open_home(tmp_path, model, tools=TOOLS) as home:
        await home.agents.create("aria")
        parked = await home.agents.ask("aria", "pay")
        assert parked.state is TurnState.PARKED
        await home.agents.ask("aria", "something else")
        first, second = await home.approvals.list()
        again = await home.turns.wait(
            await home.approvals.decide(first.id, approved=True, note="yes")
        )
        assert again.state is TurnState.PARKED
        done = await home.turns.wait(await home.approvals.decide(second.id, approved=False))
        assert done.text == "paid one"
        await replayed(home, done)


@pytest.mark.promise("T12")
async def test_a_turn_that_failed_replays_as_far_as_it_went(tmp_path: Path):
    model = ScriptedModel([calls(("look", '{"where": "here"}')), ModelRefused("No key.")])
    async with open_home(tmp_path, model, tools=TOOLS) as home:
        await home.agents.create("aria")
        outcome = await home.agents.ask("aria", "go")
        assert outcome.state is TurnState.FAILED
        await replayed(home, outcome)


@pytest.mark.promise("T12")
async def test_a_changed_record_is_told_from_the_replay(tmp_path: Path):
    model = ScriptedModel([calls(("look", '{"where": "here"}')), "done"])
    async with open_home(tmp_path, model, tools=TOOLS) as home:
        await home.agents.create("aria")
        outcome = await home.agents.ask("aria", "go")
        await home.database.write(
            lambda tx: tx.run(
                "DELETE FROM entries WHERE turn_id = ? AND key = ?", (outcome.turn_id, "1/reply")
            )
        )
        await home.database.write(
            lambda tx: tx.run(
                "UPDATE entries SET key = '0/call/7' WHERE turn_id = ? AND key = '0/call/0'",
                (outcome.turn_id,),
            )
        )
        replay = await home.turns.replay(outcome.turn_id)
        assert not replay.same
        assert any("0/call/7" in line for line in replay.differences)


@pytest.mark.promise("T12")
async def test_a_fork_answers_the_same_message_from_the_same_past_another_way(tmp_path: Path):
    model = ScriptedModel(["one", "two", "three", "two, said otherwise"])
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria", system="Be aria.")
        await home.agents.ask(aria, "first")
        second = await home.agents.ask(aria, "second")
        await home.agents.ask(aria, "third")
        copy, outcome = await home.turns.fork(second.turn_id, name="other", system="Be another.")
        assert (copy.name, outcome.text) == ("other", "two, said otherwise")
        system, *told = [message["content"] for message in heard(model.requests[-1])]
        assert system.startswith("Be another.")
        assert told == ["first", "one", "second"]
        # The original has not noticed.
        assert len(await home.turns.list(aria)) == 3
        with pytest.raises(Conflict, match="already"):
            await home.turns.fork(second.turn_id, name="other")
        with pytest.raises(NotFound, match="turn_nothing"):
            await home.turns.fork("turn_nothing")
