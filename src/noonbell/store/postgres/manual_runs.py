"""Runs that a person asks for, on PostgreSQL: queued here, started by an engine of the lane."""

from __future__ import annotations

from typing import Final

import msgspec

from noonbell.core.records import AT_ONCE, MOST_ASKED, AuditEvent, Cause
from noonbell.core.turns import definition_of
from noonbell.errors import ScheduleNotFoundError
from noonbell.store.postgres import auditing, hints, slots
from noonbell.store.postgres.connection import Connection
from noonbell.store.postgres.stored import JOINED
from noonbell.store.words import MANUAL

_encode = msgspec.json.Encoder().encode

# The definition is read after the lock, by a statement of its own (see `stored`).
_LOCK: Final = f"SELECT s.sid FROM {JOINED} WHERE schedule_id = $1 AND lane IS NOT NULL FOR UPDATE OF s"
_FOUND: Final = f"SELECT sid, epoch, definition, team, lane FROM {JOINED} WHERE sid = $1 AND removed_at IS NULL"
_BUSY: Final = "SELECT EXISTS (SELECT 1 FROM live_runs WHERE sid = $1 AND (kind = 'manual' OR state <> 'waiting'))"
_FULL: Final = f"SELECT count(*) >= {MOST_ASKED} FROM runs_live WHERE sid = $1 AND kind = 'manual'"
_TAKEN: Final = f"""
    SELECT EXISTS (SELECT 1 FROM runs WHERE run_for = $1 AND sid = $2::int8 AND kind = {MANUAL})
        OR EXISTS (SELECT 1 FROM runs_live WHERE sid = $2 AND kind = 'manual' AND run_for = $1)
"""


async def ask(db: Connection, schedule_id: str, at: int, actor: str, cause: Cause, *, queue: bool) -> int | None:
    row = await db.fetchrow(_FOUND, await db.fetchval(_LOCK, schedule_id))
    if row is None:
        raise ScheduleNotFoundError("schedule", schedule_id)
    sid, epoch, definition, team, lane = row
    if definition_of(definition).overlap != "allow" and await db.fetchval(_FULL if queue else _BUSY, sid):
        return None
    run_for = at
    while await db.fetchval(_TAKEN, run_for, sid):
        run_for += 1  # asked for twice in one instant, or a clock that went back: the runs are kept apart
    await db.execute(
        "INSERT INTO runs_live (sid, kind, run_for, fence, state, attempt, wake_at, epoch, cause) "
        "VALUES ($1, 'manual', $2, 1, 'queued', 0, $4, $3, $5)",
        sid, run_for, epoch, AT_ONCE, cause,
    )  # fmt: skip
    await slots.touch(db, sid)
    detail = _encode({"run_for": run_for}).decode()
    await auditing.append(db, [AuditEvent(at, "schedule.triggered", schedule_id, actor, detail, team)])
    await hints.give(db, {lane: AT_ONCE})
    return run_for
