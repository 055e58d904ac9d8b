"""What moves, in words, against a plain enumeration of the fires."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.cron import DstPolicy
from noonbell.planning.moves import FiringWindow, moves
from noonbell.timing import IntervalTiming, OneShotTiming, QuietHours, Timing, cron_timing
from noonbell.timing.timing_protocol import SECOND
from tests.effort import examples

NOON = datetime(2026, 11, 15, 12, 0, 30, tzinfo=UTC)  # a Sunday
NOW = int(NOON.timestamp()) * SECOND
NEW_YORK = "America/New_York"
KYIV = "Europe/Kyiv"


def cron(spec: str, zone: str = NEW_YORK, dst: DstPolicy = "literal") -> Timing:
    return cron_timing(spec, ZoneInfo(zone), dst)


def words(
    before: Timing | None, after: Timing | None, zone: str = NEW_YORK, *others: str, now: int = NOW
) -> tuple[str, ...]:
    return moves(before, after, zone=ZoneInfo(zone), now=now, others=[ZoneInfo(one) for one in others]).words


def test_a_time_of_day_moves_and_the_missing_hour_is_told() -> None:
    assert words(cron("30 2 * * *"), cron("30 3 * * *")) == (
        "02:30 becomes 03:30 New York",
        "next fire Mon 16 Nov 03:30 New York instead of Mon 16 Nov 02:30",
        "on Sun 14 Mar 2027, when the clocks go forward in New York: 03:30 New York comes in addition",
    )


def test_fewer_fires_a_day() -> None:
    half = cron("0 0,2,4,6,8,10,12,14,16,18,20,22 * * *")
    assert words(cron("0 * * * *"), half)[0] == "12 fires a day fewer: 12 instead of 24"
    assert words(half, cron("0 * * * *"))[0] == "12 fires a day more: 24 instead of 12"


def test_fewer_and_moved_at_once() -> None:
    assert words(cron("0 9,12 * * *", KYIV), cron("0 10 * * *", KYIV), KYIV)[:2] == (
        "1 fire a day fewer: 1 instead of 2",
        "09:00 and 12:00 become 10:00 Kyiv",
    )


def test_days_of_the_week() -> None:
    assert words(cron("0 9 * * *", KYIV), cron("0 9 * * 1-5", KYIV), KYIV) == (
        "2 fires a week fewer: 5 instead of 7",
        "09:00 Kyiv stays away on Saturdays and Sundays",
    )
    assert words(cron("30 2 * * *"), cron("30 3 * * 1-5")) == (
        "2 fires a week fewer: 5 instead of 7",
        "02:30 becomes 03:30 New York on Mondays to Fridays",
        "02:30 New York stays away on Saturdays and Sundays",
        "next fire Mon 16 Nov 03:30 New York instead of Mon 16 Nov 02:30",
    )


def test_dates() -> None:
    quiet = QuietHours.from_json(
        {"windows": [{"dates": ["2026-12-07", "2026-12-08"], "from": "00:00", "to": "24:00", "timezone": KYIV}]}
    )
    every = cron("0 9,10,11,12,13,14,15,16 * * *", KYIV)
    found = moves(every, FiringWindow(every, quiet), zone=ZoneInfo(KYIV), now=NOW)
    assert found.words == (
        "16 fires fewer in the coming 4 weeks: 208 instead of 224",
        "the fires on 7 and 8 Dec stay away",
    )
    assert len(found.gone) == 16
    assert not found.new


def test_another_zone_is_told_on_both_sides_of_the_clock_change() -> None:
    assert words(cron("0 9 * * *"), cron("0 9 * * *", "UTC"), "UTC", NEW_YORK) == (
        "14:00 becomes 09:00 UTC",
        "next fire Mon 16 Nov 09:00 UTC instead of Sun 15 Nov 14:00",
        "from Sun 14 Mar 2027 to Sat 6 Nov 2027: 13:00 becomes 09:00 UTC",
    )
    assert words(cron("0 9 * * *", "Europe/London"), cron("0 9 * * *", "UTC"), "UTC", "Europe/London") == (
        "from Sun 28 Mar 2027 to Sat 30 Oct 2027: 08:00 becomes 09:00 UTC",
    )


def test_the_policy_for_clock_changes() -> None:
    assert words(cron("30 1 * * *"), cron("30 1 * * *", dst="once")) == (
        "on Sun 7 Nov 2027, when the clocks go back in New York: 01:30 New York stays away",
    )
    assert words(cron("30 2 * * *", dst="once"), cron("30 2 * * *")) == (
        "on Sun 14 Mar 2027, when the clocks go forward in New York: 03:00 New York stays away",
    )


def test_many_times_move_together() -> None:
    assert words(cron("0 * * * *"), cron("30 * * * *"))[0] == "each of the 24 fires of a day comes 30 min later"


def test_a_beginning_and_an_end() -> None:
    assert words(None, cron("0 9 * * 1-5", KYIV), KYIV) == ("first fire Mon 16 Nov 09:00 Kyiv", "5 fires a week")
    assert words(cron("0 9 * * *", KYIV), None, KYIV) == (
        "1 fire a day fewer",
        "the next would have been Mon 16 Nov 09:00 Kyiv",
    )
    assert words(None, cron("0 9 1 1 *", KYIV), KYIV) == ("first fire Fri 1 Jan 2027 09:00 Kyiv",)


def test_the_end_of_the_calendar() -> None:
    last = OneShotTiming(int(datetime(9999, 12, 31, 23, 59, tzinfo=UTC).timestamp()) * SECOND)
    assert words(None, last, "Pacific/Kiritimati") == ("first fire Fri 31 Dec 9999 23:59 UTC, Kiritimati",)


def test_intervals_and_what_stays() -> None:
    assert words(IntervalTiming(NOW, 600 * SECOND), IntervalTiming(NOW, 900 * SECOND), "UTC")[0] == (
        "48 fires a day fewer: 96 instead of 144"
    )
    same = moves(cron("0 9 1 * *"), cron("0 9 1 * *"), zone=ZoneInfo(NEW_YORK), now=NOW)
    assert same.same
    assert same.words == ("the fires stay the same",)
    assert not moves(cron("30 2 * * *", dst="once"), cron("30 2 * * *"), zone=ZoneInfo(NEW_YORK), now=NOW).same


def test_a_second_is_counted_and_not_walked() -> None:
    asked = 0

    class Watched(IntervalTiming):
        def following(self, after: int) -> int | None:
            nonlocal asked
            asked += 1
            return super().following(after)

    found = moves(Watched(NOW, SECOND), Watched(NOW, 3 * SECOND), zone=UTC, now=NOW)
    assert (found.before, found.after) == (28 * 86_400, 28 * 28_800)
    assert asked < 10_000


# --- against an enumeration -------------------------------------------------------------------------------------------


def enumerated(matches: Callable[[datetime], bool], zone: ZoneInfo, days: int) -> list[datetime]:
    """Every minute from now on whose civil time matches."""
    minute = NOON.replace(second=0) + timedelta(minutes=1)
    end = NOON + timedelta(days=days)
    found = []
    while minute <= end:
        if matches(minute.astimezone(zone)):
            found.append(minute)
        minute += timedelta(minutes=1)
    return found


def midnights(zone: ZoneInfo) -> tuple[datetime, datetime]:
    tomorrow = (NOON.astimezone(zone) + timedelta(days=1)).replace(hour=0, minute=0, second=0)
    return tomorrow.astimezone(UTC), (tomorrow + timedelta(days=28)).astimezone(UTC)


TIMES = st.tuples(
    st.lists(st.integers(0, 23), min_size=1, max_size=3, unique=True),
    st.integers(0, 59),
    st.sets(st.integers(0, 6), min_size=1),
)


@settings(max_examples=examples(12), deadline=None)
@given(TIMES, TIMES, st.sampled_from([NEW_YORK, KYIV, "UTC", "Asia/Kolkata"]))
def test_counts_differences_and_words_are_those_of_an_enumeration(
    old: tuple[list[int], int, set[int]], new: tuple[list[int], int, set[int]], zone_name: str
) -> None:
    zone = ZoneInfo(zone_name)
    timings, fires = [], []
    for hours, minute, weekdays in (old, new):
        days = "*" if len(weekdays) == 7 else ",".join(map(str, sorted(weekdays)))
        timings.append(cron(f"{minute} {','.join(map(str, sorted(hours)))} * * {days}", zone_name))

        def matches(at: datetime, hours: list[int] = hours, minute: int = minute, days: set[int] = weekdays) -> bool:
            return at.minute == minute and at.hour in hours and at.isoweekday() % 7 in days

        fires.append(enumerated(matches, zone, 30))
    found = moves(*timings, zone=zone, now=NOW)
    first, last = midnights(zone)
    before, after = ([at for at in one if first <= at < last] for one in fires)
    assert (found.before, found.after) == (len(before), len(after))
    until = datetime.fromtimestamp(found.compared_to / SECOND, UTC)
    gone = [int(at.timestamp()) * SECOND for at in fires[0] if at not in fires[1] and at <= until]
    came = [int(at.timestamp()) * SECOND for at in fires[1] if at not in fires[0] and at <= until]
    assert (list(found.gone), list(found.new)) == (gone, came)
    weekly = (len(before) - len(after)) // 4
    if len(old[2]) < 7 or len(new[2]) < 7:
        rate = f"{abs(weekly)} {'fire' if abs(weekly) == 1 else 'fires'} a week {'fewer' if weekly > 0 else 'more'}"
        assert any(one.startswith(rate) for one in found.words) == bool(weekly)
    assert found.same == (fires[0] == fires[1])
    for sentence in found.words:
        if sentence.startswith("next fire"):
            assert f"{fires[1][0].astimezone(zone):%H:%M}" in sentence
            assert f"{fires[0][0].astimezone(zone):%H:%M}" in sentence


@pytest.mark.parametrize("zone", [NEW_YORK, KYIV, "UTC", "Asia/Kolkata"])
def test_what_is_heard_is_what_is_not_quiet(zone: str) -> None:
    quiet = QuietHours.from_json(
        {"windows": [{"weekdays": [1, 3, 5], "from": "22:00", "to": "07:30", "timezone": KYIV}]}
    )
    timing = cron("20,50 * * * *", zone)
    heard = FiringWindow(timing, quiet)
    expected, at = [], timing.following(NOW)
    end = NOW + 10 * 86_400 * SECOND
    while at is not None and at <= end:
        expected += [] if quiet.is_quiet(at) else [at]
        at = timing.following(at)
    found, at = [], heard.following(NOW)
    while at is not None and at <= end:
        found.append(at)
        at = heard.following(at)
    assert found == expected
    assert heard.count(NOW, end) == len(expected)
