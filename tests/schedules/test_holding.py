"""Who has the lane: it is kept while anything of ours runs, and taken again after another has had it."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest

from noonbell.errors import SchedulerInUseError
from noonbell.ledger import verify_store
from noonbell.schedules import Schedules
from tests.schedules.conftest import World
from tests.schedules.test_postgres_trouble import Service, until
from tests.store.postgres_server import PostgresServer

LANE = "lane:default"


async def test_a_stop_that_nobody_waits_for_keeps_the_lane_until_all_has_ended(world: World) -> None:
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
    with pytest.raises(SchedulerInUseError, match="default"):
        await other.start()

    again = asyncio.create_task(world.schedules.stop())
    await world.minutes(4)
    assert not again.done(), "the run is under way for another minute"
    await world.minutes(1)
    await again
    assert (await world.told(key))[0] == ("12:01", "fired")
    kinds = [event.event for event in await world.store.lifecycle(LANE)]
    assert kinds == ["init-ok", "stop-start", "stop-end"], "both have waited for one stop"
    world.duration = timedelta(0)
    await other.start()
    await world.clock.settle()
    assert other.running
    await other.stop()


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


class Thief:
    """Another engine, as the database sees it: the lease has run out, and it was the first to take the name.

    Both in one statement. To let a lease run out and take it then would be a race with its holder, who tries, too.
    """

    def __init__(self, postgres: PostgresServer, dsn: str) -> None:
        self._postgres = postgres
        self._database = dsn.rpartition("/")[2]

    async def steal(self) -> None:
        sql = "UPDATE instances SET token = 'thief', holder = 'another engine', expires_at = now() + interval '1 h'"
        await self._postgres.execute(self._database, sql)

    async def give_back(self) -> None:
        await self._postgres.execute(self._database, "DELETE FROM instances WHERE token = 'thief'")


async def test_an_engine_whose_lane_was_taken_says_so_and_comes_back(
    postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    dsn = await postgres.new_database()
    service, thief = Service(dsn), Thief(postgres, dsn)
    await service.schedules.open()
    await service.create()
    await service.schedules.start()
    await service.minute()
    caplog.set_level(logging.WARNING)
    caplog.clear()

    await thief.steal()
    service.clock.shift_seconds += 60

    async def is_down() -> bool:
        return not service.schedules.running

    async def is_up() -> bool:
        return service.schedules.running

    await until(is_down)
    called = service.called.total()
    for _ in range(3):
        with pytest.raises(SchedulerInUseError):
            await service.schedules.start()
        await asyncio.sleep(0.4)  # the store would have failed many a look by now
    assert service.called.total() == called
    told = [record.message for record in caplog.records if record.name != "noonbell.store"]
    assert told == [
        'Another engine has taken the lane "default"; nothing more is started here until the lane is free again'
    ]

    await thief.give_back()
    await until(is_up)
    await service.minute()
    await service.schedules.stop()
    assert (await verify_store(service.store)).problems == []
    assert 'The lane "default" is ours again' in caplog.messages
    await service.store.close()


async def test_a_stop_ends_the_wait_for_a_lane_that_was_taken(postgres: PostgresServer) -> None:
    dsn = await postgres.new_database()
    service, thief = Service(dsn), Thief(postgres, dsn)
    await service.schedules.open()
    await service.schedules.start()
    await thief.steal()

    async def is_down() -> bool:
        return not service.schedules.running

    await until(is_down)
    await service.schedules.stop()
    await thief.give_back()
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "noonbell-return"] == []
    assert not service.schedules.running
    await service.store.close()
