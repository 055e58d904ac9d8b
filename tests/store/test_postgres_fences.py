"""A settle with an old fence against a rescue on PostgreSQL, at the same moment: one of the two counts, never both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from noonbell.core.records import Settlement, Start
from noonbell.ledger.ledger_rows import schedule_rows
from noonbell.ports import ScheduleChange
from noonbell.store.postgres import PostgresStore, claim_schedules, settling
from noonbell.testing.storage_cases.base import MINUTE, SECOND, T0
from noonbell.testing.storage_cases.engines import LANE, A, claim, schedule
from tests.patience import until
from tests.store.test_postgres_rescue import somebody_waits
from tests.store.test_postgres_slots import numbers

AT = T0 + MINUTE + SECOND


@pytest.fixture
async def db(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(dsn)
    yield connection
    connection.terminate()


def end(start: Start, owner: str = A) -> Settlement:
    return Settlement(start, owner, "succeeded", AT)


async def claimed(store: PostgresStore, count: int) -> list[Start]:
    """Start so many runs as an engine that has no lease, and so is dead to a rescue, but not to its own fences."""
    await store.schedules.apply(ScheduleChange([schedule(f"s{i}") for i in range(count)], T0, "suite"))
    starts = await claim(store, A, T0 + MINUTE, count)
    assert {start.fence for start in starts} == {1}
    return starts


async def test_a_settle_that_waits_for_a_rescue_is_stale(
    store: PostgresStore, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    """The batch was matched against nothing yet when the rescue raised the fence of one of its runs."""
    starts = await claimed(store, 3)
    async with store._connections.writing() as rescuing:
        assert await claim_schedules.take_over(rescuing, LANE, AT, None) == (3, 0)
        settling_all = asyncio.create_task(store.runs.settle([end(start) for start in starts]))
        await until(lambda: somebody_waits(db))
        assert not settling_all.done()
    assert len((await settling_all).stale) == 3
    assert await store.read("runs", None, 10) == []
    lives = [(await store.runs.live(start.sid))[0] for start in starts]
    assert [(live.state, live.fence, live.owner) for live in lives] == [("queued", 2, None)] * 3
    rows = await schedule_rows(store)
    assert [(row["ended_runs"], row["last_success_at"]) for row in rows] == [(0, None)] * 3


async def test_an_old_fence_is_stale_also_where_the_owner_has_the_run_again(
    store: PostgresStore, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Rescued and claimed again by the same owner while the settle waits: key and owner match, the fence does not."""
    (start,) = await claimed(store, 1)
    async with store._connections.writing() as other:
        assert await claim_schedules.take_over(other, LANE, AT, None) == (1, 0)
        await other.execute("UPDATE runs_live SET state = 'running', owner = $1, wake_at = NULL", A)
        waiting = asyncio.create_task(store.runs.settle([end(start)]))
        await until(lambda: somebody_waits(db))
    assert len((await waiting).stale) == 1
    assert [(live.state, live.fence) for live in await store.runs.live(start.sid)] == [("running", 2)]
    assert await store.read("runs", None, 10) == []


async def test_a_rescue_passes_over_what_a_settle_has_locked(store: PostgresStore) -> None:
    starts = await claimed(store, 2)
    async with store._connections.writing() as ending:
        assert (await settling.settle(ending, [end(starts[0])], await numbers(store, A))).stale == []
        async with store._connections.writing() as rescuing:
            assert await claim_schedules.take_over(rescuing, LANE, AT, None) == (1, 1)
    async with store._connections.writing() as rescuing:
        assert await claim_schedules.take_over(rescuing, LANE, AT, None) == (0, 0), "it has ended"
    assert len(await store.read("runs", None, 10)) == 1
    assert [live.fence for live in await store.runs.live(starts[1].sid)] == [2]


async def test_settles_and_rescues_at_the_same_time_agree_on_every_run(dsn: str) -> None:
    """Each run ends once, or is queued once with the next fence; a settle reports exactly the latter as stale."""
    store = PostgresStore(dsn, pool_size=8)
    await store.open()
    starts = await claimed(store, 120)

    async def settle(part: list[Start]) -> list[int]:
        return [one.start.sid for one in (await store.runs.settle([end(start) for start in part])).stale]

    async def rescue() -> list[int]:
        async with store._connections.writing() as db:
            await claim_schedules.take_over(db, LANE, AT, None)
        return []

    work = [settle(starts[place::12]) for place in range(12)]
    for place in (1, 4, 7, 10):
        work.insert(place, rescue())
    stale = sorted(sid for part in await asyncio.gather(*work) for sid in part)
    await rescue()
    lives = {sid: live for sid in range(1, 121) for live in await store.runs.live(sid)}
    ended = [run[0] for run in await store.read("runs", None, 1000)]
    assert sorted(lives) == stale
    assert {(live.state, live.fence, live.owner) for live in lives.values()} <= {("queued", 2, None)}
    assert sorted([*ended, *stale]) == list(range(1, 121))
    await store.close()
