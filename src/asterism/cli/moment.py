"""Moments and versions as people write them: "1 hour ago", 2026-11-16T04:00, 12."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from asterism.errors import InvalidInput

_AGO = re.compile(
    r"(?P<count>\d+(?:\.\d+)?)\s*"
    r"(?P<unit>s|sec|seconds?|m|min|minutes?|h|hours?|d|days?|w|weeks?)(?: ago)?"
)
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DAY = re.compile(r"(?P<day>today|yesterday)(?:\s+(?:at\s+)?(?P<time>\d{1,2}:\d{2}(?::\d{2})?))?")
_TIME = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?")
_STAMP = re.compile(r"\d{12,14}")
_VERSION = re.compile(r"v?(\d{1,11})")
_WHOLE_DAY = re.compile(r"today|yesterday|\d{4}-\d{2}-\d{2}|\d{8}")
_TO_THE_SECOND = re.compile(r"\d{1,2}:\d{2}:\d{2}$")


def read_moment(text: str, now: datetime | None = None) -> int:
    """Return the moment that a person means, in milliseconds; a time without a zone is local.

    Commands show times to the second, so a moment written so means the end of that second: what
    happened in it is part of what was known then.
    """
    given = " ".join(text.lower().split())
    here = now or datetime.now().astimezone()
    if _STAMP.fullmatch(given):
        return int(given)
    if given == "now":
        return _ms(here)
    if found := _AGO.fullmatch(given):
        seconds = float(found["count"]) * _SECONDS[found["unit"][0]]
        return _ms(here) - int(seconds * 1000)
    rest = 999 if _TO_THE_SECOND.search(given) else 0
    try:
        return _ms(_written(given, here)) + rest
    except (ValueError, OverflowError, OSError):
        raise InvalidInput(
            f"{text!r} is no moment. Write one such as 2026-11-16T04:00, 04:00, yesterday or "
            '"1 hour ago". Nothing was done.'
        ) from None


def read_first(text: str, now: datetime | None = None) -> int:
    """Return the first moment of the time that a person means, such as "last week" or a day."""
    try:
        return read_moment(text, now)
    except InvalidInput:
        span = _span(text, now)
        if span is None:
            raise
        return span[0]


def read_last(text: str, now: datetime | None = None) -> int:
    """Return the last moment of the time that a person means; a day is meant to its end."""
    given = " ".join(text.lower().split())
    here = now or datetime.now().astimezone()
    if _WHOLE_DAY.fullmatch(given):
        day = datetime.fromtimestamp(read_moment(text, here) / 1000, here.tzinfo)
        return _ms(_at(day + timedelta(days=1), "0:00")) - 1
    try:
        return read_moment(text, here)
    except InvalidInput:
        span = _span(text, here)
        if span is None:
            raise
        return span[1]


def _span(text: str, now: datetime | None) -> tuple[int, int] | None:
    """Return the time that words such as "last week" mean, in days of the local zone."""
    from asterism.memory.search.dates import span_of

    here = now or datetime.now().astimezone()
    offset = here.utcoffset() or timedelta()
    ahead = int(offset.total_seconds() * 1000)
    span = span_of(text, _ms(here) + ahead)
    return (span[0] - ahead, span[1] - ahead) if span is not None else None


def read_point(text: str) -> tuple[int | None, int | None]:
    """Return the version, or else the moment, that a person means."""
    if found := _VERSION.fullmatch(text.strip().lower()):
        return int(found[1]), None
    return None, read_moment(text)


def _written(given: str, here: datetime) -> datetime:
    if found := _DAY.fullmatch(given):
        day = here - timedelta(days=found["day"] == "yesterday")
        return _at(day, found["time"] or "0:00")
    if _TIME.fullmatch(given):
        return _at(here, given)
    moment = datetime.fromisoformat(given.upper())
    return moment if moment.tzinfo is not None else moment.astimezone()


def _at(day: datetime, time: str) -> datetime:
    hour, minute, *seconds = map(int, time.split(":"))
    second = seconds[0] if seconds else 0
    naive = datetime(day.year, day.month, day.day, hour, minute, second)  # noqa: DTZ001 - local
    return naive.astimezone()


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
