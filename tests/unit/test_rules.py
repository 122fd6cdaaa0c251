"""Rules as people write them, the sentences they become, and sets that nobody could keep."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.app.rules import contradiction
from asterism.config.rules import read_rules, read_rules_file, rule_of
from asterism.errors import InvalidInput
from asterism.store.journal import Draft
from asterism.turns.rules import Attempt, RuleState, narrowed
from asterism.types.agents import Rule, RuleKind, rules_for_model, rules_text, stored_rules
from asterism.types.turns import (
    Call,
    EntryKind,
    Reply,
    ResultMeta,
    ResultState,
    message_wire,
    result_wire,
)

TOOLS = ["a", "b", "c", "web_get", "web_put"]
K = RuleKind


# -- forms ---------------------------------------------------------------------------------------


@pytest.mark.promise("S2")
@pytest.mark.parametrize(
    ("form", "rule"),
    [
        ({"type": "StartConstraint"}, Rule("a", K.START)),
        ("StartConstraint", Rule("a", K.START)),
        ({"type": "RequiresPrecedingTools"}, Rule("a", K.PRECEDING, ("b",))),
        ({"type": "RequiresFollowingTools"}, Rule("a", K.NOT_AFTER, ("b",))),
        ({"type": "ExclusiveGroups", "value": [["a", "c"]]}, Rule("a", K.EXCLUSIVE, ("c",))),
        ({"type": "RequiredBeforeExit"}, Rule("a", K.BEFORE_EXIT)),
        ({"type": "RequiredBeforeExitIf"}, Rule("a", K.BEFORE_EXIT, ("b",))),
        ({"type": "MaxCalls", "value": 3}, Rule("a", K.MAX_CALLS, count=3)),
        ({"max_calls": 3}, Rule("a", K.MAX_CALLS, count=3)),
        ({"type": "Cooldown", "value": 90}, Rule("a", K.COOLDOWN, seconds=90)),
        (
            {"type": "Periodic", "value": {"secs": 5, "nanos": 500_000_000}},
            Rule("a", K.PERIODIC, seconds=5.5),
        ),
        ({"type": "RequiresConsent", "value": {"scope": "x"}}, Rule("a", K.CONSENT)),
        ({"type": "AllowedOperations", "value": ["x"]}, Rule("a", K.OPERATIONS, operations=("x",))),
        ({"type": "ExitLoop"}, Rule("a", K.EXIT_LOOP)),
        ({"type": "ContinueLoop"}, Rule("a", K.CONTINUE_LOOP)),
    ],
)
def test_patterns_spellings_are_read(form: Any, rule: Rule):
    written: dict[str, Any] = {
        "tool_name": "a",
        "rule_type": form,
        "conditions": ["b"],
        "metadata": {},
    }
    assert read_rules([written]) == [rule]
    assert read_rules([{**written, "priority": 9}])[0].priority == 9


@pytest.mark.promise("S2")
@pytest.mark.parametrize(
    ("form", "rules"),
    [
        ({"type": "run_first"}, [Rule("a", K.START)]),
        ({"type": "TerminalToolRule"}, [Rule("a", K.EXIT_LOOP)]),
        ({"type": "continue_loop"}, [Rule("a", K.CONTINUE_LOOP)]),
        (
            {"type": "constrain_child_tools", "children": ["b", "c"]},
            [Rule("a", K.NEXT, ("b", "c"))],
        ),
        (
            {"type": "parent_last_tool", "children": ["b", "c"]},
            [Rule("b", K.RIGHT_AFTER, ("a",)), Rule("c", K.RIGHT_AFTER, ("a",))],
        ),
        ({"type": "required_before_exit", "prompt_template": "…"}, [Rule("a", K.BEFORE_EXIT)]),
        ({"type": "max_count_per_step", "max_count_limit": 2}, [Rule("a", K.MAX_CALLS, count=2)]),
        ({"type": "requires_approval"}, [Rule("a", K.CONSENT)]),
    ],
)
def test_lettas_spellings_are_read(form: dict[str, Any], rules: list[Rule]):
    assert read_rules([{"tool_name": "a", **form}]) == rules


@pytest.mark.promise("S2", "X3")
@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"tool": "a", "kind": "max_call", "count": 1}, "Did you mean 'max_calls'?"),
        ({"tool": "a", "kind": "max_calls"}, "needs how many calls (count), 1 or more."),
        ({"tool": "a", "kind": "max_calls", "count": -1}, "count is -1; a whole number"),
        ({"tool": "a", "kind": "cooldown", "seconds": "soon"}, "seconds is 'soon'; a time such as"),
        ({"tool": "a", "kind": "preceding"}, "needs names of other tools (tools)."),
        ({"tool": "a", "kind": "preceding", "tools": ["a"]}, "among the other tools of its own"),
        ({"tool": "a", "kind": "operations"}, "needs the operations that stay open"),
        (
            {"tool": "a", "kind": "start", "tols": ["b"]},
            "'tols' is not a field of a rule. Did you mean 'tools'?",
        ),
        ({"tool": "", "kind": "start"}, "tool is ''; the name of a tool is needed"),
        ({"tool": "a", "kind": "start", "priority": 300}, "a whole number from 0 to 255"),
        ({"tool_name": "a", "rule_type": "Sing"}, "'Sing' is not a rule_type of Pattern's."),
        ({"tool_name": "a", "type": "conditional"}, "chooses the next tool by what 'a' returned"),
        ({"tool_name": "a", "type": "run_first", "args": {"x": 1}}, "Leave out args."),
        ("a", "a table with a tool and a kind is needed, not 'a'."),
    ],
)
def test_a_form_that_cannot_be_read_is_refused_with_what_is_right(form: Any, said: str):
    with pytest.raises(InvalidInput) as refused:
        read_rules([{"tool": "a", "kind": "start"}, form])
    assert said in refused.value.message
    assert refused.value.message.startswith("Rule 2: ")
    assert refused.value.message.endswith("Nothing was changed.")


@pytest.mark.promise("S2")
def test_what_only_marks_a_tool_is_no_rule():
    assert read_rules([{"tool_name": "a", "rule_type": {"type": "Needed"}}]) == []


@pytest.mark.promise("S2")
@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("web_*", "max_calls", "3"), Rule("web_*", K.MAX_CALLS, count=3)),
        (("a", "cooldown", "10m"), Rule("a", K.COOLDOWN, seconds=600)),
        (("a", "periodic", "1d"), Rule("a", K.PERIODIC, seconds=86_400)),
        (("a", "followed_by", "b", "c"), Rule("a", K.FOLLOWED_BY, ("b", "c"))),
        (("a", "before_exit"), Rule("a", K.BEFORE_EXIT)),
        (("a", "consent", "x"), Rule("a", K.CONSENT, operations=("x",))),
    ],
)
def test_words_of_a_command_line_are_read(words: tuple[str, ...], rule: Rule):
    assert rule_of(words[0], words[1], words[2:]) == [rule]


@pytest.mark.promise("S2", "X3")
def test_words_that_a_kind_does_not_take_are_refused():
    with pytest.raises(InvalidInput, match="takes no values, but there is 'b'"):
        rule_of("a", "start", ["b"])
    with pytest.raises(InvalidInput, match="a number of calls such as 3 is needed"):
        rule_of("a", "max_calls", [])


@pytest.mark.promise("S2")
@pytest.mark.parametrize(
    "text",
    [
        '[[rules]]\ntool = "a"\nkind = "start"\n',
        '# mine\n[[tool_rules]]\ntool_name = "a"\ntype = "run_first"\n',
        '{"tool_rules": [{"tool_name": "a", "type": "run_first"}]}',
        '[{"tool": "a", "kind": "start"}]',
        'rules = [{tool = "a", kind = "start"}]',
    ],
)
def test_files_are_toml_or_json(text: str, tmp_path: Path):
    (tmp_path / "rules").write_text(text)
    assert read_rules_file(tmp_path / "rules") == [Rule("a", K.START)]


@pytest.mark.promise("S2", "X3")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[[rules", "is neither TOML nor JSON"),
        (b"a = 1", "has no rules"),
        (b"\xff", "cannot be read"),
        (b"{", "is neither TOML nor JSON"),
    ],
)
def test_a_file_without_rules_is_refused(text: bytes, said: str, tmp_path: Path):
    (tmp_path / "rules").write_bytes(text)
    with pytest.raises(InvalidInput, match=said):
        read_rules_file(tmp_path / "rules")


_RULES = st.builds(
    Rule,
    st.sampled_from(TOOLS),
    st.sampled_from(RuleKind),
    st.lists(st.sampled_from(TOOLS), max_size=2).map(tuple),
    st.lists(st.sampled_from(["x", "y"]), max_size=2).map(tuple),
    st.integers(0, 9),
    st.sampled_from([0.0, 1.5, 3_600.0]),
    st.integers(0, 9),
)


@pytest.mark.promise("S2")
@given(st.lists(_RULES, max_size=6))
def test_rules_come_back_from_rest_and_are_told_alike_in_any_order(rules: list[Rule]):
    assert stored_rules(rules_text(rules)) == tuple(rules)
    assert rules_for_model(rules[::-1]) == rules_for_model(rules)


# -- contradictions ------------------------------------------------------------------------------


@pytest.mark.promise("S2")
@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ([Rule("a", K.START), Rule("a", K.PRECEDING, ("b",))], "both first and after another"),
        ([Rule("a", K.START), Rule("*", K.RIGHT_AFTER, ("b",))], "both first and after another"),
        ([Rule("a", K.PRECEDING, ("b",)), Rule("b", K.PRECEDING, ("a",))], "a could never"),
        ([Rule("a", K.PRECEDING, ("b",)), Rule("a", K.NOT_AFTER, ("b",))], "a could never"),
        ([Rule("a", K.PRECEDING, ("b",)), Rule("b", K.EXCLUSIVE, ("a",))], "a could never"),
        ([Rule("a", K.RIGHT_AFTER, ("b",)), Rule("b", K.NEXT, ("c",))], "a could never"),
        ([Rule("a", K.FOLLOWED_BY, ("b",)), Rule("b", K.NOT_AFTER, ("a",))], "follow a"),
        (
            [Rule("a", K.BEFORE_EXIT), Rule("b", K.BEFORE_EXIT), Rule("a", K.EXCLUSIVE, ("b",))],
            "a and b are both needed",
        ),
        ([Rule("a", K.EXIT_LOOP), Rule("a", K.CONTINUE_LOOP)], "both end and go on after a"),
        (
            [Rule("a", K.PERIODIC, seconds=60), Rule("a", K.COOLDOWN, seconds=90)],
            "due before it can be called again",
        ),
        (
            [Rule("web_*", K.OPERATIONS, operations=("x",)), Rule("web_get", K.OPERATIONS,
             operations=("y",))],
            "no operation of web_get would be open",
        ),
        (
            [Rule("a", K.NEXT, ("b",)), Rule("b", K.NEXT, ("a",)), Rule("c", K.BEFORE_EXIT)],
            "no way from a to c",
        ),
    ],
)  # fmt: skip
def test_rules_that_nobody_could_keep_are_told_apart(rules: list[Rule], why: str):
    assert why in (contradiction(rules, TOOLS) or "")
    assert contradiction(rules[:1], TOOLS) is None


@pytest.mark.promise("S2")
def test_two_starts_and_other_sound_sets_are_no_contradiction():
    sound = [
        *(Rule("a", K.START), Rule("b", K.START), Rule("c", K.PRECEDING, ("a", "b"))),
        *(Rule("*", K.EXIT_LOOP), Rule("a", K.CONTINUE_LOOP), Rule("a", K.NEXT, ("b", "c"))),
        *(Rule("b", K.FOLLOWED_BY, ("c",)), Rule("web_get", K.EXCLUSIVE, ("web_put",))),
    ]
    assert contradiction(sound, TOOLS) is None


# -- what is offered -----------------------------------------------------------------------------


@pytest.mark.promise("S2", "M12")
@pytest.mark.parametrize(
    ("operation", "definitions"),
    [
        ({"enum": ["x", "y", "z"], "type": "string", "description": "What."}, {}),
        ({"$ref": "#/$defs/Op", "description": "What."}, {"Op": {"enum": ["x", "y", "z"]}}),
        ({"type": "string", "description": "What.", "default": "z"}, {}),
    ],
)
def test_schemas_have_only_the_operations_that_are_open(
    operation: dict[str, Any], definitions: dict[str, Any]
):
    schema = {"type": "object", "properties": {"operation": operation}, "$defs": definitions}
    wire = orjson.dumps([{"type": "function", "function": {"name": "a", "parameters": schema}}])
    rules = (Rule("a", K.OPERATIONS, operations=("x", "y")), Rule("*", K.OPERATIONS,
             operations=("y", "x", "w")))  # fmt: skip
    (found,) = orjson.loads(narrowed(wire, rules) or b"")
    assert found["function"]["parameters"]["properties"]["operation"] == {
        "description": "What.",
        "type": "string",
        "enum": ["x", "y"],
    }
    assert narrowed(wire, ()) is wire
    assert narrowed(None, rules) is None


# -- what was decided ----------------------------------------------------------------------------


def _journal(*parts: tuple[EntryKind, str, bytes, str | None]) -> dict[str, Draft]:
    return {key: Draft(kind, key, body, 1_000, meta) for kind, key, body, meta in parts}


@pytest.mark.promise("S2", "H1")
@pytest.mark.parametrize("approved", [True, False])
def test_a_call_that_waited_counts_when_it_was_decided(approved: bool):
    reply = Reply(calls=(Call("c1", "a", "{}"),))
    rules = [Rule("b", K.PRECEDING, ("a",)), Rule("a", K.MAX_CALLS, count=1)]
    asked = ResultMeta(ResultState.WAITING, approval="ap_1").to_json()
    waiting = _journal(
        (EntryKind.REPLY, "0/reply", reply.wire(), reply.meta()),
        (EntryKind.RESULT, "0/call/0", result_wire("c1", "Waiting."), asked),
    )
    course = RuleState(rules, ["a", "b"])
    course.read(waiting)
    assert course.refusal(Attempt("a"), 1_000) is not None
    assert course.refusal(Attempt("b"), 1_000) is not None
    said = "Your call a({}) was approved by ada. Result: done" if approved else "… denied by ada."
    state = ResultState.OK if approved else ResultState.DENIED
    outcome = ResultMeta(state).to_json()
    decided = waiting | _journal(
        (EntryKind.ONCE, "0/call/0/decision", orjson.dumps({"approved": approved}), None),
        (EntryKind.MESSAGE, "0/call/0/outcome", message_wire("user", said), outcome),
    )
    course.read(decided)
    assert (course.refusal(Attempt("b"), 1_000) is None) == approved
    assert (course.refusal(Attempt("a"), 1_000) is None) == (not approved)
