"""Laws of labels: what is made of several values is trusted and seen as the strictest of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.types.agents import (
    OWNER_ALONE,
    PUBLIC,
    Label,
    Participant,
    Participants,
    Trust,
    least_trusted,
    new_id,
)
from asterism.types.memory import Source
from tests.unit.test_audience import audiences, companies, people

pytestmark = pytest.mark.promise("X6", "M9", "M10")

RANK = {trust: rank for rank, trust in enumerate(Trust)}
labels = st.builds(Label, st.sampled_from(Trust), audiences)


def joined(*some: Label) -> Label:
    return Label.join(some)


@given(labels, labels, labels)
def test_joining_has_no_order_and_no_number(a: Label, b: Label, c: Label):
    assert joined(joined(a, b), c) == joined(a, joined(b, c)) == joined(a, b, c)
    assert joined(a, b) == joined(b, a)
    assert joined(a, a) == joined(a) == a


@given(labels)
def test_what_the_owner_made_public_adds_nothing(a: Label):
    assert Label() == Label(Trust.OWNER, PUBLIC) == joined()
    assert joined(a, Label()) == a


@given(st.lists(labels, max_size=5), labels)
def test_another_label_never_raises_trust(some: list[Label], more: Label):
    before, after = joined(*some).trust, joined(*some, more).trust
    assert RANK[after] >= RANK[before]
    assert after is least_trusted((before, more.trust))


@given(st.lists(labels, max_size=5), companies)
def test_what_flows_after_a_join_flowed_before_it(some: list[Label], participants: Participants):
    assert joined(*some).flows_to(participants) == all(one.flows_to(participants) for one in some)


@given(labels, companies, people)
def test_another_participant_never_lets_more_flow(
    label: Label, participants: Participants, other: Participant
):
    larger = Participants((*participants.people, other), participants.room)
    assert label.flows_to(participants) or not label.flows_to(larger)


@given(labels)
def test_everything_flows_to_the_owner_alone(label: Label):
    assert label.flows_to(OWNER_ALONE)


@given(labels, companies)
def test_what_is_said_after_seeing_a_value_flows_to_nobody_else_who_may_not_see_it(
    label: Label, participants: Participants
):
    """What is said in participants is for those present, and for others only if the value is."""
    said = Label(label.trust, participants.audience_after_reading(label.audience))
    for other in (
        Participant("person_x"),
        Participant("person_x", rooms=frozenset({participants.room or "-"})),
    ):
        alone = Participants((other,))
        assert label.flows_to(alone) or not said.flows_to(alone)


@given(labels)
def test_label_of_a_source_is_its_trust_and_its_audience(label: Label):
    assert Source((), label.audience, label.trust).label == label


def test_ids_of_one_moment_are_in_the_order_in_which_they_were_made():
    ids = [new_id("x") for _ in range(2_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 2_000
