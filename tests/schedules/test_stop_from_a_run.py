"""A run that stops the schedules it belongs to would wait for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from noonbell.errors import StopFromTaskError
from noonbell.schedules import Call, Schedules
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock
from tests.patience import PATIENCE_SECONDS

START = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize("method", ["stop", "close"])
@pytest.mark.parametrize("kind", ["coroutine", "plain", "wrapped"])
async def test_a_run_that_stops_its_own_schedules_gets_an_error(kind: str, method: str) -> None:
    clock, loop = ManualClock(START), asyncio.get_running_loop()
    raised: asyncio.Queue[BaseException] = asyncio.Queue()

    async def coroutine(*_: Call) -> None:
        try:
            await getattr(schedules, method)()
        except BaseException as error:
            raised.put_nowait(error)
            raise

    def plain(*_: Call) -> None:
        try:
            asyncio.run_coroutine_threadsafe(getattr(schedules, method)(), loop).result()
        except BaseException as error:
            loop.call_soon_threadsafe(raised.put_nowait, error)
            raise

    def wrapped(*_: Call) -> Awaitable[None]:
        return coroutine()

    callbacks: dict[str, Callable[..., Any]] = {"coroutine": coroutine, "plain": plain, "wrapped": wrapped}
    schedules = Schedules(MemoryStore(), clock=clock, callbacks={"work": callbacks[kind]})
    await schedules.open()
    await schedules.create(type="cron", spec="* * * * *", action={"kind": "callback", "name": "work"})
    await schedules.start()
    await clock.advance(timedelta(minutes=1))
    error = await asyncio.wait_for(raised.get(), PATIENCE_SECONDS)
    assert isinstance(error, StopFromTaskError)
    assert f"asyncio.create_task(schedules.{method}())" in str(error)
    assert ("call_soon_threadsafe" in str(error)) is (kind == "plain")
    await asyncio.wait_for(schedules.stop(), PATIENCE_SECONDS)


async def test_the_remedy_in_the_error_works() -> None:
    clock, stopping = ManualClock(START), list[asyncio.Task[bool]]()

    async def work(_: Call) -> None:
        stopping.append(asyncio.create_task(schedules.stop()))

    schedules = Schedules(MemoryStore(), clock=clock, callbacks={"work": work})
    await schedules.open()
    await schedules.create(type="cron", spec="* * * * *", action={"kind": "callback", "name": "work"})
    await schedules.start()
    await clock.advance(timedelta(minutes=1))
    assert await asyncio.wait_for(stopping[0], PATIENCE_SECONDS)
    assert not schedules.running
