"""Runs that a person asks for: retried by the schedule's policy, queued on demand, one after the other."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from noonbell.core.records import MOST_ASKED
from noonbell.errors import ScheduleBusyError, ScheduleInvalidError
from noonbell.ledger.verify import verify_store
from tests.schedules.conftest import World

SELDOM = {"spec": "0 0 1 1 *"}
RETRY = {"attempts": 3, "delay_seconds": 60, "strategy": "fixed"}


async def causes(world: World, run_id: str) -> list[tuple[str, str]]:
    return [(one.cause, one.outcome) for one in (await world.schedules.run(run_id)).tried]


async def test_it_is_retried_by_the_policy_of_its_schedule(world: World) -> None:
    key = await world.create(**SELDOM, retry=RETRY)
    await world.schedules.start()
    world.failures = 2
    run_id = await world.schedules.trigger(key, via="api")
    await world.clock.settle()
    run = await world.schedules.run(run_id)
    assert (run.state, len(world.calls)) == ("waiting", 1)
    with pytest.raises(ScheduleBusyError):
        await world.schedules.trigger(key)
    assert (await verify_store(world.store)).problems == []
    await world.minutes(1.5)
    assert len(world.calls) == 2
    await world.minutes(1.5)
    run = await world.schedules.run(run_id)
    assert run.state == "succeeded"
    assert await causes(world, run_id) == [("api", "failed"), ("retry", "failed"), ("retry", "succeeded")]
    assert {(call.run_id, call.manual) for call in world.calls} == {(run_id, True)}
    assert [call.attempt for call in world.calls] == [1, 2, 3]
    assert (await verify_store(world.store)).problems == []


async def test_without_retry_it_is_attempted_once(world: World) -> None:
    key = await world.create(**SELDOM, retry=RETRY)
    await world.schedules.start()
    world.failures = 1
    run_id = await world.schedules.trigger(key, retry=False)
    await world.minutes(5)
    assert (await world.schedules.run(run_id)).state == "failed"
    assert await causes(world, run_id) == [("manual", "failed")]
    assert len(world.calls) == 1


async def test_it_ends_as_failed_after_its_last_attempt(world: World) -> None:
    key = await world.create(**SELDOM, retry=RETRY)
    await world.schedules.start()
    world.failures = 5
    run_id = await world.schedules.trigger(key)
    await world.minutes(10)
    assert (await world.schedules.run(run_id)).state == "failed"
    assert len(world.calls) == 3
    await world.schedules.trigger(key)
    assert (await verify_store(world.store)).problems == []


async def test_a_paused_schedule_retries_what_was_asked_for(world: World) -> None:
    key = await world.create(**SELDOM, retry=RETRY)
    await world.schedules.pause(key)
    await world.schedules.start()
    world.failures = 1
    run_id = await world.schedules.trigger(key)
    await world.minutes(2)
    assert (await world.schedules.run(run_id)).state == "succeeded"
    assert (await world.schedules.get(key)).next_run_at is None


@pytest.mark.parametrize(
    ("policy", "told", "states"),
    [
        # the occurrences of the chain are one run behind it
        ("finish", [("12:01", "coalesced"), ("12:02", "fired"), ("12:03", "fired")], "succeeded"),
        ("preempt", [("12:01", "fired"), ("12:02", "fired"), ("12:03", "fired")], "failed"),
    ],
)
async def test_its_retries_and_new_occurrences(
    world: World, policy: str, told: list[tuple[str, str]], states: str
) -> None:
    key = await world.create(retry={**RETRY, "delay_seconds": 90}, retry_vs_new=policy)
    await world.schedules.start()
    world.failures = 1
    run_id = await world.schedules.trigger(key)
    await world.minutes(2.75)
    assert await world.told(key) == told
    assert (await world.schedules.run(run_id)).state == states
    assert (await verify_store(world.store)).problems == []


async def test_quiet_hours_do_not_hold_back_its_retries(world: World) -> None:
    windows = [{"weekdays": list(range(7)), "from": "00:00", "to": "24:00", "timezone": "UTC"}]
    policy = await world.schedules.create_quiet_hours("all day", windows)
    key = await world.create(retry=RETRY, quiet_hours_policy_id=policy.policy_id)
    await world.schedules.start()
    world.failures = 1
    run_id = await world.schedules.trigger(key)
    await world.minutes(1.25)
    assert (await world.schedules.run(run_id)).state == "succeeded"


async def test_what_is_queued_starts_after_what_is_under_way_in_order(world: World) -> None:
    key = await world.create(**SELDOM, retry={**RETRY, "attempts": 2})
    await world.schedules.start()
    world.duration = timedelta(seconds=30)
    world.failures = 1
    first = await world.schedules.trigger(key)
    await world.clock.settle()
    second = await world.schedules.trigger(key, queue=True)
    third = await world.schedules.trigger(key, queue=True)
    with pytest.raises(ScheduleBusyError, match="or queue it"):
        await world.schedules.trigger(key)
    await world.minutes(0.75)  # the first waits for its retry, and the others behind it
    assert [call.run_id for call in world.calls] == [first]
    assert (await verify_store(world.store)).problems == []
    await world.minutes(5)
    assert [call.run_id for call in world.calls] == [first, first, second, third]
    assert [(await world.schedules.run(one)).state for one in (first, second, third)] == ["succeeded"] * 3
    assert (await verify_store(world.store)).problems == []


async def test_what_is_queued_does_not_overlap_occurrences(world: World) -> None:
    key = await world.create()
    await world.schedules.start()
    world.duration = timedelta(seconds=40)
    await world.minutes(0.75)  # the run of 12:01 executes
    queued = await world.schedules.trigger(key, queue=True)
    await world.minutes(5)
    starts = sorted((run.started_at, run.ended_at) for run in await all_runs(world, key))
    assert all(ended <= begun for (_, ended), (begun, _) in pairwise(starts))
    assert (await world.schedules.run(queued)).state == "succeeded"
    assert (await verify_store(world.store)).problems == []


async def all_runs(world: World, key: str) -> list[Any]:
    return [run for run in (await world.schedules.runs(key)).items if run.ended_at is not None]


async def test_the_queue_is_bounded(world: World) -> None:
    key = await world.create(**SELDOM)
    for _ in range(MOST_ASKED):
        await world.schedules.trigger(key, queue=True)
    with pytest.raises(ScheduleBusyError, match="100 triggered runs"):
        await world.schedules.trigger(key, queue=True)


async def test_a_restart_between_two_attempts_goes_on(world: World) -> None:
    key = await world.create(**SELDOM, retry=RETRY)
    await world.schedules.start()
    world.failures = 1
    run_id = await world.schedules.trigger(key)
    await world.clock.settle()
    await world.crash()
    await world.schedules.start()
    await world.minutes(2)
    assert (await world.schedules.run(run_id)).state == "succeeded"
    assert [call.attempt for call in world.calls] == [1, 2]


@pytest.mark.parametrize("field", ["queue", "retry"])
async def test_flags_are_checked(world: World, field: str) -> None:
    key = await world.create()
    with pytest.raises(ScheduleInvalidError, match=f"{field}.*must be true or false"):
        await world.schedules.trigger(key, **{field: 1})  # type: ignore[arg-type]  # what is wrong with it
