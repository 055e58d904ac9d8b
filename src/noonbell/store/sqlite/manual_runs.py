"""Runs that a person asks for, on SQLite: queued here, started by an engine of the lane."""

from __future__ import annotations

from typing import Final

import apsw
import msgspec

from noonbell.core.records import AT_ONCE, MOST_ASKED, AuditEvent, Cause
from noonbell.errors import ScheduleNotFoundError
from noonbell.store.sqlite import auditing
from noonbell.store.words import MANUAL

_encode = msgspec.json.Encoder().encode

_FOUND: Final = """
    SELECT d.sid, s.epoch, d.definition ->> '$.overlap', d.team
    FROM schedule_definitions d JOIN schedule_state s ON s.sid = d.sid
    WHERE d.schedule_id = ? AND d.lane IS NOT NULL AND d.removed_at IS NULL
"""
_BUSY: Final = "SELECT 1 FROM live_runs WHERE sid = ? AND (kind = 'manual' OR state <> 'waiting')"
_FULL: Final = f"SELECT 1 FROM runs_live WHERE sid = ? AND kind = 'manual' LIMIT 1 OFFSET {MOST_ASKED - 1}"
_TAKEN: Final = f"""
    SELECT EXISTS (SELECT 1 FROM runs WHERE run_for = ?1 AND sid = ?2 AND kind = {MANUAL})
        OR EXISTS (SELECT 1 FROM runs_live WHERE sid = ?2 AND kind = 'manual' AND run_for = ?1)
"""


def ask(db: apsw.Connection, schedule_id: str, at: int, actor: str, cause: Cause, *, queue: bool) -> int | None:
    row: tuple[int, int, str | None, str] | None = db.execute(_FOUND, (schedule_id,)).fetchone()
    if row is None:
        raise ScheduleNotFoundError("schedule", schedule_id)
    sid, epoch, overlap, team = row
    if overlap != "allow" and db.execute(_FULL if queue else _BUSY, (sid,)).get is not None:
        return None
    run_for = at
    while db.execute(_TAKEN, (run_for, sid)).get:
        run_for += 1  # asked for twice in one instant, or a clock that went back: the runs are kept apart
    db.execute(
        "INSERT INTO runs_live (sid, kind, run_for, fence, state, attempt, wake_at, epoch, cause) "
        "VALUES (?1, 'manual', ?2, 1, 'queued', 0, ?4, ?3, ?5)",
        (sid, run_for, epoch, AT_ONCE, cause),
    )
    detail = _encode({"run_for": run_for}).decode()
    auditing.append(db, [AuditEvent(at, "schedule.triggered", schedule_id, actor, detail, team)])
    return run_for
