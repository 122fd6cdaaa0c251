"""Rules for tools in turns: told to the model and enforced, kind by kind, on both engines."""

from pathlib import Path

import orjson
import pytest

from asterism import TurnState
from asterism.errors import InvalidInput, NotFound
from asterism.testing.clock import ManualClock
from asterism.testing.scripted import ScriptedModel
from asterism.types.agents import Rule, RuleKind
from asterism.types.turns import Reply
from tests.conformance.memory_scene import ENGINES
from tests.integration.rules_scene import RUN, TOOLS, call, named, reminders, results, scene
from tests.scenes import calls, heard, open_home


@pytest.fixture(autouse=True)
def _nothing_run() -> None:
    RUN.clear()


# -- each kind -----------------------------------------------------------------------------------


@pytest.mark.promise("S2")
@pytest.mark.parametrize("engine", ENGINES)
async def test_a_start_rule_lets_a_well_behaved_agent_call_its_second_tool(
    engine: str, tmp_path: Path
):
    """In Pattern the start is never marked as done, so that whoever kept it was still refused."""
    lines = [call("look"), call("note"), call("send"), "done"]
    async with scene(tmp_path, lines, Rule("look", RuleKind.START), engine=engine) as (home, _):
        assert (await home.agents.ask("aria", "go")).text == "done"
    assert RUN == ["look", "note", "send"]


@pytest.mark.promise("S2")
async def test_a_start_rule_refuses_whatever_comes_before_it(tmp_path: Path):
    lines = [call("note", "look", "send"), "done"]
    async with scene(tmp_path, lines, Rule("look", RuleKind.START)) as (home, model):
        assert (await home.agents.ask("aria", "go")).text == "done"
    assert RUN == ["look", "send"]
    assert results(model.requests[1]) == [
        (
            "Error: not run, by a rule for your tools: look has to be called before any other "
            "tool in this turn. Call look first."
        ),
        "look did",
        "send did",
    ]


@pytest.mark.promise("S2")
async def test_of_two_start_rules_one_starts_and_a_start_that_fails_is_one(tmp_path: Path):
    tools = [*TOOLS[1:], named("look", fails=True)]
    rules = [Rule("look", RuleKind.START), Rule("save", RuleKind.START)]
    lines = [call("look"), call("note"), "done"]
    async with scene(tmp_path, lines, *rules, tools=tools) as (home, _):
        assert (await home.agents.ask("aria", "go")).text == "done"
    assert RUN == ["look", "note"]


ONE_STEP: list[tuple[Rule, list[str], list[str], str]] = [
    (
        Rule("send", RuleKind.PRECEDING, ("look", "note")),
        ["look", "send", "note", "send"],
        ["look", "note", "send"],
        "send can be called only after note has succeeded. Call note first.",
    ),
    (
        Rule("send", RuleKind.RIGHT_AFTER, ("note",)),
        ["note", "look", "send", "note", "send"],
        ["note", "look", "note", "send"],
        "send can be called only right after note. Call note first.",
    ),
    (
        Rule("look", RuleKind.NEXT, ("note", "save")),
        ["look", "send", "save", "send"],
        ["look", "save", "send"],
        "right after look, only note or save can be called. Call note next.",
    ),
    (
        Rule("look", RuleKind.NOT_AFTER, ("send",)),
        ["look", "send", "look", "note"],
        ["look", "send", "note"],
        "look cannot be called after send in the same turn. Go on without look.",
    ),
    (
        Rule("send", RuleKind.EXCLUSIVE, ("save",)),
        ["send", "save", "send"],
        ["send", "send"],
        "send was used in this turn, which excludes save. Go on without save.",
    ),
    (
        Rule("*", RuleKind.MAX_CALLS, count=2),
        ["look", "look", "look", "note"],
        ["look", "look", "note"],
        "look can be called 2 times in a turn, and it was. Go on with what you have.",
    ),
]


@pytest.mark.promise("S2")
@pytest.mark.parametrize("together", [True, False], ids=["in one reply", "in many"])
@pytest.mark.parametrize(
    ("rule", "wanted", "run", "why"), ONE_STEP, ids=lambda one: getattr(one, "kind", None)
)
async def test_a_call_that_breaks_a_rule_is_refused_with_what_is_right(
    tmp_path: Path, rule: Rule, wanted: list[str], run: list[str], why: str, together: bool
):
    # Each with an argument of its own: the same call again is another matter.
    wanted_calls = [(name, f'{{"text": "{place}"}}') for place, name in enumerate(wanted)]
    lines = [calls(*wanted_calls)] if together else [calls(one) for one in wanted_calls]
    async with scene(tmp_path, [*lines, "done"], rule) as (home, model):
        assert (await home.agents.ask("aria", "go")).text == "done"
    assert run == RUN
    told = [one["content"] for one in heard(model.requests[-1]) if one["role"] == "tool"]
    assert [one for one in told if one.startswith("Error")] == [
        f"Error: not run, by a rule for your tools: {why}"
    ]


@pytest.mark.promise("S2")
async def test_a_tool_that_speaks_of_errors_has_succeeded(tmp_path: Path):
    """What a tool returns may come from anywhere, so it says nothing about the call's success."""
    tools = [*TOOLS[1:], named("look", says="Error: line 7 of the log. Outcome unknown: no.")]
    lines = [call("look"), call("note"), "done"]
    rule = Rule("note", RuleKind.PRECEDING, ("look",))
    async with scene(tmp_path, lines, rule, tools=tools) as (home, _):
        assert (await home.agents.ask("aria", "go")).text == "done"
    assert RUN == ["look", "note"]


@pytest.mark.promise("S2")
async def test_operations_that_are_not_open_are_neither_offered_nor_run(tmp_path: Path):
    lines = [call("drawer", arguments='{"operation":"burn"}'), "done"]
    rule = {"tool": "drawer", "kind": "operations", "operations": ["open", "close"]}
    async with scene(tmp_path, lines, rule) as (home, model):
        await home.agents.ask("aria", "go")
    assert RUN == []
    assert "the operations open, close, not the operation 'burn'" in results(model.requests[1])[0]
    offered = {
        one["function"]["name"]: one["function"]["parameters"]
        for one in orjson.loads(model.requests[0].tools or b"[]")
    }
    assert offered["drawer"]["properties"]["operation"] == {
        "type": "string",
        "enum": ["open", "close"],
    }


@pytest.mark.promise("S2")
@pytest.mark.parametrize("engine", ENGINES)
async def test_a_cooldown_holds_from_turn_to_turn_and_over_restarts(
    engine: str, tmp_path: Path, clock: ManualClock
):
    lines = [call("look"), "one", call("look"), "two", call("look"), "three"]
    rule = Rule("look", RuleKind.COOLDOWN, seconds=3_600)
    async with scene(tmp_path, lines, rule, engine=engine, clock=clock) as (home, model):
        await home.agents.ask("aria", "go")
        clock.forward(seconds=1_800)
        await home.agents.ask("aria", "go")
        assert "1 h have to pass between calls of look" in results(model.requests[3])[0]
        assert "again in 1800 s" in results(model.requests[3])[0]
        clock.forward(seconds=1_800)
        await home.agents.ask("aria", "go")
    assert RUN == ["look", "look"]
    if engine == "sqlite":
        clock.forward(seconds=60)
        again = [call("look"), "four"]
        async with scene(tmp_path, again, clock=clock) as (home, model):
            await home.agents.ask("aria", "go")
        assert "again in 3540 s" in results(model.requests[1])[0]
        assert RUN == ["look", "look"]


@pytest.mark.promise("S2", "H1")
async def test_consent_goes_by_the_same_approval_as_any_other_question(tmp_path: Path):
    lines = [call("drawer", arguments='{"operation":"burn","text":"letters"}'), "burnt", "denied"]
    rule = Rule("drawer", RuleKind.CONSENT, operations=("burn",))
    opening = call("drawer", arguments='{"operation":"open"}')
    async with scene(tmp_path, [opening, *lines[:2]], rule) as (home, _):
        outcome = await home.agents.ask("aria", "go")
        assert outcome.state is TurnState.PARKED
        assert RUN == ["drawer open"]
        (question,) = await home.approvals.list()
        receipt = await home.approvals.decide(question.id, approved=True)
        assert (await home.turns.wait(receipt)).text == "burnt"
    assert RUN == ["drawer open", "drawer burn"]


# -- before the end, and the end -----------------------------------------------------------------


@pytest.mark.promise("S2")
async def test_what_is_required_before_the_end_is_reminded_of_and_then_done(tmp_path: Path):
    lines = ["early", call("save"), "done"]
    async with scene(tmp_path, lines, Rule("save", RuleKind.BEFORE_EXIT)) as (home, model):
        assert (await home.agents.ask("aria", "go")).text == "done"
    assert RUN == ["save"]
    assert reminders(model.requests[1]) == [
        (
            "[asterism] The turn cannot end yet. save has to be called before the turn ends. (Call "
            "save before you answer.) Call it now, and give your answer after."
        )
    ]


@pytest.mark.promise("S2")
async def test_a_condition_is_met_by_a_call(tmp_path: Path):
    rule = Rule("save", RuleKind.BEFORE_EXIT, ("send",))
    lines = ["nothing to save", call("send"), "early", call("save"), "done"]
    async with scene(tmp_path, lines, rule) as (home, _):
        assert (await home.agents.ask("aria", "chat")).text == "nothing to save"
        assert (await home.agents.ask("aria", "go")).text == "done"
    assert RUN == ["send", "save"]


@pytest.mark.promise("S2")
async def test_what_has_to_follow_a_call_is_due_after_each(tmp_path: Path):
    rule = Rule("send", RuleKind.FOLLOWED_BY, ("note", "save"))
    lines = [call("note", "send"), "early", call("save"), "done"]
    async with scene(tmp_path, lines, rule) as (home, _):
        assert (await home.agents.ask("aria", "go")).text == "done"
    assert RUN == ["note", "send", "save"]


@pytest.mark.promise("S2")
async def test_an_agent_that_does_not_listen_has_the_tool_called_for_it(tmp_path: Path):
    lines = ["no", "no", "no", "done"]
    async with scene(tmp_path, lines, Rule("save", RuleKind.BEFORE_EXIT)) as (home, model):
        outcome = await home.agents.ask("aria", "go")
        assert (outcome.state, outcome.text) == (TurnState.DONE, "done")
        _, entries = await home.turns.get(outcome.turn_id)
    assert RUN == ["save"]
    assert [entry.key for entry in entries if entry.key not in ("in", "rules")] == [
        *("0/reply", "0/due", "1/reply", "1/due", "2/reply", "2/force", "2/due"),
        *("3/reply", "3/call/0", "4/reply"),
    ]
    assert "save is called for you now" in reminders(model.requests[3])[-1]
    assert results(model.requests[3]) == ["save did"]


@pytest.mark.promise("S2")
async def test_what_cannot_be_called_for_it_ends_the_turn_in_plain_words(tmp_path: Path):
    tools = [*TOOLS[:3], named("save", needs=True)]
    async with scene(
        tmp_path, ["no", "no", "no"], Rule("save", RuleKind.BEFORE_EXIT), tools=tools
    ) as (home, _):
        outcome = await home.agents.ask("aria", "go")
    assert outcome.state is TurnState.FAILED
    assert outcome.text.startswith("I had to stop: I did not call what a rule wants before the ")
    assert "Call save before you answer." in outcome.text


@pytest.mark.promise("S2")
async def test_a_tool_that_is_broken_does_not_keep_the_answer_back(tmp_path: Path):
    tools = [*TOOLS[:3], named("save", fails=True)]
    lines = ["no", "no", "no", "my answer"]
    async with scene(tmp_path, lines, Rule("save", RuleKind.BEFORE_EXIT), tools=tools) as (
        home,
        _,
    ):
        assert (await home.agents.ask("aria", "go")).text == "my answer"
        (notice,) = await home.notices.list()
    assert (notice.kind, RUN) == ("rule.unmet", ["save"])


@pytest.mark.promise("S2")
async def test_a_periodic_tool_is_due_when_its_time_has_come(tmp_path: Path, clock: ManualClock):
    rule = Rule("save", RuleKind.PERIODIC, seconds=86_400)
    lines = ["early", call("save"), "one", "two", "early", call("save"), "three"]
    async with scene(tmp_path, lines, rule, clock=clock) as (home, _):
        assert (await home.agents.ask("aria", "go")).text == "one"
        clock.forward(seconds=86_399)
        assert (await home.agents.ask("aria", "go")).text == "two"
        clock.forward(seconds=1)
        assert (await home.agents.ask("aria", "go")).text == "three"
    assert RUN == ["save", "save"]


@pytest.mark.promise("S2")
async def test_a_turn_ends_when_a_tool_of_exit_loop_has_succeeded(tmp_path: Path):
    rule = Rule("send", RuleKind.EXIT_LOOP)
    said = Reply(text="I sent it.", calls=call("send", "note").calls)
    async with scene(tmp_path, [said, call("send")], rule) as (home, model):
        outcome = await home.agents.ask("aria", "go")
        assert (outcome.state, outcome.text) == (TurnState.DONE, "I sent it.")
        assert await home.turns.outcome(outcome.turn_id) == outcome
        silent = await home.agents.ask("aria", "go")
        assert silent.text == "send did"
        assert await home.turns.outcome(silent.turn_id) == silent
    assert RUN == ["send", "send"]
    assert len(model.requests) == 2


@pytest.mark.promise("S2")
async def test_continue_loop_keeps_a_tool_from_ending_the_turn(tmp_path: Path):
    rules = [Rule("*", RuleKind.EXIT_LOOP), Rule("look", RuleKind.CONTINUE_LOOP)]
    lines = [call("look"), call("send")]
    async with scene(tmp_path, lines, *rules) as (home, _):
        assert (await home.agents.ask("aria", "go")).text == "send did"
    assert RUN == ["look", "send"]


# -- what the model reads ------------------------------------------------------------------------


@pytest.mark.promise("S2", "M12")
async def test_the_model_is_told_in_few_words_that_do_not_change(tmp_path: Path):
    rules = [
        Rule("look", RuleKind.START),
        Rule("send", RuleKind.PRECEDING, ("look", "note")),
        Rule("save", RuleKind.BEFORE_EXIT),
        Rule("look", RuleKind.MAX_CALLS, count=3),
        Rule("ring", RuleKind.CONSENT),
    ]
    async with scene(tmp_path, [call("look", "save"), "a", call("look", "save"), "b"], *rules) as (
        home,
        model,
    ):
        await home.agents.ask("aria", "go")
        await home.agents.ask("aria", "go")
        await home.rules.set("aria", [*reversed(rules)])
    first, *others = (heard(one)[0]["content"] for one in model.requests)
    assert all(one == first for one in others)
    section = first[first.index("Rules for your tools") :].partition("\n\n")[0]
    assert section == (
        "Rules for your tools, which are enforced:\n"
        "- Call look before any other tool.\n"
        "- Call look at most 3 times in a turn.\n"
        "- A person is asked before each call of ring.\n"
        "- Call save before you answer.\n"
        "- Call send only after look and note succeeded in the same turn."
    )
    assert len(section) / 4 < 75, "tokens, at four characters each"


@pytest.mark.promise("S2")
async def test_an_agent_without_rules_reads_nothing_of_them(tmp_path: Path):
    async with scene(tmp_path, ["done"]) as (home, model):
        await home.agents.ask("aria", "go")
    assert "rule" not in str(heard(model.requests[0])[0]["content"]).lower()


# -- the verbs -----------------------------------------------------------------------------------


@pytest.mark.promise("S2", "X3")
async def test_rules_that_cannot_be_are_refused_in_a_sentence(tmp_path: Path):
    async with scene(tmp_path, [], Rule("look", RuleKind.MAX_CALLS, count=3)) as (home, _):
        for given, error, said in (
            ({"tool": "lok", "kind": "start"}, NotFound, "named 'lok'. Did you mean 'look'?"),
            ({"tool": "look", "kind": "starts"}, InvalidInput, "Did you mean 'start'?"),
            (
                {"tool": "drawer", "kind": "operations", "operations": ["opn"]},
                InvalidInput,
                "has no operation 'opn'. Did you mean 'open'?",
            ),
            (
                {"tool": "look", "kind": "operations", "operations": ["open"]},
                InvalidInput,
                "The tool 'look' has no operations",
            ),
        ):
            with pytest.raises(error, match="Nothing was changed") as refused:
                await home.rules.add("aria", given)
            assert said in str(refused.value)
        with pytest.raises(InvalidInput, match="cannot be both first and after another tool"):
            await home.rules.add(
                "aria", Rule("send", RuleKind.START), Rule("send", RuleKind.PRECEDING, ("look",))
            )
        with pytest.raises(NotFound, match="has 1 rules, and none has the number 2"):
            await home.rules.remove("aria", 2)
        assert await home.rules.list("aria") == [Rule("look", RuleKind.MAX_CALLS, count=3)]
        assert await home.rules.remove("aria", 1) == Rule("look", RuleKind.MAX_CALLS, count=3)
        assert await home.rules.list("aria") == []


@pytest.mark.promise("S2")
async def test_a_rule_counts_from_the_next_turn_on_and_a_fork_has_it_too(tmp_path: Path):
    lines = [call("look"), "one", call("look", "look"), "two", call("look", "look"), "three"]
    async with scene(tmp_path, lines) as (home, _):
        outcome = await home.agents.ask("aria", "go")
        await home.rules.add("aria", {"tool": "look", "kind": "max_calls", "count": 1})
        await home.agents.ask("aria", "go")
        assert RUN == ["look", "look"]
        copy, _ = await home.turns.fork(outcome.turn_id, name="bria")
        assert RUN == ["look", "look", "look"]
        assert await home.rules.list(copy) == await home.rules.list("aria")


@pytest.mark.promise("S2")
async def test_calls_by_way_of_another_tool_count_as_what_they_mean(tmp_path: Path):
    model = ScriptedModel(
        [
            calls(("tools", '{"name": "calculator", "arguments": {"expression": "1+1"}}')),
            calls(("tools", '{"name": "calculator", "arguments": {"expression": "2+2"}}')),
            "done",
        ]
    )
    async with open_home(tmp_path, model) as home:
        await home.agents.create("aria")
        await home.rules.add("aria", {"tool": "calculator", "kind": "max_calls", "count": 1})
        await home.rules.add("aria", {"tool": "calculator", "kind": "before_exit"})
        assert (await home.agents.ask("aria", "go")).text == "done"
    told = [str(one["content"]) for one in heard(model.requests[-1]) if one["role"] == "tool"]
    assert told[0] == "2"
    assert told[1].startswith("Error: not run, by a rule")
    assert len(model.requests) == 3
