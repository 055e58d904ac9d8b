"""The traceback of a failed attempt: in the log, on the event and in the ledger, masked and bounded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from noonbell import Scheduler, periodic
from noonbell.actions.secrets.logs import guard
from noonbell.actions.secrets.masking import Masker
from noonbell.core.attempt_detail import unpack
from noonbell.declarative.events import SchedulerEvent, SchedulerInitializationFailed, TaskRunFailed
from noonbell.engine import contain_interrupts
from noonbell.errors import NoonbellError
from noonbell.schedules import Call, Schedules
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock
from tests.patience import PATIENCE_SECONDS, until

START = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
Make = Callable[[], BaseException]
VALUE = "s3cr3t-value-of-a-test"


class Known:
    """A process that knows a secret."""

    maskers = (Masker([VALUE]),)


@contextmanager
def known_secret() -> Iterator[None]:
    known = Known()
    guard(known)
    yield
    del known


def raising(error: BaseException, *, plain: bool = False) -> Callable[..., Any]:
    def where_it_went_wrong() -> None:
        raise error

    async def coroutine(*_: Call) -> None:
        where_it_went_wrong()

    def function(*_: Call) -> None:
        where_it_went_wrong()

    return function if plain else coroutine


def group() -> BaseException:
    return BaseExceptionGroup("both", [KeyError("a"), SystemExit(1)])


# made anew for each test: an error that is raised twice has the traceback of both
errors = pytest.mark.parametrize("make", [lambda: ValueError("no such table"), lambda: SystemExit(3), group])
plain_or_not = pytest.mark.parametrize("plain", [False, True], ids=["coroutine", "plain"])


@errors
@plain_or_not
async def test_of_a_declared_task(make: Make, plain: bool, caplog: pytest.LogCaptureFixture) -> None:
    contain_interrupts()
    error = make()
    store, events, failed = MemoryStore(), list[SchedulerEvent](), asyncio.Event()

    def on_event(event: SchedulerEvent) -> None:
        events.append(event)
        if isinstance(event, TaskRunFailed):
            failed.set()

    async with Scheduler(store, clock=ManualClock(START), time_zone="UTC", on_event=on_event) as scheduler:
        await scheduler.initialize([("task", "* * * * *", raising(error, plain=plain), MINUTE)])
        await asyncio.wait_for(failed.wait(), PATIENCE_SECONDS)
    (event,) = [event for event in events if isinstance(event, TaskRunFailed)]
    assert event.exception is error
    assert "exception" not in event.fields(), "the facts are plain data"
    (record,) = [one for one in caplog.records if one.getMessage().startswith("TaskRunFailed")]
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    await store.open()
    (attempt,) = await store.history.attempts(1, 0, 1 << 62)
    assert attempt.detail is not None
    told = unpack(attempt.detail)["traceback"]
    assert "where_it_went_wrong" in told
    assert type(error).__name__ in told.splitlines()[-1] or isinstance(error, BaseExceptionGroup)
    assert "noonbell/engine" not in told, "the frames that called it are the same for every attempt"


async def test_of_a_manual_run(caplog: pytest.LogCaptureFixture) -> None:
    store, error = MemoryStore(), ValueError("by hand")
    cron = periodic.make(periodic.Capabilities(clock=ManualClock(START), store=store), time_zone="UTC")
    await cron.schedule("task", "0 0 1 1 *", raising(error), MINUTE)
    with pytest.raises(ValueError, match="by hand"):
        await cron.run_now("task")
    (attempt,) = await store.history.attempts(1, 0, 1 << 62)
    await cron.close()
    assert attempt.detail is not None
    assert "where_it_went_wrong" in unpack(attempt.detail)["traceback"]
    (record,) = [one for one in caplog.records if one.getMessage().startswith("TaskRunFailed")]
    assert record.exc_info is not None


async def test_of_a_failed_initialization() -> None:
    events: list[SchedulerEvent] = []
    scheduler = Scheduler(MemoryStore(), time_zone="UTC", on_event=events.append)
    with pytest.raises(NoonbellError) as raised:
        await scheduler.initialize([("task", "not cron", raising(ValueError()), MINUTE)])
    (event,) = [event for event in events if isinstance(event, SchedulerInitializationFailed)]
    assert event.exception is raised.value


async def run_of(schedules: Schedules, clock: ManualClock) -> Any:
    made = await schedules.create(
        type="one_shot", spec="2026-03-04T12:01", action={"kind": "callback", "name": "work"},
        retry={"attempts": 2, "delay_seconds": 5, "strategy": "fixed"},
    )  # fmt: skip
    await schedules.start()
    await clock.advance(MINUTE)

    async def ended() -> bool:
        await clock.advance(MINUTE)  # a thread ends when it does, and the next attempt follows
        return bool((await schedules.runs(made.schedule_id)).items)

    await until(ended)
    (run,) = (await schedules.runs(made.schedule_id)).items
    found = await schedules.run(run.run_id)
    await schedules.stop()
    return found


@errors
@plain_or_not
async def test_of_a_durable_schedule(make: Make, plain: bool, caplog: pytest.LogCaptureFixture) -> None:
    contain_interrupts()
    error = make()
    clock = ManualClock(START)
    schedules = Schedules(MemoryStore(), clock=clock, callbacks={"work": raising(error, plain=plain)})
    await schedules.open()
    run = await run_of(schedules, clock)
    assert run.state == "failed"
    assert ["where_it_went_wrong" in one.detail["traceback"] for one in run.tried] == [True, True]
    logged = [one for one in caplog.records if one.name == "noonbell.engine" and one.levelno >= logging.WARNING]
    assert [one.exc_info is not None and one.exc_info[1] is error for one in logged] == [True, True]


async def test_secrets_are_masked_everywhere(caplog: pytest.LogCaptureFixture) -> None:
    store, failed = MemoryStore(), asyncio.Event()
    with known_secret():
        scheduler = Scheduler(
            store, clock=ManualClock(START), time_zone="UTC",
            on_event=lambda event: failed.set() if event.name == "TaskRunFailed" else None,
        )  # fmt: skip
        await scheduler.initialize([("task", "* * * * *", raising(ValueError(f"bad key {VALUE}")), MINUTE)])
        await asyncio.wait_for(failed.wait(), PATIENCE_SECONDS)
        await scheduler.stop()
        await store.open()
        (attempt,) = await store.history.attempts(1, 0, 1 << 62)
        assert attempt.detail is not None
        assert unpack(attempt.detail)["traceback"].endswith("ValueError: bad key ***")
        assert attempt.error == "ValueError: bad key ***"
        (record,) = [one for one in caplog.records if one.getMessage().startswith("TaskRunFailed")]
        assert VALUE not in logging.Formatter().format(record)
        assert "where_it_went_wrong" in logging.Formatter().format(record)
