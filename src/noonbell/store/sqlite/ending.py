"""Runs that end on SQLite without anybody settling them, and the history that every ended run joins.

The history of a schedule is a chain. Its state names the run that ended last, and each ended run names the one that
ended before it, so that the latest runs of a schedule are found one by one, by primary key, however large `runs` is.
The state counts the ended runs too: it still knows of those that were pruned. What adds to `runs` brings both up to
date in the same transaction: here, in `settling` and in `turns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import apsw
import msgspec

from noonbell.core.records import LiveRun
from noonbell.store.sqlite import slots
from noonbell.store.sqlite.numbers import number, number_sql, owner_number_sql
from noonbell.store.words import CAUSES, KINDS, OUTCOMES

_encode = msgspec.json.Encoder().encode

RUN: Final = "run_for, sid, kind, outcome, attempts, started_at, ended_at, owner, epoch, prev_for, prev_manual"

# An attempt that was cut off, of a live run `l`; when it began and ended, who made it and why it ended are added.
CUT_ATTEMPT: Final = f"""
    attempts (sid, run_for, kind, attempt, outcome, cause, started_at, ended_at, owner, error)
    SELECT l.sid, l.run_for, {number_sql(KINDS, "l.kind")}, l.attempt, {OUTCOMES.index("unknown")},
        {number_sql(CAUSES, "l.cause")}"""

LAST_OWNER: Final = owner_number_sql("coalesce(l.owner, '')")

_FAILED: Final = OUTCOMES.index("failed")
_LEFT: Final = OUTCOMES.index("abandoned")
_OF_SIDS: Final = "l.sid IN (SELECT value FROM json_each(?1))"
_OF_KEYS: Final = "(l.sid, l.kind, l.run_for) IN (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))"

# Those of one schedule that end together follow each other in the order of what they are for.
_END: Final = f"""
    INSERT INTO runs ({RUN})
    SELECT l.run_for, l.sid, {number_sql(KINDS, "l.kind")}, coalesce(?3, iif(l.state = 'waiting', {_FAILED}, {_LEFT})),
        l.attempt, coalesce(l.started_at, ?2), ?2, {LAST_OWNER}, l.epoch,
        iif(row_number() OVER w = 1, s.last_ended_for, lag(l.run_for) OVER w),
        coalesce(iif(row_number() OVER w = 1, s.last_ended_manual, lag(l.kind = 'manual') OVER w), 0)
    FROM runs_live l LEFT JOIN schedule_state s ON s.sid = l.sid WHERE {{chosen}}
    WINDOW w AS (PARTITION BY l.sid ORDER BY l.run_for, l.kind)
"""
_JOIN: Final = """
    UPDATE schedule_state SET last_ended_for = b.run_for, last_ended_manual = b.manual, ended_runs = ended_runs + b.n
    FROM (
        SELECT sid, run_for, kind = 'manual' AS manual, row_number() OVER w AS place,
            count(*) OVER (PARTITION BY sid) AS n
        FROM runs_live l WHERE {chosen} WINDOW w AS (PARTITION BY sid ORDER BY run_for DESC, kind DESC)
    ) b WHERE schedule_state.sid = b.sid AND b.place = 1
"""


def end_all_of(db: apsw.Connection, sids: Sequence[int], at: int) -> None:
    """End the live runs of removed schedules: what waits for a retry has failed, the rest is abandoned."""
    if sids:
        slots.spill(db, sids)
        _end(db, _OF_SIDS, _encode(sids).decode(), None, at)


def end_live(db: apsw.Connection, ended: Sequence[LiveRun], outcome: str, at: int) -> None:
    """Move live runs that will not go on to the ended ones."""
    end_keys(db, [(live.sid, live.kind, live.run_for) for live in ended], outcome, at)


def end_keys(db: apsw.Connection, keys: Sequence[tuple[Any, ...]], outcome: str, at: int) -> None:
    """The same by keys: rows that begin with sid, kind and run_for."""
    slots.spill(db, [key[0] for key in keys])
    _end(db, _OF_KEYS, _encode(keys).decode(), outcome, at)


def _end(db: apsw.Connection, chosen: str, keys: str, outcome: str | None, at: int) -> None:
    db.execute(_END.format(chosen=chosen), (keys, at, None if outcome is None else number(OUTCOMES, outcome)))
    db.execute(_JOIN.format(chosen=chosen), (keys,))
    db.execute(f"DELETE FROM runs_live AS l WHERE {chosen}", (keys,))
