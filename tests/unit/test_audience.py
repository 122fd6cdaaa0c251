"""Laws of audiences and companies: what meets is heard by those who hear both, never by more."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import InvalidInput
from asterism.types.people import (
    OWNER,
    OWNER_ALONE,
    OWNER_ONLY,
    PUBLIC,
    Audience,
    Company,
    Hearer,
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
    lambda clauses: Audience.meeting([Audience(tuple(clauses))])
)
hearers = st.one_of(
    st.just(Hearer(OWNER, frozenset({OWNER}))),
    st.builds(
        Hearer,
        st.sampled_from(PERSONS),
        st.frozensets(st.sampled_from(ROLES)),
        st.frozensets(st.sampled_from(ROOMS)),
    ),
)
companies = st.builds(
    Company,
    st.lists(hearers, min_size=1, max_size=4).map(tuple),
    st.none() | st.sampled_from(ROOMS),
)


@pytest.mark.promise("M9")
@given(audiences, audiences, companies)
def test_what_was_made_of_two_is_heard_by_those_who_hear_both(
    a: Audience, b: Audience, company: Company
):
    assert company.may_hear(a & b) == (company.may_hear(a) and company.may_hear(b))


@given(st.lists(audiences, max_size=5), companies)
def test_a_meeting_of_many_is_heard_by_those_who_hear_each(many: list[Audience], company: Company):
    assert company.may_hear(Audience.meeting(many)) == all(map(company.may_hear, many))


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
@given(audiences, companies, hearers)
def test_one_more_person_never_lets_more_be_heard(
    audience: Audience, company: Company, other: Hearer
):
    larger = Company((*company.hearers, other), company.room)
    assert company.may_hear(audience) or not larger.may_hear(audience)


@given(audiences)
def test_the_owner_alone_hears_everything(audience: Audience):
    assert OWNER_ALONE.may_hear(audience)


@given(companies)
def test_those_present_may_hear_what_they_say(company: Company):
    room = company.room
    here = frozenset[str]() if room is None else frozenset({room})
    there = tuple(replace(one, rooms=one.rooms | here) for one in company.hearers)
    assert Company(there, room).may_hear(company.audience)


@pytest.mark.promise("M9")
@given(st.sampled_from(ROOMS), st.sampled_from(PERSONS), companies)
def test_who_has_left_a_room_does_not_hear_what_is_for_it(room: str, person: str, company: Company):
    left = Company((*company.hearers, Hearer(person)), room)
    assert not left.may_hear(Audience((frozenset({f"room:{room}"}),)))


@given(companies, audiences)
def test_companies_of_one_key_hear_the_same(company: Company, audience: Audience):
    turned = Company(tuple(reversed(company.hearers)), company.room)
    assert turned.key == company.key
    assert turned.may_hear(audience) == company.may_hear(audience)


@given(companies, companies, audiences)
def test_one_key_means_one_set_of_ears(one: Company, other: Company, audience: Audience):
    if one.key == other.key:
        assert one.may_hear(audience) == other.may_hear(audience)


@given(companies.filter(lambda company: not company.owner_alone))
def test_what_is_the_owners_is_held_back_from_everybody_else(company: Company):
    assert not company.may_hear(OWNER_ONLY)


@pytest.mark.parametrize(
    "text", ["", "|", "everybody", "person:", "role:", "public&", "person:a|nobody", "Owner"]
)
def test_what_names_nobody_is_refused(text: str):
    with pytest.raises(InvalidInput, match="names no audience"):
        Audience.read(text)


def test_an_empty_company_cannot_be_made():
    with pytest.raises(ValueError, match="Nobody"):
        Company(())
