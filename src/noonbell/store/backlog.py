"""Count what is waiting in a store, for the gauges of a service.

It reads indexes, at most MOST_COUNTED entries of each: whether a hundred thousand or a million are waiting does not
matter, and a question about the load must not add to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

MOST_COUNTED: Final = 100_000
DUE_SQL: Final = (
    "SELECT count(*) FROM (SELECT 1 FROM lane_numbers n CROSS JOIN schedule_state s "
    "WHERE s.lane_no = n.no AND s.enabled = 1 AND s.next_run_at <= {now} "
    f"LIMIT {MOST_COUNTED}) AS due"
)
LIVE_SQL: Final = (
    f"SELECT state, count(*) FROM (SELECT state FROM {{runs}} LIMIT {MOST_COUNTED}) AS live GROUP BY state"
)
OUTBOX_SQL: Final = (
    f"SELECT (SELECT count(*) FROM (SELECT 1 FROM outbox LIMIT {MOST_COUNTED}) AS o), "
    "(SELECT created_at FROM outbox ORDER BY id LIMIT 1), "
    f"(SELECT count(*) FROM (SELECT 1 FROM dead_letters LIMIT {MOST_COUNTED}) AS d)"
)


def _of_outbox(row: Sequence[Any], now: int) -> dict[str, int]:
    waiting, oldest, dead = row
    return {"outbox": waiting, "outbox_oldest_us": 0 if oldest is None else max(now - oldest, 0), "dead_letters": dead}


def count_on_sqlite(db: Any, now: int) -> dict[str, int]:
    ((due,),) = db.execute(DUE_SQL.format(now="?"), (now,))
    (outbox,) = db.execute(OUTBOX_SQL)
    return {"due": due, **dict(db.execute(LIVE_SQL.format(runs="live_runs"))), **_of_outbox(outbox, now)}


async def count_on_postgres(db: Any, now: int) -> dict[str, int]:
    due = await db.fetchval(DUE_SQL.format(now="$1"), now)
    outbox = await db.fetchrow(OUTBOX_SQL)
    return {"due": due, **dict(await db.fetch(LIVE_SQL.format(runs="live_runs"))), **_of_outbox(outbox, now)}
