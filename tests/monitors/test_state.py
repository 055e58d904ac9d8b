"""The state machine: example by example, and against a slow second opinion on random lives across clock changes."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.monitors.monitor_state import (
    MOST_RUNNING,
    Change,
    Flip,
    PingFact,
    PingKind,
    PingSchedule,
    Running,
    State,
    changed,
    deadlines,
    passed,
    paused,
    pinged,
    resumed,
)
from tests.cron.oracle import occurrences
from tests.effort import examples
from tests.monitors.oracle import EARLY, STEP, SlowMonitor

SECOND = 1_000_000
MINUTE = 60 * SECOND
T0 = 1_772_625_600 * SECOND  # 2026-03-04 12:00 UTC
HOURLY = PingSchedule("interval", "3600", "UTC", "once", 10 * MINUTE, None)


class Life:
    """A monitor that is lived with, in minutes since T0."""

    def __init__(self, rhythm: PingSchedule = HOURLY) -> None:
        self.rhythm = rhythm
        self.state = State("new", T0)
        self.flips: list[Flip] = []

    def _take(self, change: Change) -> None:
        self.state = change.state
        self.flips.extend(change.flips)

    def ping(self, minute: float, kind: PingKind = "success", run: str = "", **more: Any) -> None:
        self._take(pinged(self.rhythm, self.state, PingFact(T0 + round(minute * MINUTE), kind, run, **more)))

    def look(self, minute: float, watched_from: float | None = None) -> None:
        since = None if watched_from is None else T0 + round(watched_from * MINUTE)
        self._take(passed(self.rhythm, self.state, T0 + round(minute * MINUTE), since))

    def decide(self, change: Change) -> None:
        self._take(change)

    @property
    def told(self) -> list[tuple[float, str]]:
        return [((flip.at - T0) / MINUTE, flip.status) for flip in self.flips]


def test_a_new_monitor_waits_for_its_first_ping() -> None:
    life = Life()
    life.look(100_000)
    assert life.told == []
    assert deadlines(life.rhythm, life.state) == (None, None)


def test_silence_is_late_and_then_down_at_the_instants_when_it_became_so() -> None:
    life = Life()
    life.ping(0)
    life.look(59.99)
    life.look(500)  # nobody has looked for long
    assert life.told == [(0, "up"), (60, "late"), (70, "down")]
    assert [flip.lasted_us for flip in life.flips] == [0, 60 * MINUTE, 10 * MINUTE]
    assert life.state.reason == "no ping within the grace"
    life.ping(510)
    assert life.told[-1] == (510, "up")


def test_a_ping_in_the_grace_is_in_time() -> None:
    life = Life()
    life.ping(0)
    life.ping(65)
    assert life.told == [(0, "up"), (60, "late"), (65, "up")]


def test_without_grace_nothing_is_late() -> None:
    life = Life(PingSchedule("interval", "60", "UTC", "once", 0, None))
    life.ping(0)
    life.look(2)
    assert life.told == [(0, "up"), (1, "down")]


def test_a_failure_is_down_at_once_and_silence_after_it_is_no_news() -> None:
    life = Life()
    life.ping(0)
    life.ping(5, "fail", exit_code=3)
    assert life.state.reason == "exit code 3"
    life.ping(6, "fail")
    life.look(1000)
    assert life.told == [(0, "up"), (5, "down")]
    assert life.state.reason == "exit code 3"


def test_a_log_entry_changes_nothing() -> None:
    life = Life()
    life.ping(0, "log")
    assert life.state.status == "new"
    life.ping(1)
    life.ping(59, "log")
    life.look(62)
    assert life.told == [(1, "up"), (61, "late")]
    assert life.state.last_kind == "log"


def test_a_run_that_does_not_end_is_down_and_forgotten() -> None:
    life = Life(PingSchedule("interval", "3600", "UTC", "once", 10 * MINUTE, 30 * MINUTE))
    life.ping(0, "start")
    assert life.told == [(0, "up")]
    life.look(29)
    life.look(31)
    assert life.told[1:] == [(30, "down")]
    assert life.state.reason == "a run did not end in time"
    assert life.state.running == ()
    life.ping(40, "start")
    assert life.state.status == "down", "beginning is not recovering"
    life.ping(50)
    assert life.told[2:] == [(50, "up")]
    assert life.state.running == ()


def test_while_a_run_is_open_nothing_else_is_due() -> None:
    life = Life(PingSchedule("interval", "3600", "UTC", "once", 10 * MINUTE, 300 * MINUTE))
    life.ping(0, "start")
    life.look(200)
    life.ping(200)
    life.look(259)
    assert life.told == [(0, "up")]
    life.look(261)
    assert life.told[1:] == [(260, "late")]


def test_overlapping_runs_are_kept_apart_by_their_names() -> None:
    life = Life(PingSchedule("interval", "3600", "UTC", "once", 10 * MINUTE, 30 * MINUTE))
    life.ping(0, "start", "a")
    life.ping(10, "start", "b")
    life.ping(20, "success", "b")
    assert [run.run for run in life.state.running] == ["a"]
    life.look(31)
    assert life.told == [(0, "up"), (30, "down")]


def test_an_end_that_overtakes_its_start_leaves_nothing_open() -> None:
    life = Life()
    life.ping(0, "success", "a")
    life.ping(0.1, "start", "a")
    assert life.state.running == ()
    # without a name the instants tell, where the handling is out of order
    life.ping(5)
    life.ping(4.9, "start")
    assert life.state.running == ()


def test_an_end_that_is_older_than_the_last_decides_nothing() -> None:
    life = Life()
    life.ping(10, "fail")
    life.ping(9, "success")
    assert life.told == [(10, "down")]
    assert life.state.last_ping_at == T0 + 10 * MINUTE


def test_without_grace_a_run_has_a_minute() -> None:
    life = Life(PingSchedule("interval", "3600", "UTC", "once", 0, None))
    life.ping(0, "start")
    life.look(0.9)
    assert life.state.status == "up"
    life.look(1)
    assert life.told == [(0, "up"), (1, "down")]


def test_open_runs_are_bounded() -> None:
    life = Life()
    for number in range(MOST_RUNNING + 5):
        life.ping(0, "start", f"r{number}")
    assert len(life.state.running) == MOST_RUNNING
    assert life.state.running[-1].run == f"r{MOST_RUNNING + 4}"


def test_paused_means_that_nothing_is_concluded() -> None:
    life = Life()
    life.ping(0)
    life.decide(paused(life.state, T0 + 10 * MINUTE))
    life.decide(paused(life.state, T0 + 11 * MINUTE))
    life.ping(20, "fail")
    life.look(1000)
    assert life.told == [(0, "up"), (10, "paused")]
    life.decide(resumed(life.state, T0 + 1000 * MINUTE))
    life.decide(resumed(life.state, T0 + 1001 * MINUTE))
    life.look(1061)
    assert life.told[2:] == [(1000, "up"), (1060, "late")]


def test_resumed_without_any_ping_is_new_again() -> None:
    life = Life()
    life.decide(paused(life.state, T0))
    life.decide(resumed(life.state, T0 + MINUTE))
    life.look(10_000)
    assert life.state.status == "new"


def test_another_rhythm_counts_from_the_change() -> None:
    life = Life()
    life.ping(0)
    life.look(65)
    life.rhythm = PingSchedule("interval", "60", "UTC", "once", MINUTE, None)
    life.decide(changed(life.state, T0 + 65 * MINUTE))
    assert life.told[2:] == [(65, "up")]
    life.look(67)
    assert life.told[3:] == [(66, "late"), (67, "down")]


@pytest.mark.parametrize(
    "rhythm",
    [
        PingSchedule("interval", "3600", "UTC", "once", 10 * MINUTE, 20 * MINUTE),
        PingSchedule("interval", "3600", "UTC", "once", 20 * MINUTE, None),
    ],
)
def test_an_open_run_has_its_time_from_the_change(rhythm: PingSchedule) -> None:
    life = Life(PingSchedule("interval", "3600", "UTC", "once", 10 * MINUTE, 120 * MINUTE))
    life.ping(0, "start", "a")
    life.rhythm = rhythm
    life.decide(changed(life.state, T0 + 70 * MINUTE))
    life.look(70)
    life.ping(75, "start", "b")
    life.look(89.9)
    assert life.told == [(0, "up")]
    assert life.state.running[0].since == T0
    life.look(91)
    assert life.told[1:] == [(90, "down")]


def test_a_run_that_was_written_without_its_newer_fields_is_read() -> None:
    assert msgspec.json.decode(b'{"run": "a", "since": 5}', type=Running) == Running("a", 5)


def test_nobody_is_down_because_nobody_was_listening() -> None:
    life = Life()
    life.ping(0)
    life.look(300, watched_from=300)
    assert life.told == [(0, "up"), (60, "late")]
    life.look(309)
    assert life.state.status == "late"
    life.look(311)
    assert life.told[2:] == [(310, "down")]


def test_a_ping_that_was_due_while_nobody_listened_has_the_whole_grace() -> None:
    life = Life()
    life.ping(0)
    life.look(65, watched_from=65)
    assert life.told == [(0, "up"), (60, "late")]
    life.look(74.9, watched_from=65)
    assert life.state.status == "late"
    life.look(76, watched_from=65)
    assert life.told[2:] == [(75, "down")]


def test_a_deadline_that_was_watched_is_not_put_off() -> None:
    life = Life()
    life.ping(0)
    life.look(60.1, watched_from=0)
    life.look(71, watched_from=65)
    assert life.told == [(0, "up"), (60, "late"), (70, "down")]


def test_one_gap_after_another_puts_off_only_what_passed_in_them() -> None:
    life = Life()
    life.ping(0)
    life.look(65, watched_from=65)
    life.look(70, watched_from=70)
    life.look(76, watched_from=74)
    assert life.told == [(0, "up"), (60, "late"), (75, "down")]


def test_flips_do_not_go_back_when_the_clock_does() -> None:
    life = Life()
    life.ping(10)
    life.ping(5, "fail")
    life.ping(20, "fail")
    life.ping(20, "success")
    instants = [flip.at for flip in life.flips]
    assert instants == sorted(instants)
    assert all(flip.lasted_us >= 0 for flip in life.flips)


def test_a_clock_that_was_ahead_does_not_silence_what_comes_after_it() -> None:
    life = Life()
    life.ping(0)
    life.ping(1440)
    life.ping(70, "fail")
    assert life.state.status == "down"
    life.ping(80)
    life.look(1200)
    assert [status for _, status in life.told[-4:]] == ["down", "up", "late", "down"]
    assert life.state.last_ping_at == T0 + 80 * MINUTE


def test_a_run_that_a_clock_ahead_has_opened_ends_in_time_again() -> None:
    life = Life()
    life.ping(0)
    life.ping(1440, "start", "a")
    life.ping(1441)
    life.ping(5, "start")
    assert [(run.run, run.since) for run in life.state.running] == [("a", T0 + 5 * MINUTE), ("", T0 + 5 * MINUTE)]
    life.look(15)
    assert life.state.status == "down"


@pytest.mark.parametrize(("early", "due"), [(5, "02:30"), (15, "02:30")])
def test_a_ping_just_before_an_occurrence_is_the_one_of_that_occurrence(early: int, due: str) -> None:
    daily = PingSchedule("cron", "30 2 * * *", "UTC", "once", 10 * MINUTE, None)
    at = round(datetime(2026, 3, 5, 2, 30, tzinfo=UTC).timestamp()) - early
    found = daily.due_after(at * SECOND)
    assert found is not None
    expected = datetime(2026, 3, 6 if early <= 10 else 5, 2, 30, tzinfo=UTC)
    assert datetime.fromtimestamp(found // SECOND, UTC) == expected
    assert f"{expected:%H:%M}" == due


def test_a_time_that_comes_twice_is_due_once_unless_told_otherwise() -> None:
    first = round(datetime(2026, 11, 1, 1, 30, tzinfo=ZoneInfo("America/New_York")).timestamp())
    policies: list[tuple[Literal["once", "literal"], int]] = [("once", 86_400 + 3600), ("literal", 3600)]
    for dst, later in policies:
        daily = PingSchedule("cron", "30 1 * * *", "America/New_York", dst, 10 * MINUTE, None)
        assert daily.due_after(first * SECOND) == (first + later) * SECOND


# --- against the second opinion ---------------------------------------------------------------------------------------


class Stretch(NamedTuple):
    zone: str
    start: int


def _around(zone: str, *change: int) -> Stretch:
    return Stretch(zone, round(datetime(*change, tzinfo=UTC).timestamp()) - 7200)  # type: ignore[misc, arg-type]  # year to hour


STRETCHES = [
    _around("Europe/Kyiv", 2026, 3, 29, 1),
    _around("Europe/Kyiv", 2026, 10, 25, 1),
    _around("America/New_York", 2026, 3, 8, 7),
    _around("America/New_York", 2026, 11, 1, 6),
    _around("Australia/Lord_Howe", 2026, 4, 4, 15),
    Stretch("UTC", 1_772_625_600),
]
LENGTH = 4 * 3600
SPECS = [
    "0 * * * *",
    "0,20,40 * * * *",
    "30 1-3 * * *",
    "15 2,3 * * *",
    "* * * * *",
    "30 2 * * *",
]
kinds = st.sampled_from(["start", "success", "success", "fail", "log"])
# anywhere, and often enough beside an instant at which something is due
moments = st.one_of(
    st.integers(0, LENGTH // STEP - 1).map(lambda step: step * STEP),
    st.builds(lambda slot, beside: slot * 300 + beside * STEP, st.integers(1, LENGTH // 300 - 1), st.integers(-3, 3)),
)


@settings(max_examples=examples(120), deadline=None)
@given(
    st.sampled_from(STRETCHES),
    st.one_of(st.sampled_from(SPECS), st.sampled_from([60, 600, 1800, 3600])),
    st.sampled_from(["once", "literal"]),
    st.sampled_from([0, 5, 60, 900]),
    st.sampled_from([None, 5, 300, 3600]),
    st.dictionaries(moments, st.tuples(kinds, st.sampled_from(["", "", "", "a", "b", "c"])), max_size=25),
    st.lists(moments, max_size=15),
)
def test_any_life_is_told_as_the_second_opinion_tells_it(
    stretch: Stretch,
    spec: str | int,
    dst: Literal["once", "literal"],
    grace: int,
    max_run: int | None,
    pings: dict[int, tuple[PingKind, str]],
    looks: list[int],
) -> None:
    start, end = stretch.start, stretch.start + LENGTH
    heard = [(start + at, kind, run) for at, (kind, run) in sorted(pings.items())]
    limit = max(grace, 60) if max_run is None else max_run
    if isinstance(spec, int):
        slow = SlowMonitor(grace, limit, every=spec)
        rhythm = PingSchedule("interval", str(spec), stretch.zone, dst, grace * SECOND, _us(max_run))
    else:
        found = occurrences(spec, start, end + 86_400, ZoneInfo(stretch.zone), dst)
        slow = SlowMonitor(grace, limit, occurrences=found)
        rhythm = PingSchedule("cron", spec, stretch.zone, dst, grace * SECOND, _us(max_run))
    expected = slow.live(start, end, heard)

    state, flips = State("new", start * SECOND), list[Flip]()
    steps: list[tuple[int, int, tuple[int, PingKind, str] | None]] = [(start + at, 0, None) for at in looks]
    steps += [(ping[0], 1, ping) for ping in heard]
    for at, _, ping in sorted(steps, key=lambda step: step[:2]):
        if ping is None:
            change = passed(rhythm, state, at * SECOND)
        else:
            change = pinged(rhythm, state, PingFact(at * SECOND, ping[1], ping[2]))
        state = change.state
        flips += change.flips
        due = deadlines(rhythm, state).next_at
        assert due is None or due > at * SECOND, "what is due has been settled"
    state, last = passed(rhythm, state, (end - STEP) * SECOND)
    flips += last

    assert [(flip.at // SECOND, flip.status) for flip in flips] == expected
    assert {run.run: run.since // SECOND for run in state.running} == slow.open_runs
    chain = ["new", *(flip.status for flip in flips)]
    assert [flip.was for flip in flips] == chain[:-1]
    instants = [start * SECOND, *(flip.at for flip in flips)]
    assert [flip.lasted_us for flip in flips] == [b - a for a, b in pairwise(instants)]


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(STRETCHES), st.sampled_from(SPECS), st.sampled_from(["once", "literal"]), moments)
def test_the_next_ping_is_due_when_the_second_opinion_on_cron_says(
    stretch: Stretch, spec: str, dst: Literal["once", "literal"], passed_by: int
) -> None:
    at = stretch.start + passed_by
    rhythm = PingSchedule("cron", spec, stretch.zone, dst, 0, None)
    found = occurrences(spec, at + EARLY + 1, at + 2 * 86_400, ZoneInfo(stretch.zone), dst)
    assert rhythm.due_after(at * SECOND) == found[0] * SECOND


def _us(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * SECOND


@settings(max_examples=examples(100), deadline=None)
@given(st.permutations([(kind, f"r{number}") for number in range(5) for kind in ("start", "success")]))
def test_in_whatever_order_pings_arrive_no_named_run_stays_open(arriving: list[tuple[PingKind, str]]) -> None:
    life = Life()
    for place, (kind, run) in enumerate(arriving):
        life.ping(place / 60, kind, run)
    assert life.state.running == ()
    assert life.state.status == "up"
