"""Settling on PostgreSQL: ends of attempts become history.

Most ends are of runs in the slots of their schedules. One statement matches the batch with the slots by key and owner,
and writes every table from what matched. It locks nothing before it and reads the row of a schedule twice: as its
snapshot shows it (`o`), for what was there before, and as the row that it updates (`s`). Where another transaction has
changed that row since, the two are not of the same version, and the end does not match.

If all of the batch has matched, that is all. If not, it is undone, and the schedules of the batch are locked in the
order of their numbers, as everywhere. Then what is in a slot ends from there, the rest is looked for in `runs_live` by
key, fence and owner, and what is in neither is stale and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import asyncpg

from noonbell.core.attempts import FIRST_KEPT, LAST_KEPT
from noonbell.core.presence import LANE
from noonbell.core.records import Settlement
from noonbell.ports import Settled
from noonbell.store.postgres import ending, live_rows, outbox, slots
from noonbell.store.postgres.batches import batch
from noonbell.store.postgres.connection import Connection, storable
from noonbell.store.postgres.numbers import extra_sql, number_sql, owner_number_sql
from noonbell.store.words import CAUSES, KINDS, OUTCOMES, SCHEDULED, SUCCEEDED

_Place = tuple[int, Settlement]
_OUTCOMES = {word: place for place, word in enumerate(OUTCOMES)}

# So many bytes of details may go to the server in one message.
MOST_BYTES = 64_000_000

# A wake-up that has come during the run was taken away, and comes back with the end. An edit during the run has opened
# another epoch: what follows then is for a look to say, and at once.
#
# The owner is a column of the batch, though it is mostly one for all. Compared with a constant, at rest when all slots
# are empty, it would be taken for a condition that finds one row, and worth a look at every schedule (see `live_rows`).
# Where `runs_live` is empty, as it mostly is, it is not looked at for each end.
_SLOTS = f"""
    WITH ended AS (
        UPDATE schedule_state s SET
            next_run_at = CASE WHEN o.epoch = {{epoch}} THEN coalesce(o.next_run_at, {{following}})
                ELSE o.cursor_at END,
            last_success_at = CASE WHEN {{outcome}} = {SUCCEEDED} THEN {{ended_at}} ELSE o.last_success_at END,
            last_failure_at = CASE WHEN {{outcome}} = {SUCCEEDED} THEN o.last_failure_at ELSE {{ended_at}} END,
            last_ended_for = {{run_for}}, last_ended_manual = 0, ended_runs = o.ended_runs + 1,
            succeeded_runs = o.succeeded_runs + ({{outcome}} = {SUCCEEDED})::int, {slots.EMPTY}
        FROM {{batch}} CROSS JOIN schedule_state o
        WHERE s.sid = {{sid}} AND o.ctid = s.ctid AND o.xmin = s.xmin AND s.slot_for = {{run_for}}
            AND s.slot_owner = {{owner}}
        RETURNING s.sid, {{run_for}} AS run_for, {{owner}} AS owner, {{ended_at}} AS ended_at, {{outcome}} AS outcome,
            {{waited_us}} AS waited_us, o.slot_at, o.slot_epoch, o.last_ended_for, o.last_ended_manual, s.next_run_at,
            s.enabled, o.next_run_at IS NULL OR o.epoch <> {{epoch}} AS changed
    ), recorded AS (
        INSERT INTO runs ({ending.RUN})
        SELECT run_for, sid, {SCHEDULED}, outcome::text, slot_at, ended_at, owner, slot_epoch, last_ended_for,
            {extra_sql("1", "waited_us", "last_ended_manual")}
        FROM ended
    ), woken AS (
        SELECT sid, CASE WHEN changed OR behind_at IS NOT NULL
            THEN least(CASE WHEN enabled = 1 THEN next_run_at END, behind_at) END AS at
        FROM (
            SELECT sid, changed, enabled, next_run_at, CASE WHEN EXISTS (SELECT 1 FROM runs_live) THEN (
                SELECT min(t.wake_at + 0) FILTER (WHERE t.state <> 'running') FROM runs_live t WHERE t.sid = ended.sid
            ) END AS behind_at
            FROM ended
        ) AS e
    )
    SELECT CASE WHEN count(*) < cardinality($1) THEN coalesce(array_agg(sid), '{{{{}}}}') END,
        array_agg(sid) FILTER (WHERE at IS NOT NULL), array_agg(at) FILTER (WHERE at IS NOT NULL)
    FROM woken
"""
_ATTEMPTS = """
    INSERT INTO attempts AS a (
        sid, run_for, kind, attempt, outcome, cause, started_at, ended_at, owner, error, detail
    )
    SELECT sid, run_for, {kind}, attempt, {outcome}, {cause}, attempt_at, ended_at, {owner}, error,
        substring({details}::bytea FROM detail_from::int FOR detail_for::int)
    FROM {batch}
    ON CONFLICT (sid, run_for, kind, attempt) DO UPDATE SET outcome = excluded.outcome, cause = excluded.cause,
        started_at = excluded.started_at, ended_at = excluded.ended_at, owner = excluded.owner,
        error = excluded.error, detail = excluded.detail
"""
_FIRST_ATTEMPTS = _ATTEMPTS.format(
    kind=SCHEDULED, outcome="outcome", cause="cause", owner="owner", details="$11",
    batch="""(
        SELECT b.*, 1 AS attempt FROM unnest(
            $1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::text[], $9::int8[],
            $10::int8[]
        ) AS b (sid, run_for, outcome, cause, attempt_at, ended_at, owner, error, detail_from, detail_for)
    ) AS b""",
)  # fmt: skip
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
_TOLD = _ATTEMPTS.format(
    kind=number_sql(KINDS, "kind"), outcome=number_sql(OUTCOMES, "outcome"), cause=number_sql(CAUSES, "cause"),
    owner=owner_number_sql("owner"), details="$18", batch="fresh WHERE cause IS NOT NULL",
)  # fmt: skip
_REST = f""", told AS (
        {_TOLD}
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
        INSERT INTO runs ({ending.RUN})
        SELECT run_for, sid, {number_sql(KINDS, "kind")}, ({number_sql(OUTCOMES, "outcome")})::text, began_at, ended_at,
            {owner_number_sql("owner")}, run_epoch, last_ended_for, {extra_sql("attempt", "first_waited_us", "manual")}
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


async def settle(db: Connection, settlements: Sequence[Settlement], owners: Mapping[str, int]) -> Settled:
    """Write the ends together; if the ledger contradicts one of them, singly. `owners` have these numbers."""
    await db.execute("SAVEPOINT ends")
    sids = [settlement.start.sid for settlement in settlements]
    try:
        if all(_may_be_in_slot(settlement) for settlement in settlements):
            if (settled := await _settle_in_slots(db, settlements, owners)) is not None:
                return settled
            await db.execute("ROLLBACK TO SAVEPOINT ends")
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


def _may_be_in_slot(end: Settlement) -> bool:
    """Return whether the run of this end may be in the slot of its schedule, and ends from there."""
    return slots.fits(end.start) and end.wake_at is None and end.cleared is None


async def _settle_in_slots(
    db: Connection, settlements: Sequence[Settlement], owners: Mapping[str, int]
) -> Settled | None:
    """Settle a batch whose schedules are not locked; None where one of the runs is not in a slot, or has changed."""
    pairs = sorted(enumerate(settlements), key=lambda pair: pair[1].start.sid)  # locks are taken in this order
    size = sum(len(settlement.detail) for settlement in settlements if settlement.detail is not None)
    if size > MOST_BYTES:
        return None
    matched, woken = await _from_slots(db, pairs, owners)
    if len(matched) < len(pairs):
        return None
    await _tell(db, settlements)
    return Settled([], {settlements[i].start.sid: at for i, at in woken.items()})


async def _settle_all(db: Connection, settlements: Sequence[Settlement], owners: Mapping[str, int]) -> Settled:
    fresh: set[int] = set()
    woken: dict[int, int] = {}
    for part in _apart(settlements):
        await _clear_retries(db, [settlement for _, settlement in part])
        matched, wakes = await _from_slots(db, [pair for pair in part if _may_be_in_slot(pair[1])], owners)
        fresh.update(matched)
        if left := [pair for pair in part if pair[0] not in matched]:
            await slots.spill(
                db, [end.start.sid for _, end in left if slots.fits(end.start) and not _may_be_in_slot(end)]
            )
            for i, at in await _settle_whole(db, left):
                fresh.add(i)
                if at is not None:
                    wakes[i] = at
        woken.update({settlements[i].start.sid: at for i, at in wakes.items()})
    await _tell(db, [settlement for i, settlement in enumerate(settlements) if i in fresh])
    return Settled([settlement for i, settlement in enumerate(settlements) if i not in fresh], woken)


async def _tell(db: Connection, settlements: Sequence[Settlement]) -> None:
    """Put the messages of ends that were recorded into the outbox."""
    sent = [(message, end.ended_at) for end in settlements for message in end.messages]
    await outbox.append(db, [message for message, _ in sent], [at for _, at in sent])


async def _from_slots(
    db: Connection, pairs: Sequence[_Place], owners: Mapping[str, int]
) -> tuple[set[int], dict[int, int]]:
    """Record the ends of runs that are in the slots of their schedules; no two are of one schedule.

    Returns the places of those that were, and when their schedules wake where that has changed.
    """
    if not pairs:
        return set(), {}
    ends = [end for _, end in pairs]
    starts = [end.start for end in ends]
    part = batch(
        {
            "sid": [s.sid for s in starts],
            "run_for": [s.run_for for s in starts],
            "owner": [owners[e.owner] for e in ends],
            "ended_at": [e.ended_at for e in ends],
            "following": [s.following for s in starts],
            "epoch": [s.epoch for s in starts],
            "outcome": [_OUTCOMES[e.outcome] for e in ends],
            "waited_us": [s.waited_us for s in starts],
        },
        joined=("run_for", "owner"),
    )
    (row,) = await db.fetch(_SLOTS.format(batch=part.source, **part.columns), *part.bindings)
    places = {end.start.sid: i for i, end in pairs}
    matched = set(places.values()) if row[0] is None else {places[sid] for sid in row[0]}
    if told := [end for i, end in pairs if i in matched and not _is_plain(end)]:
        await db.execute(
            _FIRST_ATTEMPTS, [e.start.sid for e in told], [e.start.run_for for e in told],
            [_OUTCOMES[e.outcome] for e in told], [CAUSES.index(e.start.cause) for e in told],
            [e.start.started_at for e in told], [e.ended_at for e in told], [owners[e.owner] for e in told],
            [storable(e.error) for e in told], *_details(told),
        )  # fmt: skip
    return matched, {places[sid]: at for sid, at in zip(row[1] or (), row[2] or (), strict=True)}


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
