"""Tasks that come and go at run time, over the engine.

The methods are coroutines, since each of them reads or writes the ledger: when `schedule` has returned, the task is
stored. `validate` alone is a plain function.

- The poller starts with the first task and stops with the last. With it the store is opened and the scheduler's name is
  taken; a second live scheduler of the same name on the same store is refused.
- A change happens between two looks of the engine, in one transaction, or not at all.
- Cancelling a task whose run is under way lets that run finish; the task is removed when its end is recorded. Scheduled
  again before that, it is still the same task, and its runs still do not overlap.
- After a restart on a durable store a task that is scheduled again goes on where it was: its history, its pending
  retry, an interrupted run, one run for all that was missed. One that is not scheduled again stays stored and does not
  run: it waits to be scheduled, or cancelled.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import timedelta, tzinfo
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from noonbell.core.instants import MICROSECOND, moment
from noonbell.cron import parse
from noonbell.declarative import events as event_types
from noonbell.declarative.event_emitter import log_moved
from noonbell.declarative.events import EventSink, SchedulerEvent
from noonbell.declarative.registrations import Callback, Registration
from noonbell.declarative.registrations import validate as validate_registrations
from noonbell.engine import DeclaredJobs, Engine
from noonbell.engine.threads import check_threads
from noonbell.errors import (
    InvalidCronExpressionError,
    NoonbellError,
    ScheduleDuplicateTaskError,
    ScheduleInvalidNameError,
    StopFromTaskError,
    StoreError,
    TaskNotFoundError,
    describe_error,
)
from noonbell.periodic.capabilities import Capabilities
from noonbell.periodic.observing import AwaitedRun, PeriodicObserver
from noonbell.periodic.store_lease import StoreLease
from noonbell.periodic.task_registry import Entry, Registry
from noonbell.periodic.task_snapshots import TaskSnapshot, snapshot
from noonbell.store.opening import open_store

POLL_INTERVAL: Final = timedelta(minutes=10)
_REMOVAL_PAUSE: Final = 5_000_000


def make(
    capabilities: Capabilities | None = None,
    *,
    poll_interval: timedelta = POLL_INTERVAL,
    name: str = "default",
    time_zone: str | tzinfo | None = None,
    on_event: Callable[[SchedulerEvent], None] | None = None,
    threads: int | None = None,
) -> PeriodicScheduler:
    """A scheduler without tasks. Nothing is opened and nothing runs before the first is scheduled.

    `poll_interval` is the longest time between two looks; the engine looks earlier where something is due earlier.
    Above a minute, expressions that fire more often than that are refused. `time_zone` is the host's unless named.
    `threads`: how many plain functions run at a time, 128 by default; the others wait.
    """
    given = Capabilities() if capabilities is None else capabilities
    return PeriodicScheduler(
        given, poll_interval=poll_interval, name=name, time_zone=time_zone, on_event=on_event, threads=threads
    )


def validate(expression: object) -> bool:
    """Return whether this is a cron expression."""
    if not isinstance(expression, str):
        return False
    try:
        parse(expression)
    except InvalidCronExpressionError:
        return False
    return True


class PeriodicScheduler:
    """Schedules and cancels named tasks; made by `make`."""

    def __init__(
        self,
        capabilities: Capabilities,
        *,
        poll_interval: timedelta,
        name: str,
        time_zone: str | tzinfo | None,
        on_event: Callable[[SchedulerEvent], None] | None,
        threads: int | None = None,
    ) -> None:
        check_threads(threads)
        if poll_interval <= timedelta(0):
            raise ValueError(f"poll_interval is {poll_interval!r}; it must be a positive timedelta")
        if not name.strip():
            raise ValueError(f"name is {name!r}; it must be a text that is not blank")
        self.capabilities = replace(capabilities, scheduler=self)
        self._name = name
        self._managed_by = f"periodic:{name}"
        self._instance = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._clock = capabilities.clock
        self._logger = capabilities.logger
        self._poll_interval = poll_interval
        self._threads = threads
        self._lease = StoreLease(
            open_store(capabilities.store),
            self._clock,
            self._logger,
            managed_by=self._managed_by,
            instance=self._instance,
            owns_store=isinstance(capabilities.store, str),
        )
        self._tasks = Registry(self._lease, self._clock, self._managed_by, time_zone)
        self._sink = EventSink(on_event, self._logger)
        self._observer = PeriodicObserver(self._sink, name, self._instance, lambda: self._tasks.zone)
        self._lock = asyncio.Lock()  # one change at a time; taken before the engine's own
        self._engine: Engine[DeclaredJobs] | None = None
        self._hurry = asyncio.Event()  # set when closing: it ends all pauses
        self._background: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @staticmethod
    def validate(expression: object) -> bool:
        """Return whether this is a cron expression."""
        return validate(expression)

    @property
    def task_names(self) -> list[str]:
        """The names of the scheduled tasks, in the order in which they came."""
        return list(self._tasks.scheduled)

    async def get_tasks(self) -> list[TaskSnapshot]:
        """Return the state of each scheduled task, as the ledger has it."""
        if self._engine is None:
            return []
        names = self.task_names
        stored, now = await self._tasks.read(), self._clock.now()
        return [snapshot(stored[name], now, self._tasks.zone) for name in names if name in stored]

    # --- scheduling -----------------------------------------------------------------------------------------------

    async def schedule(self, name: str, cron: str, callback: Callback, retry_delay: timedelta) -> None:
        """Add a task. Raises before anything has changed, or not at all."""
        _check_name(name)
        await self.schedule_many([(name, cron, callback, retry_delay)])

    async def schedule_many(self, registrations: Sequence[tuple[str, str, Callback, timedelta]]) -> None:
        """Add tasks together: all of them, or none where one cannot be accepted."""
        valid = validate_registrations(registrations, poll_interval=self._poll_interval)
        async with self._lock:
            self._refuse_when_closed()
            for registration in valid:
                if registration.name in self._tasks.scheduled:
                    self._logger.warning("Refused: a task named %r is scheduled already", registration.name)
                    raise ScheduleDuplicateTaskError(registration.name)
            if not valid:
                return
            if self._engine is None:
                self._engine = await self._begin(valid)
                return
            async with self._engine.claim_lock:
                await self._tasks.add(self._engine, valid)
            self._engine.wake(self._clock.now())

    async def _begin(self, valid: list[Registration]) -> Engine[DeclaredJobs]:
        """Open the store, store the first tasks and start the poller."""
        declared = await self._lease.begin()
        try:
            self._tasks.begin(declared.rows)
            engine = Engine(
                self._lease.store,
                self._clock,
                DeclaredJobs(
                    self._lease.store,
                    managed_by=self._managed_by,
                    owner=self._instance,
                    observer=self._observer,
                    finish=True,
                ),
                longest_wait_us=self._poll_interval // MICROSECOND,
                before_look=self._before_look,
                threads=self._threads,
            )
            self._observer.scheduled = engine.work.tasks
            await self._tasks.add(engine, valid, self._lease.beginning(declared))
        except BaseException:
            await self._lease.end()
            raise
        engine.start()
        self._emit(event_types.PollingStarted)
        if left := sorted(self._tasks.left):
            listed = ", ".join(left[:10])
            self._logger.info("%d stored tasks do not run until they are scheduled again: %s", len(left), listed)
        return engine

    async def _before_look(self, now: int) -> None:
        engine = self._engine
        tasks = {} if engine is None else dict(engine.work.tasks)
        before = None if engine is None else await self._tasks.follow_host_zone(engine)
        if engine is None or before is None:
            return
        self._logger.warning("The host's time zone changed from %s to %s", before, self._tasks.zone_name)
        log_moved(self._logger, tasks, engine.work.tasks, now)
        for entry in self._tasks.scheduled.values():
            if engine.running(entry.sid):
                self._spawn(self._look_when_ended(engine, entry))

    async def _look_when_ended(self, engine: Engine[DeclaredJobs], entry: Entry) -> None:
        """The engine expects what follows the run in the old zone; in the new one it may be sooner."""
        await engine.recorded(entry.sid)
        engine.wake(self._clock.now())

    # --- cancelling -----------------------------------------------------------------------------------------------

    async def cancel(self, name: str) -> bool:
        """Take a task out; False where there is none of this name. A run that is under way finishes."""
        return await self._cancel([name]) == 1

    async def cancel_all(self) -> int:
        """Take out all tasks, also those that an earlier life has left; returns how many there were."""
        return await self._cancel(None)

    async def _cancel(self, names: Sequence[str] | None) -> int:
        async with self._lock:
            engine = self._engine
            if engine is None:
                return 0 if self._closing is not None else await self._cancel_left(names)
            async with engine.claim_lock:
                count, ending = await self._tasks.take_out(engine, self._known() if names is None else names)
            for entry in ending:
                self._spawn(self._remove_when_ended(engine, entry))
        # A task of its own: a caller that gives up must not leave half a stop.
        await asyncio.shield(self._spawn(self._stop_if_last()))
        return count

    async def _cancel_left(self, names: Sequence[str] | None) -> int:
        """Nothing is scheduled now, but an earlier life may have left something in the store."""
        declared = await self._lease.begin()
        try:
            self._tasks.begin(declared.rows)
            count, _ = await self._tasks.take_out(None, self._known() if names is None else names)
        finally:
            await self._lease.end()
        return count

    def _known(self) -> list[str]:
        return [*self._tasks.scheduled, *self._tasks.left]

    async def _remove_when_ended(self, engine: Engine[DeclaredJobs], entry: Entry) -> None:
        name = entry.registration.name
        await engine.recorded(entry.sid)
        while True:
            async with self._lock:
                if self._tasks.leaving.get(name) is not entry:
                    engine.wake(self._clock.now())  # scheduled again in between, perhaps due by now
                    return
                try:
                    async with engine.claim_lock:
                        await self._lease.remove([entry.sid])
                    del self._tasks.leaving[name]
                    break
                except StoreError as error:
                    self._logger.error("Task %r is cancelled, but not removed yet: %s", name, error)  # noqa: TRY400 - the cause is in the message
            if self._closing is not None:
                return
            await self._clock.wait(self._clock.now() + _REMOVAL_PAUSE, self._hurry)
        await self._stop_if_last()

    # --- running now ----------------------------------------------------------------------------------------------

    async def run_now(self, name: str) -> bool:
        """Run a task at once and wait for it; False, without waiting, where a run of it is under way.

        An Exception that the task raises is raised here; SystemExit and the like as the cause of a NoonbellError. Such
        a run is not retried, and the task's occurrences stay as they are; if it succeeds, a pending retry is cleared.
        """
        entry, engine = self._tasks.scheduled.get(name), self._engine
        if entry is None or engine is None:
            raise TaskNotFoundError(name, self.task_names)
        async with engine.claim_lock:
            self._refuse_when_closed()
            if self._tasks.scheduled.get(name) is not entry:
                raise TaskNotFoundError(name, self.task_names)
            if engine.running(entry.sid):
                return False
            asked = self._observer.asked[entry.sid] = AwaitedRun()
            begun = False
            try:
                begun = await engine.run_now(partial(engine.work.claim_manual, entry.sid))
            finally:
                if not begun:
                    self._observer.asked.pop(entry.sid, None)
        if not begun:
            return False
        await engine.recorded(entry.sid)
        if not asked.ended:
            raise NoonbellError(f'Task "{name}" was not begun: the periodic scheduler was closed before')
        if isinstance(asked.error, Exception):
            raise asked.error
        if asked.error is not None:  # a SystemExit must end neither the caller nor its event loop
            raise NoonbellError(f'Task "{name}" failed: {describe_error(asked.error)}', name=name) from asked.error
        return True

    # --- stopping -------------------------------------------------------------------------------------------------

    def close(self) -> Coroutine[Any, Any, None]:
        """Begin nothing new, wait for what runs, let go of the store. What is stored stays.

        Raises:
            StopFromTaskError: a task of this scheduler called it; a plain function gets it from the call itself.
        """
        if self._engine is not None and self._engine.in_own_thread():
            raise StopFromTaskError("close", thread=True)
        return self._closed()

    async def _closed(self) -> None:
        if self._engine is not None and self._engine.is_own_task(asyncio.current_task()):
            raise StopFromTaskError("close")
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(), name="noonbell-periodic-close")
        # shielded: one caller that gives up must not leave the others with half a stop
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._hurry.set()
        async with self._lock:  # a change that was under way is done
            engine = self._engine
        if engine is not None:
            async with engine.claim_lock:  # and so is a run that was being asked for
                pass
            await self._stop_polling(engine)
        while self._background:
            await asyncio.wait(set(self._background))
        async with self._lock:
            if engine is not None:
                await self._end(engine)

    async def _stop_if_last(self) -> None:
        async with self._lock:
            engine, tasks = self._engine, self._tasks
            if engine is None or tasks.scheduled or tasks.leaving or self._closing is not None:
                return
            await self._stop_polling(engine)
            await self._end(engine)

    async def _stop_polling(self, engine: Engine[DeclaredJobs]) -> None:
        self._emit(event_types.PollingStopRequested)
        await self._lease.record("stop-start")
        await engine.stop()
        self._emit(event_types.PollingStopped)

    async def _end(self, engine: Engine[DeclaredJobs]) -> None:
        self._engine = None
        self._tasks.forget()
        await self._lease.record("stop-end", json.dumps(engine.metrics.summary()))
        await self._lease.end()

    def _refuse_when_closed(self) -> None:
        if self._closing is not None:
            raise NoonbellError(f'The periodic scheduler "{self._name}" is closed; nothing more can be begun')

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name="noonbell-periodic")
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def _emit(self, kind: type[SchedulerEvent]) -> None:
        at = moment(self._clock.now(), self._tasks.zone)
        self._sink.emit(kind(at=at, instance=self._instance, scheduler=self._name))


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise ScheduleInvalidNameError(name)
