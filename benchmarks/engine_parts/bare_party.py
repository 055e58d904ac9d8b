"""The limit: claim, insert and settle on SQLite with nothing around them.

    python -m benchmarks.engine_parts.bare_party TASKS FOLDER

The tables, indexes, settings and batch size are Noonbell's, every batch is one statement for each table and one synced
commit to claim and one to settle. But no decision is made, no action is called, no value leaves the database and no
event loop runs beside it: no scheduler that keeps the same books can be faster.
"""

from __future__ import annotations

import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw

from benchmarks.engine_parts.conditions import DUE, EXPRESSIONS, report, resident_bytes
from noonbell.engine.work import BATCH
from noonbell.store.sqlite.schema import MIGRATIONS
from noonbell.store.words import SCHEDULED

DUE_AT = int(datetime.fromisoformat(DUE).timestamp()) * 1_000_000
DAY = 86_400_000_000
OWNER = "bench"
LANE_NO = 1


def connect(path: Path) -> apsw.Connection:
    db = apsw.Connection(str(path))
    for setting in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -65536", "temp_store = MEMORY"):
        db.execute(f"PRAGMA {setting}")
    for script in MIGRATIONS:
        db.execute(script)
    return db


def fill(db: apsw.Connection, tasks: int) -> None:
    with db:
        db.executemany(
            "INSERT INTO schedule_definitions (sid, schedule_id, name, spec, created_at, updated_at, managed_by, "
            "retry_delay_us) VALUES (?1, printf('%032x', ?1), 'task-' || ?1, ?2, ?3, ?3, ?4, 300000000)",
            ((i + 1, EXPRESSIONS[i % len(EXPRESSIONS)], DUE_AT - 1, OWNER) for i in range(tasks)),
        )
        db.execute(
            "INSERT INTO schedule_state (sid, lane_no, next_run_at, cursor_at) "
            "SELECT sid, ?, ?, ? FROM schedule_definitions",
            (LANE_NO, DUE_AT, DUE_AT - 1),
        )


def claim(db: apsw.Connection, now: int) -> int:
    with db:
        db.execute(
            "INSERT INTO runs_live "
            "(sid, kind, run_for, fence, owner, state, attempt, started_at, attempt_at, epoch, cause) "
            "SELECT sid, 'scheduled', next_run_at, 1, ?2, 'running', 1, ?1, ?1, epoch, 'cron' FROM schedule_state "
            "WHERE enabled = 1 AND next_run_at <= ?1 AND lane_no = ?4 ORDER BY next_run_at LIMIT ?3",
            (now, OWNER, BATCH, LANE_NO),
        )
        claimed = db.changes()
        db.execute(
            "UPDATE schedule_state SET cursor_at = max(cursor_at, ?1), next_run_at = NULL, last_run_at = ?1, "
            "last_attempt_at = ?1 WHERE sid IN (SELECT sid FROM runs_live)",
            (now,),
        )
    return claimed


def settle(db: apsw.Connection, now: int) -> None:
    with db:
        db.execute(
            "INSERT INTO runs (run_for, sid, kind, outcome, attempts, started_at, ended_at, owner, epoch) "
            "SELECT run_for, sid, ?2, 0, attempt, started_at, ?1, 1, epoch FROM runs_live",
            (now, SCHEDULED),
        )
        db.execute(
            "UPDATE schedule_state SET next_run_at = ?1, last_success_at = ?2 WHERE sid IN (SELECT sid FROM runs_live)",
            (DUE_AT + DAY, now),
        )
        # with a condition, as Noonbell's: a DELETE without one empties the table page by page, not row by row
        db.execute("DELETE FROM runs_live WHERE owner = ?", (OWNER,))


def since(due: float) -> int:
    """The instant, as if the due one had been at `due`."""
    return DUE_AT + int((time.perf_counter() - due) * 1_000_000)


def measure(tasks: int, folder: Path) -> dict[str, Any]:
    before = resident_bytes()
    began = time.perf_counter()
    db = connect(folder / "bench.db")
    fill(db, tasks)
    initialized = time.perf_counter() - began
    memory = resident_bytes() - before
    due = time.perf_counter()
    done = claimed = 0
    while done < tasks:
        count = claim(db, since(due))
        assert count
        claimed += count
        if claimed == tasks:
            started = time.perf_counter() - due
        settle(db, since(due))
        done += count
    recorded = time.perf_counter() - due
    assert db.execute("SELECT count(*) FROM runs").get == tasks
    return {
        "initialize_seconds": initialized,
        "started": tasks,
        "started_seconds": started,
        "recorded": tasks,
        "recorded_seconds": recorded,
        "memory_bytes": memory,
    }


if __name__ == "__main__":
    report(measure(int(sys.argv[1]), Path(sys.argv[2])))
