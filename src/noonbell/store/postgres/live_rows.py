"""Live runs by key on PostgreSQL, whatever the statistics say of their table.

`runs_live` is empty at rest and full in a burst. Statistics that were taken at rest say that it has no rows, and a join
that is planned by them goes through the whole batch for each live run: 17 million rows for 4,096 ends. So no statement
joins it. Rows are looked up one by one by the index (OFFSET 0 keeps the planner from another way), then changed by
their place in the table or, where each gets values of its own, by INSERT ... ON CONFLICT.

A place is valid only while no other transaction changes the row: the caller has locked the schedules.
"""

from __future__ import annotations

from typing import Final

# as LiveRun has them
COLUMNS: Final = (
    "sid, kind, run_for, fence, owner, state, attempt, wake_at, started_at, attempt_at, crashes, epoch, cause"
)
# The live runs `l` of a batch `b`, each with its place.
OF_BATCH: Final = """
    CROSS JOIN LATERAL (
        SELECT t.ctid AS tid, t.* FROM runs_live t
        WHERE t.sid = b.sid AND t.kind = b.kind AND t.run_for = b.run_for OFFSET 0
    ) l
"""
KEYS: Final = "unnest($1::int8[], $2::text[], $3::int8[]) AS b (sid, kind, run_for)"
# Start again: sids, kinds, run_fors, fences, attempts, causes, the owner, the instant.
START_AGAIN: Final = f"""
    INSERT INTO runs_live AS l (sid, kind, run_for, fence, state, attempt, epoch, cause)
    SELECT b.sid, b.kind, b.run_for, b.fence, 'running', b.attempt, l.epoch, b.cause
    FROM unnest($1::int8[], $2::text[], $3::int8[], $4::int8[], $5::int8[], $6::text[])
        AS b (sid, kind, run_for, fence, attempt, cause) {OF_BATCH}
    ON CONFLICT (sid, kind, run_for) DO UPDATE SET fence = excluded.fence, owner = $7, state = 'running',
        attempt = excluded.attempt, wake_at = NULL, started_at = coalesce(l.started_at, $8), attempt_at = $8,
        cause = excluded.cause
"""
# Put off: sids, kinds, run_fors, wake-ups.
PUT_OFF: Final = f"""
    INSERT INTO runs_live AS l (sid, kind, run_for, fence, state, attempt, epoch, cause, wake_at)
    SELECT b.sid, b.kind, b.run_for, l.fence, l.state, l.attempt, l.epoch, l.cause, b.wake_at
    FROM unnest($1::int8[], $2::text[], $3::int8[], $4::int8[]) AS b (sid, kind, run_for, wake_at) {OF_BATCH}
    ON CONFLICT (sid, kind, run_for) DO UPDATE SET wake_at = excluded.wake_at
"""


def among(tids: str) -> str:
    """Return the condition that a row of `runs_live l` is at one of the places that a query yields."""
    return f"l.ctid = ANY(ARRAY({tids}))"
