"""The machine on which a simulated scheduler lives: clock, disk, processes, and the log.

A `Process` is one event loop with one store handle. It ends in a crash: its tasks never go on, its handle is dead,
nothing it says is heard. The data stay, and the next process opens a new handle on them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta, tzinfo
from pathlib import Path
from typing import Any, Final, TypeVar

from noonbell.core.records import Settlement, Start
from noonbell.declarative.events import SchedulerEvent
from noonbell.declarative.scheduler import Scheduler
from noonbell.ports import Ledger
from noonbell.store.memory import MemoryData, MemoryStore
from noonbell.store.sqlite import SqliteStore
from noonbell.testing.faults import CrashPoint, Fault, Faults, FaultyStore
from noonbell.testing.manual_clock import ManualClock
from noonbell.testing.recorder import TraceRecorder
from noonbell.testing.scenario import draw_outcome
from noonbell.testing.trace import DeclaredTask

T = TypeVar("T")
Registrations = list[tuple[str, str, Callable[[], Awaitable[None]], timedelta]]

_US: Final = timedelta(microseconds=1)
# After this much undisturbed time every fault is over: the longest wait of the loop, and its pauses.
_RECOVERY_SECONDS: Final = 62.0
_MOST_INSTANT_FAILURES: Final = 3


class ScriptedError(Exception):
    """A simulated task failed as planned."""


class Process:
    """One life between a start and a crash."""

    def __init__(self, world: World, store: Ledger) -> None:
        self.alive = True
        self.loop = world.clock.new_event_loop()
        self.store = FaultyStore(store, world.faults, world.clock)
        self.release = asyncio.Event()  # lets go of the tasks that hang
        self.inside: Counter[str] = Counter()
        self.claims: list[tuple[Start, str]] = []
        self.unstarted: Counter[str] = Counter()  # committed claims whose task was not called yet
        self.scheduler: Scheduler | None = None
        self.loop.set_exception_handler(
            lambda _, context: world.complain(f"unhandled: {context}") if self.alive else None
        )

    def bury(self) -> None:
        """Take the loop apart. Whatever its tasks do on their way out reaches nothing any more."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            try:
                self.loop.run_until_complete(asyncio.wait(tasks))
            except RuntimeError:  # one waits for what never comes
                for task in tasks:
                    task.cancel()
        self.loop.close()


class World:
    """Everything that outlives a process."""

    def __init__(self, seed: int, zone: tzinfo, start: int, file: Path | None) -> None:
        self.seed = seed
        self.zone = zone
        self.clock = ManualClock(start)
        self.recorder = TraceRecorder()
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self.faults = Faults(on_crash=self._on_crash, on_fault=self._on_fault, on_commit=self._on_commit)
        self.process: Process | None = None
        self.dead_claims: list[tuple[Start, str]] = []  # of processes that are gone
        self._file = file
        self._data = MemoryData()
        self._idle = self.clock.new_event_loop()  # for the time in which no process lives
        self._calls: Counter[str] = Counter()
        self._instant_failures: Counter[str] = Counter()
        self._disturbed = 0.0

    def open_store(self) -> Ledger:
        return MemoryStore(self._data) if self._file is None else SqliteStore(self._file, threaded=False)

    def complain(self, problem: str) -> None:
        """Something that must not be; a dead process may say what it likes."""
        if self.process is None or self.process.alive:
            self.problems.append(problem)

    # --- processes ------------------------------------------------------------------------------------------------

    def boot(self) -> Process:
        self.bury()
        self.process = Process(self, self.open_store())
        return self.process

    def new_scheduler(self, process: Process, **options: Any) -> Scheduler:
        def hear(event: SchedulerEvent) -> None:
            if process.alive:
                self.counts[event.name] += 1
                self.recorder(event)

        process.scheduler = Scheduler(
            process.store, name="simulated", clock=self.clock, on_event=hear, time_zone=self.zone, **options
        )
        return process.scheduler

    def crash(self, note: str) -> None:
        """The process dies here and now."""
        process = self.process
        if process is None or not process.alive:
            return
        process.alive = False
        process.store.kill()
        self.counts["crash"] += 1
        self.recorder.crash(self.clock.now(), note)
        self.dead_claims.extend(process.claims)
        self.faults.crash_at = None

    def bury(self) -> bool:
        """Clear away a process that has died; whether there was one."""
        process = self.process
        if process is None or process.alive:
            return False
        process.bury()
        self.process = None
        return True

    def run(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Run on the living process's loop; None where it died over it."""
        process = self.process
        loop = self._idle if process is None else process.loop
        if process is not None and not process.alive:
            work.close()
            return None
        try:
            return loop.run_until_complete(work)
        except RuntimeError:
            if process is None or process.alive:
                raise
            return None

    def close(self) -> None:
        if self.process is not None:
            self.process.alive = False
            self.process.store.kill()
            self.bury()
        self._idle.close()

    # --- time -----------------------------------------------------------------------------------------------------

    def pass_time(self, delta: timedelta) -> None:
        """Let time pass, and mark each moment of rest at which the scheduler has had its chance."""
        rest = delta
        self.run(self.clock.settle())
        while self.alive or self.process is None:
            next_in = self.clock.next_in
            piece = rest if next_in is None else min(rest, next_in)
            self.run(self.clock.advance(piece))
            self.mark()
            rest -= piece
            if rest <= timedelta(0):
                return

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    def mark(self) -> None:
        if self.alive and self.recovered:
            self.recorder.quiet(self.clock.now())

    def suspend(self, delta: timedelta) -> None:
        recovered = self.recovered
        self.run(self.clock.jump(delta))
        if not recovered:  # what was not over yet was not over while the machine slept
            self.disturb()
        self.mark()

    @property
    def recovered(self) -> bool:
        """Return whether every fault is over, and has been for long enough."""
        return self.faults.sound and self.clock.elapsed() - self._disturbed >= _RECOVERY_SECONDS

    def disturb(self) -> None:
        """Restart the grace period: from now on the scheduler needs time to recover."""
        self._disturbed = self.clock.elapsed()

    # --- tasks ----------------------------------------------------------------------------------------------------

    def registrations(self, tasks: dict[str, DeclaredTask]) -> Registrations:
        return [(name, task.cron, self._callback(name), task.retry_delay * _US) for name, task in tasks.items()]

    def _callback(self, name: str) -> Callable[[], Awaitable[None]]:
        process = self.process

        async def callback() -> None:
            if process is None or not process.alive:
                return
            self._enter(process, name)
            try:
                await self._play(process, name)
            finally:
                process.inside[name] -= 1

        return callback

    def _enter(self, process: Process, name: str) -> None:
        process.inside[name] += 1
        if process.inside[name] > 1:
            self.complain(f"two calls of {name} at once")
        process.unstarted[name] -= 1
        if process.unstarted[name] < 0:
            self.complain(f"{name} was called before its claim was committed")

    async def _play(self, process: Process, name: str) -> None:
        self._calls[name] += 1
        outcome = draw_outcome(random.Random(f"{self.seed} {name} {self._calls[name]}"), name)  # noqa: S311 - chooses cases
        self.counts[outcome.kind] += 1
        seconds = outcome.seconds
        if outcome.kind == "fail" and seconds == 0:
            # a task that fails at once and retries at once would stop the clock for good
            self._instant_failures[name] += 1
            seconds = 1 if self._instant_failures[name] % _MOST_INSTANT_FAILURES == 0 else 0
        if outcome.kind == "hang":
            await process.release.wait()
        elif seconds:
            await self.clock.sleep(seconds)
        if outcome.kind == "fail":
            raise ScriptedError(name)

    # --- what the store reports -------------------------------------------------------------------------------------

    def _on_crash(self, point: CrashPoint) -> None:
        process = self.process
        self.crash(point)
        self.counts[f"crash {point}"] += 1
        if process is not None:
            process.loop.stop()

    def _on_fault(self, fault: Fault) -> None:
        if self.alive:
            self.counts[f"fault {fault}"] += 1
            self.recorder.add("store-fault", self.clock.now(), note=fault)
            self.disturb()

    def _on_commit(self, verb: str, asked: Any, answer: Any) -> None:
        process = self.process
        if process is None or not process.alive:
            return
        self.recorder.committed(verb, asked, answer)
        if verb == "claim":
            process.claims.extend((start, asked) for start in answer.claimed.starts)
            process.unstarted.update(self.recorder.name_of(start.sid) for start in answer.claimed.starts)
        elif verb == "trigger" and answer is not None:
            process.unstarted[self.recorder.name_of(answer.sid)] += 1
        elif verb == "hand-back":
            process.unstarted.subtract(self.recorder.name_of(start.sid) for start in asked)

    def echo(self, which: int) -> None:
        """A process that was taken for dead says that its run ended: the store must refuse it."""
        process = self.process
        if process is None or not process.alive or not self.dead_claims:
            return
        start, owner = self.dead_claims[which % len(self.dead_claims)]
        late = Settlement(start, owner, "succeeded", self.clock.now())
        settled = self.run(process.store.inner.runs.settle([late]))
        self.counts["echo"] += 1
        if settled is None or not settled.stale:
            self.complain(f"the end of a run of a dead instance was accepted (sid {start.sid}, fence {start.fence})")


@contextmanager
def watched_log(world: World) -> Iterator[None]:
    """Keep the log silent, and take what it says of the unexpected for a problem."""
    watch = _Watch(world)
    engine = logging.getLogger("noonbell")
    before = engine.level, engine.propagate
    engine.setLevel(logging.ERROR)
    engine.propagate = False
    engine.addHandler(watch)
    try:
        yield
    finally:
        engine.removeHandler(watch)
        engine.setLevel(before[0])
        engine.propagate = before[1]


class _Watch(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        # failing stores are planned here, and logged without a traceback; a traceback or a quarantine is not
        if record.exc_info or str(record.msg).startswith("Task "):
            cause = record.exc_info[1] if record.exc_info else ""
            self._world.complain(f"logged: {record.getMessage()} {cause!r}")
