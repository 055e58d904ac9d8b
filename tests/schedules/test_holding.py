"""An engine is a part of its lane while anything of it runs; one that was taken for dead comes back as another."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest

from noonbell.errors import StoreUnavailableError
from noonbell.ledger import verify_store
from noonbell.ledger.ledger_rows import lifecycle_of
from noonbell.schedules import Schedules
from noonbell.schedules.engine_life import EngineLife
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock
from tests.patience import PATIENCE_SECONDS, until
from tests.schedules.conftest import NOON, World
from tests.schedules.test_postgres_trouble import Service
from tests.store.postgres_server import PostgresServer

LANE = "lane:default"


async def test_a_stop_that_nobody_waits_for_keeps_the_name_until_all_has_ended(world: World) -> None:
    key = await world.create()
    world.duration = timedelta(minutes=5)
    await world.schedules.start()
    await world.minutes(1)
    assert world.called == ["12:01"]

    given_up = asyncio.create_task(world.schedules.stop())
    await world.clock.settle()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    other = Schedules(world.store, clock=world.clock, callbacks={"work": world.work})
    await other.start()
    await world.clock.settle()
    assert [one.state for one in (await world.store.engines.members(0)).alive] == ["stopping", "up"]
    assert world.called == ["12:01"], "what the first one has in hand is not touched"

    again = asyncio.create_task(world.schedules.stop())
    await world.minutes(4)
    assert not again.done(), "the run is under way for another minute"
    world.duration = timedelta(0)
    await world.minutes(1)
    await again
    assert (await world.told(key))[0] == ("12:01", "fired")
    kinds = [event.event for event in await lifecycle_of(world.store, LANE)]
    assert kinds == ["init-ok", "stop-start", "init-ok", "stop-end"], "both have waited for one stop"
    assert [one.state for one in (await world.store.engines.members(0)).alive] == ["up"]
    await other.stop()
    assert (await world.store.engines.members(0)).alive == []
    assert (await verify_store(world.store)).problems == []


async def test_a_start_waits_for_the_stop_before_it(world: World) -> None:
    await world.create()
    world.duration = timedelta(minutes=5)
    await world.schedules.start()
    await world.minutes(1)
    stopping = asyncio.create_task(world.schedules.stop())
    starting = asyncio.create_task(world.schedules.start())
    await world.minutes(4)
    assert not stopping.done()
    assert not starting.done()
    assert not world.schedules.running
    await world.minutes(1)
    await asyncio.gather(stopping, starting)
    assert world.schedules.running


async def taken_for_dead(postgres: PostgresServer, dsn: str) -> None:
    """The lease had run out, and another engine was the first to see it: as `take_over` does, in one transaction.

    To let a lease run out and take it then would be a race with its holder, who tries, too.
    """
    database = dsn.rpartition("/")[2]
    await postgres.execute(database, "DELETE FROM instances; DELETE FROM engines")


async def test_an_engine_that_was_taken_for_dead_says_so_and_comes_back_as_another(
    postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    dsn = await postgres.new_database()
    service = Service(dsn)
    await service.schedules.open()
    await service.create()
    await service.schedules.start()
    await service.minute()
    (before,) = (await service.store.engines.members(0)).alive
    caplog.set_level(logging.WARNING)
    caplog.clear()

    await taken_for_dead(postgres, dsn)

    async def is_back() -> bool:
        return service.schedules.running and service.schedules.lanes_lost == 1

    await until(is_back)
    (after,) = (await service.store.engines.members(0)).alive
    assert after.instance != before.instance
    await service.minute()
    await service.schedules.stop()
    assert (await verify_store(service.store)).problems == []
    told = [record.message for record in caplog.records if record.name == "noonbell.schedules"]
    (once,) = told
    assert once == (f"lease lost, another engine has taken over engine={before.instance} next=rejoin under a new name")
    await service.store.close()


class Hanging:
    """A service whose one schedule hangs, from its start until it is cut off."""

    def __init__(self, dsn: str) -> None:
        self.service = Service(dsn)
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def hang(self, _: object) -> None:
        self.begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            self.ended.set()

    async def start(self) -> None:
        service = self.service
        service.schedules.register("work", self.hang)
        await service.schedules.open()
        await service.schedules.create(
            type="interval", spec="3600", catch_up_policy="run_once", action={"kind": "callback", "name": "work"}
        )
        await service.schedules.start()
        service.clock.shift_seconds += 3600
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.begun.wait()


@pytest.mark.parametrize("hands_full", [False, True])
async def test_what_an_engine_has_in_hand_is_cut_off_when_it_was_taken_for_dead(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, hands_full: bool
) -> None:
    if hands_full:  # it does not look any more then, and finds out all the same
        monkeypatch.setattr("noonbell.engine.execution.MOST_IN_FLIGHT", 1)
    dsn = await postgres.new_database()
    hanging = Hanging(dsn)
    service = hanging.service
    await hanging.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await taken_for_dead(postgres, dsn)
        await hanging.ended.wait()
        hanging.begun.clear()
        await hanging.begun.wait()  # by itself, since there is no other: the run is an orphan, and it is up again
    (live,) = await service.store.runs.live(1)
    assert (live.cause, live.crashes, live.fence) == ("orphan", 1, 3)
    assert live.owner == ((await service.store.engines.members(0)).alive)[0].instance
    await service.schedules.stop(timedelta(0))
    await service.store.close()


async def test_a_stop_does_not_wait_for_what_is_another_engine_s(
    postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    dsn = await postgres.new_database()
    hanging = Hanging(dsn)
    schedules = hanging.service.schedules
    await hanging.start()
    stopping = asyncio.create_task(schedules.stop())

    async def is_stopping() -> bool:
        return [one.state for one in (await hanging.service.store.engines.members(0)).alive] == ["stopping"]

    await until(is_stopping)
    assert not hanging.ended.is_set(), "a stop waits for what runs"
    await taken_for_dead(postgres, dsn)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await stopping
    assert hanging.ended.is_set()
    assert not schedules.running
    assert schedules.lanes_lost == 1
    (told,) = (one.message for one in caplog.records if one.message.startswith("lease lost, another"))
    assert told.endswith(" next=stop")
    await hanging.service.store.close()


async def test_a_timed_stop_cuts_short_the_end_of_an_engine_that_was_taken_for_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its runs are cut off at that moment; its services, such as the delivery of messages, would take their time."""
    clock = ManualClock(NOON)
    schedules = Schedules(MemoryStore(), clock=clock, callbacks={})
    await schedules.start()
    engine = schedules._lane.engine
    assert engine is not None
    cut_off, cutting, go_on, abandoned = engine.cut_off, asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow_cut_off() -> int:
        cutting.set()
        await go_on.wait()
        return await cut_off()

    async def abandon(life: EngineLife) -> int:
        abandoned.set()
        life._supervisor.cancel()
        return 0

    monkeypatch.setattr(engine, "cut_off", slow_cut_off)
    monkeypatch.setattr(EngineLife, "abandon", abandon)
    engine.on_lease_lost()
    await cutting.wait()
    stopping = asyncio.create_task(schedules.stop(timedelta(0)))
    await clock.settle()
    assert abandoned.is_set()
    go_on.set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await stopping
    assert not schedules.running


async def test_a_stop_ends_the_way_back(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    dsn = await postgres.new_database()
    service = Service(dsn)
    await service.schedules.open()
    await service.schedules.start()
    tried = asyncio.Event()

    async def refuse(*_: object) -> None:
        tried.set()
        raise StoreUnavailableError("not now")

    monkeypatch.setattr(service.store, "hold", refuse)
    await taken_for_dead(postgres, dsn)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await tried.wait()
        assert not service.schedules.running
        await service.schedules.stop()
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "noonbell-return"] == []
    assert not service.schedules.running
    await service.store.close()
