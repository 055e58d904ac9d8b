"""APScheduler 3 on the same burst, in memory or with its SQLAlchemy store on SQLite.

    python -m benchmarks.engine_parts.apscheduler_party memory|sqlalchemy TASKS FOLDER SECONDS [quiet]

AsyncIOScheduler, so that it shares the event loop with the busy work, and cron triggers of the same five expressions.
The jobs are added to a paused scheduler with a first run that is already due and no limit to lateness; the due moment
is `resume`. Adding and firing are each stopped after SECONDS. What does not get added is not waited for. A run counts
when its job is noted in the store with its next time and its action has begun; the actions are empty, so it has ended
then. Where it is quiet, nothing else runs on the event loop.

It hands out a whole burst before its event loop gets to run anything. So where it is stopped during a burst, the runs
that it had handed out and noted in its store are counted, which favours it: few or none of them had started.
"""

from __future__ import annotations

import asyncio
import contextlib
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


async def measure(kind: str, tasks: int, folder: Path, limit: float, *, quiet: bool) -> dict[str, Any]:
    global _fired  # noqa: PLW0603 - as above
    store = CountingMemoryStore() if kind == "memory" else CountingSqlStore(url=f"sqlite:///{folder / 'bench.db'}")
    scheduler = AsyncIOScheduler(jobstores={"default": store}, timezone=UTC)
    busy = BusyLoop()
    before = resident_bytes()
    async with contextlib.nullcontext() if quiet else busy.running():
        began = time.perf_counter()
        scheduler.start(paused=True)
        added = await add_jobs(scheduler, tasks, began + limit)
        initialized = time.perf_counter() - began
        memory = resident_bytes() - before
        _fired = fired = Fired(added)
        result: dict[str, Any] = {"added": added, "initialize_seconds": initialized, "memory_bytes": memory}
        await asyncio.sleep(0.05)
        busy.longest_stall_seconds = 0.0
        due, cpu = time.perf_counter(), busy.others_cpu()

        def managed() -> dict[str, Any]:
            spent = time.perf_counter() - due
            return result | {
                "cpu_us": (busy.others_cpu() - cpu) / max(_noted, 1) * 1e6,
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
        managed_so_far = managed()
        await asyncio.sleep(0.01)  # the stall is known once the busy work has had its turn
    assert _noted == added
    result |= managed_so_far
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
    which, number, where, seconds, *more = sys.argv[1:]
    report(asyncio.run(measure(which, int(number), Path(where), float(seconds), quiet=more == ["quiet"])))
