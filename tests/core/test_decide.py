"""decide against an oracle that walks every occurrence and knows nothing of stretches."""

from __future__ import annotations

from datetime import UTC, time
from itertools import pairwise
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.core.decide import decide
from noonbell.core.presence import Gap
from noonbell.core.records import LiveRun
from noonbell.core.terms import Backlog, Policies, Position, Terms, Verdicts
from noonbell.timing import CronTiming, cron_timing
from noonbell.timing.interval import IntervalTiming
from noonbell.timing.one_shot import OneShotTiming
from noonbell.timing.quiet_hours import QuietHours
from noonbell.timing.quiet_window import Window
from tests.effort import examples

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
START = 1_772_618_400 * SECOND  # 2026-03-04 10:00 UTC, a Wednesday


class Case(NamedTuple):
    every: int
    quiet: QuietHours
    policies: Policies
    cursor: int
    now: int
    polls: tuple[int, ...]  # when the lane was polled, in order; the last one is this one
    ran: tuple[int, int] | None
    longest_jitter: int = 0
    grace: int = MINUTE

    def jitter(self, occurrence: int) -> int:
        return Random(occurrence).randrange(self.longest_jitter + 1)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What engines record of these polls."""
        return tuple(Gap(a, b, self.grace) for a, b in pairwise((0, *self.polls)) if b - a > self.grace)


def told(case: Case) -> dict[int, str]:
    """What became of each occurrence, by applying the decision until there is nothing more to do now."""
    timing = IntervalTiming(START - 10 * DAY, case.every)
    terms = Terms(timing, case.policies, case.quiet, jitter=case.jitter)
    position = Position(1, 1, case.cursor, case.ran)
    found: dict[int, str] = {}
    for _ in range(case.policies.cap + 3):
        verdicts = decide(position, terms, case.now, case.gaps)
        record(found, verdicts, timing)
        assert verdicts.cursor_at >= position.cursor_at
        ran = position.ran if verdicts.start is None else (case.now, case.now)
        position = Position(1, 1, verdicts.cursor_at, ran, None, verdicts.backlog)
        if verdicts.start is None:
            assert verdicts.next_run_at is None or verdicts.next_run_at > case.now
            return found
    raise AssertionError("it does not come to rest")


def record(found: dict[int, str], verdicts: Verdicts, timing: IntervalTiming) -> None:
    for span in verdicts.spans:
        at: int | None = span.from_at
        n = 0
        while at is not None and at <= span.to_at:
            assert at not in found
            found[at] = f"{span.verdict}: {span.reason}"
            n += 1
            at = timing.following(at)
        assert n == span.n
    if verdicts.start is not None:
        assert verdicts.start.run_for not in found
        found[verdicts.start.run_for] = "fired"
    assert all(at <= verdicts.cursor_at for at in found)


def right(case: Case) -> dict[int, str]:
    """The same by walking."""
    first = START - 10 * DAY
    come = [t for t in range(first + case.every, case.now + 1, case.every) if t > case.cursor]
    due = [t for t in come if t + case.jitter(t) <= case.now]
    while due and quiet_beyond_now(case, due[-1]):
        due.pop()
    found: dict[int, str] = {}
    missed: list[int] = []
    late: list[int] = []
    starts = [t for t in due if is_missed(case, t + case.jitter(t))]
    for t in due:
        if case.quiet.is_quiet(t):
            found[t] = "skipped: quiet hours"
        elif t in starts or (case.policies.catch_up != "skip" and starts and t < starts[-1]):
            missed.append(t)  # the other policies make up for what was late before it, too
        elif (
            case.policies.overlap == "skip" and case.ran is not None and case.ran[0] < t + case.jitter(t) <= case.ran[1]
        ):
            found[t] = "skipped: overlap"
        else:
            late.append(t)
    quiet_now = case.quiet.is_quiet(case.now)
    if case.policies.catch_up == "run_all_capped" and missed:
        if quiet_now:
            return {}
        found |= dict.fromkeys(missed[: case.policies.cap], "fired")
        found |= dict.fromkeys(missed[case.policies.cap :], "missed: cap")
        missed = []
    if case.policies.catch_up == "run_once":
        if missed and not late and quiet_now:
            return {}
        reason = "missed" if missed else "due"
        late = missed + late
    else:
        reason = "due"
        found |= dict.fromkeys(missed, "missed: not polled in time")
    found |= dict.fromkeys(late[:-1], f"coalesced: one run for all that was {reason}")
    found |= dict.fromkeys(late[-1:], "fired")
    return found


def is_missed(case: Case, start_at: int) -> bool:
    """No poll between the start and the grace after it; one that comes at the very end of the grace is too late."""
    return not any(start_at <= poll < start_at + case.grace for poll in case.polls)


def quiet_beyond_now(case: Case, at: int) -> bool:
    until = case.quiet.quiet_until(at)
    return until is not None and until > case.now


@st.composite
def quiets(draw: st.DrawFn) -> QuietHours:
    hours = st.integers(0, 23).map(time)
    windows = draw(st.lists(st.tuples(hours, hours, st.sets(st.integers(0, 6), min_size=1)), max_size=2))
    return QuietHours([Window(from_time=a, to_time=b, zone=UTC, weekdays=frozenset(days)) for a, b, days in windows])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    now = START + draw(st.integers(0, 3 * DAY // MINUTE)) * MINUTE + draw(st.sampled_from([0, 1, 17 * SECOND]))
    cursor = now - draw(st.sampled_from([0, MINUTE, HOUR, 5 * HOUR, DAY, 3 * DAY])) - draw(st.integers(0, 10**8))
    polls = draw(
        st.lists(st.tuples(st.sampled_from([30 * SECOND, 2 * MINUTE, HOUR, 7 * HOUR, DAY]), st.integers(1, 90)))
    )
    began = now - draw(st.integers(0, 6 * HOUR))
    began -= draw(st.sampled_from([0, began % MINUTE]))  # to the minute, so that it may meet an occurrence
    policies = Policies(
        catch_up=draw(st.sampled_from(["skip", "run_once", "run_all_capped"])),
        cap=draw(st.integers(1, 12)),
        overlap=draw(st.sampled_from(["coalesce", "skip"])),
    )
    ran = draw(st.sampled_from([None, (began, draw(st.integers(began, now)))]))
    every = draw(st.sampled_from([MINUTE, 7 * MINUTE, HOUR, 5 * HOUR, DAY]))
    jitter = draw(st.sampled_from([0, 0, every // 100, every - 1]))
    grace = draw(st.sampled_from([MINUTE, 10 * MINUTE]))
    return Case(every, draw(quiets()), policies, cursor, now, polled(now, polls), ran, jitter, grace)


def polled(now: int, stretches: list[tuple[int, int]]) -> tuple[int, ...]:
    """Polls up to `now`, backwards: of each stretch so many, each so long after the one before."""
    found = [now]
    for pause, number in stretches[:4]:
        found.extend(found[-1] - pause * n for n in range(1, number + 1))
    return tuple(reversed(found))


@settings(max_examples=examples(200), deadline=None)
@given(cases())
def test_every_occurrence_gets_the_verdict_that_walking_gives(case: Case) -> None:
    if case.policies.overlap == "skip" and case.policies.catch_up == "run_all_capped":
        case = case._replace(ran=None)  # the runs of the backlog itself are the last runs by then
    assert told(case) == right(case)


# --- by name ----------------------------------------------------------------------------------------------------------


def down(until: int) -> list[Gap]:
    """No poll before this one."""
    return [Gap(0, until)]


def minutely() -> CronTiming:
    return cron_timing("* * * * *", UTC)


def live(state: str, wake_at: int | None) -> LiveRun:
    return LiveRun(1, "scheduled", START, 3, None, state, 2, wake_at, START, START, 0, 1, "cron")  # type: ignore[arg-type]  # drawn by name


@pytest.mark.parametrize("catch_up", ["skip", "run_once", "run_all_capped"])
def test_a_year_of_missed_minutes_is_a_matter_of_counting(catch_up: str) -> None:
    year = 365 * DAY
    terms = Terms(minutely(), Policies(catch_up=catch_up))  # type: ignore[arg-type]  # drawn by name
    found = decide(Position(1, 1, START - year), terms, START + SECOND, down(START + SECOND))
    # the occurrence of this very minute lies within the grace: it is simply due
    counted = sum(span.n for span in found.spans) + (found.start is not None)
    expected = {"skip": 525_600, "run_once": 525_600, "run_all_capped": 1}[catch_up]
    assert counted == expected
    assert len(found.spans) == {"skip": 1, "run_once": 1, "run_all_capped": 0}[catch_up]


def test_a_capped_backlog_goes_on_one_by_one_and_leaves_the_rest_missed() -> None:
    terms = Terms(minutely(), Policies(catch_up="run_all_capped", cap=2))
    now = START + SECOND
    first = decide(Position(1, 1, START - HOUR), terms, now, down(now))
    assert first.start is not None
    assert first.start.run_for == START - 59 * MINUTE
    assert first.backlog == Backlog(1, START - MINUTE)
    second = decide(Position(1, 1, first.cursor_at, backlog=first.backlog), terms, now, down(now))
    assert second.start is not None
    assert second.start.run_for == START - 58 * MINUTE
    assert second.backlog is None
    assert [(span.n, span.verdict, span.reason) for span in second.spans] == [(57, "missed", "cap")]


def test_a_retry_in_quiet_hours_waits_for_their_end() -> None:
    quiet = QuietHours([Window(from_time=time(10), to_time=time(11), zone=UTC, weekdays=frozenset(range(7)))])
    terms = Terms(minutely(), Policies(), quiet)
    found = decide(Position(1, 1, START, live=live("waiting", START + 5)), terms, START + 10)
    assert found.start is None
    assert found.live_wake_at == START + HOUR


def test_a_waiting_run_without_a_wake_up_time_is_not_retried() -> None:
    quiet = QuietHours([Window(from_time=time(10), to_time=time(11), zone=UTC, weekdays=frozenset(range(7)))])
    terms = Terms(minutely(), Policies(retry_vs_new="preempt"), quiet)
    now = START + 5 * MINUTE
    without_run = decide(Position(1, 1, START), terms, now)
    assert decide(Position(1, 1, START, live=live("waiting", None)), terms, now) == without_run
    retried = decide(Position(1, 1, START, live=live("waiting", now)), terms, now)
    assert retried.live_wake_at == START + HOUR


def test_a_chain_of_retries_ends_before_the_next_run_or_gives_way() -> None:
    position = Position(1, 1, START, live=live("waiting", START + HOUR))
    now = START + 5 * MINUTE
    finish = decide(position, Terms(minutely(), Policies(retry_vs_new="finish")), now)
    assert finish.start is None
    preempt = decide(position, Terms(minutely(), Policies(retry_vs_new="preempt")), now)
    assert preempt.start is not None
    assert preempt.start.preempted == position.live
    assert preempt.start.run_for == now


def test_a_running_schedule_starts_again_only_where_overlap_is_allowed() -> None:
    position = Position(1, 1, START, live=live("running", None))
    now = START + 5 * MINUTE
    assert decide(position, Terms(minutely(), Policies()), now).start is None
    allowed = decide(position, Terms(minutely(), Policies(overlap="allow")), now)
    assert allowed.start is not None
    assert allowed.next_run_at == now + MINUTE


def test_an_interval_counts_from_the_start_of_its_run() -> None:
    timing = IntervalTiming(START, 30 * SECOND)
    terms = Terms(timing, Policies(), every_us=30 * SECOND)
    now = START + 37 * SECOND
    found = decide(Position(1, 1, START), terms, now)
    assert found.start is not None
    assert (found.start.run_for, found.start.following) == (START + 30 * SECOND, now + 30 * SECOND)


def test_a_one_shot_fires_once_or_is_missed() -> None:
    terms = Terms(OneShotTiming(START + HOUR))
    fired = decide(Position(1, 1, START), terms, START + HOUR)
    assert fired.start is not None
    assert fired.start.following is None
    late = START + 3 * HOUR
    missed = decide(Position(1, 1, START), terms, late, down(late))
    assert missed.start is None
    assert [(span.n, span.verdict) for span in missed.spans] == [(1, "missed")]
    assert missed.next_run_at is None


def test_jitter_puts_the_start_off_and_keeps_the_occurrence() -> None:
    terms = Terms(minutely(), jitter=lambda _: 20 * SECOND)
    early = decide(Position(1, 1, START), terms, START + MINUTE + SECOND)
    assert early.start is None
    assert early.next_run_at == START + 80 * SECOND
    due = decide(Position(1, 1, START), terms, START + 80 * SECOND)
    assert due.start is not None
    assert (due.start.run_for, due.start.due_at) == (START + MINUTE, START + 80 * SECOND)


def test_a_start_that_jitter_puts_off_until_something_is_up_is_not_missed() -> None:
    terms = Terms(OneShotTiming(START), jitter=lambda _: HOUR)
    due = decide(Position(1, 1, START - DAY), terms, START + HOUR, [Gap(0, START + 30 * MINUTE)])
    assert due.start is not None
    assert due.start.run_for == START
    late = decide(Position(1, 1, START - DAY), terms, START + 3 * HOUR, down(START + 3 * HOUR))
    assert [(span.n, span.verdict) for span in late.spans] == [(1, "missed")]


def test_the_edges_of_a_run_that_nothing_may_overlap() -> None:
    """What comes at the instant of its start is not in its way yet; what comes at the instant of its end still is."""
    terms = Terms(IntervalTiming(START, MINUTE), Policies(overlap="skip"))
    ran = (START + MINUTE, START + 2 * MINUTE)
    found = decide(Position(1, 1, START, ran), terms, START + 3 * MINUTE)
    assert [(span.from_at - START, span.n, span.verdict) for span in found.spans] == [
        (MINUTE, 1, "coalesced"),
        (2 * MINUTE, 1, "skipped"),
    ]
    assert found.start is not None
    assert found.start.run_for == START + 3 * MINUTE


def at(hour: int, minute: int) -> int:
    """That time of the first day."""
    return START - 10 * HOUR + hour * HOUR + minute * MINUTE


def silent(*hours: tuple[time, time]) -> QuietHours:
    every_day = frozenset(range(7))
    return QuietHours([Window(from_time=a, to_time=b, zone=UTC, weekdays=every_day) for a, b in hours])


def test_quiet_hours_that_are_over_are_told_while_the_next_go_on() -> None:
    """Nothing came between the two, so their occurrences are neighbours; only the last quiet time is not over."""
    quiet = silent((time(10), time(11)), (time(11, 10), time(12)))
    terms = Terms(IntervalTiming(at(9, 30), HOUR), quiet=quiet)
    found = decide(Position(1, 1, at(9, 30)), terms, at(11, 45))
    assert [(span.from_at, span.to_at, span.n, span.reason) for span in found.spans] == [
        (at(10, 30), at(10, 30), 1, "quiet hours")
    ]
    assert (found.start, found.cursor_at, found.next_run_at) == (None, at(10, 30), at(12, 0))


def test_a_backlog_that_quiet_hours_came_to_hold_is_over_at_once() -> None:
    terms = Terms(IntervalTiming(at(10, 0), MINUTE), Policies(catch_up="run_all_capped"), silent((time(10), time(11))))
    position = Position(1, 1, at(10, 0), backlog=Backlog(3, at(10, 20)))
    found = decide(position, terms, at(11, 0))
    assert [(span.n, span.verdict, span.reason) for span in found.spans] == [(20, "skipped", "quiet hours")]
    assert (found.start, found.cursor_at, found.backlog) == (None, at(10, 20), None)
