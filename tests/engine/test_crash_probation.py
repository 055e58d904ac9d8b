"""Runs that were executing at two deaths of an engine: which of them may start, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Final, cast

import pytest

from noonbell.core.crashes import abandoning, is_on_probation
from noonbell.core.records import LiveRun, LiveState, Start, StoredSchedule
from noonbell.engine.crash_probation import CrashProbation, ProbationBatch

SECOND: Final = 1_000_000
DAY: Final = 86_400 * SECOND


def run_of(sid: int, crashes: int = 2, state: LiveState = "queued") -> LiveRun:
    return LiveRun(sid, "scheduled", 60 * SECOND, 2, None, state, 1, 0, 1, 1, crashes, 1, "orphan")


def start_of(live: LiveRun) -> Start:
    return Start(live.sid, live.kind, live.run_for, 3, 2, "orphan", 1, 0, 0, None)


def schedule_of(*lives: LiveRun) -> StoredSchedule:
    return cast("StoredSchedule", SimpleNamespace(lives=list(lives)))


def claim(probation: CrashProbation, waiting: list[LiveRun], now: int) -> list[int]:
    """One claim over the runs that wait: returns those that start; the others get their wake-ups."""
    batch, started = ProbationBatch(probation, now), []
    for live in list(waiting):
        if live.wake_at is None or live.wake_at > now:
            continue
        held = batch.held_back(schedule_of(live))
        if held:
            live.wake_at = held[0].wake_at
        else:
            waiting.remove(live)
            started.append(live.sid)
    if batch.admitted is not None:
        probation.begin(batch.admitted)
    return started


def test_runs_of_one_death_start_together_at_once() -> None:
    waiting = [run_of(sid, crashes=1) for sid in range(100)]
    assert claim(CrashProbation(), waiting, 0) == list(range(100))


def test_a_run_of_two_deaths_starts_alone_and_the_next_waits_for_its_end() -> None:
    probation, waiting = CrashProbation(), [run_of(1), run_of(2)]
    assert claim(probation, waiting, 0) == [1]
    assert claim(probation, waiting, DAY) == []
    probation.ended(start_of(run_of(1)))
    assert claim(probation, waiting, DAY + 2 * SECOND) == [2]


def test_a_run_that_was_admitted_and_handed_back_is_admitted_again() -> None:
    """Nothing reports its end: it was never launched."""
    probation, waiting = CrashProbation(), [run_of(1), run_of(2)]
    assert claim(probation, waiting, 0) == [1]
    waiting.append(run_of(1))  # handed back, and due again
    assert claim(probation, waiting, DAY) != []


def test_others_start_beside_a_run_on_probation() -> None:
    probation, waiting = CrashProbation(), [run_of(1), run_of(2, crashes=1), run_of(3), run_of(4, crashes=0)]
    assert claim(probation, waiting, 0) == [1, 2, 4]
    probation.ended(start_of(run_of(2)))
    assert claim(probation, waiting, 10 * SECOND) == [], "one that is not on probation has ended"


@pytest.mark.parametrize("state", ["queued", "waiting"])
def test_a_retry_is_on_probation_as_well(state: LiveState) -> None:
    probation, waiting = CrashProbation(), [run_of(1), run_of(2, state=state)]
    assert claim(probation, waiting, 0) == [1]


def test_a_claim_that_the_store_begins_again_admits_the_same_run() -> None:
    batch = ProbationBatch(CrashProbation(), 0)
    for _ in range(2):
        assert batch.held_back(schedule_of(run_of(1))) == []
        assert [live.sid for live in batch.held_back(schedule_of(run_of(2)))] == [2]


def test_runs_that_end_soon_follow_each_other_closely() -> None:
    probation, waiting, now = CrashProbation(), [run_of(sid) for sid in range(100)], 0
    while waiting:
        for sid in claim(probation, waiting, now):
            probation.ended(start_of(run_of(sid)))
        now += SECOND // 100
    assert now <= 3 * SECOND


def test_while_one_executes_few_are_looked_at_again() -> None:
    probation, first, looked, now = CrashProbation(), [run_of(0)], 0, 0
    assert claim(probation, first, now) == [0]
    waiting = [run_of(sid) for sid in range(1, 5_001)]
    for _ in range(300):  # thirty seconds of polls
        now += SECOND // 10
        looked += sum(live.wake_at is not None and live.wake_at <= now for live in waiting)
        assert claim(probation, waiting, now) == []
    assert 5_000 < looked < 5_000 + 30 * 600  # once each second they would be 150,000


def test_an_engine_that_executes_one_defers_others_for_a_moment() -> None:
    probation, left = CrashProbation(), run_of(1)
    assert claim(probation, [run_of(0)], 0) == [0]
    left.wake_at = SECOND
    assert ProbationBatch(probation, SECOND + SECOND // 10).defers(schedule_of(left)), "another engine may be free"
    assert not ProbationBatch(probation, SECOND + SECOND // 2).defers(schedule_of(left)), "none was: it is put off"
    assert not ProbationBatch(probation, SECOND + SECOND // 10).defers(schedule_of(run_of(2, crashes=1)))
    probation.ended(start_of(run_of(0)))
    assert not ProbationBatch(probation, SECOND + SECOND // 10).defers(schedule_of(left)), "this engine is free"


@pytest.mark.parametrize("engines", [1, 3])
@pytest.mark.parametrize("kills_after", [0, 3 * SECOND, 19 * SECOND, 120 * SECOND])
@pytest.mark.parametrize("poison", [0, 17, 63])
def test_only_the_run_that_kills_its_engines_is_abandoned(poison: int, kills_after: int, engines: int) -> None:
    """Every engine that executes it dies, and is replaced; the others take 20 s each. All count one death."""
    waiting = [run_of(sid, crashes=1) for sid in range(64)]
    ended: set[int] = set()
    abandoned: list[tuple[int, int]] = []
    probations = {name: CrashProbation() for name in range(engines)}
    running: dict[int, tuple[int, LiveRun, int]] = {}  # by sid: its engine, itself, and since when
    now, replaced = 0, engines
    while waiting or running:
        assert now < DAY
        known = {live.sid: live for live in waiting}
        for name in [*probations][:: 1 if now // SECOND % 2 else -1]:
            due = [live for live in waiting if live.sid % engines == name % engines or is_on_probation(live.crashes)]
            for sid in claim(probations[name], due, now):
                waiting.remove(known[sid])
                running[sid] = (name, known[sid], now)
        now += SECOND
        if poison in running and now - running[poison][2] > kills_after:
            dead = running[poison][0]
            executed = [live for name, live, _ in running.values() if name == dead]
            gone = abandoning(("dead", live.crashes) for live in executed)
            for live in executed:
                del running[live.sid]
                live.crashes, live.wake_at = live.crashes + 1, 0
                if gone and is_on_probation(live.crashes - 1):
                    abandoned.append((live.sid, live.crashes))
                else:
                    waiting.append(live)
            del probations[dead]
            probations[replaced] = CrashProbation()
            replaced += 1
        for sid, (name, live, begun) in list(running.items()):
            if sid != poison and now - begun >= 20 * SECOND:
                probations[name].ended(start_of(live))
                ended.add(sid)
                del running[sid]
    assert abandoned == [(poison, 3)]
    assert ended == set(range(64)) - {poison}
