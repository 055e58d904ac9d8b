"""The loop for durable schedules: look at a lane, claim what is due, start it, record its end.

It is the loop of `engine` for schedules that live in the store alone: nothing is loaded at the start, and a claim
brings what it needs to run. Several runs of one schedule may be in hand where its overlap policy is `allow`.

`up_since` is since when this engine has looked without a gap. A gap is longer than the longest wait and the grace
together, by a clock that runs through suspend: a machine that slept was not up, a clock that was set is no gap.

Stopping: no further look is begun, a claim that was under way is handed back unstarted, running actions are waited
for, and their ends are recorded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from noonbell.core.policies import GRACE_US
from noonbell.core.records import AT_ONCE, LiveRun, Settlement, Start, StoredSchedule, Turn
from noonbell.core.turns import definition_of, look
from noonbell.engine.clock import ClockWatch
from noonbell.engine.metrics import Metrics
from noonbell.engine.settling import Settler
from noonbell.engine.threads import ThreadSlots
from noonbell.errors import StoreError, describe_error
from noonbell.ports import Claimed, Clock, ScheduleStore
from noonbell.timing.retry import RetryPolicy

logger = logging.getLogger("noonbell.engine")

BATCH: Final = 4096
# After a downtime each schedule may have a thousand missed slots to tell: batches begin small then, and grow as long as
# little is told, so that no transaction becomes a giant.
FIRST_BATCH: Final = 256
_SMALLEST_BATCH: Final = 32
_MUCH_TOLD: Final = 20_000
THREAD_SLOTS: Final = 128
_STORE_PAUSE: Final = 500_000
_DOUBT_PAUSE: Final = 250_000
_NEVER: Final = 1 << 62
_Key = tuple[int, str, int]


class Prepared(msgspec.Struct, frozen=True):
    """An action that is ready to be called."""

    call: Callable[[], Any]
    is_async: bool


class Job(msgspec.Struct):
    """A start in hand, and the schedule as the claim saw it."""

    start: Start
    stored: StoredSchedule


Prepare = Callable[[StoredSchedule, Start], Prepared]


class LaneEngine:
    """Runs the durable schedules of one lane."""

    def __init__(
        self,
        store: ScheduleStore,
        clock: Clock,
        *,
        lane: str,
        instance: str,
        longest_wait_us: int,
        prepare: Prepare,
    ) -> None:
        self.metrics = Metrics()
        self.up_since = clock.now()
        self._store = store
        self._clock = clock
        self._lane = lane
        self._instance = instance
        self._longest_wait = longest_wait_us
        self._prepare = prepare
        self._watch = ClockWatch(clock)
        self._settler = Settler(store, clock, self.metrics, self._on_written)
        self._threads: ThreadSlots[Job] = ThreadSlots(THREAD_SLOTS, self._end)
        self._running: dict[_Key, Job] = {}
        self._coroutines: dict[_Key, asyncio.Task[None]] = {}
        self._unstarted: list[Start] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self._wakeup = asyncio.Event()
        self._looked: float | None = None
        self._batch = FIRST_BATCH
        self._began = self.up_since
        self._planned = 0
        self._poked = _NEVER
        self._stopping = False
        self._doubtful = False  # a claim failed, and may have been committed all the same
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._began = self.up_since = self._clock.now()
        self._looked = None
        self._batch = FIRST_BATCH
        self._loop = asyncio.get_running_loop().create_task(self._run(), name=f"noonbell-lane-{self._lane}")

    def request_stop(self) -> None:
        """From now on nothing begins, not even what is claimed already; `stop` does the rest."""
        self._stopping = True
        self._wakeup.set()
        self._unstarted.extend(job.start for job in self._threads.take_back())

    async def stop(self) -> None:
        """Begin nothing new; return when all that runs has ended and is recorded."""
        self.request_stop()
        if self._loop is not None:
            await self._loop
        await asyncio.sleep(0)  # what was launched and has not begun finds out now that it will not
        await self._hand_back(self._unstarted)
        self._settler.last_chance()
        await self._idle.wait()
        if self._doubtful:
            try:
                await self._account_for_claims()
            except StoreError as error:
                logger.error("Unstarted runs may stay claimed until the next start: %s", error)  # noqa: TRY400 - the cause is in the message
        self._threads.close()

    async def trigger(self, stored: StoredSchedule) -> Start | None:
        """Run a schedule now because a person asked for it; None where a run of it is under way or the engine stops."""
        start = await self._store.trigger(stored.sid, self._instance, self._clock.now())
        if start is None:
            return None
        if self._stopping:  # asked for while the engine was told to stop: it never began
            await self._hand_back([start])
            return None
        self._launch([Job(start, stored)])
        return start

    def wake(self, at: int) -> None:
        """See to it that there is a look at `at`, or sooner."""
        self._poked = min(self._poked, at)
        if at < self._planned:
            self._wakeup.set()

    # --- the loop -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._stopping:
            self._wakeup.clear()
            self._poked = _NEVER
            self._planned = 0
            try:
                wake_at = await self._look()
            except StoreError as error:
                self.metrics.store_errors += 1
                self._doubtful = True
                logger.error("The store failed, looking again shortly: %s", error)  # noqa: TRY400 - the cause is in the message
                wake_at = self._clock.now() + _STORE_PAUSE
            except Exception:
                self._doubtful = True
                logger.exception("A look failed, looking again shortly")
                wake_at = self._clock.now() + _STORE_PAUSE
            self._planned = min(wake_at, self._poked)
            if not self._stopping:
                await self._clock.wait(self._planned, self._wakeup)

    async def _look(self) -> int:
        """One look; returns when the next one is needed."""
        now = self._clock.now()
        self._notice_gap(now)
        if not self._watch.trusted(now):
            return now + _DOUBT_PAUSE
        if self._doubtful:
            await self._account_for_claims()
            self._doubtful = False
        up_since, told = self.up_since, 0

        def take_turn(stored: StoredSchedule) -> Turn:
            nonlocal told
            turn = look(stored, now, up_since)
            told += len(turn.audits)
            return turn

        claimed, stored = await self._store.claim_by_policy(self._lane, self._instance, now, self._batch, take_turn)
        self._tell(claimed)
        if told > _MUCH_TOLD:
            self._batch = max(self._batch // 2, _SMALLEST_BATCH)
        elif claimed.full:
            self._batch = min(self._batch * 2, BATCH)
        if self._stopping:
            await self._hand_back(claimed.starts)
        else:
            self._launch([Job(start, stored[start.sid]) for start in claimed.starts])
        if claimed.full:
            return now
        return min(now + self._longest_wait, claimed.next_wake_at or _NEVER)

    def _notice_gap(self, now: int) -> None:
        elapsed = self._clock.elapsed()
        longest = (self._longest_wait + GRACE_US) / 1_000_000
        if self._looked is not None and elapsed - self._looked > longest:
            logger.warning("Nothing was looked at for %.0f s; what came meanwhile was missed", elapsed - self._looked)
            self.up_since = now
            self._batch = FIRST_BATCH
        self._looked = elapsed

    async def _account_for_claims(self) -> None:
        """Give back what a failed claim has claimed all the same: nobody would ever start it."""
        lost = [live for live in await self._store.owned(self._instance) if not self._holds(live)]
        if lost:
            logger.warning("%d runs were claimed by a look that failed; they start now", len(lost))
            await self._store.hand_back([_as_start(live) for live in lost], self._instance, AT_ONCE)

    def _holds(self, live: LiveRun) -> bool:
        job = self._running.get((live.sid, live.kind, live.run_for))
        return job is not None and job.start.fence == live.fence

    def _tell(self, claimed: Claimed) -> None:
        self.metrics.polls += 1
        self.metrics.looked += claimed.looked
        for sid, error in claimed.quarantined:
            logger.error("The schedule with sid %d could not be decided and is put off for a minute: %r", sid, error)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "look lane=%s due=%d started=%d quarantined=%d running=%d",
                self._lane, claimed.looked, len(claimed.starts), len(claimed.quarantined), len(self._running),
            )  # fmt: skip

    async def _hand_back(self, starts: Sequence[Start]) -> None:
        if not starts:
            return
        try:
            await self._store.hand_back(starts, self._instance, AT_ONCE)
        except StoreError as error:
            logger.error("%d unstarted runs stay claimed until the next start: %s", len(starts), error)  # noqa: TRY400 - the cause is in the message
        for start in starts:
            self._forget(start)
        if not self._running:
            self._idle.set()

    def _forget(self, start: Start) -> None:
        job = self._running.get(_key(start))
        if job is not None and job.start is start:
            del self._running[_key(start)]

    # --- running --------------------------------------------------------------------------------------------------

    def _launch(self, jobs: Sequence[Job]) -> None:
        if not jobs:
            return
        self._idle.clear()
        create_task = asyncio.get_running_loop().create_task
        for job in jobs:
            key = _key(job.start)
            self._running[key] = job
            try:
                prepared = self._prepare(job.stored, job.start)
            except Exception as error:  # noqa: BLE001 - an action that cannot be called is the run's failure
                self._on_start(job)
                self._end(job, error)
                continue
            if prepared.is_async:
                self._coroutines[key] = create_task(self._execute(job, prepared.call))
            else:
                self._threads.submit(job, prepared.call, self._on_start)

    def _on_start(self, job: Job) -> None:
        now, start, name = self._clock.now(), job.start, job.stored.columns.name
        self.metrics.started += 1
        if start.cause == "orphan":
            self.metrics.recovery.observe((now - self._began) / 1_000_000, name)
        elif start.cause != "cron" or start.fence == 1:
            self.metrics.start_lateness.observe((now - start.due_at) / 1_000_000, name)

    async def _execute(self, job: Job, call: Callable[[], Any]) -> None:
        if self._stopping:
            self._unstarted.append(job.start)
            self._coroutines.pop(_key(job.start), None)
            return
        self._on_start(job)
        error: BaseException | None = None
        try:
            await call()
        except asyncio.CancelledError as cancelled:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise  # the event loop is being torn down: the run stays unfinished, as in a crash
            error = cancelled
        except Exception as raised:  # noqa: BLE001 - whatever an action raises is its failure, not ours
            error = raised
        self._coroutines.pop(_key(job.start), None)
        self._end(job, error)

    def _end(self, job: Job, error: BaseException | None) -> None:
        now, start = self._clock.now(), job.start
        if error is None:
            self.metrics.succeeded += 1
            self._settler.add(Settlement(start, self._instance, "succeeded", now))
            return
        self.metrics.failed += 1
        retry_at = None
        if start.kind == "scheduled":
            retry = retry_policy(job.stored)
            if retry.allows(start.attempt + 1):
                retry_at = now + retry.delay_before(start.attempt + 1, f"{job.stored.schedule_id}:{start.run_for}")
        self._settler.add(Settlement(start, self._instance, "failed", now, retry_at, describe_error(error)))

    def _on_written(self, settlements: Sequence[Settlement]) -> None:
        for settlement in settlements:
            self._forget(settlement.start)
        if not self._running:
            self._idle.set()
        # an end may free a run that was queued behind it, whenever the schedule itself comes next
        self.wake(AT_ONCE)


def retry_policy(stored: StoredSchedule) -> RetryPolicy:
    retry = definition_of(stored.columns.definition).retry
    return RetryPolicy(retry.attempts, retry.delay_us, retry.strategy, retry.max_delay_us, retry.jitter)


def _key(start: Start) -> _Key:
    return start.sid, start.kind, start.run_for


def _as_start(live: LiveRun) -> Start:
    return Start(
        sid=live.sid, kind=live.kind, run_for=live.run_for, fence=live.fence, attempt=live.attempt, cause=live.cause,
        epoch=live.epoch, started_at=live.attempt_at or 0, due_at=live.attempt_at or 0, following=None,
    )  # fmt: skip
