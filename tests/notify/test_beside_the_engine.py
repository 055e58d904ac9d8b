"""What is told although no look has decided it: misses that an edit finds, and runs that end with their engine."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from noonbell.store.memory import MemoryStore
from tests.notify.conftest import World
from tests.notify.servers import Hook


async def test_what_an_edit_finds_missed_is_told(world: World) -> None:
    await world.channel()
    key = await world.schedule(spec="0 * * * *")
    await world.schedules.rules.create(name="r", on=["missed"], channels=["ops"])
    await world.minutes(60 * 5 + 2)
    await world.schedules.update(key, spec="30 * * * *")  # nothing is up: it is decided here, and delivered later
    await world.schedules.start()
    (told,) = await world.told(1)
    assert (told["data"]["event"], told["data"]["count"]) == ("missed", 5)


async def test_what_a_deletion_leaves_undone_is_not_told(world: World) -> None:
    await world.channel()
    key = await world.schedule(spec="0 * * * *")
    await world.schedules.rules.create(name="r", on=["missed"], channels=["ops"])
    await world.minutes(60 * 5 + 2)
    await world.schedules.delete(key)
    await world.schedules.start()
    await world.minutes(1)
    await world.settled()
    assert world.hook.came == []


@pytest.mark.parametrize("repeated", [False, True])
async def test_a_run_that_ends_with_its_engine_is_told(hook: Hook, repeated: bool) -> None:
    data = MemoryStore().data
    store = MemoryStore(data)
    await store.open()
    world = World(store, hook)
    await world.channel()
    await world.schedule(spec="1 12 * * *", at_most_once=not repeated)
    await world.schedules.rules.create(name="r", on=["failed"], channels=["ops"])
    world.takes = timedelta(minutes=30)
    await world.schedules.start()
    await world.minutes(1)
    store.kill()
    abandoned = asyncio.ensure_future(world.schedules.stop())
    again = MemoryStore(data)
    await again.open()
    second = World(again, hook)
    second.keys, second.clock = world.keys, world.clock
    second.schedules = second.new()
    await second.schedules.start()
    await second.minutes(1)
    if repeated:
        await second.settled()
        assert hook.came == [], "it goes on"
    else:
        (told,) = await second.told(1)
        assert told["data"]["error"] == "the engine ended while it was executing, and it is not repeated"
        assert told["data"]["event"] == "failed"
    await second.stop()
    while not abandoned.done():
        await world.minutes(1)
        await asyncio.sleep(0.01)
    await asyncio.gather(abandoned, return_exceptions=True)
