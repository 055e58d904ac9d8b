"""The view `schedules` of PostgreSQL: durable schedules with the columns that reports ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import asyncpg
import pytest
from msgspec.structs import replace

from noonbell.ports import ScheduleChange
from noonbell.schedules import changes
from noonbell.store.postgres import PostgresStore
from noonbell.testing.storage_cases.base import MINUTE, T0, declaration, new
from tests.store.test_postgres_durable import claim, schedule

COLUMNS = [
    ("schedule_id", "text"), ("name", "text"), ("enabled", "boolean"), ("type", "text"), ("spec", "text"),
    ("next_run_at", "timestamp with time zone"), ("last_run_at", "timestamp with time zone"), ("timezone", "text"),
    ("quiet_hours_policy_id", "text"), ("catch_up_policy", "text"), ("payload", "text"),
    ("created_at", "timestamp with time zone"), ("updated_at", "timestamp with time zone"),
]  # fmt: skip
DUE = "SELECT * FROM schedules WHERE enabled AND next_run_at <= now() ORDER BY schedule_id"


@pytest.fixture
async def db(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


def instant(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1_000_000, UTC)


async def test_it_has_the_columns_of_the_schedules_table(
    store: PostgresStore, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    del store  # it has made the tables
    found = await db.fetch(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_name = 'schedules' AND table_schema = current_schema() ORDER BY ordinal_position"
    )
    assert [tuple(row) for row in found] == COLUMNS


async def test_it_lists_due_durable_schedules(store: PostgresStore, db: asyncpg.Connection[asyncpg.Record]) -> None:
    late = schedule("late", spec="0 0 1 1 *")
    far = replace(late, next_run_at=253_370_764_800_000_000)  # the year 9999
    paused = replace(schedule("paused"), enabled=False)
    await store.schedules.apply(ScheduleChange([schedule("a"), schedule("b"), far, paused, schedule("gone")], T0, "me"))
    await store.schedules.declare(declaration(created=[new("declared")]))
    await store.schedules.apply(ScheduleChange(edited=["gone"], edit=lambda stored: changes.deleted(stored, T0, "me")))
    assert [row["schedule_id"] for row in await db.fetch(DUE)] == ["a", "b"]
    rows = {row["schedule_id"]: row for row in await db.fetch("SELECT * FROM schedules")}
    assert set(rows) == {"a", "b", "late", "paused"}, "neither what was deleted nor a declared task"
    assert rows["late"]["next_run_at"] == datetime(9999, 1, 1, tzinfo=UTC)
    assert (rows["paused"]["enabled"], rows["a"]["last_run_at"]) == (False, None)
    await claim(store, T0 + MINUTE)
    (row,) = await db.fetch("SELECT * FROM schedules WHERE schedule_id = 'a'")
    assert (row["last_run_at"], row["next_run_at"]) == (instant(T0 + MINUTE), instant(T0 + 2 * MINUTE))
    assert (row["created_at"], row["type"], row["spec"]) == (instant(T0), "cron", "* * * * *")


async def test_it_is_for_reading_only(store: PostgresStore, db: asyncpg.Connection[asyncpg.Record]) -> None:
    await store.schedules.apply(ScheduleChange([schedule("a")], T0, "me"))
    for sql in ("UPDATE schedules SET enabled = false", "DELETE FROM schedules"):
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError):
            await db.execute(sql)
