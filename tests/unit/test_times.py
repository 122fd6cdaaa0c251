"""Dates, moments and durations as people write them, and as they are shown."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from datetime import time as clock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.cli.inputs import read_since, read_until
from asterism.errors import InvalidInput
from asterism.times import (
    DAY,
    HOUR,
    MINUTE,
    MONTH_NUMBERS,
    WEEK,
    ago_text,
    days_text,
    duration_text,
    exact_duration,
    iso_text,
    local_clock,
    local_minute,
    local_short,
    local_text,
    read_duration,
    read_hours,
    read_iso,
    read_moment,
    read_range,
    rounded_duration,
    to_datetime,
    to_ms,
    utc_minute,
    utc_text,
    zone_named,
)
from asterism.types.agents import now_ms

NOW = datetime(2026, 11, 16, 4, 30, tzinfo=UTC)
"""A Monday."""


def ms(*parts: int, zone: timezone = UTC) -> int:
    return int(datetime(*parts, tzinfo=zone).timestamp() * 1000)


@pytest.fixture(autouse=True)
def local_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be in a zone that is known."""
    set_zone(monkeypatch, "UTC")
    yield
    monkeypatch.undo()
    time.tzset()


def set_zone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TZ", name)
    time.tzset()


# -- milliseconds and datetimes --------------------------------------------------------------------


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_a_datetime_leads_back_to_its_milliseconds(milliseconds: int) -> None:
    assert to_ms(to_datetime(milliseconds)) == milliseconds


@given(st.datetimes(timezones=st.timezones()))
def test_a_datetime_of_any_zone_is_the_same_moment(moment: datetime) -> None:
    found = to_datetime(to_ms(moment))
    assert timedelta() <= moment - found < timedelta(milliseconds=1)


def test_a_zone_can_be_chosen() -> None:
    zone = timezone(timedelta(hours=5))
    moment = to_datetime(ms(2026, 11, 16, 4), zone)
    assert (moment.hour, moment.utcoffset()) == (9, timedelta(hours=5))
    assert to_datetime(0) == datetime(1970, 1, 1, tzinfo=UTC)


def test_a_datetime_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidInput, match="2026-11-16 04:00:00 has no time zone"):
        to_ms(datetime(2026, 11, 16, 4))  # noqa: DTZ001 - that is the point


# -- durations -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90 s", 90),
        ("10m", 600),
        ("10 min", 600),
        ("2 Hours", 7_200),
        ("4 hrs", 14_400),
        ("1.5h", 5_400),
        (".5 s", 0.5),
        ("1d", 86_400),
        ("30 days", 30 * 86_400),
        (" 2 weeks ", 14 * 86_400),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "h", "-1h", "1 month", "100ms", "1h 30m", "1e3 s", "9" * 400 + "s"]
)
def test_what_is_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - callers say it in their own words
        read_duration(text)


def test_a_number_can_have_a_default_unit() -> None:
    assert read_duration("90", "s") == 90
    assert read_duration("2", "h") == 7_200
    assert read_duration("2m", "h") == 120


@given(st.integers(0, 10**5), st.sampled_from(["s", "m", "h", "d", "w"]))
def test_what_is_shown_exactly_can_be_read(count: int, unit: str) -> None:
    seconds = read_duration(f"{count}{unit}")
    assert read_duration(exact_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-5, "0.0 s"),
        (1_449, "1.4 s"),
        (59_900, "59.9 s"),
        (MINUTE, "1 min"),
        (MINUTE + 5_900, "1 min 5 s"),
        (2 * HOUR + 5 * MINUTE + 7_000, "2 h 5 min"),
        (2 * HOUR + 7_000, "2 h"),
        (DAY, "1 d"),
        (WEEK + HOUR + MINUTE, "7 d 1 h"),
        (DAY + 59 * MINUTE, "1 d"),
    ],
)
def test_how_long_something_took(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-5, "0 s ago"),
        (44_200, "44 s ago"),
        (MINUTE + 5_900, "1 min ago"),
        (2 * HOUR + 5 * MINUTE + 7_000, "2 h 5 min ago"),
        (WEEK + HOUR + MINUTE, "7 d 1 h ago"),
    ],
)
def test_how_long_ago_something_was(milliseconds: int, text: str) -> None:
    assert ago_text(milliseconds) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1 s"),
        (45_000, "45 s"),
        (90_000, "2 minutes"),
        (HOUR, "1 hour"),
        (DAY, "1 day"),
        (3 * DAY + HOUR, "3 days"),
    ],
)
def test_a_rounded_duration(milliseconds: int, text: str) -> None:
    assert rounded_duration(milliseconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "0.5 s"), (90, "90 s"), (600, "10 min"), (7_200, "2 h"), (86_400, "1 d")],
)
def test_an_exact_duration(seconds: float, text: str) -> None:
    assert exact_duration(seconds) == text


# -- moments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", ms(2026, 11, 16, 4, 30)),
        ("1763265600000", 1_763_265_600_000),
        ("1 hour ago", ms(2026, 11, 16, 3, 30)),
        ("90m", ms(2026, 11, 16, 3)),
        ("04:00", ms(2026, 11, 16, 4)),
        ("4:00:10", ms(2026, 11, 16, 4, 0, 10) + 999),
        ("Yesterday at 18:00", ms(2026, 11, 15, 18)),
        ("2026-11-16T04:00Z", ms(2026, 11, 16, 4)),
        ("2026-11-16 04:00:10+02:00", ms(2026, 11, 16, 2, 0, 10)),
        ("20261116", ms(2026, 11, 16)),
    ],
)
def test_moments(text: str, moment: int) -> None:
    assert read_moment(text, NOW) == to_datetime(moment)


@pytest.mark.parametrize("text", ["", "12", "v12", "may", "25:00", "2026-13-01", "5", "whenever"])
def test_what_is_not_a_moment(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a valid time"):
        read_moment(text, NOW)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026-05-03", ms(2026, 5, 3), ms(2026, 5, 4) - 1),
        ("yesterday", ms(2026, 11, 15), ms(2026, 11, 16) - 1),
        ("today", ms(2026, 11, 16), ms(2026, 11, 17) - 1),
        ("2026-05-03T12:00", ms(2026, 5, 3, 12), ms(2026, 5, 3, 12)),
        ("2 hours ago", ms(2026, 11, 16, 2, 30), ms(2026, 11, 16, 2, 30)),
        ("last week", ms(2026, 11, 9), ms(2026, 11, 16) - 1),
    ],
)
def test_both_ends(text: str, first: int, last: int) -> None:
    assert read_since(text, NOW) == to_datetime(first)
    assert read_until(text, NOW) == to_datetime(last)


def test_words_mean_days_of_the_local_zone() -> None:
    zone = timezone(timedelta(hours=5))
    now = NOW.astimezone(zone)
    assert to_ms(read_since("last week", now)) == ms(2026, 11, 9, zone=zone)
    assert to_ms(read_until("last week", now)) == ms(2026, 11, 16, zone=zone) - 1


def test_a_day_of_summer_ends_in_summer_time_whenever_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_zone(monkeypatch, "Europe/Berlin")
    first, last = read_range("2026-07-10", NOW.astimezone())
    assert (to_ms(first), to_ms(last)) == (ms(2026, 7, 9, 22), ms(2026, 7, 10, 22) - 1)


@pytest.mark.parametrize("read", [read_since, read_until])
def test_what_is_no_time_is_refused(read: object) -> None:
    assert callable(read)
    with pytest.raises(InvalidInput, match="'whenever' is not a valid time"):
        read("whenever")


def test_iso_times_have_the_zone_that_is_asked_for() -> None:
    assert read_iso("2026-12-24T18:00", UTC) == datetime(2026, 12, 24, 18, tzinfo=UTC)
    assert read_iso("2026-12-24t18:00z") == datetime(2026, 12, 24, 18, tzinfo=UTC)
    with pytest.raises(ValueError, match="Invalid isoformat"):
        read_iso("tomorrow")


def test_hours_of_the_day() -> None:
    assert read_hours(" 8:00 - 22:30 ") == (clock(8), clock(22, 30))
    for text in ("8-22", "08:00-25:00", "08:00-08:00", ""):
        with pytest.raises(ValueError):  # noqa: PT011 - callers say it in their own words
            read_hours(text)


# -- wording ---------------------------------------------------------------------------------------


def test_moments_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = ms(2026, 5, 3, 22, 5, 9)
    assert iso_text(moment) == "2026-05-03T22:05:09Z"
    assert utc_text(moment) == "2026-05-03 22:05:09 UTC"
    assert utc_minute(moment) == "2026-05-03 22:05"
    set_zone(monkeypatch, "Europe/Berlin")
    assert local_text(moment) == "2026-05-04 00:05:09"
    assert local_minute(moment) == "2026-05-04 00:05"
    assert local_clock(moment) == "00:05:09"
    assert local_short(moment) == "2026-05-04"
    now = int(time.time() * 1000)
    assert local_short(now) in (local_clock(now), local_text(now)[:10])


def test_days_are_shown_with_one_year() -> None:
    assert days_text(ms(2026, 5, 3), ms(2026, 5, 3, 23)) == "3 May 2026"
    assert days_text(ms(2026, 5, 3), ms(2026, 5, 9)) == "3 May – 9 May 2026"
    assert days_text(ms(2025, 12, 31), ms(2026, 1, 1)) == "31 Dec 2025 – 1 Jan 2026"


def test_months_are_known_by_short_names() -> None:
    assert (MONTH_NUMBERS["sept"], MONTH_NUMBERS["sep"], MONTH_NUMBERS["september"]) == (9, 9, 9)
    assert set(MONTH_NUMBERS.values()) == set(range(1, 13))


@pytest.mark.promise("X5")
def test_a_clock_beyond_all_times_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    def beyond() -> int:
        raise OverflowError

    before = now_ms()
    monkeypatch.setattr("asterism.types.agents.time.time_ns", beyond)
    assert abs(now_ms() - before) < 60_000


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    "moment",
    [
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    ],
)
def test_times_that_cannot_be_shown_are_refused(moment: datetime) -> None:
    with pytest.raises(InvalidInput, match="Use a time between"):
        to_ms(moment)


@pytest.mark.parametrize("zone", ["Pacific/Auckland", "America/New_York", "UTC"])
def test_the_first_and_the_last_time_are_shown_in_every_zone(zone: str) -> None:
    for moment in (datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)):
        shown = to_datetime(to_ms(moment), zone_named(zone))
        assert abs(shown - moment) < timedelta(milliseconds=1)
