"""The run in flight on PostgreSQL, which is kept in the row of its schedule.

A claim puts a fresh start of a scheduled run into the slot with the same UPDATE that advances the schedule, and a
settle empties it with the UPDATE that records the end: a fire inserts one row, its ended run, and deletes none. The
slot holds exactly one kind of live run: scheduled, fence 1, executing its first attempt, no crash. What does not
fit is a row of `runs_live`: a second run of a schedule, a run that waits or is queued, a restart, a manual run.

Callers cannot see where a run is kept. Readers use the view `live_runs`. A verb that changes a live run, other than to
end it as its engine reports, calls `spill` first: the run moves to `runs_live`, and the verb works on that table alone.

A transaction that adds a run to `runs_live` also writes the row of its schedule, if only with the values that it has
(`touch`). So if a settle finds that row as its snapshot shows it, the snapshot also shows what waits behind the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noonbell.core.records import LiveRun, Start
from noonbell.store.postgres import live_rows
from noonbell.store.postgres.connection import Connection
from noonbell.store.postgres.numbers import word_sql
from noonbell.store.words import CAUSES

EMPTY: Final = "slot_for = NULL, slot_at = NULL, slot_owner = NULL, slot_epoch = NULL, slot_cause = NULL"

_SPILL: Final = f"""
    WITH taken AS MATERIALIZED (
        SELECT s.sid, s.slot_for, s.slot_at, s.slot_owner, s.slot_epoch, s.slot_cause FROM schedule_state s
        WHERE s.sid = ANY($1::int8[]) AND s.slot_for IS NOT NULL ORDER BY s.sid FOR UPDATE
    ), moved AS (
        INSERT INTO runs_live ({live_rows.COLUMNS})
        SELECT sid, 'scheduled', slot_for, 1, (SELECT o.instance FROM owners o WHERE o.no = slot_owner), 'running', 1,
            NULL, slot_at, slot_at, 0, slot_epoch, {word_sql(CAUSES, "slot_cause")}
        FROM taken
    )
    UPDATE schedule_state s SET {EMPTY} FROM taken t WHERE s.sid = t.sid
"""
# No index leads from an owner to its runs: every schedule is looked at. Rare verbs do this, and none that polls.
SCANNING: Final = "SET LOCAL enable_seqscan = on"
NOT_SCANNING: Final = "SET LOCAL enable_seqscan = off"
_OWNED: Final = f"""
    SELECT {live_rows.COLUMNS} FROM live_runs WHERE state = 'running' AND owner = $1 ORDER BY sid, kind, run_for
"""
_TOUCH: Final = "UPDATE schedule_state SET epoch = epoch WHERE sid = $1"


def fits(start: Start) -> bool:
    """Return whether a slot can hold the run of this attempt, if it holds no other."""
    return start.fence == 1 and start.kind == "scheduled" and start.attempt == 1


async def spill(db: Connection, sids: Sequence[int]) -> None:
    """Move the runs in the slots of these schedules to `runs_live`; the rows of the schedules are locked for it."""
    if sids:
        await db.execute(_SPILL, sorted(set(sids)))


async def owned(db: Connection, owner: str) -> list[LiveRun]:
    """Return the runs that an engine executes, wherever they are kept."""
    await db.execute(SCANNING)
    rows = await db.fetch(_OWNED, owner)
    await db.execute(NOT_SCANNING)
    return [LiveRun(*row) for row in rows]


async def touch(db: Connection, sid: int) -> None:
    """Write the row of a schedule as it is: what is added to `runs_live` beside it is noticed by a settle under way."""
    await db.execute(_TOUCH, sid)
