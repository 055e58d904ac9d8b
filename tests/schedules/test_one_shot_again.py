"""A one-shot that has had its time and is given another one comes again; one that a person switched off does not."""

from __future__ import annotations

from typing import Any

import pytest

from noonbell.errors import ScheduleInvalidError
from noonbell.ledger import verify_store
from tests.schedules.conftest import IN_EARNEST, World

LONGEST_WAIT = IN_EARNEST

SOON, LATER = "2026-03-04T12:05", "2026-03-04T13:00"


async def finished(world: World, **fields: Any) -> str:
    key = await world.create(**{"type": "one_shot", "spec": SOON, "name": "once", **fields})
    await world.schedules.start()
    await world.minutes(10)
    assert not (await world.schedules.get(key)).enabled
    return key


async def test_it_comes_again(world: World) -> None:
    key = await finished(world)
    again = await world.schedules.update(key, spec=LATER)
    assert (again.enabled, again.next_run_at is not None) == (True, True)
    await world.minutes(60)
    assert world.called == ["12:05", "13:00"]
    assert not (await world.schedules.get(key)).enabled
    events = [one.event for one in (await world.schedules.audit(subject=key)).items]
    assert events == ["schedule.created", "schedule.updated", "schedule.resumed"]
    assert (await verify_store(world.store)).problems == []


async def test_also_where_it_was_renamed_meanwhile(world: World) -> None:
    key = await finished(world)
    assert not (await world.schedules.update(key, name="renamed")).enabled
    assert (await world.schedules.update(key, spec=LATER)).enabled


async def test_not_where_the_update_says_otherwise(world: World) -> None:
    key = await finished(world)
    assert not (await world.schedules.update(key, spec=LATER, enabled=False)).enabled
    assert (await world.schedules.resume(key)).enabled


@pytest.mark.parametrize("touched", [False, True])
async def test_a_missed_one_comes_again_too(world: World, touched: bool) -> None:
    key = await world.create(type="one_shot", spec=SOON)
    await world.minutes(30)
    await world.schedules.start()
    await world.clock.settle()
    assert (await world.told(key), (await world.schedules.get(key)).enabled) == ([("12:05", "missed")], False)
    if touched:
        assert not (await world.schedules.update(key, tags=["touched"])).enabled
    assert (await world.schedules.update(key, spec=LATER)).enabled
    assert (await verify_store(world.store)).problems == []


async def quiet(world: World) -> str:
    """A one-shot that has come in quiet hours, which go on."""
    window = {"weekdays": list(range(7)), "from": "12:00", "to": "12:30", "timezone": "UTC"}
    policy = await world.schedules.create_quiet_hours("noon", [window])
    key = await world.create(type="one_shot", spec=SOON, quiet_hours_policy_id=policy.policy_id)
    await world.schedules.start()
    await world.minutes(10)
    return key


async def test_one_that_an_edit_has_found_over_comes_again(world: World) -> None:
    key = await quiet(world)
    assert not (await world.schedules.update(key, tags=["touched"])).enabled
    assert await world.told(key) == [("12:05", "skipped")]
    assert (await world.schedules.update(key, spec=LATER)).enabled
    await world.minutes(60)
    assert world.called == ["13:00"]
    assert (await verify_store(world.store)).problems == []


async def test_one_that_a_person_has_found_over_and_switched_off_does_not(world: World) -> None:
    key = await quiet(world)
    assert not (await world.schedules.pause(key)).enabled
    assert not (await world.schedules.update(key, spec=LATER)).enabled


@pytest.mark.parametrize("renamed", [False, True])
async def test_what_a_person_switched_off_stays_off(world: World, renamed: bool) -> None:
    key = await world.create(type="one_shot", spec=SOON)
    await world.schedules.pause(key)
    await world.schedules.start()
    await world.minutes(10)
    if renamed:
        await world.schedules.update(key, name="renamed")
    assert not (await world.schedules.update(key, spec=LATER)).enabled


async def test_another_time_that_is_over_is_refused(world: World) -> None:
    key = await finished(world)
    with pytest.raises(ScheduleInvalidError, match="is in the past"):
        await world.schedules.update(key, spec="2026-03-04T12:07")
    moved = await world.schedules.update(key, timezone="Asia/Tokyo")  # and is over there, too
    assert not moved.enabled
    assert (await world.schedules.update(key, spec="2026-03-05T09:00")).enabled
