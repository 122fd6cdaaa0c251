"""What each way to name days means, seen from the day on which it was said."""

from __future__ import annotations

import re
from collections.abc import Callable

from asterism.memory.search import days as on
from asterism.memory.search.date_context import COUNTS, MONTHS, SEASONS, WEEKDAYS, Mention, Said
from asterism.memory.search.days import Span

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


def _iso(match: re.Match[str], _said: Said) -> _Found:
    year = int(match["iso_y"])
    if match["iso_o"]:
        first, last = on.month(year, _month(int(match["iso_o"])))
        return Mention(match.start(), match.end(), first, last, "month", year=year)
    day = on.day_number(year, int(match["iso_m"]), int(match["iso_d"]))
    return Mention(match.start(), match.end(), day, day, "date", year=year)


def _month(number: int) -> int:
    if not 1 <= number <= 12:
        raise ValueError(number)
    return number


def _slashes(match: re.Match[str], said: Said) -> _Found:
    """Read 07/05/2023 as the 7th of May or the 5th of July: the nearer to when it was said."""
    first, second, year = int(match["s_a"]), int(match["s_b"]), int(match["s_y"])
    year += 2000 if year < 100 else 0
    if not 1970 <= year < 2100:
        return None
    possible: list[int] = []
    for month, day in ((second, first), (first, second)):
        try:
            possible.append(on.day_number(year, month, day))
        except ValueError:
            continue
    if not possible:
        return None
    day = min(possible, key=lambda one: abs(one - said.day))
    return Mention(match.start(), match.end(), day, day, "date", year=year)


def _day_month(match: re.Match[str], said: Said) -> _Found:
    return _dated(match, said, match["dm_m"], match["dm_a"], match["dm_b"], match["dm_y"])


def _month_day(match: re.Match[str], said: Said) -> _Found:
    return _dated(match, said, match["md_m"], match["md_a"], match["md_b"], match["md_y"])


def _dated(
    match: re.Match[str], said: Said, name: str, first: str, last: str | None, year: str | None
) -> _Found:
    if name == "may" and not year and _VERB_AFTER.match(said.text, match.end()):
        return None
    month, start, end = MONTHS[name], int(first), int(last or first)
    mention = Mention(match.start(), match.end(), 0, 0, "date", (month, start, end))
    if year:
        mention.year = int(year)
        mention.month_day = None
        mention.first = on.day_number(mention.year, month, start)
        mention.last = on.day_number(mention.year, month, end)
        return mention if mention.first <= mention.last else None
    spans = _in_years(
        said, lambda of: (on.day_number(of, month, start), on.day_number(of, month, end))
    )
    nearest = min(spans, key=lambda one: abs(one[0] - said.day))
    if said.asked or abs(nearest[0] - said.day) > _SURE:
        nearest = _latest_or_next(spans, said.day, ahead=said.ahead(match))
    mention.first, mention.last = nearest
    return mention if mention.first <= mention.last else None


def _in_years(said: Said, of: Callable[[int], Span]) -> list[Span]:
    """Return what `of` gives for the years around, without those that have no such day."""
    around = on.date_of(said.day).year
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
        return next((one for one in spans if one[1] >= day), spans[-1])
    return next((one for one in reversed(spans) if one[0] <= day), spans[0])


def _which(spans: list[Span], day: int, which: str) -> Span:
    """Return the last one that is over, the next to begin, or the one that is nearest to now."""
    if which in _OVER:
        return next((one for one in reversed(spans) if one[1] < day), spans[0])
    if which in _TO_COME:
        return next((one for one in spans if one[0] > day), spans[-1])
    return min(spans, key=lambda one: max(one[0] - day, day - one[1], 0))


def _month_year(match: re.Match[str], _said: Said) -> _Found:
    year = int(match["my_y"])
    first, last = on.month(year, MONTHS[match["my_m"]])
    return Mention(match.start(), match.end(), first, last, "month", year=year)


def _month_alone(match: re.Match[str], said: Said) -> _Found:
    name, which = match["m_m"], match["m_q"]
    if name in _AMBIGUOUS and not which and not match["m_y"]:
        if not _BEFORE_MONTH.search(said.text[max(0, match.start() - 12) : match.start()]):
            return None
        if _VERB_AFTER.match(said.text, match.end()) and name == "may":
            return None
    number = MONTHS[name]
    if match["m_y"]:
        year = on.date_of(said.day).year + {"last": -1, "this": 0, "next": 1}[match["m_y"]]
        first, last = on.month(year, number)
        return Mention(match.start(), match.end(), first, last, "month", year=year)
    spans = _in_years(said, lambda of: on.month(of, number))
    if which:
        first, last = _which(spans, said.day, which)
        return Mention(match.start(), match.end(), first, last, "month")
    ahead = said.ahead(match)
    first, last = _latest_or_next(spans, said.day, ahead=ahead)
    return Mention(match.start(), match.end(), first, last, "month", (number, 0, 0))


_BESIDE = re.compile(
    r"\b(?:before|after|following|prior\s+to|(?:day|week|weekend|month|end|start|beginning|middle|"
    r"rest|half|part)\s+of)\s+(?:the\s+)?$"
)


def _season(match: re.Match[str], said: Said) -> _Found:
    number = SEASONS[match["se_s"]]
    return _yearly(
        match, said, lambda of: on.season(of, number), match["se_q"], match["se_p"], match["se_y"]
    )


def _feast(match: re.Match[str], said: Said) -> _Found:
    name = " ".join(match["f_f"].replace("\u2019", "'").split())
    name = re.sub(r"^(new year|valentine)s\b", r"\1's", name)
    return _yearly(
        match, said, lambda of: on.feast(of, name), match["f_q"], match["f_p"], match["f_y"]
    )


def _yearly(
    match: re.Match[str],
    said: Said,
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
        and not _BESIDE.search(said.text[max(0, match.start() - 20) : match.start()])
    ):
        return None
    spans = _in_years(said, of)
    if which:
        return _which(spans, said.day, which)
    return _latest_or_next(spans, said.day, ahead=said.ahead(match))


_NEAR = {
    "yesterday": (-1, -1),
    "last night": (-1, -1),
    "tomorrow": (1, 1),
    "day before yesterday": (-2, -2),
    "day after tomorrow": (2, 2),
    "other day": (-7, -1),
    "other night": (-7, -1),
}


def _near(match: re.Match[str], said: Said) -> _Found:
    first, last = _NEAR.get(re.sub(r"\s+", " ", match[0]).removeprefix("the "), (0, 0))
    return said.day + first, said.day + last


def _unit(match: re.Match[str], said: Said) -> _Found:
    which, unit, count = match["u_q"], match["u_u"].rstrip("s"), match["u_n"]
    # "The last week" is the seven days until now, "last week" the one before this one.
    rolling = count is not None or which == "past" or (match["u_the"] and which == "last")
    if unit == "day" and not rolling:
        return None
    if unit == "weekend":
        return _weekends(said.day, which, _count(count)[0])
    if which in _OVER:
        if rolling:
            return _moved(said.day, unit, -_count(count)[1]), said.day
        return _calendar(said.day, unit, -1)
    if which in _TO_COME:
        if rolling:
            return said.day, _moved(said.day, unit, _count(count)[1])
        return _calendar(said.day, unit, 1)
    return None if count else _calendar(said.day, unit, 0)


def _weekends(day: int, which: str, count: int) -> Span:
    if which in _OVER:
        first, last = _weekend_before(day)
        return first - 7 * (count - 1), last
    first = on.weekday_after(day, 5) if which in _TO_COME else on.week(day)[0] + 5
    return first, first + 1


def _weekend_before(day: int) -> Span:
    first = on.week(day)[0] - 2
    return first, first + 1


def _calendar(day: int, unit: str, move: int) -> Span:
    """Return the week, month, quarter, year or decade of a day, or one that lies some on."""
    today = on.date_of(day)
    if unit == "week":
        return on.week(day + 7 * move)
    if unit == "month":
        return on.month(today.year, today.month + move)
    if unit == "quarter":
        first = (today.month - 1) // 3 * 3 + 1 + 3 * move
        return on.month(today.year, first)[0], on.month(today.year, first + 2)[1]
    if unit == "year":
        return on.year(today.year + move)
    first = today.year // 10 * 10 + 10 * move
    return on.year(first)[0], on.year(first + 9)[1]


def _moved(day: int, unit: str, count: int) -> int:
    """Return the day some days, weeks, months or years on."""
    per_month = {"month": 1, "quarter": 3, "year": 12, "decade": 120}
    if unit in per_month:
        return on.months_from(day, per_month[unit] * count)
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


def _weekday(match: re.Match[str], said: Said) -> _Found:
    which, wanted = match["w_q"], WEEKDAYS[match["w_d"]]
    if match["w_s"] or which in ("every", "each", "most"):
        return None
    if match["w_w"]:
        move = {"last": -7, "this": 0, "next": 7}[match["w_w"]]
        day = on.week(said.day + move)[0] + wanted
        return day, day
    return _weekday_by(match, said, which, wanted)


def _weekday_short(match: re.Match[str], said: Said) -> _Found:
    return _weekday_by(match, said, match["ws_q"], WEEKDAYS[match["ws_d"]])


def _weekday_by(match: re.Match[str], said: Said, which: str | None, wanted: int) -> Span:
    if which in ("this", "current"):
        day = on.weekday_after(said.day - 1, wanted)
    elif which in _TO_COME or (not which and said.ahead(match)):
        day = on.weekday_after(said.day, wanted)
    else:
        day = on.weekday_before(said.day, wanted)
    return day, day


def _weekend(match: re.Match[str], said: Said) -> _Found:
    if said.ahead(match):
        first = on.week(said.day)[0] + 5
        return first, first + 1
    return _weekend_before(said.day)


def _counted(match: re.Match[str], said: Said) -> _Found:
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
    return _around(said.day, unit, sign * least, sign * most)


_GOES_ON = re.compile(r"\b(?:have|has|had|been)\b|[\u2019'](?:ve|s)\b")


def _lasting(match: re.Match[str], said: Said) -> _Found:
    """Read `I have had them for three years now` as when it began."""
    if not match["l_now"] and not (match["l_for"] and _GOES_ON.search(said.sentence(match))):
        return None
    if said.asked:
        return None
    least, most = _count(match["l_n"])
    return _around(said.day, match["l_u"].rstrip("s"), -least, -most)


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


def _part(match: re.Match[str], _said: Said) -> _Found:
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


def _hence(match: re.Match[str], said: Said) -> _Found:
    if not said.ahead(match):
        return None
    least, most = _count(match["h_n"])
    return _around(said.day, match["h_u"].rstrip("s"), least, most)


def _beside(match: re.Match[str], _said: Said) -> _Found:
    tail = match["b_t"].split()[0]
    way = {"before": "before", "prior": "before", "of": "of"}.get(tail, "after")
    return Mention(match.start(), match.end(), 0, 0, "offset", offset=(match["b_u"], way, 1))


def _day_alone(match: re.Match[str], said: Said) -> _Found:
    number = int(match["d_d"])
    today = on.date_of(said.day)
    spans: list[Span] = []
    for move in range(-2, 3):
        first, last = on.month(today.year, today.month + move)
        if 1 <= number <= last - first + 1:
            spans.append((first + number - 1, first + number - 1))
    if not spans:
        return None
    return _latest_or_next(spans, said.day, ahead=said.ahead(match))


_BEFORE_YEAR = re.compile(
    r"(?:\b(?:in|of|since|during|until|till|by|before|after|from|to|and|between|through|around|year|"
    r"the|early|late|mid|end|circa|back|,)\s+|mid-|[(\u2013]\s*|')$"
)


def _year(match: re.Match[str], said: Said) -> _Found:
    before = said.text[max(0, match.start() - 12) : match.start()]
    if not said.asked and not _BEFORE_YEAR.search(before):
        return None
    year = int(match["y_y"])
    return Mention(match.start(), match.end(), *on.year(year), "year", year=year)


READINGS: dict[str, Callable[[re.Match[str], Said], Mention | Span | None]] = {
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
