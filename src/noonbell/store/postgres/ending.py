"""Runs that end on PostgreSQL without anybody settling them, and the history that every ended run joins.

The history of a schedule is a chain: its row names the run that ended last and counts them all, and each ended run
names the one that ended before it. Every insert into `runs` brings the row up to date in the same transaction, under
its lock: here, in `settling` and in `turns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noonbell.core.records import LiveRun
from noonbell.store.postgres import live_rows, slots
from noonbell.store.postgres.connection import Connection
from noonbell.store.postgres.numbers import extra_sql, number_sql, owner_number_sql, times_sql
from noonbell.store.words import KINDS, OUTCOMES

RUN: Final = "run_for, sid, kind, outcome, delay_us, duration_us, owner, epoch, prev_for, extra"

# Those of one schedule that end together follow each other in the order of what they are for. Columns are named: a
# newer version that shares the database may have added others, and one of them could bear a name that is used here.
_LIVE: Final = "l.sid, l.kind, l.run_for, l.state, l.attempt, l.started_at, l.owner, l.epoch"
_OUTCOME: Final = "coalesce($1::text, CASE WHEN state = 'waiting' THEN 'failed' ELSE 'abandoned' END)"
_BEHIND_MANUAL: Final = "CASE WHEN place = 1 THEN coalesce(last_ended_manual, 0) ELSE (before_kind = 'manual')::int END"
_TIMES: Final = ("run_for", "coalesce(started_at, $2::int8)", "$2::int8")
_END: Final = f"""
    WITH gone AS ({{gone}} RETURNING {_LIVE}), linked AS (
        SELECT g.*, s.last_ended_for, s.last_ended_manual, count(*) OVER (PARTITION BY g.sid) AS n,
            row_number() OVER w AS place, lag(g.run_for) OVER w AS before_for, lag(g.kind) OVER w AS before_kind
        FROM gone g LEFT JOIN schedule_state s ON s.sid = g.sid
        WINDOW w AS (PARTITION BY g.sid ORDER BY g.run_for, g.kind)
    ), ended AS (
        INSERT INTO runs ({RUN})
        SELECT run_for, sid, {number_sql(KINDS, "kind")}, ({number_sql(OUTCOMES, _OUTCOME)})::text,
            {times_sql(*_TIMES)}, {owner_number_sql("owner")}, epoch,
            CASE WHEN place = 1 THEN last_ended_for ELSE before_for END,
            {extra_sql("attempt", "0", _BEHIND_MANUAL, times=_TIMES)}
        FROM linked
    )
    UPDATE schedule_state s SET last_ended_for = k.run_for, last_ended_manual = (k.kind = 'manual')::int,
        ended_runs = s.ended_runs + k.n
    FROM linked k WHERE k.place = k.n AND s.sid = k.sid
"""
_ALL_OF: Final = _END.format(gone="DELETE FROM runs_live l WHERE l.sid = ANY($3::int8[])")
_PLACES: Final = (
    "SELECT l.tid FROM unnest($3::int8[], $4::text[], $5::int8[]) AS b (sid, kind, run_for) " + live_rows.OF_BATCH
)
_KEYS: Final = _END.format(gone=f"DELETE FROM runs_live l WHERE {live_rows.among(_PLACES)}")


async def end_all_of(db: Connection, sids: Sequence[int], at: int) -> None:
    """End the live runs of removed schedules: what waits for a retry has failed, the rest is abandoned."""
    await slots.spill(db, sids)
    await db.execute(_ALL_OF, None, at, sids)


async def end_live(db: Connection, ended: Sequence[LiveRun], outcome: str, at: int) -> None:
    """Move live runs that will not go on to the ended ones."""
    await end_keys(db, [(live.sid, live.kind, live.run_for) for live in ended], outcome, at)


async def end_keys(db: Connection, keys: Sequence[Any], outcome: str, at: int) -> None:
    """The same by rows that begin with (sid, kind, run_for)."""
    await slots.spill(db, [key[0] for key in keys])
    await db.execute(_KEYS, outcome, at, [key[0] for key in keys], [key[1] for key in keys], [key[2] for key in keys])
