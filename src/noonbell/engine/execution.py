"""Calling the actions of claimed runs: coroutines as tasks of the event loop, plain functions in threads.

What is claimed counts as running, so no more is claimed than can run: a few plain functions more than there are free
threads, and `MOST_IN_FLIGHT` runs altogether. The rest stays due, and is claimed as others end.

A large batch starts in portions, one in each turn of the event loop: other work of the program gets its turn between
them, and the objects of short runs are gone before the next portion. The next claim is already under way; what it
brings starts when the batch before has (`launched`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from noonbell.core.records import Start
from noonbell.engine.in_flight import InFlight
from noonbell.engine.interrupts import enter_action, interrupt_after, is_contained, stops_program
from noonbell.engine.jobs import Capacity, Job, JobSource
from noonbell.engine.phase import Life
from noonbell.engine.threads import ThreadSlots
from noonbell.engine.unstarted import UnstartedRuns
from noonbell.errors import NotStartedError
from noonbell.ports import Clock

THREAD_SLOTS: Final = 128
# So many plain functions may wait for a thread, so that one that becomes free is not idle until the next poll.
THREADS_AHEAD: Final = 32
MOST_IN_FLIGHT: Final = 10_000
# So many runs of a batch start in one turn of the event loop.
PORTION: Final = 128

T = TypeVar("T")


class Executor:
    """Starts runs, and passes their results and errors to `ended`."""

    def __init__(
        self,
        work: JobSource,
        clock: Clock,
        life: Life,
        in_flight: InFlight,
        unstarted: UnstartedRuns,
        *,
        threads: int | None,
        ended: Callable[[Job[Any], object, BaseException | None], None],
    ) -> None:
        self.up_since = clock.now()  # lateness counts from here: nothing could start before
        self._work = work
        self._clock = clock
        self._life = life
        self._in_flight = in_flight
        self._unstarted = unstarted
        self._ended = ended
        self._threads: ThreadSlots[Job[Any]] = ThreadSlots(
            THREAD_SLOTS if threads is None else threads, ended, self._on_raised
        )
        self._coroutines: set[asyncio.Task[None] | None] = set()  # the event loop itself holds them only weakly
        self._background: set[asyncio.Task[Any]] = set()
        self._rest: deque[Job[Any]] = deque()  # coroutines of a batch that starts in portions
        self._launched = asyncio.Event()  # `_rest` is empty
        self._launched.set()
        self._never_called: list[Start] = []  # started, but the action reports that a stop came first

    @property
    def capacity(self) -> Capacity:
        """Return how much more may be claimed."""
        in_flight = max(len(self._in_flight), len(self._coroutines))
        return Capacity(max(MOST_IN_FLIGHT - in_flight, 0), max(self._threads.free + THREADS_AHEAD, 0))

    def load(self) -> dict[str, Any]:
        return {
            "running": len(self._in_flight),
            "most": MOST_IN_FLIGHT,
            "threads_free": max(self._threads.free, 0),
            "threads_waited_for": self._threads.waiting,
        }

    def is_own_task(self, task: asyncio.Task[Any] | None) -> bool:
        return task in self._coroutines or task in self._threads.tasks

    def in_own_thread(self) -> bool:
        return self._threads.is_own()

    def in_background(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Create a task that a stop waits for."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def background_ended(self) -> None:
        if self._background:
            await asyncio.wait(self._background)

    def take_back(self) -> list[Start]:
        """Return what was launched and has not begun, for want of a turn or a thread, and now will not."""
        waiting = [*self._rest, *self._threads.take_back()]
        self._rest.clear()
        self._launched.set()
        return [job.start for job in waiting]

    def close(self) -> None:
        self._threads.close()

    def launch(self, jobs: Sequence[Job[Any]]) -> None:
        """Start claimed runs: a portion of the coroutines now, and the others in the next turns of the event loop."""
        if not jobs:
            return
        self._in_flight.empty.clear()
        coroutines = []
        for job in jobs:
            self._in_flight.add(job)
            if job.is_async:
                coroutines.append(job)
            else:
                job.waited = self._threads.free <= 0
                self._threads.submit(job, job.call, self._on_start)
        self._create_tasks(coroutines[:PORTION])
        if len(coroutines) > PORTION:
            self._add_to_rest(coroutines[PORTION:])

    async def launched(self) -> None:
        """Return when nothing is left of what was passed to `launch`."""
        await self._launched.wait()

    def _add_to_rest(self, jobs: Sequence[Job[Any]]) -> None:
        if not self._rest:
            self._launched.clear()
            asyncio.get_running_loop().call_soon(self._launch_portion)
        self._rest.extend(jobs)

    def _launch_portion(self) -> None:
        rest = self._rest
        try:
            self._create_tasks(rest.popleft() for _ in range(min(PORTION, len(rest))))
        finally:
            if rest:
                asyncio.get_running_loop().call_soon(self._launch_portion)
            else:
                self._launched.set()

    def _create_tasks(self, jobs: Iterable[Job[Any]]) -> None:
        create_task, tasks, contained = asyncio.get_running_loop().create_task, self._coroutines, is_contained()
        for job in jobs:
            job.task = create_task(self._execute(job, contained=contained), name=job.name)
            tasks.add(job.task)

    def _on_start(self, job: Job[Any]) -> None:
        now, start, work = self._clock.now(), job.start, self._work
        metrics = work.metrics
        metrics.started += 1
        if job.waited:
            start.waited_us = max(now - start.started_at, 0)
            metrics.slot_wait.observe(start.waited_us / 1_000_000, job.name)
        start.started_at = now
        # What could not start earlier is not late: nothing was up, or the run before it had not ended.
        due_at = work.due_at(job)
        late_us = now - max(self.up_since, due_at)
        lateness = metrics.recovery if start.cause == "orphan" else metrics.start_lateness
        lateness.observe(late_us / 1_000_000 if late_us > 0 else 0.0, job.name)
        work.started(job, now)

    def _on_slot(self, job: Job[Any], *, waited: bool) -> None:
        job.waited = waited
        self._on_start(job)

    async def _execute(self, job: Job[Any], *, contained: bool) -> None:
        result: object = None
        error: BaseException | None = None
        if self._life.stopping:
            self._unstarted.add(job.start)
            self._coroutines.discard(job.task)
            return
        if job.deleted:
            self._coroutines.discard(job.task)
            self._ended(job, None, asyncio.CancelledError())
            return
        if contained:
            enter_action()
        try:
            if job.waits:
                result = await job.call(partial(self._on_slot, job))
            else:
                self._on_start(job)
                result = await job.call()
        except NotStartedError:
            self._coroutines.discard(job.task)
            self._hand_back(job.start)
            return
        except BaseException as raised:  # whatever an action raises ends its run as failed
            if isinstance(raised, GeneratorExit) and not _in_loop():
                raise  # the loop is gone and the coroutine is being closed: nothing can be recorded
            error = raised
        self._coroutines.discard(job.task)
        job.task = None  # the job stays until its end is recorded, the task need not
        if error is not None:
            self._on_raised(job, error)
        self._ended(job, result, error)

    def _on_raised(self, job: Job[Any], error: BaseException) -> None:
        """Stop the program, once the end is recorded, if a coroutine has raised what asks for that."""
        if stops_program(error):
            self.in_background(interrupt_after(self._in_flight.ended(job.start.sid)), "noonbell-interrupt")

    def _hand_back(self, start: Start) -> None:
        """Hand back a run whose action waited and was never called, together with all others that end so now."""

        async def hand_back() -> None:
            await asyncio.sleep(0)
            never_called, self._never_called = self._never_called, []
            await self._unstarted.hand_back(never_called)

        self._never_called.append(start)
        if len(self._never_called) == 1:
            self.in_background(hand_back(), "noonbell-hand-back")


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
