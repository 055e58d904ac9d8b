"""The history of a schedule in a file: what it costs to read, and files that are older than it."""

from __future__ import annotations

import itertools
from pathlib import Path

import apsw
import pytest

from noonbell.core.history import RunKey, key_of
from noonbell.store.sqlite import SqliteStore
from noonbell.store.sqlite.schema import MIGRATIONS
from noonbell.testing.storage_cases.base import MINUTE, T0

DAY = 24 * 60 * MINUTE
RUNS = (  # run_for, sid, kind, outcome, ended_at: by its ends the history of 1 is c, a, b
    (T0 + 2 * MINUTE, 1, "scheduled", "failed", T0 + 3 * MINUTE),
    (T0 + MINUTE, 1, "scheduled", "succeeded", T0 + 4 * MINUTE),
    (T0 + MINUTE, 1, "manual", "succeeded", T0 + 9 * MINUTE),
    (T0 + MINUTE, 2, "scheduled", "unknown", T0 + 2 * MINUTE),
)


@pytest.mark.parametrize("version", [1, 2])
async def test_an_older_file_gets_its_histories(tmp_path: Path, version: int) -> None:
    path = tmp_path / "old.db"
    db = apsw.Connection(str(path))
    for script in MIGRATIONS[:version]:
        db.execute(script)
    for sid in (1, 2, 3):
        db.execute(
            "INSERT INTO schedules (sid, schedule_id, name, managed_by) VALUES (?1, 'id' || ?1, 'n' || ?1, 'me')",
            (sid,),
        )
    for run_for, sid, kind, outcome, ended_at in RUNS:
        db.execute(
            "INSERT INTO runs VALUES (?, ?, ?, ?, 1, ?, ?, 'x', 1)", (run_for, sid, kind, outcome, run_for, ended_at)
        )
    db.execute(f"PRAGMA user_version = {version}")
    db.close()
    store = SqliteStore(path)
    await store.open()
    found = [[key_of(run) for run in await store.past_runs(sid, None, 10)] for sid in (1, 2, 3)]
    assert found == [
        [RunKey(T0 + MINUTE, "manual"), RunKey(T0 + MINUTE, "scheduled"), RunKey(T0 + 2 * MINUTE, "scheduled")],
        [RunKey(T0 + MINUTE, "scheduled")],
        [],
    ]
    counted = [(row["ended_runs"], row["succeeded_runs"]) for row in await store.schedules()]
    assert counted == [(3, 2), (1, 0), (0, 0)]
    await store.close()


async def test_a_page_costs_what_it_gives(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db", threaded=False)
    await store.open()
    db = store._connection._db
    assert db is not None
    n, schedules = 200, 100
    with db:
        for sid in range(1, schedules + 1):
            db.execute(
                "INSERT INTO schedules (sid, schedule_id, name, managed_by, lane, last_ended_for, ended_runs) "
                "VALUES (?1, 'id' || ?1, 'n' || ?1, 'me', 'default', ?2, ?3)",
                (sid, T0 + n * DAY, n),
            )
        db.execute(
            "WITH RECURSIVE i (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM i WHERE k < ?2) "
            "INSERT INTO runs SELECT ?1 + k * ?3, sid, 'scheduled', iif(sid = 7 AND k = 3, 'failed', 'succeeded'), 1, "
            "?1 + k * ?3, ?1 + k * ?3, 'x', 1, iif(k = 1, NULL, ?1 + (k - 1) * ?3), 0, 0 FROM i CROSS JOIN schedules",
            (T0, n, DAY),
        )
    steps = itertools.count()

    def count() -> bool:
        next(steps)
        return False

    db.set_progress_handler(count, 100)
    assert len(await store.past_runs(50, None, 10)) == 10
    assert len(await store.past_runs(50, RunKey(T0 + 100 * DAY, "scheduled"), 10)) == 10
    assert len(await store.latest_runs(None, 10)) == 10
    (failed,) = await store.latest_runs(None, 10, "failed")
    assert (failed.schedule_id, failed.run.run_for) == ("id7", T0 + 3 * DAY)
    assert next(steps) < 40, "four thousand instructions of SQLite's machine, where the runs are 20,000 rows"
    db.set_progress_handler(None)
    assert len(await store.past_runs(50, None, 1000)) == n
    await store.close()
