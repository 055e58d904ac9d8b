"""The pruner: which days it drops, and how a stop meets it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from noonbell.engine.pruning import Pruner, Pruning
from noonbell.engine.supervisor import Supervisor
from noonbell.errors import StoreUnavailableError
from noonbell.ports import Ledger, Pruned
from noonbell.testing import ManualClock
from tests.patience import PATIENCE_SECONDS

START = datetime(2026, 3, 4, tzinfo=UTC)
DAY = 86_400_000_000


class Days:
    """A store of which only the days matter."""

    def __init__(self, first: int, count: int) -> None:
        self.days = [first + n * DAY for n in range(count)]
        self.stop: asyncio.Event | None = None

    async def prune_day(self, before: int) -> Pruned | None:
        if not self.days or self.days[0] + DAY > before:
            return None
        if self.stop is not None:
            self.stop.set()
        return Pruned(self.days.pop(0), 3, 2, 1, 4, 0)


async def test_the_pruner_drops_what_is_older_than_it_has_to_be_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = ManualClock(START)
    store = Days(clock.now() - 10 * DAY, 10)
    pruner = Pruner(cast("Ledger", store), clock, 3 * DAY)
    assert await pruner.run_once() == Pruning(days=7, runs=21)
    assert len(store.days) == 3
    assert "Pruned 2026-02-22: 3 runs, 2 spans, 1 attempts, 4 audit events" in caplog.text
    assert await pruner.run_once() == Pruning()


async def test_the_pruner_works_every_hour() -> None:
    clock = ManualClock(START)
    store = Days(clock.now() - 10 * DAY, 10)
    supervisor = Supervisor(clock, {"pruning": Pruner(cast("Ledger", store), clock, 3 * DAY)})
    supervisor.start()
    await clock.settle()
    assert len(store.days) == 3
    await clock.advance(timedelta(hours=24))
    assert len(store.days) == 2, "an hour after the day is over it is dropped"
    await supervisor.stop()


async def test_a_stop_comes_between_two_days() -> None:
    clock = ManualClock(START)
    store = Days(clock.now() - 10 * DAY, 10)
    store.stop = asyncio.Event()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await Pruner(cast("Ledger", store), clock, DAY).run(store.stop)
    assert len(store.days) == 9


async def test_a_stop_does_not_wait_for_a_day_that_takes_long() -> None:
    clock = ManualClock(START)
    given_up: list[int] = []

    class LargeDay:
        async def prune_day(self, before: int) -> Pruned | None:
            try:
                await asyncio.Event().wait()
            finally:
                given_up.append(before)
            return None

    supervisor = Supervisor(clock, {"pruning": Pruner(cast("Ledger", LargeDay()), clock, DAY)})
    supervisor.start()
    await clock.settle()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await supervisor.stop()
    assert given_up == [clock.now() - DAY]


async def test_a_failure_of_the_store_is_raised() -> None:
    clock = ManualClock(START)

    class Broken:
        async def prune_day(self, before: int) -> Pruned | None:
            raise StoreUnavailableError("away")

    pruner = Pruner(cast("Ledger", Broken()), clock, DAY)
    with pytest.raises(StoreUnavailableError, match="away"):
        await pruner.run_once()
    with pytest.raises(StoreUnavailableError, match="away"):
        await pruner.run(asyncio.Event())
