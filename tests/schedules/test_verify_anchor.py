"""`verify` sees what an interval counts from: the start of its last run, its last edit, or its creation."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import apsw
import pytest

from noonbell.core.records import StoredSchedule
from noonbell.ledger import verify_store
from noonbell.ports import ScheduleFilter
from noonbell.store.memory import MemoryStore
from noonbell.store.postgres import PostgresStore
from noonbell.store.sqlite import SqliteStore
from tests.schedules.conftest import IN_EARNEST, World

LONGEST_WAIT = IN_EARNEST


async def lives(world: World) -> list[StoredSchedule]:
    """Intervals in every state that moves their anchor or leaves it."""
    keys = [
        await world.create(name="ran", type="interval", spec="90"),
        await world.create(name="edited", type="interval", spec="90"),
        await world.create(name="paused", type="interval", spec="90"),
        await world.create(name="asked for", type="interval", spec="90"),
        await world.create(name="caught up", type="interval", spec="90", catch_up_policy="run_once"),
        await world.create(name="catching up", type="interval", spec="60", catch_up_policy="run_all_capped"),
        await world.create(name="yet to come", type="interval", spec="90", start_at="2026-03-05T00:00"),
    ]
    await world.schedules.start()
    await world.minutes(20)
    await world.schedules.update(keys[1], spec="7200")
    await world.schedules.pause(keys[2])
    await world.schedules.trigger(keys[3])
    await world.minutes(1)
    await world.schedules.stop()
    await world.minutes(30)
    world.duration = timedelta(seconds=20)
    await world.schedules.start()
    await world.minutes(1)
    return await world.store.schedules.find(ScheduleFilter(schedule_ids=keys))


async def set_anchor(world: World, sid: int, anchor_at: int | None) -> None:
    """Change the anchor behind the store's back."""
    store: Any = world.store
    if isinstance(store, MemoryStore):
        store.data.durable[sid]["anchor_at"] = anchor_at
    elif isinstance(store, SqliteStore):
        other = apsw.Connection(str(store.path))
        other.execute("UPDATE schedule_state SET anchor_at = ? WHERE sid = ?", (anchor_at, sid))
        other.close()
    elif isinstance(store, PostgresStore):
        async with store._connections.writing() as db:
            await db.execute("UPDATE schedule_state SET anchor_at = $1 WHERE sid = $2", anchor_at, sid)
    else:
        pytest.fail(f"{store!r} is of no kind that is known here")


async def test_an_anchor_that_was_moved_is_found_whatever_state_it_is_in(world: World) -> None:
    found = await lives(world)
    assert [one.columns.name for one in found if one.backlog_left is not None] == ["catching up"]
    assert (await verify_store(world.store)).problems == []
    for one in found:
        assert one.anchor_at is not None
        await set_anchor(world, one.sid, one.anchor_at + 7_000_000)
        problems = (await verify_store(world.store)).problems
        assert {problem.sid for problem in problems} == {one.sid}
        assert any("counts its interval from" in problem.text for problem in problems)
        await set_anchor(world, one.sid, one.anchor_at)
        assert (await verify_store(world.store)).problems == []


async def test_an_anchor_that_is_gone_is_found(world: World) -> None:
    one = (await lives(world))[0]
    await set_anchor(world, one.sid, None)
    assert not (await verify_store(world.store)).clean


async def test_an_interval_that_is_given_another_start_counts_from_it(world: World) -> None:
    key = await world.create(type="interval", spec="600", start_at="2026-03-04T12:30")
    before = (await world.schedules.get(key)).next_run_at
    after = (await world.schedules.update(key, start_at="2026-03-04T12:47")).next_run_at
    assert before is not None
    assert after == before + timedelta(minutes=17)
    assert (await world.schedules.update(key, spec="900")).next_run_at is not None
    assert (await verify_store(world.store)).problems == []
