"""Runs on SQLite that are started by hand, or handed back unstarted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from noonbell.core.records import Start
from noonbell.store.sqlite import slots
from noonbell.store.words import MANUAL

_encode = msgspec.json.Encoder().encode

_NEW_LIVE = "sid, kind, run_for, fence, owner, state, attempt, started_at, attempt_at, epoch, cause"
LIVE = (
    "l.sid, l.kind, l.run_for, l.fence, l.owner, l.state, l.attempt, l.wake_at, l.started_at, l.attempt_at, l.crashes, "
    "l.epoch, l.cause"
)


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
