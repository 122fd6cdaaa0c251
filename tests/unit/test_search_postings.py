"""Where terms are, packed into rows and read from them."""

from __future__ import annotations

from struct import unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.search.index import pack_postings, prefix_of, term_entry, term_postings, terms_in

_TERMS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=8)
_PLACES = st.lists(st.integers(0, 65_535), min_size=1, max_size=6)


def read(rows: dict[str, bytes], term: str) -> list[int]:
    found = term_postings(rows.get(prefix_of(term), b""), term_entry(term))
    return list(unpack(f"<{len(found) // 2}H", found))


@given(st.dictionaries(_TERMS, _PLACES, max_size=40))
def test_each_term_is_found_where_it_is(places: dict[str, list[int]]):
    rows = pack_postings(places)
    assert {term: read(rows, term) for term in places} == places
    told = {term for prefix, row in rows.items() for term in terms_in(row, prefix)}
    assert told == set(places)


@pytest.mark.parametrize("counts", [(254, 255, 256), (255, 1, 1), (1_024, 1_024, 3), (1, 2, 300)])
def test_terms_of_many_texts_are_told_apart(counts: tuple[int, ...]):
    places = {f"key{number}": list(range(count)) for number, count in enumerate(counts)}
    rows = pack_postings(places)
    assert list(rows) == ["ke"]
    assert {term: read(rows, term) for term in places} == places


def test_a_term_that_only_begins_like_another_is_not_there():
    rows = pack_postings({"keys": [1], "keyboard": [2], "ke": [3]})
    assert read(rows, "key") == []
    assert read(rows, "ke") == [3]
    assert read(rows, "boat") == []


@given(st.binary(max_size=60), _TERMS)
def test_a_row_that_is_damaged_has_nothing_or_whole_places(row: bytes, term: str):
    assert len(term_postings(row, term_entry(term))) % 2 == 0
    assert all(isinstance(one, str) for one in terms_in(row, prefix_of(term)))


def test_terms_that_begin_alike_take_little_room():
    places = {f"co{number:03}": [number] for number in range(100)}
    assert sum(map(len, pack_postings(places).values())) < 100 * 8
