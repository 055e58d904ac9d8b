"""The runs in flight: claimed by this engine, and their ends not recorded yet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from noonbell.core.records import LiveRun, Start
from noonbell.engine.jobs import Job


class InFlight:
    """Runs by schedule. Most schedules have one at a time; where runs may overlap, they have more."""

    def __init__(self) -> None:
        self.empty = asyncio.Event()  # set by the engine, after it has handled the end of the last run
        self.empty.set()
        self._jobs: dict[int, Job[Any]] = {}  # by sid: the run that was added last
        self._others: dict[int, list[Job[Any]]] = {}  # by sid: the other runs of a schedule that has several
        self._ended: dict[int, asyncio.Event] = {}  # by sid: set when no run of the schedule is left

    def __len__(self) -> int:
        return len(self._jobs) + sum(map(len, self._others.values())) if self._others else len(self._jobs)

    def __iter__(self) -> Iterator[Job[Any]]:
        yield from self._jobs.values()
        for others in self._others.values():
            yield from others

    def __contains__(self, sid: int) -> bool:
        return sid in self._jobs

    def of(self, sid: int) -> list[Job[Any]]:
        """Return the runs of a schedule, the latest first."""
        job = self._jobs.get(sid)
        return [] if job is None else [job, *self._others.get(sid, ())]

    def holds(self, live: LiveRun) -> bool:
        """Return whether this very run is in flight; an earlier one of the schedule may be, its end not recorded."""
        key = (live.kind, live.run_for, live.fence)
        return any((job.start.kind, job.start.run_for, job.start.fence) == key for job in self.of(live.sid))

    def add(self, job: Job[Any]) -> None:
        sid = job.start.sid
        before = self._jobs.get(sid)
        if before is not None:
            self._others.setdefault(sid, []).insert(0, before)
        self._jobs[sid] = job

    def discard(self, start: Start) -> None:
        """Remove a run, found by identity: its end may be recorded already, and the schedule's next run be here."""
        sid = start.sid
        if self._others and sid in self._others:
            self._discard_one_of(sid, start)
            return
        job = self._jobs.get(sid)
        if job is not None and job.start is start:
            del self._jobs[sid]
            if self._ended and sid in self._ended:
                self._ended.pop(sid).set()

    def _discard_one_of(self, sid: int, start: Start) -> None:
        left = [job for job in self.of(sid) if job.start is not start]
        self._jobs[sid], others = left[0], left[1:]
        if others:
            self._others[sid] = others
        else:
            del self._others[sid]

    async def ended(self, sid: int) -> None:
        """Return when no run of the schedule is in flight."""
        if sid in self._jobs:
            await self._ended.setdefault(sid, asyncio.Event()).wait()
