"""Grants: what means calls like one call, and what it covers."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.permissions import CallRequest
from asterism.permissions.decide import GrantSet
from asterism.types.permissions import (
    Effect,
    EffectKind,
    Grant,
    ToolEffect,
    amount_within,
    does_no_more,
    effects_of,
    exact_arguments,
    limits_of,
    read_effects,
    write_effects,
)

SEND = ToolEffect("send", recipients="to", content="text")
PAY = ToolEffect("pay", recipients="to.account", amount="euros", content="why")


@pytest.mark.parametrize(
    ("effects", "arguments", "told"),
    [
        (SEND, {"to": "bob", "text": "hello"}, ["send bob"]),
        (SEND, {"to": ["bob", "eve"], "text": "hello"}, ["send bob, eve"]),
        (PAY, {"to": {"account": "DE1"}, "euros": 5, "why": "x"}, ["pay DE1 (5)"]),
        (PAY, {"to": {"account": "DE1"}, "euros": "5 EUR", "why": "x"}, ["pay DE1 (5)"]),
        (PAY, {"to": {"account": "DE1"}, "euros": [5, 6], "why": "x"}, ["pay DE1 (11)"]),
        (PAY, {"to": {"account": "DE1"}, "euros": {"a": 5, "b": 6}}, ["pay DE1 (11)"]),
        (PAY, {"to": {"account": "DE1"}, "euros": "some", "why": "x"}, None),
        (None, {"a": 1, "b": {"c": "x"}, "d": ""}, None),
        (ToolEffect("run"), {"command": "ls"}, None),
        ((SEND, ToolEffect("run")), {"to": "bob", "text": "hello"}, None),
        ((), {}, None),
    ],
)  # fmt: skip
def test_calls_like_one_are_known_by_what_it_does_where_that_tells(
    effects: Any, arguments: dict[str, Any], told: list[str] | None
):
    limits = limits_of(effects_of(effects, arguments))
    assert (None if limits is None else [str(one) for one in limits]) == told
    assert all(one.content == () for one in limits or ())


def covers(made: dict[str, Any], declared: ToolEffect | None = None, **given_: Any) -> bool:
    wanted = CallRequest("aria", "act", made, effects_of(declared, made), definition="d1")
    grants = GrantSet([Grant("grant_1", "home", "act", **given_)])
    return grants.covering("agent_1", wanted, "turn_1", 0) is not None


@pytest.mark.promise("S5")
@pytest.mark.parametrize("pattern", ["re:(a|a)*b", "*a" * 30 + "*b"])
def test_a_pattern_that_would_take_for_ever_covers_nothing(pattern: str):
    assert not covers({"command": "a" * 60}, pattern={"command": pattern})
    assert not covers({"command": "x"}, pattern={"command": "re:("})
    assert covers({"command": "aab"}, pattern={"command": "re:(a|a)*b"})


_TEXTS = st.text(min_size=1, max_size=12)
_VALUES = st.recursive(
    st.one_of(_TEXTS, st.integers(-9, 9), st.booleans(), st.lists(_TEXTS, max_size=3)),
    lambda inner: st.dictionaries(st.sampled_from("xyz"), inner, max_size=2),
    max_leaves=4,
)
_ARGUMENTS = st.dictionaries(st.sampled_from("abcd"), _VALUES, max_size=3)


@pytest.mark.promise("H3")
@given(_ARGUMENTS, _ARGUMENTS)
def test_exact_arguments_cover_the_same_and_no_others(
    arguments: dict[str, Any], others: dict[str, Any]
):
    exact = exact_arguments(arguments)
    assert covers(dict(reversed(arguments.items())), arguments=exact)
    assert covers(others, arguments=exact) == (exact_arguments(others) == exact)


@pytest.mark.promise("H3")
@given(st.lists(_TEXTS, min_size=1, max_size=3), _TEXTS, _TEXTS)
def test_a_recipient_covers_no_other(to: list[str], other: str, text: str):
    limits = limits_of(effects_of(SEND, {"to": to, "text": text}))
    assert covers({"to": to, "text": text + "!"}, SEND, effects=limits)
    assert covers({"to": [*to, other], "text": text}, SEND, effects=limits) == (other in to)
    assert not covers({"to": to, "text": text}, ToolEffect("pay", recipients="to"), effects=limits)
    assert not covers({"to": [], "text": text}, SEND, effects=limits)


def test_a_grant_is_for_the_tool_that_it_was_given_for():
    assert covers({}, definition="d1")
    assert not covers({}, definition="d2")


@pytest.mark.promise("H3")
@pytest.mark.parametrize(
    ("amounts", "within"),
    [
        ([5.0], True),
        ([50.0], True),
        ([50.5], False),
        ([30.0, 21.0], False),
        ([-1.0], False),
        ([60.0, -20.0], False),
        ([float("nan")], False),
        ([float("inf")], False),
        ([5.0, None], False),
        ([None], False),
        ([], False),
    ],
)
def test_an_amount_that_cannot_be_read_is_within_no_limit(
    amounts: list[float | None], within: bool
):
    effects = [Effect(EffectKind.PAY, recipients=("bob",), amount=one) for one in amounts]
    assert amount_within(effects, 50.0) == within


@pytest.mark.promise("H3")
@pytest.mark.parametrize(
    ("euros", "same", "up_to_ten"),
    [
        (5, True, True),
        ("5 EUR", True, True),
        ([2, 3], True, True),
        ([5, -3], True, True),
        ({"a": 2, "b": 3}, True, True),
        ("6 EUR", False, True),
        ([5, 6], False, False),
        ({"a": 5, "b": 6}, False, False),
        (["5", "some"], False, False),
        ("some", False, False),
        (None, False, False),
    ],
)
def test_amounts_count_however_they_are_written(euros: Any, same: bool, up_to_ten: bool):
    limits = limits_of(effects_of(PAY, {"to": {"account": "DE1"}, "euros": 5.0}))
    assert limits is not None
    call = {"to": {"account": "DE1"}, "euros": euros, "why": "rent"}
    assert covers(call, PAY, effects=limits) == same
    assert covers(call, PAY, amount=10.0) == up_to_ten
    any_amount = tuple(replace(one, amount=None) for one in limits)
    assert covers(call, PAY, effects=any_amount, amount=10.0) == up_to_ten


def test_an_amount_that_cannot_be_read_is_the_same_as_no_other():
    unreadable = effects_of(PAY, {"to": {"account": "DE1"}, "euros": "some"})
    assert not does_no_more(unreadable, unreadable)
    assert not does_no_more(unreadable, [Effect(EffectKind.PAY, recipients=("DE1",))])
    sent = [Effect(EffectKind.SEND, recipients=("bob",), amount_unreadable=True)]
    assert not amount_within([*sent, Effect(EffectKind.PAY, recipients=("bob",), amount=1.0)], 50.0)


def test_leave_to_add_is_no_leave_to_change():
    adds, changes = (
        Effect(EffectKind.WRITE, things=("list",), amends=one) for one in (False, True)
    )
    assert does_no_more([adds], [adds])
    assert does_no_more([adds], [changes])
    assert not does_no_more([changes], [adds])
    assert read_effects(write_effects([adds, changes])) == (adds, changes)


def test_an_amount_of_nothing_is_kept_apart_from_none():
    effects = (Effect(EffectKind.PAY, recipients=("bob",), amount=0.0), Effect(EffectKind.PAY))
    assert read_effects(write_effects(effects)) == effects


def test_a_host_is_no_recipient_of_the_same_name():
    asked = [Effect(EffectKind.SEND, hosts=("bob",))]
    assert not does_no_more(asked, [Effect(EffectKind.SEND, recipients=("bob",))])
