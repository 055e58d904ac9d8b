"""What moves between two sets of rules, against a plain walk."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import pytest

from noonbell.timing import cron_timing
from noonbell.timing.moved import YEAR, differing, moved_fires

NOW = 1_772_625_630_000_000  # 2026-03-04 12:00:30 UTC
ZONES = ["UTC", "America/New_York", "Africa/Casablanca", "Australia/Lord_Howe"]


@lru_cache
def walked(spec: str, zone: str) -> list[int]:
    timing = cron_timing(spec, ZoneInfo(zone), "literal")
    found, fire = [], timing.following(NOW)
    while fire is not None and fire <= NOW + YEAR:
        found.append(fire)
        fire = timing.following(fire)
    return found


@pytest.mark.parametrize("spec", ["30 2 * * *", "0 9 * * 1-5", "15 0,12 1 * *", "0 0-23 * * *"])
@pytest.mark.parametrize("after", ZONES)
@pytest.mark.parametrize("before", ZONES)
def test_it_finds_what_a_plain_walk_finds(before: str, after: str, spec: str) -> None:
    old, new = set(walked(spec, before)), set(walked(spec, after))
    gone, come = sorted(old - new), sorted(new - old)
    stretches = differing(ZoneInfo(before), ZoneInfo(after), NOW, NOW + YEAR)
    found = moved_fires(
        cron_timing(spec, ZoneInfo(before), "literal"), cron_timing(spec, ZoneInfo(after), "literal"), stretches
    )
    assert not found.more
    assert found.fires == max(len(gone), len(come))
    assert [one for one, _ in found.shown if one is not None] == gone[:10]
    assert [one for _, one in found.shown if one is not None] == come[:10]


def test_zones_that_agree_have_no_stretch() -> None:
    assert differing(ZoneInfo("Europe/Berlin"), ZoneInfo("Europe/Paris"), NOW, NOW + YEAR) == []


def test_only_the_stretch_that_differs_is_walked() -> None:
    # Kyiv and Berlin change on the same days: they differ throughout; Berlin and Lagos only in summer
    (summer,) = differing(ZoneInfo("Europe/Berlin"), ZoneInfo("Africa/Lagos"), NOW, NOW + YEAR)
    first, last = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at) for at in summer)
    assert (first.month, first.day, last.month, last.day) == (3, 28, 10, 26)


def test_a_schedule_that_moves_often_is_counted_as_far_as_it_was_walked() -> None:
    before, after = (
        cron_timing("0,7,14,21,28,35,42,49,56 * * * *", ZoneInfo(zone), "literal") for zone in ("UTC", "Asia/Kathmandu")
    )
    found = moved_fires(before, after, [(NOW, NOW + YEAR)])
    assert found.more
    assert found.fires > 1_000
    assert len(found.shown) == 10
