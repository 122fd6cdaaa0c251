"""Spans of the calendar in days since 1970: months, weeks, seasons, feasts."""

from __future__ import annotations

from calendar import monthrange
from datetime import date

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
