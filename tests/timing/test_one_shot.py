"""A single instant: what its text means, near clock changes too, and what is refused."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.errors import OneShotInvalidError
from noonbell.timing import OneShotTiming, Timing, parse_one_shot

NEW_YORK = ZoneInfo("America/New_York")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def no_such(year: int, month: int, day: int) -> str:
    """The interpreter's own reason, whose words differ between the versions of Python."""
    with pytest.raises(ValueError, match="day") as raised:
        datetime(year, month, day, tzinfo=UTC)
    return str(raised.value)


def instant(text: str) -> int:
    """The microseconds of a text with an offset."""
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)


@given(st.integers(-(10**16), 10**16), st.integers(-3, 3), st.integers(-3, 3))
def test_one_occurrence_and_no_other(at: int, step: int, further: int) -> None:
    timing: Timing = OneShotTiming(at)
    seen = at + step
    assert timing.latest(seen) == (at if step >= 0 else None)
    assert timing.following(seen) == (at if step < 0 else None)
    assert timing.look(seen) == (timing.latest(seen), None, timing.following(seen))
    assert timing.count(seen, at + further) == (1 if step < 0 <= further else 0)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2026-06-01T09:30", "2026-06-01T09:30-04:00"),
        ("2026-12-01T09:30", "2026-12-01T09:30-05:00"),
        ("2026-06-01 09:30:15", "2026-06-01T09:30:15-04:00"),
        ("2026-06-01T09:30:15.250001", "2026-06-01T09:30:15.250001-04:00"),
        ("20260601T093015", "2026-06-01T09:30:15-04:00"),
        ("2026-W23-1T09:30", "2026-06-01T09:30-04:00"),
        (" 2026-06-01T09:30\t", "2026-06-01T09:30-04:00"),
        ("2026-06-01T09:30Z", "2026-06-01T09:30+00:00"),
        ("2026-06-01t09:30z", "2026-06-01T09:30+00:00"),
        ("2026-06-01T09:30+05:45", "2026-06-01T09:30+05:45"),
        ("2026-06-01T09:30-0300", "2026-06-01T09:30-03:00"),
        ("1969-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999+00:00"),
    ],
)
def test_texts_and_what_they_mean_in_new_york(text: str, meant: str) -> None:
    assert parse_one_shot(text, NEW_YORK) == instant(meant)


def test_a_time_that_comes_twice_means_its_first_coming() -> None:
    assert parse_one_shot("2024-11-03T01:30", NEW_YORK) == instant("2024-11-03T01:30-04:00")
    assert parse_one_shot("2024-11-03T01:00", NEW_YORK) == instant("2024-11-03T01:00-04:00")
    assert parse_one_shot("2024-11-03T02:00", NEW_YORK) == instant("2024-11-03T02:00-05:00")
    assert parse_one_shot("2024-11-03T01:30-05:00", NEW_YORK) == instant("2024-11-03T01:30-05:00")


@pytest.mark.parametrize(
    ("text", "key", "before", "after"),
    [
        ("2024-03-10T02:00", "America/New_York", "2024-03-10T01:59", "2024-03-10T03:00"),
        ("2024-03-10T02:59:59.5", "America/New_York", "2024-03-10T01:59", "2024-03-10T03:00"),
        ("2018-11-04T00:30", "America/Sao_Paulo", "2018-11-03T23:59", "2018-11-04T01:00"),
        ("2011-12-30T12:00", "Pacific/Apia", "2011-12-29T23:59", "2011-12-31T00:00"),
        ("1972-01-07T00:30", "Africa/Monrovia", "1972-01-06T23:59", "1972-01-07T00:44:30"),
    ],
)
def test_a_time_that_does_not_exist_is_refused_with_its_neighbours(
    text: str, key: str, before: str, after: str
) -> None:
    zone = ZoneInfo(key)
    with pytest.raises(OneShotInvalidError) as raised:
        parse_one_shot(text, zone)
    assert f"does not exist in {key}: the clocks go from " in str(raised.value)
    assert str(raised.value).endswith(f"the nearest times are {before} and {after}")
    assert raised.value.alternatives == (before, after)
    assert raised.value.expression == text
    first, second = (parse_one_shot(neighbour, zone) for neighbour in (before, after))
    assert second - first == 60_000_000  # they exist, and are neighbours
    assert parse_one_shot(text, zone, stored=True) == second


@given(
    st.sampled_from(["America/New_York", "Europe/Kyiv", "Australia/Lord_Howe", "Pacific/Apia", "America/Havana"]),
    st.datetimes(datetime(2010, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001 - civil time without a zone
)
def test_civil_times_come_back_as_they_were_typed(key: str, wall: datetime) -> None:
    zone = ZoneInfo(key)
    if wall.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None, fold=0) != wall:
        with pytest.raises(OneShotInvalidError, match="does not exist"):
            parse_one_shot(wall.isoformat(), zone)
        return
    at = EPOCH + timedelta(microseconds=parse_one_shot(wall.isoformat(), zone))
    assert at.astimezone(zone).replace(tzinfo=None, fold=0) == wall
    earlier = (at - timedelta(hours=1)).astimezone(zone)
    assert earlier.replace(tzinfo=None, fold=0) != wall  # the first coming


_RIGHT = "such as 2026-11-01T01:30 (in the schedule's zone) or 2026-11-01T01:30-04:00"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", f"is empty; an ISO 8601 date and time is needed, {_RIGHT}"),
        ("2026-11-01", f"has a date and no time; write both, {_RIGHT}"),
        ("20261101", f"has a date and no time; write both, {_RIGHT}"),
        ("2026-W45-1", f"has a date and no time; write both, {_RIGHT}"),
        ("tomorrow", f"is not an ISO 8601 date and time, {_RIGHT}"),
        ("1793496600", f"is not an ISO 8601 date and time, {_RIGHT}"),
        ("2026-11-01x01:30", f"is not an ISO 8601 date and time, {_RIGHT}"),
        ("2026-11-01T01:30\0", f"is not an ISO 8601 date and time, {_RIGHT}"),
        ("２026-11-01T01:30", f"is not an ISO 8601 date and time, {_RIGHT}"),
        ("2026-11-01T01:30" + "0" * 100, f"is not an ISO 8601 date and time, {_RIGHT}"),
        ("2026-11-01T24:00", f"is not an ISO 8601 date and time, {_RIGHT}: hour must be in 0..23"),
        ("2026-02-29T12:00", f"is not an ISO 8601 date and time, {_RIGHT}: {no_such(2026, 2, 29)}"),
        ("2026-11-01T01:30[Europe/Kyiv]", "has a zone in brackets; the zone is a field of the schedule"),
        ("2026-11-01T01:30:00.1234567", "is finer than a microsecond"),
        ("0001-01-01T00:00+14:00", "lies outside the years 1 to 9999 in UTC"),
        ("9999-12-31T23:00-05:00", "lies outside the years 1 to 9999 in UTC"),
    ],
)
def test_other_texts_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(OneShotInvalidError) as raised:
        parse_one_shot(text, NEW_YORK)
    assert (raised.value.expression, raised.value.field, raised.value.reason) == (text, "spec", reason)
    assert raised.value.alternatives == ()
    assert str(raised.value).startswith('Invalid one-shot time "')


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("0001-01-01T00:00", ZoneInfo("Asia/Tokyo")),
        ("0001-01-01T00:00", timezone(timedelta(hours=14))),
        ("9999-12-31T23:59", NEW_YORK),
        ("9999-12-31T23:59", timezone(timedelta(hours=-12))),
    ],
)
def test_civil_times_beyond_the_calendar_are_refused(text: str, zone: tzinfo) -> None:
    for stored in (False, True):
        with pytest.raises(OneShotInvalidError, match="lies outside the years 1 to 9999 in UTC"):
            parse_one_shot(text, zone, stored=stored)


def test_a_value_that_is_no_text_is_refused() -> None:
    with pytest.raises(OneShotInvalidError, match="must be text, not datetime"):
        parse_one_shot(EPOCH, UTC)  # type: ignore[arg-type]  # the mistake under test


def test_the_error_travels_between_processes() -> None:
    with pytest.raises(OneShotInvalidError) as raised:
        parse_one_shot("2024-03-10T02:30", NEW_YORK)
    again = pickle.loads(pickle.dumps(raised.value))  # noqa: S301 - made in the line itself
    assert (str(again), again.alternatives) == (str(raised.value), raised.value.alternatives)
