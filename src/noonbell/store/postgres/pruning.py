"""Pruning on PostgreSQL: the oldest day of the ledger goes, and its counts stay. What may go: see `memory_pruning`.

The runs of a day are in its partition, which is dropped whole; the few that have to stay move to the default one first.
Where many have to stay, or the day has no partition (the late end of a long run came after it was gone), rows are
deleted instead.

The partition is locked against writing before it is counted, and dropped at the end of the transaction, which takes
`runs` alone for a moment. Where that is not to be had shortly the whole is given up, to be tried again later.
"""

from __future__ import annotations

from typing import Any, Final

from noonbell.core.history import RunKey
from noonbell.ports import Pruned
from noonbell.store.postgres import history
from noonbell.store.postgres.connection import Connection
from noonbell.store.postgres.partitions import DAY_US, name_of
from noonbell.store.postgres.schema import LOCKS, PARTITIONING, PRUNING, lock
from noonbell.store.postgres.settling import lock_schedules

# A day is many rows against its table, unlike what other verbs touch: here the planner may choose for itself.
PATIENCE: Final = (
    "SET LOCAL lock_timeout = 2000; SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on; "
    "SET LOCAL enable_sort = on; SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on"
)
# So many runs of a day may move to the default partition.
MOST_MOVED: Final = 1_000

_SETTLED: Final = """
    (r.kind = 'manual' OR r.run_for < s.cursor_at OR (r.run_for = s.cursor_at AND s.enabled = 0)) AND NOT EXISTS (
        SELECT 1 FROM runs_live l WHERE l.sid = r.sid AND l.kind = r.kind AND l.run_for = r.run_for
    )
"""
# The newest event stays, as in the other stores.
_OLDEST: Final = f"""
    SELECT least(
        (SELECT r.run_for FROM runs r JOIN schedules s ON s.sid = r.sid WHERE r.run_for < $1 AND {_SETTLED}
            ORDER BY r.run_for LIMIT 1),
        (SELECT min(p.to_at) FROM spans p JOIN schedules s ON s.sid = p.sid
            WHERE p.to_at < $1 AND p.to_at <= s.cursor_at),
        (SELECT min(at) FROM audit_events WHERE at < $1 AND id < (SELECT max(id) FROM audit_events)),
        (SELECT min(died_at) FROM dead_letters WHERE died_at < $1)
    )
"""
_KEPT: Final = f"""
    SELECT r.run_for, r.sid, r.kind FROM runs r LEFT JOIN schedules s ON s.sid = r.sid
    WHERE r.run_for >= $1 AND r.run_for < $2 AND ({_SETTLED}) IS NOT TRUE LIMIT {MOST_MOVED + 1}
"""
_BEFORE: Final = (
    "q.run_for = r.prev_for AND q.sid = r.sid "
    "AND q.kind = CASE WHEN r.prev_manual = 1 THEN 'manual' ELSE 'scheduled' END"
)
_IS_KEPT: Final = """
    EXISTS (
        SELECT 1 FROM unnest($3::int8[], $4::int8[], $5::text[]) AS k (run_for, sid, kind)
        WHERE k.run_for = r.run_for AND k.sid = r.sid AND k.kind = r.kind
    )
"""
# One run goes, and the one that ended before it stays: of an earlier day, of the same day, or of a later one.
_TORN: Final = f"""
    SELECT DISTINCT r.sid FROM runs r JOIN schedules s ON s.sid = r.sid
    WHERE r.run_for >= $1 AND r.run_for < $2 AND {_SETTLED} AND (
        r.prev_for >= $2
        OR EXISTS (SELECT 1 FROM runs q WHERE q.run_for < $1 AND {_BEFORE})
        OR EXISTS (
            SELECT 1 FROM runs q WHERE q.run_for >= $1 AND q.run_for < $2 AND {_BEFORE}
            AND NOT ({_SETTLED.replace("r.", "q.")})
        )
    )
"""
_LEAVING: Final = f"""
    SELECT r.sid, r.run_for, r.kind FROM runs r JOIN schedules s ON s.sid = r.sid
    WHERE r.run_for >= $1 AND r.run_for < $2 AND r.sid = ANY($3::int8[]) AND {_SETTLED}
"""
_ENDED: Final = "r.sid, r.epoch, r.kind, r.run_for, r.started_at"
_DELETED: Final = f"""
    DELETE FROM runs r USING schedules s
    WHERE s.sid = r.sid AND r.run_for >= $1 AND r.run_for < $2 AND {_SETTLED} RETURNING {_ENDED}
"""
_PRUNE: Final = """
    WITH ended AS ({ended}), passed AS (
        DELETE FROM spans p USING schedules s
        WHERE s.sid = p.sid AND p.to_at >= $1 AND p.to_at < $2 AND p.to_at <= s.cursor_at
        RETURNING p.sid, p.epoch, p.from_at, p.to_at, p.n
    ), tried AS (
        DELETE FROM attempts a USING ended e
        WHERE a.run_for >= $1 AND a.run_for < $2 AND a.sid = e.sid AND a.run_for = e.run_for AND a.kind = e.kind
        RETURNING 1
    ), told AS (
        DELETE FROM audit_events
        WHERE at >= $1 AND at < $2 AND id < (SELECT max(id) FROM audit_events) RETURNING 1
    ), buried AS (
        DELETE FROM dead_letters WHERE died_at >= $1 AND died_at < $2 RETURNING 1
    ), kept AS (
        INSERT INTO pruned_days AS p (sid, epoch, day, first_at, to_at, fired, passed, last_for, last_started_at)
        SELECT sid, epoch, $1, min(first_at), max(to_at), sum(fired), sum(passed), max(run_for),
            (array_agg(started_at ORDER BY run_for DESC) FILTER (WHERE run_for IS NOT NULL))[1]
        FROM (
            SELECT sid, epoch, run_for AS first_at, run_for AS to_at, 1 AS fired, 0 AS passed, run_for, started_at
            FROM ended WHERE kind = 'scheduled'
            UNION ALL SELECT sid, epoch, from_at, to_at, 0, n, NULL, NULL FROM passed
        ) parts
        GROUP BY sid, epoch
        ON CONFLICT (sid, epoch, day) DO UPDATE SET first_at = least(p.first_at, excluded.first_at),
            to_at = greatest(p.to_at, excluded.to_at), fired = p.fired + excluded.fired,
            passed = p.passed + excluded.passed, last_for = greatest(p.last_for, excluded.last_for),
            last_started_at = CASE WHEN p.last_for IS NULL OR excluded.last_for > p.last_for
                THEN excluded.last_started_at ELSE p.last_started_at END
    )
    SELECT (SELECT count(*) FROM ended), (SELECT count(*) FROM passed), (SELECT count(*) FROM tried),
        (SELECT count(*) FROM told), (SELECT count(*) FROM buried)
"""


async def prune_day(db: Connection, before: int) -> Pruned | None:
    """Drop the oldest day that ended by `before`; where another does it at this moment, leave it to him."""
    if not await db.fetchval(f"SELECT pg_try_advisory_xact_lock({LOCKS}, {PRUNING})"):
        return None
    await lock(db, PARTITIONING)
    oldest: int | None = await db.fetchval(_OLDEST, before // DAY_US * DAY_US)
    if oldest is None:
        return None
    day = oldest // DAY_US * DAY_US
    bounds = (day, day + DAY_US)
    table = name_of(day // DAY_US)
    if await db.fetchval("SELECT to_regclass($1)", table) is None:
        await _mend(db, bounds)
        return await _deleted(db, bounds)
    await db.execute(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
    await _mend(db, bounds)
    kept = await db.fetch(_KEPT, *bounds)
    if len(kept) > MOST_MOVED:
        return await _deleted(db, bounds)
    return await _dropped(db, table, bounds, kept)


async def _mend(db: Connection, bounds: tuple[int, int]) -> None:
    """Close the histories over runs that are about to go where one that ended before them stays."""
    torn = [row[0] for row in await db.fetch(_TORN, *bounds)]
    await lock_schedules(db, torn)
    leaving: dict[int, list[RunKey]] = {}
    for sid, run_for, kind in await db.fetch(_LEAVING, *bounds, torn):
        leaving.setdefault(sid, []).append(RunKey(run_for, kind))
    for sid, gone in leaving.items():
        await history.mend(db, sid, gone)


async def _deleted(db: Connection, bounds: tuple[int, int]) -> Pruned:
    (counts,) = await db.fetch(_PRUNE.format(ended=_DELETED), *bounds)
    return Pruned(bounds[0], *counts)


async def _dropped(db: Connection, table: str, bounds: tuple[int, int], kept: list[Any]) -> Pruned:
    # by the list, not by a second look: a run that may go by now would be dropped without being counted
    keys = [row[0] for row in kept], [row[1] for row in kept], [row[2] for row in kept]
    rest = f"SELECT {_ENDED} FROM {table} r WHERE NOT {_IS_KEPT}"
    (counts,) = await db.fetch(_PRUNE.format(ended=rest), *bounds, *keys)
    await db.execute(f"ALTER TABLE runs DETACH PARTITION {table}")
    if kept:
        moved = _IS_KEPT.replace("$3", "$1").replace("$4", "$2").replace("$5", "$3")
        await db.execute(f"INSERT INTO runs_default SELECT * FROM {table} r WHERE {moved}", *keys)
    await db.execute(f"DROP TABLE {table}")
    return Pruned(bounds[0], *counts)
