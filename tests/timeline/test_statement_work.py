"""How much PostgreSQL does for popped schedules: it depends on how many were popped, not on how many there are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from noonbell.ports import ScheduleChange
from noonbell.store.postgres import PostgresStore, claim_schedules
from noonbell.testing.storage_cases.base import MINUTE, T0
from tests.store.postgres_server import PostgresServer
from tests.timeline.test_statements import schedule

SCHEDULES = 3_000
POPPED = 60


def rows_read(plan: dict[str, Any]) -> Iterator[float]:
    """Rows that each step of a plan has gone through, those that it threw away included."""
    loops = plan["Actual Loops"]
    removed = sum(count for name, count in plan.items() if name.startswith("Rows Removed by"))
    yield (plan["Actual Rows"] + removed) * loops
    for step in plan.get("Plans", ()):
        yield from rows_read(step)


@pytest.mark.parametrize("waiting", [0, POPPED])
@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_no_step_goes_through_all_schedules(postgres: PostgresServer, waiting: int, *, analyzed: bool) -> None:
    store = PostgresStore(await postgres.new_ledger())
    await store.open()
    await store.schedules.apply(ScheduleChange([schedule(f"s{i}") for i in range(SCHEDULES)], T0, "me"))
    try:
        found = await work_of_each(store, waiting, analyzed=analyzed)
    finally:
        await store.close()
    assert {name: rows for name, rows in found.items() if rows > 2 * POPPED} == {}


async def work_of_each(store: PostgresStore, waiting: int, *, analyzed: bool) -> dict[str, float]:
    """The rows of the busiest step of each statement, where so many of the popped have a run that waits."""
    popped = list(range(1, POPPED + 1))
    asked: dict[str, tuple[Any, ...]] = {
        "_DUE_AMONG": (T0 + MINUTE, "default", 4096, popped),
        "_WAITING_AMONG": (T0 + MINUTE, popped),
        "_WOKEN_AMONG": (T0 + MINUTE, "default", 4096, popped),
    }
    async with store._connections.writing() as db:
        await db.execute(
            "INSERT INTO runs_live (sid, kind, run_for, fence, state, attempt, wake_at, epoch, cause) "
            "SELECT sid, 'scheduled', $1, 1, 'waiting', 1, $1, 1, 'retry' FROM generate_series(1, $2::int8) AS g (sid)",
            T0, waiting,
        )  # fmt: skip
        if analyzed:
            await db.execute("ANALYZE schedule_state, schedule_definitions, runs_live")
        found = {}
        for name, arguments in asked.items():
            sql = getattr(claim_schedules, name)
            ((told,),) = await db.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *arguments)
            found[name] = max(rows_read(json.loads(told)[0]["Plan"]))
    return found
