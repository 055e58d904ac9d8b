"""Every answer around awkward clock changes, and around any instant, is the one that walking real minutes gives."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.cron import parse, zone_of
from tests.cron.cases import (
    NOTABLE,
    PLAIN_ZONES,
    REACH,
    at_in,
    expression_texts,
    moments,
    notable_changes,
    walk_around,
)
from tests.cron.oracle import POLICIES, Policy, Shape, Walk, civil_days
from tests.cron.zone_facts import all_zones, year_start
from tests.effort import examples

policies = st.sampled_from(POLICIES)


def shown(at: datetime) -> tuple[float, datetime, int]:
    """The instant, the wall and the fold."""
    return at.timestamp(), at.replace(tzinfo=None, fold=0), at.fold


def assert_neighbours(text: str, policy: Policy, key: str, moment: float, walk: Walk) -> None:
    expression, truth = parse(text), walk.occurrences(Shape(text), policy)
    when, segments = at_in(moment, key), zone_of(ZoneInfo(key))
    index = bisect_right(truth, moment)
    following = expression.next(when, dst=policy)
    assert following.tzinfo is when.tzinfo
    if index < len(truth):
        assert shown(following) == shown(at_in(truth[index], key))
        assert expression.next_epoch(int(moment // 1), segments, policy) == truth[index]
    else:
        assert following.timestamp() >= walk.end
    preceding = expression.previous(when, dst=policy)
    assert preceding.tzinfo is when.tzinfo
    if index:
        assert shown(preceding) == shown(at_in(truth[index - 1], key))
        assert expression.previous_epoch(int(moment // 1), segments, policy) == truth[index - 1]
    else:
        assert preceding.timestamp() < walk.start


def test_the_notable_changes_are_in_the_zone_data() -> None:
    assert {key for key, _ in notable_changes()} == set(NOTABLE)


@given(st.data(), st.sampled_from(notable_changes()), expression_texts(), policies)
@settings(max_examples=examples(200))
def test_next_and_previous_near_changes(
    data: st.DataObject, place: tuple[str, tuple[int, int, int]], text: str, policy: Policy
) -> None:
    key, (at, before, after) = place
    moment = data.draw(moments(at, abs(after - before), REACH))
    assert_neighbours(text, policy, key, moment, walk_around(key, at))


@given(st.data(), st.sampled_from(notable_changes()), expression_texts(), policies)
@settings(max_examples=examples(200))
def test_between_and_count_near_changes(
    data: st.DataObject, place: tuple[str, tuple[int, int, int]], text: str, policy: Policy
) -> None:
    key, (at, before, after) = place
    low, high = sorted(data.draw(moments(at, abs(after - before), REACH)) for _ in range(2))
    truth = walk_around(key, at).occurrences(Shape(text), policy)
    wanted = truth[bisect_left(truth, low) : bisect_left(truth, high)]
    expression, start, end = parse(text), at_in(low, key), at_in(high, key)
    assert [shown(found) for found in expression.between(start, end, dst=policy)] == [
        shown(at_in(found, key)) for found in wanted
    ]
    assert expression.count(start, end, dst=policy) == len(wanted)
    whole = (-int(-low // 1), -int(-high // 1), zone_of(ZoneInfo(key)), policy)
    assert list(expression.epochs_between(*whole)) == wanted
    assert expression.count_epochs(*whole) == len(wanted)


@given(st.data(), st.sampled_from(notable_changes()), expression_texts())
@settings(max_examples=examples(150))
def test_matches_near_changes(data: st.DataObject, place: tuple[str, tuple[int, int, int]], text: str) -> None:
    key, (at, before, after) = place
    when = at_in(data.draw(moments(at, abs(after - before), REACH)), key)
    assert parse(text).matches(when) is Shape(text).shown(when)


@given(
    st.sampled_from([*all_zones(), *PLAIN_ZONES]),
    st.integers(year_start(1905), year_start(2150)),
    expression_texts(),
    policies,
)
@settings(max_examples=examples(60))
def test_next_and_previous_anywhere(key: str, at: int, text: str, policy: Policy) -> None:
    reach = 43_200
    assert_neighbours(text, policy, key, float(at), Walk(at - reach, at + reach, ZoneInfo(key)))


@given(expression_texts(), st.integers(1, 9960))
@settings(max_examples=examples(40))
def test_years_of_days_in_utc(text: str, year: int) -> None:
    first, last = datetime(year, 3, 1), datetime(year + 9, 2, 28, 23, 59)  # noqa: DTZ001 - civil time without a zone
    expected = list(zip(range(500), civil_days(Shape(text), first, last), strict=False))
    start, end = first.replace(tzinfo=UTC), last.replace(tzinfo=UTC)
    found = zip(range(500), parse(text).between(start, end), strict=False)
    assert [(n, at.replace(tzinfo=None)) for n, at in found] == expected


@given(st.data(), st.sampled_from(notable_changes()), expression_texts(), policies)
@settings(max_examples=examples(150))
def test_next_and_previous_are_inverse_neighbours(
    data: st.DataObject, place: tuple[str, tuple[int, int, int]], text: str, policy: Policy
) -> None:
    key, (at, before, after) = place
    moment = int(data.draw(moments(at, abs(after - before), REACH)) // 1)
    expression, zone = parse(text), zone_of(ZoneInfo(key))
    following = [moment]
    for _ in range(5):
        following.append(expression.next_epoch(following[-1], zone, policy))
    assert all(a < b for a, b in pairwise(following))
    for earlier, later in pairwise(following[1:]):
        assert expression.previous_epoch(later, zone, policy) == later
        assert expression.previous_epoch(later - 1, zone, policy) == earlier
    assert expression.previous_epoch(following[1] - 1, zone, policy) <= moment
    assert expression.count_epochs(moment + 1, following[-1] + 1, zone, policy) == 5


@pytest.mark.parametrize(
    ("text", "policy", "wanted"),
    [
        ("30 2 * * *", "literal", ["2024-03-09T02:30:00-05:00", "2024-03-11T02:30:00-04:00"]),
        (
            "30 2 * * *",
            "once",
            ["2024-03-09T02:30:00-05:00", "2024-03-10T03:00:00-04:00", "2024-03-11T02:30:00-04:00"],
        ),
        ("0,30 2,3 10 3 *", "once", ["2024-03-10T03:00:00-04:00", "2024-03-10T03:30:00-04:00"]),
        ("30 * 10 3 *", "once", [f"2024-03-10T{h:02}:30:00-0{5 if h < 3 else 4}:00" for h in (0, 1, *range(3, 24))]),
    ],
)  # fmt: skip
def test_the_two_policies_in_plain_sight(text: str, policy: Policy, wanted: list[str]) -> None:
    zone = ZoneInfo("America/New_York")
    start, end = datetime(2024, 3, 9, tzinfo=zone), datetime(2024, 3, 12, tzinfo=zone)
    assert [at.isoformat() for at in parse(text).between(start, end, dst=policy)] == wanted


def test_a_missing_day_and_a_repeated_hour_in_plain_sight() -> None:
    apia, new_york = ZoneInfo("Pacific/Apia"), ZoneInfo("America/New_York")
    daily = parse("0 12 * * *")
    assert daily.next(datetime(2011, 12, 29, 12, tzinfo=apia)).isoformat() == "2011-12-31T12:00:00+14:00"
    assert daily.next(datetime(2011, 12, 29, 12, tzinfo=apia), dst="once").isoformat() == "2011-12-31T00:00:00+14:00"
    half_past_one = parse("30 1 * * *")
    first = half_past_one.next(datetime(2024, 11, 3, tzinfo=new_york))
    second = half_past_one.next(first)
    assert [(at.isoformat(), at.fold) for at in (first, second)] == [
        ("2024-11-03T01:30:00-04:00", 0),
        ("2024-11-03T01:30:00-05:00", 1),
    ]
    assert half_past_one.next(first, dst="once").isoformat() == "2024-11-04T01:30:00-05:00"
    assert half_past_one.previous(second, dst="once") == first


def test_what_a_gap_swallowed_is_owed_until_the_first_whole_minute_after_it() -> None:
    """Monrovia's clock went from 00:00:00 to 00:44:30: the first minute that starts after the gap is 00:45."""
    zone = ZoneInfo("Africa/Monrovia")
    half_past = parse("30 0 * * *")
    owed = datetime(1972, 1, 7, 0, 45, tzinfo=zone)
    for seconds in (-60, -30.5, -29, -1, -0.5):
        assert half_past.next(at_in(owed.timestamp() + seconds, zone.key), dst="once") == owed
    assert half_past.next(owed, dst="once") == datetime(1972, 1, 8, 0, 30, tzinfo=zone)
    assert half_past.previous(owed, dst="once") == owed
    assert half_past.previous(at_in(owed.timestamp() - 1, zone.key), dst="once").day == 6
