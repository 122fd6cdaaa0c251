"""Spans of the calendar in days since 1970: months, weeks, seasons, feasts."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from datetime import date

from asterism.records import dataclass

_EPOCH = date(1970, 1, 1).toordinal()
LAST_DAY = date(9998, 12, 31).toordinal() - _EPOCH

Span = tuple[int, int]
"""The first and the last day."""


def day_number(year: int, month: int, day: int) -> int:
    """Return a day of the calendar as days since 1970; a ValueError, if there is no such day."""
    return date(year, month, day).toordinal() - _EPOCH


def date_of(day: int) -> date:
    """Return the date of a day since 1970."""
    return date.fromordinal(day + _EPOCH)


def month(year: int, number: int) -> Span:
    """Return a month; its number may be out of 1 to 12 and then counts into other years."""
    year, number = year + (number - 1) // 12, (number - 1) % 12 + 1
    first = day_number(year, number, 1)
    return first, first + monthrange(year, number)[1] - 1


def year(number: int) -> Span:
    """Return a year."""
    return day_number(number, 1, 1), day_number(number, 12, 31)


def months_from(day: int, count: int) -> int:
    """Return the same day of the month some months on; the last one, if that month is shorter."""
    start = date_of(day)
    first, last = month(start.year, start.month + count)
    return min(first + start.day - 1, last)


def weekday(day: int) -> int:
    """Return 0 for a Monday to 6 for a Sunday."""
    return (day + 3) % 7


def week(day: int) -> Span:
    """Return the week of a day, from Monday to Sunday."""
    first = day - weekday(day)
    return first, first + 6


def weekday_before(day: int, wanted: int) -> int:
    """Return the latest such day of the week before a day."""
    return day - ((weekday(day) - wanted - 1) % 7 + 1)


def weekday_after(day: int, wanted: int) -> int:
    """Return the first such day of the week after a day."""
    return day + ((wanted - weekday(day) - 1) % 7 + 1)


def season(of: int, number: int) -> Span:
    """Return spring, summer, autumn or winter (0 to 3) of the north; winter ends a year later."""
    return month(of, 3 + 3 * number)[0], month(of, 5 + 3 * number)[1]


def easter(of: int) -> int:
    """Return Easter Sunday, by the anonymous Gregorian computus."""
    golden, century = of % 19, of // 100
    leaps = century - century // 4 - (8 * century + 13) // 25
    moon = (leaps + 19 * golden + 15) % 30
    moon -= moon // 28 * (1 - moon // 28 * (29 // (moon + 1)) * ((21 - golden) // 11))
    sunday = (of + of // 4 + moon + 2 - century + century // 4) % 7
    offset = moon - sunday
    number = 3 + (offset + 40) // 44
    return day_number(of, number, offset + 28 - 31 * (number // 4))


def feast(of: int, name: str) -> Span:
    """Return the days of a feast in a year, such as `christmas`."""
    if name == "easter":
        sunday = easter(of)
        return sunday - 2, sunday + 1
    if name == "thanksgiving":
        # The fourth Thursday of November, as in the United States.
        day = weekday_after(day_number(of, 10, 31), 3) + 21
        return day, day
    first, last = FEASTS[name]
    start = day_number(of, *first)
    return start, start + last


FEASTS: dict[str, tuple[tuple[int, int], int]] = {
    "christmas": ((12, 24), 2),
    "xmas": ((12, 24), 2),
    "christmas eve": ((12, 24), 0),
    "christmas day": ((12, 25), 0),
    "boxing day": ((12, 26), 0),
    "new year's eve": ((12, 31), 0),
    "new year's day": ((1, 1), 0),
    "new year's": ((12, 31), 1),
    "new year": ((12, 31), 1),
    "halloween": ((10, 31), 0),
    "valentine's day": ((2, 14), 0),
    "valentine's": ((2, 14), 0),
    "independence day": ((7, 4), 0),
}
"""Month and day that a feast begins on, and how many days follow."""


MONTHS = {
    "january": 1,
    "jan": 1,
    "february": 2,
    "feb": 2,
    "march": 3,
    "mar": 3,
    "april": 4,
    "apr": 4,
    "may": 5,
    "june": 6,
    "jun": 6,
    "july": 7,
    "jul": 7,
    "august": 8,
    "aug": 8,
    "september": 9,
    "sept": 9,
    "sep": 9,
    "october": 10,
    "oct": 10,
    "november": 11,
    "nov": 11,
    "december": 12,
    "dec": 12,
}
WEEKDAYS = {
    "monday": 0,
    "mon": 0,
    "tuesday": 1,
    "tues": 1,
    "tue": 1,
    "wednesday": 2,
    "wed": 2,
    "thursday": 3,
    "thurs": 3,
    "thu": 3,
    "friday": 4,
    "fri": 4,
    "saturday": 5,
    "sat": 5,
    "sunday": 6,
    "sun": 6,
}
SEASONS = {"spring": 0, "summer": 1, "autumn": 2, "fall": 2, "winter": 3}
COUNTS = {
    "an": 1,
    "a": 1,
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
}

_PART = re.compile(
    r"\b(?:(?P<early>early|(?:beginning|start)\s+of)|(?P<mid>mid|(?:the\s+)?middle\s+of)|"
    r"(?P<late>late|(?:the\s+)?end\s+of))[\s-]+(?:in\s+)?(?:the\s+)?$"
)
_FUTURE = re.compile(
    r"\b(?:will|won[\u2019']t|shall|gonna|going\s+to|plans?\s+(?:to|on|for)|planning|looking\s+forward|"
    r"can[\u2019']t\s+wait|hop(?:e|ing)\s+to|upcoming|coming\s+up|scheduled|due(?!\s+to)|deadline|see\s+you|"
    r"let[\u2019']s|about\s+to)\b|[\u2019']ll\b|"
    r"(?:\b(?:am|is|are)|[\u2019'](?:m|re))\s+(?:going|having|hosting|meeting|leaving|starting|taking)\b"
)
_STOP = re.compile(r"[.!?\n;]")
_REACH = 120
"""A sentence is looked at so far either way for what tells its tense."""


@dataclass(slots=True)
class Mention:
    """Days that a part of a text names."""

    start: int
    end: int
    first: int
    last: int
    form: str
    month_day: tuple[int, int, int] | None = None
    """Month, first and last day (0: the whole month) of a date without its year."""
    year: int | None = None
    """The year, where it is written."""
    offset: tuple[str, str, int] | None = None
    """What lies by another mention: a unit or weekday, `before`, `after` or `of`, how many."""
    part: int = 0
    """Which of the units within the other mention: the first is 1, the last -1."""


@dataclass(slots=True)
class DatedText:
    """A text in lower case, the day on which it was said, and whether it is a question."""

    text: str
    day: int
    is_question: bool

    def sentence(self, match: re.Match[str]) -> str:
        """Return the sentence around a part of the text, without that part."""
        before = self.text[max(0, match.start() - _REACH) : match.start()]
        after = self.text[match.end() : match.end() + _REACH]
        return _STOP.split(before)[-1] + " " + _STOP.split(after, maxsplit=1)[0]

    def ahead(self, match: re.Match[str]) -> bool:
        """Tell whether the sentence around a part of the text speaks of what is to come."""
        return _FUTURE.search(self.sentence(match)) is not None


def narrow_to_part(text: str, mention: Mention) -> None:
    """Keep a third of a month, season or year that is called its beginning, middle or end."""
    part = _PART.search(text[max(0, mention.start - 24) : mention.start])
    if part is None or mention.last - mention.first < 6:
        return
    third = (mention.last - mention.first + 1) // 3
    which = ("early", "mid", "late").index(part.lastgroup or "")
    mention.first += which * third
    if which < 2:
        mention.last = mention.first + third - 1


DIVISIBLE = frozenset(("month_year", "month", "season", "unit", "year"))


_VAGUE_COUNTS = {"couple": (2, 3), "few": (2, 6), "several": (3, 8)}
_OVER = frozenset(("last", "past", "previous", "this past"))
_TO_COME = frozenset(("next", "coming", "upcoming"))

_AMBIGUOUS = frozenset(("march", "april", "may", "june", "august"))
"""Months whose names are other words or people too: alone they count after a word such as `in`."""
_BEFORE_MONTH = re.compile(
    r"(?:\b(?:in|of|during|since|until|till|by|before|after|from|between|through|to|and|around|the|"
    r"early|late|mid|end|past)\s+|\bmid-|[-/\u2013]\s*)$"
)
_VERB_AFTER = re.compile(
    r"\s+(?:be|have|not|also|need|want|seem|look|help|take|still|include|require|cause|do|go|get|"
    r"come|make|vary|differ|only|even|well|or|i|we|you|he|she|they|it)\b"
)
_SURE = 60
"""The nearest such date is meant, whatever the tense, if it lies within so many days."""
_Found = Mention | Span | None


def _iso(match: re.Match[str], _dated_text: DatedText) -> _Found:
    year = int(match["iso_y"])
    if match["iso_o"]:
        first, last = month(year, _month(int(match["iso_o"])))
        return Mention(match.start(), match.end(), first, last, "month", year=year)
    day = day_number(year, int(match["iso_m"]), int(match["iso_d"]))
    return Mention(match.start(), match.end(), day, day, "date", year=year)


def _month(number: int) -> int:
    if not 1 <= number <= 12:
        raise ValueError(number)
    return number


def _slashes(match: re.Match[str], dated: DatedText) -> _Found:
    """Read 07/05/2023 as the 7th of May or the 5th of July: the nearer to when it was said."""
    first, second, year = int(match["s_a"]), int(match["s_b"]), int(match["s_y"])
    year += 2000 if year < 100 else 0
    if not 1970 <= year < 2100:
        return None
    possible: list[int] = []
    for month, day in ((second, first), (first, second)):
        try:
            possible.append(day_number(year, month, day))
        except ValueError:
            continue
    if not possible:
        return None
    day = min(possible, key=lambda span: abs(span - dated.day))
    return Mention(match.start(), match.end(), day, day, "date", year=year)


def _day_month(match: re.Match[str], dated: DatedText) -> _Found:
    return _dated(match, dated, match["dm_m"], match["dm_a"], match["dm_b"], match["dm_y"])


def _month_day(match: re.Match[str], dated: DatedText) -> _Found:
    return _dated(match, dated, match["md_m"], match["md_a"], match["md_b"], match["md_y"])


def _dated(
    match: re.Match[str],
    dated: DatedText,
    name: str,
    first: str,
    last: str | None,
    year: str | None,
) -> _Found:
    if name == "may" and not year and _VERB_AFTER.match(dated.text, match.end()):
        return None
    month, start, end = MONTHS[name], int(first), int(last or first)
    mention = Mention(match.start(), match.end(), 0, 0, "date", (month, start, end))
    if year:
        mention.year = int(year)
        mention.month_day = None
        mention.first = day_number(mention.year, month, start)
        mention.last = day_number(mention.year, month, end)
        return mention if mention.first <= mention.last else None
    spans = _in_years(dated, lambda of: (day_number(of, month, start), day_number(of, month, end)))
    nearest = min(spans, key=lambda span: abs(span[0] - dated.day))
    if dated.is_question or abs(nearest[0] - dated.day) > _SURE:
        nearest = _latest_or_next(spans, dated.day, ahead=dated.ahead(match))
    mention.first, mention.last = nearest
    return mention if mention.first <= mention.last else None


def _in_years(dated: DatedText, of: Callable[[int], Span]) -> list[Span]:
    """Return what `of` gives for the years around, without those that have no such day."""
    around = date_of(dated.day).year
    spans: list[Span] = []
    for year in range(around - 4, around + 5):
        try:
            spans.append(of(year))
        except ValueError:
            continue
    if not spans:
        raise ValueError(around)
    return spans


def _latest_or_next(spans: list[Span], day: int, *, ahead: bool) -> Span:
    """Return the latest span that has begun, or the first that has not ended, if it is to come."""
    if ahead:
        return next((span for span in spans if span[1] >= day), spans[-1])
    return next((span for span in reversed(spans) if span[0] <= day), spans[0])


def _which(spans: list[Span], day: int, which: str) -> Span:
    """Return the last one that is over, the next to begin, or the one that is nearest to now."""
    if which in _OVER:
        return next((span for span in reversed(spans) if span[1] < day), spans[0])
    if which in _TO_COME:
        return next((span for span in spans if span[0] > day), spans[-1])
    return min(spans, key=lambda span: max(span[0] - day, day - span[1], 0))


def _month_year(match: re.Match[str], _dated_text: DatedText) -> _Found:
    year = int(match["my_y"])
    first, last = month(year, MONTHS[match["my_m"]])
    return Mention(match.start(), match.end(), first, last, "month", year=year)


def _month_alone(match: re.Match[str], dated: DatedText) -> _Found:
    name, which = match["m_m"], match["m_q"]
    if name in _AMBIGUOUS and not which and not match["m_y"]:
        if not _BEFORE_MONTH.search(dated.text[max(0, match.start() - 12) : match.start()]):
            return None
        if _VERB_AFTER.match(dated.text, match.end()) and name == "may":
            return None
    number = MONTHS[name]
    if match["m_y"]:
        year = date_of(dated.day).year + {"last": -1, "this": 0, "next": 1}[match["m_y"]]
        first, last = month(year, number)
        return Mention(match.start(), match.end(), first, last, "month", year=year)
    spans = _in_years(dated, lambda of: month(of, number))
    if which:
        first, last = _which(spans, dated.day, which)
        return Mention(match.start(), match.end(), first, last, "month")
    ahead = dated.ahead(match)
    first, last = _latest_or_next(spans, dated.day, ahead=ahead)
    return Mention(match.start(), match.end(), first, last, "month", (number, 0, 0))


_BESIDE = re.compile(
    r"\b(?:before|after|following|prior\s+to|(?:day|week|weekend|month|end|start|beginning|middle|"
    r"rest|half|part)\s+of)\s+(?:the\s+)?$"
)


def _season(match: re.Match[str], dated: DatedText) -> _Found:
    number = SEASONS[match["se_s"]]
    return _yearly(
        match, dated, lambda of: season(of, number), match["se_q"], match["se_p"], match["se_y"]
    )


def _feast(match: re.Match[str], dated: DatedText) -> _Found:
    name = " ".join(match["f_f"].replace("\u2019", "'").split())
    name = re.sub(r"^(new year|valentine)s\b", r"\1's", name)
    return _yearly(
        match, dated, lambda of: feast(of, name), match["f_q"], match["f_p"], match["f_y"]
    )


def _yearly(
    match: re.Match[str],
    dated: DatedText,
    of: Callable[[int], Span],
    which: str | None,
    before: str | None,
    year: str | None,
) -> _Found:
    """Read what comes once a year; by itself it says too little: a song is of Christmas too."""
    if year:
        first, last = of(int(year))
        return Mention(match.start(), match.end(), first, last, "yearly", year=int(year))
    if (
        not which
        and not before
        and not _BESIDE.search(dated.text[max(0, match.start() - 20) : match.start()])
    ):
        return None
    spans = _in_years(dated, of)
    if which:
        return _which(spans, dated.day, which)
    return _latest_or_next(spans, dated.day, ahead=dated.ahead(match))


_NEAR = {
    "yesterday": (-1, -1),
    "last night": (-1, -1),
    "tomorrow": (1, 1),
    "day before yesterday": (-2, -2),
    "day after tomorrow": (2, 2),
    "other day": (-7, -1),
    "other night": (-7, -1),
}


def _near(match: re.Match[str], dated: DatedText) -> _Found:
    first, last = _NEAR.get(re.sub(r"\s+", " ", match[0]).removeprefix("the "), (0, 0))
    return dated.day + first, dated.day + last


def _unit(match: re.Match[str], dated: DatedText) -> _Found:
    which, unit, count = match["u_q"], match["u_u"].rstrip("s"), match["u_n"]
    # "The last week" is the seven days until now, "last week" the one before this one.
    rolling = count is not None or which == "past" or (match["u_the"] and which == "last")
    if unit == "day" and not rolling:
        return None
    if unit == "weekend":
        return _weekends(dated.day, which, _count(count)[0])
    if which in _OVER:
        if rolling:
            return _moved(dated.day, unit, -_count(count)[1]), dated.day
        return _calendar(dated.day, unit, -1)
    if which in _TO_COME:
        if rolling:
            return dated.day, _moved(dated.day, unit, _count(count)[1])
        return _calendar(dated.day, unit, 1)
    return None if count else _calendar(dated.day, unit, 0)


def _weekends(day: int, which: str, count: int) -> Span:
    if which in _OVER:
        first, last = _weekend_before(day)
        return first - 7 * (count - 1), last
    first = weekday_after(day, 5) if which in _TO_COME else week(day)[0] + 5
    return first, first + 1


def _weekend_before(day: int) -> Span:
    first = week(day)[0] - 2
    return first, first + 1


def _calendar(day: int, unit: str, move: int) -> Span:
    """Return the week, month, quarter, year or decade of a day, or one that lies some on."""
    today = date_of(day)
    if unit == "week":
        return week(day + 7 * move)
    if unit == "month":
        return month(today.year, today.month + move)
    if unit == "quarter":
        first = (today.month - 1) // 3 * 3 + 1 + 3 * move
        return month(today.year, first)[0], month(today.year, first + 2)[1]
    if unit == "year":
        return year(today.year + move)
    first = today.year // 10 * 10 + 10 * move
    return year(first)[0], year(first + 9)[1]


def _moved(day: int, unit: str, count: int) -> int:
    """Return the day some days, weeks, months or years on."""
    per_month = {"month": 1, "quarter": 3, "year": 12, "decade": 120}
    if unit in per_month:
        return months_from(day, per_month[unit] * count)
    return day + count * (7 if unit in ("week", "weekend") else 1)


def _count(text: str | None) -> tuple[int, int]:
    """Return the least and the most that a count may mean: `a few` are two to six."""
    if text is None:
        return 1, 1
    if text.isdecimal():
        return int(text), int(text)
    for word in text.split():
        if word in _VAGUE_COUNTS:
            return _VAGUE_COUNTS[word]
    number = COUNTS[text]
    return number, number


def _weekday(match: re.Match[str], dated: DatedText) -> _Found:
    which, wanted = match["w_q"], WEEKDAYS[match["w_d"]]
    if match["w_s"] or which in ("every", "each", "most"):
        return None
    if match["w_w"]:
        move = {"last": -7, "this": 0, "next": 7}[match["w_w"]]
        day = week(dated.day + move)[0] + wanted
        return day, day
    return _weekday_by(match, dated, which, wanted)


def _weekday_short(match: re.Match[str], dated: DatedText) -> _Found:
    return _weekday_by(match, dated, match["ws_q"], WEEKDAYS[match["ws_d"]])


def _weekday_by(match: re.Match[str], dated: DatedText, which: str | None, wanted: int) -> Span:
    if which in ("this", "current"):
        day = weekday_after(dated.day - 1, wanted)
    elif which in _TO_COME or (not which and dated.ahead(match)):
        day = weekday_after(dated.day, wanted)
    else:
        day = weekday_before(dated.day, wanted)
    return day, day


def _weekend(match: re.Match[str], dated: DatedText) -> _Found:
    if dated.ahead(match):
        first = week(dated.day)[0] + 5
        return first, first + 1
    return _weekend_before(dated.day)


def _counted(match: re.Match[str], dated: DatedText) -> _Found:
    unit, tail = match["c_u"].rstrip("s"), match["c_t"].split()[0]
    if match["c_n"].startswith("half"):
        unit, least, most = _halved(unit, 0)
    else:
        least, most = _count(match["c_n"])
        if match["c_h"]:
            unit, least, most = _halved(unit, least)
    if unit == "hour":
        least = most = least // 24
    unit = "day" if unit in ("hour", "night") else unit
    if tail in ("before", "after", "prior"):
        way = "after" if tail == "after" else "before"
        return Mention(match.start(), match.end(), 0, 0, "offset", offset=(unit, way, least))
    sign = 1 if tail == "from" else -1
    return _around(dated.day, unit, sign * least, sign * most)


_GOES_ON = re.compile(r"\b(?:have|has|had|been)\b|[\u2019'](?:ve|s)\b")


def _lasting(match: re.Match[str], dated: DatedText) -> _Found:
    """Read `I have had them for three years now` as when it began."""
    if not match["l_now"] and not (match["l_for"] and _GOES_ON.search(dated.sentence(match))):
        return None
    if dated.is_question:
        return None
    least, most = _count(match["l_n"])
    return _around(dated.day, match["l_u"].rstrip("s"), -least, -most)


_ORDINALS = {
    "first": 1,
    "second": 2,
    "third": 3,
    "fourth": 4,
    "last": -1,
    "final": -1,
    "1st": 1,
    "2nd": 2,
    "3rd": 3,
    "4th": 4,
}


def _part(match: re.Match[str], _dated_text: DatedText) -> _Found:
    return Mention(
        match.start(),
        match.end(),
        0,
        0,
        "offset",
        offset=(match["p_u"], "of", 1),
        part=_ORDINALS[match["p_n"]],
    )


def _halved(unit: str, count: int) -> tuple[str, int, int]:
    """Return so many and a half of a unit, in the next smaller one."""
    smaller, times = {"year": ("month", 12), "month": ("week", 4), "week": ("day", 7)}.get(
        unit, ("day", 1)
    )
    return smaller, count * times + times // 2, count * times + times // 2


def _around(day: int, unit: str, least: int, most: int) -> Span:
    """Return the days that lie so many units away, as exact as the unit is."""
    slack = {"day": 0, "week": 3, "weekend": 3, "month": 15}.get(unit)
    ends = sorted((_moved(day, unit, least), _moved(day, unit, most)))
    if slack is None:
        return _calendar(ends[0], unit, 0)[0], _calendar(ends[1], unit, 0)[1]
    return ends[0] - slack, ends[1] + slack


def _hence(match: re.Match[str], dated: DatedText) -> _Found:
    if not dated.ahead(match):
        return None
    least, most = _count(match["h_n"])
    return _around(dated.day, match["h_u"].rstrip("s"), least, most)


def _beside(match: re.Match[str], _dated_text: DatedText) -> _Found:
    tail = match["b_t"].split()[0]
    way = {"before": "before", "prior": "before", "of": "of"}.get(tail, "after")
    return Mention(match.start(), match.end(), 0, 0, "offset", offset=(match["b_u"], way, 1))


def _day_alone(match: re.Match[str], dated: DatedText) -> _Found:
    number = int(match["d_d"])
    today = date_of(dated.day)
    spans: list[Span] = []
    for move in range(-2, 3):
        first, last = month(today.year, today.month + move)
        if 1 <= number <= last - first + 1:
            spans.append((first + number - 1, first + number - 1))
    if not spans:
        return None
    return _latest_or_next(spans, dated.day, ahead=dated.ahead(match))


_BEFORE_YEAR = re.compile(
    r"(?:\b(?:in|of|since|during|until|till|by|before|after|from|to|and|between|through|around|year|"
    r"the|early|late|mid|end|circa|back|,)\s+|mid-|[(\u2013]\s*|')$"
)


def _year(match: re.Match[str], dated: DatedText) -> _Found:
    before = dated.text[max(0, match.start() - 12) : match.start()]
    if not dated.is_question and not _BEFORE_YEAR.search(before):
        return None
    number = int(match["y_y"])
    return Mention(match.start(), match.end(), *year(number), "year", year=number)


READINGS: dict[str, Callable[[re.Match[str], DatedText], Mention | Span | None]] = {
    "iso": _iso,
    "slashes": _slashes,
    "day_month": _day_month,
    "month_day": _month_day,
    "month_year": _month_year,
    "month": _month_alone,
    "season": _season,
    "feast": _feast,
    "near": _near,
    "part": _part,
    "unit": _unit,
    "weekday": _weekday,
    "weekday_short": _weekday_short,
    "weekend": _weekend,
    "count": _counted,
    "hence": _hence,
    "lasting": _lasting,
    "beside": _beside,
    "day_alone": _day_alone,
    "year": _year,
}
"""How each form is read: as days, as a mention with more to it, or as nothing after all."""
