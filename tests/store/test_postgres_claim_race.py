"""A live run changes after a claim has read it and before the claim has locked its schedule.

One statement does both: it finds by its snapshot which live runs are due, and locks their schedules as they are by
then. The test stops that statement in between. The name of the lane is looked up in a view that waits for a lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import asyncpg

from noonbell.core.records import Settlement, Start, StoredSchedule, Turn
from noonbell.core.turns import look
from noonbell.ports import ScheduleChange
from noonbell.schedules import changes
from noonbell.store.postgres import PostgresStore
from noonbell.testing.storage_cases.base import MINUTE, SECOND, T0
from noonbell.testing.storage_cases.engines import LANE, A, B, C, claim, schedule
from tests.patience import until
from tests.store.test_postgres_rescue import somebody_waits

RETRY_AT = T0 + MINUTE + SECOND
NOW = RETRY_AT + SECOND
_GATE = """
    CREATE TABLE gate AS SELECT true AS closed;
    CREATE FUNCTION passes() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
        IF current_query() LIKE '%FROM runs_live l CROSS JOIN LATERAL%' AND (SELECT closed FROM gate) THEN
            PERFORM pg_advisory_xact_lock(1);
        END IF;
        RETURN true;
    END $$;
    ALTER TABLE lane_numbers RENAME TO all_lane_numbers;
    CREATE VIEW lane_numbers AS SELECT * FROM all_lane_numbers WHERE passes();
"""


async def test_a_claim_decides_by_what_it_reads_under_the_lock(dsn: str, store: PostgresStore) -> None:
    names = ["started", "put off", "behind a manual run", "ended", "deleted", "due"]
    await store.schedules.apply(ScheduleChange([schedule(name) for name in names], T0, "suite"))
    failed = await claim(store, A, T0 + MINUTE, 10)
    await store.runs.settle([Settlement(start, A, "failed", T0 + MINUTE, RETRY_AT) for start in failed])
    decided: list[tuple[str, list[tuple[str, int]]]] = []

    def decide(stored: StoredSchedule) -> Turn:
        decided.append((stored.schedule_id, [(live.state, live.fence) for live in stored.lives]))
        return look(stored, NOW)

    db = await asyncpg.connect(dsn)
    await db.execute(_GATE)
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock(1)")
        claiming = asyncio.create_task(store.runs.claim(LANE, B, NOW, 10, decide))
        await until(lambda: somebody_waits(db))
        await by_another_engine(dsn, store)
        assert not claiming.done()
    claimed = (await claiming).claimed
    assert decided == [("behind a manual run", [("running", 2), ("waiting", 1)]), ("due", [("waiting", 1)])]
    assert [(start.sid, start.fence) for start in claimed.starts] == [(6, 2)]
    assert [(live.state, live.fence, live.owner) for live in await store.runs.live(1)] == [("running", 2, C)]
    await db.close()


async def by_another_engine(dsn: str, store: PostgresStore) -> None:
    """What becomes of the live runs, but for the last one, while the claim stands still."""
    gate = await asyncpg.connect(dsn)
    await gate.execute("UPDATE gate SET closed = false")
    await gate.close()
    assert await store.runs.ask("behind a manual run", NOW, "me", queue=True)
    starts = await claimed_among(store, [1, 2, 3, 4])
    assert [(start.sid, start.kind) for start in starts] == [
        (1, "scheduled"), (2, "scheduled"), (3, "manual"), (4, "scheduled"),
    ]  # fmt: skip
    await store.runs.settle(
        [Settlement(starts[1], C, "failed", NOW, NOW + MINUTE), Settlement(starts[3], C, "succeeded", NOW)]
    )
    await store.schedules.apply(
        ScheduleChange(edited=["deleted"], edit=lambda stored: changes.deleted(stored, NOW, "me"))
    )


async def claimed_among(store: PostgresStore, sids: Sequence[int]) -> list[Start]:
    found = await store.runs.claim(LANE, C, NOW, 10, lambda stored: look(stored, NOW), among=sids)
    return sorted(found.claimed.starts, key=lambda start: start.sid)
