"""Runs on PostgreSQL that are started by hand, or handed back unstarted."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from noonbell.core.records import Start
from noonbell.store.postgres import live_rows, slots
from noonbell.store.postgres.connection import Connection
from noonbell.store.words import MANUAL

QUARANTINE_US: Final = 60_000_000
# Due rows that another transaction holds are looked for again this much later.
LOCKED_PAUSE_US: Final = 100_000
LIVE: Final = live_rows.COLUMNS


def accounting_lock(owner: str) -> str:
    """The argument of an advisory lock that an owner's claims share.

    A process that takes it alone knows that no claim of the owner is still on its way into the database, not even one
    whose connection was lost while it committed.
    """
    return str(int.from_bytes(hashlib.sha256(owner.encode()).digest()[:8], signed=True))


async def _insert_live(db: Connection, starts: Sequence[Start], owner: str) -> None:
    await db.execute(
        "INSERT INTO runs_live "
        "(sid, kind, run_for, fence, owner, state, attempt, started_at, attempt_at, epoch, cause) "
        "SELECT b.sid, b.kind, b.run_for, b.fence, $8, 'running', b.attempt, b.started_at, b.started_at, b.epoch, "
        "b.cause "
        "FROM unnest($1::int8[], $2::text[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $9::text[]) "
        "AS b (sid, kind, run_for, fence, attempt, started_at, epoch, cause)",
        [s.sid for s in starts], [s.kind for s in starts], [s.run_for for s in starts], [s.fence for s in starts],
        [s.attempt for s in starts], [s.started_at for s in starts], [s.epoch for s in starts], owner,
        [s.cause for s in starts],
    )  # fmt: skip


async def trigger(db: Connection, sid: int, owner: str, now: int) -> Start | None:
    row = await db.fetchrow("SELECT epoch, next_run_at FROM schedule_state WHERE sid = $1 FOR UPDATE", sid)
    if row is None:
        return None
    busy = "SELECT EXISTS (SELECT 1 FROM live_runs WHERE sid = $1 AND (kind = 'manual' OR state <> 'waiting'))"
    if await db.fetchval(busy, sid):
        return None
    epoch, following = row
    # asked for twice in one instant, or a clock that went back: the next free microsecond keeps the runs apart
    run_for = now
    taken = f"SELECT EXISTS (SELECT 1 FROM runs WHERE run_for = $1 AND sid = $2::int8 AND kind = {MANUAL})"
    while await db.fetchval(taken, run_for, sid):
        run_for += 1
    start = Start(sid, "manual", run_for, 1, 1, "manual", epoch, now, now, following)
    await _insert_live(db, [start], owner)
    await db.execute("UPDATE schedule_state SET next_run_at = NULL, last_attempt_at = $2 WHERE sid = $1", sid, now)
    return start


async def hand_back(db: Connection, starts: Sequence[Start], owner: str, now: int) -> None:
    """One statement: what was taken is judged once, and every part of it goes by that."""
    await slots.spill(db, [start.sid for start in starts])
    await db.execute(
        f"""
        WITH mine AS (
            SELECT b.*, l.tid FROM unnest($1::int8[], $2::text[], $3::int8[], $4::int8[], $5::int8[], $8::int8[])
                AS b (sid, kind, run_for, fence, following, epoch) {live_rows.OF_BATCH}
            WHERE l.fence = b.fence AND l.owner = $6
        ), waking AS (
            UPDATE schedule_state s SET next_run_at = CASE WHEN s.epoch = m.epoch THEN m.following ELSE s.cursor_at END
            FROM mine m WHERE s.sid = m.sid
        ), forgotten AS (
            -- a manual run that never began nor was queued: the one who asked is still there to ask again
            DELETE FROM runs_live l
            WHERE {live_rows.among("SELECT tid FROM mine WHERE kind = 'manual' AND fence = 1")}
        )
        UPDATE runs_live l SET state = 'queued', attempt = l.attempt - 1, wake_at = $7, owner = NULL
        WHERE {live_rows.among("SELECT tid FROM mine WHERE kind <> 'manual' OR fence > 1")}
        """,
        [s.sid for s in starts], [s.kind for s in starts], [s.run_for for s in starts], [s.fence for s in starts],
        [now if s.following is None else s.following for s in starts], owner, now,
        [s.epoch for s in starts],
    )  # fmt: skip
