"""Quiet hours are what watching the wall clock minute by minute gives, across clock changes of every sort."""

from __future__ import annotations

from datetime import date, time
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.timing import QuietHours, Window
from tests.effort import examples
from tests.timing.quiet_cases import CHANGES, instant, policy_of, shown, told_windows
from tests.timing.quiet_oracle import midnight, quiet_minutes, runs

SECOND = 1_000_000
DAY = 86_400
REACH = 36 * 3600
EVERY_DAY = frozenset(range(7))


def window(start: str, end: str, key: str, weekdays: frozenset[int] = EVERY_DAY, **more: date) -> Window:
    return Window(
        from_time=time.fromisoformat(start),
        to_time=time.fromisoformat(end),
        zone=ZoneInfo(key),
        weekdays=weekdays,
        **more,  # type: ignore[arg-type]  # only the dates of validity are passed on
    )


def stretch_at(text: str, key: str, *windows: Window) -> tuple[str, str]:
    """The whole stretch that holds a moment."""
    at = instant(text, key)
    (found,) = [
        pair for pair in QuietHours(windows).stretches(at - 3 * DAY * SECOND, at + 3 * DAY * SECOND)
        if pair[0] <= at < pair[1]
    ]  # fmt: skip
    return shown(found[0], key), shown(found[1], key)


# --- against the oracle -----------------------------------------------------------------------------------------------


@given(st.data(), st.sampled_from(CHANGES))
@settings(max_examples=examples(150))
def test_stretches_are_what_the_wall_clock_shows(data: st.DataObject, change: tuple[str, str, tuple[int, ...]]) -> None:
    told = data.draw(st.lists(told_windows(change), min_size=1, max_size=3))
    start, end = midnight(change[1]) - REACH, midnight(change[1]) + REACH
    expected = [(low * SECOND, high * SECOND) for low, high in runs(quiet_minutes(told, start, end), start)]
    policy = policy_of(told)
    # (after, upto] with whole instants is [after + 1, upto + 1)
    assert list(policy.stretches(start * SECOND - 1, end * SECOND - 1)) == expected


@given(st.data(), st.sampled_from(CHANGES))
@settings(max_examples=examples(100))
def test_each_instant_knows_whether_and_how_long(data: st.DataObject, change: tuple[str, str, tuple[int, ...]]) -> None:
    told = data.draw(st.lists(told_windows(change), min_size=1, max_size=3))
    start, end = midnight(change[1]) - REACH, midnight(change[1]) + REACH
    expected = [(low * SECOND, high * SECOND) for low, high in runs(quiet_minutes(told, start, end), start)]
    edges = {at + step for pair in expected for at in pair for step in (-1, 0, 1)}
    moments = [*edges, *data.draw(st.lists(st.integers(start * SECOND, end * SECOND - 1), max_size=5))]
    policy = policy_of(told)
    for at in data.draw(st.permutations(moments)):  # in any order: what is remembered must not mislead
        if not start * SECOND <= at < end * SECOND:
            continue
        ends = [high for low, high in expected if low <= at < high]
        assert policy.is_quiet(at) is bool(ends)
        until = policy.quiet_until(at)
        if not ends:
            assert until is None
        elif ends[0] < end * SECOND:
            assert until == ends[0]
        else:
            assert until is not None
            assert until >= ends[0]


@given(st.data(), st.sampled_from(CHANGES))
@settings(max_examples=examples(40))
def test_an_instant_asked_for_alone_is_answered_alike(
    data: st.DataObject, change: tuple[str, str, tuple[int, ...]]
) -> None:
    told = data.draw(st.lists(told_windows(change), min_size=1, max_size=2))
    start, end = midnight(change[1]) - REACH, midnight(change[1]) + REACH
    minutes = quiet_minutes(told, start, end)
    for index in range(0, len(minutes), 17):
        assert policy_of(told).is_quiet((start + index * 60) * SECOND) is minutes[index]


@given(st.data(), st.sampled_from(CHANGES))
@settings(max_examples=examples(60))
def test_stretches_are_cut_to_what_was_asked_for(data: st.DataObject, change: tuple[str, str, tuple[int, ...]]) -> None:
    told = data.draw(st.lists(told_windows(change), min_size=1, max_size=2))
    middle = midnight(change[1]) * SECOND
    after, upto = sorted(
        middle + step for step in data.draw(st.tuples(*[st.integers(-DAY * SECOND, DAY * SECOND)] * 2))
    )
    policy = policy_of(told)
    whole = policy.stretches(middle - 2 * DAY * SECOND, middle + 2 * DAY * SECOND)
    cut = [(max(low, after + 1), min(high, upto + 1)) for low, high in whole]
    found = list(policy.stretches(after, upto))
    assert found == [(low, high) for low, high in cut if low < high]
    assert all(a[1] < b[0] for a, b in pairwise(found))


@given(st.data(), st.sampled_from(CHANGES))
@settings(max_examples=examples(60))
def test_a_policy_survives_being_written_down(data: st.DataObject, change: tuple[str, str, tuple[int, ...]]) -> None:
    policy = policy_of(data.draw(st.lists(told_windows(change), max_size=3)))
    again = QuietHours.from_json(policy.to_json())
    assert again == policy
    assert hash(again) == hash(policy)
    assert again.to_json() == policy.to_json()


# --- in plain sight ---------------------------------------------------------------------------------------------------


def test_across_midnight_it_belongs_to_the_day_it_begins_on() -> None:
    friday = window("22:00", "06:00", "Europe/Kyiv", frozenset({5}))
    assert stretch_at("2026-06-06T03:00", "Europe/Kyiv", friday) == (
        "2026-06-05T22:00:00+03:00",
        "2026-06-06T06:00:00+03:00",
    )
    policy = QuietHours([friday])
    assert not policy.is_quiet(instant("2026-06-05T03:00", "Europe/Kyiv"))  # Friday morning is Thursday's night
    assert not policy.is_quiet(instant("2026-06-06T22:30", "Europe/Kyiv"))


def test_the_end_is_not_quiet_and_the_beginning_is() -> None:
    policy = QuietHours([window("12:00", "13:00", "UTC")])
    noon, one = instant("2026-06-05T12:00"), instant("2026-06-05T13:00")
    assert [policy.is_quiet(at) for at in (noon - 1, noon, one - 1, one)] == [False, True, True, False]
    assert policy.quiet_until(noon) == policy.quiet_until(one - 1) == one


def test_equal_times_are_the_whole_day() -> None:
    saturday = window("00:00", "00:00", "Europe/Kyiv", frozenset({6}))
    assert stretch_at("2026-06-06T15:00", "Europe/Kyiv", saturday) == (
        "2026-06-06T00:00:00+03:00",
        "2026-06-07T00:00:00+03:00",
    )
    from_eight = window("08:00", "08:00", "Europe/Kyiv", frozenset({6}))
    assert stretch_at("2026-06-07T07:59", "Europe/Kyiv", from_eight) == (
        "2026-06-06T08:00:00+03:00",
        "2026-06-07T08:00:00+03:00",
    )


def test_windows_that_touch_are_one_stretch() -> None:
    nights = window("22:00", "06:00", "Europe/Kyiv", frozenset({5}))
    weekend = window("06:00", "22:00", "Europe/Kyiv", frozenset({6}))
    assert stretch_at("2026-06-06T06:00", "Europe/Kyiv", nights, weekend) == (
        "2026-06-05T22:00:00+03:00",
        "2026-06-06T22:00:00+03:00",
    )


def test_windows_of_different_zones_are_merged() -> None:
    kyiv, new_york = window("22:00", "06:00", "Europe/Kyiv"), window("22:00", "06:00", "America/New_York")
    assert stretch_at("2026-06-06T04:00", "UTC", kyiv, new_york) == (
        "2026-06-05T19:00:00+00:00",
        "2026-06-06T10:00:00+00:00",
    )


def test_edges_in_a_gap_mean_its_end() -> None:
    """New York, 10 March 2024: from 02:00 the clock goes to 03:00."""
    key = "America/New_York"
    assert stretch_at("2024-03-10T03:30", key, window("02:30", "05:00", key)) == (
        "2024-03-10T03:00:00-04:00",
        "2024-03-10T05:00:00-04:00",
    )
    assert stretch_at("2024-03-10T01:00", key, window("00:30", "02:30", key)) == (
        "2024-03-10T00:30:00-05:00",
        "2024-03-10T03:00:00-04:00",
    )
    swallowed = QuietHours([window("02:10", "02:50", key)])
    found = swallowed.stretches(instant("2024-03-09", key), instant("2024-03-12", key))
    assert [shown(low, key)[:10] for low, _ in found] == ["2024-03-09", "2024-03-11"]


def test_edges_that_come_twice_make_the_window_long() -> None:
    """New York, 3 November 2024: from 02:00 the clock goes back to 01:00."""
    key = "America/New_York"
    assert stretch_at("2024-11-03T01:45", key, window("01:30", "05:00", key)) == (
        "2024-11-03T01:30:00-04:00",
        "2024-11-03T05:00:00-05:00",
    )
    assert stretch_at("2024-11-03T00:00", key, window("22:00", "01:30", key)) == (
        "2024-11-02T22:00:00-04:00",
        "2024-11-03T01:30:00-05:00",
    )
    assert stretch_at("2024-11-03T01:20", key, window("01:15", "01:30", key)) == (
        "2024-11-03T01:15:00-04:00",
        "2024-11-03T01:30:00-05:00",
    )
    assert stretch_at("2024-11-03T00:00", key, window("22:00", "01:00", key))[1] == "2024-11-03T01:00:00-05:00"


def test_between_two_comings_of_the_end_it_is_still_quiet() -> None:
    key = "America/New_York"
    first_pass, over = instant("2024-11-03T01:45-04:00"), instant("2024-11-03T01:30-05:00")
    nights = window("22:00", "01:30", key)
    # each asked anew: nothing that was found before may help
    assert QuietHours([nights]).is_quiet(first_pass)
    assert QuietHours([nights]).quiet_until(first_pass) == over
    assert next(QuietHours([nights]).stretches(first_pass, over + SECOND)) == (first_pass + 1, over)


def test_a_window_that_a_gap_swallowed_leaves_no_trace() -> None:
    key = "America/New_York"
    phase = QuietHours([window("02:10", "02:50", key)]).phase(instant("2024-03-10T00:00", key))
    assert phase == (False, instant("2024-03-11T02:10", key))


def test_a_cut_in_the_second_where_windows_touch_leaves_one_stretch() -> None:
    policy = QuietHours([window("12:00", "13:00", "UTC"), window("13:00", "14:00", "UTC")])
    noon, one = instant("2026-06-05T12:00"), instant("2026-06-05T13:00")
    assert list(policy.stretches(noon - 1, one + 500)) == [(noon, one + 501)]


def test_seconds_and_offsets_with_seconds_are_exact() -> None:
    """Monrovia's clock went from 00:00:00 on 7 January 1972 to 00:44:30."""
    key = "Africa/Monrovia"
    assert stretch_at("1972-01-07T00:50", key, window("00:30", "01:00:05", key)) == (
        "1972-01-07T00:44:30+00:00",
        "1972-01-07T01:00:05+00:00",
    )
    assert stretch_at("1972-01-06T23:00", key, window("22:15:30", "00:20", key)) == (
        "1972-01-06T22:15:30-00:44:30",
        "1972-01-07T00:44:30+00:00",
    )


def test_single_dates_and_weekdays_add_up() -> None:
    christmas = Window(
        from_time=time(0),
        to_time=time(0),
        zone=ZoneInfo("UTC"),
        dates=frozenset({date(2026, 12, 25), date(2027, 1, 1)}),
    )
    found = list(QuietHours([christmas]).stretches(instant("2026-01-01"), instant("2030-01-01")))
    assert [(shown(low, "UTC")[:10], shown(high, "UTC")[:10]) for low, high in found] == [
        ("2026-12-25", "2026-12-26"),
        ("2027-01-01", "2027-01-02"),
    ]
    mondays = Window(
        from_time=time(9), to_time=time(10), zone=ZoneInfo("UTC"), weekdays=frozenset({1}),
        dates=frozenset({date(2026, 6, 3)}),
    )  # fmt: skip
    found = list(QuietHours([mondays]).stretches(instant("2026-06-01"), instant("2026-06-09")))
    assert [shown(low, "UTC")[:10] for low, _ in found] == ["2026-06-01", "2026-06-03", "2026-06-08"]


def test_validity_bounds_the_day_on_which_a_window_begins() -> None:
    nights = window("22:00", "06:00", "UTC", valid_from=date(2026, 6, 2), valid_to=date(2026, 6, 3))
    found = list(QuietHours([nights]).stretches(instant("2026-01-01"), instant("2027-01-01")))
    assert [(shown(low, "UTC"), shown(high, "UTC")) for low, high in found] == [
        ("2026-06-02T22:00:00+00:00", "2026-06-03T06:00:00+00:00"),
        ("2026-06-03T22:00:00+00:00", "2026-06-04T06:00:00+00:00"),
    ]


def test_without_windows_it_is_never_quiet() -> None:
    policy = QuietHours()
    assert not policy.is_quiet(0)
    assert policy.quiet_until(0) is None
    assert list(policy.stretches(0, instant("2030-01-01"))) == []


def test_quiet_without_end_is_over_with_the_calendar() -> None:
    at = instant("2026-06-05")
    for windows in (
        [window("00:00", "00:00", "America/New_York")],
        [window("00:00", "12:00", "UTC"), window("12:00", "00:00", "UTC")],
        [window("17:30", "05:30", "Asia/Kolkata"), window("00:00", "12:00", "UTC")],
    ):
        until = QuietHours(windows).quiet_until(at)
        assert until is not None
        assert until > instant("9999-12-31T23:59:59+00:00")


def test_a_long_stretch_that_ends_is_followed_to_its_end() -> None:
    closed = window("00:00", "00:00", "UTC", valid_to=date(2099, 12, 31))
    assert QuietHours([closed]).quiet_until(instant("2026-06-05")) == instant("2100-01-01")


def test_the_ends_of_the_calendar_are_no_trap() -> None:
    policy = QuietHours([window("22:00", "06:00", "America/New_York"), window("22:00", "06:00", "Pacific/Kiritimati")])
    first, last = -62_135_596_800 * SECOND, 253_402_300_799 * SECOND
    early = list(policy.stretches(first - 1, first + 3 * DAY * SECOND))
    late = list(policy.stretches(last - 3 * DAY * SECOND, last))
    # the two nights of a day overlap in UTC; the night before the calendar's first day has no date to begin on
    assert len(early) == 2
    assert len(late) == 3
    assert all(first <= low < high for low, high in early)
    assert all(low < high <= last + 1 for low, high in late)
