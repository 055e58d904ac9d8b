"""The history of a schedule in a file: what it costs to read."""

from __future__ import annotations

import itertools
from pathlib import Path

from noonbell.core.run_chain import RunKey
from noonbell.store.sqlite import SqliteStore
from noonbell.store.words import SCHEDULED
from noonbell.testing.storage_cases.base import MINUTE, T0

DAY = 24 * 60 * MINUTE


async def test_a_page_costs_what_it_gives(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db", threaded=False)
    await store.open()
    db = store._connection._db
    assert db is not None
    n, schedules = 200, 100
    with db:
        for sid in range(1, schedules + 1):
            db.execute(
                "INSERT INTO schedule_definitions (sid, schedule_id, name, managed_by, lane) "
                "VALUES (?1, 'id' || ?1, 'n' || ?1, 'me', 'default')",
                (sid,),
            )
            db.execute(
                "INSERT INTO schedule_state (sid, lane_no, last_ended_for, ended_runs) VALUES (?, 1, ?, ?)",
                (sid, T0 + n * DAY, n),
            )
        db.execute(
            "WITH RECURSIVE i (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM i WHERE k < ?2) "
            "INSERT INTO runs SELECT ?1 + k * ?3, sid, ?4, iif(sid = 7 AND k = 3, 1, 0), 1, "
            "?1 + k * ?3, ?1 + k * ?3, 'x', 1, iif(k = 1, NULL, ?1 + (k - 1) * ?3), 0, 0 FROM i "
            "CROSS JOIN schedule_state",
            (T0, n, DAY, SCHEDULED),
        )
    steps = itertools.count()

    def count() -> bool:
        next(steps)
        return False

    db.set_progress_handler(count, 100)
    assert len(await store.history.past_runs([50], None, 10)) == 10
    assert len(await store.history.past_runs([50], RunKey(T0 + 100 * DAY, "scheduled"), 10)) == 10
    assert len(await store.history.latest_runs(None, 10)) == 10
    (failed,) = await store.history.latest_runs(None, 10, "failed")
    assert (failed.schedule_id, failed.run.run_for) == ("id7", T0 + 3 * DAY)
    assert next(steps) < 40, "four thousand instructions of SQLite's machine, where the runs are 20,000 rows"
    db.set_progress_handler(None)
    assert len(await store.history.past_runs([50], None, 1000)) == n
    await store.close()
