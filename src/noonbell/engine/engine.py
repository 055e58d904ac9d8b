"""The loop: look at what is due, claim it, start it, record its end.

A look is one transaction. It claims what is due by now and commits; only then are the actions called. The loop then
sleeps until the earliest thing that is not due yet, or until an ended run brings an earlier one, but never longer than
the longest wait: so a lost wake-up or a clock that was set costs at most that.

`tasks` may change while the engine runs, but only between two looks (`between_looks`). A schedule that has no task
there is left alone: its row loses its wake-up, and whoever adds the task puts it back. A run that was started before
its task went away ends as any other.

Stopping: no further look is begun, a claim that was under way is handed back unstarted, running actions are waited
for, and their ends are recorded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from noonbell.core.decide import decide
from noonbell.core.records import AT_ONCE, Decision, Due, LiveRun, Settlement, Start
from noonbell.engine.clock import ClockWatch
from noonbell.engine.metrics import Metrics
from noonbell.engine.settling import Settler
from noonbell.engine.threads import ThreadSlots
from noonbell.errors import StoreError, describe_error
from noonbell.ports import Claimed, Clock, Store
from noonbell.timing import CronTiming

logger = logging.getLogger("noonbell.engine")

BATCH: Final = 4096
THREAD_SLOTS: Final = 128
LEAST_RETRY: Final = 1_000_000
_STORE_PAUSE: Final = 500_000
_DOUBT_PAUSE: Final = 250_000
_NEVER: Final = 1 << 62


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


class Engine:
    """Runs the tasks of one owner."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        managed_by: str,
        instance: str,
        longest_wait_us: int,
        observer: Observer,
        before_look: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        self.tasks: dict[int, Task] = {}
        self.metrics = Metrics()
        self._store = store
        self._clock = clock
        self._managed_by = managed_by
        self._instance = instance
        self._longest_wait = longest_wait_us
        self._observer = observer
        self._before_look = before_look
        self._watch = ClockWatch(clock)
        self._settler = Settler(store, clock, self.metrics, self._on_written)
        self._threads: ThreadSlots[tuple[Task, Start]] = ThreadSlots(THREAD_SLOTS, self._on_thread_end)
        self._running: dict[int, Start] = {}  # by sid: claimed and not yet recorded as ended
        self._awaited: dict[int, asyncio.Event] = {}  # by sid: set when its run is recorded
        self.between_looks = asyncio.Lock()  # held during a look
        self._unstarted: list[Start] = []  # claimed, but a stop came first
        self._coroutines: dict[int, asyncio.Task[None]] = {}  # by sid: the loop itself holds them only weakly
        self._triggers: set[asyncio.Task[bool]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._wakeup = asyncio.Event()
        self._began = clock.now()
        self._planned = 0
        self._poked = _NEVER
        self._stopping = False
        self._doubtful = False  # a claim failed, and may have been committed all the same
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._began = self._clock.now()
        self._loop = asyncio.get_running_loop().create_task(self._run(), name="noonbell-engine")

    def request_stop(self) -> None:
        """From now on nothing begins, not even what is claimed already; `stop` does the rest."""
        self._stopping = True
        self._wakeup.set()
        self._unstarted.extend(start for _, start in self._threads.take_back())

    async def stop(self) -> None:
        """Begin nothing new; return when all that runs has ended and is recorded."""
        self.request_stop()
        if self._loop is not None:
            await asyncio.wait([self._loop])  # it may have been cancelled with everything else
        await asyncio.sleep(0)  # what was launched and has not begun finds out now that it will not
        await self._hand_back(self._unstarted)
        self._settler.last_chance()
        await self._idle.wait()
        if self._doubtful:
            try:
                await self._account_for_claims()
            except Exception as error:
                expected = isinstance(error, StoreError)
                told = "Unstarted runs may stay claimed until the next start: %s"
                logger.error(told, describe_error(error), exc_info=not expected)  # noqa: TRY400 - a trace only where it tells more
        self._threads.close()

    async def trigger(self, sid: int) -> bool:
        """Run a task now because a person asked for it; False where a run of it is under way."""
        # In a task of its own: a caller that gives up must not leave a claimed run that nobody starts.
        task = asyncio.get_running_loop().create_task(self._trigger(sid), name="noonbell-trigger")
        self._triggers.add(task)
        task.add_done_callback(self._triggers.discard)
        return await asyncio.shield(task)

    async def _trigger(self, sid: int) -> bool:
        try:
            start = await self._store.trigger(sid, self._instance, self._clock.now())
        except BaseException:
            self._doubtful = True
            self.wake(AT_ONCE)
            raise
        if start is None:
            return False
        if self._stopping:
            await self._hand_back([start])
            return False
        self._launch([start])
        return True

    def is_own_task(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether this asyncio task executes one of our runs."""
        return task is not None and any(task is ours for ours in self._coroutines.values())

    def running(self, sid: int) -> bool:
        """Whether a run of the task has begun whose end is not recorded yet."""
        return sid in self._running

    async def recorded(self, sid: int) -> None:
        """Return when the run that is under way, if any, is so no more: its end is written, or it was handed back."""
        if sid in self._running:
            await self._awaited.setdefault(sid, asyncio.Event()).wait()

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
                async with self.between_looks:
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
            # counted from here: the clock may have been set back during the look
            self._planned = min(wake_at, self._poked, self._clock.now() + self._longest_wait)
            if not self._stopping:
                await self._clock.wait(self._planned, self._wakeup)

    async def _look(self) -> int:
        """One look; returns when the next one is needed."""
        now = self._clock.now()
        if not self._watch.trusted(now):
            return now + _DOUBT_PAUSE
        if self._before_look is not None:
            await self._before_look(now)
        if self._doubtful:
            await self._account_for_claims()
            self._doubtful = False
        tasks = self.tasks

        def decide_one(due: Due) -> Decision:
            task = tasks.get(due.sid)
            if task is None:
                logger.debug("The schedule with sid %d is due, but has no task here; it is left alone", due.sid)
                return Decision(due.sid, due.cursor_at, None)
            return decide(due, task.timing, now)

        claimed = await self._store.claim_due(self._managed_by, self._instance, now, BATCH, decide_one)
        self._tell(claimed)
        if self._stopping:
            await self._hand_back(claimed.starts)
        else:
            self._launch(claimed.starts)
        if claimed.full:
            return now
        return claimed.next_wake_at or _NEVER

    async def _account_for_claims(self) -> None:
        """Give back what a failed claim has claimed all the same: nobody would ever start it."""
        lost = [live for live in await self._store.owned(self._instance) if not self._holds(live)]
        if lost:
            logger.warning("%d runs were claimed by a look that failed; they start now", len(lost))
            await self._store.hand_back([_as_start(live) for live in lost], self._instance, AT_ONCE)

    def _holds(self, live: LiveRun) -> bool:
        """Whether this very run is in hand; an earlier one of the same schedule may be, its end still on the way."""
        start = self._running.get(live.sid)
        return start is not None and (start.kind, start.run_for, start.fence) == (live.kind, live.run_for, live.fence)

    def _tell(self, claimed: Claimed) -> None:
        metrics = self.metrics
        metrics.polls += 1
        metrics.looked += claimed.looked
        for sid, error in claimed.quarantined:
            task = self.tasks.get(sid)
            name = repr(task.name) if task is not None else f"with sid {sid}"
            logger.error("Task %s could not be decided and is put off for a minute: %r", name, error)
        if logger.isEnabledFor(logging.DEBUG):
            skipped = claimed.looked - len(claimed.starts) - len(claimed.quarantined)
            logger.debug(
                "poll due=%d started=%d skipped_not_due=%d quarantined=%d running=%d",
                claimed.looked, len(claimed.starts), skipped, len(claimed.quarantined), len(self._running),
                extra={"noonbell": {"due": claimed.looked, "started": len(claimed.starts), "skipped_not_due": skipped}},
            )  # fmt: skip

    async def _hand_back(self, starts: Sequence[Start]) -> None:
        if not starts:
            return
        try:
            await self._store.hand_back(starts, self._instance, AT_ONCE)
        except Exception as error:
            expected = isinstance(error, StoreError)
            told = "%d unstarted runs stay claimed until the next start: %s"
            logger.error(told, len(starts), describe_error(error), exc_info=not expected)  # noqa: TRY400 - a trace only where it tells more
        for start in starts:
            self._forget(start)
        if not self._running:
            self._idle.set()

    def _forget(self, start: Start) -> None:
        if self._running.get(start.sid) is not start:
            return  # its end was recorded without our knowing, and the next run of the schedule is in hand
        del self._running[start.sid]
        awaited = self._awaited.pop(start.sid, None)
        if awaited is not None:
            awaited.set()

    # --- running --------------------------------------------------------------------------------------------------

    def _launch(self, starts: Sequence[Start]) -> None:
        if not starts:
            return
        self._idle.clear()
        create_task = asyncio.get_running_loop().create_task
        for start in starts:
            task = self.tasks[start.sid]
            self._running[start.sid] = start
            if task.is_async:
                self._coroutines[start.sid] = create_task(self._execute(task, start))
            else:
                self._threads.submit((task, start), task.callback, self._on_thread_start)

    def _on_start(self, task: Task, start: Start) -> None:
        now = self._clock.now()
        self.metrics.started += 1
        start.started_at = now  # a plain function may have waited for a thread since the claim
        # What could not start earlier is not late: nothing was up, or the run before it had not ended.
        due = max(start.due_at, self._began, task.ended_at)
        lateness = self.metrics.recovery if start.cause == "orphan" else self.metrics.start_lateness
        lateness.observe(max(now - due, 0) / 1_000_000, task.name)
        self._observer.started(task, start, now)

    async def _execute(self, task: Task, start: Start) -> None:
        if self._stopping:
            self._unstarted.append(start)
            self._coroutines.pop(start.sid, None)
            return
        error: BaseException | None = None
        try:
            self._on_start(task, start)
            await task.callback()
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - whatever a task raises is its failure, not ours
            error = raised
        self._coroutines.pop(start.sid, None)
        self._end(task, start, error)

    def _on_thread_start(self, run: tuple[Task, Start]) -> None:
        self._on_start(*run)

    def _on_thread_end(self, run: tuple[Task, Start], error: BaseException | None) -> None:
        self._end(*run, error)

    def _end(self, task: Task, start: Start, error: BaseException | None) -> None:
        now = self._clock.now()
        task.ended_at = now
        retry_at = None
        try:
            if error is None:
                self.metrics.succeeded += 1
            else:
                self.metrics.failed += 1
                retry_at = now + max(task.retry_delay_us, LEAST_RETRY) if start.kind == "scheduled" else None
            self._observer.ended(task, start, now, error, retry_at)
        finally:  # a listener or log handler that raises must not keep the end from being recorded
            if error is None:
                self._settler.add(Settlement(start, self._instance, "succeeded", now))
            else:
                self._settler.add(Settlement(start, self._instance, "failed", now, retry_at, describe_error(error)))

    def _on_written(self, settlements: Sequence[Settlement]) -> None:
        earliest = _NEVER
        for settlement in settlements:
            start = settlement.start
            self._forget(start)
            if start.kind == "manual":  # a retry that waited beside it may be due by now
                earliest = AT_ONCE
            if start.following is not None and start.following < earliest:
                earliest = start.following
            if settlement.wake_at is not None and settlement.wake_at < earliest:
                earliest = settlement.wake_at
        if not self._running:
            self._idle.set()
        self.wake(earliest)


def _as_start(live: LiveRun) -> Start:
    return Start(
        sid=live.sid, kind=live.kind, run_for=live.run_for, fence=live.fence, attempt=live.attempt, cause=live.cause,
        epoch=live.epoch, started_at=live.attempt_at or 0, due_at=live.attempt_at or 0, following=None,
    )  # fmt: skip
