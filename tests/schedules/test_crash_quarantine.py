"""A run that brings down engine after engine is abandoned; its neighbours are not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest

from noonbell.core.records import MOST_CRASHES
from noonbell.ledger import verify_store
from noonbell.ports import RunFilter
from tests.schedules.conftest import World

RARELY = "1 12 * * *"

Die = Callable[[], Awaitable[None]]


@pytest.fixture
async def die(world: World) -> AsyncIterator[Die]:
    """The process dies while its runs execute, and the next one starts in its place."""
    graves: list[asyncio.Task[bool]] = []

    async def once() -> None:
        world.store.kill()
        graves.append(asyncio.create_task(world.schedules.stop()))  # it ends when its runs do, which nobody sees
        world.schedules = world._new()
        await world.schedules.open()
        await world.schedules.start()
        await world.clock.settle()

    yield once
    while not all(grave.done() for grave in graves):
        await world.minutes(1)
    await asyncio.gather(*graves)


async def test_a_run_is_given_up_after_three_deaths_and_its_schedule_goes_on(world: World, die: Die) -> None:
    key = await world.create(spec="1,20 12 * * *", catch_up_policy="run_once")
    world.duration = timedelta(minutes=30)
    await world.schedules.start()
    await world.minutes(1)
    for death in range(1, MOST_CRASHES + 1):
        assert len(world.calls) == death
        await die()
    assert len(world.calls) == MOST_CRASHES
    (run,) = await world.store.history.runs(RunFilter(1, 0, world.clock.now()))
    assert (run.outcome, run.attempts) == ("abandoned", MOST_CRASHES)
    (told,) = (await world.schedules.audit(event="schedule.quarantined")).items
    assert (told.subject, told.actor) == (key, "engine")
    assert (told.detail["crashes"], told.detail["run_for"]) == (MOST_CRASHES, run.run_for)
    assert "died 3 times" in told.detail["reason"]
    world.duration = timedelta(0)
    await world.minutes(30)
    assert (await world.schedules.get(key)).enabled
    assert await world.told(key) == [("12:01", "fired"), ("12:20", "fired")]
    assert world.called[-1] == "12:20"
    assert (await verify_store(world.store)).problems == []


async def test_after_one_death_all_runs_start_again_at_once(world: World, die: Die) -> None:
    keys = {await world.create(spec=RARELY) for _ in range(20)}
    world.duration = timedelta(minutes=10)
    await world.schedules.start()
    await world.minutes(1)
    world.calls.clear()
    await die()
    assert len(world.calls) == len(keys)
    assert {(call.schedule_id, call.attempt) for call in world.calls} == {(key, 2) for key in keys}


async def test_after_two_deaths_runs_start_one_at_a_time_and_others_are_not_held_up(world: World, die: Die) -> None:
    for _ in range(3):
        await world.create(spec=RARELY)
    other = await world.create(spec="2 12 * * *")
    world.duration = timedelta(minutes=10)
    await world.schedules.start()
    await world.minutes(1)
    await die()
    world.calls.clear()
    await die()
    await world.minutes(9)
    assert [call.attempt for call in world.calls if call.schedule_id != other] == [3], "the first has not ended"
    assert other in {call.schedule_id for call in world.calls}
    await world.minutes(2)
    assert [call.attempt for call in world.calls if call.schedule_id != other] == [3, 3]
    await world.minutes(20)
    runs = [run for sid in (1, 2, 3) for run in await world.store.history.runs(RunFilter(sid, 0, world.clock.now()))]
    assert [(run.outcome, run.attempts) for run in runs] == [("succeeded", 3)] * 3
    assert (await verify_store(world.store)).problems == []


async def test_runs_on_probation_that_end_soon_follow_each_other_closely(world: World, die: Die) -> None:
    for _ in range(20):
        await world.create(spec=RARELY)
    world.duration = timedelta(minutes=10)
    await world.schedules.start()
    await world.minutes(1)
    await die()
    world.duration = timedelta(0)
    world.calls.clear()
    await die()
    await world.clock.advance(timedelta(seconds=1))
    assert len({call.schedule_id for call in world.calls}) == len(world.calls) == 20


async def test_a_run_on_probation_that_fails_is_retried(world: World, die: Die) -> None:
    for _ in range(3):
        await world.create(spec=RARELY, retry={"attempts": 9, "delay_seconds": 2, "strategy": "fixed"})
    world.duration = timedelta(minutes=10)
    await world.schedules.start()
    await world.minutes(1)
    await die()
    world.duration, world.failures = timedelta(seconds=1), 4
    await die()
    await world.minutes(1)
    runs = [run for sid in (1, 2, 3) for run in await world.store.history.runs(RunFilter(sid, 0, world.clock.now()))]
    assert [run.outcome for run in runs] == ["succeeded"] * 3
    assert sum(run.attempts for run in runs) == 3 * 3 + 4


async def test_a_neighbour_of_a_poisonous_run_is_not_given_up(world: World, die: Die) -> None:
    """The poisonous one brings the engine down within five seconds of each of its starts."""
    poison = await world.create(spec=RARELY, name="poison")
    innocent = [await world.create(spec=RARELY) for _ in range(4)]
    world.duration = timedelta(minutes=2)
    await world.schedules.start()
    await world.minutes(1)
    deaths = 0
    for _ in range(150):
        if any(call.schedule_id == poison for call in world.calls):
            deaths += 1
            world.calls.clear()
            await die()
        await world.clock.advance(timedelta(seconds=5))
    assert deaths == MOST_CRASHES
    (told,) = (await world.schedules.audit(event="schedule.quarantined")).items
    assert told.subject == poison
    for key in innocent:
        (one,) = (await world.schedules.occurrences(key)).items
        assert one.state == "succeeded"
    assert (await verify_store(world.store)).problems == []


async def test_under_overlap_allow_new_occurrences_start_beside_runs_on_probation(world: World, die: Die) -> None:
    await world.create(spec=RARELY)
    key = await world.create(overlap="allow")
    world.duration = timedelta(minutes=30)
    await world.schedules.start()
    await world.minutes(1)
    await die()
    await die()
    await world.clock.advance(timedelta(seconds=1))
    assert len([call for call in world.calls if call.attempt == 3]) == 1, "the two start one after the other"
    world.calls.clear()
    await world.minutes(1)
    assert ("12:02", 1) in [
        (f"{call.scheduled_for:%H:%M}", call.attempt) for call in world.calls if call.schedule_id == key
    ]
