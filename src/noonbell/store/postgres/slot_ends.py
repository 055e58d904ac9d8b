"""Ends of runs that are in the slots of their schedules, on PostgreSQL: one statement for a batch.

It matches the batch with the slots by key and owner, and writes every table from what matched. It locks nothing before
it and reads the row of a schedule twice: as its snapshot shows it (`o`), for what was there before, and as the row that
it updates (`s`). Where another transaction has changed that row since, the two are not of the same version, and the end
does not match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

from noonbell.core.records import Settlement
from noonbell.store.postgres import ending, slots
from noonbell.store.postgres.batches import inline, keyed
from noonbell.store.postgres.connection import Connection, storable
from noonbell.store.postgres.numbers import extra_sql, times_sql
from noonbell.store.words import CAUSES, OUTCOMES, SCHEDULED, SUCCEEDED

Place = tuple[int, Settlement]  # an end, and its place among all that are settled

_sid = attrgetter("start.sid")
_OUTCOMES = {word: place for place, word in enumerate(OUTCOMES)}

# A wake-up that has come during the run was taken away, and comes back with the end. An edit during the run has opened
# another epoch: what follows then is for a look to say, and at once.
#
# Both conditions say that `o` is the version that is updated. The look by place costs no index; a server that does not
# check a place again after it has waited for another transaction still compares xmin.
#
# The rows are looked up by their sids, whatever the statistics say of the slots: no index has one of their columns, and
# no join could put another table first. Where `runs_live` is empty, as it mostly is, it is not looked at for each end.
_TIMES = ("slot_for", "slot_at", "ended_at")
_SLOTS = f"""
    WITH ended AS (
        UPDATE schedule_state s SET
            next_run_at = CASE WHEN o.epoch = {{epoch}} THEN coalesce(o.next_run_at, {{following}})
                ELSE o.cursor_at END,
            {{results}},
            last_ended_for = {{run_for}}, last_ended_manual = 0, ended_runs = o.ended_runs + 1,
            succeeded_runs = o.succeeded_runs + ({{outcome}} = {SUCCEEDED})::int, {slots.EMPTY}
        FROM schedule_state o
        WHERE {{matches}} AND o.ctid = s.ctid AND o.xmin = s.xmin AND s.slot_for = {{run_for}}
            AND s.slot_owner = {{owner}}
        RETURNING s.sid, o.slot_for, o.slot_owner, {{outcome}} AS outcome, {{result_at}} AS ended_at,
            {{waited_us}} AS waited_us, o.slot_at, o.slot_epoch, o.last_ended_for, o.last_ended_manual, s.next_run_at,
            s.enabled, o.next_run_at IS NULL OR o.epoch <> {{epoch}} AS changed
    ), recorded AS (
        INSERT INTO runs ({ending.RUN})
        SELECT slot_for, sid, {SCHEDULED}, outcome::text, {times_sql(*_TIMES)}, slot_owner, slot_epoch, last_ended_for,
            {extra_sql("1", "waited_us", "last_ended_manual", times=_TIMES)}
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
    SELECT {{answer}} FROM woken
"""
_RESULTS = f"""
    last_success_at = CASE WHEN {{outcome}} = {SUCCEEDED} THEN {{ended_at}} ELSE o.last_success_at END,
    last_failure_at = CASE WHEN {{outcome}} = {SUCCEEDED} THEN o.last_failure_at ELSE {{ended_at}} END
"""
_RESULT_AT = f"CASE WHEN {{outcome}} = {SUCCEEDED} THEN s.last_success_at ELSE s.last_failure_at END"
_MATCHED = """
    count(*), {matched}, array_agg(sid) FILTER (WHERE at IS NOT NULL), array_agg(at) FILTER (WHERE at IS NOT NULL)
"""
# fails unless all have matched and none wakes otherwise
_AS_USUAL = "1 / (count(*) = {count} AND count(at) = 0)::int"
# Attempts that are kept, from a batch: those of `settling`, and the first ones of runs that end from their slots.
ATTEMPTS = """
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
_FIRST_ATTEMPTS = ATTEMPTS.format(
    kind=SCHEDULED, outcome="outcome", cause="cause", owner="owner", details="$11",
    batch="""(
        SELECT b.*, 1 AS attempt FROM unnest(
            $1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::text[], $9::int8[],
            $10::int8[]
        ) AS b (sid, run_for, outcome, cause, attempt_at, ended_at, owner, error, detail_from, detail_for)
    ) AS b""",
)  # fmt: skip


def may_hold(end: Settlement) -> bool:
    """Return whether the run of this end may be in the slot of its schedule, and ends from there."""
    return slots.fits(end.start) and end.wake_at is None and end.cleared is None


class NotInSlotsError(Exception):
    """Some of the runs are not in slots, or have changed: what is written of the batch has to be undone."""


def recording(ends: Sequence[Settlement], owners: Mapping[str, int]) -> str:
    """Return the statement that records plain ends; it fails with a division by zero where more is to be written.

    That is where not all were in slots, two are of one schedule, or some of the schedules wake otherwise.
    """
    ends = sorted(ends, key=_sid)
    part = inline(_columns(ends, owners), joins=False)
    return _SLOTS.format(
        matches=part.matches, results=f"last_success_at = {part.columns['ended_at']}", result_at="s.last_success_at",
        answer=_AS_USUAL.format(count=len(ends)), **part.columns,
    )  # fmt: skip


async def record_all(db: Connection, ends: Sequence[Settlement], owners: Mapping[str, int]) -> dict[int, int]:
    """Record the ends of runs that are in the slots of their schedules; returns by sid when those wake otherwise.

    Raises:
        NotInSlotsError: not all of them were in slots, or two are of one schedule.
    """
    ends = sorted(ends, key=_sid)
    count, _, woken = await _record(db, ends, owners, "NULL::int8[]")
    if count < len(ends):
        raise NotInSlotsError
    await _keep_attempts(db, ends, owners)
    return woken


async def record(db: Connection, pairs: Sequence[Place], owners: Mapping[str, int]) -> tuple[set[int], dict[int, int]]:
    """Record the ends of those runs that are in the slots of their schedules; no two are of one schedule.

    Returns the places of those that were, and when their schedules wake where that has changed.
    """
    if not pairs:
        return set(), {}
    pairs = sorted(pairs, key=lambda pair: pair[1].start.sid)
    _, found, woken = await _record(db, [end for _, end in pairs], owners, "array_agg(sid)")
    places = {end.start.sid: i for i, end in pairs}
    matched = {places[sid] for sid in found}
    await _keep_attempts(db, [end for i, end in pairs if i in matched], owners)
    return matched, {places[sid]: at for sid, at in woken.items()}


async def _record(
    db: Connection, ends: Sequence[Settlement], owners: Mapping[str, int], matched: str
) -> tuple[int, Sequence[int], dict[int, int]]:
    """Return how many have matched, their sids if asked for, and when schedules wake otherwise; `ends` go by sid."""
    part = keyed(_columns(ends, owners))
    columns = part.columns
    sql = _SLOTS.format(
        matches=part.matches, results=_RESULTS.format(**columns), result_at=_RESULT_AT.format(**columns),
        answer=_MATCHED.format(matched=matched), **columns,
    )  # fmt: skip
    ((count, found, sids, instants),) = await db.fetch(sql, *part.bindings)
    return count, found or (), dict(zip(sids or (), instants or (), strict=True))


def _columns(ends: Sequence[Settlement], owners: Mapping[str, int]) -> dict[str, list[int | None]]:
    starts = [end.start for end in ends]
    return {
        "sid": [s.sid for s in starts],
        "run_for": [s.run_for for s in starts],
        "owner": [owners[e.owner] for e in ends],
        "ended_at": [e.ended_at for e in ends],
        "following": [s.following for s in starts],
        "epoch": [s.epoch for s in starts],
        "outcome": [_OUTCOMES[e.outcome] for e in ends],
        "waited_us": [s.waited_us for s in starts],
    }


async def _keep_attempts(db: Connection, ends: Sequence[Settlement], owners: Mapping[str, int]) -> None:
    """Keep the attempts of which the rows of the runs do not say everything."""
    if kept := [end for end in ends if not is_plain(end)]:
        await db.execute(
            _FIRST_ATTEMPTS, [e.start.sid for e in kept], [e.start.run_for for e in kept],
            [_OUTCOMES[e.outcome] for e in kept], [CAUSES.index(e.start.cause) for e in kept],
            [e.start.started_at for e in kept], [e.ended_at for e in kept], [owners[e.owner] for e in kept],
            [storable(e.error) for e in kept], *details(kept),
        )  # fmt: skip


def details(ends: Sequence[Settlement]) -> tuple[list[int | None], list[int | None], bytes]:
    """Return all details as one value, with the place and length of each: the driver knows no arrays of bytes."""
    places: list[int | None] = []
    place = 1
    for end in ends:
        places.append(None if end.detail is None else place)
        place += len(end.detail or b"")
    lengths = [None if end.detail is None else len(end.detail) for end in ends]
    return places, lengths, b"".join(end.detail for end in ends if end.detail is not None)


def is_plain(end: Settlement) -> bool:
    """Return whether its run says all that there is to say of an attempt."""
    return end.outcome == "succeeded" and end.start.attempt == 1 and end.detail is None
