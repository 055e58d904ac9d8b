"""Where the calendar ends: right up to its edges, then a declared error at once, never a long search."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.cron import parse, zone_of
from noonbell.errors import CronCalculationError
from tests.cron.cases import expression_texts
from tests.cron.oracle import POLICIES, Policy
from tests.effort import examples

ZONES = [UTC, ZoneInfo("America/New_York"), ZoneInfo("Pacific/Kiritimati"), timezone(timedelta(hours=-12))]
FIRST = datetime(1, 1, 3)  # noqa: DTZ001 - far enough from the edge to be turned into UTC in any zone
LAST = datetime(9999, 12, 29)  # noqa: DTZ001 - likewise


def test_leap_days_across_2100() -> None:
    leap_day = parse("0 0 29 2 *")
    found = [datetime(2092, 1, 1, tzinfo=UTC)]
    for _ in range(4):
        found.append(leap_day.next(found[-1]))
    assert [at.isoformat()[:10] for at in found[1:]] == ["2092-02-29", "2096-02-29", "2104-02-29", "2108-02-29"]
    assert leap_day.previous(datetime(2104, 2, 28, tzinfo=UTC)) == found[2]


def test_every_leap_day_there_is() -> None:
    found = list(parse("0 0 29 2 *").between(datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)))
    assert len(found) == 9999 // 4 - 9999 // 100 + 9999 // 400
    assert {(later.year - earlier.year) for earlier, later in pairwise(found)} == {4, 8}


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("text", ["0 0 29 2 *", "30 2 1 1 *", "0 0 31 1 *", "0,30 2 1 1-6 *"])
def test_after_the_last_occurrence_there_is_an_error(zone: tzinfo, policy: Policy, text: str) -> None:
    last = LAST.replace(tzinfo=zone)
    with pytest.raises(CronCalculationError, match=r"^Failed to calculate next occurrence: .+") as caught:
        parse(text).next(last, dst=policy)
    assert caught.value.expression == text
    assert caught.value.current_time
    assert isinstance(caught.value.cause, Exception)
    assert caught.value.details["cause"] is caught.value.cause
    assert str(caught.value).endswith(str(caught.value.cause))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("text", ["0 0 29 2 *", "59 23 31 12 *", "30 2 4-31 * *"])
def test_before_the_first_occurrence_there_is_an_error(zone: tzinfo, policy: Policy, text: str) -> None:
    with pytest.raises(CronCalculationError):
        parse(text).previous(FIRST.replace(tzinfo=zone), dst=policy)


@given(expression_texts(), st.sampled_from(ZONES), st.sampled_from(POLICIES), st.integers(0, 4 * 24 * 60))
@settings(max_examples=examples(100))
def test_near_the_edges_an_answer_or_the_declared_error(text: str, zone: tzinfo, policy: Policy, back: int) -> None:
    expression = parse(text)
    away = timedelta(minutes=back)
    for when in (datetime.max.replace(tzinfo=zone) - away, datetime.min.replace(tzinfo=zone) + away):
        with suppress(CronCalculationError):
            assert expression.next(when, dst=policy) > when
        with suppress(CronCalculationError):
            assert expression.previous(when, dst=policy) <= when


@pytest.mark.parametrize("at", [-(10**12), 10**12, 10**18])
def test_integers_outside_the_calendar(at: int) -> None:
    zone = zone_of(ZoneInfo("Europe/Kyiv"))
    with pytest.raises(CronCalculationError):
        parse("* * * * *").next_epoch(at, zone)
    with pytest.raises(CronCalculationError):
        parse("* * * * *").previous_epoch(at, zone)


def test_the_search_for_a_rare_day_looks_at_few_years(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work, not time: how often the zone is asked for its offset when nothing comes any more."""
    asked = 0
    zone = zone_of(ZoneInfo("America/New_York"))
    original = type(zone)._probe

    def counted(self: object, at: int) -> int:
        nonlocal asked
        asked += 1
        return original(zone, at)

    monkeypatch.setattr(type(zone), "_probe", counted)
    with pytest.raises(CronCalculationError):
        parse("0 0 29 2 *").next(LAST.replace(tzinfo=zone.tzinfo))
    with pytest.raises(CronCalculationError):
        parse("0 0 29 2 *").previous(FIRST.replace(tzinfo=zone.tzinfo))
    assert asked < 5000


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_the_error_has_the_time_that_was_asked_for(zone: str) -> None:
    never = parse("0 0 1 1 *")
    late = datetime(9999, 6, 1, 12, 30, tzinfo=ZoneInfo(zone))
    with pytest.raises(CronCalculationError) as caught:
        never.next(late)
    assert caught.value.current_time == late.isoformat()
    early = datetime(1, 1, 2, tzinfo=ZoneInfo(zone))
    with pytest.raises(CronCalculationError) as caught:
        parse("0 0 31 12 *").previous(early)
    assert caught.value.current_time == early.isoformat()
