"""A Scheduler handled roughly: cancelled half way, stopped from inside, beside failing parts."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from noonbell import errors, periodic
from noonbell.cron import parse
from noonbell.declarative import Scheduler, host_zone
from noonbell.declarative.events import SchedulerEvent
from noonbell.engine import Engine
from noonbell.errors import (
    HostTimeZoneError,
    NoonbellError,
    SchedulerInUseError,
    StopFromTaskError,
    StoreUnavailableError,
)
from noonbell.ledger.ledger_rows import schedule_rows
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore, hold
from noonbell.testing.faults import Faults, FaultyStore
from tests.declarative.conftest import Stage
from tests.patience import PATIENCE_SECONDS

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


async def nothing() -> None:
    pass


def task(cron: str = "* * * * *", callback: Any = nothing) -> Any:
    return ("t", cron, callback, MINUTE)


# --- initialize -------------------------------------------------------------------------------------------------------


async def test_an_initialize_that_is_given_up_ends_stopped_with_the_name_free(tmp_path: Path) -> None:
    for turns in range(12):  # given up at each point where it waits
        scheduler = Scheduler(f"sqlite:///{tmp_path}/app.db")
        begun = asyncio.create_task(scheduler.initialize([task()]))
        for _ in range(turns):
            await asyncio.sleep(0)
        begun.cancel()
        await asyncio.gather(begun, return_exceptions=True)
        await scheduler.stop()
        assert scheduler.state in ("stopped", "uninitialized")
        again = Scheduler(f"sqlite:///{tmp_path}/app.db")
        await again.initialize([task()])
        await again.stop()


async def test_a_clock_that_raises_leaves_no_scheduler_that_is_initializing_for_ever(stage: Stage) -> None:
    class Broken:
        def now(self) -> int:
            raise RuntimeError("no time")

        elapsed = wait = now

    scheduler = stage.scheduler(clock=Broken())
    with pytest.raises(RuntimeError, match="no time"):
        await scheduler.initialize([task()])
    assert scheduler.state == "uninitialized"
    await asyncio.wait_for(scheduler.stop(), PATIENCE_SECONDS)


async def test_a_row_that_was_switched_off_by_hand_runs_again(stage: Stage) -> None:
    first = stage.scheduler()
    await first.initialize([task("0 0 1 1 *")])
    await first.stop()
    store = stage.new_store()
    await store.open()
    if isinstance(store, MemoryStore):
        store.data.schedules[1]["enabled"] = 0
    else:
        assert isinstance(store, SqliteStore)
        await store._connection.run(lambda db: db.execute("UPDATE schedule_state SET enabled = 0"))
    await store.close()
    again = stage.scheduler()
    await again.initialize([task("0 0 1 1 *")])
    assert [row["enabled"] for row in await schedule_rows(again._store)] == [1]


# --- stop -------------------------------------------------------------------------------------------------------------


async def test_a_task_that_stops_its_own_scheduler_is_told(stage: Stage) -> None:
    raised: list[BaseException] = []

    async def work() -> None:
        try:
            await scheduler.stop()
        except StopFromTaskError as error:
            raised.append(error)

    scheduler = stage.scheduler()
    await scheduler.initialize([task(callback=work)])
    await stage.clock.advance(SECOND)
    assert len(raised) == 1
    await asyncio.wait_for(scheduler.stop(), PATIENCE_SECONDS)


async def called_by_a_task(
    start: Callable[[Callable[..., Any]], Awaitable[None]], stop: Callable[[], Any], kind: str
) -> BaseException:
    """Run a task of this kind that stops its own scheduler and waits for that; what it gets for it."""
    loop, raised = asyncio.get_running_loop(), asyncio.Queue[BaseException]()

    async def coroutine() -> None:
        try:
            await stop()
        except BaseException as error:
            raised.put_nowait(error)
            raise

    def function() -> None:
        try:
            asyncio.run_coroutine_threadsafe(stop(), loop).result()
        except BaseException as error:
            loop.call_soon_threadsafe(raised.put_nowait, error)
            raise

    def wrapped() -> Awaitable[None]:
        return coroutine()

    await start({"coroutine": coroutine, "plain": function, "wrapped": wrapped}[kind])
    return await asyncio.wait_for(raised.get(), PATIENCE_SECONDS)


kinds = pytest.mark.parametrize("kind", ["coroutine", "plain", "wrapped"])


@kinds
async def test_a_task_of_any_kind_that_stops_its_own_scheduler_is_told(stage: Stage, kind: str) -> None:
    scheduler = stage.scheduler()

    async def start(callback: Callable[..., Any]) -> None:
        await scheduler.initialize([task(callback=callback)])

    error = await called_by_a_task(start, scheduler.stop, kind)
    assert isinstance(error, StopFromTaskError)
    assert "asyncio.create_task(scheduler.stop())" in str(error)
    assert ("call_soon_threadsafe" in str(error)) is (kind == "plain")
    await asyncio.wait_for(scheduler.stop(), PATIENCE_SECONDS)


async def test_a_task_that_joins_a_stop_that_has_begun_is_told(stage: Stage) -> None:
    """The stop waits for the task: it must not wait for the stop."""
    raised: list[BaseException] = []
    begun, stopping = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await stopping.wait()
        try:
            await scheduler.stop()
        except StopFromTaskError as error:
            raised.append(error)

    def on_event(event: SchedulerEvent) -> None:
        if event.name == "PollingStopRequested":
            stopping.set()

    scheduler = stage.scheduler(on_event=on_event)
    await scheduler.initialize([task(callback=work)])
    await begun.wait()
    await asyncio.wait_for(scheduler.stop(), PATIENCE_SECONDS)
    assert len(raised) == 1


@kinds
async def test_a_task_of_any_kind_that_closes_its_periodic_scheduler_is_told(stage: Stage, kind: str) -> None:
    cron = periodic.make(periodic.Capabilities(clock=stage.clock, store=stage.new_store()), time_zone="UTC")

    async def start(callback: Callable[..., Any]) -> None:
        await cron.schedule("a", "5 * * * *", callback, timedelta(minutes=5))

    error = await called_by_a_task(start, cron.close, kind)
    assert isinstance(error, StopFromTaskError)
    assert "asyncio.create_task(scheduler.close())" in str(error)
    await asyncio.wait_for(cron.close(), PATIENCE_SECONDS)


async def test_everything_cancelled_then_stopped(stage: Stage) -> None:
    scheduler = stage.scheduler()
    await scheduler.initialize([task(callback=asyncio.Event().wait)])
    await stage.clock.advance(SECOND)
    for running in asyncio.all_tasks() - {asyncio.current_task()}:
        running.cancel()
    await asyncio.wait_for(scheduler.stop(), PATIENCE_SECONDS)
    assert scheduler.state == "stopped"


async def test_a_log_handler_that_raises_keeps_no_run_from_ending(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = stage.scheduler()
    await scheduler.initialize([task()])

    def broken(*_args: object, **_named: object) -> None:
        raise RuntimeError("bad handler")

    monkeypatch.setattr(scheduler._sink, "emit", broken)
    await stage.clock.advance(SECOND)
    monkeypatch.undo()
    await asyncio.wait_for(scheduler.stop(), PATIENCE_SECONDS)
    assert scheduler.state == "stopped"


async def test_a_store_that_breaks_in_its_own_way_is_let_go_all_the_same(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = stage.new_store()
    scheduler = stage.scheduler(store)
    await scheduler.initialize([task()])

    async def broken(_event: object) -> None:
        raise RuntimeError("not a store error")

    monkeypatch.setattr(store.schedules, "declare", broken)
    await asyncio.wait_for(scheduler.stop(), PATIENCE_SECONDS)
    assert scheduler.state == "stopped"
    assert "not a store error" in caplog.text
    monkeypatch.undo()
    await stage.scheduler().initialize([task()])


# --- while it runs ----------------------------------------------------------------------------------------------------


async def test_a_change_of_the_hosts_zone_is_tried_again_until_it_is_written(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = ["UTC"]
    monkeypatch.setattr(host_zone.HostZone, "read", staticmethod(lambda: (ZoneInfo(zone[0]), zone[0])))
    monkeypatch.setattr(host_zone.HostZone, "_fingerprint", staticmethod(lambda: tuple(zone)))
    faults = Faults()
    scheduler = stage.scheduler(FaultyStore(stage.new_store(), faults, stage.clock), time_zone=None)
    await scheduler.initialize([task("0 14 * * *")])
    await stage.clock.advance(SECOND)
    zone[0] = "Asia/Tokyo"
    faults.reads = 1
    await stage.clock.advance(3 * MINUTE)
    assert [row["timezone"] for row in await schedule_rows(scheduler._store)] == ["Asia/Tokyo"]


async def test_a_changed_host_zone_tells_which_tasks_move(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    zone = ["UTC"]
    monkeypatch.setattr(host_zone.HostZone, "read", staticmethod(lambda: (ZoneInfo(zone[0]), zone[0])))
    monkeypatch.setattr(host_zone.HostZone, "_fingerprint", staticmethod(lambda: tuple(zone)))
    scheduler = stage.scheduler(stage.new_store(), time_zone=None)
    tasks = [("daily", "0 14 * * *", nothing, MINUTE), ("each", "* * * * *", nothing, MINUTE)]
    await scheduler.initialize(tasks)
    await stage.clock.advance(SECOND)
    zone[0] = "Asia/Tokyo"
    await stage.clock.advance(2 * MINUTE)
    assert "changed from UTC to Asia/Tokyo" in caplog.text
    assert "1 of 2 tasks come at another time: daily at " in caplog.text


async def test_a_run_that_ends_while_the_zone_changes_keeps_its_wake_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = ["UTC"]
    monkeypatch.setattr(host_zone.HostZone, "read", staticmethod(lambda: (ZoneInfo(zone[0]), zone[0])))
    monkeypatch.setattr(host_zone.HostZone, "_fingerprint", staticmethod(lambda: tuple(zone)))
    finish = asyncio.Event()
    store = stage.new_store()
    scheduler = stage.scheduler(store, time_zone=None)
    await scheduler.initialize([task(callback=finish.wait)])
    await stage.clock.advance(SECOND)
    read = store.schedules.read_declared

    async def slow_read(managed_by: str) -> Any:
        found = await read(managed_by)
        finish.set()  # the run ends, and its end is written, between the plan and its writing
        for _ in range(20):
            await asyncio.sleep(0)
        return found

    monkeypatch.setattr(store.schedules, "read_declared", slow_read)
    zone[0] = "Asia/Tokyo"
    await stage.clock.advance(2 * MINUTE)
    monkeypatch.undo()
    row = (await schedule_rows(store))[0]
    assert row["timezone"] == "Asia/Tokyo"
    assert row["next_run_at"] is not None


async def test_a_trigger_that_is_given_up_leaves_no_claimed_run(tmp_path: Path) -> None:
    ran = asyncio.Event()

    async def work() -> None:
        ran.set()

    async with Scheduler(f"sqlite:///{tmp_path}/app.db") as scheduler:
        await scheduler.initialize([task("0 0 1 1 *", work)])
        engine = scheduler._engine
        assert isinstance(engine, Engine)
        asked = asyncio.create_task(engine.run_now(partial(engine.work.claim_manual, 1)))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait_for(ran.wait(), PATIENCE_SECONDS)
        await engine.recorded(1)
        assert await scheduler._store.runs.live(1) == []


# --- the lock ---------------------------------------------------------------------------------------------------------


def test_a_lock_file_that_cannot_be_written_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreUnavailableError, match="No space left"):
        hold.take(tmp_path / "app.db", "n", "me")
    monkeypatch.undo()
    hold.take(tmp_path / "app.db", "n", "me").release()


def test_a_forked_child_does_not_keep_the_name(tmp_path: Path) -> None:
    mine = hold.take(tmp_path / "app.db", "n", "me")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # holds nothing, says so, and waits to be killed
        os.write(write, b"x")
        signal.pause()
    try:
        os.read(read, 1)
        with pytest.raises(SchedulerInUseError):
            hold.take(tmp_path / "app.db", "n", "other")
        mine.drop()
        hold.take(tmp_path / "app.db", "n", "other").release()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


# --- errors -----------------------------------------------------------------------------------------------------------


def test_errors_can_be_pickled() -> None:
    def raised(text: str) -> NoonbellError:
        with pytest.raises(NoonbellError) as caught:
            parse(text)
        return caught.value

    made: list[NoonbellError] = [
        raised("*/15 * * * *"),
        errors.ScheduleDuplicateTaskError("t"),
        errors.NegativeRetryDelayError(-5),
        errors.TaskInvalidTypeError("f", 1, "str", "int"),
        errors.SchedulerInUseError("n", "somebody"),
        errors.StoreUrlError("bad", value="x"),
    ]
    for error in made:
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.details == error.details


def test_lateness_does_not_count_what_could_not_start_earlier(caplog: pytest.LogCaptureFixture) -> None:
    async def life() -> None:
        stage = Stage(MemoryStore)
        finish = asyncio.Event()
        scheduler = stage.scheduler()
        await scheduler.initialize([task(callback=finish.wait)])
        await stage.clock.advance(30 * MINUTE)
        finish.set()
        await stage.clock.advance(SECOND)
        engine = scheduler._engine
        assert engine is not None
        assert engine.metrics.start_lateness.max_seconds < 60
        await scheduler.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(life())
    assert "is late by" not in caplog.text


@pytest.mark.parametrize("tz", ["EST5EDT,M3.2.0,M11.1.0", "<+03>-3", "Mars/Olympus"])
def test_a_host_zone_without_an_iana_name_is_an_error_with_a_remedy(tz: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", tz)
    for make in (lambda: Scheduler(MemoryStore()), periodic.make):
        with pytest.raises(HostTimeZoneError, match='time_zone="America/New_York"') as caught:
            make()
        assert f"TZ is {tz!r}" in str(caught.value)
        assert isinstance(caught.value, ValueError), "as it was"
