"""Failing tasks, and how a task stands at each moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from noonbell.errors import TaskNotFoundError
from noonbell.ledger import verify_store
from noonbell.periodic import PeriodicScheduler, TaskSnapshot

from .conftest import FIVE, HOUR, MINUTE, Bench


def at(hour: int, minute: int, second: int = 0) -> datetime:
    return datetime(2024, 3, 1, hour, minute, second, tzinfo=UTC)


async def only(cron: PeriodicScheduler) -> TaskSnapshot:
    (task,) = await cron.get_tasks()
    return task


async def test_a_failure_is_retried_after_its_delay_until_it_succeeds(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("a", "0 * * * *", bench.task("a", ValueError("1"), ValueError("2")), FIVE)
    await bench.clock.advance(2 * HOUR)
    assert bench.times("a") == ["10:00:00", "10:05:00", "10:10:00", "11:00:00"]
    assert bench.told_of("a") == [
        "TaskRunStarted", "TaskRunFailed", "TaskRetryStarted", "TaskRunFailed", "TaskRetryStarted", "TaskRunCompleted",
        "TaskRunStarted", "TaskRunCompleted",
    ]  # fmt: skip
    assert (await verify_store(bench.store)).problems == []


async def test_a_retry_that_comes_before_the_next_occurrence_wakes_the_task(bench: Bench) -> None:
    """The retry is not held back to the next poll, nor to the next occurrence."""
    cron = bench.make(poll_interval=HOUR)
    await cron.schedule("a", "0 * * * *", bench.task("a", ValueError("1")), timedelta(seconds=90))
    await bench.clock.advance(15 * MINUTE)
    assert bench.times("a") == ["10:00:00", "10:01:30"]


async def test_an_occurrence_that_comes_before_the_retry_preempts_it(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("a", "0 * * * *", bench.task("a", ValueError("1")), 90 * MINUTE)
    await bench.clock.advance(3 * HOUR)
    assert bench.times("a") == ["10:00:00", "11:00:00", "12:00:00"]
    assert bench.told_of("a")[1:5] == ["TaskRunFailed", "TaskRetryPreempted", "TaskRunStarted", "TaskRunCompleted"]


async def test_a_retry_and_an_occurrence_due_at_one_look_are_one_run_for_the_occurrence(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("a", "0 * * * *", bench.task("a", ValueError("1")), HOUR)
    await bench.clock.advance(2 * HOUR)
    assert bench.times("a") == ["10:00:00", "11:00:00"]
    assert bench.told_of("a")[1:] == ["TaskRunFailed", "TaskRetryPreempted", "TaskRunStarted", "TaskRunCompleted"]
    (row,) = await bench.store.schedules()
    assert [run.outcome for run in await bench.store.runs(row["sid"], 0, 1 << 60)] == ["failed", "succeeded"]


async def test_runs_of_a_task_come_one_after_the_other(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("a", "0,15,30,45 * * * *", bench.task("a", 40 * 60.0), FIVE)
    await cron.schedule("b", "0 * * * *", bench.task("b"), FIVE)
    await bench.clock.advance(HOUR)
    # two occurrences passed during the long run: one run for both, right after it
    assert bench.times("a") == ["10:00:00", "10:40:00", "10:45:00"]
    assert bench.times("b") == ["10:00:00"], "tasks do not wait for each other"


async def test_snapshots_of_a_task_through_its_life(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("a", "0 * * * *", bench.task("a", ValueError("1"), 60.0, 120.0), FIVE)
    task = await only(cron)
    assert (task.name, task.cron, task.running, task.mode_hint) == ("a", "0 * * * *", False, "idle")
    assert (task.last_attempt_at, task.last_success_at, task.last_failure_at) == (None, None, None)

    await bench.clock.advance(10 * MINUTE)  # 10:00:30, failed at 10:00
    task = await only(cron)
    assert (task.running, task.mode_hint, task.pending_retry_until) == (False, "retry", at(10, 5))
    assert (task.last_attempt_at, task.last_success_at, task.last_failure_at) == (at(10, 0), None, at(10, 0))

    await bench.clock.advance(5 * MINUTE)  # 10:05:30, the retry takes a minute
    task = await only(cron)
    assert (task.running, task.mode_hint, task.pending_retry_until) == (True, "retry", None)
    assert (task.last_attempt_at, task.last_failure_at) == (at(10, 5), at(10, 0))

    await bench.clock.advance(MINUTE)  # 10:06:30
    task = await only(cron)
    assert (task.running, task.mode_hint, task.pending_retry_until) == (False, "idle", None)
    assert (task.last_success_at, task.last_failure_at) == (at(10, 6), at(10, 0))

    await bench.clock.advance(54 * MINUTE)  # 11:00:30, the run for 11:00 takes two minutes
    task = await only(cron)
    assert (task.running, task.mode_hint) == (True, "cron")


async def test_an_occurrence_that_is_due_and_not_begun_is_hinted_at(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    await bench.clock.settle()
    bench.clock.step(11 * MINUTE)  # the clock was set: the poller has not looked since
    assert (await only(cron)).mode_hint == "cron"


async def test_a_snapshot_is_frozen(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    task = await only(cron)
    with pytest.raises(AttributeError):
        task.running = True  # type: ignore[misc]  # that it cannot be set is the point
    await bench.clock.advance(HOUR)
    assert task.last_attempt_at is None
    assert msgspec.json.decode(msgspec.json.encode(task))["mode_hint"] == "idle"


async def test_times_are_told_in_the_scheduler_s_zone(bench: Bench) -> None:
    cron = bench.make(time_zone="Asia/Kolkata")
    await cron.schedule("a", "30 15 * * *", bench.task("a"), FIVE)
    await bench.clock.advance(HOUR)
    assert bench.times("a") == ["10:00:00"]
    assert str((await only(cron)).last_success_at) == "2024-03-01 15:30:00+05:30"


async def test_run_now_runs_beside_the_schedule(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    assert await cron.run_now("a") is True
    await bench.clock.advance(10 * MINUTE)
    assert bench.times("a") == ["09:50:30", "10:00:00"]
    assert (await verify_store(bench.store)).problems == []
    with pytest.raises(TaskNotFoundError, match='No task named "b"; known: a'):
        await cron.run_now("b")


async def test_run_now_raises_what_the_task_raises_and_nobody_retries(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("a", "0 2 * * *", bench.task("a", ValueError("no")), FIVE)
    with pytest.raises(ValueError, match="no"):
        await cron.run_now("a")
    task = await only(cron)
    assert (task.pending_retry_until, task.mode_hint) == (None, "idle")
    assert task.last_failure_at == at(9, 50, 30)
    await bench.clock.advance(HOUR)
    assert bench.times("a") == ["09:50:30"]
