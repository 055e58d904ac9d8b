"""Runs of schedules that another process has deleted: found by the sids of runs that last."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from noonbell.core.records import Start
from noonbell.engine.deleted import DeletedCheck, DeletedRuns
from noonbell.engine.in_flight import InFlight
from noonbell.engine.jobs import Job
from noonbell.ports import Ledger, ScheduleFilter
from noonbell.testing import ManualClock

START = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)


class Deletions:
    """A store that knows which schedules were deleted, and nothing else."""

    def __init__(self) -> None:
        self.gone: set[int] = set()
        self.asked: list[list[int]] = []
        self.schedules = self

    async def find(self, wanted: ScheduleFilter) -> list[Any]:
        assert (wanted.declared, wanted.deleted) == (None, True)
        sids = list(wanted.sids or ())
        self.asked.append(sids)
        return [SimpleNamespace(sid=sid) for sid in sids if sid in self.gone]


def job(sid: int, clock: ManualClock) -> Job[Any]:
    now = clock.now()
    start = Start(sid, "scheduled", now, 1, 1, "cron", 1, now, now, None)

    async def last() -> None:
        await asyncio.Event().wait()

    made = Job(start, None, f"schedule {sid}", last, is_async=True)
    made.task = asyncio.create_task(last())
    return made


async def test_only_runs_that_last_are_asked_about_and_those_of_deleted_schedules_are_cancelled() -> None:
    clock, store, in_flight = ManualClock(START), Deletions(), InFlight()
    service = DeletedRuns(cast("Ledger", store), clock, in_flight)
    assert await service.run_once() == DeletedCheck(asked=0, cancelled=0)
    old = [job(sid, clock) for sid in (3, 1)]
    for one in old:
        in_flight.add(one)
    await clock.advance(timedelta(seconds=5))
    in_flight.add(job(2, clock))
    store.gone = {1, 2}
    assert await service.run_once() == DeletedCheck(asked=2, cancelled=1)
    assert store.asked == [[1, 3]]
    await clock.settle()
    assert [one.task is not None and one.task.cancelled() for one in old] == [False, True]
    assert await service.run_once() == DeletedCheck(asked=1, cancelled=0), "each is cancelled once"
    for one in in_flight:
        if one.task is not None:
            one.task.cancel()
