"""What outlives the process on a store that does."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from noonbell.core.records import Declaration
from noonbell.errors import StoreUnavailableError
from noonbell.ledger import verify_store
from noonbell.ledger.ledger_rows import declared_tasks, lifecycle_of, schedule_rows

from .conftest import FIVE, HOUR, MINUTE, Bench


async def test_a_task_that_is_scheduled_again_keeps_its_history_and_catches_up_once(bench: Bench) -> None:
    first = bench.make()
    await first.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    await bench.clock.advance(HOUR)
    await first.close()
    await bench.clock.advance(5 * HOUR)
    second = bench.make()
    await second.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    (task,) = await second.get_tasks()
    assert f"{task.last_success_at:%H:%M}" == "10:00"
    await bench.clock.advance(MINUTE)
    assert bench.times("a") == ["10:00:00", "15:50:30"], "one run for all that was missed"
    (row,) = await schedule_rows(bench.store)
    assert row["removed_at"] is None
    assert (await verify_store(bench.store)).problems == []


async def test_a_task_may_come_back_with_another_expression(bench: Bench) -> None:
    first = bench.make()
    await first.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    await bench.clock.advance(HOUR)
    await first.close()
    second = bench.make()
    await second.schedule("a", "30 * * * *", bench.task("a"), MINUTE)
    await bench.clock.advance(2 * HOUR)
    # 10:30 has matched since the last start, and is owed
    assert bench.times("a") == ["10:00:00", "10:50:30", "11:30:00", "12:30:00"]
    assert (await verify_store(bench.store)).problems == []


async def test_a_pending_retry_survives(bench: Bench) -> None:
    first = bench.make()
    await first.schedule("a", "0 2 * * *", bench.task("a"), FIVE)
    await first.cancel_all()
    await first.schedule("b", "50 9 * * *", bench.task("b", ValueError("no")), 30 * MINUTE)
    await bench.clock.advance(MINUTE)
    await first.close()
    second = bench.make()
    await second.schedule("b", "50 9 * * *", bench.task("b"), 30 * MINUTE)
    (task,) = await second.get_tasks()
    assert task.mode_hint == "retry"
    await bench.clock.advance(HOUR)
    assert bench.times("b") == ["09:50:30", "10:20:30"]


async def test_a_run_that_was_interrupted_starts_again_at_once_when_its_task_is_scheduled(bench: Bench) -> None:
    first = bench.make()
    await first.schedule("a", "0 * * * *", bench.task("a", 3600.0), FIVE)
    await first.schedule("b", "0 * * * *", bench.task("b"), FIVE)
    await bench.clock.advance(10 * MINUTE)
    bench.crash()
    await bench.clock.advance(MINUTE)
    second = bench.make()
    await second.schedule("b", "0 * * * *", bench.task("b"), FIVE)
    await bench.clock.advance(MINUTE)
    assert bench.times("a") == ["10:00:00"], "nobody has scheduled it yet"
    await second.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    await bench.clock.advance(MINUTE)
    assert bench.times("a") == ["10:00:00", "10:02:30"]
    starts = [event for event in bench.events if event.name == "TaskRunStarted" and event.fields()["task"] == "a"]
    assert [event.fields()["cause"] for event in starts] == ["cron", "orphan"]
    assert starts[0].fields()["run_id"] == starts[1].fields()["run_id"]
    assert [event.event for event in await lifecycle_of(bench.store, "periodic:default")] == [
        "init-ok",
        "crash",
        "init-ok",
    ]
    assert (await verify_store(bench.store)).problems == []


async def test_a_task_that_is_not_scheduled_again_does_not_run_and_disturbs_nobody(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    first = bench.make()
    await first.schedule("stays", "0 * * * *", bench.task("stays"), FIVE)
    await first.schedule("left", "0 * * * *", bench.task("left"), FIVE)
    await first.schedule("left in retry", "50 * * * *", bench.task("left in retry", ValueError("no")), FIVE)
    await bench.clock.advance(MINUTE)
    await first.close()
    before = list(bench.calls)
    await bench.clock.advance(3 * HOUR)
    second = bench.make()
    await second.schedule("stays", "0 * * * *", bench.task("stays"), FIVE)
    assert "2 stored tasks do not run until they are scheduled again: left, left in retry" in caplog.text
    await bench.clock.advance(10 * HOUR)
    assert [name for name, _ in bench.calls[len(before) :]] == ["stays"] * 11
    assert [task.name for task in await second.get_tasks()] == ["stays"]
    troubled = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert troubled == []
    assert (await verify_store(bench.store)).problems == []
    looks = second._engine.metrics.polls if second._engine is not None else 0
    assert looks < 150, "what cannot run must not keep the loop awake"


async def test_what_was_left_goes_on_from_where_it_was_however_late_it_is_scheduled(bench: Bench) -> None:
    first = bench.make()
    await first.schedule("other", "0 2 * * *", bench.task("other"), FIVE)
    await first.schedule("left", "0 * * * *", bench.task("left"), FIVE)
    await bench.clock.advance(HOUR)
    await first.close()
    second = bench.make()
    await second.schedule("other", "0 2 * * *", bench.task("other"), FIVE)
    await bench.clock.advance(3 * HOUR)
    await second.schedule("left", "0 * * * *", bench.task("left"), FIVE)
    await bench.clock.advance(HOUR)
    assert bench.times("left") == ["10:00:00", "13:50:30", "14:00:00"]
    assert (await verify_store(bench.store)).problems == []


async def test_what_was_left_can_be_cancelled(bench: Bench) -> None:
    first = bench.make()
    for name in "abc":
        await first.schedule(name, "0 * * * *", bench.task(name), FIVE)
    await first.close()
    second = bench.make()
    assert await second.cancel("a") is True, "also while nothing is scheduled"
    assert await second.cancel("a") is False
    assert bench.told().count("PollingStarted") == 1
    await second.schedule("b", "0 * * * *", bench.task("b"), FIVE)
    assert await second.cancel_all() == 2
    assert await declared_tasks(bench.store) == []
    assert (await verify_store(bench.store)).problems == []


async def test_other_names_have_their_own_tasks(bench: Bench) -> None:
    one, two = bench.make(name="one"), bench.make(name="two")
    await one.schedule("a", "0 * * * *", bench.task("one"), FIVE)
    await two.schedule("a", "0 * * * *", bench.task("two"), FIVE)
    assert await one.cancel_all() == 1
    await bench.clock.advance(HOUR)
    assert bench.calls == [("two", "10:00:00")]
    assert {row["managed_by"] for row in await schedule_rows(bench.store)} == {"periodic:one", "periodic:two"}


async def test_a_store_that_fails_leaves_everything_as_it_was(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    cron = bench.make()
    await bench.store.open()

    async def fail(declaration: Declaration) -> list[int]:
        raise StoreUnavailableError("The disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(bench.store.schedules, "declare", fail)
        with pytest.raises(StoreUnavailableError):
            await cron.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    assert await cron.get_tasks() == []
    await cron.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    with monkeypatch.context() as patch:
        patch.setattr(bench.store.schedules, "declare", fail)
        with pytest.raises(StoreUnavailableError):
            await cron.cancel("a")
        with pytest.raises(StoreUnavailableError):
            await cron.schedule("b", "0 * * * *", bench.task("b"), FIVE)
    assert cron.task_names == ["a"]
    await bench.clock.advance(HOUR)
    assert bench.times("a") == ["10:00:00"]


async def test_a_change_that_was_written_though_it_failed_is_found_the_next_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    cron = bench.make()
    await cron.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    declare = bench.store.schedules.declare

    async def write_and_fail(declaration: Declaration) -> list[int]:
        await declare(declaration)
        raise StoreUnavailableError("The line went dead")

    with monkeypatch.context() as patch:
        patch.setattr(bench.store.schedules, "declare", write_and_fail)
        with pytest.raises(StoreUnavailableError):
            await cron.schedule("b", "0 * * * *", bench.task("b"), FIVE)
    await bench.clock.advance(HOUR)
    assert bench.times("b") == []
    await cron.schedule("b", "0 * * * *", bench.task("b"), FIVE)
    await bench.clock.advance(MINUTE)
    assert bench.times("b") == ["10:50:30"], "it is owed its run of 10:00"
    assert (await verify_store(bench.store)).problems == []


async def test_a_cancelled_task_is_removed_when_the_store_is_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    cron = bench.make()
    await cron.schedule("long", "50 * * * *", bench.task("long", 60.0), FIVE)
    await cron.schedule("other", "0 2 * * *", bench.task("other"), FIVE)
    await bench.clock.settle()
    await cron.cancel("long")

    async def fail(declaration: Declaration) -> list[int]:
        raise StoreUnavailableError("The disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(bench.store.schedules, "declare", fail)
        await bench.clock.advance(2 * MINUTE)
        assert [row["name"] for row in await declared_tasks(bench.store)] == ["long", "other"]
    await bench.clock.advance(timedelta(seconds=10))
    assert [row["name"] for row in await declared_tasks(bench.store)] == ["other"]
    assert bench.times("long") == ["09:50:30"]


async def test_tasks_follow_the_host_into_another_zone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    cron: Any = bench.make(time_zone=None)
    await cron.schedule("a", "0 12 * * *", bench.task("a"), FIVE)
    await cron.schedule("long", "50 9 * * *", bench.task("long", 1800.0), FIVE)
    await bench.clock.advance(MINUTE)
    monkeypatch.setenv("TZ", "Europe/Kyiv")
    await bench.clock.advance(HOUR)
    # noon in Kyiv is 10:00 UTC; the change is noticed at the look of 10:00:30
    assert bench.times("a") == ["10:00:30"]
    await bench.clock.advance(22 * HOUR)
    assert bench.times("long") == ["09:50:30", "07:50:00"]
    assert (await verify_store(bench.store)).problems == []
