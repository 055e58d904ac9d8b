"""What goes on while a newer version brings the tables of PostgreSQL up to date, and after that."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import asyncpg
import pytest

from noonbell.core.records import RemovedSchedule, Settlement
from noonbell.errors import StoreError, StoreUnavailableError
from noonbell.store.postgres import PostgresStore, schema
from noonbell.store.postgres.partitions import DAY_US, name_of
from noonbell.testing.storage_cases.base import ME, MINUTE, OWNER, SECOND, T0, claim, declaration, ledger, new
from tests.faults.cluster import next_version
from tests.patience import PATIENCE_SECONDS, patiently
from tests.store.postgres_server import PostgresServer


@pytest.fixture
async def store(postgres: PostgresServer) -> AsyncIterator[PostgresStore]:
    """Of this version, at work: its connections have been used."""
    store = PostgresStore(await postgres.new_schema(), pool_size=1)
    await store.open()
    await store.schedules.declare(declaration(created=[new("a"), new("b")]))
    yield store
    await store.close()


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch, store: PostgresStore) -> Callable[..., asyncio.Task[None]]:
    """Start a store of the next version on the same tables."""

    async def opened(patience: float) -> None:
        newer = PostgresStore(store._connections._dsn, pool_size=1)
        newer._statement_timeout = patience  # for steps that others are in the way of; statements have their usual time
        with monkeypatch.context() as patched:
            patched.setattr(schema, "migrations", next_version.steps)
            await newer.open()
        await newer.close()

    return lambda patience=PATIENCE_SECONDS: asyncio.create_task(opened(patience))


@asynccontextmanager
async def somebody_in(store: PostgresStore, sql: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """In a transaction that lasts, and has begun with this."""
    db = await asyncpg.connect(store._connections._dsn)
    try:
        async with db.transaction():
            await db.fetch(sql)
            yield db
    finally:
        await db.close()


async def somebody_waits(store: PostgresStore) -> None:
    """Until one that wants a table for itself stands in line."""
    db = await asyncpg.connect(store._connections._dsn)
    sql = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await db.fetchval(sql):
                pass
    finally:
        await db.close()


async def fire(store: PostgresStore, now: int) -> int:
    starts = (await claim(store, now)).starts
    settled = await store.runs.settle([Settlement(start, ME, "succeeded", now + SECOND) for start in starts])
    assert settled.stale == []
    return len(starts)


async def test_a_store_that_lived_through_a_step_goes_on_with_its_connections(
    store: PostgresStore, upgrade: Callable[..., asyncio.Task[None]]
) -> None:
    hold = await store.hold(OWNER, ME)
    assert await fire(store, T0 + MINUTE) == 2
    begun = (await claim(store, T0 + 2 * MINUTE)).starts
    before = await ledger(store)
    await upgrade()
    assert await ledger(store) == before
    # what was begun before is ended after it, once
    ends = [Settlement(start, ME, "succeeded", T0 + 2 * MINUTE + SECOND) for start in begun]
    assert [len((await store.runs.settle(ends)).stale) for _ in range(2)] == [0, 2]
    # a day that has no partition yet, and one that goes
    assert await fire(store, T0 + 9 * DAY_US) == 2
    assert name_of(T0 // DAY_US + 9) in await store.tables()
    pruned = await store.prune_day(T0 + 5 * DAY_US)
    assert pruned is not None
    assert (pruned.day, pruned.runs) == (T0, 4)
    # live runs end with their schedule
    now = T0 + 9 * DAY_US + MINUTE
    assert len((await claim(store, now)).starts) == 2
    await store.schedules.declare(declaration(at=now, removed=[RemovedSchedule(sid=1, cursor_at=now)]))
    assert [run.outcome for run in await store.history.past_runs([1], None, 10)] == ["abandoned", "succeeded"]
    assert [live.sid for live in await store.runs.live(owner=ME)] == [2]
    hold.release()
    (await store.hold(OWNER, "another")).release()


async def test_an_older_version_that_is_started_after_a_step_is_refused(
    store: PostgresStore, upgrade: Callable[..., asyncio.Task[None]]
) -> None:
    await upgrade()
    known = len(schema.migrations())
    told = rf"of version {known + 1}; this Noonbell knows up to {known}: a newer one"
    for read_only in (False, True):
        older = PostgresStore(store._connections._dsn, pool_size=1, read_only=read_only)
        with pytest.raises(StoreError, match=told):
            await older.open()
    assert await fire(store, T0 + MINUTE) == 2


async def test_nobody_waits_behind_a_step_that_waits_for_a_long_read(
    store: PostgresStore, upgrade: Callable[..., asyncio.Task[None]]
) -> None:
    async with somebody_in(store, "SELECT name FROM schedules"), asyncio.timeout(PATIENCE_SECONDS):
        upgrading = upgrade()
        await somebody_waits(store)
        assert await fire(store, T0 + MINUTE) == 2
        assert not upgrading.done()
    await upgrading
    assert "landmarks" in await store.tables()
    assert await fire(store, T0 + 2 * MINUTE) == 2


async def test_a_step_has_nothing_that_an_engine_still_wants_while_it_waits_for_that_engine(
    store: PostgresStore, upgrade: Callable[..., asyncio.Task[None]]
) -> None:
    """It would go round in a circle, and the server would send one of the two away: mostly the engine."""
    # as every verb does that writes for an engine: its lease comes first
    async with somebody_in(store, "SELECT name FROM instances FOR KEY SHARE") as engine:
        upgrading = upgrade()
        await somebody_waits(store)
        tables = ("engines", "schedule_state", "runs_live", "schedule_definitions", "runs", "spans", "outbox")
        for table in (*tables, "audit_events"):
            await engine.execute(f"LOCK TABLE {table} IN ROW EXCLUSIVE MODE NOWAIT")
    await upgrading
    assert "landmarks" in await store.tables()


async def test_a_step_that_finds_no_room_changes_nothing_and_says_why(
    store: PostgresStore, upgrade: Callable[..., asyncio.Task[None]]
) -> None:
    async with somebody_in(store, "SELECT sid FROM runs"):
        with pytest.raises(StoreUnavailableError, match="has to be brought up to date, and others have been using"):
            await upgrade(patience=0.1)
    assert "landmarks" not in await store.tables()
    await upgrade()
    assert "landmarks" in await store.tables()


async def test_a_step_may_take_longer_than_statements_do(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (*schema.migrations(), ("9999_slow.sql", "SELECT pg_sleep(0.3)"))
    newer = PostgresStore(store._connections._dsn, pool_size=1, statement_timeout=0.2)
    monkeypatch.setattr(schema, "migrations", lambda: steps)
    await patiently(newer.open, StoreUnavailableError)
    await newer.close()


def test_tables_are_locked_before_the_first_step_in_the_order_of_the_engines() -> None:
    locked = [re.findall(r"LOCK TABLE (\w+) IN ([A-Z ]+) MODE", text) for text in schema._locks(next_version.STEP)]
    first = ["instances", "engines", "schedule_state", "runs_live", "schedule_definitions", "runs"]
    assert [names for ((names, _),) in locked][: len(first)] == first
    assert {mode for ((_, mode),) in locked} == {"ACCESS EXCLUSIVE"}
    (index,) = schema._locks("CREATE UNIQUE INDEX idx_spans_n ON spans (n)")
    assert "LOCK TABLE spans IN SHARE MODE" in index


def test_steps_only_add() -> None:
    """Else engines of the version before could not go on."""
    takes_away = re.compile(r"\bDROP\b|\bRENAME\b|\bALTER COLUMN\b|\bTRUNCATE\b")
    demands = re.compile(r"ADD COLUMN \w+ [^;]*NOT NULL(?![^;]*DEFAULT)[^;]*;")
    for name, sql in schema.migrations():
        assert (takes_away.findall(sql), demands.findall(sql)) == ([], []), name
