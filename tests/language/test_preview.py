"""preview: what a text means, when it comes, and which clock changes bend it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from noonbell.errors import InvalidCronExpressionError, LanguageError
from noonbell.language import preview

NOW = datetime(2026, 11, 16, 10, 20, 30, tzinfo=UTC)


def test_cron_in_the_zone_of_the_text() -> None:
    shown = preview("every weekday at 9am in Kyiv", now=NOW, timezone="Asia/Tokyo", count=3)
    assert [at.isoformat() for at in shown.fires] == [
        "2026-11-17T09:00:00+02:00",
        "2026-11-18T09:00:00+02:00",
        "2026-11-19T09:00:00+02:00",
    ]
    assert shown.understood.fields == {"type": "cron", "spec": "0 9 * * 1-5", "timezone": "Europe/Kyiv"}
    assert shown.surprises == ()


def test_clock_changes_are_told() -> None:
    shown = preview("every night at 2:30", now=NOW, timezone="America/New_York", count=1)
    assert [surprise.kind for surprise in shown.surprises] == ["skipped"]
    once = preview("every night at 2:30", now=NOW, timezone=ZoneInfo("America/New_York"), count=1, dst="once")
    assert [surprise.kind for surprise in once.surprises] == ["moved"]


def test_an_interval_is_counted_from_now() -> None:
    shown = preview("every 90 seconds", now=NOW, count=3)
    assert list(shown.fires) == [NOW + timedelta(seconds=90 * number) for number in (1, 2, 3)]
    assert shown.surprises == ()


def test_a_one_shot_comes_once() -> None:
    shown = preview("tomorrow at 5pm", now=NOW, timezone="Europe/Kyiv")
    assert [at.isoformat() for at in shown.fires] == ["2026-11-17T17:00:00+02:00"]


def test_an_interval_ends_with_the_calendar() -> None:
    late = datetime(9999, 12, 30, 23, tzinfo=UTC)
    assert len(preview("every 45 minutes", now=late, count=9).fires) == 1


def test_cron_is_previewed_too() -> None:
    shown = preview("*/15 * * * *", now=NOW, count=1)
    assert shown.understood.description == "Every 15 minutes"
    assert shown.fires == (datetime(2026, 11, 16, 10, 30, tzinfo=UTC),)


def test_what_is_not_understood_is_refused() -> None:
    with pytest.raises(LanguageError):
        preview("evry day", now=NOW)
    with pytest.raises(InvalidCronExpressionError):
        preview("60 * * * *", now=NOW)
