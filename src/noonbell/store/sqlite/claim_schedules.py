"""Claiming durable schedules on SQLite: turns are taken and written in one transaction, a statement for each table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import apsw
import msgspec

from noonbell.core.crashes import CUT_OFF, INTERRUPTED, abandoning, is_on_probation, quarantined
from noonbell.core.presence import lane_key
from noonbell.core.records import OutboxMessage, Outcome, Turn
from noonbell.ports import Claimed, Decide, LaneClaim, MakeNotices
from noonbell.store.definitions import DefinitionCache
from noonbell.store.sqlite import auditing, ending, outbox, slots, stored, turns
from noonbell.store.sqlite.tables import LANE_NO
from noonbell.store.waking import Wanted

_encode = msgspec.json.Encoder().encode

QUARANTINE_US: Final = 60_000_000

# Without overlap `allow` live runs go one after the other, the oldest first: what a person asked for, then the others.
ITS_TURN: Final = """
    (d.definition ->> '$.overlap' IS 'allow' OR (s.slot_for IS NULL AND NOT EXISTS (
        SELECT 1 FROM runs_live m
        WHERE m.sid = l.sid AND (
            m.state = 'running' OR (l.kind = 'scheduled' AND m.kind = 'manual')
            OR (m.kind = l.kind AND m.run_for < l.run_for)
        )
    )))
"""
# The live run drives, whatever the planner thinks of the tables.
_OF_LIVE: Final = """
    CROSS JOIN schedule_state s ON s.sid = l.sid CROSS JOIN schedule_definitions d ON d.sid = l.sid
"""
_WAKES: Final = f"""
    WHERE l.state <> 'running' AND l.wake_at <= ?2 AND s.lane_no = {LANE_NO.format(lane="?1")} AND {ITS_TURN}
    GROUP BY s.sid ORDER BY min(l.wake_at), s.sid LIMIT ?3
"""
_WOKEN: Final = f"SELECT s.sid FROM runs_live l {_OF_LIVE} {_WAKES}"
_DUE_AMONG: Final = f"""
    SELECT s.sid FROM json_each(?4) b CROSS JOIN schedule_state s ON s.sid = b.value
    WHERE s.enabled = 1 AND s.next_run_at <= ?2 AND s.lane_no = {LANE_NO.format(lane="?1")}
    ORDER BY s.next_run_at, s.sid LIMIT ?3
"""
_WOKEN_AMONG: Final = f"""
    SELECT s.sid FROM json_each(?4) b CROSS JOIN runs_live l ON l.sid = b.value {_OF_LIVE} {_WAKES}
"""
# The upper bounds: SQLite sorts texts after all numbers, and damage must not pass for a far instant.
_NEXT_DUE: Final = f"""
    SELECT min(next_run_at) FROM schedule_state
    WHERE enabled = 1 AND lane_no = {LANE_NO.format(lane="?1")} AND next_run_at > ?2
        AND next_run_at <= 9223372036854775807
"""
# Only so many live runs are looked at, since other lanes may share the file. If none of them is ours, the last of them
# says when to look again; a wake-up that comes too early costs one look.
_NEXT_WOKEN: Final = f"""
    SELECT coalesce(
        min(iif(s.lane_no = {LANE_NO.format(lane="?1")} AND {ITS_TURN}, l.wake_at, NULL)),
        iif(count(*) = 64, max(l.wake_at), NULL)
    )
    FROM (
        SELECT sid, kind, run_for, wake_at FROM runs_live
        WHERE state <> 'running' AND wake_at > ?2 AND wake_at <= 9223372036854775807
        ORDER BY wake_at LIMIT 64
    ) l {_OF_LIVE}
"""


# The earliest wake-up of the lane, and of all live runs that wait.
_EARLIEST: Final = f"""
    SELECT (
        SELECT min(next_run_at) FROM schedule_state
        WHERE enabled = 1 AND lane_no = {LANE_NO.format(lane="?1")} AND next_run_at <= 9223372036854775807
    ), (
        SELECT min(wake_at) FROM runs_live WHERE state <> 'running' AND wake_at <= 9223372036854775807
    )
"""


def peek(db: apsw.Connection, wanted: Wanted) -> LaneClaim | None:
    """The claim of a poll at which nothing is due, or None where something may be.

    Most polls are like that. They do without the write lock of the file, and look at nothing but two indexes.
    """
    lane, due_by, limit, among = lane_key(wanted.lane), *wanted[1:]
    if among is not None:
        return None
    earliest: tuple[int | None, int | None] | None = db.execute(_EARLIEST, (lane,)).fetchone()
    next_due, next_woken = (None, None) if earliest is None else earliest
    if next_due is not None and next_due <= due_by:
        return None
    if next_woken is not None:
        if next_woken <= due_by:
            return None
        next_woken = db.execute(_NEXT_WOKEN, (lane, due_by)).get
    next_wake_at = min((at for at in (next_due, next_woken) if at is not None), default=None)
    return LaneClaim(Claimed(starts=[], looked=0, full=limit < 1, next_wake_at=next_wake_at, quarantined=[]), {})


def claim(
    db: apsw.Connection,
    cache: DefinitionCache,
    decide: Decide,
    wanted: Wanted,
    *,
    owner: str,
    now: int,
    singly: bool = False,
) -> LaneClaim:
    """Look, decide and write; if the ledger contradicts a turn, all of it again, and turn by turn.

    Those that it refuses are left out. The many that are written together have no savepoint around them: it would keep
    a copy of every page.
    """
    lane, due_by, limit, among = lane_key(wanted.lane), *wanted[1:]
    woken: list[int] = []
    if among is None:
        looked = stored.due(db, cache, lane, due_by, limit)
        if slots.has_others(db):
            woken = [row[0] for row in db.execute(_WOKEN, (lane, due_by, limit))]
    else:
        sought = (lane, due_by, limit, _encode(list(among)).decode())
        looked = stored.by_sids(db, [row[0] for row in db.execute(_DUE_AMONG, sought)])
        if slots.has_others(db):
            woken = [row[0] for row in db.execute(_WOKEN_AMONG, sought)]
    coming = {seen.sid for seen in looked}
    looked.extend(stored.by_sids(db, [sid for sid in woken if sid not in coming]))
    taken: list[Turn] = []
    set_aside: list[tuple[int, Exception]] = []
    for seen in looked:
        try:
            taken.append(decide(seen))
        except Exception as error:  # noqa: BLE001 - one bad row must not stop its neighbours
            set_aside.append((seen.sid, error))
    busy = {seen.sid for seen in looked if seen.lives}
    if singly:
        written = turns.write_singly(db, taken, owner, now, busy=busy, refused=lambda *one: set_aside.append(one))
    else:
        try:
            turns.write(db, taken, owner, now, busy)
        except apsw.ConstraintError:
            db.execute("ROLLBACK")
            db.execute("BEGIN IMMEDIATE")  # another may have written in between: nothing of the first look counts
            return claim(db, cache, decide, wanted, owner=owner, now=now, singly=True)
        written = taken
    if set_aside:
        _quarantine(db, [sid for sid, _ in set_aside], now)
    upcoming: list[int | None] = [turn.next_run_at for turn in written]
    if among is None:
        upcoming.append(db.execute(_NEXT_DUE, (lane, due_by)).get)
        if slots.has_others(db):
            upcoming.append(db.execute(_NEXT_WOKEN, (lane, due_by)).get)
    claimed = Claimed(
        starts=[start for turn in written for start in turn.starts],
        looked=len(looked),
        full=len(coming) >= limit or len(woken) >= limit,
        next_wake_at=min((at for at in upcoming if at is not None), default=None),
        quarantined=set_aside,
    )
    started = {turn.sid for turn in written if turn.starts}
    return LaneClaim(claimed, {seen.sid: seen for seen in looked if seen.sid in started})


def _quarantine(db: apsw.Connection, sids: list[int], now: int) -> None:
    bindings = (_encode(sids).decode(), now + QUARANTINE_US)
    db.execute("UPDATE schedule_state SET next_run_at = ?2 WHERE sid IN (SELECT value FROM json_each(?1))", bindings)
    # a bad row that woke through its live run would come up again at every look, before all others
    db.execute(
        "UPDATE runs_live SET wake_at = ?2 WHERE sid IN (SELECT value FROM json_each(?1)) "
        "AND state <> 'running' AND coalesce(wake_at, 0) <= ?3",
        (*bindings, now),
    )


_LEFT_RUNNING: Final = f"""
    SELECT l.sid, l.kind, l.run_for, d.schedule_id, l.attempt, l.crashes, d.team, l.owner
    FROM runs_live l {_OF_LIVE} WHERE s.lane_no = {LANE_NO.format(lane="?1")} AND l.state = 'running'
    AND (l.kind = 'manual' OR coalesce(d.definition ->> '$.at_most_once', 0)) = ?2
    AND coalesce(l.owner, '') IN (SELECT value FROM json_each(?3))
"""


def take_over(
    db: apsw.Connection, lane: str, at: int, make_notices: MakeNotices | None, *, gone: Sequence[str], stopped: bool
) -> int:
    """Queue again what these owners left running, or end it where it must not be repeated."""
    slots.spill_of(db, gone)
    owners = _encode(gone).decode()
    db.execute(
        f"INSERT OR REPLACE INTO {ending.CUT_ATTEMPT}, coalesce(l.attempt_at, ?2), ?2, "
        f"{ending.LAST_OWNER}, ?4 "
        "FROM runs_live l CROSS JOIN schedule_state s ON s.sid = l.sid "
        f"WHERE s.lane_no = {LANE_NO.format(lane='?1')} AND l.state = 'running' "
        "AND coalesce(l.owner, '') IN (SELECT value FROM json_each(?3))",
        (lane_key(lane), at, owners, CUT_OFF if stopped else INTERRUPTED),
    )
    final: Any = db.execute(_LEFT_RUNNING, (lane_key(lane), 1, owners)).fetchall()
    left: Any = db.execute(_LEFT_RUNNING, (lane_key(lane), 0, owners)).fetchall()
    engines = frozenset() if stopped else abandoning((row[7], row[5]) for row in (*final, *left))
    given_up = [row for row in left if row[7] in engines and is_on_probation(row[5])]
    if make_notices is not None:
        outbox.append(db, _cut_notices(db, final, given_up, make_notices), at)
    _end_left(db, final, "unknown", at)
    _end_left(db, given_up, "abandoned", at)
    auditing.append(db, [quarantined(row[3], row[2], row[4], row[5], at, team=row[6]) for row in given_up])
    queued = [row for row in left if row not in given_up]  # of those there is one for an engine at most
    if queued:
        db.execute(
            "UPDATE runs_live SET state = 'queued', cause = 'orphan', owner = NULL, wake_at = 0, fence = fence + 1, "
            "crashes = crashes + ?2 WHERE (sid, kind, run_for) IN "
            "(SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))",
            (_encode(queued).decode(), int(not stopped)),
        )
    outbox.free(db, lane, owners)
    return len(queued)


def _cut_notices(
    db: apsw.Connection, final: list[tuple[Any, ...]], given_up: list[tuple[Any, ...]], make_notices: MakeNotices
) -> list[OutboxMessage]:
    cut: dict[tuple[Any, ...], Outcome] = dict.fromkeys((row[:3] for row in final), "unknown")
    cut.update(dict.fromkeys((row[:3] for row in given_up), "abandoned"))
    seen = stored.by_sids(db, sorted({key[0] for key in cut}))
    lives = [(one, live, cut.get((live.sid, live.kind, live.run_for))) for one in seen for live in one.lives]
    return [message for one, live, ends in lives if ends is not None for message in make_notices(one, live, ends)]


def _end_left(db: apsw.Connection, rows: list[tuple[Any, ...]], outcome: str, at: int) -> None:
    if rows:
        ending.end_keys(db, rows, outcome, at)
        db.execute(
            "UPDATE schedule_state SET next_run_at = cursor_at, last_failure_at = ?2 "
            "WHERE sid IN (SELECT value ->> 0 FROM json_each(?1))",
            (_encode(rows).decode(), at),
        )
