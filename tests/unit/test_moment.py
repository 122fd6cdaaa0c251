"""Times as people write them for the ends of a range."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from asterism.cli.moment import read_first, read_last
from asterism.errors import InvalidInput

NOW = datetime(2026, 11, 16, 4, 30, tzinfo=UTC)
"""A Monday."""


def ms(*given: int, zone: timezone = UTC) -> int:
    return int(datetime(*given, tzinfo=zone).timestamp() * 1000)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be in a zone that is known."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


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
    assert read_first(text, NOW) == first
    assert read_last(text, NOW) == last


def test_words_mean_days_of_the_local_zone() -> None:
    zone = timezone(timedelta(hours=5))
    now = NOW.astimezone(zone)
    assert read_first("last week", now) == ms(2026, 11, 9, zone=zone)
    assert read_last("last week", now) == ms(2026, 11, 16, zone=zone) - 1


@pytest.mark.parametrize("read", [read_first, read_last])
def test_what_is_no_time_is_told(read: Callable[[str], int]) -> None:
    with pytest.raises(InvalidInput, match="'whenever' is no moment"):
        read("whenever")
