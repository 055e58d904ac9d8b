"""Claiming on SQLite: what is due by now becomes running, in one transaction.

A batch reaches a statement as one JSON text (`json_each`), never row by row: between two steps of a statement the
interpreter lock may change hands, and beside a busy event loop that costs more than the row itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from noonbell.core.records import Decision, Due, LiveRun, Start
from noonbell.ports import Claimed, Decide
from noonbell.store.sqlite import ending, slots
from noonbell.store.sqlite.tables import OWNER_NO
from noonbell.store.words import MANUAL

_encode = msgspec.json.Encoder().encode

_NEW_LIVE = "sid, kind, run_for, fence, owner, state, attempt, started_at, attempt_at, epoch, cause"
LIVE = (
    "l.sid, l.kind, l.run_for, l.fence, l.owner, l.state, l.attempt, l.wake_at, l.started_at, l.attempt_at, l.crashes, "
    "l.epoch, l.cause"
)
_MINE = OWNER_NO.format(owner="?2")
_DUE_SCHEDULES = f"""
    SELECT s.sid, s.epoch, s.cursor_at, {LIVE}
    FROM schedule_state s LEFT JOIN runs_live l ON l.sid = s.sid AND l.kind = 'scheduled'
    WHERE s.enabled = 1 AND s.next_run_at <= ?1 AND s.lane_no = {_MINE}
    ORDER BY s.next_run_at LIMIT ?3
"""
_NO_MANUAL = "NOT EXISTS (SELECT 1 FROM runs_live m WHERE m.sid = l.sid AND m.kind = 'manual')"
_DUE_LIVE = f"""
    SELECT s.sid, s.epoch, s.cursor_at, {LIVE}
    FROM runs_live l JOIN schedule_state s ON s.sid = l.sid
    WHERE l.state <> 'running' AND l.wake_at <= ?1 AND s.lane_no = {_MINE} AND l.kind = 'scheduled' AND {_NO_MANUAL}
    ORDER BY l.wake_at LIMIT ?3
"""
# The upper bounds: SQLite sorts texts after all numbers, and damage must not pass for a far instant.
_NEXT_SCHEDULE = f"""
    SELECT min(next_run_at) FROM schedule_state
    WHERE enabled = 1 AND lane_no = {_MINE} AND next_run_at > ?1 AND next_run_at <= 9223372036854775807
"""
_NEXT_LIVE = f"""
    SELECT l.wake_at FROM runs_live l JOIN schedule_state s ON s.sid = l.sid
    WHERE l.state <> 'running' AND l.wake_at > ?1 AND l.wake_at <= 9223372036854775807 AND s.lane_no = {_MINE}
    AND {_NO_MANUAL}
    ORDER BY l.wake_at LIMIT 1
"""


def claim(db: apsw.Connection, decide: Decide, *, managed_by: str, owner: str, now: int, limit: int) -> Claimed:
    rows: list[tuple[Any, ...]] = db.execute(_DUE_SCHEDULES, (now, managed_by, limit)).fetchall()
    seen = {row[0] for row in rows}
    woken = db.execute(_DUE_LIVE, (now, managed_by, limit)).fetchall()
    rows.extend(row for row in woken if row[0] not in seen)
    decisions: list[Decision] = []
    quarantined: list[tuple[int, Exception]] = []
    for row in rows:
        try:
            decisions.append(decide(Due(row[0], row[1], row[2], LiveRun(*row[3:]) if row[3] is not None else None)))
        except Exception as error:  # noqa: BLE001 - one bad row must not stop its neighbours
            quarantined.append((row[0], error))
    if decisions:
        decisions, refused = _written(db, decisions, owner, now)
        quarantined.extend(refused)
    if quarantined:
        later = _encode([(sid, now + 60_000_000) for sid, _ in quarantined])
        db.execute(_RESCHEDULE, (later,))
        db.execute(_PUT_OFF, (later, now))
    upcoming = [
        db.execute(_NEXT_SCHEDULE, (now, managed_by)).get,
        db.execute(_NEXT_LIVE, (now, managed_by)).get,
        *(d.next_run_at for d in decisions if d.next_run_at is not None),
    ]
    return Claimed(
        starts=[d.start for d in decisions if d.start is not None],
        looked=len(rows),
        full=len(seen) >= limit or len(woken) >= limit,
        next_wake_at=min((at for at in upcoming if at is not None), default=None),
        quarantined=quarantined,
    )


# of a bad row nothing is decided: its cursor stays
_RESCHEDULE = """
    UPDATE schedule_state SET next_run_at = b.value ->> 1, cursor_at = coalesce(b.value ->> 2, cursor_at)
    FROM json_each(?) b WHERE sid = b.value ->> 0
"""
# a bad row that woke through its live run would come up again at every look, before all others
_PUT_OFF = """
    UPDATE runs_live SET wake_at = b.value ->> 1 FROM json_each(?1) b
    WHERE sid = b.value ->> 0 AND kind = 'scheduled' AND state <> 'running' AND wake_at <= ?2
"""


def _written(
    db: apsw.Connection, decisions: list[Decision], owner: str, now: int
) -> tuple[list[Decision], list[tuple[int, Exception]]]:
    """Write the decisions together; if the ledger contradicts one of them, singly, and give back those it refuses."""
    try:
        with db:  # a savepoint
            _write_decisions(db, decisions, owner, now)
    except apsw.ConstraintError:
        pass
    else:
        return decisions, []
    written: list[Decision] = []
    refused: list[tuple[int, Exception]] = []
    for decision in decisions:
        try:
            with db:
                _write_decisions(db, [decision], owner, now)
        except apsw.ConstraintError as error:
            refused.append((decision.sid, error))
        else:
            written.append(decision)
    return written, refused


def _write_decisions(db: apsw.Connection, decisions: list[Decision], owner: str, now: int) -> None:
    starts = [d.start for d in decisions if d.start is not None]
    idle = [(d.sid, d.next_run_at, d.cursor_at) for d in decisions if d.start is None]
    spans = [d.span for d in decisions if d.span is not None]
    preempted = [s.preempted for s in starts if s.preempted is not None]
    fresh = [(s.sid, s.run_for, s.epoch) for s in starts if s.cause == "cron" and s.attempt == 1 and s.fence == 1]
    again = [s for s in starts if s.fence > 1]
    if preempted:
        ending.end_live(db, preempted, "failed", now)
    if spans:
        db.execute(
            "INSERT INTO spans SELECT value ->> 'sid', value ->> 'from_at', value ->> 'to_at', value ->> 'n', "
            "value ->> 'verdict', value ->> 'reason', value ->> 'epoch' FROM json_each(?)",
            (_encode(spans),),
        )
    if fresh:
        db.execute(
            f"INSERT INTO runs_live ({_NEW_LIVE}) "
            "SELECT value ->> 0, 'scheduled', value ->> 1, 1, ?2, 'running', 1, ?3, ?3, value ->> 2, 'cron' "
            "FROM json_each(?1)",
            (_encode(fresh), owner, now),
        )
    if again:
        keys = _encode([(s.sid, s.kind, s.run_for, s.fence, s.attempt, s.cause) for s in again])
        db.execute(
            "UPDATE runs_live SET fence = b.value ->> 3, owner = ?2, state = 'running', attempt = b.value ->> 4, "
            "wake_at = NULL, started_at = coalesce(started_at, ?3), attempt_at = ?3, cause = b.value ->> 5 "
            "FROM json_each(?1) b WHERE sid = b.value ->> 0 AND kind = b.value ->> 1 AND run_for = b.value ->> 2",
            (keys, owner, now),
        )
    if starts:
        db.execute(
            "UPDATE schedule_state SET cursor_at = max(cursor_at, ?2), next_run_at = NULL, last_run_at = ?2, "
            "last_attempt_at = ?2 WHERE sid IN (SELECT value FROM json_each(?1))",
            (_encode([s.sid for s in starts]), now),
        )
    if idle:
        db.execute(_RESCHEDULE, (_encode(idle),))


def trigger(db: apsw.Connection, sid: int, owner: str, now: int) -> Start | None:
    busy = "SELECT 1 FROM live_runs WHERE sid = ? AND (kind = 'manual' OR state <> 'waiting')"
    if db.execute(busy, (sid,)).get is not None:
        return None
    row: Any = db.execute("SELECT epoch, next_run_at FROM schedule_state WHERE sid = ?", (sid,)).fetchone()
    if row is None:
        return None
    epoch, following = row
    # asked for twice in one instant, or a clock that went back: the next free microsecond keeps the runs apart
    run_for = now
    taken = f"SELECT 1 FROM runs WHERE run_for = ? AND sid = ? AND kind = {MANUAL}"
    while db.execute(taken, (run_for, sid)).get is not None:
        run_for += 1
    db.execute(
        f"INSERT INTO runs_live ({_NEW_LIVE}) VALUES (?1, 'manual', ?5, 1, ?3, 'running', 1, ?2, ?2, ?4, 'manual')",
        (sid, now, owner, epoch, run_for),
    )
    db.execute("UPDATE schedule_state SET next_run_at = NULL, last_attempt_at = ?2 WHERE sid = ?1", (sid, now))
    return Start(sid, "manual", run_for, 1, 1, "manual", epoch, now, now, following)


def hand_back(db: apsw.Connection, starts: Sequence[Start], owner: str, now: int) -> None:
    slots.spill(db, [s.sid for s in starts])
    rows = [(s.sid, s.kind, s.run_for, s.fence, now if s.following is None else s.following, s.epoch) for s in starts]
    mine = (
        "runs_live.sid = b.value ->> 0 AND runs_live.kind = b.value ->> 1 AND runs_live.run_for = b.value ->> 2 "
        "AND runs_live.fence = b.value ->> 3 AND runs_live.owner = ?2"
    )
    db.execute(
        "UPDATE schedule_state SET next_run_at = iif(schedule_state.epoch = b.value ->> 5, b.value ->> 4, cursor_at) "
        f"FROM json_each(?1) b JOIN runs_live ON {mine} WHERE schedule_state.sid = b.value ->> 0",
        (_encode(rows), owner),
    )
    # a manual run that never began nor was queued is forgotten: the one who asked is still there to ask again
    db.execute(
        "DELETE FROM runs_live WHERE kind = 'manual' AND fence = 1 AND owner = ?2 AND (sid, run_for, fence) IN "
        "(SELECT value ->> 0, value ->> 2, value ->> 3 FROM json_each(?1))",
        (_encode(rows), owner),
    )
    db.execute(
        "UPDATE runs_live SET state = 'queued', attempt = attempt - 1, wake_at = ?3, owner = NULL FROM json_each(?1) b "
        f"WHERE {mine}",
        (_encode(rows), owner, now),
    )
