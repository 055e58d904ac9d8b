"""A stop that was given a time: what has not ended by then is cut off, and handed back by the engine itself."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

from noonbell.core.crashes import CUT_OFF
from noonbell.core.records import LiveRun, OutboxMessage, Outcome, StoredSchedule
from noonbell.ledger import verify_store, why_schedule
from noonbell.ledger.ledger_rows import lifecycle_of
from noonbell.ports import ScheduleFilter
from noonbell.schedules import Call
from tests.patience import PATIENCE_SECONDS
from tests.schedules.conftest import World

SOON = timedelta(seconds=5)


async def stop_within(world: World, seconds: timedelta) -> bool:
    task = asyncio.get_running_loop().create_task(world.schedules.stop(seconds))
    while not task.done():
        await world.clock.advance(timedelta(seconds=1))
    return await task


async def lives_of(world: World, schedule_id: str) -> list[LiveRun]:
    (stored,) = await world.store.schedules.find(ScheduleFilter(schedule_ids=[schedule_id]))
    return stored.lives


async def test_a_run_that_ends_in_time_is_waited_for(world: World) -> None:
    made = await world.create(name="quick")
    await world.schedules.start()
    world.duration = timedelta(seconds=3)
    await world.minutes(0.5)
    assert len(world.calls) == 1
    assert await stop_within(world, SOON)
    assert await world.told(made) == [("12:01", "fired")]
    assert await lives_of(world, made) == []


async def test_one_that_does_not_is_queued_again_and_no_crash_is_counted(world: World) -> None:
    made = await world.create(name="slow", spec="1 12 * * *")
    await world.schedules.start()
    await world.minutes(0.4)
    world.duration = timedelta(hours=3)
    # one more than the deaths after which a run would be given up
    for stops in range(1, 5):
        await world.minutes(0.2)
        assert len(world.calls) == stops
        assert not await stop_within(world, SOON)
        (live,) = await lives_of(world, made)
        assert (live.state, live.cause, live.crashes, live.attempt) == ("queued", "orphan", 0, stops)
        assert live.owner is None
        told = [event.event for event in await lifecycle_of(world.store, "lane:default")]
        assert told == ["init-ok", "stop-start", "stop-end"] * stops
        answer = await why_schedule(world.store, live.sid, world.calls[0].scheduled_for, now=world.clock.now())
        assert "was cut off when its instance ended" in answer.text
        await world.schedules.start()
        await world.clock.settle()
    answer = await why_schedule(world.store, live.sid, world.calls[0].scheduled_for, now=world.clock.now())
    assert "as a restart after a stop" in answer.text
    assert not await stop_within(world, timedelta(0))
    world.duration = timedelta(0)
    await world.schedules.start()
    await world.minutes(1)
    assert {call.run_id for call in world.calls} == {world.calls[0].run_id}, "the same run, whenever it is repeated"
    assert [call.attempt for call in world.calls] == list(range(1, 7))
    (run,) = (await world.schedules.runs(made)).items
    assert run.state == "succeeded"
    attempts = (await world.schedules.run(run.run_id)).tried
    assert [(one.outcome, one.error) for one in attempts] == [("unknown", CUT_OFF)] * 5 + [("succeeded", None)]
    assert (await verify_store(world.store)).problems == []


async def test_what_must_not_be_repeated_ends_as_unknown_and_the_schedule_goes_on(world: World) -> None:
    once = await world.create(name="once", at_most_once=True)
    asked = await world.create(name="asked", spec="0 0 1 1 *")
    await world.schedules.start()
    world.duration = timedelta(hours=3)
    await world.schedules.trigger(asked)
    await world.minutes(0.6)
    assert len(world.calls) == 2
    assert not await stop_within(world, SOON)
    world.duration = timedelta(0)
    for made in (once, asked):
        (run,) = (await world.schedules.runs(made)).items
        assert run.state == "unknown"
        (attempt,) = (await world.schedules.run(run.run_id)).tried
        assert attempt.error == CUT_OFF
    await world.schedules.start()
    await world.minutes(1)
    assert [verdict for _, verdict in await world.told(once)] == ["fired", "fired"]
    assert len(world.calls) == 3
    assert (await verify_store(world.store)).problems == []


async def test_a_stop_without_a_time_that_is_under_way_can_be_cut_short(world: World) -> None:
    made = await world.create(name="slow", spec="1 12 * * *")
    await world.schedules.start()
    world.duration = timedelta(hours=3)
    await world.minutes(1)
    patient = asyncio.get_running_loop().create_task(world.schedules.stop())
    await world.minutes(10)
    assert not patient.done()
    assert not await stop_within(world, timedelta(0))
    assert not await patient
    (live,) = await lives_of(world, made)
    assert live.state == "queued"


async def test_runs_beside_each_other_are_all_handed_back(world: World) -> None:
    made = await world.create(name="many", overlap="allow")
    await world.schedules.start()
    world.duration = timedelta(hours=3)
    await world.minutes(3)
    assert len(world.calls) == 3
    assert not await stop_within(world, SOON)
    assert [(live.state, live.crashes) for live in await lives_of(world, made)] == [("queued", 0)] * 3


async def test_a_plain_function_goes_on_and_its_end_counts_for_nothing(world: World) -> None:
    begun, go_on, over = threading.Event(), threading.Event(), threading.Event()

    def plain(_: Call) -> None:
        begun.set()
        go_on.wait(PATIENCE_SECONDS)
        over.set()

    world.schedules.register("plain", plain)
    made = await world.create(name="plain", spec="1 12 * * *", action={"kind": "callback", "name": "plain"})
    await world.schedules.start()
    await world.minutes(1)
    assert await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
    assert not await stop_within(world, SOON)
    go_on.set()
    assert await asyncio.to_thread(over.wait, PATIENCE_SECONDS)
    await world.clock.settle()
    (live,) = await lives_of(world, made)
    assert (live.state, live.attempt) == ("queued", 1)


async def test_only_the_runs_of_the_engine_that_stops_are_handed_over(world: World) -> None:
    made = await world.create(name="slow", spec="1 12 * * *")
    await world.schedules.start()
    world.duration = timedelta(hours=3)
    await world.minutes(1)
    (live,) = await lives_of(world, made)
    told: list[Outcome] = []

    def tell(_: StoredSchedule, __: LiveRun, outcome: Outcome) -> list[OutboxMessage]:
        told.append(outcome)
        return []

    for stopped in (True, False):
        freed = await world.store.engines.rescue("default", "another", world.clock.now(), tell, stopped=stopped)
        assert (freed.queued, freed.dead) == (0, [])
    assert await lives_of(world, made) == [live]
    assert told == []
    world.duration = timedelta(0)
    assert not await stop_within(world, timedelta(0))
