"""The limit on SQLite: the rows of a burst, written by plain statements on Noonbell's tables.

Tables, indexes, settings and batch size are Noonbell's, a batch is one statement for each table and one synced commit.
But nothing is decided, no action is called and no value leaves the database. The schedules are in the same file, spread
as Noonbell's are, in lanes of their own.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from benchmarks.schedule_parts.burst import BODY, CALLBACKS, DAY, DEFINITION, DETAIL, MESSAGES, POLICIES
from benchmarks.schedule_parts.counting import Written, written_by
from noonbell.engine.work import BATCH

_DUE = "FROM schedules WHERE enabled = 1 AND lane = ?2 AND next_run_at <= ?1 ORDER BY next_run_at, sid LIMIT ?3"
_CLAIM = f"""
    INSERT INTO runs_live (sid, kind, run_for, fence, owner, state, attempt, started_at, attempt_at, epoch, cause)
    SELECT sid, 'scheduled', next_run_at, 1, ?2, 'running', 1, ?1, ?1, epoch, 'cron' {_DUE}
"""
_ADVANCE = """
    UPDATE schedules SET cursor_at = next_run_at, last_run_for = next_run_at, next_run_at = next_run_at + ?3,
        last_run_at = ?1, last_attempt_at = ?1
    WHERE sid IN (SELECT sid FROM runs_live WHERE owner = ?2)
"""
_RUN = "run_for, sid, kind, outcome, attempts, started_at, ended_at, owner, epoch"
_END = f"""
    INSERT INTO runs ({_RUN})
    SELECT run_for, sid, kind, 'succeeded', attempt, started_at, ?1, owner, epoch FROM runs_live WHERE owner = ?2
"""  # noqa: S608 - constants of this module
_SUCCEEDED = """
    UPDATE schedules SET last_success_at = ?1
    WHERE sid IN (SELECT sid FROM runs_live WHERE owner = ?2)
"""
_SEND = f"""
    INSERT INTO outbox (sid, lane, message_id, target, body, created_at, team)
    SELECT sid, lane, schedule_id || ':scheduled:' || next_run_at, 'inbox', ?4 || schedule_id, ?1, team {_DUE}
"""
_STREAMS = f"INSERT INTO outbox_streams (sid, lane, wake_at) SELECT sid, lane, ?1 {_DUE}"
_SENT = f"INSERT INTO runs ({_RUN}) SELECT next_run_at, sid, 'scheduled', 'succeeded', 1, ?1, ?1, ?2, epoch {_DUE}"
_ADVANCE_SENT = f"""
    UPDATE schedules SET cursor_at = next_run_at, last_run_for = next_run_at, last_run_at = ?1, last_attempt_at = ?1,
        last_success_at = ?1, next_run_at = next_run_at + ?4
    WHERE sid IN (SELECT sid {_DUE})
"""  # noqa: S608 - constants of this module


class BareSqlite:
    """A connection of its own to the file of the store."""

    def __init__(self, path: Path) -> None:
        self._created = 0
        self._db = apsw.Connection(str(path))
        self._db.set_busy_timeout(60_000)
        settings = ("synchronous = FULL", "cache_size = -65536", "wal_autocheckpoint = 16384", "temp_store = MEMORY")
        for setting in settings:
            self._db.execute(f"PRAGMA {setting}")

    async def close(self) -> None:
        self._db.close()

    async def create(self, count: int, at: int) -> int:
        """Schedules that never come due; returns how many."""
        begin, self._created = self._created + 1, self._created + count
        numbers = "WITH RECURSIVE n (i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)"
        new = (
            "INSERT INTO schedules (sid, schedule_id, name, spec, next_run_at, catch_up_policy, created_at, "
            "updated_at, managed_by, cursor_at, definition, lane) "
            "SELECT ?3 + i, printf('%032x', i), 'bare ' || i, '0 0 1 7 *', ?5, 'skip', ?4, ?4, 'bare', ?4, ?6, 'bare' "
            "FROM n"
        )
        for first in range(begin, begin + count, BATCH):
            with self._db as db:
                last = min(first + BATCH, begin + count) - 1
                above = db.execute("SELECT max(sid) FROM schedules").get or 0
                db.execute(f"{numbers} {new}", (first, last, above - first + 1, at, at + 100 * DAY, DEFINITION))
                db.execute(
                    "INSERT INTO epochs SELECT sid, 1, cursor_at, NULL, spec, timezone, ?2, ?3, 1 FROM schedules "
                    "WHERE sid > ?1",
                    (above, "0" * 32, POLICIES),
                )
                db.execute(
                    "INSERT INTO audit_events (at, event, subject, actor, detail, team) SELECT created_at, "
                    "'schedule.created', schedule_id, 'bare', ?2, team FROM schedules WHERE sid > ?1",
                    (above, DETAIL),
                )
        return count

    async def take(self, lane: str, next_run_at: int) -> None:
        """Take over the schedules that are meant for a lane."""
        with self._db as db:
            db.execute(
                "UPDATE schedules SET lane = ?1, next_run_at = ?2 WHERE managed_by = 'api' AND name > ?1 "
                "AND name < ?1 || '~'",
                (lane, next_run_at),
            )

    async def fire(self, now: int) -> int:
        """Claim and settle what is due, batch by batch."""
        fired = 0
        while True:
            with self._db as db:
                db.execute(_CLAIM, (now, CALLBACKS, BATCH))
                count = db.changes()
                db.execute(_ADVANCE, (now, CALLBACKS, DAY))
            if count == 0:
                return fired
            with self._db as db:
                db.execute(_END, (now, CALLBACKS))
                db.execute(_SUCCEEDED, (now, CALLBACKS))
                db.execute("DELETE FROM runs_live WHERE owner = ?", (CALLBACKS,))
            fired += count

    async def send(self, now: int) -> int:
        """Put the messages of what is due into the outbox, batch by batch."""
        sent = 0
        while True:
            with self._db as db:
                db.execute(_SEND, (now, MESSAGES, BATCH, BODY))
                count = db.changes()
                db.execute(_STREAMS, (now, MESSAGES, BATCH))
                db.execute(_SENT, (now, MESSAGES, BATCH))
                db.execute(_ADVANCE_SENT, (now, MESSAGES, BATCH, DAY))
            if count == 0:
                return sent
            sent += count

    async def tidy(self) -> None:
        """As if the messages had been delivered."""
        with self._db as db:
            db.execute("DELETE FROM outbox WHERE lane = ?", (MESSAGES,))
            db.execute("DELETE FROM outbox_streams WHERE lane = ?", (MESSAGES,))

    async def written(self, *, rows: bool) -> Written:
        del rows  # they cost nothing here
        return written_by(self._db)
