"""Times to come as people write them, in their own zone; and which zone that is."""

from datetime import date, datetime, time, timedelta, tzinfo
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import InvalidInput
from asterism.times import (
    MINUTE,
    machine_zone,
    next_time,
    read_future,
    to_datetime,
    to_ms,
    weekday_text,
    zone_named,
)
from asterism.types.turns import (
    message_wire,
    stamp_text,
    text_of,
    time_note,
    with_stamp,
    without_stamp,
    without_times,
)

BERLIN = zone_named("Europe/Berlin")
NEW_YORK = zone_named("America/New_York")
KOLKATA = zone_named("Asia/Kolkata")
AUCKLAND = zone_named("Pacific/Auckland")
MOMENTS = st.integers(1_577_836_800, 2_208_988_800).map(lambda seconds: seconds * 1000)
"""From 2020 to 2040."""
ZONES = st.sampled_from([BERLIN, NEW_YORK, KOLKATA, AUCKLAND])
NOW = to_ms(datetime(2026, 11, 17, 14, 5, tzinfo=BERLIN))
"""A Tuesday in winter."""

ONCE = {
    "at 4": "Tue 17 Nov 2026, 16:00",
    "today at 4": "Tue 17 Nov 2026, 16:00",
    "um halb neun abends": "Tue 17 Nov 2026, 20:30",
    "morgen om half negen": "Wed 18 Nov 2026, 08:30",
    "morgenochtend om kwart over acht": "Wed 18 Nov 2026, 08:15",
    "over 2 uur": "Tue 17 Nov 2026, 16:05",
    "mañana a las ocho y media": "Wed 18 Nov 2026, 08:30",
    "demain à 8 heures et demie": "Wed 18 Nov 2026, 08:30",
    "tomorrow at half eight": "Wed 18 Nov 2026, 08:30",
    "20 minutes from now": "Tue 17 Nov 2026, 14:25",
    "in 20 min": "Tue 17 Nov 2026, 14:25",
    "in half an hour": "Tue 17 Nov 2026, 14:35",
    "in an hour": "Tue 17 Nov 2026, 15:05",
    "an hour and a half": "Tue 17 Nov 2026, 15:35",
    "in 2 hours and 30 minutes": "Tue 17 Nov 2026, 16:35",
    "in a week": "Tue 24 Nov 2026, 14:05",
    "in 3 days at 9": "Fri 20 Nov 2026, 09:00",
    "in a month": "Thu 17 Dec 2026, 14:05",
    "tomorrow at nine": "Wed 18 Nov 2026, 09:00",
    "Tomorrow at nine.": "Wed 18 Nov 2026, 09:00",
    "tomorrow 9:00": "Wed 18 Nov 2026, 09:00",
    "tomorrow": "Wed 18 Nov 2026, 09:00",
    "at noon tomorrow": "Wed 18 Nov 2026, 12:00",
    "quarter to ten tomorrow": "Wed 18 Nov 2026, 09:45",
    "the day after tomorrow at 7 pm": "Thu 19 Nov 2026, 19:00",
    "at 18:30": "Tue 17 Nov 2026, 18:30",
    "18:30": "Tue 17 Nov 2026, 18:30",
    "4 pm today": "Tue 17 Nov 2026, 16:00",
    "today at 4 p.m.": "Tue 17 Nov 2026, 16:00",
    "tonight": "Tue 17 Nov 2026, 20:00",
    "tonight at 8": "Tue 17 Nov 2026, 20:00",
    "8 in the evening": "Tue 17 Nov 2026, 20:00",
    "tonight at 12": "Wed 18 Nov 2026, 00:00",
    "midnight": "Wed 18 Nov 2026, 00:00",
    "Friday 15:00": "Fri 20 Nov 2026, 15:00",
    "Tuesday at 15:00": "Tue 17 Nov 2026, 15:00",
    "Tuesday at 9": "Tue 24 Nov 2026, 09:00",
    "next Monday at 8": "Mon 23 Nov 2026, 08:00",
    "next Tuesday at 15:00": "Tue 24 Nov 2026, 15:00",
    "on 24 December at 18:00": "Thu 24 Dec 2026, 18:00",
    "December 24th, 2026 at 6pm": "Thu 24 Dec 2026, 18:00",
    "5 November at 8": "Fri 5 Nov 2027, 08:00",
    "29 February": "Tue 29 Feb 2028, 09:00",
    "Friday 20 November at 9": "Fri 20 Nov 2026, 09:00",
    "2026-12-24T18:00": "Thu 24 Dec 2026, 18:00",
    "2026-12-24 18:00": "Thu 24 Dec 2026, 18:00",
    "2026-12-24T18:00Z": "Thu 24 Dec 2026, 19:00",
    "24.12.2026 18:30": "Thu 24 Dec 2026, 18:30",
    # German
    "morgen um neun": "Wed 18 Nov 2026, 09:00",
    "morgen früh um 8": "Wed 18 Nov 2026, 08:00",
    "in 20 Minuten": "Tue 17 Nov 2026, 14:25",
    "in einer halben Stunde": "Tue 17 Nov 2026, 14:35",
    "heute Abend um 8": "Tue 17 Nov 2026, 20:00",
    "nächsten Freitag um 15 Uhr": "Fri 20 Nov 2026, 15:00",
    "am 24. Dezember um 18 Uhr 30": "Thu 24 Dec 2026, 18:30",
    # Spanish
    "mañana a las nueve": "Wed 18 Nov 2026, 09:00",
    "mañana por la mañana": "Wed 18 Nov 2026, 09:00",
    "en 20 minutos": "Tue 17 Nov 2026, 14:25",
    "el viernes a las 15:00": "Fri 20 Nov 2026, 15:00",
    "24 de diciembre a las 18:00": "Thu 24 Dec 2026, 18:00",
    # French
    "demain à 9h30": "Wed 18 Nov 2026, 09:30",
    "dans 20 minutes": "Tue 17 Nov 2026, 14:25",
    "ce soir à 20h": "Tue 17 Nov 2026, 20:00",
    "lundi prochain à 8h": "Mon 23 Nov 2026, 08:00",
    # Italian
    "domani alle nove": "Wed 18 Nov 2026, 09:00",
    "tra 20 minuti": "Tue 17 Nov 2026, 14:25",
    "lunedì alle 8": "Mon 23 Nov 2026, 08:00",
    # Portuguese
    "amanhã às nove": "Wed 18 Nov 2026, 09:00",
    "em 20 minutos": "Tue 17 Nov 2026, 14:25",
    "em uma hora": "Tue 17 Nov 2026, 15:05",
    "sexta-feira às 15:00": "Fri 20 Nov 2026, 15:00",
}  # fmt: skip


@pytest.mark.promise("T15")
@pytest.mark.parametrize("text", ONCE)
def test_a_time_is_read_in_the_owners_zone(text: str):
    found = read_future(text, NOW, BERLIN)
    assert (weekday_text(found.at, BERLIN), found.cron, found.moved) == (ONCE[text], None, False)


@pytest.mark.parametrize("text", ["0:30", "at 9", "9 am", "noon", "half past nine", "14:05"])
def test_a_time_of_day_that_has_passed_is_one_of_tomorrow(text: str):
    found = read_future(text, NOW, BERLIN)
    assert found.moved
    assert to_datetime(found.at, BERLIN).day == 18


@pytest.mark.promise("T15")
@pytest.mark.parametrize(
    ("text", "cron", "first"),
    [
        ("every Monday at 8", "0 8 * * 1", "Mon 23 Nov 2026, 08:00"),
        ("every Monday and Thursday at 8", "0 8 * * 1,4", "Thu 19 Nov 2026, 08:00"),
        ("Mondays at 8", "0 8 * * 1", "Mon 23 Nov 2026, 08:00"),
        ("every weekday at 9", "0 9 * * 1-5", "Wed 18 Nov 2026, 09:00"),
        ("Monday to Friday at 9", "0 9 * * 1-5", "Wed 18 Nov 2026, 09:00"),
        ("elke werkdag om 9 uur", "0 9 * * 1-5", "Wed 18 Nov 2026, 09:00"),
        ("tous les jours ouvrables à 9 heures", "0 9 * * 1-5", "Wed 18 Nov 2026, 09:00"),
        ("entre semana a las nueve", "0 9 * * 1-5", "Wed 18 Nov 2026, 09:00"),
        ("every weekend at 10", "0 10 * * 6,7", "Sat 21 Nov 2026, 10:00"),
        ("every day at 7:30", "30 7 * * *", "Wed 18 Nov 2026, 07:30"),
        ("daily at 9", "0 9 * * *", "Wed 18 Nov 2026, 09:00"),
        ("every evening", "0 19 * * *", "Tue 17 Nov 2026, 19:00"),
        ("every hour", "0 * * * *", "Tue 17 Nov 2026, 15:00"),
        ("every 15 minutes", "*/15 * * * *", "Tue 17 Nov 2026, 14:15"),
        ("every month on the 1st at 9", "0 9 1 * *", "Tue 1 Dec 2026, 09:00"),
        ("0 9 * * 1-5", "0 9 * * 1-5", "Wed 18 Nov 2026, 09:00"),
        ("0 9 * * MON", "0 9 * * MON", "Mon 23 Nov 2026, 09:00"),
        ("jeden Montag um 8", "0 8 * * 1", "Mon 23 Nov 2026, 08:00"),
        ("jeden Tag um 7:30", "30 7 * * *", "Wed 18 Nov 2026, 07:30"),
        ("todos los días a las 7:30", "30 7 * * *", "Wed 18 Nov 2026, 07:30"),
        ("tous les jours à 7h30", "30 7 * * *", "Wed 18 Nov 2026, 07:30"),
        ("ogni lunedì alle 8", "0 8 * * 1", "Mon 23 Nov 2026, 08:00"),
        ("toda segunda-feira às 8", "0 8 * * 1", "Mon 23 Nov 2026, 08:00"),
    ],
)
def test_a_rule_is_read_as_cron_fields_of_the_owners_zone(text: str, cron: str, first: str):
    found = read_future(text, NOW, BERLIN)
    assert (found.cron, weekday_text(found.at, BERLIN)) == (cron, first)


def test_a_rule_need_not_say_every_where_one_is_asked_for():
    assert read_future("Monday at 8", NOW, BERLIN, regular=True).cron == "0 8 * * 1"
    assert read_future("9 am", NOW, BERLIN, regular=True).cron == "0 9 * * *"
    assert read_future("20 minutes", NOW, BERLIN, regular=True).cron == "*/20 * * * *"
    assert read_future("0 9 * * *", NOW, BERLIN, regular=True).cron == "0 9 * * *"
    with pytest.raises(InvalidInput):
        read_future("8", NOW, BERLIN, regular=True)
    with pytest.raises(InvalidInput):
        read_future("tomorrow at 9", NOW, BERLIN, regular=True)


@pytest.mark.parametrize(
    "text",
    [
        "", "soon", "9", "today", "next week", "32:00", "tomorrow at 25:00", "13 pm", "in", "at",
        "whenever you like", "every", "every 7 minutes", "every blue moon", "in 20 minutes at 9",
        "Monday 20 November at 9", "31 February 2027 at 9", "tomorrow at midnight", "9" * 400,
        "in 1e9 years", "in 99999999999 days", "and", "et", "as", "am", "in and",
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_the_forms_that_can(text: str):
    with pytest.raises(InvalidInput) as refused:
        read_future(text, NOW, BERLIN)
    assert "is not a valid time" in refused.value.message
    assert '"tomorrow at nine"' in refused.value.message
    assert '"every Monday at 8"' in refused.value.message


@pytest.mark.parametrize("text", ["today at 9", "2020-01-01T00:00", "24 December 2025"])
def test_what_has_passed_is_refused_with_what_it_was_read_as(text: str):
    with pytest.raises(InvalidInput, match=r"which has passed: it is Tue 17 Nov 2026, 14:05 now"):
        read_future(text, NOW, BERLIN)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str):
    try:
        found = read_future(text, NOW, BERLIN)
    except InvalidInput:
        return
    assert found.at >= NOW


@pytest.mark.promise("T15")
@given(
    MOMENTS,
    ZONES,
    st.integers(0, 23),
    st.integers(0, 59),
)
def test_tomorrow_at_a_time_is_that_time_of_the_next_local_day(
    now: int, zone: tzinfo, hour: int, minute: int
):
    found = to_datetime(read_future(f"tomorrow at {hour}:{minute:02}", now, zone).at, zone)
    tomorrow = to_datetime(now, zone).date() + timedelta(days=1)
    wanted = datetime.combine(tomorrow, time(hour, minute))
    # A time that the clock skips comes an hour later.
    assert found.replace(tzinfo=None) - wanted in (timedelta(), timedelta(hours=1))


@given(MOMENTS, ZONES, st.integers(1, 5_000))
def test_minutes_are_counted_by_the_clock_and_days_by_the_calendar(
    now: int, zone: tzinfo, count: int
):
    assert read_future(f"in {count} minutes", now, zone).at == now + count * MINUTE
    here = to_datetime(now, zone)
    found = to_datetime(read_future(f"in {count} days", now, zone).at, zone)
    assert (found.date() - here.date()).days == count
    skipped = found.replace(tzinfo=None) - datetime.combine(found.date(), here.time())
    assert skipped in (timedelta(), timedelta(hours=1))


@pytest.mark.promise("T15")
@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        (BERLIN, date(2026, 3, 28), 23),  # summer time begins that night
        (BERLIN, date(2026, 10, 24), 25),  # and ends
        (NEW_YORK, date(2026, 3, 7), 23),
        (AUCKLAND, date(2026, 4, 4), 25),
        (KOLKATA, date(2026, 3, 28), 24),
    ],
)
def test_a_rule_keeps_the_time_of_day_over_a_change_to_summer_time(
    zone: tzinfo, day: date, hours: int
):
    first = to_ms(datetime.combine(day, time(9), zone))
    assert next_time("0 9 * * *", first - 1, zone) == first
    assert next_time("0 9 * * *", first, zone) == first + hours * 60 * MINUTE


def test_a_rule_for_a_time_that_is_skipped_or_comes_twice_is_due_once():
    first = to_ms(datetime(2026, 3, 28, 12, tzinfo=BERLIN))
    skipped = next_time("30 2 * * *", first, BERLIN)
    assert weekday_text(skipped, BERLIN) == "Sun 29 Mar 2026, 03:00"
    first = to_ms(datetime(2026, 10, 24, 12, tzinfo=BERLIN))
    twice = next_time("30 2 * * *", first, BERLIN)
    assert weekday_text(twice, BERLIN) == "Sun 25 Oct 2026, 02:30"
    assert weekday_text(next_time("30 2 * * *", twice, BERLIN), BERLIN) == "Mon 26 Oct 2026, 02:30"


# -- the machine's zone ------------------------------------------------------------------------


def machine(root: Path, *, link: str = "", written: str = "") -> Path:
    (root / "etc").mkdir()
    if link:
        (root / "etc/localtime").symlink_to(link)
    if written:
        (root / "etc/timezone").write_text(written)
    return root


@pytest.mark.promise("T15")
def test_the_zone_of_the_machine_is_found(tmp_path: Path):
    root = machine(tmp_path, link="/usr/share/zoneinfo/Asia/Kolkata", written="Europe/Berlin\n")
    assert machine_zone("America/New_York", root) == "America/New_York"
    assert machine_zone(":/usr/share/zoneinfo/Europe/Paris", root) == "Europe/Paris"
    assert machine_zone("nowhere", root) == "Asia/Kolkata"
    (root / "etc/localtime").unlink()
    assert machine_zone(None, root) == "Europe/Berlin"
    (root / "etc/timezone").write_bytes(b"\xff")
    assert machine_zone(None, root) == "UTC"


def test_a_machine_that_tells_nothing_is_in_utc(tmp_path: Path):
    assert machine_zone(None, tmp_path) == "UTC"
    assert machine_zone("", machine(tmp_path, link="../usr/share/zoneinfo/Etc/UTC")) == "UTC"


# -- stamps --------------------------------------------------------------------------------------


@given(st.text(), st.integers(0, 4_000_000_000_000), ZONES.map(str))
def test_a_stamp_stands_in_front_of_the_text_and_nothing_else_changes(
    text: str, at: int, zone: str
):
    stamp = stamp_text(at, zone)
    body = message_wire("user", text)
    stamped = with_stamp(body, stamp)
    assert text_of(stamped) == stamp + text
    assert without_stamp(text_of(stamped)) == text
    assert len(stamped) == len(body) + len(stamp)


def test_a_stamp_stands_after_the_mark_of_the_system():
    stamp = stamp_text(NOW, "Europe/Berlin")
    assert stamp == "[Tue 2026-11-17 14:05] "
    told = text_of(with_stamp(message_wire("user", "[asterism] Approved."), stamp))
    assert told == "[asterism] [Tue 2026-11-17 14:05] Approved."


def test_a_request_is_the_same_without_its_times_and_zone():
    """Which is how a tape finds the answer to what was asked at another time, elsewhere."""

    def request(zone: str, at: int) -> bytes:
        message = with_stamp(message_wire("user", "hello"), stamp_text(at, zone))
        return message_wire("system", f"Be brief. {time_note(zone)}") + message

    here, there = request("Europe/Berlin", NOW), request("America/New_York", NOW + 90 * MINUTE)
    assert here != there
    assert without_times(here) == without_times(there)
    assert b"hello" in without_times(here)
