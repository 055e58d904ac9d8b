"""Settling on PostgreSQL: ends of attempts become history.

Most ends are of runs in the slots of their schedules: those are matched and written by one statement, which locks
nothing before it (see `slot_ends`).

If all of the batch has matched, that is all (`settle_in_slots`). If not, its transaction is undone, and in another one
(`settle`) the schedules of the batch are locked in the order of their numbers, as everywhere. Then what is in a slot
ends from there, the rest is looked for in `runs_live` by key, fence and owner, and what is in neither is stale and
changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import asyncpg

from noonbell.core.attempts import FIRST_KEPT, LAST_KEPT
from noonbell.core.presence import LANE
from noonbell.core.records import Settlement
from noonbell.ports import Settled
from noonbell.store.postgres import ending, live_rows, outbox, slot_ends, slots
from noonbell.store.postgres.connection import Connection, storable
from noonbell.store.postgres.numbers import extra_sql, number_sql, owner_number_sql, times_sql
from noonbell.store.postgres.slot_ends import NotInSlotsError
from noonbell.store.words import CAUSES, KINDS, OUTCOMES

# So many bytes of details may go to the server in one message.
MOST_BYTES = 64_000_000

# OFFSET 0: one look by the index for each end, whatever the planner thinks of the tables (see `live_rows`); `+ 0` and
# the FILTER keep the index of wake-ups out of it.
_FRESH = """
    WITH fresh AS (
        SELECT b.*, l.tid, l.fence AS run_fence, l.started_at, l.epoch AS run_epoch, l.cause AS run_cause,
            s.last_ended_for, coalesce(s.last_ended_manual, 0) AS manual,
            CASE WHEN s.epoch = b.epoch THEN coalesce(s.next_run_at, b.following) ELSE s.cursor_at END AS next_run_at,
            s.enabled, s.next_run_at IS NULL OR s.epoch <> b.epoch AS changed, w.behind_at
        FROM unnest(
            $1::int8[], $2::int8[], $3::text[], $4::int8[], $5::int8[], $6::text[], $7::text[], $8::int8[], $9::int8[],
            $10::int8[], $11::int8[], $12::int8[], $13::text[], $14::int8[], $15::text[], $16::int8[], $17::int8[],
            $19::int8[]
        ) AS b (
            i, sid, kind, run_for, fence, owner, outcome, ended_at, wake_at, following, epoch, attempt, cause,
            attempt_at, error, detail_from, detail_for, waited_us
        )
        CROSS JOIN LATERAL (
            SELECT t.ctid AS tid, t.* FROM runs_live t WHERE t.sid = b.sid AND t.kind = b.kind AND t.run_for = b.run_for
                AND t.fence = b.fence AND t.owner = b.owner OFFSET 0
        ) l
        LEFT JOIN LATERAL (SELECT * FROM schedule_state t WHERE t.sid = b.sid OFFSET 0) s ON true
        CROSS JOIN LATERAL (
            SELECT min(t.wake_at + 0) FILTER (WHERE t.state <> 'running') AS behind_at
            FROM runs_live t WHERE t.sid = b.sid
        ) w
    )
"""
_ATTEMPTS = slot_ends.ATTEMPTS.format(
    kind=number_sql(KINDS, "kind"), outcome=number_sql(OUTCOMES, "outcome"), cause=number_sql(CAUSES, "cause"),
    owner=owner_number_sql("owner"), details="$18", batch="fresh WHERE cause IS NOT NULL",
)  # fmt: skip
_REST = f""", attempted AS (
        {_ATTEMPTS}
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
_TIMES = ("run_for", "began_at", "ended_at")
_ENDED = f""", ended AS (
        INSERT INTO runs ({ending.RUN})
        SELECT run_for, sid, {number_sql(KINDS, "kind")}, ({number_sql(OUTCOMES, "outcome")})::text,
            {times_sql(*_TIMES)}, {owner_number_sql("owner")}, run_epoch, last_ended_for,
            {extra_sql("attempt", "first_waited_us", "manual", times=_TIMES)}
        FROM fresh CROSS JOIN LATERAL (SELECT coalesce(started_at, attempt_at) AS began_at) AS c CROSS JOIN LATERAL (
            SELECT CASE WHEN attempt = 1 THEN waited_us ELSE greatest(coalesce((
                SELECT a.started_at FROM attempts a WHERE a.sid = fresh.sid AND a.run_for = fresh.run_for
                    AND a.kind = {number_sql(KINDS, "fresh.kind")} AND a.attempt = 1
            ) - began_at, 0), 0) END AS first_waited_us
        ) AS w
        WHERE wake_at IS NULL
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
        SELECT 1 FROM live_runs WHERE sid = $1 AND kind = $2 AND run_for = $3 AND fence = $4 AND owner = $5
    ) AND EXISTS (
        SELECT 1 FROM runs_live WHERE sid = $6 AND kind = $7 AND run_for = $8 AND fence = $9 AND state = 'waiting'
    )
"""
_SETTLE = f"{_FRESH} {_REST} {_ENDED}"
_LANES = """
    SELECT n.name FROM (SELECT DISTINCT lane_no FROM schedule_state WHERE sid = ANY($1::int8[])) AS l
    JOIN lane_numbers n ON n.no = l.lane_no
"""


async def lock_schedules(db: Connection, sids: Sequence[int]) -> set[str]:
    """Lock these schedules, always in the same order; returns the owners of those among them that were declared."""
    if not sids:
        return set()
    names = {row[0] for row in await db.fetch(_LOCK, sorted(set(sids)))}
    return {name for name in names if not name.startswith(LANE)}


async def declared(db: Connection, sids: Sequence[int]) -> set[str]:
    """Return the owners of those among these schedules that were declared; that never changes."""
    return {row[0] for row in await db.fetch(_LANES, sids) if not row[0].startswith(LANE)}


async def settle_in_slots(db: Connection, settlements: Sequence[Settlement], owners: Mapping[str, int]) -> Settled:
    """Write the ends of runs that are in slots, and lock nothing before. `owners` have these numbers.

    Raises:
        NotInSlotsError: one of them is not as it should be.
    """
    if not settlements:
        return Settled([], {})
    size = sum(len(settlement.detail) for settlement in settlements if settlement.detail is not None)
    if size > MOST_BYTES or not all(map(slot_ends.may_hold, settlements)):
        raise NotInSlotsError
    try:
        woken = await slot_ends.record_all(db, settlements, owners)
    except asyncpg.IntegrityConstraintViolationError as error:
        raise NotInSlotsError from error
    await _send(db, settlements)
    return Settled([], woken)


async def settle(db: Connection, settlements: Sequence[Settlement], owners: Mapping[str, int]) -> Settled:
    """Write the ends together; if the ledger contradicts one of them, singly. `owners` have these numbers."""
    await db.execute("SAVEPOINT ends")
    sids = [settlement.start.sid for settlement in settlements]
    try:
        await lock_schedules(db, sids)
        return await _settle_all(db, settlements, owners)
    except asyncpg.IntegrityConstraintViolationError:
        await db.execute("ROLLBACK TO SAVEPOINT ends")
        await lock_schedules(db, sids)
        if len(settlements) == 1:
            return await _give_up(db, settlements[0])
    settled = Settled([], {})
    for settlement in settlements:
        stale, woken = await settle(db, [settlement], owners)
        settled.stale.extend(stale)
        settled.woken.update(woken)
    return settled


async def _give_up(db: Connection, settlement: Settlement) -> Settled:
    """The run is on record already, which no right course of things can bring about: let its schedule go on."""
    start = settlement.start
    await slots.spill(db, [start.sid])
    await db.execute(
        "DELETE FROM runs_live WHERE sid = $1 AND kind = $2 AND run_for = $3 AND fence = $4 AND owner = $5",
        start.sid, start.kind, start.run_for, start.fence, settlement.owner,
    )  # fmt: skip
    await db.execute("UPDATE schedule_state SET next_run_at = cursor_at WHERE sid = $1", start.sid)
    return Settled([settlement], {})


async def _settle_all(db: Connection, settlements: Sequence[Settlement], owners: Mapping[str, int]) -> Settled:
    fresh: set[int] = set()
    woken: dict[int, int] = {}
    for part in _apart(settlements):
        await _clear_retries(db, [settlement for _, settlement in part])
        matched, wakes = await slot_ends.record(db, [pair for pair in part if slot_ends.may_hold(pair[1])], owners)
        fresh.update(matched)
        if left := [pair for pair in part if pair[0] not in matched]:
            await slots.spill(
                db, [end.start.sid for _, end in left if slots.fits(end.start) and not slot_ends.may_hold(end)]
            )
            for i, at in await _settle_whole(db, left):
                fresh.add(i)
                if at is not None:
                    wakes[i] = at
        woken.update({settlements[i].start.sid: at for i, at in wakes.items()})
    await _send(db, [settlement for i, settlement in enumerate(settlements) if i in fresh])
    return Settled([settlement for i, settlement in enumerate(settlements) if i not in fresh], woken)


async def _send(db: Connection, settlements: Sequence[Settlement]) -> None:
    """Put the messages of ends that were recorded into the outbox."""
    sent = [(message, end.ended_at) for end in settlements for message in end.messages]
    await outbox.append(db, [message for message, _ in sent], [at for _, at in sent])


def _apart(settlements: Sequence[Settlement]) -> Iterator[list[tuple[int, Settlement]]]:
    """The batch in parts that touch no schedule twice: almost always one part.

    A statement changes a row once. The ends of two runs of one schedule (its own and a manual one) come one after
    the other, in their order. What is too much for one message to the server is split as well.
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
    # the run's row says all of a single attempt that succeeded; only the others are kept as attempts
    causes = [None if slot_ends.is_plain(e) else e.start.cause for e in ends]
    return await db.fetch(
        _SETTLE, [i for i, _ in part], [s.sid for s in starts], [s.kind for s in starts], [s.run_for for s in starts],
        [s.fence for s in starts], [e.owner for e in ends], [e.outcome for e in ends], [e.ended_at for e in ends],
        [e.wake_at for e in ends], [s.following for s in starts], [s.epoch for s in starts],
        [s.attempt for s in starts], causes, [s.started_at for s in starts], [storable(e.error) for e in ends],
        *slot_ends.details(ends), [s.waited_us for s in starts],
    )  # fmt: skip
