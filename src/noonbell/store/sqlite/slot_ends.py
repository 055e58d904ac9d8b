"""Ends of runs that are in the slots of their schedules, on SQLite: one insert into `runs`, one update of the state.

An end is ordinary if its run is in the slot under its owner, the epoch is still that of the run, the wake-up of the
schedule is in place (or none is to come), and the schedule has nothing in `runs_live`. It then changes no wake-up.
Ordinary ends are recorded here; `settling` has the others.

In a burst the ends differ in nothing but schedule and instant. Those travel as one JSON object, {sid: ended_at}, with
the rest bound once; the others as short rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import apsw
import msgspec

from noonbell.core.records import Outcome, Settlement
from noonbell.store.sqlite import ending, slots
from noonbell.store.sqlite.numbers import number
from noonbell.store.sqlite.rows import each
from noonbell.store.words import OUTCOMES, SCHEDULED, SUCCEEDED

_encode = msgspec.json.Encoder().encode

_Shared = tuple[str, Outcome, bool]  # the owner, the outcome, and whether no wake-up is to follow
_Row = tuple[int, int, int, int]  # sid, run_for, ended_at, waited_us

# From so many on, ends that are alike are worth statements of their own.
LEAST_ALIKE: Final = 64


class _Form:
    """The statements for ends that travel in one way: to record them, to find them, to empty their slots."""

    def __init__(self, ends: str, *, sid: str, run_for: str, ended_at: str, waited_us: str) -> None:
        # CROSS JOIN: the batch drives, whatever the planner thinks of the tables
        ordinary = f"""
            FROM {ends} b CROSS JOIN schedule_state s ON s.sid = {sid}
            WHERE s.slot_for = {run_for} AND s.slot_owner = :owner AND s.epoch = s.slot_epoch
                AND (s.next_run_at IS NOT NULL OR :last)
                AND NOT (:others AND EXISTS (SELECT 1 FROM runs_live w WHERE w.sid = s.sid))
        """
        self.record = f"""
            INSERT INTO runs ({ending.RUN}, waited_us)
            SELECT s.slot_for, s.sid, {SCHEDULED}, :outcome, 1, s.slot_at, {ended_at}, s.slot_owner, s.slot_epoch,
                s.last_ended_for, s.last_ended_manual, {waited_us}
            {ordinary}
        """
        self.find = f"SELECT s.sid {ordinary}"
        self.close = f"""
            UPDATE schedule_state SET last_success_at = iif(:outcome = {SUCCEEDED}, {ended_at}, last_success_at),
                last_failure_at = iif(:outcome = {SUCCEEDED}, last_failure_at, {ended_at}),
                last_ended_for = slot_for, last_ended_manual = 0, ended_runs = ended_runs + 1,
                succeeded_runs = succeeded_runs + (:outcome = {SUCCEEDED}), {slots.EMPTY}
            FROM {ends} b WHERE schedule_state.sid = {sid}
        """


_ALIKE: Final = _Form(
    "json_each(:ends)", sid="CAST(b.key AS INTEGER)", run_for=":run_for", ended_at="b.value", waited_us="0"
)
_EACH: Final = _Form(
    each(":ends", "sid", "run_for", "ended_at", "waited_us"),
    sid="b.sid", run_for="b.run_for", ended_at="b.ended_at", waited_us="b.waited_us",
)  # fmt: skip


def settle(db: apsw.Connection, settlements: Sequence[Settlement], owners: dict[str, int]) -> list[Settlement]:
    """Record the ordinary ends of a batch that has no schedule twice, and return the others."""
    alike: dict[_Shared, dict[int, dict[int, int]]] = {}
    each: dict[_Shared, list[_Row]] = {}
    left: set[int] = set()
    for s in settlements:
        start = s.start
        shared = (s.owner, s.outcome, start.following is None)
        if start.fence != 1 or start.kind != "scheduled" or s.wake_at is not None:
            left.add(start.sid)
        elif start.waited_us:
            each.setdefault(shared, []).append((start.sid, start.run_for, s.ended_at, start.waited_us))
        else:
            alike.setdefault(shared, {}).setdefault(start.run_for, {})[start.sid] = s.ended_at
    others = len(left) < len(settlements) and slots.has_others(db)
    for shared, by_occurrence in alike.items():
        bound = _bound(shared, owners, others=others)
        for run_for, ends in by_occurrence.items():
            if len(ends) >= LEAST_ALIKE:
                left |= _record_alike(db, ends, bound | {"run_for": run_for})
            else:
                each.setdefault(shared, []).extend((sid, run_for, ended_at, 0) for sid, ended_at in ends.items())
    for shared, rows in each.items():
        left |= _record_each(db, rows, _bound(shared, owners, others=others))
    return [s for s in settlements if s.start.sid in left] if left else []


def _bound(shared: _Shared, owners: dict[str, int], *, others: bool) -> dict[str, Any]:
    owner, outcome, last = shared
    return {"owner": owners[owner], "outcome": number(OUTCOMES, outcome), "last": last, "others": others}


def _record_alike(db: apsw.Connection, ends: dict[int, int], bound: dict[str, Any]) -> set[int]:
    """Record ends of runs for one occurrence, by sid; returns the sids of those that are not ordinary."""
    ends = {sid: ends[sid] for sid in sorted(ends)}  # rows of one page of the file are written together
    bound["ends"] = _encode(ends)
    left = _record(db, _ALIKE, ends.keys(), bound)
    if left:
        bound["ends"] = _encode({sid: ended_at for sid, ended_at in ends.items() if sid not in left})
    db.execute(_ALIKE.close, bound)
    return left


def _record_each(db: apsw.Connection, rows: list[_Row], bound: dict[str, Any]) -> set[int]:
    """Record ends that differ in more."""
    rows.sort()
    bound["ends"] = _encode(rows)
    left = _record(db, _EACH, {row[0] for row in rows}, bound)
    if left:
        bound["ends"] = _encode([row for row in rows if row[0] not in left])
    db.execute(_EACH.close, bound)
    return left


def _record(db: apsw.Connection, form: _Form, sids: AbstractSet[int], bound: dict[str, Any]) -> set[int]:
    db.execute(form.record, bound)
    if db.changes() == len(sids):
        return set()
    return set(sids).difference(row[0] for row in db.execute(form.find, bound))
