"""The part of a found text that is shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.cli.search import excerpt_of
from asterism.types.memory import Source
from asterism.types.search import Hit, HitKind


def hit(text: str, *matched: str) -> Hit:
    return Hit(HitKind.MESSAGE, "turn_1#1", text, 1.0, (), 0, Source(()), matched=matched)


def marked(text: str, *matched: str, most: int = 300) -> list[str]:
    shown = excerpt_of(hit(text, *matched), most)
    return [shown.text[first:last] for first, last in shown.places]


@pytest.mark.parametrize(
    ("text", "matched", "expected"),
    [
        ("The key is here.", ["key"], ["key"]),
        ("A monkey has a key.", ["key"], ["key"]),
        ("隣の鍵です", ["鍵"], ["鍵"]),
        ("Keys, key and keys.", ["Keys", "keys"], ["Keys", "keys"]),
        ("spare key", ["spare key", "key"], ["spare key"]),
        ("What is (this)?", ["(this)?", "["], ["(this)?"]),
        ("two\nlines of   text", ["lines of text"], ["lines of text"]),
        ("nothing", [], []),
    ],
)
def test_what_was_found_is_marked(text: str, matched: list[str], expected: list[str]) -> None:
    assert marked(text, *matched) == expected


def test_the_part_with_the_most_different_words_is_shown() -> None:
    text = "key " + "word " * 200 + "the spare key of the house " + "word " * 200
    shown = excerpt_of(hit(text, "key", "spare", "house"), 120)
    assert "the spare key of the house" in shown.text
    assert shown.text.startswith("…word")
    assert shown.text.endswith("word…")
    assert len(shown.places) == 3


def test_a_long_text_without_a_word_is_shown_from_its_beginning() -> None:
    shown = excerpt_of(hit("begin " + "word " * 500), 50)
    assert shown.text.startswith("begin word")
    assert len(shown.text) <= 52


@given(
    st.text(alphabet="ab \n鍵é\x1b", max_size=400),
    st.lists(st.text(alphabet="ab鍵é", min_size=1, max_size=3), max_size=4),
    st.integers(20, 100),
)
def test_places_are_in_order_and_are_what_was_found(
    text: str, matched: list[str], most: int
) -> None:
    shown = excerpt_of(hit(text, *matched), most)
    assert len(shown.text) <= most + 2
    before = 0
    for first, last in shown.places:
        assert before <= first < last <= len(shown.text)
        assert any(word in shown.text[first:last] for word in matched)
        before = last
