"""Settling on SQLite: ends of attempts become history, in one transaction.

Most ends are those of runs in the slots of their schedules, and are recorded straight from there: see `slot_ends`. The
rest is spilled into `runs_live`, put into a temporary table and joined with the live runs by key, fence and owner; what
does not match is stale and changes nothing. A schedule has one end in a batch; a further one comes in a batch of its
own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import apsw
import msgspec

from noonbell.core.attempts import FIRST_KEPT, upto_omitted
from noonbell.core.records import Settlement
from noonbell.ports import Settled
from noonbell.store.sqlite import ending, outbox, rows, slot_ends, slots
from noonbell.store.sqlite.numbers import number, number_sql, owner_numbers
from noonbell.store.words import CAUSES, KINDS, OUTCOMES

_encode = msgspec.json.Encoder().encode

_FILL = """
    INSERT INTO temp.settling (
        sid, run_for, fence, ended_at, following, epoch, kind, outcome, attempt, owner, wake_at, attempt_at, waited_us,
        owner_no
    )
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
        value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13
    FROM json_each(?1)
"""
_ATTEMPTS = "attempts (sid, run_for, kind, attempt, outcome, cause, started_at, ended_at, owner, error, detail)"
_SHORT = (
    "SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, "
    "value ->> 8, value ->> 9, NULL FROM json_each(?) WHERE true"
)
_OVERWRITE = (
    "ON CONFLICT (sid, run_for, kind, attempt) DO UPDATE SET outcome = excluded.outcome, cause = excluded.cause, "
    "started_at = excluded.started_at, ended_at = excluded.ended_at, owner = excluded.owner, error = excluded.error, "
    "detail = excluded.detail"
)
# The wait of the first attempt; of a run that had several, as its record says.
_WAITED = f"""
    iif(b.attempt = 1, coalesce(b.waited_us, 0), coalesce(max((
        SELECT a.started_at FROM attempts a
        WHERE a.sid = b.sid AND a.run_for = b.run_for AND a.kind = {number_sql(KINDS, "b.kind")} AND a.attempt = 1
    ) - coalesce(l.started_at, b.attempt_at), 0), 0))
"""
_OMIT = "DELETE FROM attempts WHERE (sid, run_for, kind) = (?, ?, ?) AND attempt > ? AND attempt <= ?"
_CLEARS = """
    SELECT EXISTS (SELECT 1 FROM live_runs WHERE (sid, kind, run_for, fence, owner) = (?, ?, ?, ?, ?))
        AND EXISTS (
            SELECT 1 FROM runs_live WHERE (sid, kind, run_for, fence) = (?, ?, ?, ?) AND state = 'waiting'
        )
"""
_FRESH = """
    FROM temp.settling b JOIN runs_live l
    ON l.sid = b.sid AND l.kind = b.kind AND l.run_for = b.run_for AND l.fence = b.fence AND l.owner = b.owner
"""
# A wake-up that has come during the run was taken away, and comes back with the end. An edit during the run has opened
# another epoch: what follows then is for a look to say, and at once. It is written only where there is one to bring
# back: the index of wake-ups changes with it.
_WAKE_UP = """
    next_run_at = iif(schedule_state.epoch <> b.epoch, cursor_at, coalesce(schedule_state.next_run_at, b.following)),
"""
# What wakes otherwise than before: by that, through a run that has waited for this end, or for another attempt. By key:
# the plus signs keep the index of wake-ups out of it.
_WOKEN = f"""
    SELECT b.sid, b.wake_at,
        iif(s.enabled = 1, iif(s.epoch <> b.epoch, s.cursor_at, coalesce(s.next_run_at, b.following)), NULL),
        (SELECT min(+w.wake_at) FROM runs_live w WHERE w.sid = b.sid AND +w.state <> 'running') AS behind_at
    {_FRESH} LEFT JOIN schedule_state s ON s.sid = b.sid
    WHERE s.next_run_at IS NULL OR s.epoch <> b.epoch OR b.wake_at IS NOT NULL OR behind_at IS NOT NULL
"""


def settle(db: apsw.Connection, settlements: Sequence[Settlement]) -> Settled:
    """Write the ends together; if the ledger contradicts one of them, singly, in a new transaction.

    The many have no savepoint around them: it would keep a copy of every page. Nothing was done here before them.
    """
    woken: dict[int, int] = {}
    try:
        late = {id(s) for part in _apart(settlements) for s in _settle(db, part, woken)}
    except apsw.ConstraintError:
        db.execute("ROLLBACK")
        db.execute("BEGIN IMMEDIATE")
        woken.clear()
        return Settled([stale for s in settlements for stale in _settle_alone(db, s, woken)], woken)
    return Settled([s for s in settlements if id(s) in late] if late else [], woken)


def _settle_alone(db: apsw.Connection, settlement: Settlement, woken: dict[int, int]) -> list[Settlement]:
    stale: list[Settlement] = []
    try:
        with db:  # a savepoint
            stale = _settle(db, [settlement], woken)
    except apsw.ConstraintError:
        return _give_up(db, settlement)
    return stale


def _apart(settlements: Sequence[Settlement]) -> Iterator[Sequence[Settlement]]:
    """The batch in parts that touch no schedule twice: almost always one part.

    The ends of two runs of one schedule (its own and a manual one) come one after the other, in their order.
    """
    rest = settlements
    while rest:
        part: dict[int, Settlement] = {}
        left = [s for s in rest if part.setdefault(s.start.sid, s) is not s]
        yield list(part.values()) if left else rest
        rest = left


def _give_up(db: apsw.Connection, settlement: Settlement) -> list[Settlement]:
    """The run is on record already, which no right course of things can bring about: let its schedule go on."""
    start = settlement.start
    key = (start.sid, start.kind, start.run_for, start.fence, settlement.owner)
    slots.spill(db, [start.sid])
    db.execute("DELETE FROM runs_live WHERE (sid, kind, run_for, fence, owner) = (?, ?, ?, ?, ?)", key)
    db.execute("UPDATE schedule_state SET next_run_at = cursor_at WHERE sid = ?", (start.sid,))
    return [settlement]


def _settle(db: apsw.Connection, settlements: Sequence[Settlement], woken: dict[int, int]) -> list[Settlement]:
    _clear_retries(db, settlements)
    owners = owner_numbers(db, {s.owner for s in settlements})
    left = slot_ends.settle(db, settlements, owners)
    stale = _settle_live(db, left, owners, woken) if left else []
    recorded = settlements
    if stale:
        left_out = {id(s) for s in stale}
        recorded = [s for s in settlements if id(s) not in left_out]
    _write_attempts(db, recorded, owners)
    _send(db, recorded)
    return stale


def _settle_live(
    db: apsw.Connection, settlements: Sequence[Settlement], owners: dict[str, int], woken: dict[int, int]
) -> list[Settlement]:
    """Settle what is in `runs_live`, or is put there now."""
    slots.spill(db, [s.start.sid for s in settlements])
    _fill(db, settlements, owners)
    stale, brings_back = _drop_stale(db, settlements, woken)
    db.execute(
        f"INSERT INTO runs ({ending.RUN}, waited_us) SELECT b.run_for, b.sid, {number_sql(KINDS, 'b.kind')}, "
        f"{number_sql(OUTCOMES, 'b.outcome')}, b.attempt, "
        "coalesce(l.started_at, b.attempt_at), b.ended_at, b.owner_no, l.epoch, s.last_ended_for, "
        f"coalesce(s.last_ended_manual, 0), {_WAITED} {_FRESH} LEFT JOIN schedule_state s ON s.sid = b.sid "
        "WHERE b.wake_at IS NULL"
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
    db.execute(
        f"UPDATE schedule_state SET {_WAKE_UP if brings_back else ''} "
        "last_success_at = iif(b.outcome = 'succeeded', b.ended_at, last_success_at), "
        "last_failure_at = iif(b.outcome = 'succeeded', last_failure_at, b.ended_at), "
        "last_ended_for = iif(b.wake_at IS NULL, b.run_for, last_ended_for), "
        "last_ended_manual = iif(b.wake_at IS NULL, b.kind = 'manual', last_ended_manual), "
        "ended_runs = ended_runs + (b.wake_at IS NULL), "
        "succeeded_runs = succeeded_runs + (b.wake_at IS NULL AND b.outcome = 'succeeded') "
        "FROM temp.settling b WHERE schedule_state.sid = b.sid"
    )
    return stale


def _clear_retries(db: apsw.Connection, settlements: Sequence[Settlement]) -> None:
    """End the runs whose retries these ends make needless, before them: the history goes on from there."""
    for s in settlements:
        if (cleared := s.cleared) is not None:
            mine = (s.start.sid, s.start.kind, s.start.run_for, s.start.fence, s.owner)
            waiting = (cleared.sid, cleared.kind, cleared.run_for, cleared.fence)
            if db.execute(_CLEARS, (*mine, *waiting)).get:
                ending.end_live(db, [cleared], "failed", s.ended_at)


def _is_plain(s: Settlement) -> bool:
    """Return whether the run's row says all of a single successful attempt; only the others are kept as attempts."""
    return s.outcome == "succeeded" and s.start.attempt == 1 and s.detail is None


def _write_attempts(db: apsw.Connection, settlements: Sequence[Settlement], owners: dict[str, int]) -> None:
    attempts = [
        (
            s.start.sid, s.start.run_for, number(KINDS, s.start.kind), s.start.attempt, number(OUTCOMES, s.outcome),
            number(CAUSES, s.start.cause), s.start.started_at, s.ended_at, owners[s.owner], s.error, s.detail,
        )
        for s in settlements
        if not _is_plain(s)
    ]  # fmt: skip
    short = [row for row in attempts if row[-1] is None]
    if short:
        db.execute(f"INSERT INTO {_ATTEMPTS} {_SHORT} {_OVERWRITE}", (_encode(short),))
    if len(short) < len(attempts):  # bytes do not fit into JSON, and a detail may be a megabyte
        rows.insert(db, _ATTEMPTS, [row for row in attempts if row[-1] is not None], _OVERWRITE)
    for sid, run_for, kind, attempt, *_ in attempts:
        if (upto := upto_omitted(attempt)) > FIRST_KEPT:
            db.execute(_OMIT, (sid, run_for, kind, FIRST_KEPT, upto))


def _send(db: apsw.Connection, settlements: Sequence[Settlement]) -> None:
    """Put the messages of ended runs into the outbox, those of each instant together."""
    sent = [s for s in settlements if s.messages]
    for at in dict.fromkeys(s.ended_at for s in sent):
        outbox.append(db, [message for s in sent if s.ended_at == at for message in s.messages], at)


def _fill(db: apsw.Connection, settlements: Sequence[Settlement], owners: dict[str, int]) -> None:
    full = [
        (
            start.sid, start.run_for, start.fence, s.ended_at, start.following, start.epoch, start.kind, s.outcome,
            start.attempt, s.owner, s.wake_at, start.started_at, start.waited_us, owners[s.owner],
        )
        for s in settlements
        for start in (s.start,)
    ]  # fmt: skip
    db.execute("DELETE FROM temp.settling")
    db.execute(_FILL, (_encode(full),))


def _drop_stale(
    db: apsw.Connection, settlements: Sequence[Settlement], woken: dict[int, int]
) -> tuple[list[Settlement], bool]:
    """Return the settlements that match no live run, and whether an end among the others brings a wake-up back.

    What wakes through those others is added to `woken`.
    """
    matched, brings_back, waiting = db.execute(
        "SELECT count(*), coalesce(sum(s.next_run_at IS NULL OR s.epoch <> b.epoch), 0) > 0, coalesce(sum("
        "b.wake_at IS NOT NULL OR EXISTS (SELECT 1 FROM runs_live w WHERE w.sid = b.sid AND +w.state <> 'running')"
        f"), 0) > 0 {_FRESH} LEFT JOIN schedule_state s ON s.sid = b.sid"
    ).get
    if brings_back or waiting:
        for sid, *times in db.execute(_WOKEN):
            if known := [at for at in times if isinstance(at, int)]:
                woken[sid] = min(known)
    if matched == len(settlements):
        return [], bool(brings_back)
    fresh = set(db.execute(f"SELECT b.sid, b.kind, b.run_for, b.fence, b.owner {_FRESH}"))
    db.execute(f"DELETE FROM temp.settling WHERE i NOT IN (SELECT b.i {_FRESH})")
    stale = [
        s for s in settlements if (s.start.sid, s.start.kind, s.start.run_for, s.start.fence, s.owner) not in fresh
    ]
    return stale, bool(brings_back)
