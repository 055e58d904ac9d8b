"""The loop: look at what is due, claim it, start it, record its end. One for every kind of work (see `work`).

A look is one transaction. It claims what is due by now and commits; only then are the actions called. The loop then
sleeps until the earliest thing that is not due yet, or until an ended run brings an earlier one, but never longer than
the longest wait: so a lost wake-up or a clock that was set costs at most that. Most ends bring nothing, and no look: as
it records them the ledger says which schedules they have woken.

`last_poll_at` is when the loop last completed a look. A longer stretch without one, because the process was frozen or
its store unreachable, is for the work to judge: what came due meanwhile may be missed (see `core.presence`).

What is claimed counts as running, so no more is claimed than can run: a few plain functions more than there are free
threads, and `MOST_IN_HAND` runs altogether. The rest stays due, and is claimed as others end: until then any end brings
a look.

Stopping: no further look is begun, a claim that was under way is handed back unstarted, running actions are waited
for, and their ends are recorded. Who does not want to wait that long cuts them off (`cut_off`): what can be cancelled
is, what has not ended is forgotten here, and whoever holds the name hands it back in the ledger. An engine that has
lost its name stops by itself (`on_lost`), and leaves all that it had claimed to whoever has freed it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

from noonbell.actions.results import Finished
from noonbell.actions.secrets.logs import mask_known
from noonbell.core.detail import has_traceback, traceback_text, unpack, with_traceback
from noonbell.core.records import AT_ONCE, LiveRun, Settlement, Start
from noonbell.engine.clock import ClockWatch
from noonbell.engine.interrupts import interrupt_after, stops_program
from noonbell.engine.settling import Settler
from noonbell.engine.threads import ThreadSlots
from noonbell.engine.work import NEVER, Job, Room, Work
from noonbell.errors import ActionError, HoldLostError, NotStartedError, StoreError, describe_error
from noonbell.ports import LEDGER_TABLES, Claimed, Clock, Settled, Store
from noonbell.store.outage import outage_of

logger = logging.getLogger("noonbell.engine")

THREAD_SLOTS: Final = 128
# So many plain functions may wait for a thread, so that one that becomes free is not idle until the next look.
THREADS_AHEAD: Final = 32
MOST_IN_HAND: Final = 10_000
_STORE_PAUSE: Final = 500_000
_DOUBT_PAUSE: Final = 250_000
_FULL_PAUSE: Final = 1_000_000
_LONG_ENOUGH: Final = 4_000_000  # a run that is shorter ends before it is worth a question
_TOLD_FIRST: Final = 5_000_000
_TOLD_AGAIN: Final = 60_000_000
_MOST_NAMED: Final = 10
_MOST_ASKED: Final = 100
# Runs that are cut off have so long to tidy up behind themselves, and then so long again without any more patience.
_TIDY_SECONDS: Final = 2.0
_LAST_SECONDS: Final = 1.0

W = TypeVar("W", bound=Work)


class Engine(Generic[W]):
    """Runs one kind of work, until it is stopped."""

    def __init__(
        self,
        store: Store,
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
        self.metrics = work.metrics
        self.last_poll_at: int | None = None
        self.between_looks = asyncio.Lock()  # held during a look
        self._mask = mask_known if mask is None else mask  # takes secrets out of what actions raise
        self._store = store
        self._clock = clock
        self._longest_wait = longest_wait_us
        self._before_look = before_look
        self._on_messages = on_messages
        self._on_lost = on_lost
        self._watch = ClockWatch(clock)
        self._settler = Settler(
            store, clock, self.metrics, written=self._on_written, stale=self._on_stale, lost=self.lose
        )
        self._outage = outage_of(store)
        self._threads: ThreadSlots[Job[Any]] = ThreadSlots(THREAD_SLOTS if threads is None else threads, self._end)
        self._running: dict[int, Job[Any]] = {}  # by sid: claimed and not yet recorded as ended, the latest first
        self._deleted: set[int] = set()  # sids whose runs in hand belong to nothing any more
        self._awaited: dict[int, asyncio.Event] = {}  # by sid: set when no run of it is in hand
        self._cut: list[Start] = []  # ended because they were cut off
        self._unstarted: list[Start] = []  # claimed, but a stop came first
        self._never_called: list[Start] = []  # started, but the action says that a stop came first
        self._coroutines: set[asyncio.Task[None]] = set()  # the event loop itself holds them only weakly
        self._asked: set[asyncio.Task[bool]] = set()
        self._telling: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._wakeup = asyncio.Event()
        self._polled = clock.elapsed()  # when a poll completed last, or the engine began
        self._began = clock.now()
        self._planned = 0
        self._poked = NEVER
        self._crowded = False  # the last look has left something due, for want of room or because it was locked
        self._made_room = False  # a run has ended since the last look began
        self._stopping = False
        self._cutting = False  # what runs is being cut off: an error is no failure of its own any more
        self._over = False  # whatever still ends here was handed back
        self._lost = False
        self._doubtful = False  # a claim failed, and may have been committed all the same
        self._loop: asyncio.Task[None] | None = None

    def start(self, up_since: int | None = None) -> None:
        """Begin to look. `up_since`: since when another engine does the same work, which lateness counts from."""
        self._began = self._clock.now() if up_since is None else up_since
        self._polled = self._clock.elapsed()
        self._loop = asyncio.get_running_loop().create_task(self._run(), name="noonbell-engine")

    def request_stop(self) -> None:
        """From now on nothing begins, not even what is claimed already; `stop` does the rest."""
        self._stopping = True
        self._wakeup.set()
        self._unstarted.extend(job.start for job in self._threads.take_back())

    async def stop(self) -> None:
        """Begin nothing new; return when all that runs has ended and is recorded."""
        self.request_stop()
        if self._loop is not None:
            await asyncio.wait([self._loop])  # it may have been cancelled with everything else
        await asyncio.sleep(0)  # what was launched and has not begun finds out now that it will not
        await self._hand_back(self._unstarted)
        self._settler.last_chance()
        await self._wait_for_runs()
        if self._telling:
            await asyncio.wait(self._telling)
        if self._doubtful:
            try:
                await self._account_for_claims()
            except Exception as error:
                expected = isinstance(error, StoreError)
                told = "Unstarted runs may stay claimed until the next start: %s"
                logger.error(told, describe_error(error), exc_info=not expected)  # noqa: TRY400 - a trace only where it tells more
        self._threads.close()

    async def cut_off(self) -> int:
        """Wait no longer for what runs: cancel it and forget it, so that `stop` returns. How many did not end.

        Nothing is written of those; in the ledger they are this engine's until they are handed back. A plain function
        cannot be cancelled: it goes on in its thread, and its end counts for nothing.
        """
        self.request_stop()
        self._cutting = True
        for _ in range(2):  # the second time for those who are slow to tidy up
            tasks = [job.task for job in self._in_hand() if job.task is not None and not job.task.done()]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=_TIDY_SECONDS)
        await self._settler.drained(_LAST_SECONDS)
        self._over = True
        cut = self._in_hand()
        for job in cut:
            self._forget(job.start)
        self._idle.set()
        return len(cut) + len(self._cut)

    @property
    def poll_age(self) -> float:
        """Seconds since a poll completed; until the first one, since the engine began."""
        return self._clock.elapsed() - self._polled

    def load(self) -> dict[str, Any]:
        """How full its hands are."""
        return {
            "running": len(self._running),
            "most": MOST_IN_HAND,
            "threads_free": max(self._threads.free, 0),
            "threads_waited_for": self._threads.waiting,
        }

    def _in_hand(self) -> list[Job[Any]]:
        found = []
        for job in self._running.values():
            one: Job[Any] | None = job
            while one is not None:
                found.append(one)
                one = one.beside
        return found

    async def _wait_for_runs(self) -> None:
        """Until nothing is in hand. Whoever waits for the stop wants to know what it waits for."""
        pause = _TOLD_FIRST
        while not self._idle.is_set():
            await self._clock.wait(self._clock.now() + pause, self._idle)
            if not self._idle.is_set():
                names = sorted({job.name for job in self._running.values()})
                more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
                told = ", ".join(names[:_MOST_NAMED]) + more
                logger.warning("Stopping: waiting for %d runs: %s", len(self._running), told)
            pause = _TOLD_AGAIN

    async def run_now(self, claim: Callable[[int], Awaitable[Job[Any] | None]]) -> bool:
        """Start what `claim` brings, because a person asked for it; False where it brings nothing, or a stop came."""
        # In a task of its own: a caller that gives up must not leave a claimed run that nobody starts.
        task = asyncio.get_running_loop().create_task(self._run_now(claim), name="noonbell-trigger")
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)
        return await asyncio.shield(task)

    async def _run_now(self, claim: Callable[[int], Awaitable[Job[Any] | None]]) -> bool:
        try:
            job = await claim(self._clock.now())
        except BaseException:
            self._doubtful = True
            self.wake(AT_ONCE)
            raise
        if job is None:
            return False
        if self._stopping:
            await self._hand_back([job.start])
            return False
        self._launch([job])
        return True

    def is_own_task(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether this asyncio task executes one of our runs."""
        return task in self._coroutines or task in self._threads.tasks

    def in_own_thread(self) -> bool:
        """Whether the calling thread executes one of our runs."""
        return self._threads.is_own()

    def running(self, sid: int) -> bool:
        """Whether a run of the schedule has begun whose end is not recorded yet."""
        return sid in self._running

    async def recorded(self, sid: int) -> None:
        """Return when the run that is under way, if any, is so no more: its end is written, or it was handed back."""
        if sid in self._running:
            await self._awaited.setdefault(sid, asyncio.Event()).wait()

    # --- schedules that are gone ----------------------------------------------------------------------------------

    def deleted(self, sid: int) -> None:
        """The schedule was deleted: what runs for it is cancelled, or left to end where it is a plain function.

        Nothing of it is recorded any more: its runs have ended in the ledger.
        """
        job = self._running.get(sid)
        if job is None or sid in self._deleted:
            return
        self._deleted.add(sid)
        while job is not None:
            does = "is cancelled" if job.is_async else "is left to end, since a plain function cannot be cancelled"
            logger.info('The schedule "%s" was deleted; its run %s', job.name, does)
            if job.task is not None:
                job.task.cancel()
            job = job.beside

    async def look_for_deleted(self) -> None:
        """Whether somebody else has deleted what runs here: its run is in the ledger no more."""
        since = self._clock.now() - _LONG_ENOUGH
        in_hand = [job.start for job in self._running.values() if job.start.started_at <= since]
        if not in_hand:
            return
        owned = {(live.sid, live.kind, live.run_for) for live in await self._store.owned(self.work.owner)}
        gone = [start for start in in_hand if (start.sid, start.kind, start.run_for) not in owned]
        for start in gone[:_MOST_ASKED]:  # of most the end is on its way; what is left is asked about the next time
            if await self._is_removed(start.sid):
                self.deleted(start.sid)

    def _on_stale(self, stale: Sequence[Settlement]) -> None:
        """Ends that the ledger does not take: somebody has deleted the schedule, or taken the run over."""
        named = []
        for settlement in stale[:_MOST_NAMED]:
            job = self._running.get(settlement.start.sid)
            named.append((settlement.start, f"with sid {settlement.start.sid}" if job is None else f'"{job.name}"'))
        self._in_background(self._tell_stale(named, len(stale) - len(named)), "noonbell-stale")

    def _in_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a task that `stop` waits for."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell_stale(self, named: Sequence[tuple[Start, str]], more: int) -> None:
        for start, name in named:
            try:
                removed = await self._is_removed(start.sid)
            except StoreError:
                removed = False
            if removed:
                logger.info("The schedule %s was deleted; how its run ended is not recorded", name)
            else:
                logger.error(
                    "The end of a run of the schedule %s was not recorded: it is on record already, or another has "
                    "taken it over since (for %d, fence %d)", name, start.run_for, start.fence,
                )  # fmt: skip
        if more:
            logger.error("%d more ends were not recorded for the same reasons", more)

    async def _is_removed(self, sid: int) -> bool:
        place = LEDGER_TABLES["schedules"].columns.index("removed_at")
        rows = await self._store.read_ledger("schedules", None, 1, above_sid=sid - 1, upto_sid=sid)
        return any(row[place] is not None for row in rows)

    def wake(self, at: int) -> None:
        """See to it that there is a look at `at`, or sooner."""
        self._poked = min(self._poked, at)
        if at < self._planned:
            self._wakeup.set()

    def lose(self) -> None:
        """Its name is another's now: whoever finds that out says so, and all that was claimed is left to him."""
        if self._on_lost is None or self._lost:
            return
        self._lost = True
        self._doubtful = False  # whatever was claimed, another has freed it
        self.request_stop()
        self._on_lost()

    # --- the loop -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._stopping:
            self._wakeup.clear()
            self._poked = NEVER
            self._planned = 0
            try:
                async with self.between_looks:
                    wake_at = await self._look()
            except StoreError as error:
                self.metrics.store_errors += 1
                if self._on_lost is not None and isinstance(error, HoldLostError):
                    self.lose()
                    return
                self._doubtful = True
                self._outage.failed("looking", error, self._clock.elapsed())
                wake_at = self._clock.now() + _STORE_PAUSE
            except Exception:
                self._doubtful = True
                logger.exception("A look failed, looking again shortly")
                wake_at = self._clock.now() + _STORE_PAUSE
            else:
                self._polled = self._clock.elapsed()
                self._outage.worked("looking", self._polled)
            # counted from here: the clock may have been set back during the look
            self._planned = min(wake_at, self._poked, self._clock.now() + self._longest_wait)
            await self._wait_for_look()

    async def _wait_for_look(self) -> None:
        """Until the planned one is due. Who wakes the loop for a later instant changes the plan, and brings no look."""
        while not self._stopping:
            await self._clock.wait(self._planned, self._wakeup)
            now = self._clock.now()
            if not self._wakeup.is_set() or self._poked <= now:
                return
            self._wakeup.clear()
            # counted from here again, and for the same reason
            self._planned = min(self._planned, self._poked, now + self._longest_wait)

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
        self._made_room = False
        room = self._room()
        if not room.runs:
            self._crowded = True
            await self.work.poll(now, self.last_poll_at)
            self.last_poll_at = now
            return now + _FULL_PAUSE
        jobs, claimed, polled_at = await self.work.claim(now, self.last_poll_at, room)
        self.last_poll_at = polled_at or now
        self._tell(claimed)
        if self._stopping:
            await self._hand_back(claimed.starts)
        else:
            self._launch(jobs)
        self._crowded = self.work.left_due or claimed.locked  # the lock may be that of an end of ours
        if claimed.full or (self._crowded and self._made_room):
            return now
        return claimed.next_wake_at or NEVER

    def _room(self) -> Room:
        in_hand = max(len(self._running), len(self._coroutines))
        return Room(max(MOST_IN_HAND - in_hand, 0), max(self._threads.free + THREADS_AHEAD, 0))

    async def _account_for_claims(self) -> None:
        """Give back what a failed claim has claimed all the same: nobody would ever start it."""
        lost = [live for live in await self._store.owned(self.work.owner) if not self._holds(live)]
        if lost:
            logger.warning("%d runs were claimed by a look that failed; they start now", len(lost))
            await self._store.hand_back([_as_start(live) for live in lost], self.work.owner, AT_ONCE)

    def _holds(self, live: LiveRun) -> bool:
        """Whether this very run is in hand; an earlier one of the same schedule may be, its end still on the way."""
        job = self._running.get(live.sid)
        while job is not None:
            start = job.start
            if (start.kind, start.run_for, start.fence) == (live.kind, live.run_for, live.fence):
                return True
            job = job.beside
        return False

    def _tell(self, claimed: Claimed) -> None:
        metrics = self.metrics
        metrics.polls += 1
        metrics.looked += claimed.looked
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
            await self._store.hand_back(starts, self.work.owner, AT_ONCE)
        except HoldLostError:
            logger.warning("%d unstarted runs are left to the engine that has taken the name", len(starts))
        except Exception as error:
            expected = isinstance(error, StoreError)
            told = "%d unstarted runs stay claimed until the next start: %s"
            logger.error(told, len(starts), describe_error(error), exc_info=not expected)  # noqa: TRY400 - a trace only where it tells more
        for start in starts:
            self._forget(start)
        if not self._running:
            self._idle.set()

    def _forget(self, start: Start) -> None:
        """By identity: the end may have been recorded without our knowing, and the schedule's next run be in hand."""
        sid = start.sid
        job = self._running.get(sid)
        if job is None:
            return
        if job.start is not start:
            while job.beside is not None and job.beside.start is not start:
                job = job.beside
            if job.beside is not None:
                job.beside = job.beside.beside
        elif job.beside is not None:
            self._running[sid] = job.beside
        else:
            del self._running[sid]
            self._deleted.discard(sid)
            awaited = self._awaited.pop(sid, None)
            if awaited is not None:
                awaited.set()

    # --- running --------------------------------------------------------------------------------------------------

    def _launch(self, jobs: Sequence[Job[Any]]) -> None:
        if not jobs:
            return
        self._idle.clear()
        create_task = asyncio.get_running_loop().create_task
        running, coroutines = self._running, self._coroutines
        for job in jobs:
            sid = job.start.sid
            if sid in running:
                job.beside = running[sid]
            running[sid] = job
            if job.is_async:
                job.task = create_task(self._execute(job))
                coroutines.add(job.task)
            else:
                job.waited = self._threads.free <= 0
                self._threads.submit(job, job.call, self._on_start)

    def _on_start(self, job: Job[Any]) -> None:
        now, start, metrics = self._clock.now(), job.start, self.metrics
        metrics.started += 1
        if job.waited:
            start.waited_us = max(now - start.started_at, 0)
            metrics.slot_wait.observe(start.waited_us / 1_000_000, job.name)
        start.started_at = now
        # What could not start earlier is not late: nothing was up, or the run before it had not ended.
        due = max(self.work.due_at(job), self._began)
        lateness = metrics.recovery if start.cause == "orphan" else metrics.start_lateness
        lateness.observe(max(now - due, 0) / 1_000_000, job.name)
        self.work.started(job, now)

    def _on_slot(self, job: Job[Any], *, waited: bool) -> None:
        job.waited = waited
        self._on_start(job)

    async def _execute(self, job: Job[Any]) -> None:
        result: object = None
        error: BaseException | None = None
        if self._stopping:
            self._unstarted.append(job.start)
            self._coroutines.discard(asyncio.current_task())
            return
        try:
            if job.waits:
                result = await job.call(partial(self._on_slot, job))
            else:
                self._on_start(job)
                result = await job.call()
        except NotStartedError:
            self._coroutines.discard(asyncio.current_task())
            self._take_back(job.start)
            return
        except BaseException as raised:  # whatever an action raises ends its run as failed
            if isinstance(raised, GeneratorExit) and not _in_loop():
                raise  # the loop is gone and the coroutine is being closed: nothing can be recorded
            error = raised
        self._coroutines.discard(asyncio.current_task())
        self._end(job, result, error)
        if stops_program(error):
            self._in_background(interrupt_after(self.recorded(job.start.sid)), "noonbell-interrupt")

    def _take_back(self, start: Start) -> None:
        """Hand back a run whose action waited and was never called, together with all others that end so now."""

        async def hand_back() -> None:
            await asyncio.sleep(0)
            never_called, self._never_called = self._never_called, []
            self._coroutines.discard(asyncio.current_task())
            await self._hand_back(never_called)

        self._never_called.append(start)
        if len(self._never_called) == 1:
            self._coroutines.add(asyncio.get_running_loop().create_task(hand_back(), name="noonbell-hand-back"))

    def _end(self, job: Job[Any], result: object, error: BaseException | None) -> None:
        now, start, owner = self._clock.now(), job.start, self.work.owner
        if self._over or (self._cutting and error is not None):
            self._cut.append(start)
            self.work.ended(job, now, error, None)
            self._forget(start)
            return
        if start.sid in self._deleted:
            self.work.ended(job, now, error, None)
            self._forget(start)
            if not self._running:
                self._idle.set()
            return
        settlement = Settlement(start, owner, "succeeded" if error is None else "failed", now)
        try:
            if error is None:
                self.metrics.succeeded += 1
                if type(result) is Finished:
                    settlement.detail = result.detail
                    settlement.messages.extend(result.messages)
            else:
                self.metrics.failed += 1
                settlement.error = describe_error(error, self._mask)
                settlement.detail = _detail_of(error, self._mask)
                settlement.wake_at = self.work.retry_at(job, now, error)
            self.work.tell(job, settlement, error)
            self.work.ended(job, now, error, settlement.wake_at)
        finally:  # a listener or log handler that raises must not keep the end from being recorded
            self._settler.add(settlement)

    def _on_written(self, settlements: Sequence[Settlement], settled: Settled) -> None:
        sent = False
        for settlement in settlements:
            self._forget(settlement.start)
            sent = sent or bool(settlement.messages)
        if not self._running:
            self._idle.set()
        if sent and self._on_messages is not None:
            self._on_messages()
        self._made_room = True
        if self._crowded or settled.stale:
            # a stale end may have been recorded by a try that seemed to fail, and what it has woken nobody was told
            self.wake(AT_ONCE)
        elif settled.woken:
            self.wake(min(settled.woken.values()))


def _detail_of(error: BaseException, mask: Callable[[str], str]) -> bytes | None:
    """Return what is stored of an error beside its text: the action's own record, the traceback, or both."""
    detail = _recorded_in(error)
    return with_traceback(detail, traceback_text(error, mask)) if has_traceback(error) else detail


def _recorded_in(error: BaseException) -> bytes | None:
    """Return the record that an action has packed into its error; others use the name `detail` for other things."""
    detail = getattr(error, "detail", None)
    if not isinstance(detail, bytes):
        return None
    if not isinstance(error, ActionError):
        try:
            unpack(detail)
        except ValueError:
            return None
    return detail


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _as_start(live: LiveRun) -> Start:
    return Start(
        sid=live.sid, kind=live.kind, run_for=live.run_for, fence=live.fence, attempt=live.attempt, cause=live.cause,
        epoch=live.epoch, started_at=live.attempt_at or 0, due_at=live.attempt_at or 0, following=None,
    )  # fmt: skip
