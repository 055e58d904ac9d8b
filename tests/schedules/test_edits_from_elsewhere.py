"""Edits beside an engine that is at work: by another process, by a slow clock, in the middle of a run."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from noonbell.core.presence import EngineRecord, EngineSign, engine_name, lanes_up
from noonbell.core.records import Start
from noonbell.engine import membership
from noonbell.errors import ScheduleInvalidError
from noonbell.ledger import verify_store
from noonbell.ports import ScheduleFilter
from noonbell.schedules import Schedules
from noonbell.testing import ManualClock
from tests.schedules.conftest import ACTION, IN_EARNEST, World

LONGEST_WAIT = IN_EARNEST


async def stopped(world: World) -> None:
    task = asyncio.get_running_loop().create_task(world.schedules.stop())
    while not task.done():
        await world.minutes(1)
    await task


async def problems(world: World) -> list[str]:
    return [problem.text for problem in (await verify_store(world.store)).problems]


@pytest.mark.parametrize("change", ["update", "delete"])
async def test_an_interval_is_not_left_before_the_start_that_it_counts_from(world: World, change: str) -> None:
    key = await world.create(type="interval", spec="60")
    await world.minutes(70 / 60)
    await world.schedules.start()
    await world.clock.settle()
    assert world.called == ["12:01"]
    behind = Schedules(world.store, clock=ManualClock(world.clock.now() - 5_000_000))
    await (behind.update(key, spec="120") if change == "update" else behind.delete(key))
    first = (await world.store.history.epochs(1))[0]
    assert first.to_at == world.clock.now()  # when its run began, by the clock of the engine
    await world.minutes(5)
    assert await problems(world) == []


async def test_an_interval_that_is_to_start_later_is_edited_at_the_time_of_the_edit(world: World) -> None:
    key = await world.create(type="interval", spec="60")
    await world.schedules.start()
    await world.minutes(2)
    await world.schedules.update(key, start_at="2026-03-04T13:00")  # it counts from 12:59 now
    await world.minutes(1)
    await world.schedules.update(key, name="renamed")
    assert (await world.store.history.epochs(1))[1].to_at == world.clock.now()
    assert await problems(world) == []


async def test_after_an_edit_during_its_run_a_schedule_looks_at_once(world: World) -> None:
    key = await world.create()
    await world.schedules.start()
    world.duration = timedelta(minutes=3)
    await world.minutes(1)
    await world.schedules.update(key, name="renamed")
    await stopped(world)
    (stored,) = await world.store.schedules.find(ScheduleFilter(schedule_ids=[key]))
    assert stored.next_run_at == stored.cursor_at
    assert await problems(world) == []
    world.duration = timedelta(0)
    await world.schedules.start()
    await world.minutes(1)
    assert all(verdict != "pending" for _, verdict in await world.told(key))
    assert await problems(world) == []


async def test_a_run_that_is_not_repeated_leaves_what_is_due_to_a_look_at_once(world: World) -> None:
    key = await world.create(at_most_once=True)
    await world.schedules.start()
    world.duration = timedelta(minutes=30)
    await world.minutes(4)
    crashing = asyncio.get_running_loop().create_task(world.crash())
    while not crashing.done():
        await world.minutes(10)
    await crashing
    hold = await world.store.hold(engine_name("me"), "a test")
    await world.store.engines.rescue("default", "me", world.clock.now())
    hold.release()
    (stored,) = await world.store.schedules.find(ScheduleFilter(schedule_ids=[key]))
    assert stored.next_run_at == stored.cursor_at
    assert await problems(world) == []


async def test_a_handed_back_run_of_an_earlier_epoch_brings_no_wake_up_of_its_own(world: World) -> None:
    key = await world.create(spec="* * * * *")
    await world.schedules.start()
    world.duration = timedelta(minutes=3)
    await world.minutes(1)
    (live,) = await world.store.runs.live(1)
    assert live.owner is not None
    (stored,) = await world.store.schedules.find(ScheduleFilter(schedule_ids=[key]))
    await world.schedules.update(key, spec="*/7 * * * *")
    far = world.clock.now() + 3_600_000_000
    start = Start(1, live.kind, live.run_for, live.fence, live.attempt, live.cause, stored.epoch, 0, 0, far)
    await world.store.runs.hand_back([start], live.owner, world.clock.now())
    (after,) = await world.store.schedules.find(ScheduleFilter(schedule_ids=[key]))
    assert after.next_run_at == after.cursor_at


# --- who is up --------------------------------------------------------------------------------------------------------


async def test_an_edit_by_another_process_knows_that_the_lane_was_polled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "LOOK", 2_000_000)  # as in earnest: what a process does not record it cannot tell
    monkeypatch.setattr(membership, "BEAT", 5_000_000)
    key = await world.create(retry={"attempts": 3, "delay_seconds": 1200, "strategy": "fixed"})
    await world.schedules.start()
    world.failures = 99
    await world.minutes(10)
    await Schedules(world.store, clock=world.clock).update(key, name="renamed")
    assert {verdict for _, verdict in await world.told(key)} == {"fired", "coalesced"}
    assert await world.audits(key, "schedule.missed") == []


async def test_an_edit_while_nothing_is_up_says_so(world: World) -> None:
    key = await world.create()
    await world.schedules.start()
    await world.minutes(1)
    await stopped(world)
    await world.minutes(10)
    await Schedules(world.store, clock=world.clock).update(key, name="renamed")
    assert len(await world.audits(key, "schedule.missed")) >= 8


async def test_which_lanes_are_up(world: World) -> None:
    store, began = world.store, world.clock.now()
    assert lanes_up((await store.engines.members(0)).alive) == {}
    await world.schedules.start()
    await world.minutes(1)
    assert lanes_up((await store.engines.members(0)).alive) == {"default": began}
    # an engine that has joined a lane is up when it says so, and until it has left
    hold = await store.hold(engine_name("new-2"), "process 2")
    await store.engines.join(EngineRecord("new-2", "other", "h", 2, "1", "-", began + 1, began + 1))
    assert lanes_up((await store.engines.members(0)).alive) == {"default": began}
    await store.engines.beat(EngineSign("new-2", began + 2, began + 1, "up"), lambda: began + 2)
    await store.engines.beat(EngineSign("new-2", began + 3, began + 1, "stopping"), lambda: began + 3)
    assert lanes_up((await store.engines.members(0)).alive) == {"default": began, "other": began + 1}
    await store.engines.leave("new-2")
    assert lanes_up((await store.engines.members(0)).alive) == {"default": began}
    hold.release()
    await stopped(world)
    assert lanes_up((await store.engines.members(0)).alive) == {}


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "fields", "field"),
    [
        ({"type": "one_shot", "spec": "2026-03-04T13:00"}, {"timezone": "Asia/Tokyo"}, "timezone"),
        ({"type": "one_shot", "spec": "2026-03-04T13:00"}, {"spec": "2026-03-04T12:00"}, "spec"),
        ({}, {"end_at": "2026-03-04T12:00"}, "end_at"),
        ({"type": "interval", "spec": "60"}, {"end_at": "2026-03-04T12:00"}, "end_at"),
        ({"spec": "0 0 5 3 *", "end_at": "2027-01-01T00:00"}, {"start_at": "2026-03-06T00:00"}, "start_at"),
    ],
)
async def test_an_update_that_leaves_nothing_to_come_is_refused(
    world: World, made: dict[str, Any], fields: dict[str, Any], field: str
) -> None:
    key = await world.create(**made)
    before = await world.schedules.get(key)
    with pytest.raises(ScheduleInvalidError) as refused:
        await world.schedules.update(key, **fields)
    assert refused.value.field == field
    assert await world.schedules.get(key) == before
    paused = await world.schedules.update(key, enabled=False, **fields)
    assert (paused.enabled, paused.next_run_at) == (False, None)


async def test_a_schedule_that_has_come_to_its_end_can_still_be_renamed(world: World) -> None:
    key = await world.create(end_at="2026-03-04T12:02")
    await world.schedules.start()
    await world.minutes(5)
    assert (await world.schedules.update(key, name="renamed")).name == "renamed"


# --- what is told -----------------------------------------------------------------------------------------------------


async def test_one_missed_slot_that_is_caught_up_is_told_as_one(world: World) -> None:
    key = await world.create(spec="0 12 5 3 *", catch_up_policy="run_once")
    await world.minutes(24 * 60 + 5)
    await world.schedules.start()
    await world.clock.settle()
    assert world.called == ["12:00"]
    run_for = 1_772_712_000_000_000
    assert await world.audits(key, "schedule.coalesced") == [
        {
            "from": run_for, "to": run_for, "count": 0, "slots": 1, "fired_for": run_for,
            "reason": "one run for all that was missed",
        }
    ]  # fmt: skip


async def test_a_run_in_time_is_not_told(world: World) -> None:
    key = await world.create(catch_up_policy="run_once")
    await world.schedules.start()
    await world.minutes(3)
    assert len(world.called) == 3
    assert await world.audits(key, "schedule.coalesced") == []


async def test_what_becomes_of_quiet_hours_is_told_whole(world: World) -> None:
    night = {"from": "22:00", "to": "06:00", "timezone": "UTC", "weekdays": [1, 2]}
    noon = {"from": "12:00", "to": "13:00", "timezone": "UTC", "weekdays": [3]}
    made = await world.schedules.create_quiet_hours("nights", [night])
    await world.schedules.update_quiet_hours(made.policy_id, windows=[noon])
    await world.schedules.update_quiet_hours(made.policy_id, name="noons")
    await world.schedules.delete_quiet_hours(made.policy_id)
    page = await world.schedules.audit(subject=made.policy_id)
    first, second = {"name": "nights", "windows": [night]}, {"name": "nights", "windows": [noon]}
    third = {"name": "noons", "windows": [noon]}
    assert [(one.event, one.detail) for one in page.items] == [
        ("quiet_hours.created", first),
        ("quiet_hours.updated", {"before": first, "after": second}),
        ("quiet_hours.updated", {"before": second, "after": third}),
        ("quiet_hours.deleted", third),
    ]


async def test_a_lane_of_its_own_is_asked_for(world: World) -> None:
    """An engine that is up on one lane says nothing of another."""
    elsewhere = Schedules(world.store, clock=world.clock, lane="elsewhere")
    made = await elsewhere.create(type="cron", spec="* * * * *", action=ACTION)
    await world.schedules.start()
    await world.minutes(10)
    await world.schedules.update(made.schedule_id, name="renamed")
    assert len(await world.audits(made.schedule_id, "schedule.missed")) >= 8
