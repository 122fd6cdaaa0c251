"""The one decision: policies, grants, quotas, trust and roles (promises M2, M10, H3, X1)."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism.permissions import (
    Act,
    Actor,
    Allow,
    Ask,
    Authority,
    Deny,
    Grants,
    Policies,
    Policy,
    Quota,
    Resource,
    Ruling,
    Situation,
    Verdict,
    Wanted,
    decide,
)
from asterism.permissions.patterns import Patterns, Reading, glob, path_glob
from asterism.types.deeds import Deed, DeedKind, Does, Doubt, deeds_of
from asterism.types.grants import Grant
from asterism.types.people import OWNER, Tier

AGENT = Actor("agent", "agent_1", "aria")
PAY = Does("pay", recipients="to", amount="amount", content="subject")
SEND = Does("send", recipients="to", content="text")


def call(
    tool: str = "pay",
    arguments: dict[str, Any] | None = None,
    does: Does | None = PAY,
    **given_: Any,
) -> Wanted:
    arguments = arguments if arguments is not None else {"to": "GB29", "amount": 10.0}
    return Wanted("aria", tool, arguments, deeds_of(does, arguments), **given_)


def judged(wanted: Wanted, *policies: Policy, **situation: Any) -> Verdict:
    now = Situation(Authority(policies=Policies(policies)), **situation)
    return decide(AGENT, Act.CALL, Resource("tool", wanted.tool, wanted=wanted), now)


@pytest.mark.promise("H3")
def test_the_first_policy_that_fits_counts():
    small = Policy("small", Ruling.ALLOW, deeds=("pay",), amount_up_to=50.0)
    rest = Policy("rest", Ruling.ASK, deeds=("pay",), reviewers=("role:treasurer",))
    assert judged(call(), small, rest) == Allow("policy 'small'", policy="small")
    verdict = judged(call(arguments={"to": "GB29", "amount": 51}), small, rest)
    assert isinstance(verdict, Ask)
    assert verdict.reviewers == ("role:treasurer",)
    never = Policy("never", Ruling.DENY, tools=("pay",), reason="no money leaves")
    denied = judged(call(), never, small)
    assert isinstance(denied, Deny)
    assert "no money leaves" in denied.reason


def test_an_allowance_must_cover_everything_and_a_ban_only_a_part():
    both = call("mail", {"to": ["anna@home.org", "eve@evil.example"], "text": "x"}, SEND)
    home: dict[str, Any] = {"deeds": ("send",), "recipients": ("*@home.org",)}
    stranger = call("mail", {"to": "anna@home.org", "text": "x"}, SEND, tier=Tier.WEB)
    assert isinstance(judged(stranger, Policy("home", Ruling.ALLOW, **home)), Allow)
    tainted = Wanted(both.agent, both.tool, both.arguments, both.deeds, tier=Tier.WEB)
    assert isinstance(judged(tainted, Policy("home", Ruling.ALLOW, **home)), Ask)
    assert isinstance(judged(both, Policy("home", Ruling.DENY, **home)), Deny)


def test_an_unknown_amount_is_below_no_bound():
    bound = Policy("small", Ruling.ALLOW, deeds=("pay",), amount_up_to=50.0)
    wanted = call(arguments={"to": "GB29", "amount": "a lot"}, tier=Tier.WEB)
    assert isinstance(judged(wanted, bound), Ask)


def test_what_a_policy_allows_covers_no_other_deed_of_the_same_call():
    deeds = (Deed(DeedKind.SEND, recipients=("anna",)), Deed(DeedKind.DELETE, things=("mail 7",)))
    wanted = Wanted("aria", "mail", {}, deeds, tier=Tier.WEB)
    assert isinstance(judged(wanted, Policy("send", Ruling.ALLOW, deeds=("send",))), Ask)
    both = Policy("both", Ruling.ALLOW, deeds=("send", "delete"))
    assert isinstance(judged(wanted, both), Allow)


@pytest.mark.promise("H3")
def test_a_grant_covers_what_a_policy_asks_for_and_never_what_it_denies():
    asks = Policy("ask", Ruling.ASK, tools=("pay",))
    grant = Grant("grant_1", "home", "pay", "agent_1", {"to": "GB*"}, until=100, given_by="owner")
    verdict = judged(call(), asks, grants=Grants([grant]), now=99)
    assert verdict == Allow("grant grant_1 of owner", grant="grant_1")
    assert isinstance(judged(call(), asks, grants=Grants([grant]), now=100), Ask)
    other = call(arguments={"to": "US13", "amount": 10.0})
    assert isinstance(judged(other, asks, grants=Grants([grant]), now=1), Ask)
    denies = Policy("no", Ruling.DENY, tools=("pay",))
    assert isinstance(judged(call(), denies, grants=Grants([grant]), now=1), Deny)


@pytest.mark.parametrize(
    "unfit",
    [
        {"agent_id": "agent_2"},
        {"turn_id": "turn_2"},
        {"until": 5},
        {"uses": 0},
        {"revoked_at": 3},
        {"tool": "pay_all"},
        {"pattern": {"from": "*"}},
        {"pattern": {"to": "GB2"}},
    ],
)
def test_a_grant_covers_nothing_else(unfit: dict[str, Any]):
    asks = Policy("ask", Ruling.ASK)
    fit = Grant("grant_1", "home", "pay")
    now: dict[str, Any] = {"now": 5, "turn_id": "turn_1"}
    assert isinstance(judged(call(), asks, grants=Grants([fit]), **now), Allow)
    grant = replace(fit, **unfit)
    assert isinstance(judged(call(), asks, grants=Grants([grant]), **now), Ask)


def test_a_quota_asks_when_it_is_used_up():
    ten = Quota(10, 86_400_000, words="10 per day")
    policy = Policy("some", Ruling.ALLOW, tools=("pay",), quota=ten)
    assert isinstance(judged(call(), policy, used={"some": 9.0}), Allow)
    verdict = judged(call(), policy, used={"some": 10.0})
    assert isinstance(verdict, Ask)
    assert "10 per day" in verdict.reason
    sums = Policy("sum", Ruling.ALLOW, tools=("pay",), quota=Quota(25, 1, "amount"))
    assert isinstance(judged(call(), sums, used={"sum": 15.0}), Allow)
    assert isinstance(judged(call(), sums, used={"sum": 15.5}), Ask)


@pytest.mark.promise("M10")
def test_after_untrusted_text_what_goes_outside_is_asked_unless_it_is_vouched_for():
    doubted: list[tuple[Deed, ...]] = []

    def doubt(deeds: tuple[Deed, ...]) -> Doubt | None:
        doubted.append(deeds)
        return Doubt("nobody named it") if deeds[0].recipients == ("US13",) else None

    trusted = call(arguments={"to": "US13", "amount": 1.0})
    assert isinstance(judged(trusted, doubt=doubt), Allow)
    assert not doubted
    tainted = call(arguments={"to": "US13", "amount": 1.0}, tier=Tier.WEB)
    verdict = judged(tainted, doubt=doubt)
    assert verdict == Ask("nobody named it")
    assert isinstance(judged(call(tier=Tier.WEB), doubt=doubt), Allow)
    reading = call("look", {"where": "x"}, Does("read", things="where"), tier=Tier.WEB)
    assert isinstance(judged(reading), Allow)


def test_who_is_not_the_owner_has_no_money_moved_on_their_word():
    known = call(tier=Tier.KNOWN, people=frozenset({"known", "person:anna"}))
    assert isinstance(judged(known), Ask)
    told = call("mail", {"to": "bob", "text": "hi"}, SEND, tier=Tier.KNOWN, people=known.people)
    assert isinstance(judged(told), Allow)
    policy = Policy("anna pays", Ruling.ALLOW, deeds=("pay",), people=("person:anna",))
    assert isinstance(judged(known, policy), Allow)


def test_a_tool_that_declares_nothing_might_do_anything():
    wanted = call("act", {"word": "x"}, None, tier=Tier.TOOL)
    assert wanted.deeds[0].kind is DeedKind.UNDECLARED
    assert isinstance(judged(wanted), Ask)
    assert isinstance(judged(call("act", {"word": "x"}, None)), Allow)


@pytest.mark.promise("X1")
@pytest.mark.parametrize(
    ("roles", "act", "may"),
    [
        ((), Act.READ, False),
        (("viewer",), Act.READ, True),
        (("viewer",), Act.OVERWRITE, False),
        (("operator",), Act.APPEND, True),
        (("editor",), Act.OVERWRITE, True),
        (("editor",), Act.GOVERN, False),
        (("admin",), Act.GOVERN, True),
        (("gardener",), Act.DELETE, True),
    ],
)
def test_a_role_says_what_verbs_somebody_may_use(roles: tuple[str, ...], act: Act, may: bool):
    anna = Actor("person", "person_1", "anna", Tier.KNOWN, frozenset(roles))
    authority = Authority(roles={"gardener": frozenset({Act.DELETE})})
    verdict = decide(anna, act, Resource("agent", "aria", verb="agent.x"), Situation(authority))
    assert isinstance(verdict, Allow) is may
    assert isinstance(verdict, Deny) is not may


def test_the_owner_may_do_everything_and_a_policy_may_bar_a_verb():
    owner = Actor(OWNER, OWNER, OWNER)
    resource = Resource("agent", "aria", verb="agent.delete")
    assert isinstance(decide(owner, Act.GOVERN, resource), Allow)
    anna = Actor("person", "person_1", "anna", Tier.KNOWN, frozenset({"admin"}))
    barred = Policy("keep agents", Ruling.DENY, verbs=("agent.delete",), reason="agents stay")
    verdict = decide(anna, Act.DELETE, resource, Situation(Authority(policies=Policies([barred]))))
    assert isinstance(verdict, Deny)
    assert "agents stay" in verdict.reason


# -- patterns --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("*@home.org", "anna@home.org", True),
        ("*@home.org", "anna@home.org.evil.example", False),
        ("GB29*", "GB29NWBK", True),
        ("/srv/**", "/srv/../etc/shadow", False),
        ("https://home.org/*", "https://home.org/a/../../b", False),
        ("https://home.org/*", "https://home.org/%2e%2e/b", False),
        ("re:[a-c]+", "abc", True),
        ("re:[a-c]+", "abcd", False),
        ("a.c", "abc", False),
    ],
)
def test_a_glob_means_what_it_says(pattern: str, text: str, fits: bool):
    assert bool(glob(pattern)(text)) is fits


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("/srv/notes/**", "/srv/notes", True),
        ("/srv/notes/**", "/srv/notes/a/b.md", True),
        ("/srv/notes/**", "/srv/notes/../secret", False),
        ("/srv/notes/**", "/srv/notesecret", False),
        ("/srv/*.md", "/srv/a.md", True),
        ("/srv/*.md", "/srv/a/b.md", False),
        ("/srv/**/b.md", "/srv/a/c/b.md", True),
        ("/srv/**/b.md", "/srv/b.md", True),
    ],
)
def test_a_path_pattern_stays_within_its_folder(pattern: str, path: str, fits: bool):
    assert bool(path_glob(pattern)(path)) is fits
    asked = Patterns([(0, (pattern,))], Reading.PATH)
    assert bool(asked.of(path)) is fits


_WORDS = st.text("ab*?./@", min_size=1, max_size=8)


@given(st.lists(st.lists(_WORDS, max_size=3), max_size=8), st.lists(_WORDS, max_size=3))
@settings(max_examples=300)
def test_many_patterns_at_once_say_what_each_says_alone(named: list[list[str]], values: list[str]):
    asked = Patterns(list(enumerate(named)))
    allows = 0b10101010
    for bit, patterns in enumerate(named):
        covers = all if allows >> bit & 1 else any
        tests = [glob(one) for one in patterns]
        alone = not patterns or (
            bool(values) and covers(any(test(one) for test in tests) for one in values)
        )
        together = bool(asked.fitting(values, allows) >> bit & 1)
        assert together is alone, (patterns, values)


# -- properties ------------------------------------------------------------------------------------

_TOOLS = ("pay", "mail", "look")
_KINDS = ("pay", "send", "read", "delete")
_policies = st.builds(
    Policy,
    name=st.uuids().map(str),
    ruling=st.sampled_from(Ruling),
    tools=st.lists(st.sampled_from(("pay", "m*", "look")), max_size=2).map(tuple),
    deeds=st.lists(st.sampled_from(_KINDS), max_size=2).map(tuple),
    recipients=st.lists(st.sampled_from(("anna", "b*", "*")), max_size=2).map(tuple),
    arguments=st.dictionaries(st.just("to"), st.sampled_from(("anna", "re:b.*")), max_size=1),
    amount_up_to=st.none() | st.floats(0, 100),
    amount_above=st.none() | st.floats(0, 100),
    tiers=st.lists(st.sampled_from(Tier), max_size=2).map(tuple),
    people=st.lists(st.sampled_from((OWNER, "known")), max_size=1).map(tuple),
)
_deeds = st.builds(
    Deed,
    kind=st.sampled_from(_KINDS).map(DeedKind),
    recipients=st.lists(st.sampled_from(("anna", "bob", "eve")), max_size=2).map(tuple),
    amount=st.none() | st.floats(0, 100),
)
_wanted = st.builds(
    Wanted,
    agent=st.just("aria"),
    tool=st.sampled_from(_TOOLS),
    arguments=st.dictionaries(st.just("to"), st.sampled_from(("anna", "bob")), max_size=1),
    deeds=st.lists(_deeds, min_size=1, max_size=3).map(tuple),
    tier=st.sampled_from(Tier),
    people=st.sampled_from((frozenset({OWNER}), frozenset({"known"}))),
)


def matches(pattern: str, text: str) -> bool:
    if pattern.startswith("re:"):
        return re.fullmatch(pattern[3:], text) is not None
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text) is not None


def _fits_alone(policy: Policy, wanted: Wanted) -> bool:
    """Tell whether a policy fits, in other words than the product's."""
    named = not policy.tools or any(matches(one, wanted.tool) for one in policy.tools)
    said = not policy.people or bool(set(policy.people) & wanted.people)
    read = not policy.tiers or wanted.tier in policy.tiers
    return named and said and read and _deeds_fit(policy, wanted)


def _deeds_fit(policy: Policy, wanted: Wanted) -> bool:
    covers = all if policy.ruling is Ruling.ALLOW else any
    kinds = [one.kind.value for one in wanted.deeds]
    if policy.deeds:
        outside = [one.kind.value for one in wanted.deeds if one.kind.outside]
        if not set(kinds) & set(policy.deeds):
            return False
        if policy.ruling is Ruling.ALLOW and not set(outside) <= set(policy.deeds):
            return False
    recipients = [one for deed in wanted.deeds for one in deed.recipients]
    if policy.recipients and not (
        recipients and covers(any(matches(p, one) for p in policy.recipients) for one in recipients)
    ):
        return False
    for name, pattern in policy.arguments.items():
        if name not in wanted.arguments or not matches(pattern, wanted.arguments[name]):
            return False
    if policy.amount_up_to is not None or policy.amount_above is not None:
        amounts = [one.amount for one in wanted.deeds if one.amount is not None]
        low = policy.amount_above if policy.amount_above is not None else float("-inf")
        high = policy.amount_up_to if policy.amount_up_to is not None else float("inf")
        return bool(amounts) and covers(low < one <= high for one in amounts)
    return True


@pytest.mark.promise("M10")
@given(st.lists(_policies, max_size=6), _wanted)
@settings(max_examples=500)
def test_whatever_the_policies_the_first_that_fits_decides(policies: list[Policy], wanted: Wanted):
    first = next((one for one in policies if _fits_alone(one, wanted)), None)
    assert Policies(policies).first(wanted) == first
    verdict = judged(wanted, *policies)
    if first is not None:
        kind = {Ruling.ALLOW: Allow, Ruling.ASK: Ask, Ruling.DENY: Deny}[first.ruling]
        assert isinstance(verdict, kind)
        assert verdict.policy == first.name
        return
    outside = any(one.kind.outside for one in wanted.deeds)
    if not outside:
        assert isinstance(verdict, Allow)
    elif not wanted.tier.trusted:
        assert isinstance(verdict, Ask)


@given(st.lists(_policies, max_size=6), _wanted)
@settings(max_examples=200)
def test_a_decision_is_the_same_each_time_and_more_denials_never_allow_more(
    policies: list[Policy], wanted: Wanted
):
    verdict = judged(wanted, *policies)
    assert judged(wanted, *policies) == verdict
    banned = Policy("all", Ruling.DENY)
    assert isinstance(judged(wanted, banned, *policies), Deny)
