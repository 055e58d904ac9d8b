"""The Scheduler: `initialize` with the whole set of tasks, and `stop`. Nothing else.

States: uninitialized → initializing → running → stopping → stopped, and from a failed initialisation back to
uninitialized. A stopped scheduler may be initialized again.

initialize, in order:

1. validate the registrations (nothing has been touched if that fails);
2. open the store and take the scheduler's name: a second live one is refused;
3. read what is stored, and compare (see `override`);
4. write the difference in one transaction;
5. start the engine, unless a stop has been requested in the meantime.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping
from datetime import datetime, timedelta, tzinfo
from types import TracebackType
from typing import Any, Literal, Self

from noonbell.core.instants import MICROSECOND, moment
from noonbell.core.records import Declaration, LifecycleEvent, RemovedSchedule
from noonbell.core.terms import declared_terms
from noonbell.declarative import events as event_types
from noonbell.declarative.event_emitter import EventEmitter, log_moved
from noonbell.declarative.events import EventSink, SchedulerEvent
from noonbell.declarative.host_zone import HostZone, zone_named
from noonbell.declarative.override import Plan, plan
from noonbell.declarative.registrations import Registration, validate
from noonbell.declarative.task_state import read_stored
from noonbell.engine import DeclaredJobs, Engine, Task, clock_for
from noonbell.engine.threads import check_threads
from noonbell.errors import (
    InitializationError,
    NoonbellError,
    ScheduleDriftError,
    SchedulerAlreadyActiveError,
    StopFromTaskError,
    StoreError,
    describe_error,
)
from noonbell.ports import Clock, Hold, Ledger
from noonbell.store.opening import open_store
from noonbell.timing import rules_hash

logger = logging.getLogger("noonbell.scheduler")

State = Literal["uninitialized", "initializing", "running", "stopping", "stopped"]


class Scheduler:
    """Runs a declared set of tasks, durably.

    `store` is an address ("sqlite:///app.db", "memory://") or a Ledger. Registrations are tuples of name, cron
    expression, callback and retry delay.
    """

    def __init__(
        self,
        store: str | Ledger,
        *,
        name: str = "default",
        poll_interval: timedelta = timedelta(minutes=1),
        on_drift: Literal["override", "refuse"] = "override",
        clock: Clock | None = None,
        on_event: Callable[[SchedulerEvent], None] | None = None,
        time_zone: str | tzinfo | None = None,
        threads: int | None = None,
    ) -> None:
        check_threads(threads)
        if on_drift not in ("override", "refuse"):
            raise ValueError(f"on_drift is {on_drift!r}; it must be 'override' or 'refuse'")
        _check_options(name, poll_interval, clock)
        self._name = name
        self._managed_by = f"scheduler:{name}"
        self._store = open_store(store)
        self._owns_store = isinstance(store, str)
        self._poll_interval = poll_interval
        self._threads = threads
        self._on_drift = on_drift
        self._clock: Clock = clock if clock is not None else clock_for(self._store)
        self._sink = EventSink(on_event, logger)
        self._host = HostZone() if time_zone is None else None
        self._zone, self._zone_name = (
            zone_named(time_zone) if self._host is None else (self._host.zone, self._host.name)
        )
        self._state: State = "uninitialized"
        self._instance = ""
        self._registrations: list[Registration] = []
        self._engine: Engine[DeclaredJobs] | None = None
        self._ending: Engine[DeclaredJobs] | None = None  # while it is being stopped
        self._hold: Hold | None = None
        self._initializing: asyncio.Task[None] | None = None
        self._abandoning: asyncio.Task[None] | None = None
        self._stop_asked = False
        self._stop_task: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        """The state of the scheduler: uninitialized, initializing, running, stopping or stopped."""
        return self._state

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # --- initialize -----------------------------------------------------------------------------------------------

    async def initialize(self, registrations: object) -> None:
        """Make the declared tasks the ones that run. Raises before anything has changed, or not at all."""
        if self._state in ("initializing", "running", "stopping"):
            raise SchedulerAlreadyActiveError(self._state)
        self._state = "initializing"
        self._stop_asked = False
        self._instance = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        # In a task of its own: an override that is on its way to the store cannot be called back, so a caller that
        # gives up must not leave it half followed up. It is finished, then stopped.
        self._initializing = asyncio.get_running_loop().create_task(
            self._initialize(registrations), name="noonbell-init"
        )
        try:
            await asyncio.shield(self._initializing)
        except asyncio.CancelledError:
            self._stop_asked = True
            self._abandoning = asyncio.get_running_loop().create_task(self.stop(), name="noonbell-abandon")
            await asyncio.shield(self._abandoning)
            raise

    async def _initialize(self, registrations: object) -> None:
        try:
            self._emit(event_types.SchedulerInitializationStarted)
            valid = validate(registrations, poll_interval=self._poll_interval)
            await self._begin(valid)
        except BaseException as error:
            try:
                await self._release()
            finally:
                self._state = "uninitialized"
            self._emit(event_types.SchedulerInitializationFailed, error=describe_error(error), exception=error)
            if isinstance(error, NoonbellError) or not isinstance(error, Exception):
                raise
            raise InitializationError("Initialization failed unexpectedly", error) from error

    async def _begin(self, registrations: list[Registration]) -> None:
        await self._store.open()
        since = self._moment(self._clock.now()).isoformat(timespec="seconds")
        holder = f"process {os.getpid()} on {socket.gethostname()} since {since} (instance {self._instance})"
        self._hold = await self._store.hold(self._managed_by, holder)
        if self._host is not None:
            self._host.look()
            self._zone, self._zone_name = self._host.zone, self._host.name
        now = self._clock.now()
        made = await self._declare(registrations, now)
        self._registrations = registrations
        self._state = "running"
        if self._stop_asked:
            self._emit(event_types.SchedulerInitializationCompleted)
            return
        self._engine = Engine(
            self._store,
            self._clock,
            DeclaredJobs(
                self._store,
                managed_by=self._managed_by,
                owner=self._instance,
                observer=EventEmitter(self._sink, self._name, self._instance, lambda: self._zone),
            ),
            longest_wait_us=self._poll_interval // MICROSECOND,
            before_look=None if self._host is None else self._follow_host_zone,
            threads=self._threads,
        )
        self._engine.work.tasks.update(made)
        if registrations:
            self._engine.start()
            self._emit(event_types.PollingStarted)
        self._emit(event_types.SchedulerInitializationCompleted)

    async def _declare(self, registrations: list[Registration], now: int) -> dict[int, Task]:
        declared = await self._store.schedules.read_declared(self._managed_by)
        stored = read_stored(declared.rows, registrations)
        removed = [RemovedSchedule(row["sid"], _cursor_of(row, now)) for row in stored.gone]
        events = [LifecycleEvent(self._managed_by, now, self._instance, "init-ok")]
        last = declared.last_lifecycle
        if last is not None and last.event in ("init-ok", "stop-start"):
            events.insert(
                0, LifecycleEvent(self._managed_by, now, last.instance, "crash", "inferred at the next start")
            )
        made = plan(
            registrations,
            stored.tasks,
            removed,
            managed_by=self._managed_by,
            zone=self._zone,
            zone_name=self._zone_name,
            now=now,
            events=events,
        )
        difference = made.difference(stored.gone)
        # an empty set that was initialized is stored as well: only a first initialization has nothing to drift from
        initialized = bool(declared.rows) or last is not None
        if self._on_drift == "refuse" and initialized and any(difference.values()):
            raise ScheduleDriftError(difference)
        created = iter(await self._store.schedules.declare(made.declaration))
        if logger.isEnabledFor(logging.INFO):
            counts = {kind: len(names) for kind, names in difference.items()}
            logger.info("declared tasks=%d %s orphaned=%d", len(registrations), counts, len(made.orphaned))
        return self._tasks_of(registrations, made, created)

    def _tasks_of(self, registrations: list[Registration], made: Plan, created: Iterator[int]) -> dict[int, Task]:
        tasks = {}
        rows = zip(registrations, made.sids, made.schedule_ids, made.timings, strict=True)
        for registration, known, schedule_id, timing in rows:
            sid = next(created) if known is None else known
            tasks[sid] = Task(
                sid, schedule_id, registration.name, declared_terms(timing, "preempt"), registration.retry_delay_us,
                registration.callback, registration.is_async,
            )  # fmt: skip
        return tasks

    async def _follow_host_zone(self, now: int) -> None:
        """Between two looks: if the host's zone was changed, every task goes on in the new one, from its cursor."""
        if self._host is None or self._engine is None:
            return
        self._host.look()
        if self._host.name == self._zone_name and rules_hash(self._host.zone) == rules_hash(self._zone):
            return
        logger.warning("The host's time zone changed from %s to %s", self._zone_name, self._host.name)
        declared = await self._store.schedules.read_declared(self._managed_by)
        stored = read_stored(declared.rows, self._registrations)
        made = plan(
            self._registrations,
            stored.tasks,
            [],
            managed_by=self._managed_by,
            zone=self._host.zone,
            zone_name=self._host.name,
            now=now,
            events=[],
            orphans=False,
        )
        await self._store.schedules.declare(made.declaration)
        self._zone, self._zone_name = self._host.zone, self._host.name
        tasks = self._tasks_of(self._registrations, made, iter(()))
        log_moved(logger, self._engine.work.tasks, tasks, now)
        self._engine.work.tasks.update(tasks)

    # --- stop -----------------------------------------------------------------------------------------------------

    def stop(self) -> Coroutine[Any, Any, None]:
        """Begin nothing new, wait for what runs, and let go of the store. May be called at any time, by many.

        Raises:
            StopFromTaskError: a task of this scheduler called it; a plain function gets it from the call itself.
        """
        engine = self._engine or self._ending
        if engine is not None and engine.in_own_thread():
            raise StopFromTaskError(thread=True)
        return self._stopped()

    async def _stopped(self) -> None:
        engine = self._engine or self._ending
        if engine is not None and engine.is_own_task(asyncio.current_task()):
            raise StopFromTaskError
        if self._state == "initializing" and self._initializing is not None:
            self._stop_asked = True
            await asyncio.wait([self._initializing])
        if self._state == "running":
            self._state = "stopping"
            self._stop_task = asyncio.get_running_loop().create_task(self._stop(), name="noonbell-stop")
        if self._state == "stopping" and self._stop_task is not None:
            # shielded: one caller that gives up must not leave the others with half a stop
            await asyncio.shield(self._stop_task)

    async def _stop(self) -> None:
        engine, self._engine = self._engine, None
        self._ending = engine
        try:
            if engine is not None:
                engine.request_stop()
            self._emit(event_types.SchedulerStopRequested)
            await self._record("stop-start")
            if engine is not None:
                polling = bool(engine.work.tasks)
                if polling:
                    self._emit(event_types.PollingStopRequested)
                await engine.stop()
                if polling:
                    self._emit(event_types.PollingStopped)
            await self._record("stop-end", json.dumps(engine.metrics.summary()) if engine is not None else "")
        finally:
            self._ending = None
            try:
                await self._release()
            finally:
                self._state = "stopped"
        self._emit(event_types.SchedulerStopped)

    async def _record(self, event: Literal["stop-start", "stop-end"], detail: str = "") -> None:
        try:
            step = LifecycleEvent(self._managed_by, self._clock.now(), self._instance, event, detail)
            await self._store.schedules.declare(Declaration(self._managed_by, step.at, events=[step]))
        except Exception as error:
            expected = isinstance(error, StoreError)
            logger.error("%s could not be recorded: %s", event, describe_error(error), exc_info=not expected)  # noqa: TRY400 - a trace only where it adds something

    async def _release(self) -> None:
        # closed first: what is still on its way to the store belongs to our time under this name
        hold, self._hold = self._hold, None
        try:
            if self._owns_store:
                await self._store.close()
        finally:
            if hold is not None:
                hold.release()

    def _emit(self, kind: type[SchedulerEvent], **more: Any) -> None:
        self._sink.emit(kind(at=self._moment(self._clock.now()), instance=self._instance, scheduler=self._name, **more))

    def _moment(self, at: int) -> datetime:
        return moment(at, self._zone)


def _check_options(name: object, poll_interval: object, clock: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"name is {name!r}; it must be a text that is not blank")
    if not isinstance(poll_interval, timedelta) or poll_interval <= timedelta(0):
        raise ValueError(f"poll_interval is {poll_interval!r}; it must be a positive timedelta")
    missing = [verb for verb in ("now", "elapsed", "wait") if clock is not None and not hasattr(clock, verb)]
    if missing:
        raise ValueError(f"clock is {clock!r}; it has no {' and no '.join(missing)}, see noonbell.ports.Clock")


def _cursor_of(row: Mapping[str, Any], now: int) -> int:
    """Return where the account of a removed task ends; its row has not been checked."""
    cursor = row["cursor_at"]
    return cursor if type(cursor) is int else now
