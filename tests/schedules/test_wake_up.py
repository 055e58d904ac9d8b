"""The wake-up of a schedule moves with its cursor; one that comes during a run is gone until the run has ended."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from noonbell.core.records import LiveRun, Settlement, Span, Start, StoredSchedule, Turn
from noonbell.core.turns import look
from noonbell.engine.jobs import Capacity
from noonbell.engine.lane_jobs import LaneJobs
from noonbell.ledger import verify_store
from noonbell.ports import ScheduleFilter
from noonbell.store.memory import MemoryStore
from noonbell.store.postgres import PostgresStore
from noonbell.store.sqlite import SqliteStore
from tests.schedules.conftest import World

MINUTE = 60_000_000


async def stored_in(world: World, key: str) -> StoredSchedule:
    (found,) = await world.store.schedules.find(ScheduleFilter(schedule_ids=[key]))
    return found


async def is_whole(world: World) -> bool:
    return (await verify_store(world.store)).problems == []


@pytest.mark.parametrize("overlap", ["coalesce", "skip"])
async def test_a_wake_up_that_comes_during_the_run_returns_with_its_end(world: World, overlap: str) -> None:
    key = await world.create(overlap=overlap)
    world.duration = timedelta(seconds=150)
    await world.schedules.start()
    await world.minutes(1)
    begun = await stored_in(world, key)
    assert [live.state for live in begun.lives] == ["running"]
    assert begun.next_run_at == begun.cursor_at + MINUTE, "it moves with the cursor"
    assert await is_whole(world)
    await world.minutes(1)
    beside = await stored_in(world, key)
    assert (beside.cursor_at, beside.next_run_at) == (begun.cursor_at, None), "it has come, and does not stay due"
    assert await is_whole(world)
    world.duration = timedelta(0)
    await world.minutes(2)
    after = await stored_in(world, key)
    assert after.lives == []
    assert after.next_run_at == after.cursor_at + MINUTE
    assert await is_whole(world)


async def test_an_end_leaves_a_wake_up_that_stands_and_brings_back_one_that_is_gone(world: World) -> None:
    keys = [await world.create(spec="1 12 * * *"), await world.create(spec="1 12 * * *")]
    await world.minutes(1)
    now = world.clock.now()

    def gone_for_the_second(stored: StoredSchedule) -> Turn:
        turn = look(stored, now)
        if stored.schedule_id == keys[1]:
            turn.next_run_at = None
        return turn

    claim = await world.store.runs.claim("default", "me", now, 10, gone_for_the_second)
    ends = [Settlement(replace(start, following=now + 7), "me", "succeeded", now) for start in claim.claimed.starts]
    assert (await world.store.runs.settle(ends)).stale == []
    first, second = await world.store.schedules.find(ScheduleFilter(schedule_ids=keys))
    assert (first.next_run_at, second.next_run_at) == (now - now % MINUTE + 24 * 60 * MINUTE, now + 7)


async def test_verify_finds_a_wake_up_beside_a_run_that_is_another_one(world: World) -> None:
    key = await world.create(spec="1,5,9 12 * * *")
    world.duration = timedelta(minutes=2)
    await world.schedules.start()
    await world.minutes(1)
    right = (await stored_in(world, key)).next_run_at
    assert right is not None
    for wrong in (right - MINUTE, right + 4 * MINUTE):
        await shift(world, wrong)
        (problem,) = (await verify_store(world.store)).problems
        assert (problem.kind, problem.at) == ("wake-up", wrong)
    await shift(world, right)
    assert await is_whole(world)
    await world.minutes(3)


async def shift(world: World, next_run_at: int) -> None:
    if isinstance(world.store, MemoryStore):
        world.store.data.schedules[1]["next_run_at"] = next_run_at
    elif isinstance(world.store, SqliteStore):
        changed = ("UPDATE schedule_state SET next_run_at = ?", (next_run_at,))
        await world.store._connection.run(lambda db: list(db.execute(*changed)))
    else:
        assert isinstance(world.store, PostgresStore)
        async with world.store._connections.writing() as db:
            await db.execute("UPDATE schedule_state SET next_run_at = $1", next_run_at)


async def test_a_run_that_was_put_off_after_a_crash_keeps_its_place(world: World) -> None:
    key = await world.create()
    seen, now = await stored_in(world, key), world.clock.now() + 3 * MINUTE
    orphan = LiveRun(
        seen.sid, "scheduled", seen.cursor_at, fence=2, owner=None, state="queued", attempt=1, wake_at=now + 1,
        started_at=now, attempt_at=now, crashes=1, epoch=1, cause="orphan",
    )  # fmt: skip
    turn = look(replace(seen, lives=[orphan]), now)
    assert (turn.starts, turn.next_run_at, turn.cursor_at) == ([], None, seen.cursor_at)
    turn = look(replace(seen, lives=[orphan]), now + 1)
    assert [(start.run_for, start.fence) for start in turn.starts] == [(orphan.run_for, 3)]


async def test_what_executes_alone_does_not_stay_due_for_want_of_a_thread(world: World) -> None:
    key = await world.create()
    await world.minutes(1)
    work = LaneJobs(world.store, lane="default", owner="me", preparer=lambda _: never, needs_thread=lambda _: True)
    now = world.clock.now()
    assert len((await work.claim(now, now, Capacity(10, 1))).jobs) == 1
    later = now + MINUTE
    batch = await work.claim(later, now, Capacity(10, 0))
    assert (batch.jobs, batch.claimed.looked) == ([], 1)
    assert (await stored_in(world, key)).next_run_at is None
    assert (await work.claim(later, now, Capacity(10, 0))).claimed.looked == 0


def never(stored: StoredSchedule, start: Start) -> Any:
    raise AssertionError("nothing is called here")


# --- SQLite: what is written together is written without a savepoint --------------------------------------------------


async def test_the_others_are_claimed_though_the_ledger_contradicts_one(tmp_path: Path) -> None:
    world = World(lambda: SqliteStore(tmp_path / "a.db", threaded=False))
    await world.schedules.open()
    keys = [await world.create() for _ in range(3)]
    await world.minutes(1)
    now = world.clock.now()
    span = Span(2, now, now, 1, "missed", "it is there already", 1)
    asked: list[str] = []

    def take_turn(stored: StoredSchedule) -> Turn:
        asked.append(stored.schedule_id)
        turn = look(stored, now)
        return replace(turn, spans=[span, span]) if stored.schedule_id == keys[1] else turn

    claimed = (await world.store.runs.claim("default", "me", now, 10, take_turn)).claimed
    assert [start.sid for start in claimed.starts] == [1, 3]
    assert [sid for sid, _ in claimed.quarantined] == [2]
    assert asked == [*keys, *keys], "nothing of the first look counts"
    assert [live.sid for live in await world.store.runs.live(owner="me")] == [1, 3]
    assert (await stored_in(world, keys[1])).next_run_at == now + MINUTE, "put off"
    await world.schedules.close()
