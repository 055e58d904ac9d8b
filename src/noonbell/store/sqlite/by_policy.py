"""Claiming durable schedules on SQLite: turns are taken and written in one transaction, a statement for each table."""

from __future__ import annotations

from typing import Final

import apsw
import msgspec

from noonbell.core.records import StoredSchedule, Turn
from noonbell.ports import Claimed, LaneClaim, TakeTurn
from noonbell.store.sqlite import auditing, declaring, stored

_encode = msgspec.json.Encoder().encode

QUARANTINE_US: Final = 60_000_000

# Without overlap `allow` live runs go one after the other, the oldest first, and none beside a manual run.
_ITS_TURN: Final = """
    (s.definition ->> '$.overlap' IS 'allow' OR NOT EXISTS (
        SELECT 1 FROM runs_live m
        WHERE m.sid = l.sid AND (m.kind = 'manual' OR m.state = 'running' OR m.run_for < l.run_for)
    ))
"""
_DUE: Final = """
    SELECT sid FROM schedules WHERE enabled = 1 AND next_run_at <= ? AND lane = ? ORDER BY next_run_at, sid LIMIT ?
"""
_WOKEN: Final = f"""
    SELECT s.sid FROM runs_live l JOIN schedules s ON s.sid = l.sid
    WHERE l.state <> 'running' AND l.wake_at <= ? AND s.lane = ? AND l.kind = 'scheduled' AND {_ITS_TURN}
    GROUP BY s.sid ORDER BY min(l.wake_at), s.sid LIMIT ?
"""
# The upper bounds: SQLite sorts texts after all numbers, and damage must not pass for a far instant.
_NEXT_DUE: Final = """
    SELECT next_run_at FROM schedules
    WHERE enabled = 1 AND next_run_at > ? AND next_run_at <= 9223372036854775807 AND lane = ?
    ORDER BY next_run_at LIMIT 1
"""
_NEXT_WOKEN: Final = f"""
    SELECT l.wake_at FROM runs_live l JOIN schedules s ON s.sid = l.sid
    WHERE l.state <> 'running' AND l.wake_at > ? AND l.wake_at <= 9223372036854775807 AND s.lane = ?
    AND l.kind = 'scheduled' AND {_ITS_TURN}
    ORDER BY l.wake_at LIMIT 1
"""


def claim(db: apsw.Connection, take_turn: TakeTurn, *, lane: str, owner: str, now: int, limit: int) -> LaneClaim:
    coming = [row[0] for row in db.execute(_DUE, (now, lane, limit))]
    woken = [row[0] for row in db.execute(_WOKEN, (now, lane, limit))]
    looked = stored.by_sids(db, list(dict.fromkeys((*coming, *woken))))
    turns: list[Turn] = []
    started: dict[int, StoredSchedule] = {}
    quarantined: list[tuple[int, Exception]] = []
    for seen in looked:
        try:
            turns.append(take_turn(seen))
        except Exception as error:  # noqa: BLE001 - one bad row must not stop its neighbours
            quarantined.append((seen.sid, error))
            continue
        if turns[-1].starts:
            started[seen.sid] = seen
    if quarantined:
        _quarantine(db, [sid for sid, _ in quarantined], now)
    write(db, turns, owner, now)
    upcoming = [
        db.execute(_NEXT_DUE, (now, lane)).get,
        db.execute(_NEXT_WOKEN, (now, lane)).get,
        *(turn.next_run_at for turn in turns),
    ]
    claimed = Claimed(
        starts=[start for turn in turns for start in turn.starts],
        looked=len(looked),
        full=len(coming) >= limit or len(woken) >= limit,
        next_wake_at=min((at for at in upcoming if at is not None), default=None),
        quarantined=quarantined,
    )
    return LaneClaim(claimed, started)


def _quarantine(db: apsw.Connection, sids: list[int], now: int) -> None:
    told = (_encode(sids).decode(), now + QUARANTINE_US)
    db.execute("UPDATE schedules SET next_run_at = ?2 WHERE sid IN (SELECT value FROM json_each(?1))", told)
    # a bad row that woke through its live run would come up again at every look, before all others
    db.execute(
        "UPDATE runs_live SET wake_at = ?2 WHERE sid IN (SELECT value FROM json_each(?1)) AND kind = 'scheduled' "
        "AND state <> 'running' AND coalesce(wake_at, 0) <= ?3",
        (*told, now),
    )


def write(db: apsw.Connection, turns: list[Turn], owner: str, now: int) -> None:
    """Write what was decided."""
    if not turns:
        return
    preempted = [live for turn in turns for live in turn.preempted]
    if preempted:
        declaring.end_live(db, preempted, "failed", now)
    spans = [span for turn in turns for span in turn.spans]
    if spans:
        db.execute(
            "INSERT INTO spans SELECT value ->> 'sid', value ->> 'from_at', value ->> 'to_at', value ->> 'n', "
            "value ->> 'verdict', value ->> 'reason', value ->> 'epoch' FROM json_each(?)",
            (_encode(spans),),
        )
    _write_starts(db, turns, owner, now)
    _write_waiting(db, turns)
    rows = [
        (
            turn.sid, turn.cursor_at, turn.next_run_at, int(turn.enabled), turn.anchor_at, turn.backlog_left,
            turn.backlog_until, turn.last_run_for, int(bool(turn.starts)),
        )
        for turn in turns
    ]  # fmt: skip
    db.execute(
        "UPDATE schedules SET cursor_at = b.value ->> 1, next_run_at = b.value ->> 2, enabled = b.value ->> 3, "
        "anchor_at = b.value ->> 4, backlog_left = b.value ->> 5, backlog_until = b.value ->> 6, "
        "last_run_for = b.value ->> 7, last_run_at = iif(b.value ->> 8, ?2, last_run_at), "
        "last_attempt_at = iif(b.value ->> 8, ?2, last_attempt_at) FROM json_each(?1) b WHERE sid = b.value ->> 0",
        (_encode(rows), now),
    )
    auditing.append(db, [event for turn in turns for event in turn.audits])


def _write_starts(db: apsw.Connection, turns: list[Turn], owner: str, now: int) -> None:
    starts = [start for turn in turns for start in turn.starts]
    fresh = [(start.sid, start.run_for, start.epoch) for start in starts if start.fence == 1]
    again = [
        (start.sid, start.kind, start.run_for, start.fence, start.attempt, start.cause)
        for start in starts
        if start.fence > 1
    ]
    if fresh:
        db.execute(
            "INSERT INTO runs_live (sid, kind, run_for, fence, owner, state, attempt, started_at, attempt_at, epoch, "
            "cause) SELECT value ->> 0, 'scheduled', value ->> 1, 1, ?2, 'running', 1, ?3, ?3, value ->> 2, 'cron' "
            "FROM json_each(?1)",
            (_encode(fresh), owner, now),
        )
    if again:
        db.execute(
            "UPDATE runs_live SET fence = b.value ->> 3, owner = ?2, state = 'running', attempt = b.value ->> 4, "
            "wake_at = NULL, started_at = coalesce(started_at, ?3), attempt_at = ?3, cause = b.value ->> 5 "
            "FROM json_each(?1) b WHERE sid = b.value ->> 0 AND kind = b.value ->> 1 AND run_for = b.value ->> 2",
            (_encode(again), owner, now),
        )


def _write_waiting(db: apsw.Connection, turns: list[Turn]) -> None:
    queued = [live for turn in turns for live in turn.queued]
    if queued:
        names = queued[0].__struct_fields__
        values = ", ".join(f"value ->> '{name}'" for name in names)
        db.execute(
            f"INSERT INTO runs_live ({', '.join(names)}) SELECT {values} FROM json_each(?)",
            (_encode(queued),),
        )
    put_off = [(live.sid, live.kind, live.run_for, live.wake_at) for turn in turns for live in turn.put_off]
    if put_off:
        db.execute(
            "UPDATE runs_live SET wake_at = b.value ->> 3 FROM json_each(?) b "
            "WHERE sid = b.value ->> 0 AND kind = b.value ->> 1 AND run_for = b.value ->> 2",
            (_encode(put_off),),
        )


_LEFT_RUNNING: Final = """
    SELECT l.sid, l.kind, l.run_for FROM runs_live l JOIN schedules s ON s.sid = l.sid
    WHERE s.lane = ?1 AND l.state = 'running'
    AND (l.kind = 'manual' OR coalesce(s.definition ->> '$.at_most_once', 0)) = ?2
"""


def take_over(db: apsw.Connection, lane: str, at: int) -> int:
    """Queue again what a dead engine left running, or end it where it must not be repeated."""
    db.execute(
        "INSERT OR REPLACE INTO attempts SELECT l.sid, l.run_for, l.kind, l.attempt, 'unknown', l.cause, "
        "coalesce(l.attempt_at, ?2), ?2, coalesce(l.owner, ''), "
        "'interrupted: the instance ended before the attempt did' "
        "FROM runs_live l JOIN schedules s ON s.sid = l.sid WHERE s.lane = ?1 AND l.state = 'running'",
        (lane, at),
    )
    final = db.execute(_LEFT_RUNNING, (lane, 1)).fetchall()
    if final:
        keys = _encode(final).decode()
        declaring.end_keys(db, keys, "unknown", at)
        db.execute(
            "UPDATE schedules SET next_run_at = ?2 WHERE sid IN (SELECT value ->> 0 FROM json_each(?1))", (keys, at)
        )
    queued = db.execute(_LEFT_RUNNING, (lane, 0)).fetchall()
    if queued:
        db.execute(
            "UPDATE runs_live SET state = 'queued', cause = 'orphan', owner = NULL, wake_at = 0, fence = fence + 1, "
            "crashes = crashes + 1 WHERE (sid, kind, run_for) IN "
            "(SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?))",
            (_encode(queued).decode(),),
        )
    return len(queued)
