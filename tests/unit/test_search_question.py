"""What a question to the search asks for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.search.query import MAX_CHARACTERS, Asks, ParsedQuery, read

NOW = int(datetime(2023, 6, 9, 15, 30, tzinfo=UTC).timestamp() * 1000)
NAMES = {
    "ann": "discord:ann",
    "bertram": "discord:bert",
    "bertram lang": "discord:bert",
    "will": "slack:will",
    "rose": "slack:rose",
    "møller": "mail:moller",
    "小林": "line:kobayashi",
}


def asked(query: str) -> ParsedQuery:
    return read(query, NAMES, "owner", "agent", NOW)


SPEAKERS = {
    "What did Ann cook?": {"discord:ann": 1.0},
    "what did ann cook": {"discord:ann": 1.0},
    "What is Ann's cat called?": {"discord:ann": 1.0},
    "What did Bertram Lang paint?": {"discord:bert": 1.0},
    "What did Bert paint?": {"discord:bert": 1.0},
    "What do Ann and Bertram share?": {"discord:ann": 0.5, "discord:bert": 0.5},
    "What did Ann give to Bertram?": {"discord:ann": 0.8, "discord:bert": 0.2},
    "When will she come?": {},
    "When does Will come?": {"slack:will": 1.0},
    "Where do the rose bushes grow?": {},
    "Where does Rose live?": {"slack:rose": 1.0},
    "Hvad sagde Møller?": {"mail:moller": 1.0},
    "小林さんは何を食べた": {"line:kobayashi": 1.0},
    "Where is the annex?": {},
    "Who came along?": {},
    "Where did I park?": {"owner": 1.0},
    "What's my budget?": {"owner": 1.0},
    "What did I tell Ann?": {"owner": 0.7, "discord:ann": 0.3},
    "What did Ann tell me?": {"discord:ann": 1.0},
    "What did you suggest?": {"agent": 1.0},
    "Which libraries did you recommend for my app?": {"agent": 0.6, "owner": 0.4},
    "What was your advice?": {"agent": 1.0},
    "Could you remind me where I parked?": {"owner": 1.0},
    "Can you list the books?": {},
}
HINTS = {
    "Where did we eat?": Asks.PLACE,
    "Could you remind me where I parked?": Asks.PLACE,
    "How old is the doctor who helped, in the room where I slept?": Asks(0),
    "Which city did she move to?": Asks.PLACE,
    "Could you help me plan a trip?": Asks.HELP,
    "Please write a letter to the bank": Asks.HELP,
    "How should I organise my day?": Asks.HELP,
    "I'm looking for a new phone, what would you suggest?": Asks.HELP,
    "Can you summarise how my garden came along?": Asks.SUMMARY,
    "What is the order in which I raised my worries?": Asks(0),
    "What did Ann cook?": Asks(0),
    "Could you remind me what I said about tea?": Asks(0),
}
PHRASES = {
    'the song "Blue Moon" of Ann': ["Blue Moon"],
    "the song \u201cBlue  Moon\u201d": ["Blue Moon"],
    "das Lied \u201eBlauer Mond\u201c": ["Blauer Mond"],
    "la chanson \u00ab Lune bleue \u00bb": ["Lune bleue"],
    "「青い月」を聴いた": ["青い月"],
    "the book 'Dune' and 'Ann's way'": ["Dune", "Ann's way"],
    "Ann's cat and Bertram's dog": [],
    'an open "quote': [],
    '"" and " " and "!"': [],
    '"one" and "two" and "three': ["one", "two"],
    '"same" "same"': ["same"],
}


@pytest.mark.promise("M6")
@pytest.mark.parametrize("query", SPEAKERS)
def test_whose_words_are_asked_for(query: str) -> None:
    assert asked(query).speakers == pytest.approx(SPEAKERS[query])


@pytest.mark.parametrize("query", HINTS)
def test_what_kind_of_answer_is_wanted(query: str) -> None:
    assert asked(query).asks == HINTS[query]


@pytest.mark.promise("M6")
@pytest.mark.parametrize("query", PHRASES)
def test_what_stands_in_quotes_is_a_phrase(query: str) -> None:
    assert asked(query).phrases == PHRASES[query]


@pytest.mark.parametrize(
    ("query", "prefixes", "terms"),
    [
        ("Garden* tools", ["garden"], ["tool"]),
        ("gard* tom*", ["gard", "tom"], []),
        ("**bold** words", [], ["bold", "word"]),
        ("2*3 a*", [], ["2", "3"]),
    ],
)
def test_words_that_end_in_a_star_are_prefixes(
    query: str, prefixes: list[str], terms: list[str]
) -> None:
    found = asked(query)
    assert (found.prefixes, found.terms) == (prefixes, terms)


@pytest.mark.parametrize(
    ("query", "terms", "bare"),
    [
        ("What did Ann's cats eat?", ["cat", "eat"], "What did cats eat?"),
        ("Did Bertram Lang paint houses", ["paint", "hous"], "Did paint houses"),
        ("Ann", ["ann"], "Ann"),
        ("Which movies did I watch?", ["movi", "watch"], "Which movies did I watch?"),
        ("the of and", [], "the of and"),
    ],
)
def test_names_of_speakers_are_no_terms(query: str, terms: list[str], bare: str) -> None:
    found = asked(query)
    assert (found.terms, found.bare) == (terms, bare)


@pytest.mark.parametrize(
    ("query", "when", "number"),
    [
        ("When did Ann move?", True, False),
        ("How long has she lived there?", True, True),
        ("How many days passed?", True, True),
        ("What is the deadline for the essay?", True, False),
        ("Which year did it begin?", True, False),
        ("What date is the exam?", True, False),
        ("How many cats has Ann?", False, True),
        ("How much is the rent?", False, True),
        ("What is my budget for gifts?", False, True),
        ("What did Ann do when it rained?", False, False),
        ("When writing code, what should I test?", False, False),
    ],
)
def test_questions_for_a_time_or_a_number(query: str, when: bool, number: bool) -> None:
    found = asked(query)
    assert (found.when, found.number) == (when, number)


def test_a_span_is_counted_from_now() -> None:
    found = asked("What did Ann cook in May?")
    assert found.span is not None
    assert [datetime.fromtimestamp(one / 1000, UTC).date().isoformat() for one in found.span] == [
        "2023-05-01",
        "2023-05-31",
    ]
    assert not found.dated
    assert asked("What did Ann cook in May 2022?").dated
    assert read("What did Ann cook in May?", NAMES, "owner", "agent").span is None


def test_nobody_asks_for_their_own_words_without_a_label() -> None:
    assert read("Where did I park?", NAMES, None, "agent", NOW).speakers == {}


HOSTILE = [
    "",
    "\0",
    "\ud800 and \udfff",
    "😀👍🏽",
    "שלום עולם",
    "مرحبا بالعالم",
    'NEAR("a b", 5) AND NOT x* OR col:y ^z',
    "'; DROP TABLE entries; --",
    "%_\\%",
    "((((((((((",
    '"' * 999,
    "'" * 999,
    "what " * 400,
    "i can " * 400,
    "\u0130" * 500 + "Ann",
    "\ufdfa" * 2_000,
    " " * 5_000 + "Ann",
    "*" * 2_000,
    "which " + "things " * 300,
    "please " * 300,
    "Ann and " * 250,
]


@pytest.mark.promise("M6")
@pytest.mark.timeout(30)
@pytest.mark.parametrize("query", HOSTILE)
def test_any_text_is_a_question(query: str) -> None:
    found = asked(query)
    assert len(found.text) <= MAX_CHARACTERS
    assert "\0" not in found.text
    found.bare.encode()
    assert all(term.strip() for term in found.terms)


@pytest.mark.promise("M6")
@pytest.mark.parametrize("query", ["word ", "\u20ac", "a\0", "Ann's 'quoted' 7 May 2023, "])
def test_of_a_megabyte_a_page_is_read(query: str) -> None:
    """`python -m bench.growth` has the times of both."""
    whole = query * (1_000_000 // len(query))
    assert len(asked(whole).text) <= MAX_CHARACTERS


@given(
    st.text(),
    st.dictionaries(
        st.text(max_size=8).map(str.lower), st.text(min_size=1, max_size=4), max_size=4
    ),
)
def test_any_text_and_any_names_have_an_answer(query: str, names: dict[str, str]) -> None:
    found = read(query, names, "owner", "agent", NOW)
    assert not found.speakers or sum(found.speakers.values()) == pytest.approx(1)
    found.bare.encode()


@given(st.lists(st.sampled_from(["Ann", "Bertram", "Will", "you", "I", "'s", '"', "and", "did"])))
def test_shares_of_speakers_add_up_to_one(said: list[str]) -> None:
    found = asked(" ".join(said))
    assert not found.speakers or sum(found.speakers.values()) == pytest.approx(1)
    assert all(share > 0 for share in found.speakers.values())
