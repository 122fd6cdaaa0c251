"""Times: the only place that reads and words the dates, moments and durations of people.

Inside, a moment is a count of milliseconds since 1970 in UTC; `to_datetime` and `to_ms` are the
way out and in.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta, tzinfo

from asterism.errors import InvalidInput

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY
PERIODS = {
    "minute": MINUTE,
    "hour": HOUR,
    "day": DAY,
    "week": WEEK,
    "month": 30 * DAY,
    "year": 365 * DAY,
}
"""How long the periods of a quota are, in milliseconds."""

MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTH_NUMBERS = {
    name: number
    for number, month in enumerate(MONTHS, 1)
    for name in (month, month[:3], *(["sept"] if month == "september" else []))
}
"""Months by their names and short names, in lower case."""
MONTH_PATTERN = "|".join(sorted(MONTH_NUMBERS, key=len, reverse=True))
"""A regular expression for the name of a month; it needs `re.IGNORECASE`."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
# Compiled when they are first used: every start imports this module, and few read a time.
_DURATION = (
    r"(?P<count>\d+\.?\d*|\.\d+)\s*"
    r"(?P<unit>s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?)?"
)
_NAMED_DAY = r"(?P<day>today|yesterday)(?:\s+(?:at\s+)?(?P<clock>\d{1,2}:\d{2}(?::\d{2})?))?"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2})?"
_MILLISECONDS = r"\d{12,14}"
_WHOLE_DAY = r"today|yesterday|\d{4}-\d{2}-\d{2}|\d{8}"
_TO_THE_SECOND = r"\d{1,2}:\d{2}:\d{2}$"
_HOURS = r"(\d{1,2}:\d{2})\s*-\s*(\d{1,2}:\d{2})"

PhraseReader = Callable[[str, int], tuple[int, int] | None]
"""Returns the first and last millisecond of a phrase such as "last week", in days of UTC."""


def to_datetime(milliseconds: int, zone: tzinfo = UTC) -> datetime:
    """Return a moment as a `datetime` in a time zone, exact to the millisecond."""
    return (_EPOCH + timedelta(milliseconds=milliseconds)).astimezone(zone)


def to_ms(moment: datetime) -> int:
    """Return a `datetime` in milliseconds; what is finer is cut off, towards the past."""
    if moment.tzinfo is None:
        raise InvalidInput(
            f"{moment.isoformat()} has no time zone. Use one, such as "
            "datetime(2026, 11, 16, 4, 0, tzinfo=UTC). Nothing was done."
        )
    return (moment - _EPOCH) // _MILLISECOND


# -- reading ---------------------------------------------------------------------------------------


def read_duration(text: str, default_unit: str | None = None) -> float:
    """Return a duration such as `90 s`, `10m` or `2 weeks` in seconds.

    A number without a unit is in the default unit, if there is one. Raises `ValueError` for
    anything else.
    """
    found = re.fullmatch(_DURATION, text.strip().lower())
    unit = (found["unit"] or default_unit) if found is not None else None
    if found is None or unit is None:
        raise ValueError(f"{text[:80]!r} is not a duration.")
    seconds = float(found["count"]) * _SECONDS[unit[0]]
    if seconds == float("inf"):
        raise ValueError(f"{text[:80]!r} is too long.")
    return seconds


def read_iso(text: str, zone: tzinfo | None = None) -> datetime:
    """Return a date or time of ISO 8601; one without a zone is in `zone`, or else local.

    Raises `ValueError` for anything else.
    """
    moment = datetime.fromisoformat(text.strip().upper())
    if moment.tzinfo is not None:
        return moment
    return moment.astimezone() if zone is None else moment.replace(tzinfo=zone)


def read_hours(text: str) -> tuple[time, time]:
    """Return two times of the day, such as `08:00-22:00`; raise `ValueError` for anything else."""
    found = re.fullmatch(_HOURS, text.strip())
    first, last = (_read_clock(found[1]), _read_clock(found[2])) if found else (None, None)
    if first is None or last is None or first == last:
        raise ValueError(f"{text[:80]!r} is not a pair of different times of the day.")
    return first, last


def read_moment(text: str, now: datetime | None = None) -> int:
    """Return the moment that a person means, in milliseconds; a time without a zone is local.

    Commands show times to the second, so a moment written so means the end of that second: what
    happened in it is part of what was known then.
    """
    written = _normalize(text)
    here = now or datetime.now().astimezone()
    if re.fullmatch(_MILLISECONDS, written):
        return int(written)
    if written == "now":
        return to_ms(here)
    try:
        return to_ms(here) - int(read_duration(written.removesuffix(" ago")) * 1000)
    except ValueError:
        pass
    try:
        moment = to_ms(_read_local(written, here))
    except (ValueError, OverflowError, OSError):
        raise InvalidInput(
            f"{text!r} is not a valid time. Write one such as 2026-11-16T04:00, 04:00, yesterday "
            'or "1 hour ago". Nothing was done.'
        ) from None
    return moment + 999 if re.search(_TO_THE_SECOND, written) else moment


def read_range(
    text: str, now: datetime | None = None, read_phrase: PhraseReader | None = None
) -> tuple[int, int]:
    """Return the first and last moment of the time that a person means; a day lasts to its end.

    What `read_moment` does not understand is left to `read_phrase`.
    """
    here = now or datetime.now().astimezone()
    try:
        first = read_moment(text, here)
    except InvalidInput:
        # The reader of phrases counts in days of UTC, people in those of their zone.
        ahead = (here.utcoffset() or timedelta()) // _MILLISECOND
        found = read_phrase(text, to_ms(here) + ahead) if read_phrase is not None else None
        if found is None:
            raise
        return found[0] - ahead, found[1] - ahead
    if not re.fullmatch(_WHOLE_DAY, _normalize(text)):
        return first, first
    return first, to_ms(_at_clock(_local(first) + timedelta(days=1), time())) - 1


def _normalize(text: str) -> str:
    return " ".join(text.lower().split())


def _read_local(written: str, here: datetime) -> datetime:
    if found := re.fullmatch(_NAMED_DAY, written):
        day = here - timedelta(days=found["day"] == "yesterday")
        return _at_clock(day, _read_clock(found["clock"] or "0:00"))
    if re.fullmatch(_CLOCK, written):
        return _at_clock(here, _read_clock(written))
    return read_iso(written)


def _read_clock(text: str) -> time:
    hour, minute, *seconds = map(int, text.split(":"))
    return time(hour, minute, seconds[0] if seconds else 0)


def _at_clock(day: datetime, clock: time) -> datetime:
    return datetime.combine(day.date(), clock).astimezone()


# -- wording ---------------------------------------------------------------------------------------


def iso_text(milliseconds: int) -> str:
    """Return a moment such as `2026-11-16T04:00:00Z`."""
    return f"{to_datetime(milliseconds):%Y-%m-%dT%H:%M:%SZ}"


def utc_text(milliseconds: int) -> str:
    """Return a moment such as `2026-11-16 04:00:00 UTC`."""
    return f"{to_datetime(milliseconds):%Y-%m-%d %H:%M:%S} UTC"


def utc_minute(milliseconds: int) -> str:
    """Return a moment such as `2026-11-16 04:00`, in UTC."""
    return f"{to_datetime(milliseconds):%Y-%m-%d %H:%M}"


def day_text(milliseconds: int) -> str:
    """Return the day of a moment in UTC, such as `3 May 2026`."""
    moment = to_datetime(milliseconds)
    return f"{moment.day} {moment:%b %Y}"


def days_text(first: int, last: int) -> str:
    """Return the days between two moments, such as `3 May – 9 May 2026`."""
    start, end = day_text(first), day_text(last)
    if start == end:
        return start
    return f"{start[:-5] if start[-4:] == end[-4:] else start} – {end}"


def local_text(milliseconds: int) -> str:
    """Return a moment as local date and time, such as `2026-11-16 04:00:00`."""
    return f"{_local(milliseconds):%Y-%m-%d %H:%M:%S}"


def local_minute(milliseconds: int) -> str:
    """Return a moment as local date and time, such as `2026-11-16 04:00`."""
    return f"{_local(milliseconds):%Y-%m-%d %H:%M}"


def local_clock(milliseconds: int) -> str:
    """Return a moment as local time of day, such as `04:00:00`."""
    return f"{_local(milliseconds):%H:%M:%S}"


def local_short(milliseconds: int) -> str:
    """Return the local time of a moment of today, or the local date of another day."""
    today = datetime.now().astimezone().date()
    moment = _local(milliseconds)
    return f"{moment:%H:%M:%S}" if moment.date() == today else f"{moment:%Y-%m-%d}"


def duration_text(milliseconds: int) -> str:
    """Return how long something took, in its two largest units, such as `2 h 5 min`."""
    seconds = max(0, milliseconds) / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    rest = int(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def exact_duration(seconds: float) -> str:
    """Return a duration in the largest unit that it is a multiple of, such as `90 s`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def rounded_duration(milliseconds: int) -> str:
    """Return a duration to its largest unit, such as `3 days`."""
    for unit, size in (("day", DAY), ("hour", HOUR), ("minute", MINUTE)):
        if milliseconds >= size:
            count = round(milliseconds / size)
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{max(1, milliseconds // 1000)} s"


def _local(milliseconds: int) -> datetime:
    return to_datetime(milliseconds).astimezone()
