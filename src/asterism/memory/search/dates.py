"""The days that a text speaks of, counted from when it was said, and the time asked about."""

from __future__ import annotations

import re

from asterism.memory.search import days as on
from asterism.memory.search.date_context import WEEKDAYS, Mention
from asterism.memory.search.date_forms import (
    WORDS_OF_DAYS,
    has_words,
    may_name_days,
    mentions,
)
from asterism.memory.search.days import Span

_DAY = 86_400_000
_MOST_READ = 2_000
"""A page has said in so many characters which days it is about."""
_NARROW = 14
"""Days within so many are taken together; of others the narrowest is taken."""
_NONE = (-1, -1)

_TIME_WORDS = (WORDS_OF_DAYS - {b"may", b"mar", b"sat", b"sun", b"fall"}) | frozenset(
    b"last next ago since until till yearly monthly weekly hours minutes recently".split()
)
_MAY = re.compile(
    r"(?i)\b(?:in|of|during|since|until|by|before|after|last|next|this)\s+may\b|\bmay\s+\d"
)


def days_in(text: str, at: int) -> tuple[int, int]:
    """Return the first and last day that a text said at `at` names, in days since 1970.

    (-1, -1) stands for none, days before 1970 too. Several days that lie close together are taken
    together; else those of the narrowest mention are returned.
    """
    text = text[:_MOST_READ]
    if not may_name_days(text):
        return _NONE
    text = text.lower()
    found = _joined(text, mentions(text, _day_of(at), asked=False))
    named = [(max(one.first, 0), one.last) for one in found if one.last >= 0]
    if not named:
        return _NONE
    first, last = min(one[0] for one in named), max(one[1] for one in named)
    return (first, last) if last - first < _NARROW else min(named, key=lambda one: one[1] - one[0])


def has_time_words(text: str) -> bool:
    """Tell whether a text has a word of time, such as `yesterday`, `in May` or `three weeks`."""
    if has_words(text, _TIME_WORDS):
        return True
    return "ay" in text and _MAY.search(text) is not None


def span_of(question: str, now: int) -> tuple[int, int] | None:
    """Return the first and last millisecond that a question asks about; None: it names no time."""
    time = time_of(question, now)
    return time[:2] if time else None


def time_of(question: str, now: int) -> tuple[int, int, bool] | None:
    """Return what `span_of` does, and whether the question writes a year: the span is sure then."""
    question = question[:_MOST_READ]
    if not may_name_days(question):
        return None
    question, today = question.lower(), _day_of(now)
    found = _joined(question, mentions(question, today, asked=True))
    spans = [_bounded(question, one, today) for one in found]
    spans = [(max(first, 0), last) for first, last in spans if last >= max(first, 0)]
    if not spans:
        return None
    first, last = min(one[0] for one in spans), max(one[1] for one in spans)
    return first * _DAY, last * _DAY + _DAY - 1, any(one.year for one in found)


def _day_of(at: int) -> int:
    return min(max(at // _DAY, 0), on.LAST_DAY - 40_000)


_BOUND = re.compile(
    r"\b(?:(?P<before>before|prior\s+to|earlier\s+than)|(?P<after>after|later\s+than)|(?P<since>since|"
    r"starting(?:\s+(?:in|from|on))?)|(?P<until>until|till|up\s+to|as\s+of))\s+(?:(?:the|early|mid|late)\s+)*$"
)


def _bounded(text: str, one: Mention, today: int) -> Span:
    """Return the days before, after, since or until a mention, if such a word stands before it."""
    if one.form in ("offset", "range"):
        return one.first, one.last
    # Some forms take the word before them in.
    word = _BOUND.search(text[max(0, one.start - 24) : one.start]) or _INSIDE.match(
        text[one.start : one.end]
    )
    if word is None:
        return one.first, one.last
    if word.lastgroup == "before":
        return 0, one.first - 1
    if word.lastgroup == "until":
        return 0, one.last
    end = today if one.last <= today else on.LAST_DAY
    return (one.last + 1 if word.lastgroup == "after" else one.first), end


_INSIDE = re.compile(r"(?P<before>before)|(?P<after>after)|(?P<since>since)|(?P<until>until|till)")
_BETWEEN = re.compile(
    r"\s*,?\s*(?P<word>and|to|until|till|through|thru|-|\u2013|\u2014)\s*(?:the\s+)?$"
)
_OPENS = re.compile(r"\bbetween\s+(?:the\s+)?$")
_FOLLOWS = re.compile(r"[,\s]*(?:the\s+)?$")
_WIDEST_GAP = 20


def _joined(text: str, found: list[Mention]) -> list[Mention]:
    """Put together what belongs together: `from A to B`, `the week before A`, `Friday, A`."""
    joined: list[Mention] = []
    for one in reversed(found):
        after = joined[-1] if joined else None
        near = after is not None and after.start - one.end <= _WIDEST_GAP
        gap = text[one.end : after.start] if after and near else None
        if one.offset is not None:
            if after and gap is not None and _FOLLOWS.fullmatch(gap):
                joined[-1] = _beside(one, after)
            continue
        if after and gap is not None:
            if one.form == "weekday" and after.form == "date" and _FOLLOWS.fullmatch(gap):
                continue
            between = _BETWEEN.fullmatch(gap)
            if between and (
                between["word"] != "and" or _OPENS.search(text[max(0, one.start - 16) : one.start])
            ):
                joined[-1] = _range(one, after)
                continue
        joined.append(one)
    joined.reverse()
    return joined


def _range(one: Mention, other: Mention) -> Mention:
    """Return the days from one mention to another; a year at the end counts for both."""
    if one.month_day and other.year:
        month, first, last = one.month_day
        year = other.year if month <= on.date_of(other.first).month else other.year - 1
        try:
            start = (
                on.month(year, month)
                if not first
                else (on.day_number(year, month, first), on.day_number(year, month, last))
            )
            one.first, one.last = start
        except ValueError:
            return other
    elif one.month_day and other.month_day and one.first > other.last:
        one.first -= 365
    first, last = min(one.first, other.first), max(one.last, other.last)
    return Mention(one.start, other.end, first, last, "range", year=other.year)


def _beside(one: Mention, other: Mention) -> Mention:
    """Return the day, week, weekend … before or after another mention, or a part of it."""
    assert one.offset is not None
    unit, way, count = one.offset
    if one.part:
        first, last = _part_of(unit, one.part, other.first, other.last)
    elif way == "of":
        first, last = _at(unit, other.first, other.last)
    elif unit in WEEKDAYS or unit == "weekend":
        first = _next_to(unit, way, other.first, other.last)
        last = first + (unit == "weekend")
    else:
        size = {"week": 7, "month": 30, "year": 365}.get(unit, 1)
        first, last = _away(size, count if way == "after" else -count, other.first, other.last)
    return Mention(one.start, other.end, first, last, "offset", year=other.year)


def _at(unit: str, first: int, last: int) -> Span:
    """Return the week, weekend or weekday of a day: in that week."""
    monday = on.week(first)[0]
    if unit in WEEKDAYS:
        return monday + WEEKDAYS[unit], monday + WEEKDAYS[unit]
    if last - first > 6 or unit not in ("week", "weekend"):
        return first, last
    return (monday, monday + 6) if unit == "week" else (monday + 5, monday + 6)


def _next_to(unit: str, way: str, first: int, last: int) -> int:
    wanted = WEEKDAYS.get(unit, 5)
    if way == "after":
        return on.weekday_after(last, wanted)
    return on.weekday_before(first if unit in WEEKDAYS else first - 1, wanted)


def _away(size: int, count: int, first: int, last: int) -> Span:
    """Return so many days, weeks … before or after a span; just one: all that lie between."""
    if abs(count) == 1:
        return (last + 1, last + size) if count > 0 else (first - size, first - 1)
    slack = size // 3
    return first + count * size - slack, last + count * size + slack


def _part_of(unit: str, number: int, first: int, last: int) -> Span:
    """Return the first, second … or last of the units in a span."""
    if unit in WEEKDAYS or unit == "weekend":
        wanted = WEEKDAYS.get(unit, 5)
        day = (
            on.weekday_after(first - 1, wanted) + 7 * (number - 1)
            if number > 0
            else on.weekday_before(last + 1, wanted)
        )
        return day, day + (unit == "weekend")
    whole = last - first + 1
    size = {"day": 1, "week": 7, "half": whole // 2, "quarter": whole // 4}[unit]
    start = first + size * (number - 1) if number > 0 else last - size + 1
    return start, min(start + size - 1, last)
