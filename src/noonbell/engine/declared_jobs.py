"""The tasks that a program has declared, as work for the loop.

`tasks` may change while the engine runs, but only between two looks (`Engine.claim_lock`). A schedule that has no
task there is left alone: its row loses its wake-up, and adding the task puts it back. A run that was started
before its task went away ends as any other.

A retry starts at the first look at or after its time, behind the occurrences that are due at that look. A task whose
attempts fail at once starts at most ten times a second (RETRY_SPACING); until then its retry stays due.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from noonbell.core.records import LiveRun, Settlement, Span, Start, StoredSchedule, Turn
from noonbell.core.terms import Terms
from noonbell.core.turns import left_alone, look
from noonbell.engine.jobs import BATCH, Batch, Capacity, Job, log_span
from noonbell.engine.metrics import Metrics
from noonbell.ports import Claimed, Ledger

logger = logging.getLogger("noonbell.engine")

# From the start of an attempt to that of its retry, at least; a delay that is longer is kept to the microsecond.
RETRY_SPACING: Final = 100_000


class Task(msgspec.Struct, gc=False):
    """The facts of a schedule that the engine needs to run it."""

    sid: int
    schedule_id: str
    name: str
    terms: Terms
    retry_delay_us: int
    callback: Callable[[], Any]
    is_async: bool
    ended_at: int = 0  # when its last run ended, in this life


class Observer(Protocol):
    """A listener to the engine. Called on the event loop, in the order of the events."""

    def started(self, task: Task, start: Start, at: int) -> None: ...

    def ended(self, task: Task, start: Start, at: int, error: BaseException | None, retry_at: int | None) -> None: ...

    def cleared(self, task: Task, waiting: LiveRun, at: int) -> None:
        """A run by hand succeeded: the retry that `waiting` was to have is not needed any more."""
        ...


class DeclaredJobs:
    """The tasks of one owner. With `finish`, retries take precedence over new occurrences and any success ends them."""

    def __init__(self, store: Ledger, *, managed_by: str, owner: str, observer: Observer, finish: bool = False) -> None:
        self.tasks: dict[int, Task] = {}
        self.owner = owner
        self.metrics = Metrics()
        self.left_due = False
        self._store = store
        self._managed_by = managed_by
        self._observer = observer
        self._finish = finish
        self._waiting: dict[int, LiveRun] = {}  # by sid: what waited for a retry when a run by hand began

    async def claim(self, now: int, last_poll_at: int | None, room: Capacity) -> Batch:
        del last_poll_at  # what was missed is one run, however it was missed
        del room  # as many as a program has declared, each once at most: they may wait here for a thread
        tasks, spacing = self.tasks, _Spacing(now)
        spans: dict[int, Sequence[Span]] = {}  # by sid: a store that begins a claim again asks again

        def decide(stored: StoredSchedule) -> Turn:
            task = tasks.get(stored.sid)
            if task is None:
                logger.debug("The schedule with sid %d is due, but has no task here; it is left alone", stored.sid)
                return left_alone(stored)
            turn = look(spacing.of(stored, task), now, terms=task.terms)
            if turn.starts or turn.next_run_at != stored.next_run_at:
                spacing.progressed = True
            if turn.spans or spans:
                spans[stored.sid] = turn.spans
            return turn

        claimed, _ = await self._store.runs.claim(self._managed_by, self.owner, now, BATCH, decide)
        self._log_claim(claimed, spans)
        return Batch([self._job(start) for start in claimed.starts], spacing.with_held(claimed))

    async def poll(self, now: int, last_poll_at: int | None) -> None:
        """Nothing: declared tasks are never missed."""

    async def claim_manual(self, sid: int, now: int) -> Job[Task] | None:
        """Claim a run that a person asked for; None where a run of the task is under way."""
        start = await self._store.runs.trigger(sid, self.owner, now)
        if start is None:
            return None
        if self._finish:
            self._waiting.update(
                {live.sid: live for live in await self._store.runs.live(sid) if live.state == "waiting"}
            )
        return self._job(start)

    def _job(self, start: Start) -> Job[Task]:
        task = self.tasks[start.sid]
        return Job(start, task, task.name, task.callback, task.is_async)

    def _log_claim(self, claimed: Claimed, spans: dict[int, Sequence[Span]]) -> None:
        for sid, error in claimed.quarantined:
            spans.pop(sid, None)
            task = self.tasks.get(sid)
            name = repr(task.name) if task is not None else f"with sid {sid}"
            logger.error("Task %s could not be decided and is put off for a minute: %r", name, error)
        for sid, written in spans.items():
            for span in written:
                log_span(self.tasks[sid].name, span)

    def due_at(self, job: Job[Task]) -> int:
        # what had to wait for the end of the run before it is not late
        return max(job.start.due_at, job.subject.ended_at)

    def started(self, job: Job[Task], at: int) -> None:
        self._observer.started(job.subject, job.start, at)

    def retry_at(self, job: Job[Task], at: int, error: BaseException) -> int | None:
        del error
        return at + job.subject.retry_delay_us if job.start.kind == "scheduled" else None

    def ended(self, job: Job[Task], at: int, error: BaseException | None, retry_at: int | None) -> None:
        job.subject.ended_at = at
        self._observer.ended(job.subject, job.start, at, error, retry_at)
        waiting = self._waiting.pop(job.start.sid, None) if self._waiting else None
        if waiting is not None and error is None:
            self._observer.cleared(job.subject, waiting, at)

    def prepare_end(self, job: Job[Task], settlement: Settlement, error: BaseException | None) -> None:
        if self._waiting and error is None:
            settlement.cleared = self._waiting.get(job.start.sid)


class _Spacing:
    """Keeps retries that come quickly behind all that is due, and apart from the attempts before them."""

    def __init__(self, now: int) -> None:
        self._now = now
        self.progressed = False  # something started, or wakes at another time: another look finds other rows
        self._looked = 0
        self._held: int | None = None  # when the first of those that are held back may start

    def of(self, stored: StoredSchedule, task: Task) -> StoredSchedule:
        """Return what is to be decided, with the time before which a retry must not start."""
        self._looked += 1
        live, now = stored.lives[0] if stored.lives else None, self._now
        if live is None or live.state != "waiting" or live.wake_at is None or live.wake_at > now:
            return stored
        spaced = (live.attempt_at or 0) + RETRY_SPACING
        if live.attempt_at is None or not live.attempt_at <= now < spaced:  # a clock that was set back holds nothing up
            # the first BATCH are occurrences: where there are so many, more may be due than were looked at
            if self._looked <= BATCH or task.retry_delay_us >= RETRY_SPACING:
                return stored
            spaced = now + 1
        self._held = spaced if self._held is None else min(self._held, spaced)
        return msgspec.structs.replace(stored, lives=[msgspec.structs.replace(live, wake_at=spaced)])

    def with_held(self, claimed: Claimed) -> Claimed:
        """Return what was claimed, with a look at the time when something may start that was held back."""
        if self._held is None:
            return claimed
        upcoming = [self._held] if claimed.next_wake_at is None else [self._held, claimed.next_wake_at]
        # where nothing has changed, looking again at once would find the same
        return claimed._replace(full=claimed.full and self.progressed, next_wake_at=min(upcoming))
