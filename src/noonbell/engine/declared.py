"""The tasks that a program has declared, as work for the loop.

`tasks` may change while the engine runs, but only between two looks (`Engine.between_looks`). A schedule that has no
task there is left alone: its row loses its wake-up, and whoever adds the task puts it back. A run that was started
before its task went away ends as any other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from noonbell.core.decide import decide
from noonbell.core.records import Decision, Due, Settlement, Start
from noonbell.engine.metrics import Metrics
from noonbell.engine.work import BATCH, Batch, Job, Room
from noonbell.ports import Claimed, Store
from noonbell.timing import CronTiming

logger = logging.getLogger("noonbell.engine")

LEAST_RETRY: Final = 1_000_000


class Task(msgspec.Struct, gc=False):
    """What the engine needs to know of a schedule to run it."""

    sid: int
    schedule_id: str
    name: str
    timing: CronTiming
    retry_delay_us: int
    callback: Callable[[], Any]
    is_async: bool
    ended_at: int = 0  # when its last run ended, in this life


class Observer(Protocol):
    """Whoever wants to know. Called on the event loop, in the order in which things happen."""

    def started(self, task: Task, start: Start, at: int) -> None: ...

    def ended(self, task: Task, start: Start, at: int, error: BaseException | None, retry_at: int | None) -> None: ...


class DeclaredWork:
    """The tasks of one owner."""

    def __init__(self, store: Store, *, managed_by: str, owner: str, observer: Observer) -> None:
        self.tasks: dict[int, Task] = {}
        self.owner = owner
        self.metrics = Metrics()
        self.left_due = False
        self._store = store
        self._managed_by = managed_by
        self._observer = observer

    async def claim(self, now: int, up_since: int, room: Room) -> Batch:
        del up_since  # what was missed is one run, however it was missed
        del room  # as many as a program has declared, each once at most: they may wait here for a thread
        tasks = self.tasks

        def decide_one(due: Due) -> Decision:
            task = tasks.get(due.sid)
            if task is None:
                logger.debug("The schedule with sid %d is due, but has no task here; it is left alone", due.sid)
                return Decision(due.sid, due.cursor_at, None)
            return decide(due, task.timing, now)

        claimed = await self._store.claim_due(self._managed_by, self.owner, now, BATCH, decide_one)
        self._tell(claimed)
        return Batch([self._job(start) for start in claimed.starts], claimed)

    async def claim_manual(self, sid: int, now: int) -> Job[Task] | None:
        """Claim a run that a person asked for; None where a run of the task is under way."""
        start = await self._store.trigger(sid, self.owner, now)
        return None if start is None else self._job(start)

    def _job(self, start: Start) -> Job[Task]:
        task = self.tasks[start.sid]
        return Job(start, task, task.name, task.callback, task.is_async)

    def _tell(self, claimed: Claimed) -> None:
        for sid, error in claimed.quarantined:
            task = self.tasks.get(sid)
            name = repr(task.name) if task is not None else f"with sid {sid}"
            logger.error("Task %s could not be decided and is put off for a minute: %r", name, error)

    def due_at(self, job: Job[Task]) -> int:
        # what had to wait for the end of the run before it is not late
        return max(job.start.due_at, job.subject.ended_at)

    def started(self, job: Job[Task], at: int) -> None:
        self._observer.started(job.subject, job.start, at)

    def retry_at(self, job: Job[Task], at: int, error: BaseException) -> int | None:
        del error
        return at + max(job.subject.retry_delay_us, LEAST_RETRY) if job.start.kind == "scheduled" else None

    def ended(self, job: Job[Task], at: int, error: BaseException | None, retry_at: int | None) -> None:
        job.subject.ended_at = at
        self._observer.ended(job.subject, job.start, at, error, retry_at)

    def tell(self, job: Job[Task], settlement: Settlement, error: BaseException | None) -> None:
        pass
