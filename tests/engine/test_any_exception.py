"""Whatever an action raises ends its run as failed, in every face. A KeyboardInterrupt stops an embedding program."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from noonbell import Scheduler, periodic
from noonbell.declarative.events import SchedulerEvent
from noonbell.engine import contain_interrupts
from noonbell.errors import NoonbellError
from noonbell.schedules import Call, Schedules
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock
from tests.patience import PATIENCE_SECONDS, until

START = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class OwnBaseError(BaseException):
    """A class that is no Exception."""


RAISED: list[BaseException] = [
    SystemExit(3),
    GeneratorExit(),
    OwnBaseError("own"),
    BaseExceptionGroup("group", [SystemExit(1)]),
    asyncio.CancelledError(),
    KeyboardInterrupt(),
]


def raising(error: BaseException, kind: str) -> Callable[..., Awaitable[None] | None]:
    """Return a callback that raises: a coroutine function, a plain one, or a plain one that returns a coroutine."""

    async def coroutine(*_: Call) -> None:
        raise error

    def plain(*_: Call) -> None:
        raise error

    return {"coroutine": coroutine, "plain": plain, "wrapped": lambda *_: coroutine()}[kind]


cases = pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
kinds = pytest.mark.parametrize("kind", ["coroutine", "plain", "wrapped"])


@cases
@kinds
async def test_a_declared_task_fails_and_is_retried(error: BaseException, kind: str) -> None:
    contain_interrupts()
    clock, events, failed = ManualClock(START), list[SchedulerEvent](), asyncio.Event()

    def on_event(event: SchedulerEvent) -> None:
        events.append(event)
        if event.name == "TaskRunFailed":
            failed.set()

    scheduler = Scheduler(MemoryStore(), clock=clock, time_zone="UTC", on_event=on_event)
    await scheduler.initialize([("task", "* * * * *", raising(error, kind), timedelta(seconds=20))])
    for _ in range(2):
        await asyncio.wait_for(failed.wait(), PATIENCE_SECONDS)
        failed.clear()
        await clock.advance(timedelta(seconds=20))
    await scheduler.stop()
    names = [event.name for event in events]
    assert names.count("TaskRunFailed") >= 2
    assert names.count("TaskRunFailed") == names.count("TaskRunStarted") + names.count("TaskRetryStarted")


@cases
@kinds
async def test_run_now_ends_with_an_error(error: BaseException, kind: str) -> None:
    contain_interrupts()
    scheduler = periodic.make(periodic.Capabilities(clock=ManualClock(START), store=MemoryStore()), time_zone="UTC")
    await scheduler.schedule("task", "0 0 1 1 *", raising(error, kind), MINUTE)
    with pytest.raises(NoonbellError, match=f'Task "task" failed: {type(error).__name__}') as raised:
        await scheduler.run_now("task")
    assert raised.value.__cause__ is error
    await scheduler.close()


@cases
@kinds
async def test_a_durable_schedule_fails(error: BaseException, kind: str) -> None:
    contain_interrupts()
    clock = ManualClock(START)
    schedules = Schedules(MemoryStore(), clock=clock, callbacks={"work": raising(error, kind)})
    await schedules.open()
    made = await schedules.create(type="cron", spec="* * * * *", action={"kind": "callback", "name": "work"})
    await schedules.start()
    await clock.advance(MINUTE)

    async def ended() -> bool:
        return any(run.ended_at is not None for run in (await schedules.runs(made.schedule_id)).items)

    await until(ended)  # a thread ends when it does
    (run,) = (await schedules.runs(made.schedule_id)).items
    await schedules.stop()
    assert run.state == "failed"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", ["coroutine", "wrapped"])
async def test_a_task_that_a_callback_creates_does_not_stop_a_service(
    error: BaseException, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Asyncio lets these two out of the event loop when a task raises them, before the callback can catch them."""
    contain_interrupts()

    async def inner() -> None:
        raise error

    async def outer(*_: Call) -> None:
        await asyncio.create_task(inner())

    clock, callback = ManualClock(START), outer if kind == "coroutine" else lambda *_: outer()
    schedules = Schedules(MemoryStore(), clock=clock, callbacks={"work": callback})
    await schedules.open()
    made = await schedules.create(type="cron", spec="* * * * *", action={"kind": "callback", "name": "work"})
    await schedules.start()
    await clock.advance(MINUTE)

    async def ended() -> bool:
        return any(run.ended_at is not None for run in (await schedules.runs(made.schedule_id)).items)

    await until(ended)
    (run,) = (await schedules.runs(made.schedule_id)).items
    await schedules.stop()
    assert run.state == "failed"
    assert "ExitInTaskError: a task of the action raised" in caplog.text


class HostileError(Exception):
    """An error that cannot be read."""

    @property
    def detail(self) -> bytes:
        raise SystemExit

    @property
    def masked(self) -> bool:
        raise SystemExit

    @property
    def retry_after_us(self) -> int:
        raise SystemExit

    def __str__(self) -> str:
        raise SystemExit


class SoonError(Exception):
    retry_after_us = "soon"


@pytest.mark.parametrize("error", [HostileError(), SoonError()], ids=lambda error: type(error).__name__)
async def test_an_error_that_cannot_be_read_is_recorded_and_retried(error: Exception) -> None:
    clock = ManualClock(START)
    schedules = Schedules(MemoryStore(), clock=clock, callbacks={"work": raising(error, "coroutine")})
    await schedules.open()
    retry = {"attempts": 2, "strategy": "fixed", "delay_seconds": 1}
    made = await schedules.create(
        type="cron", spec="* * * * *", action={"kind": "callback", "name": "work"}, retry=retry
    )
    await schedules.start()
    await clock.advance(MINUTE)
    await clock.advance(timedelta(seconds=5))
    (run,) = (await schedules.runs(made.schedule_id)).items
    await schedules.stop()
    assert (run.state, run.attempts) == ("failed", 2)


PROGRAM = """
import asyncio, sys
from datetime import timedelta
from noonbell import Scheduler

async def interrupt():
    raise KeyboardInterrupt

stop_everything = CALLBACK

async def main():
    events = []
    try:
        async with Scheduler("memory://", on_event=lambda event: events.append(event.name)) as scheduler:
            await scheduler.initialize([("stop", "* * * * *", stop_everything, timedelta(minutes=5))])
            await asyncio.Event().wait()
    finally:
        print(*events)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


IGNORE = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"


@pytest.mark.parametrize(
    ("ignored", "callback"), [("", "interrupt"), (IGNORE, "interrupt"), ("", "lambda: interrupt()")]
)
def test_a_keyboard_interrupt_is_recorded_and_then_stops_the_program_in_order(
    tmp_path: Path, ignored: str, callback: str
) -> None:
    command = [sys.executable, "-c", ignored + PROGRAM.replace("CALLBACK", callback)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
    events, word = ended.stdout.splitlines()
    assert word == "interrupted"
    assert "TaskRunFailed" in events
    assert events.split()[-1] == "SchedulerStopped"
    assert ignored or ended.stderr.count("Traceback") == 1, "that of the failed run, in the log"
