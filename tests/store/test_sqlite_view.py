"""The view `schedules` of a file: what people read of durable schedules with a tool of their own."""

from __future__ import annotations

import contextlib
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from noonbell import Schedules
from noonbell.store.sqlite import SqliteStore
from noonbell.testing.storage_cases.base import declaration, new

ACTION = {"kind": "http", "url": "https://example.org/"}
COLUMNS = (
    "schedule_id", "name", "enabled", "type", "spec", "next_run_at", "last_run_at", "timezone",
    "quiet_hours_policy_id", "catch_up_policy", "payload", "created_at", "updated_at",
)  # fmt: skip
DUE = "SELECT schedule_id FROM schedules WHERE enabled = 1 AND next_run_at <= ? ORDER BY next_run_at"


def rows(path: Path, sql: str, *bindings: Any) -> list[dict[str, Any]]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        found = db.execute(sql, bindings)
        names = [str(column[0]) for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]


async def test_it_shows_durable_schedules_that_were_not_deleted(tmp_path: Path) -> None:
    path = tmp_path / "view.db"
    store = SqliteStore(path, threaded=False)
    async with Schedules(store) as schedules:
        for name in ("daily", "paused", "deleted"):
            await schedules.create(
                schedule_id=name, name=name, type="cron", spec="0 9 * * *", action=ACTION, enabled=name != "paused"
            )
        await schedules.delete("deleted")
        await store.schedules.declare(declaration(created=[new("declared")]))
        known = await schedules.get("daily")
        daily, paused = rows(path, "SELECT * FROM schedules ORDER BY schedule_id")
    assert tuple(daily) == COLUMNS
    assert (daily["schedule_id"], daily["enabled"], daily["spec"]) == ("daily", 1, "0 9 * * *")
    assert (paused["schedule_id"], paused["enabled"], paused["next_run_at"]) == ("paused", 0, None)
    assert datetime.fromisoformat(daily["next_run_at"]) == known.next_run_at
    assert datetime.fromisoformat(daily["created_at"]) == known.created_at
    assert len(daily["next_run_at"]) == len("2026-01-01T09:00:00.000000Z"), "texts sort as instants do"
    assert [row["schedule_id"] for row in rows(path, DUE, "9999-12-31T00:00:00.000000Z")] == ["daily"]
    assert rows(path, DUE, datetime(2000, 1, 1, tzinfo=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")) == []


async def test_it_cannot_be_written(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "view.db", threaded=False)
    await store.open()
    await store.close()
    with pytest.raises(sqlite3.OperationalError, match="because it is a view"):
        rows(tmp_path / "view.db", "UPDATE schedules SET enabled = 0")
