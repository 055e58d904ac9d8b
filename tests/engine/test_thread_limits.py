"""The number of threads for plain functions, as the declared faces take it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from noonbell import Scheduler, periodic
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock
from tests.patience import until


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "8", 10_001])
def test_a_number_that_makes_no_sense_is_refused(threads: object) -> None:
    for make in (lambda: Scheduler(MemoryStore(), threads=threads), lambda: periodic.make(threads=threads)):  # type: ignore[arg-type]  # what is wrong with it
        with pytest.raises(ValueError, match=r"threads is .*; it must be a whole number from 1 to 10000"):
            make()


async def test_no_more_plain_functions_run_at_a_time() -> None:
    clock, free = ManualClock(datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)), threading.Event()
    begun: list[str] = []

    def work(name: str) -> None:
        begun.append(name)
        free.wait()

    scheduler = Scheduler(MemoryStore(), clock=clock, time_zone="UTC", threads=2)
    names = [f"task-{n}" for n in range(4)]
    await scheduler.initialize([(n, "* * * * *", lambda n=n: work(n), timedelta(minutes=5)) for n in names])
    await clock.advance(timedelta(seconds=40))
    await until(lambda: len(begun) >= 2)
    assert scheduler._engine is not None
    assert scheduler._engine.load()["threads_waited_for"] == 2
    free.set()
    await until(lambda: len(begun) >= 4)
    await scheduler.stop()
