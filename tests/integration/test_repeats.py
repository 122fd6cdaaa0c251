"""A turn never spins: calls repeated without cause are answered from before; an answer comes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import Limits, NothingFound, ToolError, TurnState, tool
from asterism.ports import ModelRequest
from asterism.testing.scripted import Line, ScriptedModel
from asterism.types.permissions import ToolEffect
from asterism.types.turns import EntryKind, Reply
from tests.scenes import calls, heard, open_home

RAN: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@tool(repeatable=True, effects=ToolEffect("read"), trust=None)
def look(what: str = "it", limit: int = 5) -> str:
    """Look something up."""
    RAN.append(f"look {what}")
    return f"{what} is green"


@tool(repeatable=True, trust=None)
def peek(what: str = "it") -> str:
    """Look at something, without saying what that does."""
    RAN.append(f"peek {what}")
    return "a peek"


@tool(repeatable=True, effects=ToolEffect("read"), trust=None)
def find(what: str) -> str:
    """Look for something that is not there."""
    RAN.append(f"find {what}")
    return NothingFound("Nothing was found.")


@tool(repeatable=True, effects=ToolEffect("remember"), trust=None)
def paint(what: str) -> str:
    """Change something."""
    RAN.append(f"paint {what}")
    return "painted"


@tool(repeatable=True, effects=ToolEffect("read"), trust=None)
def fail(what: str = "it") -> str:
    """Fail."""
    RAN.append(f"fail {what}")
    raise ToolError("The server is busy.")


@tool(repeatable=True, effects=ToolEffect("read"), trust=None, changes_by_itself=True)
def poll() -> str:
    """Ask whether something is done."""
    RAN.append("poll")
    return "still running" if len(RAN) < 4 else "done"


TOOLS = [look, peek, find, paint, fail, poll]


def spinning(*wanted: tuple[str, str], answer: str = "It is green.") -> ScriptedModel:
    """A model that makes the same calls in turn for ever, and answers when it has no tools."""
    count = 0

    def rule(request: ModelRequest) -> Reply | str:
        nonlocal count
        if request.tool_choice == "none":
            return answer
        count += 1
        return calls(wanted[(count - 1) % len(wanted)])

    return ScriptedModel.from_rule(rule)


async def ask(place: Path, model: ScriptedModel, **given: Any):
    async with open_home(place, model, tools=TOOLS, **given) as home:
        await home.agents.ensure("aria")
        outcome = await home.agents.ask("aria", "What colour is it?")
        _, entries = await home.turns.get(outcome.turn_id)
    return outcome, entries


@pytest.mark.promise("T13")
async def test_the_same_call_is_answered_from_before_and_then_an_answer_comes(tmp_path: Path):
    model = spinning(("look", "{}"))
    outcome, entries = await ask(tmp_path, model)
    assert outcome.state is TurnState.DONE
    assert outcome.text == "It is green."
    assert RAN == ["look it"]
    # The call, two repeats that are answered from before, and the answer.
    assert [request.tool_choice for request in model.requests] == ["auto", "auto", "auto", "none"]
    told = heard(model.requests[2])[-1]["content"]
    assert "you called look with the same arguments before" in told
    assert "it is green" in told
    results = [entry.result for entry in entries if entry.kind is EntryKind.RESULT]
    assert len(results) == 3  # nothing that happened is hidden in the journal


@pytest.mark.promise("T13")
async def test_the_same_call_in_other_words_is_the_same(tmp_path: Path):
    spellings = (("look", "{}"), ("look", '{"limit": 5, "what": "it"}'), ("look", '{"what":"it"}'))
    await ask(tmp_path, spinning(*spellings))
    assert RAN == ["look it"]


@pytest.mark.promise("T13")
@pytest.mark.parametrize("other", ["look", "peek"])
async def test_two_calls_in_turn_are_a_loop_too(tmp_path: Path, other: str):
    """Whether or not the tools say that they only read."""
    model = spinning((other, '{"what": "a"}'), ("peek", '{"what": "b"}'))
    outcome, _ = await ask(tmp_path, model)
    assert outcome.text == "It is green."
    assert len(RAN) <= 4
    assert len(model.requests) <= 8


@pytest.mark.promise("T13")
async def test_three_empty_results_in_a_row_end_the_search(tmp_path: Path):
    words = [("find", orjson.dumps({"what": f"word {number}"}).decode()) for number in range(20)]
    outcome, _ = await ask(tmp_path, spinning(*words, answer="I do not know."))
    assert outcome.text == "I do not know."
    assert len(RAN) == 3


@pytest.mark.promise("T13")
async def test_a_call_that_fails_is_tried_twice(tmp_path: Path):
    outcome, _ = await ask(tmp_path, spinning(("fail", "{}")))
    assert outcome.state is TurnState.DONE
    assert RAN == ["fail it"] * 2


@pytest.mark.promise("T13")
async def test_a_call_that_cannot_be_run_at_all_does_not_spin(tmp_path: Path):
    model = spinning(("look", '{"colour": 1}'))
    outcome, _ = await ask(tmp_path, model)
    assert outcome.text == "It is green."
    assert len(model.requests) <= 5


@pytest.mark.promise("T13")
async def test_after_a_change_the_same_call_is_made_again(tmp_path: Path):
    lines: list[Line] = [
        calls(("look", "{}")),
        calls(("paint", '{"what": "it"}')),
        calls(("look", "{}")),
        "done",
    ]
    outcome, _ = await ask(tmp_path, ScriptedModel(lines))
    assert outcome.text == "done"
    assert RAN == ["look it", "paint it", "look it"]


@pytest.mark.promise("T13")
async def test_a_tool_whose_result_changes_by_itself_can_be_asked_again(tmp_path: Path):
    lines: list[Line] = [*[calls(("poll", "{}"))] * 4, "done"]
    outcome, entries = await ask(tmp_path, ScriptedModel(lines))
    assert outcome.text == "done"
    assert RAN == ["poll"] * 4
    last = [entry.result for entry in entries if entry.kind is EntryKind.RESULT][-1]
    assert last is not None
    assert last.text == "done"
    RAN.clear()


@pytest.mark.promise("T13")
async def test_a_model_that_goes_on_calling_without_tools_is_stopped(tmp_path: Path):
    stubborn = ScriptedModel.from_rule(lambda _: calls(("look", "{}")))
    outcome, _ = await ask(tmp_path, stubborn)
    assert outcome.state is TurnState.FAILED
    assert "again and again" in outcome.text
    assert len(stubborn.requests) == 4
    RAN.clear()
    chatty = ScriptedModel.from_rule(
        lambda _: Reply("Green, I think.", calls(("look", "{}")).calls)
    )
    outcome, _ = await ask(tmp_path / "chatty", chatty)
    assert outcome.text == "Green, I think."


@pytest.mark.promise("T13")
async def test_the_next_turn_does_not_see_the_loop(tmp_path: Path):
    """Nor does it after a restart; the journal has all of it."""
    model = spinning(("look", "{}"))
    async with open_home(tmp_path, model, tools=TOOLS) as home:
        await home.agents.ensure("aria")
        await home.agents.ask("aria", "What colour is it?")
        await home.agents.ask("aria", "Are you sure?")
        live = _calls_told(model.requests[4])
    heir = spinning(("look", "{}"))
    async with open_home(tmp_path, heir, tools=TOOLS) as home:
        await home.agents.ask("aria", "Really?")
        (turn, *_) = await home.turns.list("aria")
        replayed = await home.turns.replay(turn.id)
        assert replayed.same
    assert live == ["look"]
    assert _calls_told(heir.requests[0]) == ["look", "look"]


def _calls_told(request: ModelRequest) -> Sequence[str]:
    """The calls that a request tells a model that it has made."""
    return [
        call["function"]["name"]
        for message in heard(request)
        for call in message.get("tool_calls") or ()
    ]


@pytest.mark.promise("T13", "T10")
async def test_an_agent_knows_what_a_limit_said(tmp_path: Path):
    model = ScriptedModel([calls(("look", "{}")), calls(("look", '{"what": "b"}')), "I know."])
    async with open_home(tmp_path, model, tools=TOOLS) as home:
        await home.agents.create("aria", limits=Limits(steps=2))
        outcome = await home.agents.ask("aria", "go")
        assert outcome.state is TurnState.FAILED
        assert (await home.agents.ask("aria", "What was that?")).text == "I know."
    told = [message["content"] for message in heard(model.requests[-1])]
    assert any(outcome.text in str(text) for text in told)
