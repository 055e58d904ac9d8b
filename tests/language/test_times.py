"""One time in words: what it means by the clock of a zone, and what is refused."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.errors import LanguageError
from noonbell.language.time_phrases import ACCEPTED, read_time
from tests.effort import examples

KYIV = ZoneInfo("Europe/Kyiv")
HERE = datetime(2026, 11, 16, 10, 20, 30, tzinfo=KYIV)  # a Monday

CIVIL = {
    "yesterday": "2026-11-15T00:00",
    "yesterday at 9": "2026-11-15T09:00",
    "Yesterday at 9:30pm": "2026-11-15T21:30",
    "9am yesterday": "2026-11-15T09:00",
    "today": "2026-11-16T00:00",
    "tomorrow at noon": "2026-11-17T12:00",
    "monday": "2026-11-16T00:00",
    "last monday": "2026-11-09T00:00",
    "last friday at half past nine": "2026-11-13T09:30",
    "on last sunday, at 14:05": "2026-11-15T14:05",
    "next monday": "2026-11-23T00:00",
    "this wednesday": "2026-11-18T00:00",
    "1 march 2027": "2027-03-01T00:00",
    "March 1st": "2026-03-01T00:00",
    "1st of march at 9": "2026-03-01T09:00",
    "2026-11-01 at 9am": "2026-11-01T09:00",
    "14:05": "2026-11-16T14:05",
    "02:30:15": "2026-11-16T02:30:15",
    "2026-11-01T01:30": "2026-11-01T01:30",
    "2026-11-01": "2026-11-01T00:00",
}


@pytest.mark.parametrize(("text", "meant"), CIVIL.items())
def test_a_civil_time(text: str, meant: str) -> None:
    found = read_time(text, HERE)
    assert found == datetime.fromisoformat(meant)
    assert found.tzinfo is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("now", 0), ("2 hours ago", -7200), ("an hour ago", -3600), ("in 10 minutes", 600), ("3 days ago", -259_200)],
)
def test_an_instant(text: str, seconds: int) -> None:
    found = read_time(text, HERE)
    assert found - HERE == timedelta(seconds=seconds)
    assert found.tzinfo is KYIV


def test_a_distance_is_counted_in_real_time_across_a_clock_change() -> None:
    after = datetime(2026, 10, 25, 5, 0, tzinfo=KYIV)  # the clocks went back at 4
    assert read_time("3 hours ago", after).isoformat() == "2026-10-25T03:00:00+03:00"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense", "not known"), ("", "missing"), ("yesterday at", "missing"), ("30 february", "does not exist"),
        ("2 months ago", "name the date"), ("yesterday today", "expected a time"), ("25:00", "hours go from 0 to 23"),
        ("2026-02-30", "does not exist"), ("5", "expected a time"), ("9999999 weeks ago", "beyond"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(LanguageError) as caught:
        read_time(text, HERE)
    assert reason in caught.value.reason


def test_what_is_offered_is_understood() -> None:
    assert len({read_time(text, HERE) for text in ACCEPTED if text != "now"}) == len(ACCEPTED) - 1


@given(st.datetimes(datetime(1971, 1, 1), datetime(9000, 1, 1)))  # noqa: DTZ001 - civil times
@settings(max_examples=examples(300), deadline=None)
def test_a_date_in_words_and_a_time_are_read_again(at: datetime) -> None:
    at = at.replace(second=0, microsecond=0)
    months = ("january february march april may june july august september october november december").split()
    assert read_time(f"{at.day} {months[at.month - 1]} {at.year:04} at {at:%H:%M}", HERE) == at
    assert read_time(f"{at:%H:%M}, {months[at.month - 1]} {at.day}, {at.year:04}", HERE) == at
