"""Patterns as pure decisions: each rule against a plain reference, without a model."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism import plugins
from asterism.errors import InvalidInput
from asterism.groups.patterns.dynamic import DynamicPattern
from asterism.groups.patterns.pipeline import PipelinePattern
from asterism.groups.patterns.round_robin import RoundRobinPattern
from asterism.groups.patterns.sleeptime import SleeptimePattern
from asterism.groups.patterns.supervisor import SupervisorPattern
from asterism.groups.patterns.voting import ABSTAIN, Ballot, VotingPattern, count_votes
from asterism.ports import Pattern
from asterism.types.groups import (
    AskedQuestion,
    Delegation,
    GroupActivity,
    GroupDecision,
    GroupMember,
    GroupRecord,
    GroupState,
    QuestionState,
    Role,
)

NOW = 1_800_000_000_000


def member(number: int, **fields: Any) -> GroupMember:
    name = fields.pop("name", f"m{number}")
    return GroupMember(f"agent_{number}", name, position=number, **fields)


def state_of(pattern: Pattern, members: Sequence[GroupMember], **options: Any) -> GroupState:
    """The state of a group's turn in which nothing has happened yet."""
    group = GroupRecord("group_1", "team", "x", pattern.check(options), members=tuple(members))
    return GroupState(group, "turn_1", "Do it.", "your owner", NOW)


def after(state: GroupState, decision: GroupDecision) -> GroupState:
    """The state once a decision was carried out, with nothing answered yet."""
    names = {each.agent_id: each.name for each in state.group.members}
    asked = tuple(
        AskedQuestion(ask, names[ask.agent_id], turn_id=f"turn_{ask.key}", asked_at_ms=NOW)
        for ask in decision.asks
    )
    memory = state.group.memory if decision.memory is None else decision.memory
    return replace(
        state,
        group=replace(state.group, memory=memory),
        asked=(*state.asked, *asked),
        notes={**state.notes, **(decision.notes or {})},
    )


def answer(state: GroupState, key: str, outcome: QuestionState, text: str) -> GroupState:
    """The state once a question has its outcome."""
    assert state.find(key) is not None
    return replace(
        state,
        asked=tuple(
            replace(asked, state=outcome, answer=text, ended_at_ms=NOW + place)
            if asked.key == key
            else asked
            for place, asked in enumerate(state.asked)
        ),
    )


# -- round robin ---------------------------------------------------------------------------------


@pytest.mark.promise("G1")
def test_round_robin_is_fair_over_10_000_messages_with_members_joining_and_leaving():
    pattern, rng = RoundRobinPattern(), random.Random(7)
    members = [member(number) for number in range(1, 6)]
    group = GroupRecord("group_1", "team", "round_robin", {}, members=tuple(members))
    next_number, chosen = 6, list[str]()
    stays: list[list[GroupMember]] = []
    for _ in range(10_000):
        if rng.random() < 0.01:
            members.append(member(next_number))
            next_number += 1
        if rng.random() < 0.01 and len(members) > 2:
            members.pop(rng.randrange(len(members)))
        group = replace(group, members=tuple(members))
        decision = pattern.decide(GroupState(group, "turn_1", "x", "you", NOW))
        (ask,) = decision.asks
        assert decision.memory is not None
        group = replace(group, memory=decision.memory)
        chosen.append(ask.agent_id)
        stays.append(list(members))
    # Between two turns of the same member, everybody who was there all the time had one.
    places: dict[str, list[int]] = {}
    for place, agent_id in enumerate(chosen):
        places.setdefault(agent_id, []).append(place)
    for agent_id, turns in places.items():
        for first, second in pairwise(turns):
            there = {each.agent_id for each in stays[first]}
            for place in range(first, second + 1):
                there &= {each.agent_id for each in stays[place]}
            assert there - {agent_id} <= set(chosen[first + 1 : second]), (agent_id, first, second)
            between = Counter(chosen[first + 1 : second])
            assert all(between[other] == 1 for other in there - {agent_id})


# -- voting --------------------------------------------------------------------------------------

OPTIONS = ("red", "green", "blue")
BALLOTS = st.lists(
    st.tuples(st.sampled_from((*OPTIONS, ABSTAIN)), st.integers(0, 4), st.integers(0, 50)),
    max_size=8,
)


def reference(
    ballots: Sequence[Ballot], quorum: int, tie: str, named: str
) -> tuple[dict[str, float], set[str | None]]:
    """The totals, and the outcomes that the rules allow, counted the plain way."""
    totals = {option: sum(b.weight for b in ballots if b.choice == option) for option in OPTIONS}
    best = max(totals.values())
    if len(ballots) < quorum or best == 0:
        return totals, {None}
    tied = {option for option, total in totals.items() if total == best}
    if len(tied) == 1:
        return totals, set(tied)
    match tie:
        case "random":
            return totals, set(tied)
        case "first_vote":
            first = min(
                (b for b in ballots if b.choice in tied), key=lambda b: (b.at_ms, b.agent_id)
            )
            return totals, {first.choice}
        case "named":
            vote = {b.choice for b in ballots if b.agent_id == named} & tied
            return totals, set(vote) or {None}
        case _:
            return totals, {None}


@pytest.mark.promise("G1")
@given(
    drawn=BALLOTS,
    quorum=st.integers(0, 6),
    tie=st.sampled_from(("no_decision", "random", "first_vote", "named")),
    named=st.integers(0, 7),
    seed=st.text(max_size=8),
)
def test_votes_are_counted_as_a_plain_reference_counts_them(
    drawn: list[tuple[str, int, int]], quorum: int, tie: str, named: int, seed: str
):
    ballots = [
        Ballot(f"agent_{number}", f"m{number}", choice, float(weight), at)
        for number, (choice, weight, at) in enumerate(drawn)
    ]
    result = count_votes(
        ballots, OPTIONS, quorum=quorum, tie=tie, seed=seed, named=f"agent_{named}"
    )
    totals, allowed = reference(ballots, quorum, tie, f"agent_{named}")
    assert dict(result.totals) == totals
    assert result.winner in allowed
    shuffled = list(reversed(ballots))
    again = count_votes(
        shuffled, OPTIONS, quorum=quorum, tie=tie, seed=seed, named=f"agent_{named}"
    )
    assert again == result


@pytest.mark.promise("G1")
@given(
    states=st.lists(st.sampled_from(list(QuestionState)[2:]), min_size=1, max_size=6),
    quorum=st.one_of(st.integers(0, 6), st.sampled_from((0.25, 0.5, 0.75))),
)
def test_members_that_fail_or_are_late_cast_no_ballot(states: list[QuestionState], quorum: float):
    pattern = VotingPattern()
    state = state_of(pattern, [member(n) for n in range(len(states))], quorum=quorum)
    state = after(state, pattern.decide(state))
    assert len(state.asked) == len(states)
    for place, outcome in enumerate(states):
        assert pattern.decide(state).ends is False
        text = '{"choice": "approve", "reason": ""}' if outcome is QuestionState.DONE else "no"
        state = answer(state, f"ballot/agent_{place}", outcome, text)
    decision = pattern.decide(state)
    cast = states.count(QuestionState.DONE)
    needed = quorum if isinstance(quorum, int) else -(-len(states) * int(quorum * 4) // 4)
    assert decision.notes is not None
    minutes = decision.notes["minutes"]
    assert minutes["ballots"] == cast
    assert minutes["quorum"] == needed
    assert minutes["winner"] == ("approve" if cast and cast >= needed else None)


# -- pipeline ------------------------------------------------------------------------------------


@pytest.mark.promise("G1")
@given(data=st.data())
def test_a_pipeline_ends_as_its_failure_actions_say(data: st.DataObject):
    pattern = PipelinePattern()
    count = data.draw(st.integers(1, 4))
    stages: list[dict[str, Any]] = [
        {
            "name": f"s{number}",
            "agents": [f"m{n}" for n in data.draw(st.sets(st.integers(0, 3), min_size=1))],
            "on_failure": data.draw(st.sampled_from(("abort", "skip", "retry", "fallback"))),
            "attempts": data.draw(st.integers(1, 3)),
            "fallback": "m4",
        }
        for number in range(count)
    ]
    state = state_of(pattern, [member(n) for n in range(5)], stages=stages)
    wanted: list[str] = []
    aborted = False
    for _ in range(200):
        decision = pattern.decide(state)
        if decision.ends:
            break
        assert decision.asks or state.pending
        state = after(state, decision)
        open_keys = [asked.key for asked in state.pending]
        assert len({asked.key.split("/")[1] for asked in state.pending}) == 1, "one stage at a time"
        key = data.draw(st.sampled_from(open_keys))
        fails = data.draw(st.booleans())
        outcome = QuestionState.FAILED if fails else QuestionState.DONE
        state = answer(state, key, outcome, f"<{key}>")
    else:
        pytest.fail("the pipeline did not end")
    for number, stage in enumerate(stages):
        outputs: list[str] = []
        for place in range(len(stage["agents"])):
            tries = [a for a in state.asked if a.key.startswith(f"stage/{number}/{place}/")]
            if not tries:
                assert aborted or any(not a.over for a in state.asked), "no stage is left out"
                continue
            most = stage["attempts"] if stage["on_failure"] == "retry" else 1
            most += stage["on_failure"] == "fallback"
            assert len(tries) <= most
            if tries[-1].state is QuestionState.DONE:
                outputs.append(tries[-1].answer)
            elif tries[-1].over and stage["on_failure"] != "skip" and len(tries) == most:
                aborted = True
        wanted = outputs or wanted
    assert (decision.failure is not None) == (aborted or not wanted)
    if not aborted and wanted:
        assert decision.answer is not None
        assert all(output in decision.answer for output in wanted)


# -- supervisor ----------------------------------------------------------------------------------


@pytest.mark.promise("G1")
@given(
    tasks=st.lists(st.sampled_from(("", "agent_1", "agent_2", "agent_3")), max_size=12),
    each=st.integers(0, 3),
    most=st.integers(0, 8),
    strategy=st.sampled_from(("round_robin", "least_busy", "capability", "random")),
)
def test_delegations_keep_their_limits(tasks: list[str], each: int, most: int, strategy: str):
    pattern = SupervisorPattern()
    members = [member(0, role=Role.SUPERVISOR), *(member(n) for n in (1, 2, 3))]
    state = state_of(
        pattern,
        members,
        max_delegations=most,
        max_delegations_per_agent=each,
        strategy=strategy,
    )
    state = after(state, pattern.decide(state))
    for number, to in enumerate(tasks):
        task = Delegation(f"call/{number}", "lead/0", f"task {number}", to)
        state = replace(state, delegations=(*state.delegations, task))
        state = after(state, pattern.decide(state))
    given_to = Counter(a.ask.agent_id for a in state.asked if a.key.startswith("task/"))
    assert sum(given_to.values()) <= most
    assert all(count <= each for count in given_to.values())
    assert "agent_0" not in given_to
    refused = state.notes.get("refused", {})
    assert len(refused) + sum(given_to.values()) == len(tasks)
    for asked in state.asked:
        state = answer(state, asked.key, QuestionState.DONE, "done")
    decision = pattern.decide(state)
    if tasks:
        assert [ask.key for ask in decision.asks] == ["lead/1"]
        assert all(f"task {number}" in decision.asks[0].text for number in range(len(tasks)))
    else:
        assert decision.answer == "done"


@pytest.mark.promise("G1")
@pytest.mark.parametrize("fallback", ["handle_self", "fail"])
def test_a_task_that_is_refused_after_the_leader_has_ended_goes_on(fallback: str):
    pattern = SupervisorPattern()
    members = [member(0, role=Role.SUPERVISOR), member(1)]
    state = state_of(pattern, members, max_delegations=0, fallback=fallback)
    state = after(state, pattern.decide(state))
    # Both come in at once, as where the process was busy or has been started again.
    task = Delegation("call/0", "lead/0", "Find it.", "agent_1")
    state = replace(answer(state, "lead/0", QuestionState.DONE, "given"), delegations=(task,))
    decision = pattern.decide(state)
    if fallback == "fail":
        assert decision.failure is not None
        assert "At most 0 tasks" in decision.failure
        return
    assert [ask.key for ask in decision.asks] == ["lead/1"]
    assert "Not given away: Find it." in decision.asks[0].text
    assert "At most 0 tasks" in decision.reason
    state = answer(after(state, decision), "lead/1", QuestionState.DONE, "found")
    assert pattern.decide(state).answer == "found"


# -- dynamic, sleeptime, options -----------------------------------------------------------------


@pytest.mark.promise("G1")
@given(st.text(max_size=40), st.sampled_from(("random", "load_balancing", "capability")))
def test_somebody_is_always_chosen_and_the_same_state_chooses_the_same(text: str, selector: str):
    pattern = DynamicPattern()
    members = [member(n, capabilities=(f"skill {n}",)) for n in range(1, 5)]
    state = replace(state_of(pattern, members, selector=selector), message=text)
    decision = pattern.decide(state)
    assert decision.asks
    assert decision.reason
    assert pattern.decide(state) == decision


@pytest.mark.promise("G1")
@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("@ben-2 hi", ["ben-2"]),
        ("@Ben Smith, hi", ["Ben Smith"]),
        ("@ben and @ben-2: hi", ["ben", "ben-2"]),
        ("@BEN hi", ["ben"]),
        ("@ADA hi", ["ADA"]),
        ("@ada hi", ["ada"]),
        ("@ben's turn", ["ben"]),
        ("write to lena@ben", ["ada"]),
        ("@quiet-ben hi", ["ada"]),
    ],
)
def test_a_name_that_begins_with_another_name_is_addressed_alone(text: str, asked: list[str]):
    pattern = DynamicPattern()
    names = ("ada", "ADA", "ben", "ben-2", "Ben Smith", "quiet", "quiet-ben")
    members = [member(number, name=name) for number, name in enumerate(names)]
    members[0] = replace(members[0], role=Role.SUPERVISOR)
    members[-1] = replace(members[-1], role=Role.OBSERVER)
    decision = pattern.decide(replace(state_of(pattern, members), message=text))
    by_id = {each.agent_id: each.name for each in members}
    assert [by_id[ask.agent_id] for ask in decision.asks] == asked


@pytest.mark.promise("G1")
@pytest.mark.parametrize(
    ("said", "told"), [("", "one"), ("STOP", "one"), ("two STOP", "m1: one\n\nm2: two")]
)
def test_the_word_that_ends_a_conversation_is_not_part_of_it(said: str, told: str):
    pattern = DynamicPattern()
    options = {"max_turns": 2, "count": 2, "selector": "random", "termination_token": "STOP"}
    state = state_of(pattern, [member(1), member(2)], **options)
    state = after(state, pattern.decide(state))
    done = QuestionState.DONE
    state = answer(state, "round/0/agent_1", done, "one STOP")
    state = answer(state, "round/0/agent_2", done, said)
    text = pattern.decide(state).answer
    assert text is not None
    assert sorted(text.split("\n\n")) == told.split("\n\n")


def test_a_rule_calls_no_code_but_what_a_package_offers(monkeypatch: pytest.MonkeyPatch):
    pattern = SleeptimePattern()
    for name in ("os:system", "operator:truth", "truth"):
        custom = {"triggers": [{"name": "r", "condition": "custom", "function": name}]}
        with pytest.raises(InvalidInput, match="plugin"):
            pattern.check(custom)
    offered = EntryPoint("truth", "operator:truth", "asterism.group_rules")

    def installed(kind: str) -> dict[str, EntryPoint]:
        return {"truth": offered} if kind == "group_rules" else {}

    monkeypatch.setattr(plugins, "_entry_points", installed)
    custom = {"triggers": [{"name": "r", "condition": "custom", "function": "truth"}]}
    group = state_of(pattern, [member(1)], **custom).group
    activity = GroupActivity(
        now_ms=NOW, since_ms=0, messages=0, last_message_ms=None, texts=(), metrics={}
    )
    assert pattern.watch(group, activity)


@pytest.mark.promise("G1")
@pytest.mark.parametrize(
    ("condition", "activity", "fires"),
    [
        ({"condition": "time_elapsed", "seconds": 60}, {}, True),
        ({"condition": "time_elapsed", "seconds": 61}, {}, False),
        ({"condition": "messages", "count": 5}, {}, True),
        ({"condition": "messages", "count": 6}, {}, False),
        ({"condition": "silence", "seconds": 30}, {"last_message_ms": NOW - 30_000}, True),
        ({"condition": "silence", "seconds": 31}, {"last_message_ms": NOW - 30_000}, False),
        ({"condition": "silence", "seconds": 1}, {"last_message_ms": None}, False),
        ({"condition": "silence", "seconds": 1}, {"last_message_ms": NOW - 90_000}, False),
        ({"condition": "pattern", "pattern": "over(whelm|load)"}, {}, True),
        ({"condition": "pattern", "pattern": "calm"}, {}, False),
        ({"condition": "threshold", "metric": "failed_turns", "above": 2}, {}, True),
        ({"condition": "threshold", "metric": "failed_turns", "above": 3}, {}, False),
        ({"condition": "pattern", "pattern": "^(a+)+$"}, {"texts": ("a" * 40 + "!",)}, False),
    ],
)
def test_rules_fire_on_what_really_happened(
    condition: dict[str, Any], activity: dict[str, Any], fires: bool
):
    pattern = SleeptimePattern()
    group = state_of(pattern, [member(1)], triggers=[{"name": "r", **condition}]).group
    happened: dict[str, Any] = {
        "now_ms": NOW,
        "since_ms": NOW - 60_000,
        "messages": 5,
        "last_message_ms": NOW,
        "texts": ("I am overwhelmed",),
        "metrics": {"failed_turns": 3.0},
        **activity,
    }
    assert (pattern.watch(group, GroupActivity(**happened)) is not None) == fires


@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        (RoundRobinPattern(), {"speakers": 0}),
        (RoundRobinPattern(), {"skip_unavailable": "yes"}),
        (PipelinePattern(), {"stages": [{"name": "x"}]}),
        (PipelinePattern(), {"stages": [{"agents": ["a"], "on_failure": "fallback"}]}),
        (PipelinePattern(), {"stages": [{"agents": ["a"], "timeout": -1}]}),
        (PipelinePattern(), {"stages": 7}),
        (SupervisorPattern(), {"strategy": "best"}),
        (DynamicPattern(), {"selector": "psychic"}),
        (VotingPattern(), {"options": ["one"]}),
        (VotingPattern(), {"options": ["a", "a"]}),
        (VotingPattern(), {"options": ["a", "abstain"]}),
        (VotingPattern(), {"tie": "named"}),
        (VotingPattern(), {"quorum": 1.5}),
        (SleeptimePattern(), {"triggers": [{"condition": "mood"}]}),
        (SleeptimePattern(), {"triggers": [{"condition": "pattern", "pattern": "("}]}),
        (SleeptimePattern(), {"triggers": [{"condition": "threshold", "metric": "tokens"}]}),
        (SleeptimePattern(), {"triggers": [{"condition": "custom", "function": "no:thing"}]}),
    ],
)
@pytest.mark.promise("X5")
def test_wrong_options_are_refused_in_words(pattern: Pattern, options: dict[str, Any]):
    with pytest.raises(InvalidInput, match=r"Nothing was changed\."):
        pattern.check(options)
