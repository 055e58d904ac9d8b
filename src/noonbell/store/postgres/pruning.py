"""Pruning on PostgreSQL: the oldest day of the ledger goes, and its counts stay. What may go: see `memory.pruning`.

The runs of a day are in its partition, which is dropped whole; the few that have to stay move to the default one first.
Where many have to stay, or the day has no partition (the late end of a long run came after it was gone), rows are
deleted instead. How it goes, each step in transactions of its own:

1. What the lifecycle holds for the day goes. Where there are many attempts, audit events and dead letters of the day,
   they go in portions. A run whose attempts are gone is still the whole account of its occurrence.
2. Schedules whose history has to be closed over runs of the day go through it one by one: runs, spans and counts
   together, as with the day itself. A long history is read before its schedule is locked.
3. The rest of the day goes. Its partition is locked against writing before it is counted, and dropped at the end of
   the transaction, which takes `runs` alone for a moment. Where that is not to be had shortly it is given up, to be
   tried again later. No schedule is locked. If the end of a run has torn another history since, step 2 comes again.

After each transaction the ledger is whole, and the next pruner goes on from there. They exclude each other by a lock of
the transaction; one that finds it taken between two steps leaves the rest to the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

from noonbell.core.lives import ended_lives
from noonbell.core.run_chain import RunKey, key_of
from noonbell.errors import StoreUnavailableError
from noonbell.ports import Pruned
from noonbell.store.postgres import history
from noonbell.store.postgres.connection import Connection, Transactions
from noonbell.store.postgres.numbers import RUN_WORDS, number, prev_kind_sql
from noonbell.store.postgres.partitions import DAY_US, name_of
from noonbell.store.postgres.schema import LOCKS, PARTITIONING, PRUNING, is_here, lock
from noonbell.store.postgres.settling import lock_schedules
from noonbell.store.words import KINDS, MANUAL, SCHEDULED

# The runs of a day that go, and which ended after one that stays, by schedule.
Torn = dict[int, list[RunKey]]

# A day may be hundreds of millions of rows: its statements may take longer than those of other verbs, here and on the
# server. So that one of them does not outlive its client, the server checks whether that is still connected, where it
# can (from PostgreSQL 14 on, and not on every system).
LONGEST_SECONDS: Final = 6 * 3600.0
PATIENCE: Final = (
    f"SET LOCAL statement_timeout = {round(LONGEST_SECONDS * 1000)}; SET LOCAL lock_timeout = 2000; "
    "DO $$ BEGIN PERFORM set_config('client_connection_check_interval', '1s', true); "
    "EXCEPTION WHEN undefined_object OR invalid_parameter_value THEN NULL; END $$"
)
# A day is many rows against its table, unlike what other verbs touch: here tables may be read whole, but not sorted.
A_DAY: Final = (
    f"{PATIENCE}; SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on; SET LOCAL enable_hashjoin = on"
)
# So many runs of a day may move to the default partition.
MOST_MOVED: Final = 1_000
# About so many attempts, audit events and dead letters go in one transaction.
PORTION: Final = 10_000
# So often runs of the day may end between the last step and the one before it.
MOST_ROUNDS: Final = 10

_SETTLED: Final = f"""
    (r.kind = {MANUAL} OR r.run_for < s.cursor_at OR (r.run_for = s.cursor_at AND s.enabled = 0)) AND NOT EXISTS (
        SELECT 1 FROM runs_live l WHERE l.sid = r.sid AND l.kind = {RUN_WORDS["kind"]} AND l.run_for = r.run_for
    ) AND (s.slot_for IS NULL OR s.slot_for <> r.run_for OR r.kind <> {SCHEDULED})
"""
# The newest event stays, as in the other stores.
_OLDEST: Final = f"""
    SELECT least(
        (SELECT r.run_for FROM runs r JOIN schedule_state s ON s.sid = r.sid WHERE r.run_for < $1 AND {_SETTLED}
            ORDER BY r.run_for LIMIT 1),
        (SELECT min(p.to_at) FROM spans p JOIN schedule_state s ON s.sid = p.sid
            WHERE p.to_at < $1 AND p.to_at <= s.cursor_at),
        (SELECT min(at) FROM audit_events WHERE at < $1 AND id < (SELECT max(id) FROM audit_events)),
        (SELECT min(died_at) FROM dead_letters WHERE died_at < $1)
    )
"""
_LIFECYCLE: Final = "SELECT id, managed_by, at, instance, event FROM lifecycle WHERE at < $1 ORDER BY id"
_BESIDE: Final = """
    SELECT (SELECT count(*) FROM attempts WHERE run_for >= $1 AND run_for < $2)
        + (SELECT count(*) FROM audit_events WHERE at >= $1 AND at < $2)
        + (SELECT count(*) FROM dead_letters WHERE died_at >= $1 AND died_at < $2)
"""
_KEPT: Final = f"""
    SELECT r.run_for, r.sid, r.kind FROM runs r LEFT JOIN schedule_state s ON s.sid = r.sid
    WHERE r.run_for >= $1 AND r.run_for < $2 AND ({_SETTLED}) IS NOT TRUE LIMIT {MOST_MOVED + 1}
"""
_KIND_BEFORE: Final = prev_kind_sql("r")
_BEFORE: Final = f"q.run_for = r.prev_for AND q.sid = r.sid AND q.kind = {_KIND_BEFORE}"
_IS_KEPT: Final = """
    EXISTS (
        SELECT 1 FROM unnest($3::int8[], $4::int8[], $5::int8[]) AS k (run_for, sid, kind)
        WHERE k.run_for = r.run_for AND k.sid = r.sid AND k.kind = r.kind
    )
"""
_GOES: Final = f"r.run_for >= $1 AND r.run_for < $2 AND {_SETTLED}"
# One run goes, and the one that ended before it stays: of a later day, of an earlier one, or of the same. CASE: so that
# the other is looked for only where it may be there and stay, and not for every run of the day.
_TORN: Final = f"""
    SELECT r.sid, r.run_for, {RUN_WORDS["kind"]} FROM runs r JOIN schedule_state s ON s.sid = r.sid
    WHERE {_GOES} AND CASE
        WHEN r.prev_for >= $2 THEN true
        WHEN r.prev_for < $1 THEN EXISTS (SELECT 1 FROM runs q WHERE q.run_for < $1 AND {_BEFORE})
        WHEN NOT ({_SETTLED.replace("r.run_for", "r.prev_for").replace("r.kind", _KIND_BEFORE)})
            THEN EXISTS (SELECT 1 FROM runs q WHERE q.run_for >= $1 AND q.run_for < $2 AND {_BEFORE})
    END
"""
_LEAVING: Final = f"""
    SELECT r.run_for, {RUN_WORDS["kind"]} FROM unnest($2::int8[], $3::int8[]) AS k (run_for, kind) CROSS JOIN LATERAL (
        SELECT * FROM runs WHERE run_for = k.run_for AND sid = $1::int8 AND kind = k.kind LIMIT 1
    ) r JOIN schedule_state s ON s.sid = r.sid WHERE {_SETTLED}
"""
_ENDED: Final = f"r.sid, r.epoch, r.kind, r.run_for, {RUN_WORDS['started_at']} AS started_at"
_DELETED: Final = f"(DELETE FROM runs r USING schedule_state s WHERE s.sid = r.sid AND {_GOES} RETURNING {_ENDED})"
_DELETED_OF_ONE: Final = f"""(
    DELETE FROM runs r USING unnest($4::int8[], $5::int8[]) AS k (run_for, kind)
    WHERE r.run_for >= $1 AND r.run_for < $2 AND r.sid = $3::int8 AND r.run_for = k.run_for AND r.kind = k.kind
    RETURNING {_ENDED}
)"""
# The greatest of the pairs is that of the latest run: one passing of the rows is enough, in any order.
_PRUNE: Final = f"""
    WITH ended AS {{ended}}, passed AS (
        DELETE FROM spans p USING schedule_state s
        WHERE s.sid = p.sid AND p.to_at >= $1 AND p.to_at < $2 AND p.to_at <= s.cursor_at {{whose}}
        RETURNING p.sid, p.epoch, p.from_at, p.to_at, p.n
    ), tried AS (
        DELETE FROM attempts a USING ended e
        WHERE a.run_for >= $1 AND a.run_for < $2 AND a.sid = e.sid AND a.run_for = e.run_for AND a.kind = e.kind
        RETURNING 1
    ), kept AS (
        INSERT INTO pruned_days AS p (sid, epoch, day, first_at, to_at, fired, passed, last_for, last_started_at)
        SELECT sid, epoch, $1, min(first_at), max(to_at), sum(fired), sum(passed), (max(latest))[1], (max(latest))[2]
        FROM (
            SELECT sid, epoch, run_for AS first_at, run_for AS to_at, 1 AS fired, 0 AS passed,
                ARRAY[run_for, started_at] AS latest
            FROM ended WHERE kind = {SCHEDULED}
            UNION ALL SELECT sid, epoch, from_at, to_at, 0, n, NULL FROM passed
        ) parts
        GROUP BY sid, epoch
        ON CONFLICT (sid, epoch, day) DO UPDATE SET first_at = least(p.first_at, excluded.first_at),
            to_at = greatest(p.to_at, excluded.to_at), fired = p.fired + excluded.fired,
            passed = p.passed + excluded.passed, last_for = greatest(p.last_for, excluded.last_for),
            last_started_at = CASE WHEN p.last_for IS NULL OR excluded.last_for > p.last_for
                THEN excluded.last_started_at ELSE p.last_started_at END
    )
    SELECT (SELECT count(*) FROM ended), (SELECT count(*) FROM passed), (SELECT count(*) FROM tried)
"""
# Attempts of a run go together, since a portion is a stretch of what runs are for.
_FORGET_ATTEMPTS: Final = f"""
    WITH tried AS (
        DELETE FROM attempts a USING runs r, schedule_state s
        WHERE a.run_for >= $1 AND a.run_for < $2 AND s.sid = r.sid AND {_GOES}
        AND a.sid = r.sid AND a.run_for = r.run_for AND a.kind = r.kind RETURNING 1
    )
    SELECT count(*) FROM tried
"""
_FORGET_OTHERS: Final = """
    WITH forgotten AS (
        DELETE FROM audit_events
        WHERE at >= $1 AND at < $2 AND id < (SELECT max(id) FROM audit_events) RETURNING 1
    ), buried AS (
        DELETE FROM dead_letters WHERE died_at >= $1 AND died_at < $2 RETURNING 1
    )
    SELECT (SELECT count(*) FROM forgotten), (SELECT count(*) FROM buried)
"""


async def prune(connections: Transactions, before: int) -> Pruned | None:
    """Drop the oldest day that ended by `before`; where another prunes at this moment, leave it to that one."""
    async with connections.writing(A_DAY) as db:
        if not await _is_free(db):
            return None
        lives = ended_lives(await db.fetch(_LIFECYCLE, before))
        day = await _oldest(db, before, lives.values())
        if day is None:
            return None
        bounds = (day, day + DAY_US)
        events = [number for number, at in lives.items() if bounds[0] <= at < bounds[1]]
        await db.execute("DELETE FROM lifecycle WHERE id = ANY ($1::int8[])", events)
        beside = int(await db.fetchval(_BESIDE, *bounds, timeout=LONGEST_SECONDS))
        torn = await _torn(db, bounds)
    parts = [Pruned(day, 0, 0, 0, 0, 0, len(events))]
    for portion in _portions(bounds, beside // PORTION):
        async with connections.writing(A_DAY) as db:
            if not await _is_free(db):
                return None
            parts.append(await _forget(db, day, portion))
    for _ in range(MOST_ROUNDS):
        for sid, known in torn.items():
            async with connections.writing(PATIENCE) as db:
                if not await _is_free(db):
                    return None
                parts.append(await _prune_one(db, bounds, sid, known))
        async with connections.writing(A_DAY) as db:
            rest = await prune_day(db, bounds[1])
        if not isinstance(rest, dict):
            return None if rest is None else _together([*parts, rest])
        torn = rest
    raise StoreUnavailableError(f"The store {connections.where} cannot be pruned now: runs of the day keep ending")


async def prune_day(db: Connection, before: int) -> Pruned | Torn | None:
    """Drop what is left of the day that ended then, or say which histories come first; None where another is at it."""
    if not await _is_free(db):
        return None
    await lock(db, PARTITIONING)
    bounds = (before - DAY_US, before)
    table = name_of(bounds[0] // DAY_US)
    parted = await is_here(db, table)
    if parted:
        await db.execute(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
    if torn := await _torn(db, bounds):
        return torn
    if not parted:
        return await _deleted(db, bounds)
    kept = await db.fetch(_KEPT, *bounds, timeout=LONGEST_SECONDS)
    if len(kept) > MOST_MOVED:
        return await _deleted(db, bounds)
    return await _dropped(db, table, bounds, kept)


async def _is_free(db: Connection) -> bool:
    """Return whether no other process prunes, and exclude others until the end of the transaction."""
    return bool(await db.fetchval(f"SELECT pg_try_advisory_xact_lock({LOCKS}, {PRUNING})"))


async def _oldest(db: Connection, before: int, others: Iterable[int]) -> int | None:
    """Return the first day that has something to go: a row of a table, or one of `others`."""
    end = before // DAY_US * DAY_US
    oldest: int | None = await db.fetchval(_OLDEST, end, timeout=LONGEST_SECONDS)
    found = min((at for at in (oldest, *others) if at is not None and at < end), default=None)
    return None if found is None else found // DAY_US * DAY_US


async def _torn(db: Connection, bounds: tuple[int, int]) -> Torn:
    torn: Torn = {}
    for sid, run_for, kind in await db.fetch(_TORN, *bounds, timeout=LONGEST_SECONDS):
        torn.setdefault(sid, []).append(RunKey(run_for, kind))
    return torn


def _portions(bounds: tuple[int, int], count: int) -> list[tuple[int, int]]:
    low, high = bounds
    return list(pairwise(low + (high - low) * place // count for place in range(count + 1))) if count else []


async def _forget(db: Connection, day: int, portion: tuple[int, int]) -> Pruned:
    attempts = await db.fetchval(_FORGET_ATTEMPTS, *portion, timeout=LONGEST_SECONDS)
    ((audits, letters),) = await db.fetch(_FORGET_OTHERS, *portion, timeout=LONGEST_SECONDS)
    return Pruned(day, 0, 0, attempts, audits, letters)


async def _prune_one(db: Connection, bounds: tuple[int, int], sid: int, known: list[RunKey]) -> Pruned:
    """Drop the day of one schedule, and close its history over it.

    What goes is found by its history, not in the whole day; `known` runs go even if damage has cut them off from it.
    """
    parts = await history.around(db, sid, bounds, LONGEST_SECONDS)
    await lock_schedules(db, [sid])
    newer = await history.newer(db, sid, parts[0][0] if parts else None)
    parts = [newer + parts[0], *parts[1:]] if parts else [newer]
    keys = {key_of(run) for part in parts for run in part if bounds[0] <= run.run_for < bounds[1]}
    leaving = await db.fetch(_LEAVING, sid, *_columns(keys.union(known)))
    gone = {RunKey(*row) for row in leaving}
    await history.mend(db, sid, parts, gone)
    sql = _PRUNE.format(ended=_DELETED_OF_ONE, whose="AND p.sid = $3")
    ((runs, spans, attempts),) = await db.fetch(sql, *bounds, sid, *_columns(gone))
    return Pruned(bounds[0], runs, spans, attempts, 0, 0)


async def _deleted(db: Connection, bounds: tuple[int, int]) -> Pruned:
    (counts,) = await db.fetch(_PRUNE.format(ended=_DELETED, whose=""), *bounds, timeout=LONGEST_SECONDS)
    (others,) = await db.fetch(_FORGET_OTHERS, *bounds, timeout=LONGEST_SECONDS)
    return Pruned(bounds[0], *counts, *others)


async def _dropped(db: Connection, table: str, bounds: tuple[int, int], kept: list[Any]) -> Pruned:
    # by the list, not by a second look: a run that may go by now would be dropped without being counted
    keys = [row[0] for row in kept], [row[1] for row in kept], [row[2] for row in kept]
    # counted from the table itself, since a copy of so many rows would go to the disk
    rest = f"NOT MATERIALIZED (SELECT {_ENDED} FROM {table} r WHERE NOT {_IS_KEPT})"
    (counts,) = await db.fetch(_PRUNE.format(ended=rest, whose=""), *bounds, *keys, timeout=LONGEST_SECONDS)
    (others,) = await db.fetch(_FORGET_OTHERS, *bounds, timeout=LONGEST_SECONDS)
    await db.execute(f"ALTER TABLE runs DETACH PARTITION {table}")
    if kept:  # all writers wait: by the key of each, however many others there are
        await db.execute(
            "INSERT INTO runs_default SELECT r.* "
            "FROM unnest($1::int8[], $2::int8[], $3::int8[]) AS k (run_for, sid, kind) CROSS JOIN LATERAL ("
            f"SELECT * FROM {table} WHERE run_for = k.run_for AND sid = k.sid AND kind = k.kind LIMIT 1) r",
            *keys,
        )
    await db.execute(f"DROP TABLE {table}")
    return Pruned(bounds[0], *counts, *others)


def _columns(keys: set[RunKey]) -> tuple[list[int], list[int]]:
    return [key.run_for for key in keys], [number(KINDS, key.kind) for key in keys]


def _together(parts: list[Pruned]) -> Pruned:
    return Pruned(parts[0].day, *(sum(counts) for counts in list(zip(*parts, strict=True))[1:]))
