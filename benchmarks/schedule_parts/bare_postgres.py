"""The limit on PostgreSQL: the rows of a burst, written by plain statements on Noonbell's tables.

As on SQLite: one statement for each table and one synced commit for a batch, on one connection; nothing is decided, no
action is called and no value leaves the database. The due rows are locked as Noonbell locks them.
"""

from __future__ import annotations

from typing import Any

import asyncpg

from benchmarks.schedule_parts.burst import BODY, CALLBACKS, DAY, DEFINITION, DETAIL, MESSAGES, POLICIES
from benchmarks.schedule_parts.counting import Written, written_to
from noonbell.engine.work import BATCH

_DUE = (
    "FROM (SELECT * FROM schedule_state WHERE enabled = 1 AND next_run_at <= $1 AND lane_no = "
    "(SELECT no FROM lane_numbers WHERE name = 'lane:' || $2::text) "
    "ORDER BY next_run_at LIMIT $3 FOR UPDATE SKIP LOCKED) s"
)
_CLAIM = f"SELECT sid {_DUE}"
_ADVANCE = """
    UPDATE schedule_state SET cursor_at = next_run_at, last_run_for = next_run_at, next_run_at = next_run_at + $3,
        last_run_at = $1, last_attempt_at = $1, slot_for = next_run_at, slot_at = $1, slot_owner = 0,
        slot_epoch = epoch, slot_cause = 0
    WHERE sid = ANY($2::int8[])
"""
_RUN = "run_for, sid, kind, outcome, started_at, ended_at, owner, epoch"
_END = f"""
    INSERT INTO runs ({_RUN})
    SELECT slot_for, sid, 1, '0', slot_at, $1, 0, slot_epoch FROM schedule_state WHERE sid = ANY($2::int8[])
"""  # noqa: S608 - constants of this module
_SUCCEEDED = """
    UPDATE schedule_state SET last_success_at = $1, last_ended_for = slot_for, slot_for = NULL, slot_at = NULL,
        slot_owner = NULL, slot_epoch = NULL, slot_cause = NULL
    WHERE sid = ANY($2::int8[])
"""
# One statement that locks the batch and writes all four tables.
_SEND = f"""
    WITH due AS MATERIALIZED (
        SELECT s.*, d.schedule_id, d.lane, d.team {_DUE} JOIN schedule_definitions d ON d.sid = s.sid
    ),
    sent AS (
        INSERT INTO outbox (sid, lane, message_id, target, body, created_at, team)
        SELECT sid, lane, schedule_id || ':scheduled:' || next_run_at, 'inbox', $4::text || schedule_id, $1, team
        FROM due
    ),
    streams AS (INSERT INTO outbox_streams (sid, lane, wake_at) SELECT sid, lane, $1 FROM due),
    ended AS (
        INSERT INTO runs ({_RUN})
        SELECT next_run_at, sid, 1, '0', $1, $1, 0, epoch FROM due
    )
    UPDATE schedule_state s SET cursor_at = due.next_run_at, last_run_for = due.next_run_at, last_run_at = $1,
        last_attempt_at = $1, last_success_at = $1, next_run_at = due.next_run_at + $5
    FROM due WHERE s.sid = due.sid
"""  # noqa: S608 - constants of this module


class BarePostgres:
    """A connection of its own to the database of the store."""

    def __init__(self, db: asyncpg.Connection[Any]) -> None:
        self._created = 0
        self._db = db

    @classmethod
    async def connect(cls, dsn: str) -> BarePostgres:
        return cls(await asyncpg.connect(dsn, command_timeout=600))

    async def close(self) -> None:
        await self._db.close()

    async def create(self, count: int, at: int) -> int:
        """Schedules that never come due; returns how many."""
        begin, self._created = self._created + 1, self._created + count
        lane_no = await self._number("bare")
        for first in range(begin, begin + count, BATCH):
            async with self._db.transaction():
                above = await self._db.fetchval("SELECT coalesce(max(sid), 0) FROM schedule_state")
                numbers = (first, min(first + BATCH, begin + count) - 1, above - first + 1, at)
                await self._db.execute(
                    "INSERT INTO schedule_state (sid, lane_no, next_run_at, cursor_at) "
                    "SELECT $3::int8 + i, $6::int8, $5, $4 FROM generate_series($1::int8, $2::int8) AS n (i)",
                    *numbers, at + 100 * DAY, lane_no,
                )  # fmt: skip
                await self._db.execute(
                    "INSERT INTO schedule_definitions (sid, schedule_id, name, spec, catch_up_policy, created_at, "
                    "updated_at, managed_by, definition, lane) "
                    "SELECT $3::int8 + i, lpad(i::text, 32, '0'), 'bare ' || i, '0 0 1 7 *', 'skip', $4, $4, "
                    "'bare', $5, 'bare' FROM generate_series($1::int8, $2::int8) AS n (i)",
                    *numbers, DEFINITION,
                )  # fmt: skip
                await self._db.execute(
                    "INSERT INTO epochs SELECT sid, 1, created_at, NULL, spec, timezone, $2, $3, 1 "
                    "FROM schedule_definitions WHERE sid > $1",
                    above, "0" * 32, POLICIES,
                )  # fmt: skip
                await self._db.execute(
                    "INSERT INTO audit_events (at, event, subject, actor, detail, team) SELECT created_at, "
                    "'schedule.created', schedule_id, 'bare', $2, team FROM schedule_definitions WHERE sid > $1",
                    above, DETAIL,
                )  # fmt: skip
        return count

    async def take(self, lane: str, next_run_at: int) -> None:
        """Take over the schedules that are meant for a lane."""
        await self._db.execute(
            "WITH taken AS (UPDATE schedule_definitions SET lane = $1::text WHERE managed_by = 'api' "
            "AND name > $1::text AND name < $1::text || '~' RETURNING sid) "
            "UPDATE schedule_state s SET lane_no = $3::int8, next_run_at = $2 FROM taken WHERE taken.sid = s.sid",
            lane, next_run_at, await self._number(lane),
        )  # fmt: skip

    async def _number(self, lane: str) -> int:
        """Return the number of a lane; nobody else gives numbers at that time."""
        await self._db.execute(
            "INSERT INTO lane_numbers (no, name) SELECT coalesce(max(no), 0) + 1, 'lane:' || $1::text "
            "FROM lane_numbers ON CONFLICT (name) DO NOTHING",
            lane,
        )  # fmt: skip
        found: int = await self._db.fetchval("SELECT no FROM lane_numbers WHERE name = 'lane:' || $1::text", lane)
        return found

    async def fire(self, now: int) -> int:
        """Claim and settle what is due, batch by batch."""
        fired = 0
        while True:
            async with self._db.transaction():
                sids = [row[0] for row in await self._db.fetch(_CLAIM, now, CALLBACKS, BATCH)]
                await self._db.execute(_ADVANCE, now, sids, DAY)
            if not sids:
                return fired
            async with self._db.transaction():
                await self._db.execute(_END, now, sids)
                await self._db.execute(_SUCCEEDED, now, sids)
            fired += len(sids)

    async def send(self, now: int) -> int:
        """Put the messages of what is due into the outbox, batch by batch."""
        sent = 0
        while True:
            async with self._db.transaction():
                count = _rows(await self._db.execute(_SEND, now, MESSAGES, BATCH, BODY, DAY))
            if count == 0:
                return sent
            sent += count

    async def tidy(self) -> None:
        """As if the messages had been delivered."""
        async with self._db.transaction():
            await self._db.execute("DELETE FROM outbox WHERE lane = $1", MESSAGES)
            await self._db.execute("DELETE FROM outbox_streams WHERE lane = $1", MESSAGES)

    async def written(self, *, rows: bool) -> Written:
        return await written_to(self._db, rows=rows)


def _rows(status: str) -> int:
    """The number at the end of what the server answers, such as "INSERT 0 4096"."""
    return int(status.rsplit(" ", 1)[1])
