"""Days that texts name, and the time that questions ask about."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.search.query import days_in, has_time_words, span_of, time_of

FRIDAY = int(datetime(2023, 6, 9, 15, 30, tzinfo=UTC).timestamp() * 1000)
"""When everything here is said: on a Friday, 9 June 2023."""
EPOCH = date(1970, 1, 1)


def day(text: str) -> int:
    return (date.fromisoformat(text) - EPOCH).days


def days(text: str) -> tuple[int, int]:
    """Read `2023-05-07` or `2023-05-01..2023-05-31`."""
    first, _, last = text.partition("..")
    return day(first), day(last or first)


def milliseconds(text: str) -> tuple[int, int]:
    first, last = days(text)
    return first * 86_400_000, (last + 1) * 86_400_000 - 1


TEXTS = {
    # With their year.
    "We met on 7 May 2023 in the park": "2023-05-07",
    "We met on May 7th, 2023": "2023-05-07",
    "It was the 7th of May 2023": "2023-05-07",
    "Moved in on Sept. 3, 2021!": "2021-09-03",
    "logged 2023-05-07T10:00:00Z": "2023-05-07",
    "backup of 2023/05/07": "2023-05-07",
    "invoice for 2023-05": "2023-05-01..2023-05-31",
    "due 13/05/2023": "2023-05-13",
    "due 05/13/2023": "2023-05-13",
    "paid on 13.05.2023": "2023-05-13",
    "paid on 3/6/23": "2023-06-03",
    "that was in March 2022": "2022-03-01..2022-03-31",
    "that was in March of 2022": "2022-03-01..2022-03-31",
    "back in 2016 we moved": "2016-01-01..2016-12-31",
    "I have worked here since 2016": "2016-01-01..2016-12-31",
    "in the summer of 2022": "2022-06-01..2022-08-31",
    "winter 2021 was cold": "2021-12-01..2022-02-28",
    "we stayed 3-7 May 2023": "2023-05-03..2023-05-07",
    "we stayed May 3 to 7, 2023": "2023-05-03..2023-05-07",
    "early in May 2023": "2023-05-01..2023-05-10",
    "mid-May 2023": "2023-05-11..2023-05-20",
    "late May 2023": "2023-05-21..2023-05-31",
    "Friday, 7 April 2023, it rained": "2023-04-07",
    # Without it: the nearest such day, the latest such month.
    "my birthday is May 7th": "2023-05-07",
    "on 20 June there is a concert": "2023-06-20",
    "on December 28 we were away": "2022-12-28",
    "I will be away on December 28": "2023-12-28",
    "I will tell you what I began on June 4": "2023-06-04",
    "I started in May": "2023-05-01..2023-05-31",
    "In November I was in Rome": "2022-11-01..2022-11-30",
    "I will be in Rome in November": "2023-11-01..2023-11-30",
    "last March was hard": "2023-03-01..2023-03-31",
    "last July was hard": "2022-07-01..2022-07-31",
    "next March": "2024-03-01..2024-03-31",
    "in May last year": "2022-05-01..2022-05-31",
    "rent is due on the 7th": "2023-07-07",
    "I paid on the 7th": "2023-06-07",
    # Near days.
    "I went there yesterday": "2023-06-08",
    "what a night last night": "2023-06-08",
    "the day before yesterday we left": "2023-06-07",
    "Today was fun": "2023-06-09",
    "see you tonight": "2023-06-09",
    "I called her this morning": "2023-06-09",
    "tomorrow I fly": "2023-06-10",
    "the day after tomorrow": "2023-06-11",
    "I saw him the other day": "2023-06-02..2023-06-08",
    # Days of the week.
    "we talked on Tuesday": "2023-06-06",
    "we talked last Tuesday": "2023-06-06",
    "we talked last Friday": "2023-06-02",
    "last Fri we baked": "2023-06-02",
    "on Friday I baked": "2023-06-02",
    "I will bake on Tuesday": "2023-06-13",
    "I am meeting Anna on Tuesday": "2023-06-13",
    "next Tuesday": "2023-06-13",
    "this Sunday": "2023-06-11",
    "this past Sunday": "2023-06-04",
    "Tuesday of last week": "2023-05-30",
    "Tuesday next week": "2023-06-13",
    # Weeks, months, years.
    "last week was long": "2023-05-29..2023-06-04",
    "this week": "2023-06-05..2023-06-11",
    "next week": "2023-06-12..2023-06-18",
    "in the past week": "2023-06-02..2023-06-09",
    "over the last two weeks": "2023-05-26..2023-06-09",
    "last weekend": "2023-06-03..2023-06-04",
    "over the weekend I slept": "2023-06-03..2023-06-04",
    "this weekend": "2023-06-10..2023-06-11",
    "next weekend": "2023-06-10..2023-06-11",
    "last month": "2023-05-01..2023-05-31",
    "next month": "2023-07-01..2023-07-31",
    "last year": "2022-01-01..2022-12-31",
    "late last year": "2022-08-31..2022-12-31",
    "last quarter": "2023-01-01..2023-03-31",
    "last summer": "2022-06-01..2022-08-31",
    "over the winter I knitted": "2022-12-01..2023-02-28",
    # Counted.
    "three days ago": "2023-06-06",
    "an hour ago": "2023-06-09",
    "a few days ago": "2023-06-03..2023-06-07",
    "two weeks ago": "2023-05-23..2023-05-29",
    "a couple of weeks back": "2023-05-16..2023-05-29",
    "a month ago": "2023-04-24..2023-05-24",
    "10 years ago": "2013-01-01..2013-12-31",
    "half a year ago": "2022-11-24..2022-12-24",
    "a year and a half ago": "2021-11-24..2021-12-24",
    "two days from now": "2023-06-11",
    "I will know in two weeks": "2023-06-20..2023-06-26",
    "I've had them for 3 years now": "2020-01-01..2020-12-31",
    # By another day.
    "the week before 9 June 2023": "2023-06-02..2023-06-08",
    "the Friday before 15 July 2023": "2023-07-14",
    "the Monday after 15 July 2023": "2023-07-17",
    "the weekend before 15 June 2023": "2023-06-10..2023-06-11",
    "the week of 7 June 2023": "2023-06-05..2023-06-11",
    "three days after 1 May 2023": "2023-05-04",
    "the day before Christmas": "2022-12-23",
    "the first weekend of August 2022": "2022-08-06..2022-08-07",
    "the last week of May 2023": "2023-05-25..2023-05-31",
    "the second half of September 2022": "2022-09-16..2022-09-30",
    # Feasts.
    "last Christmas": "2022-12-24..2022-12-26",
    "on New Year's Eve": "2022-12-31",
    "at Easter 2023": "2023-04-07..2023-04-10",
    "over Thanksgiving": "2022-11-24",
    "on Valentine\u2019s Day": "2023-02-14",
    # Several: together when they are near, else the narrowest.
    "yesterday and last Tuesday": "2023-06-06..2023-06-08",
    "between March and May": "2023-03-01..2023-05-31",
    "from March 3 to May 5, 2022": "2022-03-03..2022-05-05",
    "from November to February 2023": "2022-11-01..2023-02-28",
    "I moved in 2016 and again on 3 June 2020": "2020-06-03",
}
NO_DAY = [
    "",
    "hello there",
    "you may come in",
    "May I ask you something? It may be late.",
    "we march on",
    "April said that August is tall",
    "30 February 2023 and 31/31/2023",
    "I run every Monday and on Fridays",
    "Saturday and Sunday mornings are mine",
    "write 2000 words for $2020",
    "version 1.2.10, open 24/7",
    "it is on the 7th floor",
    "the last day of school",
    "a Christmas song",
    "I fall for spring rolls",
    "I finished it in two weeks",
    "in 1938 he was born",
    "call 555-2016 or room 2016",
]
QUESTIONS = {
    "What did I do in May?": "2023-05-01..2023-05-31",
    "What did I do in July?": "2022-07-01..2022-07-31",
    "what happened on 8 may 2023": "2023-05-08",
    "What happened on 8 May?": "2023-05-08",
    "What happened on 8 August?": "2022-08-08",
    "What did Ann say last Tuesday?": "2023-06-06",
    "What did we cook two weeks ago?": "2023-05-23..2023-05-29",
    "Where was I in the summer of 2022?": "2022-06-01..2022-08-31",
    "What did I buy between March and May?": "2023-03-01..2023-05-31",
    "What did I buy between 3 March and 5 May 2022?": "2022-03-03..2022-05-05",
    "How often did I run this year?": "2023-01-01..2023-12-31",
    "What did I know before June 2022?": "1970-01-01..2022-05-31",
    "What did I learn after June 2022?": "2022-07-01..2023-06-09",
    "What did I learn since June 2022?": "2022-06-01..2023-06-09",
    "What did I eat until June 2022?": "1970-01-01..2022-06-30",
    "How many cats had Ann, as of May 2023?": "1970-01-01..2023-05-31",
    "What about my 2021 trip?": "2021-01-01..2021-12-31",
    "Who won on the Saturday after 6 May 2023?": "2023-05-13",
    "What did I read in May 2022 and in June 2023?": "2022-05-01..2023-06-30",
    "What is planned after next week?": "2023-06-19..9998-12-31",
    "What did I write at the end of May?": "2023-05-21..2023-05-31",
}


@pytest.mark.promise("M6")
@pytest.mark.parametrize("text", TEXTS)
def test_text_names_days_seen_from_when_it_was_said(text: str) -> None:
    assert days_in(text, FRIDAY) == days(TEXTS[text])
    assert has_time_words(text)


@pytest.mark.parametrize("text", NO_DAY)
def test_text_without_days_names_none(text: str) -> None:
    assert days_in(text, FRIDAY) == (-1, -1)


@pytest.mark.promise("M6")
@pytest.mark.parametrize("question", QUESTIONS)
def test_question_asks_about_a_span(question: str) -> None:
    assert span_of(question, FRIDAY) == milliseconds(QUESTIONS[question])


@pytest.mark.parametrize(
    "question", ["What may I do?", "", "Who is April?", "What did I paint recently?"]
)
def test_question_without_time_has_no_span(question: str) -> None:
    assert span_of(question, FRIDAY) is None


@pytest.mark.parametrize(
    ("question", "dated"),
    [("in May 2022?", True), ("on 2022-05-07?", True), ("in May?", False), ("last week?", False)],
)
def test_span_with_its_year_is_told_from_one_counted_from_now(question: str, dated: bool) -> None:
    found = time_of(f"What did I do {question}", FRIDAY)
    assert found is not None
    assert found[2] is dated


@pytest.mark.parametrize("text", ["The doctor may come", "You may be right", "a fall", "hello"])
def test_words_that_only_look_like_time_are_not_of_time(text: str) -> None:
    assert not has_time_words(text)


@given(st.text(), st.integers(-(2**62), 2**62))
def test_any_text_at_any_time_has_an_answer(text: str, at: int) -> None:
    first, last = days_in(text, at)
    assert (first, last) == (-1, -1) or 0 <= first <= last
    span = span_of(text, at)
    assert span is None or 0 <= span[0] <= span[1]
    has_time_words(text)


WORDS = sorted(
    {word for text in (*TEXTS, *QUESTIONS) for word in text.lower().split()}
    | {"0", "00", "31", "9999", "2099", "-", "\u2013", "/", "\0", "\ud800"}
)


@given(
    st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join),
    st.integers(0, 253_402_300_799_000),
)
def test_any_mixture_of_words_of_time_has_an_answer(text: str, at: int) -> None:
    first, last = days_in(text, at)
    assert (first, last) == (-1, -1) or 0 <= first <= last
    span = span_of(text, at)
    assert span is None or 0 <= span[0] <= span[1]


@given(st.dates(date(1990, 1, 1), date(2060, 1, 1)), st.integers(0, 400))
def test_every_written_date_is_read_whenever_it_is_said(named: date, later: int) -> None:
    at = (named - EPOCH + timedelta(days=later)) // timedelta(milliseconds=1)
    expected = ((named - EPOCH).days,) * 2
    for pattern in ("%d %B %Y", "%B %d, %Y", "%Y-%m-%d", "%d %b %Y"):
        assert days_in(f"it was on {named.strftime(pattern)}.", at) == expected


@given(st.dates(date(1990, 1, 1), date(2060, 1, 1)))
def test_last_weekday_lies_in_the_seven_days_before(said: date) -> None:
    at = (said - EPOCH) // timedelta(milliseconds=1)
    for number, name in enumerate(("Monday", "Wednesday", "Sunday")):
        first, last = days_in(f"last {name}", at)
        assert first == last
        found = EPOCH + timedelta(days=first)
        assert found.weekday() == (0, 2, 6)[number]
        assert timedelta(days=1) <= said - found <= timedelta(days=7)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "text",
    [
        "1 " * 100_000,
        "may " * 100_000,
        "in the last two " * 50_000,
        "5 may" + " " * 200_000 + "and 6 may",
        "the week before " * 50_000,
        "2023-" * 100_000,
        "on the " * 100_000,
        "\u0130" * 100_000 + " yesterday",
    ],
)
def test_hostile_text_is_read(text: str) -> None:
    """`python -m bench.growth` has how the time grows with the text."""
    days_in(text, FRIDAY)
    span_of(text, FRIDAY)
