"""What PostgreSQL is asked about popped schedules: by their keys, and never by an index of wake-ups."""

from __future__ import annotations

import pytest

from noonbell.core.records import DurableSchedule, ScheduleColumns
from noonbell.ports import ScheduleChange
from noonbell.store.postgres import PostgresStore, claim_schedules
from noonbell.testing.storage_cases.base import MINUTE, T0
from tests.store.postgres_server import PostgresServer

WAKE_INDEXES = ("idx_schedules_next_run", "idx_runs_live_wake")


def schedule(name: str) -> DurableSchedule:
    columns = ScheduleColumns(name, "cron", "* * * * *", "UTC", None, "skip", None, '{"action":{"kind":"callback"}}')
    return DurableSchedule(
        name, columns, enabled=True, managed_by="api", lane="default", cursor_at=T0, next_run_at=T0, anchor_at=None,
        zone_hash="z", policies="{}",
    )  # fmt: skip


@pytest.mark.parametrize("count", [1, 100, 1_000])
async def test_popped_schedules_are_looked_at_by_key(postgres: PostgresServer, count: int) -> None:
    store = PostgresStore(await postgres.new_ledger())
    await store.open()
    await store.schedules.apply(ScheduleChange([schedule(f"s{i}") for i in range(5_000)], T0, "me"))
    async with store._connections.writing() as db:
        await db.execute("ANALYZE schedule_state, schedule_definitions")
        for name in ("_DUE_AMONG", "_WOKEN_AMONG"):
            sql = getattr(claim_schedules, name)
            plan = await db.fetch(f"EXPLAIN {sql}", T0 + MINUTE, "default", 4096, list(range(1, count + 1)))
            text = "\n".join(row[0] for row in plan)
            assert not any(index in text for index in WAKE_INDEXES), text
            assert "Seq Scan on schedule" not in text, text
    await store.close()
