"""Start and end of a run on PostgreSQL are kept as two differences; they are exact, however large those are."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
from msgspec.structs import replace

from noonbell.core.records import Run, Settlement, Start, StoredSchedule, Turn
from noonbell.core.turns import finish, look
from noonbell.ports import LEDGER_TABLES, RunFilter, ScheduleChange, Settled
from noonbell.schedules import changes
from noonbell.store.postgres import PostgresStore, slots
from noonbell.store.postgres.numbers import extra_of
from noonbell.testing.storage_cases.base import ME, MINUTE, T0
from tests.store.test_postgres_durable import DAY, LANE, message, schedule

NOW = T0 + MINUTE
FIRST, LAST = -(2**31), 2**31 - 1  # of an int4
DIFFERENCES = (
    (0, 0), (1, 1), (-1, 3), (FIRST, LAST), (LAST, FIRST), (LAST, LAST), (LAST + 1, 0), (0, LAST + 1), (FIRST - 1, 5),
    (5, FIRST - 1), (400 * DAY, 3 * DAY), (-DAY, DAY), (LAST + 1, FIRST - 1), (2**32, 2**32), (-(2**32), 1),
)  # fmt: skip


@pytest.fixture
async def db(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(dsn)
    yield connection
    connection.terminate()


async def claimed(store: PostgresStore, at: int, kind: str = "callback") -> list[Start]:
    """Start the run for NOW, by a clock that shows `at`."""
    await store.schedules.apply(ScheduleChange([schedule("s", kind=kind)], T0, "me"))

    def decide(stored: StoredSchedule) -> Turn:
        turn = look(stored, NOW)
        turn.starts = [replace(start, started_at=at) for start in turn.starts]
        finish(turn, stored, at, ME, lambda stored, start: message(stored.sid, str(start.run_for)))
        return turn

    return (await store.runs.claim(LANE, ME, at, 10, decide, due_by=NOW)).claimed.starts


async def told(store: PostgresStore, db: asyncpg.Connection[asyncpg.Record], began_at: int, ended_at: int) -> Run:
    """Return the run; it is the same to every reader, and only what does not fit takes more room."""
    (run,) = await store.history.runs(RunFilter(1, NOW, NOW))
    assert (run.started_at, run.ended_at) == (began_at, ended_at)
    (row,) = await store.read("runs", None, 10)
    found = dict(zip(LEDGER_TABLES["runs"].columns, row, strict=True))
    assert (found["started_at"], found["ended_at"]) == (began_at, ended_at)
    assert await store.history.past_runs([1], None, 10) == [run]
    extra = await db.fetchval("SELECT extra FROM runs")
    assert extra == extra_of(run)
    fits = FIRST <= began_at - NOW <= LAST and FIRST <= ended_at - began_at <= LAST
    assert (extra == "") is (fits and run.attempts == 1 and not run.waited_us)
    return run


@pytest.mark.parametrize(("delay", "duration"), DIFFERENCES)
@pytest.mark.parametrize("place", ["slot", "spilled"])
async def test_of_a_run_that_is_settled(
    store: PostgresStore, db: asyncpg.Connection[asyncpg.Record], place: str, delay: int, duration: int
) -> None:
    began_at = NOW + delay
    (start,) = await claimed(store, began_at)
    if place == "spilled":
        async with store._connections.writing() as inside:
            await slots.spill(inside, [start.sid])
    end = Settlement(start, ME, "succeeded", began_at + duration)
    assert await store.runs.settle([end]) == Settled([], {})
    await told(store, db, began_at, began_at + duration)


@pytest.mark.parametrize(("delay", "duration"), [pair for pair in DIFFERENCES if sum(pair) >= 0])  # after the cursor
async def test_of_a_run_whose_schedule_is_deleted(
    store: PostgresStore, db: asyncpg.Connection[asyncpg.Record], delay: int, duration: int
) -> None:
    began_at = NOW + delay
    at = began_at + duration
    await claimed(store, began_at)
    await store.schedules.apply(ScheduleChange(edited=["s"], edit=lambda stored: changes.deleted(stored, at, "me")))
    assert (await told(store, db, began_at, at)).outcome == "abandoned"


@pytest.mark.parametrize("delay", sorted({delay for delay, _ in DIFFERENCES}))
async def test_of_a_run_that_ends_with_its_claim(
    store: PostgresStore, db: asyncpg.Connection[asyncpg.Record], delay: int
) -> None:
    assert await claimed(store, NOW + delay, kind="message") == []
    await told(store, db, NOW + delay, NOW + delay)


async def test_beside_the_rest_of_what_few_runs_have(
    store: PostgresStore, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    (start,) = await claimed(store, NOW + DAY)
    start.waited_us = 7
    await store.runs.settle([Settlement(start, ME, "succeeded", NOW + 2 * DAY)])
    assert (await told(store, db, NOW + DAY, NOW + 2 * DAY)).waited_us == 7
    assert await db.fetchval("SELECT extra FROM runs") == f"1,7,0,{NOW + DAY},{NOW + 2 * DAY}"


async def test_overlap_skip_goes_by_the_exact_times(store: PostgresStore) -> None:
    """A claim asks when the last run began and ended."""
    skipping = schedule("s")
    definition = skipping.columns.definition.replace("{", '{"overlap":"skip",', 1)
    skipping = replace(skipping, columns=replace(skipping.columns, definition=definition))
    await store.schedules.apply(ScheduleChange([skipping], T0, "me"))
    seen: list[StoredSchedule] = []

    def decide(stored: StoredSchedule) -> Turn:
        seen.append(stored)
        return look(stored, NOW + (len(seen) - 1) * MINUTE)

    (start,) = (await store.runs.claim(LANE, ME, NOW + DAY, 10, decide, due_by=NOW)).claimed.starts
    await store.runs.settle([Settlement(start, ME, "succeeded", NOW + 2 * DAY)])
    await store.runs.claim(LANE, ME, NOW + MINUTE, 10, decide)
    assert [one.ran for one in seen] == [None, (NOW + DAY, NOW + 2 * DAY)]
