"""A Zone's segments are the real transitions of the zone data."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest

from noonbell.cron import parse, zone_of
from tests.cron.cases import NOTABLE
from tests.cron.zone_facts import all_zones, changes, year_start

# A spread of zones; the long run (tests/faults/cron_zones.py) takes them all.
SAMPLED = sorted({*NOTABLE, *all_zones()[::40], "Africa/El_Aaiun", "Asia/Gaza", "Asia/Tehran", "Europe/London"})


@pytest.mark.parametrize("key", SAMPLED)
def test_segments_are_the_transitions_of_the_zone_data(key: str) -> None:
    found = zone_of(ZoneInfo(key)).transitions(year_start(1970), year_start(2101))
    assert [tuple(change) for change in found] == [tuple(change) for change in changes(key, 1970, 2100)]


@pytest.mark.parametrize("key", ["America/New_York", "Africa/Casablanca", "Europe/Dublin", "America/Santiago"])
def test_far_years_follow_the_closing_rule(key: str) -> None:
    for first in (2190, 2399, 4000, 9990):
        found = zone_of(ZoneInfo(key)).transitions(year_start(first), year_start(first + 8))
        assert [tuple(change) for change in found] == [tuple(change) for change in changes(key, first, first + 7)]


def test_no_zone_changes_there_and_back_within_the_probing_step() -> None:
    """Zone finds changes by looking once a day; a change undone sooner would go unseen."""
    shortest = min(
        later.at - earlier.at
        for key in all_zones()
        for earlier, later in zip(changes(key, 1800, 2100), changes(key, 1800, 2100)[1:], strict=False)
        if later.after == earlier.before
    )
    assert shortest > 2 * 86_400


def test_segments_tile_time() -> None:
    zone = zone_of(ZoneInfo("Australia/Lord_Howe"))
    at, end = year_start(2020), year_start(2030)
    while at < end:
        segment = zone.segment(at)
        assert segment.start <= at < segment.end
        assert zone.segment(segment.end - 1) == segment
        assert zone.offset(at) == segment.offset
        at = segment.end


@pytest.mark.parametrize("hours", [-12, 0, 14])
def test_fixed_offsets_have_one_segment(hours: int) -> None:
    fixed = zone_of(timezone(timedelta(hours=hours)))
    assert fixed.segment(year_start(2)) == fixed.segment(year_start(9998))
    assert fixed.offset(0) == hours * 3600
    assert fixed.transitions(year_start(2), year_start(9998)) == []


def test_one_zone_object_for_one_tzinfo() -> None:
    assert zone_of(ZoneInfo("Asia/Tokyo")) is zone_of(ZoneInfo("Asia/Tokyo"))


class HalfDays(tzinfo):
    """A made-up zone, not hashable: one hour ahead from July to December."""

    __hash__ = None  # type: ignore[assignment]  # that is the point

    def __eq__(self, other: object) -> bool:
        return self is other

    def utcoffset(self, at: datetime | None) -> timedelta:
        return timedelta(hours=1) if at is not None and at.month > 6 else timedelta(0)

    def dst(self, at: datetime | None) -> timedelta:
        return self.utcoffset(at)

    def tzname(self, at: datetime | None) -> str:
        return "HALF"


def test_any_tzinfo_will_do_hashable_or_not() -> None:
    zone = HalfDays()
    found = parse("0 12 * * *").next(datetime(2024, 7, 10, 13, tzinfo=zone))
    assert found.tzinfo is zone
    assert found.astimezone(UTC) == datetime(2024, 7, 11, 11, tzinfo=UTC)
