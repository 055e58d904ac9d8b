"""One schedule whole: the same as its parts, read one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from noonbell.errors import ScheduleInvalidError, ScheduleNotFoundError
from noonbell.ports import ScheduleFilter
from tests.schedules.conftest import NOON, World
from tests.schedules.test_occurrences import eventful

LONG_AGO = datetime(1971, 1, 1, tzinfo=UTC)


async def test_it_is_the_same_as_its_parts(world: World) -> None:
    keys = await eventful(world)
    for key in keys[:3]:
        await world.schedules.trigger(key)
    schedules = world.schedules
    for key in keys:
        whole = await schedules.detail(key, occurrences=20, runs=7)
        schedule = await schedules.get(key)
        assert whole.schedule == schedule
        assert whole.history == await world.store.history.find(key)
        assert whole.began_at == NOON
        assert whole.coming == (await schedules.preview(key) if schedule.enabled else [])
        assert whole.runs == (await schedules.runs(key, limit=7)).items
        assert whole.statistics == await schedules.statistics(key, last=7)
        assert whole.occurrences == await schedules.occurrences(key, start=LONG_AGO, order="newest", limit=20)
        policy = schedule.quiet_hours_policy_id
        assert whole.quiet_hours == (None if policy is None else await schedules.get_quiet_hours(policy))
        (stored,) = await world.store.schedules.find(ScheduleFilter(schedule_ids=[key]))
        alive = [f"{key}:{live.kind}:{live.run_for}" for live in stored.lives]
        assert list(whole.live) == [await schedules.run(run_id) for run_id in alive]
        upto = NOON + timedelta(minutes=20)
        before = await schedules.occurrences(key, start=LONG_AGO, end=upto, order="newest", limit=5)
        assert (await schedules.detail(key, upto=upto, occurrences=5)).occurrences == before
    assert (await schedules.detail(keys[0])).live, "something is alive"


async def test_a_deleted_schedule_has_its_history(world: World) -> None:
    key = await world.create()
    await world.schedules.start()
    await world.minutes(5)
    before = await world.schedules.detail(key)
    await world.schedules.delete(key)
    after = await world.schedules.detail(key)
    assert (after.schedule, after.coming, after.live, after.quiet_hours) == (None, [], [], None)
    assert (after.runs, after.statistics, after.occurrences) == (before.runs, before.statistics, before.occurrences)
    assert len(after.runs) == 5


async def test_what_is_not_seen_and_what_makes_no_sense(world: World) -> None:
    key = await world.create(team="red")
    for view in (world.schedules, world.schedules.acting("ann", "red")):
        assert (await view.detail(key)).history.team == "red"
    for view, sought in ((world.schedules, "nobody"), (world.schedules.acting("bob", "blue"), key)):
        with pytest.raises(ScheduleNotFoundError):
            await view.detail(sought)
    with pytest.raises(ScheduleInvalidError):
        await world.schedules.detail(key, occurrences=0)


async def test_a_view_shares_everything_but_who_acts(world: World) -> None:
    view = world.schedules.acting("ann", "red")
    mine, theirs = vars(world.schedules), vars(view)
    assert mine.keys() == theirs.keys()
    changed = {name for name in mine if mine[name] is not theirs[name]}
    assert changed == {"_actor", "_team", "_is_view"}
