"""A start and an end: what is left of each kind, against keeping what lies between them."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.errors import BoundsInvalidError
from noonbell.timing import Bounded, IntervalTiming, OneShotTiming, Timing, cron_timing

SECOND = 1_000_000
HOUR = 3600 * SECOND
BASE = 1_710_000_000 * SECOND  # the day before New York's clocks go forward in 2024
WINDOW = 48 * HOUR

TIMINGS: list[Timing] = [
    cron_timing("30 * * * *", ZoneInfo("America/New_York")),
    cron_timing("30 2,3 * * *", ZoneInfo("America/New_York"), "once"),
    cron_timing("0 0 1 * *", ZoneInfo("America/New_York")),
    IntervalTiming(BASE, 90 * 60 * SECOND),
    IntervalTiming(BASE + 20 * HOUR, 7 * SECOND * 1000),
    OneShotTiming(BASE + 11 * HOUR),
]

moments = st.one_of(
    st.integers(-2, 50).map(lambda hours: BASE + hours * HOUR),
    st.tuples(st.integers(0, 33), st.integers(-1, 1)).map(lambda pair: BASE + pair[0] * 5400 * SECOND + pair[1]),
    st.integers(BASE - HOUR, BASE + WINDOW),
)


def enumerated(timing: Timing) -> list[int]:
    found = []
    at = timing.following(BASE - 100 * 24 * HOUR)
    while at is not None and at <= BASE + 100 * 24 * HOUR:
        found.append(at)
        at = timing.following(at)
    return found


ENUMERATED = [enumerated(timing) for timing in TIMINGS]


@given(
    st.integers(0, len(TIMINGS) - 1),
    st.one_of(st.none(), moments),
    st.one_of(st.none(), moments),
    st.lists(moments, min_size=2, max_size=4),
)
def test_only_what_lies_within_is_left(which: int, start_at: int | None, end_at: int | None, looks: list[int]) -> None:
    if start_at is not None and end_at is not None and end_at < start_at:
        start_at, end_at = end_at, start_at
    timing: Timing = Bounded(TIMINGS[which], start_at, end_at)
    low = BASE - 100 * 24 * HOUR if start_at is None else start_at
    high = BASE + 100 * 24 * HOUR if end_at is None else end_at
    truth = [at for at in ENUMERATED[which] if low <= at <= high]
    for at in looks:
        passed, ahead = [t for t in truth if t <= at], [t for t in truth if t > at]
        latest, following = passed[-1] if passed else None, ahead[0] if ahead else None
        assert timing.latest(at) == latest
        assert timing.following(at) == following
        assert timing.look(at) == (latest, passed[-2] if len(passed) > 1 else None, following)
        for upto in looks:
            assert timing.count(at, upto) == len([t for t in truth if at < t <= upto])


def test_both_bounds_are_included() -> None:
    timing = Bounded(IntervalTiming(0, 10), 20, 40)
    assert [timing.following(0), timing.following(19), timing.following(20), timing.following(39)] == [20, 20, 30, 40]
    assert timing.following(40) is None
    assert timing.latest(10**6) == 40
    assert timing.latest(19) is None
    assert timing.count(-(10**6), 10**6) == 3
    assert timing.look(10**6) == (40, 30, None)
    assert timing.look(20) == (20, None, 30)
    assert timing.look(5) == (None, None, 20)


def test_a_single_moment_can_be_left() -> None:
    assert Bounded(IntervalTiming(0, 10), 30, 30).count(0, 100) == 1
    assert Bounded(IntervalTiming(0, 10), 31, 39).look(35) == (None, None, None)


def test_an_end_before_the_start_is_refused() -> None:
    with pytest.raises(BoundsInvalidError, match=r"the end \(20 us since 1970\) is before the start \(30\)") as raised:
        Bounded(IntervalTiming(0, 10), 30, 20)
    assert (raised.value.start_at, raised.value.end_at) == (30, 20)
