"""Duties beside the loop: begun again when they fail, waited for when they stop."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from noonbell.engine.pruning import Pruner
from noonbell.engine.services import Services, every
from noonbell.errors import StoreUnavailableError
from noonbell.ports import Pruned, ScheduleStore
from noonbell.testing import ManualClock
from tests.patience import PATIENCE_SECONDS

START = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)
DAY = 86_400_000_000


async def test_a_duty_that_fails_begins_again_after_a_growing_pause(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(START)
    began: list[float] = []

    async def fragile(stop: asyncio.Event) -> None:
        began.append((clock.at - START).total_seconds())
        if len(began) == 2:
            raise StoreUnavailableError("away")
        if len(began) < 4:
            raise ValueError("broken")
        await stop.wait()

    services = Services(clock, {"fragile": fragile})
    services.start()
    await clock.advance(timedelta(minutes=1))
    assert began == [0, 1, 3, 7]
    assert caplog.text.count("fragile failed") == 3
    assert "ValueError: broken" in caplog.text
    await services.stop()


async def test_one_that_fails_does_not_touch_the_others() -> None:
    clock = ManualClock(START)
    steps: list[datetime] = []

    async def broken(stop: asyncio.Event) -> None:
        raise ValueError("broken")

    async def step() -> None:
        steps.append(clock.at)

    services = Services(clock, {"broken": broken, "steady": every(clock, 60_000_000, step)})
    services.start()
    await clock.advance(timedelta(minutes=3))
    assert [(at - START).total_seconds() for at in steps] == [0, 60, 120, 180]
    await services.stop()


async def test_a_step_may_wait_for_its_first_interval() -> None:
    clock = ManualClock(START)
    steps: list[datetime] = []

    async def step() -> None:
        steps.append(clock.at)

    services = Services(clock, {"late": every(clock, 60_000_000, step, at_once=False)})
    services.start()
    await clock.advance(timedelta(seconds=59))
    assert steps == []
    await clock.advance(timedelta(seconds=1))
    assert len(steps) == 1
    await services.stop()
    assert len(steps) == 1, "a stop is no reason for another step"


async def test_a_stop_waits_for_what_is_under_way() -> None:
    clock = ManualClock(START)
    finish = asyncio.Event()
    ended: list[str] = []

    async def slow(stop: asyncio.Event) -> None:
        await stop.wait()
        await finish.wait()
        ended.append("slow")

    services = Services(clock, {"slow": slow})
    services.start()
    stopping = asyncio.create_task(services.stop())
    await clock.settle()
    assert not stopping.done()
    finish.set()
    await stopping
    assert ended == ["slow"]


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
    clock = ManualClock(datetime(2026, 3, 4, tzinfo=UTC))
    store = Days(clock.now() - 10 * DAY, 10)
    pruner = Pruner(cast("ScheduleStore", store), clock, 3 * DAY)
    services = Services(clock, {"pruning": pruner.run})
    services.start()
    await clock.settle()
    assert len(store.days) == 3
    assert "Pruned 2026-02-22: 3 runs, 2 spans, 1 attempts, 4 audit events" in caplog.text
    await clock.advance(timedelta(hours=24))
    assert len(store.days) == 2, "an hour after the day is over it is dropped"
    await services.stop()


async def test_a_stop_comes_between_two_days() -> None:
    clock = ManualClock(datetime(2026, 3, 4, tzinfo=UTC))
    store = Days(clock.now() - 10 * DAY, 10)
    store.stop = asyncio.Event()
    assert await Pruner(cast("ScheduleStore", store), clock, DAY).prune(store.stop) == 1


async def test_a_stop_does_not_wait_for_a_day_that_takes_long() -> None:
    clock = ManualClock(datetime(2026, 3, 4, tzinfo=UTC))
    given_up: list[int] = []

    class LargeDay:
        async def prune_day(self, before: int) -> Pruned | None:
            try:
                await asyncio.Event().wait()
            finally:
                given_up.append(before)
            return None

    pruner = Pruner(cast("ScheduleStore", LargeDay()), clock, DAY)
    services = Services(clock, {"pruning": pruner.run})
    services.start()
    await clock.settle()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await services.stop()
    assert given_up == [clock.now() - DAY]


async def test_a_day_that_fails_is_told_by_the_pruner() -> None:
    clock = ManualClock(datetime(2026, 3, 4, tzinfo=UTC))

    class Broken:
        async def prune_day(self, before: int) -> Pruned | None:
            raise StoreUnavailableError("away")

    with pytest.raises(StoreUnavailableError, match="away"):
        await Pruner(cast("ScheduleStore", Broken()), clock, DAY).prune(asyncio.Event())
