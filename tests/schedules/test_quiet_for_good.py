"""Quiet hours without an end: the schedule sleeps without a wake-up, everybody can read it, and a change wakes it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from noonbell.ledger import verify_store, why
from tests.schedules.conftest import NOON, World

ALWAYS = {"weekdays": list(range(7)), "from": "00:00", "to": "00:00", "timezone": "Europe/Kyiv"}
AT_NIGHT = {**ALWAYS, "from": "22:00", "to": "06:00"}


async def quiet_world(world: World, **fields: Any) -> str:
    await world.schedules.create_quiet_hours("forever", [ALWAYS], policy_id="forever")
    schedule_id = await world.create(name="hush", quiet_hours_policy_id="forever", **fields)
    await world.schedules.start()
    return schedule_id


async def test_it_can_be_read_and_has_no_wake_up(world: World) -> None:
    schedule_id = await quiet_world(world)
    await world.minutes(3)
    assert world.calls == []
    assert (await world.schedules.get(schedule_id)).next_run_at is None
    assert [one.next_run_at for one in (await world.schedules.list()).items] == [None]
    assert [one.quiet for one in await world.schedules.preview(schedule_id, 2)] == [True, True]
    assert [told for _, told in await world.told(schedule_id)] == ["skipped"] * 3
    report = await verify_store(world.store)
    assert (report.problems, report.schedules) == ([], 1)
    answer = await why(world.store, "hush", NOON + timedelta(minutes=1), now=world.clock.now())
    assert answer.text == (
        "hush did not run for 2026-03-04 12:01 UTC: it is skipped, since it lies in the quiet hours of the policy "
        '"forever", which have no end. The ledger records it when they are changed.'
    )
    latest = await why(world.store, "hush", now=world.clock.now())
    assert latest.text.endswith(
        'Nothing comes next: the quiet hours of the policy "forever" have no end; the next occurrence that they '
        "silence is 2026-03-04 12:04 UTC."
    )
    assert latest.facts["next"] is None


async def test_a_change_of_the_quiet_hours_wakes_it(world: World) -> None:
    schedule_id = await quiet_world(world)
    await world.minutes(3)
    await world.schedules.update_quiet_hours("forever", windows=[AT_NIGHT])
    assert (await world.schedules.get(schedule_id)).next_run_at == NOON + timedelta(minutes=3, seconds=30)
    await world.minutes(2)
    assert world.called == ["12:04", "12:05"]
    assert [told for _, told in await world.told(schedule_id)] == ["skipped"] * 3 + ["fired"] * 2
    assert (await verify_store(world.store)).problems == []


async def test_a_retry_sleeps_too_and_goes_on_after_the_change(world: World) -> None:
    world.failures = 1
    retry = {"attempts": 3, "delay_seconds": 90, "strategy": "fixed"}
    schedule_id = await world.create(name="again", retry=retry)
    await world.schedules.create_quiet_hours("forever", [ALWAYS], policy_id="forever")
    await world.schedules.start()
    await world.minutes(1)
    await world.schedules.update(schedule_id, quiet_hours_policy_id="forever")
    await world.minutes(10)
    assert world.called == ["12:01"]
    assert (await world.schedules.list()).items[0].next_run_at is None
    assert (await verify_store(world.store)).problems == []
    answer = await why(world.store, "again", NOON + timedelta(seconds=30), now=world.clock.now())
    assert "waits for the end of its quiet hours, which have none, to be tried again" in answer.text
    await world.schedules.update_quiet_hours("forever", windows=[AT_NIGHT])
    await world.minutes(1)
    assert world.called[:2] == ["12:01", "12:01"]
    assert (await verify_store(world.store)).problems == []


async def test_a_capped_catch_up_sleeps_too(world: World) -> None:
    schedule_id = await quiet_world(world, catch_up_policy="run_all_capped", catch_up_cap=2)
    await world.schedules.update(schedule_id, quiet_hours_policy_id=None)
    await world.schedules.stop()
    await world.minutes(5)
    await world.schedules.update_quiet_hours("forever", windows=[ALWAYS])
    await world.schedules.update(schedule_id, quiet_hours_policy_id="forever")
    await world.schedules.start()
    await world.minutes(2)
    assert (await world.schedules.get(schedule_id)).next_run_at is None
    assert world.calls == []
    assert (await verify_store(world.store)).problems == []
