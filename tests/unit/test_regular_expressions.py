"""Regular expressions from outside: what they mean, what is refused, and that all of it ends."""

import re

import pytest

from asterism.patterns import (
    MAX_PATTERN,
    InvalidPattern,
    RegularExpression,
    TooMuchWork,
    compile_glob,
    compile_pattern,
)
from tests.hostile_patterns import TEXTS, hostile_patterns


@pytest.mark.parametrize(
    ("expression", "flags", "text", "matches"),
    [
        ("b+", "", "abbc", True),
        ("^b", "", "a\nb", False),
        ("^b", "m", "a\nb", True),
        ("a.b", "", "a\nb", False),
        ("a.b", "s", "a\nb", True),
        ("AB", "i", "ab", True),
        (r"end\Z", "", "the end", True),
        (r"\u00e9\u{1F600}", "", "é😀", True),
        (r"\\u00e9", "", r"\u00e9", True),
        (r"^\d{3}-\d{4}$", "", "555-1234\n", False),
        (r"\p{Han}", "", "漢", True),
        ("(?<year>[0-9]{4})", "", "2026", True),
        ("", "", "", True),
    ],
)
def test_an_expression_is_found_in_a_text(expression: str, flags: str, text: str, *, matches: bool):
    assert compile_pattern(expression, flags).search(text) is matches


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("(", "missing )"),
        (r"(a)\1", "references back to a group"),
        ("(?=a)b", "look-ahead"),
        ("(?<!a)b", "look-behind"),
        ("a{1001}", "repeats above 1,000"),
        ("(?:a{200}){200}", "repeats above 1,000"),
        (r"\p{L}{900}", "too large"),
        ("a" * (MAX_PATTERN + 1), "1,001 characters; the most is 1,000"),
        ("(a)" * 100, "100 groups; the most is 99"),
        ("\ud800", "a surrogate"),
        (r"\C", "half a character"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(expression: str, reason: str):
    with pytest.raises(InvalidPattern, match=re.escape(reason)) as caught:
        compile_pattern(expression, groups=True)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("expression", "template", "text", "made"),
    [
        (r"(\w+) tea", r"\1 TEA", "green tea, red tea", "green TEA, red tea"),
        (r"(?P<first>\w+) (\w+)", r"\2 \g<first>", "one two", "two one"),
        ("a", r"\g<0>\g<0>", "bab", "baab"),
        ("a(x)?", r"[\1]", "ab", "[]b"),
        ("a", r"1\n2\\3", "a", "1\n2\\3"),
        ("é", "漢", "née", "n漢e"),
        ("$", "!", "é", "é!"),
        ("x", "y", "a", None),
    ],
)
def test_the_first_match_is_replaced(expression: str, template: str, text: str, made: str | None):
    pattern = compile_pattern(expression, groups=True)
    assert pattern.replace_first(text, template, 100) == made


@pytest.mark.parametrize("template", [r"\2", r"\g<2>", r"\g<name>", r"\q", "\\", r"\0"])
def test_a_replacement_names_what_is_there(template: str):
    with pytest.raises(InvalidPattern):
        compile_pattern("(a)", groups=True).replace_first("a", template, 100)


@pytest.mark.promise("X5")
def test_what_a_replacement_makes_is_known_before_it_is_made():
    pattern = compile_pattern("((?s).*)", groups=True)
    with pytest.raises(InvalidPattern, match="100,000,000 bytes"):
        pattern.replace_first("x" * 5_000, r"\1" * 20_000, 5_000)


@pytest.mark.promise("X5")
def test_a_text_that_is_too_long_for_an_expression_is_not_looked_at():
    pattern = compile_pattern("[ab]{500}c")
    with pytest.raises(TooMuchWork):
        pattern.search("ab" * 100_000)
    assert not pattern.search("ab" * 1_000)


@pytest.mark.promise("X5")
def test_hostile_expressions_are_refused_or_matched_and_never_more():
    fates = {"refused": 0, "matched": 0, "too much": 0}
    for expression in hostile_patterns(1_500, seed=7):
        fates[_fate(expression)] += 1
    assert min(fates.values()) > 10, fates


def _fate(expression: str) -> str:
    try:
        pattern = compile_pattern(expression, "m", groups=True)
        for text in TEXTS:
            pattern.search(text)
            pattern.replace_first(text, r"<\g<0>>", 20_000)
    except InvalidPattern:
        return "refused"
    except TooMuchWork:
        return "too much"
    return "matched"


def test_a_glob_means_its_text_but_for_the_wildcards():
    glob: RegularExpression = compile_glob(["a.b", "*", "(c"], {"*": "[^/]*"})
    assert glob.matches("a.b and (c")
    assert not glob.matches("a.b/(c")
    assert not glob.matches("axb(c")
    with pytest.raises(InvalidPattern, match="characters"):
        compile_glob(["*"] * 1_001, {"*": ".*"})


def test_a_glob_of_many_wildcards_is_as_quick_as_others():
    assert not compile_glob("*a" * 40 + "b", {"*": ".*"}).matches("a" * 2_000)
