"""Plans that hold on PostgreSQL: what a verb reads depends on its batch, whatever the statistics say of the tables.

A plan is made from the statistics of the moment. They may be of a table that was empty, of one at rest (no run is
live), of one that had many rows and has none now, or not there at all. In each case a batch of 4,096 is measured in
buffers and rows, not in time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import asyncpg
import pytest

from noonbell.core.records import Settlement, Start
from noonbell.ports import ScheduleChange, Settled
from noonbell.store.postgres import PostgresStore, declaring, settling, slot_ends, slots
from noonbell.store.words import OUTCOMES
from noonbell.testing.storage_cases.base import ME, MINUTE, SECOND, T0, declaration, new
from tests.store.test_postgres_durable import claim, schedule
from tests.store.test_postgres_slots import numbers

BATCH: Final = 4_096
OTHERS: Final = 40_000
# Each look is a descent of two or three index pages and a page of the table. A settle from the slot looks up the
# schedule twice, updates it, and inserts a run and, if the attempt is kept, that. Otherwise the schedule is locked,
# read and updated, and the live run is looked up, deleted and looked for once more. A claim locks the schedule by the
# index of wake-ups, reads its definition, and updates it with its indexes.
MOST_BUFFERS_A_RUN: Final = {"plain": 24, "slot": 24, "spilled": 64}
MOST_BUFFERS_A_START: Final = 40
TABLES: Final = "schedule_state, schedule_definitions, lane_numbers, runs_live, runs, attempts"
STATISTICS: Final = ("of an empty table", "at rest", "after a burst", "none")
# Of the transaction, and of those before it that the server has not counted yet.
_READ: Final = """
    SELECT relname, seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
    WHERE schemaname = current_schema()
"""
_UPDATED: Final = """
    SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables
    WHERE schemaname = current_schema() AND relname = 'schedule_state'
"""

_OTHERS: Final = """
    INSERT INTO schedule_state (sid, lane_no, next_run_at, cursor_at)
    SELECT $1 + i, 1000, $2, $2 FROM generate_series(1, $3::int8) AS g (i)
"""
_OTHER_DEFINITIONS: Final = """
    INSERT INTO schedule_definitions (sid, schedule_id, name, spec, managed_by, lane)
    SELECT $1 + i, 'other-' || i, 'other-' || i, '* * * * *', 'api', 'other' FROM generate_series(1, $2::int8) AS g (i)
"""
_BURST: Final = """
    INSERT INTO runs_live (sid, kind, run_for, fence, state, attempt, epoch, cause)
    SELECT i, 'scheduled', 0, 1, 'running', 1, 1, 'cron' FROM generate_series(1, $1::int8) AS g (i)
"""


class Explained:
    """A connection that runs each statement of a table twice: under EXPLAIN, undone, and for its answer."""

    def __init__(self, db: Any) -> None:
        self._db = db
        self.buffers = 0
        self.steps: list[tuple[float, str]] = []  # rows of each step of each plan

    async def execute(self, sql: str, *bindings: Any) -> Any:
        await self._explain(sql, bindings)
        return await self._db.execute(sql, *bindings)

    async def fetch(self, sql: str, *bindings: Any) -> list[Any]:
        await self._explain(sql, bindings)
        return list(await self._db.fetch(sql, *bindings))

    async def fetchval(self, sql: str, *bindings: Any) -> Any:
        ((value,),) = await self.fetch(sql, *bindings) or [(None,)]
        return value

    async def _explain(self, sql: str, bindings: tuple[Any, ...]) -> None:
        sql = sql.removesuffix("; COMMIT").strip()
        if not sql.startswith(("SELECT", "UPDATE", "INSERT", "WITH")):
            return
        await self._db.execute("SAVEPOINT explained")
        ((found,),) = await self._db.fetch(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {sql}", *bindings)
        await self._db.execute("ROLLBACK TO SAVEPOINT explained; RELEASE SAVEPOINT explained")
        plan = json.loads(found)[0]["Plan"]
        self.buffers += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        self.steps += steps(plan)


def steps(plan: dict[str, Any], above: str = "") -> Iterator[tuple[float, str]]:
    """Rows that each step of a plan has gone through, those that it threw away included, and where the step is."""
    removed = sum(count for name, count in plan.items() if name.startswith("Rows Removed by"))
    name = " ".join(str(plan[part]) for part in ("Node Type", "Operation", "Alias", "Subplan Name") if part in plan)
    yield (plan["Actual Rows"] + removed) * plan["Actual Loops"], f"{above}{name}"
    for step in plan.get("Plans", ()):
        yield from steps(step, f"{above}{name} / ")


async def filled(dsn: str, statistics: str) -> tuple[PostgresStore, asyncpg.Connection[asyncpg.Record]]:
    """Create the schedules that are going to fire, and many others; return the store and a connection of its own."""
    store = PostgresStore(dsn, pool_size=1)
    await store.open()
    db = await asyncpg.connect(dsn)
    if statistics == "of an empty table":
        await db.execute(f"ANALYZE {TABLES}")
    await store.schedules.apply(ScheduleChange([schedule(f"s{i}") for i in range(BATCH)], T0, "me"))
    await db.execute(_OTHERS, BATCH, T0 + 1000 * MINUTE, OTHERS)
    await db.execute(_OTHER_DEFINITIONS, BATCH, OTHERS)
    if statistics == "at rest":
        await db.execute(f"VACUUM ANALYZE {TABLES}")
    if statistics == "after a burst":  # pages without rows: whatever comes next is taken for one row
        await db.execute(_BURST, BATCH)
        await db.execute("DELETE FROM runs_live")
        await db.execute(f"ANALYZE {TABLES}")
    return store, db


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize(
    ("place", "outcome"),
    [
        ("plain", "succeeded"),
        ("slot", "succeeded"),
        ("slot", "failed"),
        ("spilled", "succeeded"),
        ("spilled", "failed"),
    ],
)
async def test_what_a_settle_reads_depends_on_its_batch_alone(
    dsn: str, statistics: str, outcome: str, place: str
) -> None:
    store, db = await filled(dsn, statistics)
    now = T0 + MINUTE
    starts = (await claim(store, now, limit=BATCH)).claimed.starts
    assert len(starts) == BATCH
    if place == "spilled":
        await slots.spill(db, [start.sid for start in starts])
    await store._session.days.prepare(now)
    await store.close()  # from here on a connection that has not planned anything yet
    await store.open()
    settle = {"plain": recorded, "slot": settling.settle_in_slots, "spilled": settling.settle}[place]
    explained = await settled(store, settle, starts, outcome, now + SECOND)
    assert explained.buffers <= MOST_BUFFERS_A_RUN[place] * BATCH, explained.buffers / BATCH
    assert [step for step in explained.steps if step[0] > 2 * BATCH] == []
    numbered = str(OUTCOMES.index(cast("Any", outcome)))
    assert await db.fetchval("SELECT count(*) FROM runs WHERE outcome::text = $1", numbered) == BATCH
    assert await db.fetchval("SELECT count(*) FROM live_runs") == 0
    await db.close()
    await store.close()


async def recorded(db: Any, ends: Sequence[Settlement], owners: Mapping[str, int]) -> Settled:
    await db.execute(slot_ends.recording(ends, owners))
    return Settled([], {})


async def settled(
    store: PostgresStore, settle: Callable[..., Awaitable[Settled]], starts: Sequence[Start], outcome: str, at: int
) -> Explained:
    error = None if outcome == "succeeded" else "no"
    ends = [Settlement(start, ME, cast("Any", outcome), at + i, None, error) for i, start in enumerate(starts)]
    async with store._connections.writing() as db:
        explained = Explained(db)
        connection: Any = explained
        assert (await settle(connection, ends, await numbers(store))).stale == []
    return explained


async def test_a_settle_touches_no_index_of_schedules(dsn: str) -> None:
    """An update that changes no indexed column and finds room in its page is a heap-only one."""
    store = PostgresStore(dsn, pool_size=1)
    await store.open()
    await store.schedules.apply(ScheduleChange([schedule(f"s{i}") for i in range(BATCH)], T0, "me"))
    hot: list[int] = []
    for minute in (1, 2, 3):
        now = T0 + minute * MINUTE
        starts = (await claim(store, now, limit=BATCH)).claimed.starts
        await store._session.days.prepare(now)
        async with store._connections.writing() as db:
            (before,) = await db.fetch(_UPDATED)
            ends = [Settlement(start, ME, "succeeded", now + SECOND) for start in starts]
            await settling.settle_in_slots(db, ends, await numbers(store))
            (after,) = await db.fetch(_UPDATED)
        assert after[0] - before[0] == BATCH
        hot.append(after[1] - before[1])
    assert min(hot) >= 0.7 * BATCH, hot
    assert hot[-1] >= 0.9 * BATCH, hot
    await store.close()


@pytest.mark.parametrize("statistics", STATISTICS)
async def test_what_a_claim_reads_depends_on_its_batch_alone(
    dsn: str, monkeypatch: pytest.MonkeyPatch, statistics: str
) -> None:
    """While as many runs are under way as it starts, and some wait.

    Definitions are read of what is due alone, and of that only those that the store has not read before.
    """
    store, db = await filled(dsn, statistics)
    await claim(store, T0 + MINUTE, limit=BATCH)
    await store.schedules.apply(ScheduleChange([schedule(f"t{i}") for i in range(BATCH)], T0, "me"))
    rows: Counter[str] = Counter()
    claiming = store._session.claiming

    @asynccontextmanager
    async def watched(*names: str) -> AsyncIterator[Any]:
        async with claiming(*names) as inside:
            rows.subtract({row[0]: row[1] for row in await inside.fetch(_READ)})
            yield inside
            rows.update({row[0]: row[1] for row in await inside.fetch(_READ)})

    monkeypatch.setattr(store._session, "claiming", watched)
    await slots.spill(db, range(1, 11))
    await db.execute("UPDATE runs_live SET state = 'waiting', owner = NULL, wake_at = $1", T0)
    claimed = (await claim(store, T0 + MINUTE + SECOND, limit=2 * BATCH, owner="another")).claimed
    assert (len(claimed.starts), claimed.quarantined) == (BATCH + 10, [])
    assert rows["schedule_definitions"] == BATCH
    assert {table: count for table, count in rows.items() if count > 3 * (BATCH + 10)} == {}
    await db.close()
    await store.close()


@pytest.mark.parametrize("statistics", STATISTICS)
async def test_the_plans_of_a_claim_go_by_the_indexes(
    dsn: str, monkeypatch: pytest.MonkeyPatch, statistics: str
) -> None:
    """On a connection that has planned nothing yet, while as many other runs are in flight."""
    store, db = await filled(dsn, statistics)
    await claim(store, T0 + MINUTE, limit=BATCH)
    await store.schedules.apply(ScheduleChange([schedule(f"t{i}") for i in range(BATCH)], T0, "me"))
    await store.close()
    await store.open()
    claiming, seen = store._session.claiming, []

    @asynccontextmanager
    async def watched(*names: str) -> AsyncIterator[Any]:
        async with claiming(*names) as inside:
            seen.append(Explained(inside))
            yield seen[-1]

    monkeypatch.setattr(store._session, "claiming", watched)
    claimed = (await claim(store, T0 + MINUTE + SECOND, limit=2 * BATCH)).claimed
    assert len(claimed.starts) == BATCH
    (explained,) = seen
    assert explained.buffers <= MOST_BUFFERS_A_START * BATCH, explained.buffers / BATCH
    assert [step for step in explained.steps if step[0] > 2 * BATCH] == []
    idle = (await claim(store, T0 + MINUTE + SECOND, limit=BATCH)).claimed
    assert (idle.looked, idle.next_wake_at) == (0, T0 + 2 * MINUTE)
    assert seen[1].buffers <= 200, "it passes over the index entries of the rows that have just fired"
    await db.close()
    await store.close()


@pytest.mark.parametrize("statistics", STATISTICS)
async def test_reading_declared_tasks_reads_no_durable_schedule(dsn: str, statistics: str) -> None:
    store, db = await filled(dsn, statistics)
    await store.schedules.declare(declaration(created=[new(f"task {number}") for number in range(10)]))
    async with store._connections.writing() as inside:
        before = {row[0]: row[1] for row in await inside.fetch(_READ)}
        for _ in range(10):  # a statement may get another plan when it has been used a few times
            assert len((await declaring.read(inside, None)).rows) == 10
        after = {row[0]: row[1] for row in await inside.fetch(_READ)}
    read = {table: after[table] - before.get(table, 0) for table in ("schedule_definitions", "schedule_state")}
    # each definition by its owner, then by its key; each state by its key, and again for the run in its slot
    assert read == {"schedule_definitions": 200, "schedule_state": 200}
    await db.close()
    await store.close()
