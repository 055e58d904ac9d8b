"""Occurrences cut by quietness: the same as visiting each of them, without doing so."""

from __future__ import annotations

from itertools import groupby
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.timing import (
    Bounded,
    IntervalTiming,
    Look,
    OneShotTiming,
    QuietHours,
    Stretch,
    Timing,
    cron_timing,
    split,
)
from tests.effort import examples
from tests.timing.quiet_cases import CHANGES, instant, policy_of, told_windows
from tests.timing.quiet_oracle import midnight, quiet_minutes

SECOND = 1_000_000
DAY = 86_400 * SECOND

EXPRESSIONS = ("* * * * *", "0 * * * *", "30 1 * * *", "0 0,12 * * *", "15,45 22-23 * * 5,6", "0 3 1 * *")


def visited(timing: Timing, quiet: list[bool], start: int, after: int, upto: int) -> list[Stretch]:
    """Each occurrence by itself, judged by the oracle's minutes, then gathered."""
    occurrences = []
    at = timing.following(after)
    while at is not None and at <= upto:
        occurrences.append(at)
        at = timing.following(at)
    gathered = []
    for is_quiet, group in groupby(occurrences, key=lambda at: quiet[(at // SECOND - start) // 60]):
        alike = list(group)
        gathered.append(Stretch(is_quiet, alike[0], alike[-1], len(alike)))
    return gathered


@st.composite
def timings(draw: st.DrawFn, key: str, middle: int) -> Timing:
    near = st.integers(-2 * DAY, 2 * DAY).map(lambda step: middle + step)
    kinds: list[st.SearchStrategy[Timing]] = [
        st.sampled_from(EXPRESSIONS).map(lambda text: cron_timing(text, ZoneInfo(key))),
        st.builds(IntervalTiming, near, st.integers(300, 40_000).map(lambda seconds: seconds * SECOND)),
        st.builds(OneShotTiming, near),
    ]
    timing = draw(st.one_of(kinds))
    if draw(st.booleans()):
        low, high = sorted((draw(near), draw(near)))
        return Bounded(timing, low, high)
    return timing


@given(st.data(), st.sampled_from(CHANGES))
@settings(max_examples=examples(150))
def test_splitting_is_visiting_each(data: st.DataObject, change: tuple[str, str, tuple[int, ...]]) -> None:
    told = data.draw(st.lists(told_windows(change), min_size=1, max_size=3))
    middle = midnight(change[1])
    start, end = middle - 36 * 3600, middle + 36 * 3600
    timing = data.draw(timings(change[0], middle * SECOND))
    inside = st.integers(start * SECOND, end * SECOND - 1)
    after, upto = sorted((data.draw(inside), data.draw(inside)))
    expected = visited(timing, quiet_minutes(told, start, end), start, after, upto)
    found = list(split(timing, policy_of(told), after, upto))
    assert found == expected
    assert sum(stretch.n for stretch in found) == timing.count(after, upto)


class Counted:
    """A timing that counts how often it is asked."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.asked = 0

    def latest(self, at: int) -> int | None:
        self.asked += 1
        return self.timing.latest(at)

    def following(self, after: int) -> int | None:
        self.asked += 1
        return self.timing.following(after)

    def count(self, after: int, upto: int) -> int:
        self.asked += 1
        return self.timing.count(after, upto)

    def look(self, at: int) -> Look:
        self.asked += 1
        return self.timing.look(at)


def weekday_nights() -> QuietHours:
    return QuietHours.from_json(
        {"windows": [{"weekdays": [1, 2, 3, 4, 5], "from": "22:00", "to": "06:00", "timezone": "Europe/Kyiv"}]}
    )


def test_a_year_of_seconds_costs_its_nights() -> None:
    after, upto = instant("2025-01-01"), instant("2026-01-01")
    timing = Counted(IntervalTiming(after, SECOND))
    found = list(split(timing, weekday_nights(), after, upto))
    assert sum(stretch.n for stretch in found) == 365 * 86_400
    assert timing.asked < 4 * len(found)
    assert 520 < len(found) < 530


def test_a_rare_schedule_costs_its_occurrences() -> None:
    after, upto = instant("2020-01-01"), instant("2030-01-01")
    timing = Counted(cron_timing("0 12 1 1 *", ZoneInfo("Europe/Kyiv")))
    assert list(split(timing, weekday_nights(), after, upto)) == [
        Stretch(
            quiet=False,
            first=instant("2020-01-01T12:00", "Europe/Kyiv"),
            last=instant("2029-01-01T12:00", "Europe/Kyiv"),
            n=10,
        )
    ]
    assert timing.asked <= 3 * 10 + 1


def test_neighbours_that_are_quiet_in_different_nights_are_one_stretch() -> None:
    timing = cron_timing("0 3 * * *", ZoneInfo("Europe/Kyiv"))
    after, upto = instant("2026-06-01T12:00", "Europe/Kyiv"), instant("2026-06-08T12:00", "Europe/Kyiv")
    found = list(split(timing, weekday_nights(), after, upto))
    assert [(stretch.quiet, stretch.n) for stretch in found] == [(True, 5), (False, 2)]


def test_nothing_due_is_no_stretch() -> None:
    at = instant("2026-06-01")
    assert list(split(OneShotTiming(at), weekday_nights(), at, at + DAY)) == []
    assert list(split(OneShotTiming(at), weekday_nights(), at - DAY, at)) == [
        Stretch(quiet=False, first=at, last=at, n=1)
    ]


def test_stretches_come_one_by_one() -> None:
    timing = Counted(IntervalTiming(0, 60 * SECOND))
    coming = split(timing, weekday_nights(), instant("2000-01-01"), instant("2100-01-01"))
    first, second = next(coming), next(coming)
    assert first.last < second.first
    assert timing.asked < 15
