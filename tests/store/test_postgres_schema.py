"""The migrations of PostgreSQL, and the days of `runs`."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import asyncpg
import pytest

from noonbell.core.records import Settlement
from noonbell.errors import StoreError
from noonbell.ports import LEDGER_TABLES, RunFilter
from noonbell.store.opening import open_store
from noonbell.store.postgres import PostgresStore, live_rows, schema
from noonbell.store.postgres.partitions import AHEAD, DAY_US, name_of
from noonbell.store.postgres.schema import migrate, migrations, version
from noonbell.testing.storage_cases.base import ME, MINUTE, SECOND, T0, claim, declaration, ledger, new
from tests.faults.cluster import next_version
from tests.store.postgres_server import PostgresServer

_SHAPE = {
    "columns": """
        SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default, collation_name
        FROM information_schema.columns WHERE table_schema = current_schema()
    """,
    "constraints": """
        SELECT c.conrelid::regclass::text, c.conname, pg_get_constraintdef(c.oid) FROM pg_constraint c
        JOIN pg_namespace n ON n.oid = c.connamespace WHERE n.nspname = current_schema()
    """,
    "indexes": """
        SELECT tablename, indexname, regexp_replace(indexdef, ' ON (ONLY )?[a-z0-9]+[.]', ' ON ') FROM pg_indexes
        WHERE schemaname = current_schema()
    """,
    "partitioned": "SELECT partrelid::regclass::text, pg_get_partkeydef(partrelid) FROM pg_partitioned_table",
}


async def shape(dsn: str) -> dict[str, list[tuple[Any, ...]]]:
    db = await asyncpg.connect(dsn)
    try:
        return {part: sorted(map(tuple, await db.fetch(sql)), key=repr) for part, sql in _SHAPE.items()}
    finally:
        await db.close()


async def test_migrations_one_by_one_make_the_same_as_a_fresh_install(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the step that the next version adds: today there is one step alone."""
    monkeypatch.setattr(schema, "migrations", next_version.steps)
    steps = len(next_version.steps())
    stepwise, fresh = await postgres.new_database(), await postgres.new_database()
    store = PostgresStore(fresh)
    await store.open()
    await store.close()
    db = await asyncpg.connect(stepwise)
    for step in range(1, steps + 1):
        async with db.transaction():
            await migrate(db, upto=step)
        assert await version(db) == step
        await db.execute("INSERT INTO lifecycle VALUES ($1, 'kept', 0, '', '', '')", step)
    kept = await db.fetchval("SELECT count(*) FROM lifecycle")
    await db.close()
    assert kept == steps, "what was there stays"
    made = await shape(stepwise)
    assert made == await shape(fresh)
    assert made["partitioned"] == [("runs", "RANGE (run_for)")]


async def test_tables_have_the_columns_of_the_ledger(postgres: PostgresServer) -> None:
    found: dict[str, list[str]] = {}
    for row in (await shape(await postgres.new_ledger()))["columns"]:
        found.setdefault(row[0], []).append(row[1])
    state, definitions = set(found["schedule_state"]), set(found["schedule_definitions"])
    assert state & definitions == {"sid"}, "no other column is in both: a join of the two needs no prefixes"
    for table, columns in LEDGER_TABLES.items():
        if table == "schedules":
            more = {"definition", "lane", "backlog_until", "last_run_for", "lane_no", "removed"}
            more |= {"slot_for", "slot_at", "slot_owner", "slot_epoch", "slot_cause", "revision"}
            assert state | definitions == set(columns.columns) | more
        elif table == "runs":
            derived = {"attempts", "prev_manual", "waited_us", "started_at", "ended_at"}
            assert set(found["runs"]) == (set(columns.columns) - derived) | {"extra", "delay_us", "duration_us"}
        else:
            assert set(found[{"live": "runs_live", "pruned": "pruned_days"}.get(table, table)]) == set(columns.columns)
    assert set(found["live_runs"]) == set(live_rows.COLUMNS.split(", "))


async def test_a_database_of_a_development_version_is_refused_and_left_alone(postgres: PostgresServer) -> None:
    dsn = await postgres.new_schema()
    db = await asyncpg.connect(dsn)
    await db.execute(
        "CREATE TABLE noonbell_migrations (version int4 PRIMARY KEY, name text NOT NULL); "
        "INSERT INTO noonbell_migrations VALUES (1, '0001_ledger.sql'), (2, '0002_instances.sql'); "
        "CREATE TABLE schedules (sid int8 PRIMARY KEY)"
    )
    before = await shape(dsn)
    for read_only in (False, True):
        store = PostgresStore(dsn, read_only=read_only)
        with pytest.raises(StoreError, match=r'development version .*"0001_ledger.sql".*use a new database or schema'):
            await store.open()
    assert await shape(dsn) == before
    await db.close()


def test_migrations_are_numbered_without_gaps() -> None:
    assert [int(name.partition("_")[0]) for name, _ in migrations()] == list(range(1, len(migrations()) + 1))


async def test_opening_again_changes_nothing(postgres: PostgresServer) -> None:
    dsn = await postgres.new_schema()
    store = PostgresStore(dsn)
    await store.open()
    await store.schedules.declare(declaration(created=[new("a")]))
    made, rows = await shape(dsn), await ledger(store)
    await store.close()
    await store.open()
    await store.open()
    assert (await shape(dsn), await ledger(store)) == (made, rows)
    await store.close()


async def test_instances_that_start_together_install_once(postgres: PostgresServer) -> None:
    dsn = await postgres.new_schema()
    stores = [PostgresStore(dsn, pool_size=1) for _ in range(5)]
    await asyncio.gather(*(store.open() for store in stores))
    db = await asyncpg.connect(dsn)
    applied = [row[0] for row in await db.fetch("SELECT version FROM noonbell_migrations ORDER BY version")]
    assert applied == list(range(1, len(migrations()) + 1))
    await db.close()
    for store in stores:
        await store.close()


async def test_a_database_of_a_newer_version_is_refused_and_left_alone(postgres: PostgresServer) -> None:
    dsn = await postgres.new_schema()
    store = PostgresStore(dsn)
    await store.open()
    await store.close()
    db = await asyncpg.connect(dsn)
    await db.execute("INSERT INTO noonbell_migrations (version, name) VALUES (99, 'from the future')")
    before = await shape(dsn)
    with pytest.raises(StoreError, match=rf"of version 99; this Noonbell knows up to {len(migrations())}"):
        await store.open()
    assert await shape(dsn) == before
    await db.execute("DELETE FROM noonbell_migrations WHERE version = 99")
    await db.close()
    await store.open()
    await store.close()


# --- days -------------------------------------------------------------------------------------------------------------


async def partitions(dsn: str) -> dict[str, int]:
    """Each partition of `runs` with its number of rows."""
    db = await asyncpg.connect(dsn)
    names = await db.fetch("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'runs'::regclass")
    counted = {row[0]: await db.fetchval(f"SELECT count(*) FROM {row[0]}") for row in names}  # noqa: S608 - from the catalogue
    await db.close()
    return counted


@pytest.fixture
async def dsn(postgres: PostgresServer) -> str:
    return await postgres.new_schema()


async def fire(store: PostgresStore, now: int) -> None:
    starts = (await claim(store, now)).starts
    assert starts
    assert (await store.runs.settle([Settlement(start, ME, "succeeded", now + SECOND) for start in starts])).stale == []


async def test_days_are_made_ahead_and_runs_go_to_their_own(dsn: str) -> None:
    store = PostgresStore(dsn, pool_size=1)
    await store.open()
    assert await partitions(dsn) == {"runs_default": 0}
    await store.schedules.declare(declaration(created=[new("a")]))
    for day in range(AHEAD + 2):
        await fire(store, T0 + day * DAY_US + MINUTE)
    found = await partitions(dsn)
    first = T0 // DAY_US
    assert found == {
        "runs_default": 0,
        **{name_of(first + day): 1 for day in range(AHEAD + 2)},
        **{name_of(first + day): 0 for day in range(AHEAD + 2, 2 * AHEAD + 2)},
    }
    assert name_of(first) == "runs_20240101"
    assert len(await store.history.runs(RunFilter(1, T0, T0 + 9 * DAY_US))) == AHEAD + 2
    await store.close()


async def test_a_run_whose_day_has_no_partition_is_kept_and_moves_when_it_has_one(dsn: str) -> None:
    store = PostgresStore(dsn, pool_size=1)
    await store.open()
    await store.schedules.declare(declaration(created=[new("a")]))
    (start,) = (await claim(store, T0 + MINUTE)).starts
    # it took five days: only the day of its end and the next ones are made
    assert (await store.runs.settle([Settlement(start, ME, "succeeded", T0 + 5 * DAY_US)])).stale == []
    first = T0 // DAY_US
    assert await partitions(dsn) == {"runs_default": 1} | {name_of(first + 5 + day): 0 for day in range(AHEAD + 1)}
    before = await ledger(store)
    await store._session.days.prepare(T0)
    assert (await partitions(dsn))["runs_default"] == 0
    assert (await partitions(dsn))[name_of(first)] == 1
    assert await ledger(store) == before
    await store.close()


async def test_days_that_cannot_be_made_hold_nothing_up(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    store = PostgresStore(dsn, pool_size=1)
    await store.open()
    await store.schedules.declare(declaration(created=[new("a")]))
    db = await asyncpg.connect(dsn)
    await db.execute("CREATE DOMAIN runs_20240101 AS int")  # a table of that name cannot be made beside it
    with caplog.at_level(logging.WARNING, "noonbell.store"):
        await fire(store, T0 + MINUTE)
    assert "runs go to the default one" in caplog.text
    assert await partitions(dsn) == {"runs_default": 1}
    await db.close()
    await store.close()


async def test_stores_that_need_the_same_day_make_it_once(dsn: str) -> None:
    stores = [PostgresStore(dsn, pool_size=1) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store._session.days.prepare(T0) for store in stores))
    assert len(await partitions(dsn)) == AHEAD + 2
    assert all(len(store._session.days._made) == AHEAD + 1 for store in stores)
    for store in stores:
        await store.close()


async def test_a_page_of_runs_reads_only_the_days_it_needs(dsn: str) -> None:
    store = PostgresStore(dsn, pool_size=1)
    await store.open()
    for day in range(0, 9, 3):
        await store._session.days.prepare(T0 + day * DAY_US)
    from noonbell.store.postgres.paging import statement

    sql, bindings = statement("runs", (T0 + 8 * DAY_US, 1, "scheduled"), 10)
    db = await asyncpg.connect(dsn)
    plan = "\n".join(row[0] for row in await db.fetch(f"EXPLAIN {sql}", *bindings))
    await db.close()
    assert name_of(T0 // DAY_US + 8) in plan
    assert name_of(T0 // DAY_US + 1) not in plan
    await store.close()


async def test_who_only_reads_changes_nothing(postgres: PostgresServer) -> None:
    dsn = await postgres.new_database()
    writer = PostgresStore(dsn)
    await writer.open()
    await writer.schedules.declare(declaration(created=[new("a")]))
    name = dsn.rpartition("/")[2]
    await postgres.execute("postgres", f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    reader = open_store(dsn, read_only=True)
    await reader.open()
    assert await ledger(reader) == await ledger(writer)
    await reader.close()
    await writer.close()


@pytest.mark.parametrize("older", [True, False])
async def test_who_only_reads_is_refused_tables_of_another_version(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, *, older: bool
) -> None:
    dsn = await postgres.new_database()
    db = await asyncpg.connect(dsn)
    async with db.transaction():
        await migrate(db)
    if older:
        monkeypatch.setattr(schema, "migrations", next_version.steps)
    else:
        await db.execute("INSERT INTO noonbell_migrations VALUES (99, 'from the future')")
    before = await shape(dsn)
    reader = PostgresStore(dsn, read_only=True)
    told = (
        "is of version 1, and this Noonbell reads version 2" if older else "is of version 99; this Noonbell knows up to"
    )
    with pytest.raises(StoreError, match=told):
        await reader.open()
    assert await shape(dsn) == before
    await db.close()
