"""APScheduler 3 on the same burst, in memory or with its SQLAlchemy store on SQLite.

    python -m benchmarks.engine_parts.apscheduler_party memory|sqlalchemy TASKS FOLDER SECONDS

AsyncIOScheduler, so that it shares the event loop with the busy work, and cron triggers of the same five expressions.
The jobs are added to a paused scheduler with a first run that is already due and no limit to lateness; the due moment
is `resume`. Adding and firing are each stopped after SECONDS. What does not get added is not waited for.

It hands out a whole burst before its event loop gets to run anything. So where it is stopped during a burst, the runs
that it had handed out and noted in its store are counted, which favours it: few or none of them had started.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger

from benchmarks.engine_parts.conditions import EXPRESSIONS, BusyLoop, Fired, report, resident_bytes, stop_after

_fired: Fired | None = None
_noted = 0


class CountingMemoryStore(MemoryJobStore):  # type: ignore[misc]  # untyped where mypy runs
    """Counts the runs that it was told of."""

    def update_job(self, job: Any) -> None:
        super().update_job(job)
        note()


class CountingSqlStore(SQLAlchemyJobStore):  # type: ignore[misc]  # as above
    """Likewise."""

    def update_job(self, job: Any) -> None:
        super().update_job(job)
        note()


def note() -> None:
    global _noted  # noqa: PLW0603 - one burst for each process
    _noted += 1


async def fire() -> None:
    """What each job runs; a function of a module, since a stored job keeps its function by name."""
    assert _fired is not None
    await _fired.fire()


async def measure(kind: str, tasks: int, folder: Path, limit: float) -> dict[str, Any]:
    global _fired  # noqa: PLW0603 - as above
    store = CountingMemoryStore() if kind == "memory" else CountingSqlStore(url=f"sqlite:///{folder / 'bench.db'}")
    scheduler = AsyncIOScheduler(jobstores={"default": store}, timezone=UTC)
    busy = BusyLoop()
    before = resident_bytes()
    async with busy.running():
        began = time.perf_counter()
        scheduler.start(paused=True)
        added = await add_jobs(scheduler, tasks, began + limit)
        initialized = time.perf_counter() - began
        memory = resident_bytes() - before
        _fired = fired = Fired(added)
        result: dict[str, Any] = {"added": added, "initialize_seconds": initialized, "memory_bytes": memory}
        await asyncio.sleep(0.05)
        busy.longest_stall_seconds = 0.0
        due = time.perf_counter()

        def managed() -> dict[str, Any]:
            spent = time.perf_counter() - due
            return result | {
                "stopped": True,
                "started": fired.count,
                "started_seconds": spent,
                "recorded": _noted,
                "recorded_seconds": spent,
                "stall_seconds": spent,
                "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before,
            }

        spared = stop_after(limit, managed)
        scheduler.resume()
        await fired.all.wait()
        spared.set()
        assert fired.last_at is not None
        await asyncio.sleep(0.01)  # the stall is known once the busy work has had its turn
    assert _noted == added
    result |= managed()
    result |= {
        "stopped": added < tasks,
        "started_seconds": fired.last_at - due,
        "recorded_seconds": fired.last_at - due,  # noted before they start
        "stall_seconds": busy.longest_stall_seconds,
    }
    scheduler.shutdown(wait=False)
    return result


async def add_jobs(scheduler: AsyncIOScheduler, tasks: int, until: float) -> int:
    """Add the jobs, as many as there is time for; returns how many."""
    triggers = [CronTrigger.from_crontab(text, timezone=UTC) for text in EXPRESSIONS]
    due = datetime.now(UTC) - timedelta(seconds=1)
    for i in range(tasks):
        scheduler.add_job(
            fire, triggers[i % len(triggers)], id=f"task-{i}", next_run_time=due, misfire_grace_time=None, coalesce=True
        )
        if i % 100 == 99:
            await asyncio.sleep(0)
            if time.perf_counter() > until:
                return i + 1
    return tasks


if __name__ == "__main__":
    report(asyncio.run(measure(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]))))
