"""Runs that were executing when an engine died: who of them may begin, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Final, cast

import pytest

from noonbell.core.records import MOST_CRASHES, LiveRun, Start, StoredSchedule
from noonbell.engine.suspects import LONG_PROBATION, PROBATION, Lineup, Suspects

SECOND: Final = 1_000_000


def orphan(sid: int, crashes: int = 1) -> LiveRun:
    return LiveRun(sid, "scheduled", 60 * SECOND, 2, None, "queued", 1, 0, 1, 1, crashes, 1, "orphan")


def start_of(live: LiveRun) -> Start:
    return Start(live.sid, live.kind, live.run_for, 3, 2, "orphan", 1, 0, 0, None)


def chosen(suspects: Suspects, waiting: list[LiveRun], now: int) -> list[int]:
    """One claim over those that wait: who begins; the others are given their places."""
    lineup = Lineup(suspects, now)
    for live in list(waiting):
        for held in lineup.held_back(cast("StoredSchedule", SimpleNamespace(lives=[live]))):
            live.wake_at = held.wake_at
    for live in lineup.chosen:
        suspects.begin(live, now)
        waiting.remove(live)
    return [live.sid for live in lineup.chosen]


def test_each_batch_is_twice_the_one_before() -> None:
    suspects, waiting, now, sizes = Suspects(), [orphan(sid) for sid in range(100)], 0, []
    while waiting:
        begun = chosen(suspects, waiting, now)
        if begun:
            sizes.append(len(begun))
        for sid in begun:
            suspects.ended(start_of(orphan(sid)))
        now += 2 * SECOND
    assert sizes == [1, 2, 4, 8, 16, 32, 37]


def test_a_batch_waits_for_the_end_or_the_probation_of_the_one_before() -> None:
    suspects, waiting = Suspects(), [orphan(sid) for sid in range(3)]
    assert chosen(suspects, waiting, 0) == [0]
    assert chosen(suspects, waiting, PROBATION - 1) == []
    late = PROBATION + 2 * SECOND
    assert chosen(suspects, waiting, late) == [1, 2]


def test_who_has_died_twice_begins_alone_and_his_like_wait_for_his_end() -> None:
    suspects, waiting = Suspects(), [orphan(1, crashes=2), orphan(2, crashes=2)]
    assert chosen(suspects, waiting, 0) == [1]
    assert chosen(suspects, waiting, 100 * LONG_PROBATION) == []
    suspects.ended(start_of(orphan(1)))
    assert chosen(suspects, waiting, 101 * LONG_PROBATION) == [2]


def test_a_run_that_takes_a_day_holds_up_those_that_died_once_for_a_minute() -> None:
    suspects, waiting = Suspects(), [orphan(1, crashes=2), orphan(2), orphan(3), orphan(4, crashes=2)]
    assert chosen(suspects, waiting, 0) == [1]
    assert chosen(suspects, waiting, LONG_PROBATION - 2 * SECOND) == []
    assert chosen(suspects, waiting, LONG_PROBATION + SECOND) == [2, 3]


def test_while_none_may_begin_few_are_looked_at_again() -> None:
    suspects, first, looked, now = Suspects(), [orphan(0, crashes=2)], 0, 0
    assert chosen(suspects, first, now) == [0]
    waiting = [orphan(sid, crashes=2) for sid in range(1, 5_001)]
    for _ in range(300):  # thirty seconds of looks
        now += SECOND // 10
        looked += sum(live.wake_at is not None and live.wake_at <= now for live in waiting)
        assert chosen(suspects, waiting, now) == []
    assert 5_000 < looked < 5_000 + 30 * 600  # once each second they would be 150,000


def test_an_engine_without_a_place_gives_others_a_moment_first() -> None:
    suspects, waiting = Suspects(), [orphan(0), orphan(1)]
    assert chosen(suspects, waiting, 0) == [0]
    (left,) = waiting
    up = cast("int", left.wake_at)
    stored = cast("StoredSchedule", SimpleNamespace(lives=[left]))
    assert Lineup(suspects, up + SECOND // 10).leaves(stored), "another may have a place for it"
    assert not Lineup(suspects, up + SECOND // 2).leaves(stored), "nobody had: it is put off"
    suspects.ended(start_of(orphan(0)))
    assert not Lineup(suspects, up + SECOND // 10).leaves(stored), "there is a place here"


def test_the_next_death_finds_no_large_batches_left_over() -> None:
    suspects, waiting, now = Suspects(), [orphan(sid) for sid in range(31)], 0
    while waiting:
        for sid in chosen(suspects, waiting, now):
            suspects.ended(start_of(orphan(sid)))
        now += 2 * SECOND
    later = [orphan(sid) for sid in range(100, 103)]
    assert chosen(suspects, later, now + 60 * SECOND) == [100]


def test_who_has_died_twice_does_not_join_a_batch() -> None:
    suspects, waiting = Suspects(), [orphan(0), orphan(1), orphan(2, crashes=2), orphan(3)]
    assert chosen(suspects, waiting, 0) == [0]
    suspects.ended(start_of(orphan(0)))
    assert chosen(suspects, waiting, 2 * SECOND) == [1, 3]


def test_a_rescue_ends_the_growth() -> None:
    suspects, waiting = Suspects(), [orphan(sid) for sid in range(4)]
    assert chosen(suspects, waiting, 0) == [0]
    suspects.ended(start_of(orphan(0)))
    suspects.begin_again()
    assert chosen(suspects, waiting, 2 * SECOND) == [1]


@pytest.mark.parametrize("kills_after", [0, 3 * SECOND, 4 * PROBATION, 2 * LONG_PROBATION])
@pytest.mark.parametrize("poison", [0, 17, 63])
def test_only_the_poisonous_one_is_given_up(poison: int, kills_after: int) -> None:
    """Every engine that has it in hand dies; the others take 20 s each, longer than the probation."""
    waiting = [orphan(sid) for sid in range(64)]
    ended: set[int] = set()
    abandoned: set[int] = set()
    suspects, now = Suspects(), 0
    running: dict[int, tuple[LiveRun, int]] = {}
    for _ in range(20_000):
        if not waiting and not running:
            break
        known = {live.sid: live for live in waiting}
        running.update({sid: (known[sid], now) for sid in chosen(suspects, waiting, now)})
        now += SECOND
        if poison in running and now - running[poison][1] > kills_after:
            for live, _ in running.values():
                live.crashes, live.wake_at = live.crashes + 1, 0
                if live.crashes >= MOST_CRASHES:
                    abandoned.add(live.sid)
                else:
                    waiting.append(live)
            suspects, running = Suspects(), {}
        for sid, (live, begun) in list(running.items()):
            if sid != poison and now - begun >= 20 * SECOND:
                suspects.ended(start_of(live))
                ended.add(sid)
                del running[sid]
    assert abandoned == {poison}
    assert ended == set(range(64)) - {poison}
