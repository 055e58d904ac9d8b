"""Settling on SQLite: ends of attempts become history, in one transaction.

The batch is put into a temporary table and joined with the live runs by key, fence and owner; what does not match is
stale and changes nothing. Most ends are first attempts of scheduled runs that succeeded: they travel as six numbers,
the rest with all there is to tell.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from noonbell.core.records import Settlement

_encode = msgspec.json.Encoder().encode

_PLAIN = """
    INSERT INTO temp.settling (i, sid, run_for, fence, ended_at, following, epoch, kind, outcome, attempt, owner)
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6,
        'scheduled', 'succeeded', 1, ?2
    FROM json_each(?1)
"""
_FULL = """
    INSERT INTO temp.settling (
        i, sid, run_for, fence, ended_at, following, epoch, kind, outcome, attempt, owner, wake_at, cause, attempt_at,
        error
    )
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
        value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14
    FROM json_each(?1)
"""
_FRESH = """
    FROM temp.settling b JOIN runs_live l
    ON l.sid = b.sid AND l.kind = b.kind AND l.run_for = b.run_for AND l.fence = b.fence AND l.owner = b.owner
"""


def settle(db: apsw.Connection, settlements: Sequence[Settlement]) -> list[Settlement]:
    _fill(db, settlements)
    stale = _drop_stale(db, settlements)
    db.execute(
        "INSERT OR REPLACE INTO attempts SELECT sid, run_for, kind, attempt, outcome, cause, attempt_at, ended_at, "
        "owner, error FROM temp.settling WHERE cause IS NOT NULL"
    )
    db.execute(
        "INSERT INTO runs SELECT b.run_for, b.sid, b.kind, b.outcome, b.attempt, coalesce(l.started_at, b.attempt_at), "
        f"b.ended_at, b.owner, l.epoch {_FRESH} WHERE b.wake_at IS NULL"
    )
    db.execute(
        "DELETE FROM runs_live WHERE (sid, kind, run_for) IN "
        "(SELECT sid, kind, run_for FROM temp.settling WHERE wake_at IS NULL)"
    )
    db.execute(
        "UPDATE runs_live SET state = 'waiting', wake_at = b.wake_at, owner = NULL FROM temp.settling b "
        "WHERE b.wake_at IS NOT NULL AND runs_live.sid = b.sid AND runs_live.kind = b.kind "
        "AND runs_live.run_for = b.run_for"
    )
    # an edit during the run has opened another epoch: what follows then is for the next look to say
    db.execute(
        "UPDATE schedules SET next_run_at = iif(schedules.epoch = b.epoch, b.following, b.ended_at), "
        "last_success_at = iif(b.outcome = 'succeeded', b.ended_at, last_success_at), "
        "last_failure_at = iif(b.outcome = 'succeeded', last_failure_at, b.ended_at) "
        "FROM temp.settling b WHERE schedules.sid = b.sid"
    )
    return stale


def _fill(db: apsw.Connection, settlements: Sequence[Settlement]) -> None:
    plain = []
    full = []
    owner = settlements[0].owner if settlements else ""
    for i, s in enumerate(settlements):
        start = s.start
        numbers = (i, start.sid, start.run_for, start.fence, s.ended_at, start.following, start.epoch)
        if s.outcome == "succeeded" and start.attempt == 1 and start.kind == "scheduled" and s.owner == owner:
            plain.append(numbers)
        else:
            # a single attempt that succeeded is told whole by its run; only the others are kept as attempts
            cause = None if s.outcome == "succeeded" and start.attempt == 1 else start.cause
            more = (start.kind, s.outcome, start.attempt, s.owner, s.wake_at, cause, start.started_at, s.error)
            full.append((*numbers, *more))
    db.execute("DELETE FROM temp.settling")
    if plain:
        db.execute(_PLAIN, (_encode(plain), owner))
    if full:
        db.execute(_FULL, (_encode(full),))


def _drop_stale(db: apsw.Connection, settlements: Sequence[Settlement]) -> list[Settlement]:
    if db.execute(f"SELECT count(*) {_FRESH}").get == len(settlements):
        return []
    fresh = {row[0] for row in db.execute(f"SELECT b.i {_FRESH}")}
    gone = [i for i in range(len(settlements)) if i not in fresh]
    db.execute("DELETE FROM temp.settling WHERE i IN (SELECT value FROM json_each(?))", (_encode(gone),))
    return [settlements[i] for i in gone]
