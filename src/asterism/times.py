"""Times: the only place that reads and words the dates, moments and durations of people.

Inside, a moment is a count of milliseconds since 1970 in UTC; `to_datetime` and `to_ms` are the
way out and in.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import Self, overload

from asterism.errors import InvalidInput
from asterism.records import dataclass

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
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
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
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    try:
        return moment.astimezone(zone)
    except OverflowError:  # the first or the last day that there is, which is another one there
        return moment


class Moment:
    """An attribute of a record: the `datetime`, in UTC, of its field with `_ms` after the name."""

    def __set_name__(self, _: type, name: str) -> None:
        self._field = f"{name}_ms"

    @overload
    def __get__(self, record: None, kind: type) -> Self: ...

    @overload
    def __get__(self, record: object, kind: type) -> datetime: ...

    def __get__(self, record: object | None, kind: type) -> Self | datetime:
        return self if record is None else to_datetime(getattr(record, self._field))


class OptionalMoment:
    """Like `Moment`, for a field that may be None."""

    def __set_name__(self, _: type, name: str) -> None:
        self._field = f"{name}_ms"

    @overload
    def __get__(self, record: None, kind: type) -> Self: ...

    @overload
    def __get__(self, record: object, kind: type) -> datetime | None: ...

    def __get__(self, record: object | None, kind: type) -> Self | datetime | None:
        if record is None:
            return self
        milliseconds: int | None = getattr(record, self._field)
        return to_datetime(milliseconds) if milliseconds is not None else None


def to_ms(moment: datetime) -> int:
    """Return a `datetime` in milliseconds; what is finer is cut off, towards the past."""
    if getattr(moment, "tzinfo", None) is None:
        raise InvalidInput(
            f"{moment} has no time zone. Use a datetime that has one, such as "
            "datetime(2026, 11, 16, 4, 0, tzinfo=UTC). Nothing was done."
        )
    milliseconds = (moment - _EPOCH) // _MILLISECOND
    if not _FIRST <= milliseconds <= _LAST:
        raise InvalidInput(
            f"{moment} is before the year 1 or after the year 9999 in UTC. Use a time between "
            "them. Nothing was done."
        )
    return milliseconds


def ahead_of_utc(milliseconds: int, zone: tzinfo) -> int:
    """Return how many milliseconds the clocks of a zone are ahead of UTC at a moment."""
    return (to_datetime(milliseconds, zone).utcoffset() or timedelta()) // _MILLISECOND


# -- time zones ------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def zone_named(name: str) -> tzinfo:
    """Return a time zone by its IANA name; raise `ValueError` if there is none of that name."""
    if name == "UTC":
        return UTC  # which no machine has to be asked for
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        raise ValueError(f"{name[:80]!r} is not the name of a time zone.") from None


def machine_zone(variable: str | None = None, root: Path = Path("/")) -> str:
    """Return the name of the machine's time zone, or UTC if it does not tell.

    Args:
        variable: What the environment variable TZ says.
        root: The directory that `etc` is in.
    """
    for found in (variable or "", _linked_zone(root / "etc/localtime"), _written_zone(root)):
        name = found.removeprefix(":").rpartition("zoneinfo/")[2].strip()
        try:
            zone_named(name)
        except ValueError:
            continue
        return "UTC" if name == "Etc/UTC" else name
    return "UTC"


def _linked_zone(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def _written_zone(root: Path) -> str:
    try:
        return (root / "etc/timezone").read_text(encoding="utf-8")[:200]
    except (OSError, UnicodeDecodeError):
        return ""


_local_zone: tzinfo | None = None
"""The zone of what is called local here; None: the machine's."""


def use_local_zone(zone: tzinfo | None) -> None:
    """Have this process read and show local times in a zone; None stands for the machine's.

    It is for processes that one person uses, such as a command: times that belong to a home are
    read and shown in the zone of its settings.
    """
    global _local_zone  # noqa: PLW0603 - a process has one reader
    _local_zone = zone


def local_zone() -> tzinfo:
    """Return the time zone in which commands show times."""
    return _local_zone or zone_named(machine_zone())


def _in_local_zone(moment: datetime) -> datetime:
    """Return a time without a zone as a local one."""
    return moment.astimezone() if _local_zone is None else moment.replace(tzinfo=_local_zone)


# -- reading ---------------------------------------------------------------------------------------


def read_duration(text: str, default_unit: str | None = None) -> float:
    """Return a duration such as `90 s`, `10m` or `2 weeks` in seconds.

    A number without a unit is in the default unit, if there is one. Raises `ValueError` for
    anything else.
    """
    match = re.fullmatch(_DURATION, text.strip().lower())
    unit = (match["unit"] or default_unit) if match is not None else None
    if match is None or unit is None:
        raise ValueError(f"{text[:80]!r} is not a duration.")
    seconds = float(match["count"]) * _SECONDS[unit[0]]
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
    return _in_local_zone(moment) if zone is None else moment.replace(tzinfo=zone)


def read_hours(text: str) -> tuple[time, time]:
    """Return two times of the day, such as `08:00-22:00`; raise `ValueError` for anything else."""
    match = re.fullmatch(_HOURS, text.strip())
    first, last = (_read_clock(match[1]), _read_clock(match[2])) if match else (None, None)
    if first is None or last is None or first == last:
        raise ValueError(f"{text[:80]!r} is not a pair of different times of the day.")
    return first, last


def quiet_until(hours: str, now: int, zone: tzinfo) -> int | None:
    """Return when the quiet hours end in which a moment lies; None if it lies outside of them.

    Args:
        hours: Such as `22:00-08:00`, by the clock of the zone; the second time is not in them.
        now: The moment.
        zone: Where the clock stands.
    """
    first, last = read_hours(hours)
    here = to_datetime(now, zone)
    clock = here.time()
    overnight = first > last
    quiet = (clock >= first or clock < last) if overnight else first <= clock < last
    if not quiet:
        return None
    day = here.date() + timedelta(days=1) if overnight and clock >= first else here.date()
    end = datetime.combine(day, last, zone)
    # Where clocks are set back, the same time comes twice, and the first may have passed.
    return to_ms(end) if to_ms(end) > now else to_ms(end.replace(fold=1))


def read_moment(text: str, now: datetime | None = None) -> datetime:
    """Return the moment that a person means; a time without a zone is local.

    Commands show times to the second, so a moment written so means the end of that second: what
    happened in it is part of what was known then.
    """
    written = _normalize(text)
    here = now or datetime.now(UTC).astimezone(_local_zone)
    if re.fullmatch(_MILLISECONDS, written):
        return to_datetime(int(written))
    if written == "now":
        return here
    with contextlib.suppress(ValueError, OverflowError):
        return here - timedelta(seconds=read_duration(written.removesuffix(" ago")))
    try:
        moment = _read_local(written, here)
    except (ValueError, OverflowError, OSError):
        raise InvalidInput(
            f"{text!r} is not a valid time. Write one such as 2026-11-16T04:00, 04:00, yesterday "
            'or "1 hour ago". Nothing was done.'
        ) from None
    return moment + 999 * _MILLISECOND if re.search(_TO_THE_SECOND, written) else moment


def read_range(
    text: str, now: datetime | None = None, read_phrase: PhraseReader | None = None
) -> tuple[datetime, datetime]:
    """Return the first and last moment of the time that a person means; a day lasts to its end.

    What `read_moment` does not understand is left to `read_phrase`.
    """
    here = now or datetime.now(UTC).astimezone(_local_zone)
    try:
        first = read_moment(text, here)
    except InvalidInput:
        # The reader of phrases counts in days of UTC, people in those of their zone.
        ahead = (here.utcoffset() or timedelta()) // _MILLISECOND
        span = read_phrase(text, to_ms(here) + ahead) if read_phrase is not None else None
        if span is None:
            raise
        return to_datetime(span[0] - ahead), to_datetime(span[1] - ahead)
    if not re.fullmatch(_WHOLE_DAY, _normalize(text)):
        return first, first
    tomorrow = first.astimezone(_local_zone) + timedelta(days=1)
    return first, _at_clock(tomorrow, time()) - _MILLISECOND


def _normalize(text: str) -> str:
    return " ".join(text.lower().split())


def _read_local(written: str, here: datetime) -> datetime:
    if match := re.fullmatch(_NAMED_DAY, written):
        day = here - timedelta(days=match["day"] == "yesterday")
        return _at_clock(day, _read_clock(match["clock"] or "0:00"))
    if re.fullmatch(_CLOCK, written):
        return _at_clock(here, _read_clock(written))
    return read_iso(written)


def _read_clock(text: str) -> time:
    hour, minute, *seconds = map(int, text.split(":"))
    return time(hour, minute, seconds[0] if seconds else 0)


def _at_clock(day: datetime, clock: time) -> datetime:
    return _in_local_zone(datetime.combine(day.date(), clock))


# -- times to come ---------------------------------------------------------------------------------

TIME_FORMS = (
    '"in 20 minutes", "18:30", "tomorrow at nine", "tonight at 8", "next Monday at 8", '
    '"24 December at 18:00" or "2026-12-24T18:00"'
)
"""What `read_future` reads, in words for a person or a model."""
RULE_FORMS = (
    '"every day at 7:30", "every weekday at 9", "every Monday at 8", "every hour", or five cron '
    'fields such as "0 9 * * 1-5"'
)
"""What it reads besides for something regular."""
_PART_HOURS = {"morning": 9, "noon": 12, "afternoon": 15, "evening": 19, "tonight": 20}
"""When the parts of a day begin where no time is named; a day without a part begins at nine."""
_CRON = r"[\d*][\d*/,-]*(?:\s+[\d*][\d*/,-]*)(?:\s+[\dA-Za-z*?/,#-]+){3}"
_ISO_TIME = r"\d{4}-?\d{2}-?\d{2}[tT ]\d.*"
_DELAY_PART = (
    r"(?P<count>\d+(?:\.\d+)?|an?(?= )) ?"
    r"(?P<unit>second|minute|hour|day|week|month|year|[smhdw])(?![a-z])(?: and)? ?"
)
_MONTH_NAME = rf"(?P<name>{MONTH_PATTERN})\b"
_YEAR = r"(?: (?P<year>\d{4}))?"
_DATES = (
    r"\b(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})\b",
    r"\b(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})?(?!\d)",
    rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th|\.)? {_MONTH_NAME}\.?{_YEAR}",
    rf"\b{_MONTH_NAME}\.? (?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?![:.h]){_YEAR}",
)
_CLOCKS = (
    r"(?:\bat? )?\b(?P<hour>\d{1,2})(?:[:.](?P<minute>\d{2}))? ?(?P<half>[ap])\.?m\b\.?",
    r"(?:\bat? )?\b(?P<hour>\d{1,2})[:h](?P<minute>\d{2})(?::(?P<second>\d{2}))?(?: oclock)?\b",
    r"(?:\bat? )?\b(?P<hour>\d{1,2})\.(?P<minute>\d{2}) oclock\b",
    r"(?:\bat )?\b(?P<shift>half past|quarter past|quarter to|half to) (?P<hour>\d{1,2})\b",
    r"\bat? (?P<hour>\d{1,2})(?: ?h| oclock| hour)?\b(?![.:])",
    r"\b(?P<hour>\d{1,2})(?: ?h| oclock)\b",
)
_BARE_HOUR = r"\b(?P<hour>\d{1,2})\b(?![.:])"
_SHIFTS = {"half past": 30, "quarter past": 15, "quarter to": -15, "half to": -30}


@dataclass(frozen=True, slots=True)
class FutureTime:
    """A time to come, and the rule by which it comes again."""

    at: int
    """Milliseconds since 1970."""
    cron: str | None = None
    """Five cron fields, in the zone that it was read in; None if it happens once."""
    moved: bool = False
    """Whether a time of day was taken as one of tomorrow, since it has passed today."""


@dataclass(frozen=True, slots=True)
class _Clock:
    """A time of day as it is written."""

    hour: int
    minute: int = 0
    second: int = 0
    exact: bool = False
    """Whether it says itself which half of the day is meant."""


def next_time(cron: str, after: int, zone: tzinfo = UTC) -> int:
    """Return when a cron rule of a zone comes true next; raise `InvalidInput` if never."""
    from cronsim import CronSim, CronSimError

    try:
        if len(cron.split()) != 5:
            raise CronSimError("Wrong number of fields")
        moment = next(CronSim(cron, to_datetime(after, zone)))
    except (CronSimError, StopIteration) as error:
        raise InvalidInput(
            f"{cron[:80]!r} is not a valid cron rule ({error}). Write {RULE_FORMS}. Nothing was "
            "scheduled."
        ) from None
    return to_ms(moment)


def read_future(text: str, now: int, zone: tzinfo, *, regular: bool = False) -> FutureTime:
    """Return the time to come that a person means, in their zone.

    It reads English, and the plain forms of German, Spanish, French, Italian, Portuguese and Dutch.
    Days and weeks are counted by the calendar, so that the time of day stays the same when summer
    time begins or ends; hours and minutes are counted by the clock. With `regular`, it is a rule
    whether or not it says "every".
    """
    try:
        found = _read_future(text[:200], to_datetime(now, zone), regular=regular)
        if found is not None and found.at > _LAST:
            found = None
    except (ValueError, OverflowError):
        found = None
    if found is None:
        raise InvalidInput(
            f"{text[:80]!r} is not a valid time. Write {TIME_FORMS}; for something "
            f"regular, {RULE_FORMS}. Nothing was scheduled."
        )
    if found.at < now:
        raise InvalidInput(
            f"{text[:80]!r} means {weekday_text(found.at, zone)}, which has passed: it is "
            f"{weekday_text(now, zone)} now. Write a time to come. Nothing was scheduled."
        )
    return found


def _read_future(text: str, here: datetime, *, regular: bool) -> FutureTime | None:
    now, zone = to_ms(here), here.tzinfo or UTC
    written = text.strip()
    if re.fullmatch(_CRON, written):
        return FutureTime(next_time(written, now, zone), written)
    if not regular and re.fullmatch(_ISO_TIME, written):
        return FutureTime(to_ms(read_iso(written, zone)))
    words = in_plain_english(written)
    if regular or words.startswith("every "):
        cron = _read_rule(words.removeprefix("every "))
        return FutureTime(next_time(cron, now, zone), cron) if cron is not None else None
    if words == "now":
        return FutureTime(now)
    return _read_delay(words, here) or _read_day(words, here)


def _read_delay(words: str, here: datetime) -> FutureTime | None:
    """Read "in 20 minutes", "an hour and 5 minutes from now" or "in 3 days at 9"."""
    told, _, clock_words = words.partition(" at ")
    told = re.sub(r" (from now|later)$", "", told.removeprefix("in ").removeprefix("after "))
    place, months, days, seconds = 0, 0, 0, 0.0
    while (part := re.compile(_DELAY_PART).match(told, place)) is not None:
        place = part.end()
        count = 1.0 if part["count"].startswith("a") else float(part["count"])
        unit = part["unit"]
        if unit in ("month", "year"):
            if count != int(count):
                return None
            months += int(count) * (12 if unit == "year" else 1)
        elif unit[0] in "dw":
            whole = int(count * (7 if unit[0] == "w" else 1))
            days += whole
            seconds += count * _SECONDS[unit[0]] - whole * _SECONDS["d"]
        else:
            seconds += count * _SECONDS[unit[0]]
    if not place or place < len(told):
        return None
    day = add_months(here.date(), months) + timedelta(days=days)
    clock = here.time()
    if clock_words:
        found, rest = _find_clock(f"at {clock_words}")
        if found is None or rest or seconds or not (days or months):
            return None
        clock = time(found.hour, found.minute, found.second)
    moment = here if day == here.date() else datetime.combine(day, clock, here.tzinfo)
    return FutureTime(to_ms(moment) + int(seconds * 1000))


def add_months(day: date, months: int) -> date:
    """Return the same day some months later, or the last of that month."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    for last in (day.day, 30, 29, 28):
        try:
            return date(year, month + 1, min(day.day, last))
        except ValueError:
            if last == 28:
                raise
    raise AssertionError("every month has 28 days")


def _read_day(words: str, here: datetime) -> FutureTime | None:
    """Read a day, a time of day, or both, in any order: "tomorrow at nine", "4 pm today"."""
    dated, rest = _find_date(words)
    named = re.search(rf"\b(today|tonight|tomorrow|aftertomorrow|{'|'.join(WEEKDAYS)})\b", rest)
    name = named[0] if named is not None else ""
    is_next = name in WEEKDAYS and re.search(r"\bnext\b", rest) is not None
    rest = re.sub(rf"\b(next|{name})\b" if is_next else rf"\b{name}\b" if name else r"$^", "", rest)
    if name and dated is not None and name not in WEEKDAYS:
        return None
    found = _find_time_of_day(rest, tonight=name == "tonight", bare=bool(name) or dated is not None)
    if found is None:
        return None
    clock, later = found
    if clock is None:
        if name in ("", "today") and dated is None:
            return None
        clock = time(9)
    today, zone = here.date(), here.tzinfo

    def at(day: date) -> datetime:
        return datetime.combine(day + timedelta(days=later), clock, zone)

    if dated is not None:
        return _on_date(dated, at, here, WEEKDAYS.index(name) if name else None)
    if name in WEEKDAYS:
        ahead = (WEEKDAYS.index(name) - today.weekday()) % 7
        if ahead == 0 and (is_next or to_ms(at(today)) <= to_ms(here)):
            ahead = 7
        return FutureTime(to_ms(at(today + timedelta(days=ahead))))
    ahead = {"tomorrow": 1, "aftertomorrow": 2}.get(name, 0)
    moment = at(today + timedelta(days=ahead))
    if name in ("", "today") and to_ms(moment) <= to_ms(here) and _may_be_afternoon(rest, clock):
        moment += timedelta(hours=12)
    if not name and to_ms(moment) <= to_ms(here):
        return FutureTime(to_ms(at(today + timedelta(days=1))), moved=True)
    return FutureTime(to_ms(moment))


def _may_be_afternoon(words: str, clock: time) -> bool:
    """Tell whether an early hour, such as "at 4", is one of the afternoon where it has passed."""
    is_plain = re.search(r"\b(?:morning|am|a\.m)\b|\d ?am\b|\b0\d", words) is None
    return is_plain and 1 <= clock.hour <= _LAST_AFTERNOON


_LAST_AFTERNOON = 6
"""People who say "at 6" at noon mean the evening; "at 8" may be the next morning."""


def _on_date(
    dated: tuple[int | None, int, int],
    at: Callable[[date], datetime],
    here: datetime,
    weekday: int | None,
) -> FutureTime | None:
    """Return a time on a date; one without a year is the next of them."""
    year, month, day = dated
    for wanted in (year,) if year is not None else range(here.year, here.year + 9):
        try:
            moment = at(date(wanted, month, day))
        except ValueError:  # such as 29 February
            continue
        if year is not None or to_ms(moment) > to_ms(here):
            # A weekday beside a date must be its own; else one of the two is a mistake.
            right = weekday is None or date(wanted, month, day).weekday() == weekday
            return FutureTime(to_ms(moment)) if right else None
    return None


def _find_date(words: str) -> tuple[tuple[int | None, int, int] | None, str]:
    """Return a date (its year may be missing), and the words without it."""
    for pattern in _DATES:
        if match := re.search(pattern, words):
            parts = match.groupdict()
            name = parts.get("name")
            month = MONTH_NUMBERS[name] if name else int(parts["month"])
            year = int(parts["year"]) if parts.get("year") else None
            return (year, month, int(parts["day"])), words[: match.start()] + words[match.end() :]
    return None, words


def _find_time_of_day(
    words: str, *, tonight: bool = False, bare: bool = False
) -> tuple[time | None, int] | None:
    """Return the time of day that is all that some words say, and how many days later it is.

    None as the time: they say none. None alone: they say something else. With `bare`, a number
    alone is an hour.
    """
    part = re.search(r"\b(morning|noon|afternoon|evening|midnight)\b", words)
    name = "tonight" if tonight else part[0] if part is not None else ""
    if part is not None:
        words = words[: part.start()] + words[part.end() :]
    clock, rest = _find_clock(words, bare=bare or part is not None)
    if rest not in ("", "at") or (clock is not None and name in ("noon", "midnight")):
        return None
    if clock is None:
        if name == "midnight":
            return None if bare else (time(), 1)
        return (time(_PART_HOURS[name]) if name else None), 0
    hour, later = clock.hour, 0
    if hour == 24 and not clock.minute:
        hour, later = 0, 1
    elif not clock.exact and hour <= 12:
        if name == "tonight" and (hour < 5 or hour == 12):
            hour, later = hour % 12, 1
        elif name == "morning" or (name == "afternoon" and hour == 12):
            pass
        elif name in ("afternoon", "evening", "tonight"):
            if not (1 if name == "afternoon" else 5) <= hour < 12:
                return None
            hour += 12
    return time(hour, clock.minute, clock.second), later


def _find_clock(words: str, *, bare: bool = False) -> tuple[_Clock | None, str]:
    """Return a time of day as it is written, and the words without it."""
    words = " ".join(words.split())
    for pattern in (*_CLOCKS, *((_BARE_HOUR,) if bare else ())):
        if (match := re.search(pattern, words)) is None:
            continue
        parts = match.groupdict()
        hour, minute = int(parts["hour"]), int(parts.get("minute") or 0)
        if half := parts.get("half"):
            if not 1 <= hour <= 12:
                raise ValueError(f"{hour} is not an hour before or after noon.")
            hour = hour % 12 + (12 if half == "p" else 0)
        if shift := parts.get("shift"):
            hour, minute = divmod(hour * 60 + _SHIFTS[shift], 60)
        clock = _Clock(hour, minute, int(parts.get("second") or 0), exact=bool(half) or hour == 0)
        return clock, " ".join((words[: match.start()] + words[match.end() :]).split())
    return None, words


def _read_rule(words: str) -> str | None:
    """Return what comes after "every" as a cron rule."""
    if match := re.fullmatch(r"(?:(\d+|an?) )?(minute|hour)", words):
        count = int(match[1]) if match[1] and match[1].isdigit() else 1
        of = 60 if match[2] == "minute" else 24
        if count < 1 or of % count:
            return None
        step = "*" if count == 1 else f"*/{count}" if count < of else "0"
        return f"{step} * * * *" if of == 60 else f"0 {step} * * *"
    days, month_day = "*", "*"
    if match := re.match(r"month (?:day )?(\d{1,2})(?:st|nd|rd|th)?\b", words):
        if not 1 <= int(match[1]) <= 31:
            return None
        month_day, words = match[1], words[match.end() :]
    else:
        named = re.match(rf"(?:(?:{'|'.join(WEEKDAYS)}|and)\b ?)+", words)
        kind = re.match(r"(day|weekday|weekend)\b", words)
        if named is not None:
            numbers = {WEEKDAYS.index(name) + 1 for name in named[0].split() if name != "and"}
            days, words = ",".join(map(str, sorted(numbers))), words[named.end() :]
        elif kind is not None:
            days = {"day": "*", "weekday": "1-5", "weekend": "6,7"}[kind[0]]
            words = words[kind.end() :]
        elif words.isdigit():
            return None  # "every 8" may be hours as well as a time of day
    if words.strip() == "midnight":
        return f"0 0 {month_day} * {days}"
    found = _find_time_of_day(words, bare=True) if words != "every" else None
    if found is None or found[1]:
        return None
    clock = found[0] or time(9)
    return f"{clock.minute} {clock.hour} {month_day} * {days}" if not clock.second else None


_TRANSLATIONS = {
    "aftertomorrow": "the day after tomorrow|day after tomorrow|ubermorgen|uebermorgen"
    "|pasado manana|apres-demain|apres demain|dopodomani|depois de amanha|overmorgen",
    "tomorrow": "tmrw|tmr|tmw|tmrow|2moro|2morrow|tomorow|tommorow|tommorrow|morgen|manana|demain"
    "|domani|amanha",
    "today": "vandaag|heute|hoy|aujourd'hui|oggi|hoje",
    "tonight": "tonite|vanavond|this evening|this night|heute abend|esta noche|ce soir|stasera"
    "|esta noite|hoje a noite",
    "every": "each|jede|jeden|jeder|jedes|cada|todos los|todas las|todos os|todas as|tous les"
    "|toutes les|chaque|ogni|tutti i|tutte le|todo|toda|elke|iedere",
    "every day": "daily|every single day|taglich|taeglich",
    "every hour": "hourly|stundlich|stuendlich",
    "every weekday": "on weekdays|weekdays|every working day|werktags|entre semana|en semaine"
    "|doordeweeks|monday to friday|monday through friday|mon-fri|montag bis freitag"
    "|lunes a viernes|de lunes a viernes|du lundi au vendredi|dal lunedi al venerdi"
    "|de segunda a sexta|maandag tot en met vrijdag",
    "weekday": "workday|working day|business day|werktag|arbeitstag|werkdag|dia laborable"
    "|dias laborables|jour ouvrable|jours ouvrables|jour de semaine|giorno feriale|giorni feriali"
    "|giorno lavorativo|giorni lavorativi|dia util|dias uteis|dia de semana|dias de semana",
    "every morning": "jeden morgen",
    "tomorrow morning": "morgenochtend",
    "tomorrow afternoon": "morgenmiddag",
    "tomorrow evening": "morgenavond",
    "next": "coming|nachste|nachsten|nachster|naechste|naechsten|kommenden|proximo|proxima"
    "|prochain|prochaine|prossimo|prossima|volgende|komende|aanstaande",
    "morning": "in the morning|am morgen|morgens|fruh|frueh|de la manana|por la manana|du matin"
    "|le matin|di mattina|del mattino|da manha|de manha|'s ochtends|'s morgens|ochtend",
    "noon": "midday|mittag|mittags|mediodia|midi|mezzogiorno|meio-dia|meio dia|12 uur 's middags",
    "afternoon": "in the afternoon|this afternoon|am nachmittag|nachmittags|nachmittag|de la tarde"
    "|por la tarde|de l'apres-midi|apres-midi|del pomeriggio|pomeriggio|da tarde|de tarde|a tarde"
    "|'s middags|vanmiddag|middag",
    "evening": "in the evening|am abend|abends|abend|de la noche|por la noche|du soir|di sera"
    "|da noite|a noite|'s avonds|avond",
    "midnight": "mitternacht|medianoche|minuit|mezzanotte|meia-noite|meia noite",
    "at": "um|a las|a la|alle ore|alle|as|@|om",
    "at 11": "a las once",
    "half past": "half after",
    "quarter past": "a quarter past|quarter after|viertel nach|kwart over",
    "quarter to": "a quarter to|quarter of|viertel vor|kwart voor",
    "in": "en|dans|tra|fra|em|daqui a|dentro de",
    "in 1": "em um|em uma|daqui a um|daqui a uma",
    "and": "und|y|et|e|&",
    "30 minute": "half an hour|half hour|a half hour|eine halbe stunde|einer halben stunde"
    "|media hora|une demi-heure|une demi heure|mezz'ora|mezzora|meia hora|een half uur|half uur",
    "15 minute": "a quarter of an hour|quarter of an hour|einer viertelstunde|un cuarto de hora"
    "|un quart d'heure|un quarto d'ora|um quarto de hora|een kwartier|kwartier",
    "90 minute": "an hour and a half|one hour and a half|one and a half hours|1 and a half hours"
    "|un'ora e mezza|una hora y media|une heure et demie|uma hora e meia|eineinhalb stunden"
    "|anderthalb stunden|anderhalf uur",
    "second": "seconds|sec|secs|sekunde|sekunden|segundo|segundos|seconde|secondes|secondo|secondi"
    "|seconden",
    "minute": "minutes|min|mins|minuten|minuto|minutos|minuti|minuut",
    "hour": "hours|hr|hrs|stunde|stunden|hora|horas|heure|heures|ora|ore",
    "day": "days|tag|tage|tagen|dia|dias|jour|jours|giorno|giorni|dag|dagen",
    "week": "weeks|wk|wks|woche|wochen|semana|semanas|semaine|semaines|settimana|settimane|weken",
    "month": "months|monat|monate|monaten|mes|meses|mois|mese|mesi|maand|maanden",
    "year": "years|jahr|jahre|jahren|ano|anos|annee|annees|anno|anni|jaar|jaren",
    "weekend": "weekends|wochenende|fin de semana|fim de semana",
    "oclock": "o'clock|uhr|sharp|uur",
    "monday": "mon|montag|lunes|lundi|lunedi|segunda|segunda-feira|maandag",
    "tuesday": "tue|tues|dienstag|martes|mardi|martedi|terca|terca-feira|dinsdag",
    "wednesday": "wed|mittwoch|miercoles|mercredi|mercoledi|quarta|quarta-feira|woensdag",
    "thursday": "thu|thur|thurs|donnerstag|jueves|jeudi|giovedi|quinta|quinta-feira|donderdag",
    "friday": "fri|freitag|viernes|vendredi|venerdi|sexta|sexta-feira|vrijdag",
    "saturday": "sat|samstag|sonnabend|sabado|samedi|sabato|zaterdag",
    "sunday": "sun|sonntag|domingo|dimanche|domenica|zondag",
    "every monday": "mondays|montags|lundis",
    "every tuesday": "tuesdays|dienstags|mardis",
    "every wednesday": "wednesdays|mittwochs|mercredis",
    "every thursday": "thursdays|donnerstags|jeudis",
    "every friday": "fridays|freitags|vendredis",
    "every saturday": "saturdays|samstags|samedis|sabados",
    "every sunday": "sundays|sonntags|dimanches|domingos",
    "january": "januar|janner|enero|janvier|gennaio|janeiro|januari",
    "february": "februar|febrero|fevrier|febbraio|fevereiro|februari",
    "march": "marz|maerz|marzo|mars|marco|maart",
    "april": "abril|avril|aprile",
    "may": "mai|mayo|maggio|maio|mei",
    "june": "juni|junio|juin|giugno|junho",
    "july": "juli|julio|juillet|luglio|julho",
    "august": "agosto|aout|augustus",
    "september": "septiembre|septembre|settembre|setembro",
    "october": "oktober|octubre|octobre|ottobre|outubro",
    "november": "noviembre|novembre",
    "december": "dezember|diciembre|decembre|dicembre|dezembro",
    "1": "one|ein|eine|einer|einem|einen|una|une|un|uma|een",
    "2": "two|zwei|dos|deux|due|dois|duas|twee",
    "3": "three|drei|tres|trois|tre|drie",
    "4": "four|vier|cuatro|quatre|quattro|quatro",
    "5": "five|funf|fuenf|cinco|cinq|cinque|vijf",
    "6": "six|sechs|seis|sei|zes",
    "7": "seven|sieben|siete|sette|sete|zeven",
    "8": "eight|acht|ocho|huit|otto|oito",
    "9": "nine|neun|nueve|neuf|nove|negen",
    "10": "ten|zehn|diez|dix|dieci|dez|tien",
    "11": "eleven|elf|onze|undici",
    "12": "twelve|zwolf|zwoelf|doce|douze|dodici|doze|twaalf",
    "15": "fifteen|funfzehn|quince|quinze|quindici|vijftien",
    "20": "twenty|zwanzig|veinte|vingt|venti|vinte|twintig",
    "30": "thirty|dreissig|treinta|trente|trenta|trinta|dertig",
    "45": "forty-five|forty five",
    "": "on|the|of|this|please|den|dem|der|el|los|la|le|les|il|lo|de|del|do|da|na|no",
}  # fmt: skip
"""Words of seven languages, without accents, by the English word that stands for them here."""


_HALF_BEFORE = re.compile(
    r"\bhalb (?=\w)"
    r"|\bhalf (?=(?:een|twee|drie|vier|vijf|zes|zeven|acht|negen|tien|elf|twaalf)\b)"
)
"""Half an hour before, in German and Dutch: "halb neun" is 8:30."""
_PAST_THE_HOUR = (
    (re.compile(r"\b(\d{1,2})(?: oclock| hour)? and (?:media|demie?|mezz[ao]|meia)\b"), ":30"),
    (re.compile(r"\b(\d{1,2})(?: oclock| hour)? and (?:1 )?(?:cuarto|quart|quarto)\b"), ":15"),
    (re.compile(r"\bhalf (\d{1,2})\b"), ":30"),
)


@lru_cache(maxsize=1)
def _translator() -> tuple[re.Pattern[str], dict[str, str]]:
    english = {
        word: meaning for meaning, words in _TRANSLATIONS.items() for word in words.split("|")
    }
    longest_first = sorted(english, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first))
    return re.compile(rf"(?<![\w'-])(?:{pattern})(?![\w'-])"), english


def in_plain_english(text: str) -> str:
    """Return words about a time, of seven languages, in the English words that are read here."""
    import unicodedata

    spelled = unicodedata.normalize("NFKD", text.lower().replace("\u2019", "'").replace("ß", "ss"))
    words = "".join(char for char in spelled if not unicodedata.combining(char))
    words = re.sub(r"[,;]", " ", words).strip(" .!?\t\n")
    words = re.sub(r"\b(\d{1,2})\.? uhr (\d{2})\b", r"\1:\2", " ".join(words.split()))
    # "am" is "on" in German, and the morning in English, where it stands after a number.
    words = re.sub(r"(^|[a-z]\s)am (?=\w)(?!morgen\b|abend\b|nachmittag\b)", r"\1", words)
    words = _HALF_BEFORE.sub("half to ", words)
    # "over 2 uur" is in two hours, "om 2 uur" at two.
    words = re.sub(r"\bover (?=\w+ (?:minu|uur|dag|we[ek]|maand))", "in ", words)
    words = re.sub(r"(\bin \w+) uur\b", r"\1 hour", words)
    pattern, english = _translator()
    words = " ".join(pattern.sub(lambda found: english[found[0]], words).split())
    for half_or_quarter, minutes in _PAST_THE_HOUR:
        words = half_or_quarter.sub(rf"\1{minutes}", words)
    return re.sub(r"\bevery (every\b ?)+", "every ", words)


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


def day_text(milliseconds: int, zone: tzinfo = UTC) -> str:
    """Return the day of a moment in a zone, such as `3 May 2026`."""
    moment = to_datetime(milliseconds, zone)
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


def local_day(milliseconds: int) -> str:
    """Return the local date of a moment, such as `2026-11-16`."""
    return f"{_local(milliseconds):%Y-%m-%d}"


def local_clock(milliseconds: int) -> str:
    """Return a moment as local time of day, such as `04:00:00`."""
    return f"{_local(milliseconds):%H:%M:%S}"


def local_short(milliseconds: int) -> str:
    """Return the local time of a moment of today, or the local date of another day."""
    today = datetime.now(UTC).astimezone(_local_zone).date()
    moment = _local(milliseconds)
    return f"{moment:%H:%M:%S}" if moment.date() == today else f"{moment:%Y-%m-%d}"


def weekday_text(milliseconds: int, zone: tzinfo) -> str:
    """Return a moment in a zone with its weekday, such as `Wed 18 Nov 2026, 09:00`."""
    moment = to_datetime(milliseconds, zone)
    return f"{moment:%a} {moment.day} {moment:%b %Y, %H:%M}"


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


def ago_text(milliseconds: int) -> str:
    """Return how long ago something was: seconds only below a minute, such as `44 s ago`."""
    seconds = max(0, milliseconds) // 1000
    text = f"{seconds} s" if seconds < 60 else duration_text(seconds // 60 * 60_000)
    return f"{text} ago"


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
    return to_datetime(milliseconds).astimezone(_local_zone)
