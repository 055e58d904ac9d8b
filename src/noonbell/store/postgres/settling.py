"""Settling on PostgreSQL: ends of attempts become history.

The schedules of the batch are locked first, as everywhere: a live run is changed by nobody who does not hold the lock
of its schedule. Then one statement joins the batch with the live runs by key, fence and owner, and writes every table
from what matched; what did not match is stale and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import asyncpg

from noonbell.core.attempts import FIRST_KEPT, LAST_KEPT
from noonbell.core.presence import LANE
from noonbell.core.records import Settlement
from noonbell.ports import Settled
from noonbell.store.postgres import ending, live_rows, outbox
from noonbell.store.postgres.connection import Connection, storable
from noonbell.store.postgres.numbers import number_sql, owner_number_sql
from noonbell.store.words import CAUSES, KINDS, OUTCOMES

# So many bytes of details may go to the server in one message.
MOST_BYTES = 64_000_000

# What is told of every end, and what is known beforehand of most: a first attempt of a scheduled run that succeeded.
_ALL = """
    unnest(
        $1::int8[], $2::int8[], $3::text[], $4::int8[], $5::int8[], $6::text[], $7::text[], $8::int8[], $9::int8[],
        $10::int8[], $11::int8[], $12::int8[], $13::text[], $14::int8[], $15::text[], $16::int8[], $17::int8[],
        $19::int8[]
    ) AS b (
        i, sid, kind, run_for, fence, owner, outcome, ended_at, wake_at, following, epoch, attempt, cause, attempt_at,
        error, detail_from, detail_for, waited_us
    )
"""
_PLAIN = """
    (
        SELECT u.*, 'scheduled' AS kind, $8::text AS owner, 'succeeded' AS outcome, NULL::int8 AS wake_at,
            1::int8 AS attempt, 0::int8 AS waited_us
        FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[])
            AS u (i, sid, run_for, ended_at, following, epoch, attempt_at)
    ) AS b
"""
# OFFSET 0: one look by the index for each end, whatever the planner thinks of the tables (see `live_rows`); `+ 0` and
# the FILTER keep the index of wake-ups out of it.
#
# A wake-up that has come during the run was taken away, and comes back with the end. An edit during the run has opened
# another epoch: what follows then is for a look to say, and at once.
_FRESH = """
    WITH fresh AS (
        SELECT b.*, l.tid, l.fence AS run_fence, l.started_at, l.epoch AS run_epoch, l.cause AS run_cause,
            s.last_ended_for, coalesce(s.last_ended_manual, 0) AS manual,
            CASE WHEN s.epoch = b.epoch THEN coalesce(s.next_run_at, b.following) ELSE s.cursor_at END AS next_run_at,
            s.enabled, s.next_run_at IS NULL OR s.epoch <> b.epoch AS changed, w.behind_at
        FROM {batch}
        CROSS JOIN LATERAL (
            SELECT t.ctid AS tid, t.* FROM runs_live t WHERE t.sid = b.sid AND t.kind = b.kind AND t.run_for = b.run_for
                AND t.fence = {fence} AND t.owner = b.owner OFFSET 0
        ) l
        LEFT JOIN LATERAL (SELECT * FROM schedule_state t WHERE t.sid = b.sid OFFSET 0) s ON true
        CROSS JOIN LATERAL (
            SELECT min(t.wake_at + 0) FILTER (WHERE t.state <> 'running') AS behind_at
            FROM runs_live t WHERE t.sid = b.sid
        ) w
    )
"""
_REST = f""", told AS (
        INSERT INTO attempts AS a (
            sid, run_for, kind, attempt, outcome, cause, started_at, ended_at, owner, error, detail
        )
        SELECT sid, run_for, {number_sql(KINDS, "kind")}, attempt, {number_sql(OUTCOMES, "outcome")},
            {number_sql(CAUSES, "cause")}, attempt_at, ended_at, {owner_number_sql("owner")}, error,
            substring($18::bytea FROM detail_from::int FOR detail_for::int)
        FROM fresh WHERE cause IS NOT NULL
        ON CONFLICT (sid, run_for, kind, attempt) DO UPDATE SET outcome = excluded.outcome, cause = excluded.cause,
            started_at = excluded.started_at, ended_at = excluded.ended_at, owner = excluded.owner,
            error = excluded.error, detail = excluded.detail
    ), omitted AS (
        DELETE FROM attempts a WHERE a.ctid = ANY(ARRAY(
            SELECT o.tid FROM fresh f CROSS JOIN LATERAL (
                SELECT t.ctid AS tid FROM attempts t
                WHERE t.sid = f.sid AND t.run_for = f.run_for AND t.kind = {number_sql(KINDS, "f.kind")}
                    AND t.attempt > {FIRST_KEPT} AND t.attempt <= f.attempt - {LAST_KEPT} OFFSET 0
            ) o WHERE f.attempt > {FIRST_KEPT + LAST_KEPT}
        ))
    ), waiting AS (
        INSERT INTO runs_live (sid, kind, run_for, fence, state, attempt, epoch, cause, wake_at)
        SELECT sid, kind, run_for, run_fence, 'waiting', attempt, run_epoch, run_cause, wake_at
        FROM fresh WHERE wake_at IS NOT NULL
        ON CONFLICT (sid, kind, run_for)
            DO UPDATE SET state = excluded.state, wake_at = excluded.wake_at, owner = NULL
    )
"""
_ENDED = f""", ended AS (
        INSERT INTO runs ({ending.RUN}, waited_us)
        SELECT run_for, sid, {number_sql(KINDS, "kind")}, {number_sql(OUTCOMES, "outcome")}, attempt,
            coalesce(started_at, attempt_at), ended_at, {{owner}}, run_epoch, last_ended_for, manual,
            CASE WHEN attempt = 1 THEN waited_us ELSE greatest(coalesce((
                SELECT a.started_at FROM attempts a WHERE a.sid = fresh.sid AND a.run_for = fresh.run_for
                    AND a.kind = {number_sql(KINDS, "fresh.kind")} AND a.attempt = 1
            ) - coalesce(started_at, attempt_at), 0), 0) END
        FROM fresh WHERE wake_at IS NULL
    ), gone AS (
        DELETE FROM runs_live l WHERE {live_rows.among("SELECT tid FROM fresh WHERE wake_at IS NULL")}
    ), scheduled AS (
        UPDATE schedule_state s SET
            next_run_at = f.next_run_at, -- mostly as it was, and then no index is touched
            last_success_at = CASE WHEN f.outcome = 'succeeded' THEN f.ended_at ELSE s.last_success_at END,
            last_failure_at = CASE WHEN f.outcome = 'succeeded' THEN s.last_failure_at ELSE f.ended_at END,
            last_ended_for = CASE WHEN f.wake_at IS NULL THEN f.run_for ELSE s.last_ended_for END,
            last_ended_manual = CASE WHEN f.wake_at IS NULL THEN (f.kind = 'manual')::int ELSE s.last_ended_manual END,
            ended_runs = s.ended_runs + (f.wake_at IS NULL)::int,
            succeeded_runs = s.succeeded_runs + (f.wake_at IS NULL AND f.outcome = 'succeeded')::int
        FROM fresh f WHERE s.sid = f.sid
    )
    SELECT i, CASE
        WHEN changed OR behind_at IS NOT NULL OR wake_at IS NOT NULL
        THEN least(CASE WHEN enabled = 1 THEN next_run_at END, behind_at, wake_at)
    END
    FROM fresh
"""
_LOCK = """
    WITH locked AS MATERIALIZED (
        SELECT lane_no FROM schedule_state WHERE sid = ANY($1::int8[]) ORDER BY sid FOR UPDATE
    )
    SELECT n.name FROM (SELECT DISTINCT lane_no FROM locked) AS l JOIN lane_numbers n ON n.no = l.lane_no
"""
_CLEARS = """
    SELECT EXISTS (
        SELECT 1 FROM runs_live WHERE sid = $1 AND kind = $2 AND run_for = $3 AND fence = $4 AND owner = $5
    ) AND EXISTS (
        SELECT 1 FROM runs_live WHERE sid = $6 AND kind = $7 AND run_for = $8 AND fence = $9 AND state = 'waiting'
    )
"""
# of a batch with one owner its number is looked up once
_SETTLE = f"{_FRESH.format(batch=_ALL, fence='b.fence')} {_REST} {_ENDED.format(owner=owner_number_sql('owner'))}"
_SETTLE_PLAIN = f"{_FRESH.format(batch=_PLAIN, fence='1')} {_ENDED.format(owner=owner_number_sql('$8::text'))}"


async def lock_schedules(db: Connection, sids: Sequence[int]) -> set[str]:
    """Lock these schedules, always in the same order; returns the owners of those among them that were declared."""
    if not sids:
        return set()
    names = {row[0] for row in await db.fetch(_LOCK, sorted(set(sids)))}
    return {name for name in names if not name.startswith(LANE)}


async def settle(db: Connection, settlements: Sequence[Settlement]) -> Settled:
    """Write the ends together; if the ledger contradicts one of them, singly."""
    await db.execute("SAVEPOINT ends")
    try:
        return await _settle_all(db, settlements)
    except asyncpg.IntegrityConstraintViolationError:
        await db.execute("ROLLBACK TO SAVEPOINT ends")
        if len(settlements) == 1:
            return await _give_up(db, settlements[0])
    settled = Settled([], {})
    for settlement in settlements:
        stale, woken = await settle(db, [settlement])
        settled.stale.extend(stale)
        settled.woken.update(woken)
    return settled


async def _give_up(db: Connection, settlement: Settlement) -> Settled:
    """The run is on record already, which no right course of things can bring about: let its schedule go on."""
    start = settlement.start
    await db.execute(
        "DELETE FROM runs_live WHERE sid = $1 AND kind = $2 AND run_for = $3 AND fence = $4 AND owner = $5",
        start.sid, start.kind, start.run_for, start.fence, settlement.owner,
    )  # fmt: skip
    await db.execute("UPDATE schedule_state SET next_run_at = cursor_at WHERE sid = $1", start.sid)
    return Settled([settlement], {})


async def _settle_all(db: Connection, settlements: Sequence[Settlement]) -> Settled:
    fresh: set[int] = set()
    woken: dict[int, int] = {}
    for part in _apart(settlements):
        for i, at in await _settle(db, part):
            fresh.add(i)
            if at is not None:
                woken[settlements[i].start.sid] = at
    sent = [(message, s.ended_at) for i, s in enumerate(settlements) if i in fresh for message in s.messages]
    await outbox.append(db, [message for message, _ in sent], [at for _, at in sent])
    return Settled([settlement for i, settlement in enumerate(settlements) if i not in fresh], woken)


def _apart(settlements: Sequence[Settlement]) -> Iterator[list[tuple[int, Settlement]]]:
    """The batch in parts that touch no schedule twice: almost always one part.

    A statement changes a row once. The ends of two runs of one schedule (its own and a manual one) come one after
    the other, in their order. What is too much for one message to the server is taken apart too.
    """
    rest = list(enumerate(settlements))
    while rest:
        part: dict[int, tuple[int, Settlement]] = {}
        left: list[tuple[int, Settlement]] = []
        size = 0
        for pair in rest:
            sid, detail = pair[1].start.sid, pair[1].detail
            if sid in part or (part and size + len(detail or b"") > MOST_BYTES):
                left.append(pair)
                # of one schedule, nothing overtakes what had to wait
                part.setdefault(sid, pair)
                continue
            part[sid] = pair
            size += len(detail or b"")
        waiting = {place for place, _ in left}
        yield [pair for pair in part.values() if pair[0] not in waiting]
        rest = left


async def _settle(db: Connection, part: list[tuple[int, Settlement]]) -> list[asyncpg.Record]:
    """The places of those that were recorded, each with when its schedule wakes if that has changed."""
    await _clear_retries(db, [settlement for _, settlement in part])
    owner = part[0][1].owner
    plain = [pair for pair in part if _is_ordinary(pair[1], owner)]
    if not plain:
        return await _settle_whole(db, part)
    rows = await db.fetch(
        _SETTLE_PLAIN, [i for i, _ in plain], [e.start.sid for _, e in plain], [e.start.run_for for _, e in plain],
        [e.ended_at for _, e in plain], [e.start.following for _, e in plain], [e.start.epoch for _, e in plain],
        [e.start.started_at for _, e in plain], owner,
    )  # fmt: skip
    if len(plain) < len(part):
        rows += await _settle_whole(db, [pair for pair in part if not _is_ordinary(pair[1], owner)])
    return rows


async def _clear_retries(db: Connection, settlements: Sequence[Settlement]) -> None:
    """End the runs whose retries these ends make needless, before them: the history goes on from there."""
    for s in settlements:
        if (cleared := s.cleared) is not None:
            mine = (s.start.sid, s.start.kind, s.start.run_for, s.start.fence, s.owner)
            waiting = (cleared.sid, cleared.kind, cleared.run_for, cleared.fence)
            if await db.fetchval(_CLEARS, *mine, *waiting):
                await ending.end_live(db, [cleared], "failed", s.ended_at)


async def _settle_whole(db: Connection, part: list[tuple[int, Settlement]]) -> list[asyncpg.Record]:
    ends = [settlement for _, settlement in part]
    starts = [settlement.start for settlement in ends]
    # a single attempt that succeeded is told whole by its run; only the others are kept as attempts
    causes = [None if _is_plain(e) else e.start.cause for e in ends]
    return await db.fetch(
        _SETTLE, [i for i, _ in part], [s.sid for s in starts], [s.kind for s in starts], [s.run_for for s in starts],
        [s.fence for s in starts], [e.owner for e in ends], [e.outcome for e in ends], [e.ended_at for e in ends],
        [e.wake_at for e in ends], [s.following for s in starts], [s.epoch for s in starts],
        [s.attempt for s in starts], causes, [s.started_at for s in starts], [storable(e.error) for e in ends],
        *_details(ends), [s.waited_us for s in starts],
    )  # fmt: skip


def _details(ends: Sequence[Settlement]) -> tuple[list[int | None], list[int | None], bytes]:
    """All details as one value, and where each begins and how long it is: the driver knows no arrays of bytes."""
    places: list[int | None] = []
    place = 1
    for end in ends:
        places.append(None if end.detail is None else place)
        place += len(end.detail or b"")
    lengths = [None if end.detail is None else len(end.detail) for end in ends]
    return places, lengths, b"".join(end.detail for end in ends if end.detail is not None)


def _is_plain(end: Settlement) -> bool:
    return end.outcome == "succeeded" and end.start.attempt == 1 and end.detail is None


def _is_ordinary(end: Settlement, owner: str) -> bool:
    """Most ends are: all that is to be told of them are a few numbers."""
    start = end.start
    ordinary = start.kind == "scheduled" and start.fence == 1 and not start.waited_us
    return ordinary and _is_plain(end) and end.owner == owner
