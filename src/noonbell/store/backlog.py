"""How much is waiting in a store: the verb behind the gauges of a service, with one small class for each store.

It is a look at indexes, bounded by MOST_COUNTED: nobody needs to know whether a hundred thousand or a million are
waiting, and a question about the load must not add to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from noonbell.store.memory_tables import MemoryData

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


class BacklogStore(Protocol):
    async def backlog(self, now: int) -> dict[str, int]:
        """How many schedules are `due` by now, and how many live runs are `queued`, `running` and `waiting`.

        `outbox`: how many messages wait to be delivered; `outbox_oldest_us`: how old the first of them is; and how many
        `dead_letters` there are.
        """
        ...


def _of_outbox(row: Sequence[Any], now: int) -> dict[str, int]:
    waiting, oldest, dead = row
    return {"outbox": waiting, "outbox_oldest_us": 0 if oldest is None else max(now - oldest, 0), "dead_letters": dead}


class BacklogInMemory:
    _tables: Callable[[], MemoryData]

    async def backlog(self, now: int) -> dict[str, int]:
        data = self._tables()
        rows = (row for row in data.schedules.values() if row["enabled"] == 1 and row["next_run_at"] is not None)
        states = Counter(str(live.state) for lives in data.live.values() for live in lives.values())
        messages = sorted((number, one.created_at) for kept in data.outbox.values() for number, one in kept.items())
        outbox = (len(messages), messages[0][1] if messages else None, len(data.dead_letters))
        return {"due": sum(row["next_run_at"] <= now for row in rows), **states, **_of_outbox(outbox, now)}


class BacklogOnSqlite:
    _connection: Any

    async def backlog(self, now: int) -> dict[str, int]:
        def count(db: Any) -> dict[str, int]:
            ((due,),) = db.execute(DUE_SQL.format(now="?"), (now,))
            (outbox,) = db.execute(OUTBOX_SQL)
            return {"due": due, **dict(db.execute(LIVE_SQL.format(runs="live_runs"))), **_of_outbox(outbox, now)}

        counted: dict[str, int] = await self._connection.run(count, write=False)
        return counted


class BacklogOnPostgres:
    _connections: Any

    async def backlog(self, now: int) -> dict[str, int]:
        async with self._connections.reading() as db:
            due = await db.fetchval(DUE_SQL.format(now="$1"), now)
            outbox = await db.fetchrow(OUTBOX_SQL)
            return {"due": due, **dict(await db.fetch(LIVE_SQL.format(runs="live_runs"))), **_of_outbox(outbox, now)}
