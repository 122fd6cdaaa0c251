"""Words of any script, and the digest by which two writings of one text are the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.memory.words import STOP_WORDS, digest, singular, terms, words

HARD = ["", " ", "\0", "\0" * 50, "😀", "\ud800", "e" + "\u0301" * 99, "שלום\u200f עולם", "'" * 9]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Anna's dogs don’t bark", ["anna's", "dogs", "don't", "bark"]),
        ("1,200.50 € at 14:30", ["1200.50", "€", "at", "14:30"]),
        ("−5 °C, not 5", ["-5", "°", "c", "not", "5"]),
        ("C++, C# and C", ["c++", "c#", "and", "c"]),
        ("due 2026-07-04", ["due", "2026-07-04"]),
        ("ＦＵＬＬ width", ["full", "width"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("我住在柏林", ["我住", "住在", "在柏", "柏林"]),
        ("ご飯", ["ご飯"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("مَرحبًا بالعالم", ["مَرحبًا", "بالعالم"]),
        ("no\u00adtice me", ["notice", "me"]),
        ("ok 👍🏽", ["ok", "👍"]),
        ("a\0b", ["a", "b"]),
    ],
)
def test_words_of_any_script(text: str, expected: list[str]):
    assert words(text) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("dogs", "dog"), ("lives", "live"), ("parties", "party"), ("boxes", "box"),
        ("goes", "go"), ("anna's", "anna"), ("glass", "glass"), ("bus", "bus"), ("gas", "gas"),
        ("this", "this"), ("news", "news"), ("is", "is"), ("2s", "2s"),
    ],
)  # fmt: skip
def test_fold_takes_off_no_more_than_an_ending(word: str, expected: str):
    assert singular(word) == expected


def test_terms_are_words_that_carry_meaning():
    assert terms("The dogs of Anna are not in the garden") == ["dog", "anna", "not", "garden"]
    assert not STOP_WORDS & {"not", "no", "never"}


@pytest.mark.parametrize(
    "other",
    [
        "anna lives in BERLIN",
        " Anna  lives\nin Berlin! ",
        "Anna lives in (Berlin).",
        "„Anna lives in Berlin“",
    ],
)  # fmt: skip
def test_another_writing_has_the_same_digest(other: str):
    assert digest(other) == digest("Anna lives in Berlin.")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It costs 3.5 euros", "It costs 35 euros"), ("5 €", "5 $"), ("👍", "👎"), ("-5", "5"),
        ("dog", "dogs"), ("?", "!"), ("", "."), ("a b", "ab"), ("Rex likes Tom", "Tom likes Rex"),
    ],
)  # fmt: skip
def test_another_text_has_another_digest(one: str, other: str):
    assert digest(one) != digest(other)


@given(st.text())
def test_any_text_has_words_and_a_stable_digest(text: str):
    assert all(words(text))
    assert digest(text) == digest(f"  {text}\n")
    assert len(digest(text)) == 64


@given(st.text(st.characters(max_codepoint=127)))
def test_what_stands_beside_does_not_change_ascii_words(text: str):
    assert words(text + " é")[:-1] == words(text + " e")[:-1]


@pytest.mark.parametrize("text", HARD)
def test_hard_input(text: str):
    assert isinstance(terms(text), list)
    assert len(digest(text)) == 64


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["word ", "我住在柏林。", "😀", "1.", "e\u0301", "a'", "1-"])
def test_a_megabyte_takes_linear_time(text: str):
    assert words(text * (1_000_000 // len(text)))
