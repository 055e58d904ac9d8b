"""Retries without a delay, or with a short one: exact, behind all that is due, and at most ten a second."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from noonbell import Scheduler
from noonbell.declarative.events import SchedulerEvent, TaskRunFailed, TaskRunStarted
from noonbell.ledger import verify_store
from noonbell.ledger.ledger_rows import schedule_rows
from noonbell.store.sqlite import SqliteStore
from noonbell.testing import ManualClock
from tests.declarative.conftest import START, Stage

MINUTE = timedelta(minutes=1)
TENTH = timedelta(milliseconds=100)


async def starts_of(stage: Stage, delay: timedelta, count: int, takes: float = 0.0) -> list[timedelta]:
    """When the attempts of a task that always fails begin, from the first on."""
    starts: list[timedelta] = []

    async def work() -> None:
        starts.append(stage.clock.at - START)
        if takes:
            await stage.clock.sleep(takes)
        raise ValueError("boom")

    scheduler = stage.scheduler()
    await scheduler.initialize([("t", "6 10 * * *", work, delay)])
    await stage.clock.advance(timedelta(seconds=44))
    stopping = asyncio.ensure_future(scheduler.stop())
    await stage.clock.advance(timedelta(seconds=1))  # an attempt may be under way
    await stopping
    return [at - starts[0] for at in starts[:count]]


@pytest.mark.parametrize("milliseconds", [150, 250, 999, 1000, 1001])
async def test_a_delay_is_never_rounded(stage: Stage, milliseconds: int) -> None:
    delay = timedelta(milliseconds=milliseconds)
    assert await starts_of(stage, delay, 3) == [delay * n for n in range(3)]
    failed = [event for event in stage.events if isinstance(event, TaskRunFailed)]
    assert all(event.retry_at is not None and event.retry_at - event.at == delay for event in failed)


async def test_a_delay_counts_from_the_failure(stage: Stage) -> None:
    delay = timedelta(milliseconds=10)
    assert await starts_of(stage, delay, 3, takes=0.2) == [timedelta(milliseconds=210) * n for n in range(3)]


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(microseconds=1), timedelta(milliseconds=20)])
async def test_at_most_ten_starts_a_second(stage: Stage, delay: timedelta) -> None:
    assert await starts_of(stage, delay, 12) == [TENTH * n for n in range(12)]
    failed = [event for event in stage.events if isinstance(event, TaskRunFailed)]
    assert all(event.retry_at is not None and event.retry_at - event.at == delay for event in failed)


async def test_an_occurrence_does_not_wait_for_the_spacing_of_a_retry(stage: Stage) -> None:
    """The retry that would come 50 ms after the minute gives way to the minute."""
    starts: list[timedelta] = []

    async def work() -> None:
        starts.append(stage.clock.at - START)
        if len(starts) == 1:
            await stage.clock.sleep(59.97)  # it fails 30 ms before the next minute
        raise ValueError("boom")

    scheduler = stage.scheduler()
    await scheduler.initialize([("t", "* * * * *", work, timedelta(milliseconds=50))])
    await stage.clock.advance(timedelta(seconds=101))
    await scheduler.stop()
    assert timedelta(seconds=100) in starts, "at 10:07, to the microsecond"


async def test_retries_come_behind_all_that_is_due(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where more is due than one look takes: the looks that take the rest come before the retries."""
    monkeypatch.setattr("noonbell.engine.declared_jobs.BATCH", 3)
    order: list[str] = []

    def task(name: str) -> Any:
        async def work() -> None:
            order.append(name)
            if name == "fails":
                raise ValueError("boom")

        return work

    scheduler = stage.scheduler()
    names = [f"t{n}" for n in range(8)]
    registrations: list[Any] = [("fails", "5 * * * *", task("fails"), timedelta(0))]
    registrations += [(name, "6 * * * *", task(name), MINUTE) for name in names]
    await scheduler.initialize(registrations)
    await stage.clock.advance(timedelta(seconds=39.95))
    order.clear()
    stage.clock.stall(timedelta(seconds=1))  # retry and occurrences are found together
    await stage.clock.settle()
    await scheduler.stop()
    assert sorted(order[:8]) == names
    assert order[8:] == ["fails"]


async def life(path: Path, *, failing: bool, minutes: int) -> list[tuple[str, timedelta]]:
    """When two tasks start, with or without one beside them that always fails and is retried at once."""
    clock, started = ManualClock(START), list[tuple[str, timedelta]]()

    def on_event(event: SchedulerEvent) -> None:
        if isinstance(event, TaskRunStarted) and event.task != "fails":
            started.append((event.task, event.at - event.scheduled_for))

    async def fails() -> None:
        raise ValueError("boom")

    async def quick() -> None: ...

    async def slow() -> None:
        await clock.sleep(30)

    registrations: list[Any] = [("quick", "* * * * *", quick, MINUTE), ("slow", "* * * * *", slow, MINUTE)]
    if failing:
        registrations.insert(0, ("fails", "5 10 * * *", fails, timedelta(0)))
    store = SqliteStore(path, threaded=False)
    scheduler = Scheduler(store, clock=clock, time_zone="UTC", on_event=on_event)
    await scheduler.initialize(registrations)
    await clock.advance(minutes * MINUTE)
    await clock.advance(timedelta(seconds=30))
    await scheduler.stop()
    if failing:
        (row,) = [row for row in await schedule_rows(store) if row["name"] == "fails"]
        (live,) = await store.runs.live(row["sid"])
        assert live.attempt == 10 * (minutes * 60 + 30) + 1
        assert len(await store.history.attempts(row["sid"], 0, 1 << 62)) == 25
        assert (await verify_store(store)).problems == []
    await store.close()
    return started


def size_of(path: Path) -> int:
    """Return the size of a database with the files beside it."""
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


@pytest.mark.parametrize("minutes", [2, pytest.param(10, marks=pytest.mark.exhaustive)])
async def test_a_task_that_always_fails_leaves_the_others_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, minutes: int
) -> None:
    caplog.set_level(logging.CRITICAL, "noonbell")  # thousands of tracebacks are enough in the ledger's bounds
    quiet, busy = tmp_path / "quiet.db", tmp_path / "busy.db"
    undisturbed = await life(quiet, failing=False, minutes=minutes)
    assert await life(busy, failing=True, minutes=minutes) == undisturbed
    assert len(undisturbed) == 2 * minutes + 2
    assert size_of(busy) - size_of(quiet) < 1_000_000
