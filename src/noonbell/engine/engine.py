"""The engine: it polls, claims what is due, starts it and records its end. One for every kind of work (see `work`).

A poll is one transaction. It claims what is due by now and commits; only then are the actions called. Its parts:

- `poll_loop` decides when to poll: at the earliest thing that is not due yet, when an end brings an earlier one, and at
  least once in every longest wait. As it records ends the ledger reports which schedules they have woken, so most ends
  bring no poll. While something is left due for want of capacity, any end does.
- `execution` calls the actions; `in_flight` holds the runs until their ends are recorded.
- `ends` and `settling` record how runs ended. `deleted` finds runs whose schedule was deleted.
- `unstarted` hands back what was claimed and not started.

`last_poll_at` is when the engine last completed a poll. A longer stretch without one, because the process was frozen or
its store unreachable, is for the work to judge: what came due in that time may be missed (see `core.presence`).

Stopping (see `phase`): no further poll is begun, a claim that was under way is handed back unstarted, running actions
are waited for, and their ends are recorded. A caller that does not want to wait that long abandons them (`cut_off`):
what can be cancelled is, what has not ended is forgotten here, and the holder of the name hands it back in the ledger.
An engine that has lost its name stops by itself (`on_lost`), and leaves all that it had claimed to the engine that has
taken it over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from noonbell.actions.secrets.logs import mask_known
from noonbell.core.records import AT_ONCE, Settlement
from noonbell.engine.deleted import DeletedRuns
from noonbell.engine.ends import RunEnds
from noonbell.engine.execution import Executor
from noonbell.engine.in_flight import InFlight
from noonbell.engine.jobs import NEVER, Job, JobSource
from noonbell.engine.metrics import Metrics
from noonbell.engine.phase import Life, Phase
from noonbell.engine.poll_loop import PollLoop
from noonbell.engine.settling import Settler
from noonbell.engine.system_clock import ClockWatch
from noonbell.engine.unstarted import UnstartedRuns
from noonbell.errors import LeaseLostError, StoreError, describe_error
from noonbell.ports import Claimed, Clock, Ledger, Settled
from noonbell.store.outage import outage_log_for

logger = logging.getLogger("noonbell.engine")

_DOUBT_PAUSE: Final = 250_000
_FULL_PAUSE: Final = 1_000_000
_LOGGED_FIRST: Final = 5_000_000
_LOGGED_AGAIN: Final = 60_000_000
_MOST_NAMED: Final = 10
# Runs that are cancelled have so long to clean up, and then so long again.
_CLEANUP_SECONDS: Final = 2.0
_LAST_SECONDS: Final = 1.0

W = TypeVar("W", bound=JobSource)


class Engine(Generic[W]):
    """Runs one kind of work, until it is stopped."""

    def __init__(
        self,
        store: Ledger,
        clock: Clock,
        work: W,
        *,
        longest_wait_us: int,
        before_look: Callable[[int], Awaitable[None]] | None = None,
        on_messages: Callable[[], None] | None = None,
        on_lost: Callable[[], None] | None = None,
        mask: Callable[[str], str] | None = None,
        threads: int | None = None,
    ) -> None:
        self.work = work
        self.last_poll_at: int | None = None
        self.claim_lock = asyncio.Lock()  # held during a poll
        self._clock = clock
        self._clock_watch = ClockWatch(clock)
        self._before_look = before_look
        self._on_lost = on_lost
        self._life = Life()
        self._in_flight = InFlight()
        self._unstarted = UnstartedRuns(store, self._in_flight, work.owner)
        self.deleted_runs = DeletedRuns(store, clock, self._in_flight)
        self._settler = Settler(
            store, clock, work.metrics, written=self._on_written, stale=self._on_stale, lost=self.on_lease_lost
        )
        self._ends = RunEnds(
            work, clock, self._life, self._in_flight, self._settler,
            mask=mask_known if mask is None else mask, on_messages=on_messages,
        )  # fmt: skip
        self._executor = Executor(
            work, clock, self._life, self._in_flight, self._unstarted, threads=threads, ended=self._ends.record
        )
        self._loop = PollLoop(
            clock, self._life, self._poll,
            longest_wait_us=longest_wait_us, outage=outage_log_for(store), failed=self._on_failed_poll,
        )  # fmt: skip

    @property
    def metrics(self) -> Metrics:
        return self.work.metrics

    @property
    def poll_age(self) -> float:
        """Seconds since a poll completed; until the first one, since the engine began."""
        return self._loop.age

    def load(self) -> dict[str, Any]:
        """Return how much of its capacity the engine uses."""
        return self._executor.load()

    def start(self, up_since: int | None = None) -> None:
        """Begin to poll. `up_since`: since when another engine does the same work, which lateness counts from."""
        self._executor.up_since = self._clock.now() if up_since is None else up_since
        self._loop.start()

    def wake(self, at: int) -> None:
        """Poll at `at`, or sooner."""
        self._loop.wake(at)

    # --- stopping -------------------------------------------------------------------------------------------------

    def request_stop(self) -> None:
        """Start nothing from now on, not even what is claimed already; `stop` does the rest."""
        self._life.enter(Phase.STOPPING)
        self._loop.stop()
        self._unstarted.add(*self._executor.take_back())

    async def stop(self) -> None:
        """Start nothing new; return when all that runs has ended and is recorded."""
        self.request_stop()
        await self._loop.stopped()
        await asyncio.sleep(0)  # what was launched and has not begun finds out now that it will not
        await self._unstarted.hand_back_all()
        self._settler.last_chance()
        await self._wait_for_runs()
        await self._executor.background_ended()
        try:
            await self._account_for_claims()
        except Exception as error:
            expected = isinstance(error, StoreError)
            message = "Unstarted runs may stay claimed until the next start: %s"
            logger.error(message, describe_error(error), exc_info=not expected)  # noqa: TRY400 - a trace only where it helps
        self._executor.close()

    async def _wait_for_runs(self) -> None:
        """Return when no run is in flight; log now and then what the stop waits for."""
        pause = _LOGGED_FIRST
        while not self._in_flight.empty.is_set():
            await self._clock.wait(self._clock.now() + pause, self._in_flight.empty)
            if not self._in_flight.empty.is_set():
                names = sorted({job.name for job in self._in_flight})
                more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
                listed = ", ".join(names[:_MOST_NAMED]) + more
                logger.warning("Stopping: waiting for %d runs: %s", len(self._in_flight), listed)
            pause = _LOGGED_AGAIN

    async def cut_off(self) -> int:
        """Cancel and abandon what runs, so that `stop` returns; returns how many runs had not ended by themselves.

        Nothing is written of those; in the ledger they are this engine's until they are handed back. A plain function
        cannot be cancelled: it goes on in its thread, and its end counts for nothing.
        """
        self.request_stop()
        self._life.enter(Phase.CANCELLING)
        for _ in range(2):  # the second time for those that are slow to clean up
            tasks = [job.task for job in self._in_flight if job.task is not None and not job.task.done()]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=_CLEANUP_SECONDS)
        await self._settler.drained(_LAST_SECONDS)
        self._life.enter(Phase.ABANDONED)
        left = list(self._in_flight)
        for job in left:
            self._in_flight.discard(job.start)
        self._in_flight.empty.set()
        return len(left) + self._ends.abandoned

    def on_lease_lost(self) -> None:
        """Stop, because another engine has taken the name: all that was claimed is left to it."""
        if self._on_lost is None or self._life.lost:
            return
        self._life.lost = True
        self._unstarted.in_doubt = False  # whatever was claimed, another has freed it
        self.request_stop()
        self._on_lost()

    # --- runs -----------------------------------------------------------------------------------------------------

    async def run_now(self, claim: Callable[[int], Awaitable[Job[Any] | None]]) -> bool:
        """Start what `claim` brings, because a person asked for it; False where it brings nothing, or a stop came."""
        # In a task of its own: a caller that gives up must not leave a claimed run that is never started.
        return await asyncio.shield(self._executor.in_background(self._run_now(claim), "noonbell-trigger"))

    async def _run_now(self, claim: Callable[[int], Awaitable[Job[Any] | None]]) -> bool:
        try:
            job = await claim(self._clock.now())
        except BaseException:
            self._unstarted.in_doubt = True
            self.wake(AT_ONCE)
            raise
        if job is None:
            return False
        if self._life.stopping:
            await self._unstarted.hand_back([job.start])
            return False
        self._launch([job])
        return True

    def is_own_task(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether this asyncio task executes one of our runs."""
        return self._executor.is_own_task(task)

    def in_own_thread(self) -> bool:
        """Return whether the calling thread executes one of our runs."""
        return self._executor.in_own_thread()

    def running(self, sid: int) -> bool:
        """Return whether a run of the schedule has begun whose end is not recorded yet."""
        return sid in self._in_flight

    async def recorded(self, sid: int) -> None:
        """Return when the run that is under way, if any, is so no more: its end is written, or it was handed back."""
        await self._in_flight.ended(sid)

    def deleted(self, sid: int) -> None:
        """Cancel what runs for a schedule that was deleted."""
        self.deleted_runs.cancel(sid)

    # --- polls ----------------------------------------------------------------------------------------------------

    async def _poll(self) -> int:
        async with self.claim_lock:
            return await self._look()

    async def _look(self) -> int:
        """Poll once; returns when the next poll is needed."""
        now = self._clock.now()
        if not self._clock_watch.trusted(now):
            return now + _DOUBT_PAUSE
        if self._before_look is not None:
            await self._before_look(now)
        await self._account_for_claims()
        loop = self._loop
        loop.freed = False
        capacity = self._executor.capacity
        if not capacity.runs:
            loop.left_due = True
            await self.work.poll(now, self.last_poll_at)
            self.last_poll_at = now
            return now + _FULL_PAUSE
        jobs, claimed, polled_at = await self.work.claim(now, self.last_poll_at, capacity)
        self.last_poll_at = polled_at or now
        self._log(claimed)
        await self._executor.launched()  # the batch before
        if self._life.stopping:
            await self._unstarted.hand_back(claimed.starts)
        else:
            self._launch(jobs)
        loop.left_due = self.work.left_due or claimed.locked  # the lock may be that of an end of ours
        if claimed.full or (loop.left_due and loop.freed):
            return now
        return claimed.next_wake_at or NEVER

    def _launch(self, jobs: Sequence[Job[Any]]) -> None:
        self._executor.launch(jobs)

    async def _account_for_claims(self) -> None:
        await self._unstarted.account_for_claims()

    def _log(self, claimed: Claimed) -> None:
        metrics = self.work.metrics
        metrics.polls += 1
        metrics.looked += claimed.looked
        if logger.isEnabledFor(logging.DEBUG):
            skipped = claimed.looked - len(claimed.starts) - len(claimed.quarantined)
            logger.debug(
                "poll due=%d started=%d skipped_not_due=%d quarantined=%d running=%d",
                claimed.looked, len(claimed.starts), skipped, len(claimed.quarantined), len(self._in_flight),
                extra={"noonbell": {"due": claimed.looked, "started": len(claimed.starts), "skipped_not_due": skipped}},
            )  # fmt: skip

    def _on_failed_poll(self, error: Exception) -> bool:
        """Note that a claim may have been committed all the same; returns False where the name was lost."""
        if isinstance(error, StoreError):
            self.work.metrics.store_errors += 1
            if self._on_lost is not None and isinstance(error, LeaseLostError):
                self.on_lease_lost()
                return False
        self._unstarted.in_doubt = True
        return True

    # --- recorded ends --------------------------------------------------------------------------------------------

    def _on_stale(self, stale: Sequence[Settlement]) -> None:
        self._executor.in_background(self.deleted_runs.report_stale(stale), "noonbell-stale")

    def _on_written(self, settlements: Sequence[Settlement], settled: Settled) -> None:
        self._ends.recorded(settlements)
        self._loop.freed = True
        if self._loop.left_due or settled.stale:
            # a stale end may have been recorded by a try that seemed to fail, and what it has woken was not reported
            self.wake(AT_ONCE)
        elif settled.woken:
            self.wake(min(settled.woken.values()))
