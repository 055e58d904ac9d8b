"""Pruning on SQLite: a day of the ledger goes in one transaction, a few statements for all schedules together.

`memory.pruning` defines what may go. The type of each number is asked for, because SQLite sorts a text after all
numbers and adds it as nothing: a damaged row stays where `verify` finds it.
"""

from __future__ import annotations

from typing import Final

import apsw
import msgspec

from noonbell.core.lives import ended_lives
from noonbell.ports import Pruned
from noonbell.store.sqlite import history
from noonbell.store.sqlite.numbers import word_sql
from noonbell.store.words import KINDS, MANUAL, SCHEDULED

DAY_US: Final = 86_400_000_000
_encode = msgspec.json.Encoder().encode

_SETTLED_RUNS: Final = f"""
    FROM runs r JOIN schedule_state s ON s.sid = r.sid
    WHERE r.run_for >= ?1 AND r.run_for < ?2 AND typeof(s.cursor_at) = 'integer'
    AND (r.kind = {MANUAL} OR r.run_for < s.cursor_at OR (r.run_for = s.cursor_at AND s.enabled = 0))
    AND NOT EXISTS (
        SELECT 1 FROM live_runs l WHERE l.sid = r.sid AND l.kind = {word_sql(KINDS, "r.kind")} AND l.run_for = r.run_for
    )
"""
# The schedules whose history would be torn: one run goes, and the one that ended before it stays.
_TORN: Final = f"""
    SELECT DISTINCT r.sid {_SETTLED_RUNS} AND EXISTS (
        SELECT 1 FROM runs q
        WHERE q.run_for = r.prev_for AND q.sid = r.sid AND q.kind = iif(r.prev_manual, {MANUAL}, {SCHEDULED})
        AND NOT (
            q.run_for >= ?1 AND q.run_for < ?2
            AND (q.kind = {MANUAL} OR q.run_for < s.cursor_at OR (q.run_for = s.cursor_at AND s.enabled = 0))
            AND NOT EXISTS (
                SELECT 1 FROM live_runs l
                WHERE l.sid = q.sid AND l.kind = {word_sql(KINDS, "q.kind")} AND l.run_for = q.run_for
            )
        )
    )
"""
_SETTLED_SPANS: Final = """
    FROM spans p JOIN schedule_state s ON s.sid = p.sid
    WHERE p.to_at >= ?1 AND p.to_at < ?2 AND p.to_at <= s.cursor_at
    AND typeof(s.cursor_at) = 'integer' AND typeof(p.to_at) = 'integer' AND typeof(p.n) = 'integer'
"""
# The newest event stays: its number says which comes next.
_OLD_AUDITS: Final = """
    FROM audit_events WHERE at >= ?1 AND at < ?2 AND typeof(at) = 'integer'
    AND id < (SELECT max(id) FROM audit_events)
"""
_OLD_LETTERS: Final = "FROM dead_letters WHERE died_at >= ?1 AND died_at < ?2 AND typeof(died_at) = 'integer'"
_LIFECYCLE: Final = (
    "SELECT id, managed_by, at, instance, event FROM lifecycle WHERE at < ? AND typeof(at) = 'integer' ORDER BY id"
)
_OLDEST: Final = f"""
    SELECT min(at) FROM (
        SELECT * FROM (SELECT r.run_for AS at {_SETTLED_RUNS} ORDER BY r.run_for LIMIT 1)
        UNION ALL SELECT min(p.to_at) {_SETTLED_SPANS}
        UNION ALL SELECT min(at) {_OLD_AUDITS}
        UNION ALL SELECT min(died_at) {_OLD_LETTERS}
    )
"""
_KEEP: Final = f"""
    INSERT INTO pruned_days (sid, epoch, day, first_at, to_at, fired, passed, last_for)
    SELECT sid, epoch, ?1, min(first_at), max(to_at), sum(fired), sum(passed), max(last_for) FROM (
        SELECT r.sid AS sid, r.epoch AS epoch, r.run_for AS first_at, r.run_for AS to_at, 1 AS fired, 0 AS passed,
            r.run_for AS last_for
        {_SETTLED_RUNS} AND r.kind = {SCHEDULED}
        UNION ALL
        SELECT p.sid, p.epoch, p.from_at, p.to_at, 0, p.n, NULL {_SETTLED_SPANS}
    ) GROUP BY sid, epoch
    ON CONFLICT (sid, epoch, day) DO UPDATE SET first_at = min(first_at, excluded.first_at),
        to_at = max(to_at, excluded.to_at), fired = fired + excluded.fired, passed = passed + excluded.passed,
        last_for = iif(last_for IS NULL OR excluded.last_for > last_for, excluded.last_for, last_for)
"""
# where the latest run went with an earlier pruning, its start is known already
_KEEP_STARTS: Final = f"""
    UPDATE pruned_days SET last_started_at = r.started_at FROM runs r
    WHERE pruned_days.day = ?1 AND r.run_for >= ?1 AND r.run_for < ?2
    AND r.run_for = pruned_days.last_for AND r.sid = pruned_days.sid AND r.kind = {SCHEDULED}
"""


def prune_day(db: apsw.Connection, before: int) -> Pruned | None:
    """Drop the oldest day that ended by `before`."""
    lives = ended_lives(db.execute(_LIFECYCLE, (before,)))
    oldest = db.execute(_OLDEST, (-(2**63), 2**63 - 1)).get
    first = min((at for at in (oldest, *lives.values()) if at is not None), default=None)
    if first is None:
        return None
    day = first - first % DAY_US
    if day + DAY_US > before:
        return None
    bounds = (day, day + DAY_US)
    torn = [row[0] for row in db.execute(_TORN, bounds)]
    history.mend(db, torn, _SETTLED_RUNS, bounds)
    db.execute(_KEEP, bounds)
    db.execute(_KEEP_STARTS, bounds)
    gone = (
        f"attempts WHERE (run_for, sid, kind) IN (SELECT r.run_for, r.sid, r.kind {_SETTLED_RUNS})",
        f"runs WHERE (run_for, sid, kind) IN (SELECT r.run_for, r.sid, r.kind {_SETTLED_RUNS})",
        f"spans WHERE (sid, from_at) IN (SELECT p.sid, p.from_at {_SETTLED_SPANS})",
        f"audit_events WHERE id IN (SELECT id {_OLD_AUDITS})",
        f"dead_letters WHERE id IN (SELECT id {_OLD_LETTERS})",
    )
    counts = []
    for rows in gone:
        db.execute(f"DELETE FROM {rows}", bounds)
        counts.append(db.changes())
    attempts, runs, spans, audits, letters = counts
    events = [number for number, at in lives.items() if day <= at < day + DAY_US]
    db.execute("DELETE FROM lifecycle WHERE id IN (SELECT value FROM json_each(?))", (_encode(events),))
    return Pruned(day, runs, spans, attempts, audits, letters, len(events))
