"""The checker's own due moments, against the cron language: two ways to the same answer."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from noonbell.cron import parse
from noonbell.testing.occurrences import due_between, falls_due, minute_start

CASES = [
    ("* * * * *", "UTC", datetime(2025, 1, 1, tzinfo=UTC), timedelta(hours=30)),
    ("30 1,2 * * *", "Europe/Berlin", datetime(2025, 3, 29, tzinfo=UTC), timedelta(days=3)),
    ("* 2 * * *", "Europe/Berlin", datetime(2025, 10, 25, tzinfo=UTC), timedelta(days=3)),
    ("15,45 1-2 * * 0", "Australia/Lord_Howe", datetime(2025, 4, 4, tzinfo=UTC), timedelta(days=4)),
    ("0 0 1,15 * 1", "Asia/Kolkata", datetime(2024, 12, 20, tzinfo=UTC), timedelta(days=40)),
    ("0 12 29 2 *", "America/New_York", datetime(2023, 12, 1, tzinfo=UTC), timedelta(days=200)),
]


def instant(at: datetime) -> int:
    return int(at.timestamp()) * 1_000_000


@pytest.mark.parametrize(("cron", "zone", "start", "length"), CASES)
def test_they_agree_with_the_cron_language(cron: str, zone: str, start: datetime, length: timedelta) -> None:
    place = ZoneInfo(zone)
    found = due_between(cron, place, instant(start), instant(start + length))
    expected = [instant(at) for at in parse(cron).between(start.astimezone(place), (start + length).astimezone(place))]
    assert found == expected
    assert found


def test_the_interval_is_open_at_the_left_and_closed_at_the_right() -> None:
    noon = instant(datetime(2025, 6, 1, 12, tzinfo=UTC))
    assert falls_due("0 12 * * *", UTC, noon - 1, noon)
    assert not falls_due("0 12 * * *", UTC, noon, noon + 3_600_000_000)
    assert not falls_due("0 12 * * *", UTC, noon - 3_600_000_000, noon - 1)
    assert not falls_due("0 12 * * *", UTC, noon, noon - 86_400_000_000)


def test_the_search_reaches_back_to_the_last_leap_day() -> None:
    assert falls_due("0 0 29 2 *", UTC, 0, instant(datetime(2032, 2, 28, tzinfo=UTC)))


def test_minutes_start_on_the_minute() -> None:
    at = instant(datetime(2025, 6, 1, 12, 34, tzinfo=UTC))
    assert [minute_start(at), minute_start(at + 59_999_999), minute_start(at - 1)] == [at, at, at - 60_000_000]
