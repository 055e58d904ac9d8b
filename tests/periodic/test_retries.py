"""Failing tasks, and how a task stands at each moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from noonbell import Scheduler
from noonbell.core.instants import moment
from noonbell.declarative.events import TaskRetryCleared
from noonbell.errors import TaskNotFoundError
from noonbell.ledger import verify_store, why
from noonbell.ledger.ledger_rows import schedule_rows
from noonbell.periodic import PeriodicScheduler, TaskSnapshot
from noonbell.ports import RunFilter

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


async def test_occurrences_during_a_chain_of_retries_are_coalesced_into_it(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("a", "0 * * * *", bench.task("a", ValueError("1"), ValueError("2")), 90 * MINUTE)
    await bench.clock.advance(timedelta(hours=1, minutes=30))  # 11:20:30
    (row,) = await schedule_rows(bench.store)
    (span,) = await bench.store.history.spans(row["sid"], 0, 1 << 60)
    assert (span.n, span.verdict, span.reason) == (1, "coalesced", "folded into the retry run")
    assert row["next_run_at"] == row["cursor_at"] + 3_600_000_000, "it is decided at once, not when the retry comes"
    assert (await verify_store(bench.store)).problems == []
    await bench.clock.advance(4 * HOUR)
    assert bench.times("a") == ["10:00:00", "11:30:00", "13:00:00", "14:00:00", "15:00:00"]
    assert bench.told_of("a")[1:6] == [
        "TaskRunFailed", "TaskRetryStarted", "TaskRunFailed", "TaskRetryStarted", "TaskRunCompleted",
    ]  # fmt: skip
    spans = await bench.store.history.spans(row["sid"], 0, 1 << 60)
    assert [(moment(span.from_at), moment(span.to_at), span.n) for span in spans] == [
        (at(11, 0), at(11, 0), 1), (at(12, 0), at(12, 0), 1), (at(13, 0), at(13, 0), 1),
    ]  # fmt: skip
    assert (await verify_store(bench.store)).problems == []
    (found,) = await schedule_rows(bench.store)
    answer = await why(bench.store, "a", at(12, 0), now=bench.clock.now())
    assert "folded into the run for 10:00" in answer.text
    assert "that run had failed and was to be tried again" in answer.text
    assert found["last_success_at"] is not None


async def test_a_retry_and_an_occurrence_due_at_one_look_are_one_attempt(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("a", "0 * * * *", bench.task("a", ValueError("1")), HOUR)
    await bench.clock.advance(2 * HOUR)
    assert bench.times("a") == ["10:00:00", "11:00:00"]
    assert bench.told_of("a")[1:] == ["TaskRunFailed", "TaskRetryStarted", "TaskRunCompleted"]
    (row,) = await schedule_rows(bench.store)
    (run,) = await bench.store.history.runs(RunFilter(row["sid"], 0, 1 << 60))
    assert (run.outcome, run.attempts) == ("succeeded", 2)
    assert (await verify_store(bench.store)).problems == []


async def test_a_success_by_hand_clears_a_pending_retry(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("a", "0 * * * *", bench.task("a", ValueError("1"), ValueError("2")), 30 * MINUTE)
    await bench.clock.advance(15 * MINUTE)  # failed at 10:00, its retry is due at 10:30
    with pytest.raises(ValueError, match="2"):
        await cron.run_now("a")
    assert (await only(cron)).pending_retry_until == at(10, 30), "a failure by hand changes nothing"
    assert await cron.run_now("a") is True
    task = await only(cron)
    assert (task.pending_retry_until, task.mode_hint, task.last_success_at) == (None, "idle", at(10, 5, 30))
    await bench.clock.advance(2 * HOUR)
    assert bench.times("a") == ["10:00:00", "10:05:30", "10:05:30", "11:00:00", "12:00:00"]
    cleared = next(event for event in bench.events if isinstance(event, TaskRetryCleared))
    assert (cleared.scheduled_for, cleared.attempt, cleared.cause) == (at(10, 0), 1, "manual")
    assert bench.told().count("TaskRetryCleared") == 1
    (row,) = await schedule_rows(bench.store)
    ended = await bench.store.history.runs(RunFilter(row["sid"], 0, 1 << 60))
    assert [(run.kind, run.outcome) for run in ended[:3]] == [
        ("scheduled", "failed"), ("manual", "failed"), ("manual", "succeeded"),
    ]  # fmt: skip
    assert (await verify_store(bench.store)).problems == []
    answer = await why(bench.store, "a", at(10, 0), now=bench.clock.now())
    assert "It was not tried again because a run by hand had succeeded by then." in answer.text


async def test_tasks_of_an_earlier_version_go_on_in_a_new_epoch(bench: Bench) -> None:
    """Whose retries gave way to new occurrences: the ledger has to say since when they do not."""
    old = Scheduler(bench.store, clock=bench.clock, time_zone="UTC", name="default")
    old._managed_by = "periodic:default"  # the bundle of that version, under the name of this face
    await old.initialize([("a", "0 * * * *", bench.task("a", ValueError("1")), 90 * MINUTE)])
    await bench.clock.advance(20 * MINUTE)
    await old.stop()
    await bench.make().schedule("a", "0 * * * *", bench.task("a"), 90 * MINUTE)
    await bench.clock.advance(2 * HOUR)
    assert bench.times("a") == ["10:00:00", "11:30:00", "12:00:00"]
    first, second = await bench.store.history.epochs(1)
    assert ('"preempt"' in first.policies, '"finish"' in second.policies) == (True, True)
    assert (await verify_store(bench.store)).problems == []


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
