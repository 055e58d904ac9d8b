"""Runs that end when a lane is taken over: somebody may be told, in the same transaction."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from noonbell.core.presence import engine_name
from noonbell.core.records import LiveRun, OutboxMessage, Outcome, StoredSchedule
from tests.schedules.conftest import World


async def test_what_is_told_of_runs_that_end_with_their_engine(world: World) -> None:
    await world.create(name="once", at_most_once=True)
    await world.create(name="again")
    asked = await world.create(name="asked", spec="0 0 1 1 *")
    await world.schedules.start()
    world.duration = timedelta(minutes=30)
    await world.schedules.trigger(asked)
    await world.minutes(1)
    assert len(world.calls) == 3
    crashing = asyncio.get_running_loop().create_task(world.crash())
    while not crashing.done():
        await world.minutes(10)
    await crashing
    told: list[tuple[str, str, Outcome]] = []

    def tell(stored: StoredSchedule, live: LiveRun, outcome: Outcome) -> list[OutboxMessage]:
        told.append((stored.columns.name, live.kind, outcome))
        return [OutboxMessage(-stored.sid, "default", f"{stored.sid}", "channel:x", "{}", world.clock.now())]

    hold = await world.store.hold(engine_name("me"), "a test")
    assert (await world.store.engines.rescue("default", "me", world.clock.now(), tell)).queued == 1
    assert sorted(told) == [("asked", "manual", "unknown"), ("once", "scheduled", "unknown")]
    claim = await world.store.outbox.claim("default", "me", world.clock.now(), 10)
    assert sorted(stream.sid for stream in claim.streams) == [-3, -1]
    hold.release()


async def test_a_run_that_is_given_up_is_told_as_abandoned(world: World) -> None:
    await world.create(name="poison", spec="1 12 * * *")
    world.duration = timedelta(minutes=30)
    told: list[Outcome] = []

    def tell(_: StoredSchedule, live: LiveRun, outcome: Outcome) -> list[OutboxMessage]:
        told.append(outcome)
        assert live.crashes == 2
        return []

    for _ in range(3):
        await world.schedules.start()
        await world.minutes(1)
        crashing = asyncio.get_running_loop().create_task(world.crash())
        while not crashing.done():
            await world.minutes(10)
        await crashing
    assert len(world.calls) == 3
    hold = await world.store.hold(engine_name("me"), "a test")
    assert (await world.store.engines.rescue("default", "me", world.clock.now(), tell)).queued == 0
    assert told == ["abandoned"]
    hold.release()
