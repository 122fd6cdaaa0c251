"""Laws of audiences and companies: what meets is heard by those who see both, never by more."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import InvalidInput
from asterism.types.agents import (
    OWNER,
    OWNER_ALONE,
    OWNER_ONLY,
    PUBLIC,
    Audience,
    Participant,
    Participants,
)

PERSONS = ["person_a", "person_b", "person_c"]
ROLES = ["family", "work"]
ROOMS = ["discord:home", "slack:office"]

words = st.sampled_from(
    ["public", OWNER]
    + [f"person:{one}" for one in PERSONS]
    + [f"role:{one}" for one in ROLES]
    + [f"room:{one}" for one in ROOMS]
)
audiences = st.lists(st.frozensets(words, min_size=1, max_size=4), max_size=4).map(
    lambda clauses: Audience.intersection([Audience(tuple(clauses))])
)
people = st.one_of(
    st.just(Participant(OWNER, frozenset({OWNER}))),
    st.builds(
        Participant,
        st.sampled_from(PERSONS),
        st.frozensets(st.sampled_from(ROLES)),
        st.frozensets(st.sampled_from(ROOMS)),
    ),
)
companies = st.builds(
    Participants,
    st.lists(people, min_size=1, max_size=4).map(tuple),
    st.none() | st.sampled_from(ROOMS),
)


@pytest.mark.promise("M9")
@given(audiences, audiences, companies)
def test_what_was_made_of_two_is_heard_by_those_who_hear_both(
    a: Audience, b: Audience, participants: Participants
):
    assert participants.can_see(a & b) == (participants.can_see(a) and participants.can_see(b))


@given(st.lists(audiences, max_size=5), companies)
def test_a_meeting_of_many_is_heard_by_those_who_hear_each(
    many: list[Audience], participants: Participants
):
    assert participants.can_see(Audience.intersection(many)) == all(map(participants.can_see, many))


@given(audiences, audiences)
def test_meeting_has_no_order_and_no_number(a: Audience, b: Audience):
    assert a & b == b & a
    assert a & a == a
    assert a & PUBLIC == a


@given(audiences)
def test_an_audience_is_read_back_from_its_text(audience: Audience):
    assert Audience.read(str(audience)) == audience
    assert str(Audience.read(str(audience))) == str(audience)


@pytest.mark.promise("M9")
@given(audiences, companies, people)
def test_one_more_person_never_lets_more_be_heard(
    audience: Audience, participants: Participants, other: Participant
):
    larger = Participants((*participants.people, other), participants.room)
    assert participants.can_see(audience) or not larger.can_see(audience)


@given(audiences)
def test_the_owner_alone_hears_everything(audience: Audience):
    assert OWNER_ALONE.can_see(audience)


@given(companies)
def test_those_present_may_hear_what_they_say(participants: Participants):
    room = participants.room
    here = frozenset[str]() if room is None else frozenset({room})
    there = tuple(replace(one, rooms=one.rooms | here) for one in participants.people)
    assert Participants(there, room).can_see(participants.audience)


@pytest.mark.promise("M9")
@given(st.sampled_from(ROOMS), st.sampled_from(PERSONS), companies)
def test_who_has_left_a_room_does_not_hear_what_is_for_it(
    room: str, person: str, participants: Participants
):
    left = Participants((*participants.people, Participant(person)), room)
    assert not left.can_see(Audience((frozenset({f"room:{room}"}),)))


@given(companies, audiences)
def test_companies_of_one_key_hear_the_same(participants: Participants, audience: Audience):
    turned = Participants(tuple(reversed(participants.people)), participants.room)
    assert turned.key == participants.key
    assert turned.can_see(audience) == participants.can_see(audience)


@given(companies, companies, audiences)
def test_one_key_means_one_set_of_ears(one: Participants, other: Participants, audience: Audience):
    if one.key == other.key:
        assert one.can_see(audience) == other.can_see(audience)


@given(companies.filter(lambda participants: not participants.owner_alone))
def test_what_is_the_owners_is_held_back_from_everybody_else(participants: Participants):
    assert not participants.can_see(OWNER_ONLY)


@pytest.mark.parametrize(
    "text", ["", "|", "everybody", "person:", "role:", "public&", "person:a|nobody", "Owner"]
)
def test_what_names_nobody_is_refused(text: str):
    with pytest.raises(InvalidInput, match="is not a valid audience"):
        Audience.read(text)


def test_participants_need_at_least_one_person():
    with pytest.raises(ValueError, match="at least one person"):
        Participants(())
