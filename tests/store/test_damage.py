"""Damaged rows: reading passes them on as they are, and the work goes on round them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noonbell.ledger.ledger_rows import schedule_rows
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from noonbell.testing.storage_cases.base import (
    MINUTE,
    OWNER,
    SECOND,
    T0,
    claim,
    declaration,
    fail,
    ledger,
    new,
    start_one,
)

AnyStore = MemoryStore | SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AnyStore]:
    made = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "app.db", threaded=False)
    await made.open()
    yield made
    await made.close()


async def damage(store: AnyStore, table: str, sid: int, column: str, value: Any) -> None:
    """Write past the store, as a bad disk or a stranger does, and open it again."""
    await store.close()
    if isinstance(store, MemoryStore):
        if table == "schedules":
            store.data.schedules[sid][column] = value
        else:
            for live in store.data.live[sid].values():
                setattr(live, column, value)
    await store.open()
    if isinstance(store, SqliteStore):
        db = store._connection._db
        assert db is not None
        if table == "schedules":
            table = "schedule_state" if column in ("cursor_at", "next_run_at") else "schedule_definitions"
        db.execute(f"UPDATE {table} SET {column} = ? WHERE sid = ?", (value, sid))  # noqa: S608 - names from below


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("name", 123),
        ("name", None),
        ("spec", 5),
        ("cursor_at", "yesterday"),
        ("retry_delay_us", -1.5),
        ("timezone", b"\xff"),
    ],
)
async def test_a_damaged_schedule_is_read_as_it_stands(store: AnyStore, column: str, value: Any) -> None:
    await store.schedules.declare(declaration(created=[new("a"), new("b")]))
    await damage(store, "schedules", 1, column, value)
    rows = (await store.schedules.read_declared(OWNER)).rows
    assert rows[0][column] == value
    assert (await schedule_rows(store))[0][column] == value
    assert len((await ledger(store))["schedules"]) == 2


@pytest.mark.parametrize(("column", "value"), [("wake_at", "x"), ("state", 7), ("attempt", "many"), ("owner", 1)])
async def test_a_damaged_live_run_is_read_as_it_stands(store: AnyStore, column: str, value: Any) -> None:
    await store.schedules.declare(declaration(created=[new("a")]))
    await fail(store, await start_one(store, T0 + MINUTE), T0 + 61 * SECOND, retry_at=T0 + 9 * MINUTE)
    await damage(store, "runs_live", 1, column, value)
    (row,) = (await store.schedules.read_declared(OWNER)).rows
    (live,) = await store.runs.live(1)
    assert (row[column], getattr(live, column)) == (value, value)
    assert len((await ledger(store))["live"]) == 1


@pytest.mark.parametrize("value", ["x", "", b"\x00", None])
async def test_a_wake_up_that_is_no_instant_stops_nobody_else(store: AnyStore, value: Any) -> None:
    tasks = [new("bad"), new("good"), new("later", next_run_at=T0 + 9 * MINUTE)]
    await store.schedules.declare(declaration(created=tasks))
    await damage(store, "schedules", 1, "next_run_at", value)
    claimed = await claim(store, T0 + MINUTE)
    assert ([start.sid for start in claimed.starts], claimed.next_wake_at) == ([2], T0 + 2 * MINUTE)
    last = await claim(store, T0 + 9 * MINUTE)
    assert ([start.sid for start in last.starts], last.next_wake_at) == ([3], T0 + 10 * MINUTE)


async def test_a_retry_at_no_instant_stops_nobody_else(store: AnyStore) -> None:
    await store.schedules.declare(declaration(created=[new("bad")]))
    await fail(store, await start_one(store, T0 + MINUTE), T0 + 61 * SECOND, retry_at=T0 + 70 * SECOND)
    await damage(store, "runs_live", 1, "wake_at", "x")
    await store.schedules.declare(declaration(created=[new("good", next_run_at=T0 + 90 * SECOND)]))
    claimed = await claim(store, T0 + 80 * SECOND)
    assert (claimed.starts, claimed.next_wake_at) == ([], T0 + 90 * SECOND)


async def test_a_cursor_that_is_no_instant_is_quarantined(store: AnyStore) -> None:
    await store.schedules.declare(declaration(created=[new("bad"), new("good")]))
    await damage(store, "schedules", 1, "cursor_at", "x")
    claimed = await claim(store, T0 + MINUTE)
    assert [start.sid for start in claimed.starts] == [2]
    assert [sid for sid, _ in claimed.quarantined] == [1]


async def test_a_live_run_that_cannot_be_decided_does_not_come_back_at_once(store: AnyStore) -> None:
    await store.schedules.declare(declaration(created=[new("bad"), new("good")]))
    for start in (await claim(store, T0 + MINUTE)).starts:
        await fail(store, start, T0 + 61 * SECOND, retry_at=T0 + (70 + start.sid) * SECOND)
    await damage(store, "runs_live", 1, "fence", "x")
    now = T0 + 80 * SECOND
    quarantined, started = [], []
    for _ in range(3):
        claimed = await claim(store, now, limit=1)
        quarantined += [sid for sid, _ in claimed.quarantined]
        started += [start.sid for start in claimed.starts]
    assert (quarantined, started) == ([1], [2]), "with one slot, the bad row must not take it for ever"
