"""Grants: the pattern that means calls like one call, and what it covers."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from asterism.permissions.grants import Grants
from asterism.types.deeds import Deed, DeedKind, Does, deeds_of
from asterism.types.grants import Grant, literal, scope_of

SEND = Does("send", recipients="to", content="text")
PAY = Does("pay", recipients="to.account", amount="euros", content="why")


@pytest.mark.parametrize(
    ("does", "arguments", "pattern"),
    [
        (SEND, {"to": "bob", "text": "hello"}, {"to": "bob"}),
        (SEND, {"to": ["bob", "eve"], "text": "hello"}, {"to": "re:bob|eve"}),
        (SEND, {"to": "b*b", "text": "?"}, {"to": "re:b\\*b"}),
        (PAY, {"to": {"account": "DE1"}, "euros": 5, "why": "x"},
         {"to.account": "DE1", "euros": "5"}),
        (None, {"a": 1, "b": {"c": "x"}, "d": ""}, {"a": "1", "b.c": "x"}),
        (Does("run"), {"command": "ls"}, {"command": "ls"}),
        (Does("remember"), {}, {}),
    ],
)  # fmt: skip
def test_what_it_is_done_to_must_be_the_same_and_texts_may_differ(
    does: Does | None, arguments: dict[str, Any], pattern: dict[str, str]
):
    assert scope_of(arguments, deeds_of(does, arguments)) == pattern


def test_targets_that_no_argument_names_make_all_arguments_count():
    made_up = [Deed(DeedKind.FETCH, hosts=("example.org",))]
    arguments = {"url": "https://example.org/a", "n": 2}
    assert scope_of(arguments, made_up) == {"url": "https://example.org/a", "n": "2"}


def covers(pattern: dict[str, str], arguments: dict[str, Any]) -> bool:
    grants = Grants([Grant("grant_1", "home", "act", pattern=pattern)])
    return grants.covering("agent_1", "act", arguments, "turn_1", 0) is not None


_TEXTS = st.text(min_size=1, max_size=12)
_VALUES = st.recursive(
    st.one_of(_TEXTS, st.integers(-9, 9), st.booleans(), st.lists(_TEXTS, max_size=3)),
    lambda inner: st.dictionaries(st.sampled_from("xyz"), inner, max_size=2),
    max_leaves=4,
)
_ARGUMENTS = st.dictionaries(st.sampled_from("abcd"), _VALUES, max_size=3)


@pytest.mark.promise("H3")
@given(_ARGUMENTS)
def test_a_scope_covers_the_call_that_it_was_made_of(arguments: dict[str, Any]):
    assert covers(scope_of(arguments), arguments)


@pytest.mark.promise("H3")
@given(st.lists(_TEXTS, min_size=1, max_size=3), _TEXTS, _TEXTS)
def test_a_scope_covers_no_other_recipient(to: list[str], other: str, text: str):
    assume(text not in to)
    arguments = {"to": to, "text": text}
    pattern = scope_of(arguments, deeds_of(SEND, arguments))
    assert covers(pattern, {"to": to, "text": text + "!"})
    assert covers(pattern, {"to": [*to, other], "text": text}) == (other in to)


@given(_TEXTS, _TEXTS)
def test_a_literal_means_one_text(text: str, other: str):
    assert covers({"a": literal(text)}, {"a": other}) == (text == other)
