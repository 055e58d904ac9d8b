"""Settling on SQLite: ends of attempts become history, in one transaction.

The batch is put into a temporary table and joined with the live runs by key, fence and owner; what does not match is
stale and changes nothing. Most ends are first attempts of scheduled runs that succeeded: they travel as a few numbers,
in a burst as a single one each, the rest with all there is to tell.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from noonbell.core.records import Settlement
from noonbell.store.sqlite import outbox

_encode = msgspec.json.Encoder().encode

# From so many on, ends that are alike are worth a statement of their own.
LEAST_ALIKE = 256

# A burst: these differ in nothing but schedule and end, so they travel as one JSON object, {sid: ended_at}.
_ALIKE = """
    INSERT INTO temp.settling (sid, ended_at, run_for, fence, following, epoch, kind, outcome, attempt, owner)
    SELECT CAST(key AS INTEGER), value, ?2, ?3, ?4, ?5, 'scheduled', 'succeeded', 1, ?6
    FROM json_each(?1)
"""
_PLAIN = """
    INSERT INTO temp.settling (sid, run_for, fence, ended_at, following, epoch, kind, outcome, attempt, owner)
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
        'scheduled', 'succeeded', 1, ?2
    FROM json_each(?1)
"""
_FULL = """
    INSERT INTO temp.settling (
        sid, run_for, fence, ended_at, following, epoch, kind, outcome, attempt, owner, wake_at, cause, attempt_at,
        error, detail
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
    """Write the ends together; if the ledger contradicts one of them, singly."""
    try:
        with db:  # a savepoint
            return _settle(db, settlements)
    except apsw.ConstraintError:
        if len(settlements) == 1:
            return _give_up(db, settlements[0])
    stale: list[Settlement] = []
    for settlement in settlements:
        stale += settle(db, [settlement])
    return stale


def _give_up(db: apsw.Connection, settlement: Settlement) -> list[Settlement]:
    """The run is on record already, which no right course of things can bring about: let its schedule go on."""
    start = settlement.start
    key = (start.sid, start.kind, start.run_for, start.fence, settlement.owner)
    db.execute("DELETE FROM runs_live WHERE (sid, kind, run_for, fence, owner) = (?, ?, ?, ?, ?)", key)
    db.execute("UPDATE schedules SET next_run_at = ?2 WHERE sid = ?1", (start.sid, settlement.ended_at))
    return [settlement]


def _settle(db: apsw.Connection, settlements: Sequence[Settlement]) -> list[Settlement]:
    _fill(db, settlements)
    stale = _drop_stale(db, settlements)
    db.execute(
        "INSERT OR REPLACE INTO attempts SELECT sid, run_for, kind, attempt, outcome, cause, attempt_at, ended_at, "
        "owner, error, detail FROM temp.settling WHERE cause IS NOT NULL"
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
    _send(db, settlements, stale)
    return stale


def _send(db: apsw.Connection, settlements: Sequence[Settlement], stale: list[Settlement]) -> None:
    """Put the messages of ended runs into the outbox, those of each instant together."""
    sent = [s for s in settlements if s.message is not None]
    if sent and stale:
        left_out = {id(s) for s in stale}
        sent = [s for s in sent if id(s) not in left_out]
    for at in dict.fromkeys(s.ended_at for s in sent):
        outbox.append(db, [s.message for s in sent if s.message is not None and s.ended_at == at], at)


def _fill(db: apsw.Connection, settlements: Sequence[Settlement]) -> None:
    owner = settlements[0].owner if settlements else ""
    alike: dict[tuple[int, int, int | None, int], dict[int, int]] = {}
    full = []
    for s in settlements:
        start = s.start
        is_plain = s.outcome == "succeeded" and start.attempt == 1 and s.detail is None
        if is_plain and start.kind == "scheduled" and s.owner == owner:
            group = (start.run_for, start.fence, start.following, start.epoch)
            alike.setdefault(group, {})[start.sid] = s.ended_at
        else:
            # a single attempt that succeeded is told whole by its run; only the others are kept as attempts
            cause = None if is_plain else start.cause
            full.append(
                (
                    start.sid, start.run_for, start.fence, s.ended_at, start.following, start.epoch, start.kind,
                    s.outcome, start.attempt, s.owner, s.wake_at, cause, start.started_at, s.error,
                    s.detail,
                )
            )  # fmt: skip
    db.execute("DELETE FROM temp.settling")
    plain: list[tuple[int | None, ...]] = []
    for (run_for, fence, following, epoch), ends in alike.items():
        if len(ends) >= LEAST_ALIKE:
            db.execute(_ALIKE, (_encode(ends), run_for, fence, following, epoch, owner))
        else:
            plain.extend((sid, run_for, fence, ended_at, following, epoch) for sid, ended_at in ends.items())
    if plain:
        db.execute(_PLAIN, (_encode(plain), owner))
    if full:
        db.execute(_FULL, (_encode(full),))


def _drop_stale(db: apsw.Connection, settlements: Sequence[Settlement]) -> list[Settlement]:
    if db.execute(f"SELECT count(*) {_FRESH}").get == len(settlements):
        return []
    fresh = set(db.execute(f"SELECT b.sid, b.kind, b.run_for, b.fence, b.owner {_FRESH}"))
    db.execute(f"DELETE FROM temp.settling WHERE i NOT IN (SELECT b.i {_FRESH})")
    return [s for s in settlements if (s.start.sid, s.start.kind, s.start.run_for, s.start.fence, s.owner) not in fresh]
