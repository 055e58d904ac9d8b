"""Quiet hours as a grid of a week, and in words."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from noonbell.timing import QuietHours
from noonbell.web.week import Grid, in_words, week_of

MONDAY = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


def grid(*windows: dict[str, Any], now: datetime = MONDAY) -> Grid:
    return week_of(QuietHours.from_json({"windows": list(windows)}), now)


def test_a_night_reaches_into_the_next_day() -> None:
    week = grid({"weekdays": [1, 2], "from": "22:30", "to": "06:00", "timezone": "Europe/Kyiv"})
    assert [day.day for day in week.days] == [date(2026, 11, 16 + number) for number in range(7)]
    assert [day.stretches for day in week.days[:4]] == [
        ((1350, 1440),),
        ((0, 360), (1350, 1440)),
        ((0, 360),),
        (),
    ]
    assert week.zone == "Europe/Kyiv"
    assert not week.quiet_now
    assert week.minutes == 2 * (90 + 360)


def test_a_whole_day_is_one_stretch_and_dates_count() -> None:
    week = grid({"dates": ["2026-11-18"], "from": "00:00", "to": "00:00", "timezone": "UTC"})
    assert [day.stretches for day in week.days] == [(), (), ((0, 1440),), (), (), (), ()]


@pytest.mark.parametrize(
    ("now", "day", "stretches"),
    [
        # Kyiv leaps from 03:00 to 04:00, and back from 04:00 to 03:00
        (datetime(2026, 3, 29, 9, tzinfo=UTC), date(2026, 3, 29), ((120, 300),)),
        (datetime(2026, 10, 25, 9, tzinfo=UTC), date(2026, 10, 25), ((120, 300),)),
    ],
)
def test_a_day_with_a_clock_change_shows_what_the_clock_says(
    now: datetime, day: date, stretches: tuple[tuple[int, int], ...]
) -> None:
    week = grid({"weekdays": [0], "from": "02:00", "to": "05:00", "timezone": "Europe/Kyiv"}, now=now)
    assert week.days[0].day == day
    assert week.days[0].stretches == stretches


def test_it_tells_whether_it_is_quiet_now() -> None:
    assert grid({"weekdays": [1], "from": "11:00", "to": "13:00", "timezone": "UTC"}).quiet_now


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ({"weekdays": [1, 2, 3, 4, 5], "from": "22:00", "to": "06:00", "timezone": "Europe/Kyiv"},
         "Monday to Friday, 22:00 to 06:00 in Europe/Kyiv"),
        ({"weekdays": [0, 6], "from": "00:00", "to": "00:00", "timezone": "UTC"}, "Saturday, Sunday, all day in UTC"),
        ({"weekdays": [0, 1, 2, 3, 4, 5, 6], "from": "01:00", "to": "02:00", "timezone": "UTC",
          "valid_from": "2026-01-01", "valid_to": "2026-02-01"},
         "every day, 01:00 to 02:00 in UTC, from 2026-01-01, until 2026-02-01"),
        ({"weekdays": [1, 3], "dates": ["2026-12-25"], "from": "01:00", "to": "02:00", "timezone": "UTC"},
         "Monday, Wednesday and on 2026-12-25, 01:00 to 02:00 in UTC"),
    ],
)  # fmt: skip
def test_a_window_in_words(window: dict[str, Any], words: str) -> None:
    assert in_words(window) == words
