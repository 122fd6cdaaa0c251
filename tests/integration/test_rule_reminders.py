"""What becomes of an agent that does not keep a rule, rung by rung, also after a crash."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from asterism import Asterism, ToolError, TurnState, tool
from asterism.ports import Emit, ModelRequest
from asterism.testing.clock import ManualClock
from asterism.testing.scripted import Line, ScriptedModel
from asterism.types.agents import Rule, RuleKind
from asterism.types.turns import WIRE_KINDS, EntryKind, Reply
from tests.integration.rules_scene import RUN, TOOLS, call, meet, named, reminders, results, scene
from tests.scenes import open_home


@pytest.fixture(autouse=True)
def _nothing_run() -> None:
    RUN.clear()


# -- the ladder ----------------------------------------------------------------------------------


@pytest.mark.promise("S2")
async def test_the_ladder_is_error_then_reminder_then_force(tmp_path: Path):
    rule = Rule("send", RuleKind.PRECEDING, ("look",))
    lines = [call("send"), call("send"), call("send"), call("send"), "done"]
    async with scene(tmp_path, lines, rule) as (home, model):
        assert (await home.agents.ask("aria", "go")).text == "done"
    assert RUN == ["look", "send"]
    told = [reminders(one) for one in model.requests]
    assert [len(one) for one in told] == [0, 0, 1, 2, 2]
    assert told[2][0].startswith("[asterism] For the second time or more: Send can be called only")
    assert told[3][1].endswith("Call look first. look is called for you now.")


@pytest.mark.promise("S2")
async def test_an_agent_that_goes_on_with_what_is_forbidden_is_stopped(tmp_path: Path):
    rule = Rule("look", RuleKind.MAX_CALLS, count=1)
    async with scene(tmp_path, [call("look")] * 6, rule) as (home, _):
        outcome = await home.agents.ask("aria", "go")
    assert RUN == ["look"]
    assert outcome.state is TurnState.FAILED
    assert "in 5 steps I did what a rule forbids" in outcome.text


@pytest.mark.promise("S2", "H1")
async def test_a_forced_call_waits_for_a_person_like_any_other(tmp_path: Path):
    tools = [*TOOLS[:3], named("save", ask=True)]
    lines = ["no", "no", "no", "done"]
    async with scene(tmp_path, lines, Rule("save", RuleKind.BEFORE_EXIT), tools=tools) as (
        home,
        _,
    ):
        assert (await home.agents.ask("aria", "go")).state is TurnState.PARKED
        (question,) = await home.approvals.list()
        receipt = await home.approvals.decide(question.id, approved=False)
        assert (await home.turns.wait(receipt)).text == "done"
    assert RUN == []


class Mortal(ScriptedModel):
    """Says its lines until one, at which it falls silent for ever."""

    def __init__(self, lines: Sequence[Line], last: int) -> None:
        super().__init__(lines)
        self.last = last
        self.silent = asyncio.Event()

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Say the next line, or nothing any more."""
        if len(self.requests) == self.last:
            self.silent.set()
            await asyncio.Event().wait()
        return await super().complete(request, emit)


@pytest.mark.promise("S2", "T2")
@pytest.mark.parametrize("last", range(8))
async def test_a_crash_neither_repeats_nor_skips_a_rung(tmp_path: Path, last: int):
    rules = [
        Rule("send", RuleKind.PRECEDING, ("look",)),
        Rule("save", RuleKind.BEFORE_EXIT),
        Rule("note", RuleKind.EXIT_LOOP),
    ]
    lines: list[Line] = [
        *(call("send"), call("send"), call("send"), call("send", "look")),
        *("no", "no", "no", "done"),
    ]

    async def told(home: Asterism, turn_id: str) -> list[tuple[str, bytes]]:
        _, entries = await home.turns.get(turn_id)
        kinds = (*WIRE_KINDS, EntryKind.ONCE)
        return [
            (entry.key, entry.body.replace(turn_id[-8:].encode(), b"turn"))
            for entry in entries
            if entry.kind in kinds and entry.key != "in"
        ]

    async with scene(tmp_path / "whole", lines, *rules) as (home, _):
        whole = await told(home, (await home.agents.ask("aria", "go")).turn_id)
    assert RUN == ["look", "send", "look", "save"]
    RUN.clear()
    mortal = Mortal(lines, last)
    async with open_home(tmp_path / "parts", mortal, tools=TOOLS, grace=0.0) as home:
        await meet(home, TOOLS, rules)
        receipt = await home.agents.send("aria", "go")
        async with asyncio.timeout(120):
            await mortal.silent.wait()
    heir = ScriptedModel(lines[last:])
    async with open_home(tmp_path / "parts", heir, tools=TOOLS) as home:
        async with asyncio.timeout(120):
            outcome = await home.turns.wait(receipt)
        assert outcome.text == "done"
        assert await told(home, receipt.turn_id) == whole
    assert RUN == ["look", "send", "look", "save"]


@pytest.mark.promise("S2", "T12")
async def test_a_turn_with_rules_replays_to_the_same_bytes(tmp_path: Path, clock: ManualClock):
    rules = [
        Rule("send", RuleKind.PRECEDING, ("look",)),
        Rule("save", RuleKind.BEFORE_EXIT),
        Rule("note", RuleKind.COOLDOWN, seconds=3_600),
    ]
    lines = [
        *(call("note"), call("save"), "one"),
        *(call("note", "send"), call("send"), call("send"), "no", "no", "no", "done"),
    ]
    async with scene(tmp_path, lines, *rules, clock=clock) as (home, _):
        await home.agents.ask("aria", "go")
        clock.forward(seconds=60)
        outcome = await home.agents.ask("aria", "go")
        assert outcome.text == "done"
        await home.rules.set("aria", [])
        replay = await home.turns.replay(outcome.turn_id)
        assert (replay.same, replay.differences, replay.text) == (True, (), "done")
    assert RUN == ["note", "save", "look", "save"]


# -- the same call twice -------------------------------------------------------------------------


@pytest.mark.promise("S2")
async def test_the_same_call_to_the_outside_is_not_made_twice_in_a_row(tmp_path: Path):
    lines = [call("ring", "ring"), call("ring"), call("look"), call("ring"), "done"]
    async with scene(tmp_path, lines) as (home, model):
        assert (await home.agents.ask("aria", "go")).text == "done"
    assert RUN == ["ring", "look", "ring"]
    assert results(model.requests[1]) == [
        "rang 1 times",
        (
            "Error: not run, since you have just called ring with the same arguments. Its result "
            "was: rang 1 times Use that. If it has to be done once more, look with another tool at "
            "what has become of it first."
        ),
    ]


@pytest.mark.promise("S2")
async def test_another_argument_a_failure_or_a_new_turn_is_no_repetition(tmp_path: Path):
    tries: list[int] = []

    @tool(name="ring", trust=None)
    async def moody(times: int = 1) -> str:
        """Ring, the second time with success."""
        tries.append(times)
        if len(tries) == 1:
            raise ToolError("Nobody is there.")
        return "rang"

    lines = [
        *(call("ring"), call("ring"), call("ring", arguments='{"times": 2}'), "one"),
        *(call("ring", arguments='{"times": 2}'), "two"),
    ]
    async with scene(tmp_path, lines, tools=[*TOOLS[:-1], moody]) as (home, _):
        await home.agents.ask("aria", "go")
        await home.agents.ask("aria", "again")
    assert tries == [1, 1, 2, 2]
