"""`verify` on random lives of every kind: clean as they are, pruned or not, and never after tampering."""

# ruff: noqa: S608 - the statements are made of constants
from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from copy import copy, deepcopy
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from noonbell.ledger import Report, verify_store
from noonbell.store.memory import MemoryData, MemoryStore
from noonbell.store.sqlite import SqliteStore
from noonbell.store.words import SCHEDULED
from tests.effort import PROFILE
from tests.schedules.conftest import World, store_maker
from tests.schedules.random_life import BEGIN, KINDS, Life

SECOND = 1_000_000


async def lived(kind: str, seed: int, folder: Path, *, prunes: bool) -> Life:
    life = Life(World(store_maker(kind, folder), BEGIN), seed, prunes=prunes)
    await life.begin()
    for _ in range(6):
        await life.live(5)
        report = await verify_store(life.world.store)
        assert (report.problems, report.remarks) == ([], []), life.told
    return life


async def some_days(life: Life) -> None:
    """Days with an hour of work in each, for new schedules of every kind."""
    for _ in range(4):
        for kind in KINDS:
            await life.create(kind)
        await life.world.clock.advance(timedelta(hours=1))
        await life.world.create(type="one_shot", spec=(life.now + timedelta(hours=2)).isoformat())  # missed asleep
        await life.world.clock.jump(timedelta(hours=23))


@pytest.mark.parametrize("prunes", [False, True], ids=["whole", "pruned"])
@pytest.mark.parametrize("seed", range(3))
async def test_a_random_life_is_whole_in_memory(seed: int, prunes: bool, tmp_path: Path) -> None:
    life = await lived("memory", seed, tmp_path, prunes=prunes)
    await life.end()


@pytest.mark.parametrize("seed", range(100, 102))
async def test_a_random_life_is_whole_on_sqlite(seed: int, tmp_path: Path) -> None:
    life = await lived("sqlite", seed, tmp_path, prunes=True)
    await life.end()


async def test_what_is_pruned_is_not_lost(tmp_path: Path) -> None:
    """The same life, with and without its past: as many occurrences are accounted for."""
    life = await lived("memory", 5, tmp_path, prunes=False)
    await some_days(life)
    whole = await verify_store(life.world.store)
    days = []
    while (pruned := await life.world.store.prune_day(life.world.clock.now())) is not None:
        days.append(pruned.day)
        report = await verify_store(life.world.store)
        assert report.problems == []
        assert report.occurrences == whole.occurrences
    assert len(days) > 2
    assert days == sorted(days)
    assert report.pruned > 5
    await life.end()


async def test_a_retry_beside_other_runs_leaves_the_schedule_its_wake_up(tmp_path: Path) -> None:
    world = World(store_maker("sqlite", tmp_path))
    await world.schedules.open()
    retry = {"attempts": 2, "delay_seconds": 10, "strategy": "fixed"}
    key = await world.create(overlap="allow", retry=retry, spec="*/5 * * * *")
    world.failures = 1
    await world.schedules.start()
    await world.minutes(11)
    assert await world.told(key) == [("12:05", "fired"), ("12:10", "fired")]
    assert (await world.schedules.get(key)).next_run_at is not None
    assert (await verify_store(world.store)).clean
    await world.schedules.stop()
    await world.store.close()


# --- tampering --------------------------------------------------------------------------------------------------------

# table -> (the field that says when, the fields that a shift moves)
TABLES = {
    "runs": ("run_for", ("run_for",)),
    "spans": ("from_at", ("from_at", "to_at")),
    "epochs": ("epoch", ("from_at", "to_at")),
    "pruned": ("day", ("first_at", "to_at")),
}
Tamper = Callable[[dict[Any, Any], Any], None]


def _delete(table: dict[Any, Any], key: Any) -> None:
    del table[key]


def _shift(table: dict[Any, Any], key: Any) -> None:
    row = table[key]
    fields = next(moved for _, moved in TABLES.values() if all(hasattr(row, name) for name in moved))
    moved = {name: getattr(row, name) + SECOND for name in fields if getattr(row, name) is not None}
    table[key] = replace(row, **moved)


def _double(table: dict[Any, Any], key: Any) -> None:
    row = table[key]
    if hasattr(row, "run_for"):
        table[row.run_for + 1, row.kind] = replace(row, run_for=row.run_for + 1)
    elif hasattr(row, "verdict"):
        table[row.from_at + 1] = replace(row, from_at=row.from_at + 1, to_at=row.to_at + 1)
    elif hasattr(row, "spec"):
        table[max(table) + 1] = replace(row, epoch=max(table) + 1)
    else:
        later = row.day + 86_400 * SECOND
        table[row.epoch, later] = replace(row, day=later)


# Of each kind and table; all tests together tamper with many more.
TAMPERED_ROWS = 2 if PROFILE == "deterministic" else 5
TAMPERINGS: dict[str, Tamper] = {"delete": _delete, "double": _double, "shift": _shift}


@lru_cache(maxsize=1)
def _history() -> MemoryData:
    """The data of a life, half of its days pruned."""

    async def build() -> MemoryData:
        with tempfile.TemporaryDirectory() as folder:
            life = await lived("memory", 5, Path(folder), prunes=False)
            await some_days(life)
            for _ in range(3):
                await life.world.store.prune_day(life.world.clock.now())
            store = life.world.store
            assert isinstance(store, MemoryStore)
            report = await verify_store(store)
            assert report.problems == []
            data = deepcopy(store.data)
            await life.end()
            return data

    return asyncio.run(build())


def _targets(data: MemoryData, kind: str, table: str) -> Iterator[tuple[int, Any]]:
    """Rows of schedules of this kind; of runs the scheduled ones, because nobody owes a manual run."""
    for sid, rows in getattr(data, table).items():
        if data.schedules[sid]["type"] == kind:
            yield from ((sid, key) for key, row in rows.items() if getattr(row, "kind", "scheduled") == "scheduled")


def _with_own_rows(data: MemoryData, table: str, sid: int) -> MemoryData:
    """The same data, except that these rows of one schedule are a copy."""
    tables = copy(getattr(data, table))
    tables[sid] = deepcopy(tables[sid])
    own = copy(data)
    setattr(own, table, tables)
    return own


async def _verify(data: MemoryData) -> Report:
    store = MemoryStore(data)
    await store.open()
    return await verify_store(store)


@pytest.mark.parametrize("how", TAMPERINGS)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("kind", KINDS)
def test_tampering_is_found(kind: str, table: str, how: str) -> None:
    data = _history()
    targets = list(_targets(data, kind, table))
    assert targets, f"the life has no {table} of kind {kind}"
    for sid, key in Random(7).sample(targets, min(TAMPERED_ROWS, len(targets))):
        tampered = _with_own_rows(data, table, sid)
        TAMPERINGS[how](getattr(tampered, table)[sid], key)
        assert not asyncio.run(_verify(tampered)).clean, (kind, table, how, key)


# table -> (its key, which rows, what a shift moves)
SQL_TABLES = {
    "runs": ("run_for, sid, kind", f"kind = {SCHEDULED}", "started_at"),
    "spans": ("sid, from_at", "true", "to_at"),
    "epochs": ("sid, epoch", "true", "from_at"),
    "pruned_days": ("sid, epoch, day", "true", "to_at"),
}


async def test_tampering_is_found_on_sqlite(tmp_path: Path) -> None:
    """Every kind and table: a row is deleted, or shifted by two hours and a second, and put back."""
    life = await lived("sqlite", 5, tmp_path, prunes=False)
    await some_days(life)
    for _ in range(3):
        await life.world.store.prune_day(life.world.clock.now())
    store = life.world.store
    assert isinstance(store, SqliteStore)
    assert (await verify_store(store)).clean
    db = apsw.Connection(str(store.path))
    tried = [(table, kind, how) for table in SQL_TABLES for kind in KINDS for how in ("delete", "shift")]
    for table, kind, how in tried:
        keys, which, column = SQL_TABLES[table]
        its = "sid IN (SELECT sid FROM schedule_definitions WHERE type = ?)"
        picked = db.execute(f"SELECT {keys} FROM {table} WHERE {which} AND {its} LIMIT 1", (kind,)).fetchone()
        assert picked is not None, (table, kind)
        match = f"WHERE ({keys}) = ({', '.join('?' * len(picked))})"
        kept = db.execute(f"SELECT * FROM {table} {match}", picked).fetchall()
        if how == "delete":
            db.execute(f"DELETE FROM {table} {match}", picked)
        else:
            db.execute(f"UPDATE {table} SET {column} = {column} - 7201000000 {match}", picked)
        assert db.changes() == 1
        assert not (await verify_store(store)).clean, (table, kind, how)
        db.execute(f"DELETE FROM {table} {match}", picked)
        db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(kept[0]))})", kept[0])
    assert (await verify_store(store)).clean
    db.close()
    await life.end()
