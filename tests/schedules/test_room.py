"""No more is claimed than can run: what waits for a thread, or for others to end, stays due."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from noonbell.actions.results import Prepared
from noonbell.core.records import Start, StoredSchedule
from noonbell.engine import execution
from noonbell.engine.jobs import Capacity
from noonbell.engine.lane_jobs import LaneJobs
from noonbell.ledger import verify_store
from noonbell.schedules import Call, Schedules
from noonbell.store.sqlite import SqliteStore
from tests.patience import PATIENCE_SECONDS, until
from tests.schedules.conftest import World
from tests.store.test_postgres_trouble import ShiftedClock


async def _nothing() -> None:
    pass


def work_of(world: World, plain: Collection[str]) -> LaneJobs:
    def prepare(stored: StoredSchedule, start: Start) -> Prepared:
        del start
        return Prepared(_nothing, is_async=stored.columns.name not in plain)

    def needs_thread(stored: StoredSchedule) -> bool:
        return stored.columns.name in plain

    return LaneJobs(world.store, lane="default", owner="me", preparer=lambda _: prepare, needs_thread=needs_thread)


def calling(name: str) -> dict[str, str]:
    """Return an action of its own: what needs a thread follows from the definition."""
    return {"kind": "callback", "name": name}


async def test_plain_functions_are_claimed_as_far_as_there_are_threads(world: World) -> None:
    plain = [f"plain-{n}" for n in range(10)]
    for name in [*plain, "async-1", "async-2"]:
        await world.create(name=name, action=calling(name))
    await world.minutes(1)
    work, now = work_of(world, plain), world.clock.now()

    async def claim(room: Capacity) -> list[str]:
        jobs, claimed, _ = await work.claim(now, now, room)
        assert not claimed.full
        assert claimed.next_wake_at is not None
        assert claimed.next_wake_at > now, "what is left due is no reason to look at once"
        return sorted(job.name for job in jobs)

    first = await claim(Capacity(100, 4))
    assert len(first) == 6
    assert first[:2] == ["async-1", "async-2"], "what needs no thread goes past those that wait for one"
    left_due = [work.left_due]
    assert (await verify_store(world.store)).problems == []
    assert await claim(Capacity(100, 0)) == []
    jobs, _, _ = await work.claim(now, now, Capacity(100, 6))
    assert sorted([*first[2:], *(job.name for job in jobs)]) == plain, "each once"
    assert [*left_due, work.left_due] == [True, False], "while some wait, any end has to bring a look"
    assert (await verify_store(world.store)).problems == []


async def test_no_more_runs_are_claimed_than_there_is_room_for(world: World) -> None:
    for n in range(5):
        await world.create(name=f"n-{n}")
    await world.minutes(1)
    work, now = work_of(world, ()), world.clock.now()
    batches = [await work.claim(now, now, Capacity(2, 0)) for _ in range(3)]
    assert [len(jobs) for jobs, _, _ in batches] == [2, 2, 1]
    assert [claimed.full for _, claimed, _ in batches] == [True, True, False]


# --- the loop ---------------------------------------------------------------------------------------------------------


async def create(schedules: Schedules, callback: str, count: int) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    action = {"kind": "callback", "name": callback}
    await schedules.create_many(
        [
            {
                "type": "one_shot",
                "spec": at.isoformat(),
                "name": f"{callback}-{n}",
                "action": action,
                "catch_up_policy": "run_once",
            }
            for n in range(count)
        ]
    )


async def test_the_loop_claims_a_few_more_plain_functions_than_it_has_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "THREAD_SLOTS", 2)
    monkeypatch.setattr(execution, "THREADS_AHEAD", 1)
    free, begun, quick = threading.Event(), list[str](), list[str]()

    def slow(call: Call) -> None:
        begun.append(call.name)
        free.wait(PATIENCE_SECONDS)

    async def swift(call: Call) -> None:
        quick.append(call.name)

    store = SqliteStore(tmp_path / "room.db")
    clock, soon = ShiftedClock(), timedelta(milliseconds=100)
    async with Schedules(store, clock=clock, callbacks={"slow": slow, "swift": swift}, longest_wait=soon) as schedules:
        await create(schedules, "slow", 6)
        await create(schedules, "swift", 3)
        await schedules.start()
        clock.shift_seconds += 3601

        async def swift_ones_ran() -> bool:
            return len(quick) == 3 and len(begun) == 2

        await until(swift_ones_ran)
        live = await store.read("live", None, 100)
        assert len(live) == 3, "two run, one waits, and three are still due"
        free.set()

        async def all_ran() -> bool:
            return len(await store.read("runs", None, 100)) == 9

        await until(all_ran)
        assert sorted(begun) == [f"slow-{n}" for n in range(6)]
        await schedules.stop()
        assert (await verify_store(store)).problems == []
    await store.close()


async def test_the_loop_has_only_so_many_runs_in_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "MOST_IN_FLIGHT", 3)
    free, under_way, most = asyncio.Event(), 0, 0

    async def work(call: Call) -> None:
        nonlocal under_way, most
        del call
        under_way += 1
        most = max(most, under_way)
        await free.wait()
        under_way -= 1

    store = SqliteStore(tmp_path / "room.db")
    clock = ShiftedClock()
    async with Schedules(
        store, clock=clock, callbacks={"work": work}, longest_wait=timedelta(milliseconds=100)
    ) as schedules:
        await create(schedules, "work", 10)
        await schedules.start()
        clock.shift_seconds += 3601

        async def full() -> bool:
            return under_way == 3

        await until(full)
        free.set()

        async def all_ran() -> bool:
            return len(await store.read("runs", None, 100)) == 10

        await until(all_ran)
        await schedules.stop()
    assert most == 3
    await store.close()
