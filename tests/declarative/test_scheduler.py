"""The life of a Scheduler: states, guards, events in order, stop, reentrancy, names, drift, zones, threads."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from noonbell.declarative import Scheduler, host_zone
from noonbell.declarative.events import TaskEvent
from noonbell.errors import (
    InitializationError,
    ScheduleDriftError,
    ScheduleDuplicateTaskError,
    SchedulerAlreadyActiveError,
    SchedulerInUseError,
    StoreUrlError,
)
from noonbell.ledger.ledger_rows import declared_tasks, lifecycle_of, schedule_rows
from tests.declarative.conftest import Stage
from tests.patience import PATIENCE_SECONDS

MINUTE = timedelta(minutes=1)


async def nothing() -> None:
    pass


def task(name: str = "t", cron: str = "* * * * *", callback: Any = nothing, delay: timedelta = 5 * MINUTE) -> Any:
    return (name, cron, callback, delay)


# --- surface ----------------------------------------------------------------------------------------------------------


def test_there_are_two_methods_and_a_state() -> None:
    public = {name for name in dir(Scheduler) if not name.startswith("_")}
    assert public == {"initialize", "stop", "state"}


def test_the_state_is_read_only(stage: Stage) -> None:
    with pytest.raises(AttributeError):
        stage.scheduler().state = "running"  # type: ignore[misc]  # that it cannot be set is the point


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"on_drift": "maybe"}, "on_drift is 'maybe'"),
        ({"poll_interval": timedelta(0)}, "poll_interval"),
        ({"name": "  "}, "name is '  '"),
        ({"time_zone": "Mars/Olympus"}, "time_zone 'Mars/Olympus'"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Scheduler("memory://", **options)


def test_a_bad_address_is_refused() -> None:
    with pytest.raises(StoreUrlError, match="sqlite:///"):
        Scheduler("app.db")


# --- life -------------------------------------------------------------------------------------------------------------


async def test_a_whole_life_in_events(stage: Stage) -> None:
    scheduler = stage.scheduler()
    assert scheduler.state == "uninitialized"
    await scheduler.initialize([task(cron="6 10 * * *")])
    assert scheduler.state == "running"
    await stage.clock.advance(MINUTE)
    await scheduler.stop()
    assert scheduler.state == "stopped"
    assert stage.told == [
        "SchedulerInitializationStarted",
        "PollingStarted",
        "SchedulerInitializationCompleted",
        "TaskRunStarted",
        "TaskRunCompleted",
        "SchedulerStopRequested",
        "PollingStopRequested",
        "PollingStopped",
        "SchedulerStopped",
    ]
    started = stage.events[3].fields()
    assert started["task"] == "t"
    assert started["attempt"] == 1
    assert started["cause"] == "cron"
    assert started["scheduled_for"] == "2026-03-04T10:06:00+00:00"
    assert started["run_id"] == stage.events[4].fields()["run_id"]


async def test_without_tasks_nothing_polls(stage: Stage) -> None:
    async with stage.scheduler() as scheduler:
        await scheduler.initialize([])
        assert scheduler.state == "running"
    assert not [name for name in stage.told if name.startswith("Polling")]


async def test_failed_validation_goes_back_and_may_be_tried_again(stage: Stage) -> None:
    scheduler = stage.scheduler()
    with pytest.raises(ScheduleDuplicateTaskError):
        await scheduler.initialize([task(), task()])
    assert scheduler.state == "uninitialized"
    assert stage.told == ["SchedulerInitializationStarted", "SchedulerInitializationFailed"]
    await scheduler.initialize([task()])
    assert scheduler.state == "running"


async def test_a_second_initialize_is_refused_and_tells_nothing(stage: Stage) -> None:
    scheduler = stage.scheduler()
    await scheduler.initialize([task()])
    before = list(stage.told)
    with pytest.raises(SchedulerAlreadyActiveError) as caught:
        await scheduler.initialize([task()])
    assert caught.value.current_state == "running"
    assert stage.told == before


async def test_of_two_concurrent_initializes_the_first_proceeds(stage: Stage) -> None:
    scheduler = stage.scheduler()
    first, second = await asyncio.gather(
        scheduler.initialize([task()]), scheduler.initialize([task()]), return_exceptions=True
    )
    assert first is None
    assert isinstance(second, SchedulerAlreadyActiveError)


async def test_stop_waits_for_what_runs_and_starts_nothing_more(stage: Stage) -> None:
    finish = asyncio.Event()
    starts: list[int] = []

    async def slow() -> None:
        starts.append(stage.clock.now())
        await finish.wait()

    scheduler = stage.scheduler()
    await scheduler.initialize([task(callback=slow)])
    await stage.clock.advance(timedelta(seconds=1))
    stopping = asyncio.gather(scheduler.stop(), scheduler.stop(), scheduler.stop())
    await stage.clock.advance(10 * MINUTE)
    assert scheduler.state == "stopping"
    assert not stopping.done()
    with pytest.raises(SchedulerAlreadyActiveError, match="already stopping"):
        await scheduler.initialize([task()])
    finish.set()
    await stopping
    assert len(starts) == 1
    assert stage.told.count("SchedulerStopped") == 1


async def test_a_stop_that_is_given_up_goes_on(stage: Stage) -> None:
    finish = asyncio.Event()
    scheduler = stage.scheduler()
    await scheduler.initialize([task(callback=finish.wait)])
    await stage.clock.advance(timedelta(seconds=1))
    impatient = asyncio.create_task(scheduler.stop())
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    finish.set()
    await scheduler.stop()
    assert scheduler.state == "stopped"


async def test_stop_before_initialize_is_nothing(stage: Stage) -> None:
    scheduler = stage.scheduler()
    await scheduler.stop()
    assert scheduler.state == "uninitialized"
    assert stage.told == []


async def test_an_unexpected_error_is_wrapped_with_its_cause(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stage.new_store()

    async def broken(_managed_by: str) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(store.schedules, "read_declared", broken)
    with pytest.raises(InitializationError, match="no such thing") as caught:
        await stage.scheduler(store).initialize([task()])
    assert isinstance(caught.value.details["cause"], RuntimeError)
    assert caught.value.__cause__ is caught.value.details["cause"]


async def test_a_listener_that_raises_harms_nothing(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    ran = []

    def listener(_event: object) -> None:
        raise RuntimeError("bad listener")

    async def work() -> None:
        ran.append(1)

    scheduler = stage.scheduler(on_event=listener)
    await scheduler.initialize([task(callback=work)])
    await stage.clock.advance(MINUTE)
    await scheduler.stop()
    assert ran
    assert "bad listener" in caplog.text


# --- names ------------------------------------------------------------------------------------------------------------


async def test_a_second_live_scheduler_of_a_name_is_refused_and_told_who_has_it(stage: Stage) -> None:
    store = stage.new_store()
    first = stage.scheduler(store)
    await first.initialize([task()])
    second = stage.scheduler(stage.new_store())
    with pytest.raises(SchedulerInUseError, match=r"process \d+ on .* \(instance ") as caught:
        await second.initialize([task()])
    assert caught.value.scheduler_name == "scheduler:default"
    await first.stop()
    await second.initialize([task()])


async def test_other_names_share_the_store_and_see_only_their_own(stage: Stage) -> None:
    ran: list[str] = []

    def work(name: str) -> Callable[[], Any]:
        async def run() -> None:
            ran.append(name)

        return run

    one, two = stage.scheduler(name="one"), stage.scheduler(name="two")
    await one.initialize([task("t", "* * * * *", work("one"))])
    await two.initialize([task("t", "6 10 * * *", work("two"))])
    await stage.clock.advance(timedelta(seconds=50))
    assert sorted(ran) == ["one", "one", "two"]
    await one.stop()
    again = stage.scheduler(name="one")
    await again.initialize([])
    await again.stop()
    assert [row["name"] for row in await declared_tasks(two._store)] == ["t"]


# --- drift ------------------------------------------------------------------------------------------------------------


async def test_drift_is_refused_on_request_with_the_whole_difference(stage: Stage) -> None:
    first = stage.scheduler(on_drift="refuse")
    await first.initialize([task("kept"), task("changed"), task("left")])
    await first.stop()
    second = stage.scheduler(on_drift="refuse")
    with pytest.raises(ScheduleDriftError) as caught:
        await second.initialize([task("kept"), task("changed", "0 * * * *"), task("came")])
    delay = task("came")[3]
    stored = task("changed")[1]
    assert caught.value.difference == {
        "new": {"came": {"cron": stored, "retry_delay": delay}},
        "changed": {"changed": {"cron": (stored, "0 * * * *")}},
        "removed": {"left": {"cron": stored, "retry_delay": delay}},
    }
    assert str(caught.value) == (
        f"Declared and stored tasks differ; new: came (cron {stored!r}, retry delay {delay}); "
        f"changed: changed (cron {stored!r} -> '0 * * * *'); removed: left (cron {stored!r}, retry delay {delay}). "
        'Nothing was changed; on_drift="override" stores what is declared'
    )
    with pytest.raises(ScheduleDriftError, match=r"changed: left \(retry delay .* -> 0:00:07\)"):
        await second.initialize([task("kept"), task("changed"), task("left", delay=timedelta(seconds=7))])
    await second.initialize([task("kept"), task("changed"), task("left")])


async def test_drift_from_a_stored_empty_set_is_refused(stage: Stage) -> None:
    first = stage.scheduler(on_drift="refuse")
    await first.initialize([])
    await first.stop()
    second = stage.scheduler(on_drift="refuse")
    with pytest.raises(ScheduleDriftError, match=r"new: came \(cron "):
        await second.initialize([task("came")])
    await second.initialize([])


# --- running ----------------------------------------------------------------------------------------------------------


async def test_plain_functions_run_in_threads_of_our_own(stage: Stage) -> None:
    done = threading.Event()
    where: list[str] = []

    def work() -> None:
        where.append(threading.current_thread().name)
        assert threading.current_thread().daemon
        done.set()

    scheduler = stage.scheduler()
    await scheduler.initialize([task(callback=work)])
    await stage.clock.advance(MINUTE)
    assert await asyncio.to_thread(done.wait, PATIENCE_SECONDS)
    await scheduler.stop()
    assert where[0].startswith("noonbell-task-")
    assert "TaskRunCompleted" in stage.told


async def test_a_plain_callable_that_gives_a_coroutine_is_awaited(stage: Stage) -> None:
    done = threading.Event()

    async def work() -> None:
        done.set()

    def wrapper() -> object:
        return work()

    scheduler = stage.scheduler()
    await scheduler.initialize([task(callback=wrapper)])
    await stage.clock.advance(timedelta(seconds=1))
    await scheduler.stop()
    assert done.is_set()
    assert stage.told.count("TaskRunCompleted") == 1


async def test_a_failing_thread_is_a_failed_run(stage: Stage) -> None:
    def work() -> None:
        raise ValueError("boom")

    scheduler = stage.scheduler()
    await scheduler.initialize([task(callback=work)])
    await stage.clock.advance(timedelta(seconds=1))
    await scheduler.stop()
    failed = next(event for event in stage.events if event.name == "TaskRunFailed")
    assert failed.fields()["error"] == "ValueError: boom"


async def test_an_error_whose_text_cannot_be_made_is_recorded_all_the_same(stage: Stage) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    async def work() -> None:
        raise MuteError

    scheduler = stage.scheduler()
    await scheduler.initialize([task(callback=work)])
    await stage.clock.advance(timedelta(seconds=1))
    await asyncio.wait_for(scheduler.stop(), PATIENCE_SECONDS)
    assert "TaskRunFailed" in stage.told


async def test_preempted_retry_in_events(stage: Stage) -> None:
    async def work() -> None:
        raise ValueError("boom")

    scheduler = stage.scheduler()
    await scheduler.initialize([task(cron="6,7 10 * * *", callback=work, delay=90 * MINUTE)])
    await stage.clock.advance(3 * MINUTE)
    await scheduler.stop()
    runs = [name for name in stage.told if name.startswith("Task")]
    assert runs == ["TaskRunStarted", "TaskRunFailed", "TaskRetryPreempted", "TaskRunStarted", "TaskRunFailed"]


async def test_a_retry_and_an_occurrence_due_together_are_one_attempt_with_one_cause(stage: Stage) -> None:
    outcomes = [ValueError("boom"), None]

    async def work() -> None:
        if (error := outcomes.pop(0)) is not None:
            raise error

    scheduler = stage.scheduler()
    await scheduler.initialize([task(cron="6,7 10 * * *", callback=work, delay=MINUTE)])
    await stage.clock.advance(3 * MINUTE)
    await scheduler.stop()
    told = [(event.name, event.cause) for event in stage.events if isinstance(event, TaskEvent)]
    assert told[2:] == [("TaskRetryPreempted", "cron"), ("TaskRunStarted", "cron"), ("TaskRunCompleted", "cron")]


async def test_a_leap_of_the_clock_is_confirmed_before_it_is_believed(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    starts: list[datetime] = []

    async def work() -> None:
        starts.append(stage.clock.at)

    scheduler = stage.scheduler()
    await scheduler.initialize([task(cron="0 * * * *", callback=work)])
    await stage.clock.advance(timedelta(seconds=1))
    stage.clock.step(timedelta(hours=3))
    await stage.clock.advance(2 * MINUTE)
    assert "leapt ahead" in caplog.text
    assert "confirmed" in caplog.text
    assert len(starts) == 1


async def test_a_clock_that_is_set_back_repeats_nothing(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    starts: list[datetime] = []

    async def work() -> None:
        starts.append(stage.clock.at)

    scheduler = stage.scheduler()
    await scheduler.initialize([task(callback=work)])
    await stage.clock.advance(3 * MINUTE)
    seen = len(starts)
    stage.clock.step(timedelta(minutes=-3))
    await stage.clock.advance(2 * MINUTE)
    assert len(starts) == seen
    assert "set back" in caplog.text
    await stage.clock.advance(3 * MINUTE)
    assert len(starts) > seen


async def test_lateness_is_measured_and_told(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    scheduler = stage.scheduler()
    await scheduler.initialize([task("late", "10 10 * * *")])
    await stage.clock.advance(timedelta(seconds=1))
    await stage.clock.jump(timedelta(minutes=30))
    await scheduler.stop()
    assert "The start of late is late by" in caplog.text
    kept = [event for event in await _lifecycle(stage) if event.event == "stop-end"]
    assert '"start_lateness"' in kept[-1].detail


async def _lifecycle(stage: Stage) -> Any:
    store = stage.new_store()
    await store.open()
    return await lifecycle_of(store, "scheduler:default")


# --- zones ------------------------------------------------------------------------------------------------------------


async def test_the_hosts_zone_is_followed_when_it_changes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    zone = ["UTC"]
    monkeypatch.setattr(host_zone.HostZone, "read", staticmethod(lambda: (ZoneInfo(zone[0]), zone[0])))
    monkeypatch.setattr(host_zone.HostZone, "_fingerprint", staticmethod(lambda: tuple(zone)))
    starts: list[datetime] = []

    async def work() -> None:
        starts.append(stage.clock.at)

    scheduler = stage.scheduler(time_zone=None)
    await scheduler.initialize([task(cron="0 14 * * *", callback=work)])
    await stage.clock.advance(MINUTE)
    zone[0] = "Europe/Kyiv"
    await stage.clock.advance(timedelta(hours=3))
    # 14:00 in Kyiv, UTC+2 in March
    assert starts == [datetime(2026, 3, 4, 12, 0, tzinfo=UTC)]
    row = (await schedule_rows(scheduler._store))[0]
    assert row["timezone"] == "Europe/Kyiv"
    assert [epoch.timezone for epoch in await scheduler._store.history.epochs(row["sid"])] == ["UTC", "Europe/Kyiv"]


# --- a file, really ---------------------------------------------------------------------------------------------------


async def test_an_address_is_opened_used_and_let_go(tmp_path: Path) -> None:
    ran = asyncio.Event()

    async def work() -> None:
        ran.set()

    path = tmp_path / "app.db"
    async with Scheduler(f"sqlite:///{path}") as scheduler:
        await scheduler.initialize([task(callback=work)])
        await asyncio.wait_for(ran.wait(), PATIENCE_SECONDS)
    assert scheduler.state == "stopped"
    async with Scheduler(f"sqlite:///{path}") as again:
        await again.initialize([task(callback=work)])
        assert [row["name"] for row in await schedule_rows(again._store)] == ["t"]


async def test_a_damaged_file_is_told_and_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "app.db"
    path.write_bytes(b"this is no database, whatever its name says" * 100)
    before = path.read_bytes()
    scheduler = Scheduler(f"sqlite:///{path}")
    with pytest.raises(Exception, match="not an SQLite file"):
        await scheduler.initialize([task()])
    assert scheduler.state == "uninitialized"
    assert path.read_bytes() == before
