"""Claiming durable schedules on PostgreSQL: turns are taken and written in one transaction.

As in `claiming`: the due schedules are locked first, and those of due live runs; what another has locked is skipped.
Then their definitions, as far as they are new here, and live runs are read, under the lock, turns are taken, and one
statement is run for each table. No savepoint lies between the locks and what is written: a row that is locked by a
transaction and updated by a part of it gets a multixact.

Locks are taken in this order, so that no two transactions wait for each other: leases, schedules (their rows of
`schedule_state`; all that wait for one take them by sid, and a claim and a rescue never wait), numbers, streams of the
outbox by sid, the audit. A row of `schedule_definitions` is written only under the lock of its state.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

import asyncpg

from noonbell.core.crashes import CUT_OFF, INTERRUPTED, abandoning, is_on_probation, quarantined
from noonbell.core.presence import lane_key
from noonbell.core.records import AT_ONCE, LifecycleEvent, LiveRun, OutboxMessage, Outcome, StoredSchedule, Turn
from noonbell.core.turns import definition_of
from noonbell.ports import Claimed, Decide, LaneClaim, MakeNotices
from noonbell.store.definitions import DefinitionCache
from noonbell.store.postgres import auditing, declaring, ending, live_rows, outbox, slots, stored, turns
from noonbell.store.postgres.claiming import LOCKED_PAUSE_US, QUARANTINE_US
from noonbell.store.postgres.connection import Connection, rows_of
from noonbell.store.postgres.lane_numbers import OF_LANE, OF_LIVE
from noonbell.store.postgres.numbers import number_sql, owner_number_sql
from noonbell.store.waking import Wanted
from noonbell.store.words import CAUSES, KINDS, OUTCOMES

# Without overlap `allow` live runs go one after the other, the oldest first: manual runs, then the others. The
# definition is read only for a run that has another before it. Its text is looked at before it is read as JSON: damage
# in one row must not hold up the others.
_ALLOWS: Final = """
    SELECT CASE WHEN d.definition LIKE '%"overlap":"allow"%' THEN d.definition::json ->> 'overlap' = 'allow' END
    FROM schedule_definitions d WHERE d.sid = l.sid
"""
ITS_TURN: Final = f"""
    (((
        SELECT count(*) FROM runs_live m
        WHERE m.sid = l.sid AND (
            m.state = 'running' OR (l.kind = 'scheduled' AND m.kind = 'manual')
            OR (m.kind = l.kind AND m.run_for < l.run_for)
        )
    ) = 0 AND (SELECT m.slot_owner FROM schedule_state m WHERE m.sid = l.sid) IS NULL) OR ({_ALLOWS}))
"""
_WAKING: Final = f"l.state <> 'running' AND {OF_LIVE} = {OF_LANE} AND {ITS_TURN}"
# A subquery that locks stays one: the schedules of live runs are looked up one by one, in the order of the runs.
_LOCKED: Final = f"LATERAL (SELECT {stored.STATE} FROM schedule_state s WHERE s.sid = l.sid FOR UPDATE SKIP LOCKED) s"
_DUE: Final = f"""
    SELECT {stored.STATE} FROM schedule_state s
    WHERE s.enabled = 1 AND s.next_run_at <= $1 AND s.lane_no = {OF_LANE}
    ORDER BY s.next_run_at LIMIT $3 FOR UPDATE SKIP LOCKED
"""
_WOKEN: Final = f"""
    SELECT {stored.STATE}, l.wake_at FROM runs_live l CROSS JOIN {_LOCKED}
    WHERE l.wake_at <= $1 AND {_WAKING} ORDER BY l.wake_at LIMIT $3
"""
# By key: `+ 0` and OFFSET 0 keep the indexes of wake-ups out of it. Live runs are looked at first, alone: mostly none
# of them waits.
_DUE_AMONG: Final = f"""
    SELECT {stored.STATE} FROM schedule_state s
    WHERE s.sid = ANY($4::int8[]) AND s.enabled + 0 = 1 AND s.next_run_at + 0 <= $1 AND s.lane_no + 0 = {OF_LANE}
    ORDER BY s.next_run_at + 0 LIMIT $3 FOR UPDATE SKIP LOCKED
"""
_WAITING_AMONG: Final = """
    SELECT DISTINCT b.sid FROM unnest($2::int8[]) AS b (sid) CROSS JOIN LATERAL (
        SELECT 1 FROM runs_live t WHERE t.sid = b.sid AND t.state <> 'running' AND t.wake_at + 0 <= $1 OFFSET 0
    ) AS t
"""
_WOKEN_AMONG: Final = f"""
    SELECT {stored.STATE}, l.wake_at FROM unnest($4::int8[]) AS b (sid)
    CROSS JOIN LATERAL (SELECT * FROM runs_live t WHERE t.sid = b.sid AND t.wake_at + 0 <= $1 OFFSET 0) l
    CROSS JOIN {_LOCKED} WHERE {_WAKING} ORDER BY l.wake_at LIMIT $3
"""
_BY_WAKE_UP: Final = itemgetter(stored.NEXT_RUN_AT, 0)
_NEXT: Final = f"""
    SELECT
        (SELECT next_run_at FROM schedule_state WHERE enabled = 1 AND next_run_at > $1 AND lane_no = {OF_LANE}
            ORDER BY next_run_at LIMIT 1),
        (SELECT l.wake_at FROM runs_live l WHERE l.wake_at > $1 AND {_WAKING} ORDER BY l.wake_at LIMIT 1),
        EXISTS (SELECT 1 FROM schedule_state WHERE enabled = 1 AND next_run_at <= $1 AND lane_no = {OF_LANE})
            OR EXISTS (SELECT 1 FROM runs_live l WHERE l.wake_at <= $1 AND {_WAKING})
"""


# The earliest occurrence of a lane, and whether any run waits at all. That is all that an idle claim asks: with more in
# it, the server would take longer for its plan than for all the rest.
_FIRST: Final = """
    SELECT
        (SELECT next_run_at FROM schedule_state WHERE enabled = 1 AND next_run_at IS NOT NULL
            AND lane_no = (SELECT no FROM lane_numbers WHERE name = $1::text) ORDER BY next_run_at LIMIT 1),
        EXISTS (SELECT 1 FROM runs_live WHERE state <> 'running')
"""
_FIRST_WOKEN: Final = f"""
    SELECT l.wake_at FROM runs_live l WHERE l.wake_at >= $1 AND {_WAKING} ORDER BY l.wake_at LIMIT 1
"""
_OTHERS: Final = "SELECT 1 FROM runs_live LIMIT 1"


class ContradictedError(Exception):
    """The ledger contradicts one of the turns of a claim: nothing is written, and it begins again, turn by turn."""


async def claim(
    db: Connection,
    decide: Decide,
    wanted: Wanted,
    *,
    owner: turns.Owner,
    now: int,
    cache: DefinitionCache,
    backlogged: bool = False,
    singly: bool = False,
) -> LaneClaim:
    """Start what is due, and record what was decided about it.

    A lane that is `backlogged` has more that is due, as far as is known: it is not asked first whether it has any.
    """
    waiting = True
    if wanted.among is None and not backlogged:
        # most looks find nothing due: those are one statement, which locks nothing
        ((next_run_at, waiting),) = await db.fetch(_FIRST, lane_key(wanted.lane))
        wake_at = await db.fetchval(_FIRST_WOKEN, AT_ONCE, lane_key(wanted.lane)) if waiting else None
        first = [at for at in (next_run_at, wake_at) if at is not None]
        if not any(at <= wanted.due_by for at in first):
            return LaneClaim(Claimed([], 0, full=False, next_wake_at=min(first, default=None), quarantined=[]), {})
    looked, full, in_slot = await _look(db, wanted, cache, waiting=waiting)
    taken: list[Turn] = []
    refused: list[tuple[int, Exception]] = []
    for seen in looked:
        try:
            taken.append(decide(seen))
        except Exception as error:  # noqa: BLE001 - one bad row must not stop its neighbours
            refused.append((seen.sid, error))
    goes_on = wanted.among is None and not full  # after one that was full, the next claim comes at once
    audits = [event for turn in taken for event in turn.audits]
    if singly:
        written, contradicted = await turns.write_singly(db, taken, owner, now, in_slot=in_slot)
        refused += contradicted
        audits = [event for turn in written for event in turn.audits]
    else:
        written = taken
        try:
            await turns.write(db, taken, owner, now, in_slot, commit=not (goes_on or refused or audits))
        except asyncpg.IntegrityConstraintViolationError as error:
            raise ContradictedError from error
    if refused:
        await _quarantine(db, [sid for sid, _ in refused], now)
    await auditing.append(db, audits)
    upcoming, locked = [turn.next_run_at for turn in written], False
    if goes_on:
        (row,) = await db.fetch(_NEXT, wanted.due_by, lane_key(wanted.lane))
        upcoming += row[:2]
        locked = bool(row[2])
        if locked:
            upcoming.append(now + LOCKED_PAUSE_US)
    claimed = Claimed(
        starts=[start for turn in written for start in turn.starts],
        looked=len(looked),
        full=full,
        next_wake_at=min((at for at in upcoming if at is not None), default=None),
        quarantined=refused,
        locked=locked,
    )
    started = {turn.sid for turn in written if turn.starts}
    return LaneClaim(claimed, {seen.sid: seen for seen in looked if seen.sid in started})


async def _look(
    db: Connection, wanted: Wanted, cache: DefinitionCache, *, waiting: bool
) -> tuple[list[StoredSchedule], bool, set[int]]:
    """Lock what is due; oldest first, those that wake through a live run after the others, if any run is `waiting`.

    Returns the schedules, whether there may be more, and the sids of those whose slot is taken.
    """
    lane, now, limit, among = lane_key(wanted.lane), *wanted[1:]
    sids: Sequence[int] = () if among is None else list(among)
    if among is None:
        due = await db.fetch(_DUE, now, lane, limit)
    else:
        due = await db.fetch(_DUE_AMONG, now, lane, limit, sids)
    # after the locks: who adds to it beside one of these schedules writes its row, and has committed or waits
    others = rows_of(await db.execute(_OTHERS)) > 0
    woken: list[Any] = []
    if others and among is None:
        woken = await db.fetch(_WOKEN, now, lane, limit) if waiting else []
    elif others:
        woken_sids = [row[0] for row in await db.fetch(_WAITING_AMONG, now, sids)]
        woken = await db.fetch(_WOKEN_AMONG, now, lane, limit, woken_sids) if woken_sids else []
    full, coming = len(due) >= limit or len(woken) >= limit, None
    states: Sequence[Any] = sorted(due, key=_BY_WAKE_UP)
    if woken:
        coming = {row[0] for row in due}
        rows: dict[int, Any] = {row[0]: row for row in states}
        earliest: dict[int, int] = {}
        for row in woken:
            earliest[row[0]] = min(row[-1], earliest.get(row[0], row[-1]))
        for row in sorted(woken, key=lambda row: (earliest[row[0]], row[0])):
            rows.setdefault(row[0], row[:-1])
        states = list(rows.values())
    found = await stored.defined(db, states, cache, others=others)
    in_slot = {row[0] for row in states if row[stored.SLOT_FOR] is not None}
    if coming is None:
        return found, full, in_slot
    # another instance may have been faster with a live run, between the look and the lock
    looked = [seen for seen in found if seen.sid in coming or any(_wakes(live, now) for live in seen.lives)]
    return looked, full, in_slot


def _wakes(live: LiveRun, now: int) -> bool:
    return live.state != "running" and live.wake_at is not None and live.wake_at <= now


async def _quarantine(db: Connection, sids: list[int], now: int) -> None:
    later = now + QUARANTINE_US
    await db.execute("UPDATE schedule_state SET next_run_at = $2 WHERE sid = ANY($1::int8[])", sids, later)
    # a bad row that woke through its live run would come up again at every look, before all others
    await db.execute(
        "UPDATE runs_live SET wake_at = $2 WHERE sid = ANY($1::int8[]) AND state <> 'running' "
        "AND coalesce(wake_at, 0) <= $3",
        sids, later, now,
    )  # fmt: skip


# --- taking over ------------------------------------------------------------------------------------------------------

_LEFT_RUNNING: Final = """
    SELECT l.sid, l.kind, l.run_for, d.schedule_id, l.attempt, l.crashes, d.definition, d.team, l.owner
    FROM live_runs l JOIN schedule_definitions d ON d.sid = l.sid
    WHERE d.lane = $1 AND l.state = 'running' AND CASE WHEN $2::text IS NULL
        THEN (SELECT count(*) FROM instances i WHERE i.name = 'engine:' || l.owner) = 0 ELSE l.owner = $2 END
"""
_PLACES: Final = f"SELECT l.tid FROM {live_rows.KEYS} {live_rows.OF_BATCH}"


async def take_over(
    db: Connection,
    lane: str,
    at: int,
    make_notices: MakeNotices | None,
    *,
    stopped: str | None = None,
    events: Sequence[LifecycleEvent] = (),
) -> tuple[int, int]:
    """Queue again the runs whose owner has no lease, or end those that must not be repeated.

    Where another has locked the schedule of such a run, or a stream, it is passed over: an edit of one may take long,
    and the rest has waited long enough. With `stopped`, what that engine owns instead; its runs are waited for, since
    it does not come again. `events` are recorded with it.

    Returns how many runs are queued, and how many runs and streams were passed over.
    """
    await db.execute(slots.SCANNING)
    sids = sorted({row[0] for row in await db.fetch(_LEFT_RUNNING, lane, stopped)})
    skip = "SKIP LOCKED" if stopped is None else ""
    locking = f"SELECT sid FROM schedule_state WHERE sid = ANY($1::int8[]) ORDER BY sid FOR UPDATE {skip}"
    locked = {row[0] for row in await db.fetch(locking, sids)}
    await slots.spill(db, sorted(locked))
    found = await db.fetch(_LEFT_RUNNING, lane, stopped)
    await db.execute(slots.NOT_SCANNING)
    # the runs on probation of one engine are judged together: where one is locked, the others are passed over as well
    apart = {row[8] for row in found if row[0] not in locked and is_on_probation(row[5])}
    left = [row for row in found if row[0] in locked and not (row[8] in apart and is_on_probation(row[5]))]
    await db.execute(
        "INSERT INTO attempts (sid, run_for, kind, attempt, outcome, cause, started_at, ended_at, owner, error) "
        f"SELECT l.sid, l.run_for, {number_sql(KINDS, 'l.kind')}, l.attempt, {OUTCOMES.index('unknown')}, "
        f"{number_sql(CAUSES, 'l.cause')}, coalesce(l.attempt_at, $4), $4, {owner_number_sql('l.owner')}, $5 "
        f"FROM {live_rows.KEYS} {live_rows.OF_BATCH} "
        "ON CONFLICT (sid, run_for, kind, attempt) DO UPDATE SET outcome = excluded.outcome, cause = excluded.cause, "
        "started_at = excluded.started_at, ended_at = excluded.ended_at, owner = excluded.owner, "
        "error = excluded.error, detail = NULL",
        *_keys(left), at, INTERRUPTED if stopped is None else CUT_OFF,
    )  # fmt: skip
    final = [row for row in left if row[1] == "manual" or definition_of(row[6]).at_most_once]
    ended = {tuple(row[:3]) for row in final}
    repeated = [row for row in left if tuple(row[:3]) not in ended]
    engines = frozenset() if stopped is not None else abandoning((row[8], row[5]) for row in found)
    given_up = [row for row in repeated if row[8] in engines and is_on_probation(row[5])]
    again = [row for row in repeated if row not in given_up]  # of those there is one for an engine at most
    messages = [] if make_notices is None else await _cut_notices(db, final, given_up, make_notices)
    await _end(db, final, "unknown", at)
    await _end(db, given_up, "abandoned", at)
    if again:
        await db.execute(
            "UPDATE runs_live l SET state = 'queued', cause = 'orphan', owner = NULL, wake_at = 0, "
            f"fence = l.fence + 1, crashes = l.crashes + $4 WHERE {live_rows.among(_PLACES)}",
            *_keys(again), int(stopped is None),
        )  # fmt: skip
    await declaring.record(db, events)
    await outbox.append(db, messages, [at] * len(messages))
    passed_over = len(found) - len(left) + await outbox.free(db, lane, stopped)
    await auditing.append(db, [quarantined(row[3], row[2], row[4], row[5], at, team=row[7]) for row in given_up])
    return len(again), passed_over


async def _cut_notices(
    db: Connection, final: Sequence[Any], given_up: Sequence[Any], make_notices: MakeNotices
) -> list[OutboxMessage]:
    cut: dict[tuple[Any, ...], Outcome] = dict.fromkeys((tuple(row[:3]) for row in final), "unknown")
    cut.update(dict.fromkeys((tuple(row[:3]) for row in given_up), "abandoned"))
    seen = await stored.locked(db, [key[0] for key in cut])
    lives = [(one, live, cut.get((live.sid, live.kind, live.run_for))) for one in seen for live in one.lives]
    return [message for one, live, ends in lives if ends is not None for message in make_notices(one, live, ends)]


async def _end(db: Connection, rows: Sequence[Any], outcome: str, at: int) -> None:
    """End runs that will not go on; the next poll decides what follows them."""
    if not rows:
        return
    await ending.end_keys(db, rows, outcome, at)
    await db.execute(
        "UPDATE schedule_state SET next_run_at = cursor_at, last_failure_at = $2 WHERE sid = ANY($1::int8[])",
        [row[0] for row in rows], at,
    )  # fmt: skip


def _keys(rows: Sequence[Any]) -> tuple[list[int], list[str], list[int]]:
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
