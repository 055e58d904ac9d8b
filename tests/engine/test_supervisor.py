"""Services beside the loop: restarted when they fail, waited for when they stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from noonbell.background import PeriodicService
from noonbell.engine.supervisor import Supervisor
from noonbell.errors import LeaseLostError, StoreUnavailableError
from noonbell.testing import ManualClock

START = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)
MINUTE = 60_000_000


class Running:
    """A service made of one function."""

    def __init__(self, run: Callable[[asyncio.Event], Awaitable[None]]) -> None:
        self._run = run

    async def run(self, stop: asyncio.Event) -> None:
        await self._run(stop)


class Stepping(PeriodicService[int]):
    """Notes when it works; `soon` is when it wants to work next, where that is before its interval ends."""

    def __init__(self, clock: ManualClock, *, at_once: bool = True) -> None:
        super().__init__(clock, MINUTE, at_once=at_once)
        self.steps: list[float] = []
        self.soon: int | None = None
        self.failing = 0  # so many times from now on
        self._manual = clock

    async def run_once(self) -> int:
        self.steps.append((self._manual.at - START).total_seconds())
        if self.failing:
            self.failing -= 1
            raise StoreUnavailableError("away")
        return len(self.steps)

    def next_at(self, result: int) -> int:
        return super().next_at(result) if self.soon is None else self.soon


async def test_a_service_that_fails_is_restarted_after_a_growing_pause(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(START)
    began: list[float] = []

    async def fragile(stop: asyncio.Event) -> None:
        began.append((clock.at - START).total_seconds())
        if len(began) == 2:
            raise StoreUnavailableError("away")
        if len(began) < 4:
            raise ValueError("broken")
        await stop.wait()

    supervisor = Supervisor(clock, {"fragile": Running(fragile)})
    supervisor.start()
    await clock.advance(timedelta(minutes=1))
    assert began == [0, 1, 3, 7]
    assert caplog.text.count("fragile failed") == 3
    assert "ValueError: broken" in caplog.text
    await supervisor.stop()


async def test_a_cancellation_from_within_restarts_a_service(caplog: pytest.LogCaptureFixture) -> None:
    """What it waits for was cancelled, and not the service."""
    clock = ManualClock(START)
    began: list[float] = []

    async def waiting(stop: asyncio.Event) -> None:
        began.append((clock.at - START).total_seconds())
        if len(began) == 1:
            waited_for = asyncio.get_running_loop().create_future()
            waited_for.cancel()
            await waited_for
        await stop.wait()

    supervisor = Supervisor(clock, {"waiting": Running(waiting)})
    supervisor.start()
    await clock.advance(timedelta(seconds=10))
    assert began == [0, 1]
    assert "waiting failed, restarting in 1 s: CancelledError" in caplog.text
    await supervisor.stop()


@pytest.mark.parametrize("by_supervisor", [True, False])
async def test_a_cancelled_service_is_not_restarted(*, by_supervisor: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The supervisor cancels it, or the end of the loop does, with every other task."""
    clock = ManualClock(START)
    began: list[str] = []

    async def busy(stop: asyncio.Event) -> None:
        began.append("busy")
        await stop.wait()

    supervisor = Supervisor(clock, {"busy": Running(busy)})
    supervisor.start()
    await clock.settle()
    if by_supervisor:
        supervisor.cancel()
    else:
        (task,) = (one for one in asyncio.all_tasks() if one.get_name() == "noonbell-busy")
        task.cancel()
    await clock.advance(timedelta(minutes=1))
    await supervisor.stop()
    assert (began, caplog.text) == (["busy"], "")


async def test_one_that_fails_does_not_touch_the_others() -> None:
    clock = ManualClock(START)
    steady = Stepping(clock)

    async def broken(stop: asyncio.Event) -> None:
        raise ValueError("broken")

    supervisor = Supervisor(clock, {"broken": Running(broken), "steady": steady})
    supervisor.start()
    await clock.advance(timedelta(minutes=3))
    assert steady.steps == [0, 60, 120, 180]
    await supervisor.stop()


async def test_one_that_finds_the_lease_lost_ends_and_reports_it() -> None:
    clock = ManualClock(START)
    lost: list[str] = []
    began: list[int] = []

    async def losing(stop: asyncio.Event) -> None:
        began.append(1)
        raise LeaseLostError("engine:me")

    supervisor = Supervisor(clock, {"losing": Running(losing)}, on_lost=lambda: lost.append("lost"))
    supervisor.start()
    await clock.advance(timedelta(minutes=10))
    assert (lost, began) == (["lost"], [1])
    await supervisor.stop()


async def test_a_service_may_wait_for_its_first_interval() -> None:
    clock = ManualClock(START)
    late = Stepping(clock, at_once=False)
    supervisor = Supervisor(clock, {"late": late})
    supervisor.start()
    await clock.advance(timedelta(seconds=59))
    assert late.steps == []
    await clock.advance(timedelta(seconds=1))
    assert len(late.steps) == 1
    await supervisor.stop()
    assert len(late.steps) == 1, "a stop is no reason to work once more"


async def test_work_that_failed_is_tried_again_after_a_pause_and_not_after_an_interval() -> None:
    clock = ManualClock(START)
    late = Stepping(clock, at_once=False)
    late.failing = 2
    supervisor = Supervisor(clock, {"late": late})
    supervisor.start()
    await clock.advance(timedelta(minutes=3))
    assert late.steps == [60, 61, 63, 123]
    await supervisor.stop()


async def test_a_service_works_sooner_where_its_result_asks_for_it_or_when_it_is_woken() -> None:
    clock = ManualClock(START)
    service = Stepping(clock)
    service.soon = clock.now() + 20_000_000
    supervisor = Supervisor(clock, {"woken": service})
    supervisor.start()
    await clock.settle()
    service.soon = None
    await clock.advance(timedelta(seconds=30))
    assert service.steps == [0, 20]
    service.wake()
    await clock.settle()
    assert service.steps == [0, 20, 30]
    await clock.advance(timedelta(seconds=59))
    assert service.steps == [0, 20, 30], "the interval counts from there"
    await supervisor.stop()
    assert service.stopping


async def test_an_interval_must_be_positive() -> None:
    class Idle(PeriodicService[None]):
        async def run_once(self) -> None:
            """Nothing to do."""

    with pytest.raises(ValueError, match="must be positive, not 0"):
        Idle(ManualClock(START), 0)


async def test_a_stop_waits_for_what_is_under_way() -> None:
    clock = ManualClock(START)
    finish = asyncio.Event()
    ended: list[str] = []

    async def slow(stop: asyncio.Event) -> None:
        await stop.wait()
        await finish.wait()
        ended.append("slow")

    supervisor = Supervisor(clock, {"slow": Running(slow)})
    supervisor.start()
    stopping = asyncio.create_task(supervisor.stop())
    await clock.settle()
    assert not stopping.done()
    finish.set()
    await stopping
    assert ended == ["slow"]
