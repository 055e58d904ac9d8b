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
from noonbell.core.presence import lane_name
from noonbell.engine.work import BATCH
from noonbell.store.sqlite.numbers import owner_numbers
from noonbell.store.sqlite.tables import lane_numbers
from noonbell.store.words import SCHEDULED

_DUE = (
    "FROM schedule_state s WHERE enabled = 1 AND lane_no = (SELECT no FROM lane_numbers WHERE name = 'lane:' || ?2) "
    "AND next_run_at <= ?1 ORDER BY next_run_at, s.sid LIMIT ?3"
)
_DEFINED = _DUE.replace(" WHERE", " CROSS JOIN schedule_definitions d ON d.sid = s.sid WHERE", 1)
_CLAIM = f"""
    INSERT INTO runs_live (sid, kind, run_for, fence, owner, state, attempt, started_at, attempt_at, epoch, cause)
    SELECT sid, 'scheduled', next_run_at, 1, ?2, 'running', 1, ?1, ?1, epoch, 'cron' {_DUE}
"""
_ADVANCE = """
    UPDATE schedule_state SET cursor_at = next_run_at, last_run_for = next_run_at, next_run_at = next_run_at + ?3,
        last_run_at = ?1, last_attempt_at = ?1
    WHERE sid IN (SELECT sid FROM runs_live WHERE owner = ?2)
"""
_OWNER = "(SELECT no FROM owners WHERE instance = ?2)"
_RUN = "run_for, sid, kind, outcome, attempts, started_at, ended_at, owner, epoch"
_END = f"""
    INSERT INTO runs ({_RUN})
    SELECT run_for, sid, {SCHEDULED}, 0, attempt, started_at, ?1, {_OWNER}, epoch FROM runs_live WHERE owner = ?2
"""  # noqa: S608 - constants of this module
_SUCCEEDED = """
    UPDATE schedule_state SET last_success_at = ?1
    WHERE sid IN (SELECT sid FROM runs_live WHERE owner = ?2)
"""
_SEND = f"""
    INSERT INTO outbox (sid, lane, message_id, target, body, created_at, team)
    SELECT s.sid, lane, schedule_id || ':scheduled:' || next_run_at, 'inbox', ?4 || schedule_id, ?1, team {_DEFINED}
"""
_STREAMS = f"INSERT INTO outbox_streams (sid, lane, wake_at) SELECT sid, ?2, ?1 {_DUE}"
_SENT = f"INSERT INTO runs ({_RUN}) SELECT next_run_at, sid, {SCHEDULED}, 0, 1, ?1, ?1, {_OWNER}, epoch {_DUE}"
_ADVANCE_SENT = f"""
    UPDATE schedule_state SET cursor_at = next_run_at, last_run_for = next_run_at, next_run_at = next_run_at + ?4,
        last_run_at = ?1, last_attempt_at = ?1, last_success_at = ?1
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
        owner_numbers(self._db, (CALLBACKS, MESSAGES))

    async def close(self) -> None:
        self._db.close()

    async def create(self, count: int, at: int) -> int:
        """Schedules that never come due; returns how many."""
        begin, self._created = self._created + 1, self._created + count
        numbers = "WITH RECURSIVE n (i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)"
        new = (
            "INSERT INTO schedule_definitions (sid, schedule_id, name, spec, catch_up_policy, created_at, updated_at, "
            "managed_by, definition, lane) "
            "SELECT ?3 + i, printf('%032x', i), 'bare ' || i, '0 0 1 7 *', 'skip', ?4, ?4, 'bare', ?5, 'bare' FROM n"
        )
        states = (
            "INSERT INTO schedule_state (sid, lane_no, next_run_at, cursor_at) "
            "SELECT sid, ?2, ?3, ?4 FROM schedule_definitions WHERE sid > ?1"
        )
        for first in range(begin, begin + count, BATCH):
            with self._db as db:
                last = min(first + BATCH, begin + count) - 1
                above = db.execute("SELECT max(sid) FROM schedule_definitions").get or 0
                db.execute(f"{numbers} {new}", (first, last, above - first + 1, at, DEFINITION))
                db.execute(states, (above, lane_numbers(db, ["lane:bare"])["lane:bare"], at + 100 * DAY, at))
                db.execute(
                    "INSERT INTO epochs SELECT sid, 1, cursor_at, NULL, spec, timezone, ?2, ?3, 1 "
                    "FROM schedule_definitions JOIN schedule_state USING (sid) WHERE sid > ?1",
                    (above, "0" * 32, POLICIES),
                )
                db.execute(
                    "INSERT INTO audit_events (at, event, subject, actor, detail, team) SELECT created_at, "
                    "'schedule.created', schedule_id, 'bare', ?2, team FROM schedule_definitions WHERE sid > ?1",
                    (above, DETAIL),
                )
        return count

    async def take(self, lane: str, next_run_at: int) -> None:
        """Take over the schedules that are meant for a lane."""
        with self._db as db:
            db.execute(
                "UPDATE schedule_definitions SET lane = ?1 WHERE managed_by = 'api' AND name > ?1 AND name < ?1 || '~'",
                (lane,),
            )
            db.execute(
                "UPDATE schedule_state SET lane_no = ?2, next_run_at = ?3 "
                "WHERE sid IN (SELECT sid FROM schedule_definitions WHERE lane = ?1)",
                (lane, lane_numbers(db, [lane_name(lane)])[lane_name(lane)], next_run_at),
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
