"""Planning by itself: the time factor, reminders that back off, quiet hours, trends."""

from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asterism.times import (
    MINUTE,
    quiet_until,
    read_hours,
    to_datetime,
    to_ms,
    zone_named,
)
from asterism.tools.planning.energy import EnergyEntry, energy_trends, extremes, trends_text
from asterism.tools.planning.habits import MAX_IGNORED, next_reminder, stride
from asterism.tools.planning.recovery import Said, conversation_about, conversations
from asterism.tools.planning.tasks import (
    TaskTime,
    check_in_delay,
    minutes_text,
    next_task,
    ordered,
    time_factor,
    translation,
    usual_minutes,
)
from asterism.types.memory import Source

BERLIN = zone_named("Europe/Berlin")
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"])
MOMENTS = st.integers(1_700_000_000_000, 1_900_000_000_000)
CLOCKS = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59))
HOURS = st.tuples(CLOCKS, CLOCKS).filter(lambda pair: pair[0] != pair[1]).map("-".join)
MINUTES = st.floats(1, 1_000)
TIMES = st.lists(
    st.builds(TaskTime, st.sampled_from(["writing", "email", ""]), MINUTES, MINUTES), max_size=40
)
RULES = st.sampled_from(["0 9 * * *", "0 */2 * * *", "*/30 * * * *", "30 7 * * 1-5", "0 20 * * 0"])


def took(ratio: float, kind: str = "writing") -> TaskTime:
    return TaskTime(kind, 30, 30 * ratio)


# -- the time factor -------------------------------------------------------------------------------


def test_without_tasks_an_estimate_stays_as_it_is() -> None:
    assert time_factor([], "writing").factor == 1
    assert "nothing is known yet" in translation(30, [], "writing")


@pytest.mark.promise("G4")
def test_ten_tasks_teach_how_long_things_take() -> None:
    ratios = [1.6, 1.7, 1.5, 1.7, 1.8, 1.6, 1.7, 9.0, 1.7, 1.6]
    learned = time_factor([took(ratio) for ratio in ratios], "writing")
    assert learned.samples == 10
    assert 1.5 < learned.factor < 1.7
    assert translation(30, [took(ratio) for ratio in ratios], "writing") == (
        "you say 30 min, you usually take 45 min (factor 1.5 from 10 writing tasks)"
    )


@given(TIMES, st.sampled_from(["writing", "email", "cooking", ""]))
def test_the_factor_lies_between_1_and_what_was_seen(times: list[TaskTime], kind: str) -> None:
    ratios = [min(max(time.spent / time.estimate, 0.1), 10) for time in times]
    factor = time_factor(times, kind).factor
    assert min([1.0, *ratios]) * 0.999 <= factor <= max([1.0, *ratios]) * 1.001


@given(st.lists(MINUTES, min_size=1, max_size=29), st.randoms())
def test_the_order_of_few_tasks_does_not_matter(spent: list[float], random: object) -> None:
    times = [TaskTime("writing", 30, minutes) for minutes in spent]
    shuffled = times[:]
    random.shuffle(shuffled)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - hypothesis types it as an object
    assert time_factor(times, "writing") == time_factor(shuffled, "writing")


@given(st.integers(1, 40), st.floats(1.01, 9))
def test_more_tasks_bring_it_nearer_to_what_they_say(count: int, ratio: float) -> None:
    fewer = time_factor([took(ratio)] * count, "writing").factor
    more = time_factor([took(ratio)] * (count + 1), "writing").factor
    assert 1 < fewer <= more + 1e-9
    assert more <= ratio + 1e-9


@given(st.lists(st.floats(0.5, 3), min_size=5, max_size=29), st.floats(0.01, 1_000))
def test_one_forgotten_task_does_not_spoil_it(ratios: list[float], wild: float) -> None:
    """However long it took, the factor stays where those beside the median would put it."""
    sound = sorted(ratios)
    middle = len(sound) // 2
    low, high = sound[max(0, middle - 1)], sound[min(len(sound) - 1, middle + 1)]
    factor = time_factor([took(ratio) for ratio in (*ratios, wild)], "writing").factor
    assert min(1, low) * 0.999 <= factor <= max(1, high) * 1.001


@pytest.mark.promise("G4")
@pytest.mark.parametrize("kind", ["writing", "", "email"])
def test_a_first_task_that_was_forgotten_teaches_nothing(kind: str) -> None:
    forgotten = [took(20)]
    assert time_factor(forgotten, kind).factor == 1
    assert "nothing is known yet" in translation(30, forgotten, kind)
    assert time_factor([*forgotten, took(2)], "writing") == time_factor([took(2)], "writing")


@pytest.mark.promise("G4")
def test_a_single_task_counts_once() -> None:
    """One task beside three that came out as said: the fourth root of twice as long."""
    assert time_factor([took(2)], "writing").factor == pytest.approx(2**0.25)
    assert time_factor([took(2)]).factor == pytest.approx(2**0.25)


@given(st.lists(st.floats(0.2, 3.3), min_size=1, max_size=29), st.floats(1.1, 3))
def test_slower_tasks_never_make_it_smaller(ratios: list[float], slower: float) -> None:
    before = time_factor([took(ratio) for ratio in ratios], "writing").factor
    after = time_factor([took(ratio * slower) for ratio in ratios], "writing").factor
    assert after >= before - 1e-9


def test_a_new_kind_begins_with_what_all_tasks_say() -> None:
    times = [took(2.0, "email")] * 20
    overall = time_factor(times).factor
    assert time_factor(times, "cooking").factor == pytest.approx(overall)
    assert time_factor([*times, took(1.0, "cooking")], "Cooking ").samples == 1
    assert 1 < time_factor([*times, *[took(1.0, "cooking")] * 5], "cooking").factor < overall


@given(MINUTES, st.floats(0.1, 10))
def test_usual_minutes_are_what_people_say(minutes: float, factor: float) -> None:
    usual = usual_minutes(minutes, factor)
    assert usual >= 1
    assert usual < 20 or usual % 5 == 0
    assert abs(usual - minutes * factor) <= 2.5001 or usual == 1


@pytest.mark.parametrize(
    ("minutes", "text"),
    [(0, "0 min"), (0.4, "0 min"), (59.6, "1 h"), (60, "1 h"), (80, "1 h 20 min"), (5, "5 min")],
)
def test_minutes_in_words(minutes: float, text: str) -> None:
    assert minutes_text(minutes) == text


# -- reminders that back off -----------------------------------------------------------------------


@given(st.integers(0, 50))
def test_ignored_reminders_come_less_often_up_to_a_limit(ignored: int) -> None:
    assert 1 <= stride(ignored) <= stride(ignored + 1) <= 8
    assert (stride(ignored) == 1) == (ignored == 0)


@given(RULES, MOMENTS, ZONES, st.integers(0, MAX_IGNORED), HOURS)
def test_a_reminder_comes_later_outside_of_quiet_hours(
    rule: str, now: int, zone_name: str, ignored: int, quiet: str
) -> None:
    zone = zone_named(zone_name)
    at = next_reminder(rule, now, zone, ignored=ignored, quiet=quiet)
    assert at > now
    assert quiet_until(quiet, at, zone) is None
    assert at <= next_reminder(rule, now, zone, ignored=ignored + 1, quiet=quiet)


@given(RULES, MOMENTS, st.integers(1, MAX_IGNORED), HOURS)
def test_what_is_done_goes_back_to_normal(rule: str, now: int, ignored: int, quiet: str) -> None:
    normal = next_reminder(rule, now, BERLIN, quiet=quiet)
    after_done = next_reminder(rule, now, BERLIN, quiet=quiet, done=True)
    assert normal <= after_done <= next_reminder(rule, now, BERLIN, ignored=1, quiet=quiet)
    assert normal <= next_reminder(rule, now, BERLIN, ignored=ignored, quiet=quiet)


def test_gaps_double_while_nobody_answers() -> None:
    now = to_ms(datetime(2026, 11, 16, 9, 0, tzinfo=BERLIN))
    days = [
        (next_reminder("0 9 * * *", now, BERLIN, ignored=ignored, quiet="22:00-08:00") - now)
        / (24 * 60 * MINUTE)
        for ignored in range(6)
    ]
    assert days == [1, 2, 4, 8, 8, 8]


def test_many_times_in_the_night_come_once_in_the_morning() -> None:
    evening = to_ms(datetime(2026, 11, 16, 20, 0, tzinfo=BERLIN))
    first = next_reminder("0 */2 * * *", evening, BERLIN, quiet="22:00-08:00")
    second = next_reminder("0 */2 * * *", first, BERLIN, quiet="22:00-08:00")
    assert to_datetime(first, BERLIN) == datetime(2026, 11, 17, 8, 0, tzinfo=BERLIN)
    assert to_datetime(second, BERLIN) == datetime(2026, 11, 17, 10, 0, tzinfo=BERLIN)


def test_what_was_done_a_moment_ago_is_not_asked_for() -> None:
    before = to_ms(datetime(2026, 11, 16, 9, 50, tzinfo=BERLIN))
    at = next_reminder("0 */2 * * *", before, BERLIN, quiet="22:00-08:00", done=True)
    assert to_datetime(at, BERLIN).hour == 12


@given(st.floats(0, 500), st.integers(0, 10))
def test_check_ins_come_ever_later(minutes: float, count: int) -> None:
    assert 10 <= check_in_delay(minutes, count) <= check_in_delay(minutes, count + 1)


# -- quiet hours -----------------------------------------------------------------------------------


@given(HOURS, MOMENTS, ZONES)
@example(
    "01:00-02:30", to_ms(datetime(2026, 10, 25, 2, 10, tzinfo=BERLIN, fold=1)), "Europe/Berlin"
)
@example("22:00-02:30", to_ms(datetime(2026, 3, 29, 1, 59, tzinfo=BERLIN)), "Europe/Berlin")
def test_quiet_hours_end_after_the_moment_that_lies_in_them(
    hours: str, now: int, zone_name: str
) -> None:
    zone = zone_named(zone_name)
    first, last = read_hours(hours)
    clock = to_datetime(now, zone).time()
    quiet = first <= clock < last if first < last else not last <= clock < first
    end = quiet_until(hours, now, zone)
    assert (end is not None) == quiet
    if end is not None:
        assert now < end <= now + 26 * 60 * MINUTE
        assert quiet_until(hours, end, zone) is None


# -- energy ----------------------------------------------------------------------------------------


def entry(day: int, hour: int, energy: float, mood: float | None = None) -> EnergyEntry:
    at = datetime(2026, 11, 1, hour, tzinfo=BERLIN) + timedelta(days=day)
    return EnergyEntry(to_ms(at), energy, mood)


def test_good_and_hard_hours_and_weekdays_are_found() -> None:
    entries = [entry(day, 10, 8) for day in range(14)] + [entry(day, 15, 3) for day in range(14)]
    now = to_ms(datetime(2026, 11, 15, 12, tzinfo=BERLIN))
    trends = energy_trends(entries, BERLIN, now)
    assert trends is not None
    assert extremes(trends.by_hour, trends.overall) == (10, 15)
    assert trends.by_hour[10].mean == 8
    assert extremes(trends.by_weekday, trends.overall) is None
    assert "Best around 10:00, lowest around 15:00." in trends_text(trends)
    assert energy_trends(entries, BERLIN, now, figure="mood") is None


def test_a_single_note_proves_nothing() -> None:
    entries = [entry(0, 9, 10), *(entry(day, 14, 5) for day in range(5))]
    trends = energy_trends(entries, BERLIN, entries[-1].at_ms)
    assert trends is not None
    assert extremes(trends.by_hour, trends.overall) is None


@given(st.lists(st.tuples(MOMENTS, st.integers(1, 10)), min_size=1, max_size=60), ZONES)
def test_means_count_every_note_once(notes: list[tuple[int, int]], zone: str) -> None:
    entries = [EnergyEntry(at, level, None) for at, level in notes]
    trends = energy_trends(entries, zone_named(zone), 1_900_000_000_001)
    assert trends is not None
    for groups in (trends.by_hour, trends.by_weekday, trends.by_day):
        assert sum(group.count for group in groups.values()) == len(notes)
        total = sum(group.mean * group.count for group in groups.values())
        assert total == pytest.approx(sum(level for _, level in notes))
    levels = [level for _, level in notes]
    assert min(levels) <= trends.overall.mean <= max(levels)


# -- tasks and conversations -----------------------------------------------------------------------


def row(number: int, part_of: int | None = None, **more: object) -> dict[str, object]:
    return {"number": number, "title": f"task {number}", "part_of": part_of, **more}


def test_one_next_action_is_the_first_open_step() -> None:
    rows = [row(1), row(2), row(3, 2, done=True), row(4, 2), row(5, 4), row(6, 4)]
    rows[1]["started"] = "2026-11-16T09:00:00Z"
    found = next_task(rows)
    assert found is not None
    assert found["number"] == 5
    assert next_task([row(1, 1)]) is not None
    assert next_task([]) is None


@given(st.lists(st.tuples(st.integers(1, 6), st.none() | st.integers(1, 6)), max_size=12))
def test_every_task_is_listed_once_however_they_are_nested(
    pairs: list[tuple[int, int | None]],
) -> None:
    rows = [row(number, parent) for number, parent in pairs]
    found = ordered(rows)
    assert sorted(map(id, found)) == sorted(map(id, rows))


def said(minute: float, text: str) -> Said:
    return Said(int(minute), int(minute * MINUTE), "person", text, Source(()))


def test_a_break_ends_a_conversation() -> None:
    messages = [said(0, "tax forms"), said(10, "box 3"), said(50, "dinner?"), said(55, "pasta")]
    groups = conversations(messages)
    assert [len(group) for group in groups] == [2, 2]
    assert conversation_about(groups, "") == groups[1]
    assert conversation_about(groups, "Finish the tax forms") == groups[0]
    assert conversation_about([], "tax") == ()


@given(st.lists(st.integers(0, 2_000), max_size=50))
def test_conversations_keep_every_message(minutes: list[int]) -> None:
    messages = [said(minute, "x") for minute in sorted(minutes)]
    groups = conversations(messages)
    assert [message for group in groups for message in group] == messages
    for first, second in pairwise(groups):
        assert second[0].at_ms - first[-1].at_ms >= 30 * MINUTE
