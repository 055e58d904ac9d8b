"""Claiming on PostgreSQL: what is due by now becomes running, in one transaction.

1. Lock the due schedules, and the schedules of due live runs; what another instance has locked is skipped.
2. Read the live runs of what was locked. This is a statement of its own because it must see what was committed up to
   the moment of the lock. Whoever changes a live run holds the lock of its schedule, so what it shows stays true.
3. Decide, and write: one statement for each table, whatever the size of the batch.

Among schedules that wake at the same microsecond, and only where the limit cuts between them, the index decides which
ones come first; all come before any later one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from noonbell.core.records import Decision, Due, LiveRun, Start
from noonbell.ports import Claimed, Decide
from noonbell.store.postgres import ending, live_rows, slots
from noonbell.store.postgres.connection import Connection
from noonbell.store.postgres.lane_numbers import OF_LIVE, OF_OWNER
from noonbell.store.words import MANUAL

QUARANTINE_US: Final = 60_000_000
# Due rows that another transaction holds are looked for again this much later.
LOCKED_PAUSE_US: Final = 100_000
LIVE: Final = live_rows.COLUMNS

_DUE_SCHEDULES = f"""
    SELECT sid, epoch, cursor_at, next_run_at FROM schedule_state
    WHERE enabled = 1 AND next_run_at <= $1 AND lane_no = {OF_OWNER}
    ORDER BY next_run_at LIMIT $3 FOR UPDATE SKIP LOCKED
"""
# not NOT EXISTS: that may become a join with every manual run there is, instead of one look for each due run
_NO_MANUAL = "(SELECT count(*) FROM runs_live m WHERE m.sid = l.sid AND m.kind = 'manual') = 0"
_WAKING = f"l.state <> 'running' AND l.kind = 'scheduled' AND {OF_LIVE} = {OF_OWNER} AND {_NO_MANUAL}"
# a subquery that locks stays one: schedules are looked up one by one, in the order of their live runs
_DUE_LIVE = f"""
    SELECT s.sid, s.epoch, s.cursor_at, l.wake_at FROM runs_live l CROSS JOIN LATERAL (
        SELECT t.sid, t.epoch, t.cursor_at FROM schedule_state t WHERE t.sid = l.sid FOR UPDATE SKIP LOCKED
    ) s
    WHERE l.wake_at <= $1 AND {_WAKING} ORDER BY l.wake_at LIMIT $3
"""
_LIVE_OF = f"SELECT {LIVE} FROM runs_live WHERE sid = ANY($1::int8[])"
_NEXT = f"""
    SELECT
        (SELECT next_run_at FROM schedule_state WHERE enabled = 1 AND next_run_at > $1 AND lane_no = {OF_OWNER}
            ORDER BY next_run_at LIMIT 1),
        (SELECT l.wake_at FROM runs_live l WHERE l.wake_at > $1 AND {_WAKING} ORDER BY l.wake_at LIMIT 1),
        EXISTS (SELECT 1 FROM schedule_state WHERE enabled = 1 AND next_run_at <= $1 AND lane_no = {OF_OWNER})
            OR EXISTS (SELECT 1 FROM runs_live l WHERE l.wake_at <= $1 AND {_WAKING})
"""


class _Locked(NamedTuple):
    rows: list[Due]
    looked: int
    full: bool


def accounting_lock(owner: str) -> str:
    """The argument of an advisory lock that an owner's claims share.

    Whoever takes it alone knows that no claim of the owner is still on its way into the database, not even one whose
    connection was lost while it committed.
    """
    return str(int.from_bytes(hashlib.sha256(owner.encode()).digest()[:8], signed=True))


async def claim(db: Connection, decide: Decide, *, managed_by: str, owner: str, now: int, limit: int) -> Claimed:
    locked = await _lock(db, managed_by, now, limit)
    decisions: list[Decision] = []
    quarantined: list[tuple[int, Exception]] = []
    for due in locked.rows:
        try:
            decisions.append(decide(due))
        except Exception as error:  # noqa: BLE001 - one bad row must not stop its neighbours
            quarantined.append((due.sid, error))
    if quarantined:
        await _put_off(db, [sid for sid, _ in quarantined], now)
    if decisions:
        await _write_decisions(db, decisions, owner, now)
    schedule_at, live_at, left_over = await _one(db, _NEXT, now, managed_by)
    upcoming = [schedule_at, live_at, *(d.next_run_at for d in decisions)]
    if left_over and not locked.full:
        upcoming.append(now + LOCKED_PAUSE_US)
    return Claimed(
        starts=[d.start for d in decisions if d.start is not None],
        looked=locked.looked,
        full=locked.full,
        next_wake_at=min((at for at in upcoming if at is not None), default=None),
        quarantined=quarantined,
        locked=bool(left_over) and not locked.full,
    )


async def _lock(db: Connection, managed_by: str, now: int, limit: int) -> _Locked:
    due = await db.fetch(_DUE_SCHEDULES, now, managed_by, limit)
    woken = await db.fetch(_DUE_LIVE, now, managed_by, limit)
    full = len(due) >= limit or len(woken) >= limit
    if not due and not woken:
        return _Locked([], 0, full)
    found = sorted(due, key=lambda row: (row[3], row[0])) + sorted(woken, key=lambda row: (row[3], row[0]))
    lives: dict[int, LiveRun] = {}
    manual: set[int] = set()
    for row in await db.fetch(_LIVE_OF, [row[0] for row in found]):
        if row[1] == "scheduled":
            lives[row[0]] = LiveRun(*row)
        else:
            manual.add(row[0])
    rows: dict[int, Due] = {}
    for place, (sid, epoch, cursor_at, _) in enumerate(found):
        live = lives.get(sid)
        if place >= len(due) and sid not in rows and (sid in manual or not _wakes(live, now)):
            continue  # another instance was faster between the look and the lock
        rows.setdefault(sid, Due(sid, epoch, cursor_at, live))
    return _Locked(list(rows.values()), len(rows), full)


def _wakes(live: LiveRun | None, now: int) -> bool:
    return live is not None and live.state != "running" and live.wake_at is not None and live.wake_at <= now


async def _put_off(db: Connection, sids: list[int], now: int) -> None:
    later = now + QUARANTINE_US
    await db.execute("UPDATE schedule_state SET next_run_at = $2 WHERE sid = ANY($1::int8[])", sids, later)
    # a bad row that woke through its live run would come up again at every look, before all others
    await db.execute(
        "UPDATE runs_live SET wake_at = $2 WHERE sid = ANY($1::int8[]) AND kind = 'scheduled' AND state <> 'running' "
        "AND wake_at <= $3",
        sids, later, now,
    )  # fmt: skip


async def _write_decisions(db: Connection, decisions: list[Decision], owner: str, now: int) -> None:
    starts = [d.start for d in decisions if d.start is not None]
    spans = [d.span for d in decisions if d.span is not None]
    preempted = [s.preempted for s in starts if s.preempted is not None]
    fresh = [s for s in starts if s.fence == 1]
    again = [s for s in starts if s.fence > 1]
    if preempted:
        await ending.end_live(db, preempted, "failed", now)
    if spans:
        await db.execute(
            "INSERT INTO spans (sid, from_at, to_at, n, verdict, reason, epoch) SELECT * FROM unnest("
            "$1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::text[], $6::text[], $7::int8[])",
            [s.sid for s in spans], [s.from_at for s in spans], [s.to_at for s in spans], [s.n for s in spans],
            [s.verdict for s in spans], [s.reason for s in spans], [s.epoch for s in spans],
        )  # fmt: skip
    if fresh:
        await _insert_live(db, fresh, owner)
    if again:
        await db.execute(
            live_rows.START_AGAIN,
            [s.sid for s in again], [s.kind for s in again], [s.run_for for s in again], [s.fence for s in again],
            [s.attempt for s in again], [s.cause for s in again], owner, now,
        )  # fmt: skip
    await db.execute(
        "UPDATE schedule_state s SET cursor_at = b.cursor_at, next_run_at = b.next_run_at, "
        "last_run_at = CASE WHEN b.started = 1 THEN $5 ELSE s.last_run_at END, "
        "last_attempt_at = CASE WHEN b.started = 1 THEN $5 ELSE s.last_attempt_at END "
        "FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[]) AS b (sid, cursor_at, next_run_at, started) "
        "WHERE s.sid = b.sid",
        [d.sid for d in decisions], [d.cursor_at for d in decisions],
        [None if d.start is not None else d.next_run_at for d in decisions],
        [int(d.start is not None) for d in decisions], now,
    )  # fmt: skip


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


async def _one(db: Connection, sql: str, *bindings: Any) -> tuple[Any, ...]:
    row = await db.fetchrow(sql, *bindings)
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    return tuple(row)
