"""A life of a scheduler, drawn by lot and lived on a manual clock.

`simulate(seed)` runs the real Scheduler, engine and store through random registrations and outcomes, crashes at random
moments and at named points, orderly restarts with other tasks, suspends, clocks set forward and back, and failing
stores. Afterwards the trace checker reads what was seen and `verify_store` reads the ledger. The same seed gives the
same trace: nothing here asks the machine for time or chance.

What it does not do: no threads, no second process. Those are for tests that kill real ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from noonbell.errors import (
    CronError,
    RegistrationError,
    ScheduleDriftError,
    SchedulerAlreadyActiveError,
    SchedulerInUseError,
    StoreError,
)
from noonbell.ledger.verify import verify_store
from noonbell.testing.faults import CrashPoint
from noonbell.testing.scenario import draw_place, draw_tasks
from noonbell.testing.trace import DeclaredTask, TraceEvent, Violation, check
from noonbell.testing.world import Process, World, watched_log

Backend = Literal["memory", "sqlite"]
Mutation = Callable[[], AbstractContextManager[Any]]

_SECOND: Final = timedelta(seconds=1)
_MOST_PIECES: Final = 3_000  # of time, until something that was begun has to have ended
_RUNNING_POINTS: Final[tuple[CrashPoint, ...]] = (
    "before-claim", "after-claim", "after-claim", "before-settle", "before-settle", "after-settle", "after-settle",
)  # fmt: skip
_INIT_POINTS: Final[tuple[CrashPoint, ...]] = ("before-declare", "after-declare", "after-claim")
_STOP_POINTS: Final[tuple[CrashPoint, ...]] = ("before-declare", "after-declare", "before-settle", "after-settle")
_INVALID: Final[tuple[Callable[[Any], Any], ...]] = (
    lambda one: [one, one],
    lambda one: [(one[0], "61 * * * *", one[2], one[3])],
    lambda one: [(" ", *one[1:])],
    lambda one: [(*one[:3], timedelta(seconds=-1))],
    lambda one: [one[:3]],
    lambda _: "none",
)


@dataclass
class SimulationResult:
    """The observations of one simulated life, and the errors found in it."""

    seed: int
    backend: Backend
    trace: list[TraceEvent] = field(default_factory=list)
    violation: Violation | None = None
    problems: list[str] = field(default_factory=list)  # of the ledger, and of what the scheduler answered
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        return self.violation is None and not self.problems

    @property
    def digest(self) -> str:
        """A fingerprint of the trace."""
        return hashlib.sha256("\n".join(map(str, self.trace)).encode()).hexdigest()

    def __str__(self) -> str:
        found = [str(self.violation)] if self.violation else []
        return f"seed {self.seed} on {self.backend}: " + ("; ".join([*found, *self.problems]) or "no violation")


def simulate(seed: int, *, backend: Backend = "memory", mutate: Mutation | None = None) -> SimulationResult:
    """Live one life. `mutate` makes a context in which a fault has been put into the engine."""
    with tempfile.TemporaryDirectory() if backend == "sqlite" else nullcontext("") as folder, (mutate or nullcontext)():
        life = _Life(seed, Path(folder) / "ledger.db" if folder else None)
        with watched_log(life.world):
            life.live()
        world = life.world
    trace = world.recorder.trace
    counts = world.counts + Counter(f"trace {event.kind}" for event in trace)
    return SimulationResult(seed, backend, trace, check(trace), world.problems, counts)


class _Life:
    """The story: what happens next, and what has to come of it."""

    def __init__(self, seed: int, file: Path | None) -> None:
        self._lot = random.Random(seed)  # noqa: S311 - chooses cases
        zone, start = draw_place(self._lot)
        self.world = World(seed, zone, start, file)
        self._tasks: dict[str, DeclaredTask] = {}  # of the last initialisation that was tried
        self._uncertain_hours = (
            self._lot.random() < 0.3
        )  # a life in which the clock is set and the store fails more often

    def live(self) -> None:
        world = self.world
        try:
            self._start()
            for _ in range(self._lot.randint(8, 24)):
                self._act()
                if world.bury() and self._lot.random() < 0.2:
                    self._verify("after a crash")
            self._end()
        finally:
            world.close()

    def _act(self) -> None:
        world = self.world
        if not world.alive or self._state() in ("uninitialized", "stopped"):
            if self._lot.random() < 0.4:
                world.pass_time(self._stretch())
            if self._lot.random() < 0.1:
                self._set_clock()
            self._start()
            return
        wild = 3 if self._uncertain_hours else 1
        action = self._lot.choices(
            (self._wait, self._suspend, self._set_clock, self._crash, self._crash_at_point, self._restart,
             self._spoil_store, self._refusals, self._echo, self._trigger),
            (40, 8, 3 * wild, 5, 8, 8, 5 * wild, 3, 6, 4),
        )[0]  # fmt: skip
        action()

    def _state(self) -> str:
        process = self.world.process
        return process.scheduler.state if process is not None and process.scheduler is not None else "uninitialized"

    # --- what may happen ------------------------------------------------------------------------------------------

    def _stretch(self) -> timedelta:
        lot = self._lot
        kind = lot.random()
        if kind < 0.3:
            return timedelta(seconds=lot.choice((0.5, 1, 10, 59, 60, 61, 119)))
        if kind < 0.45:  # to the very start of a minute
            return timedelta(microseconds=60_000_000 - self.world.clock.now() % 60_000_000)
        return timedelta(seconds=lot.randint(60, 1200) if kind < 0.93 else lot.randint(1200, 3 * 3600))

    def _wait(self) -> None:
        self.world.pass_time(self._stretch())
        if self._lot.random() < 0.1 and self.world.process is not None:
            self._let_go(self.world.process)

    def _let_go(self, process: Process) -> None:
        """Tasks that hang may end now; those that hang later wait for the next time."""
        process.release.set()
        process.release = asyncio.Event()

    def _suspend(self) -> None:
        lot = self._lot
        delta = timedelta(seconds=lot.choice((30, 60, lot.randint(60, 4000), lot.randint(3600, 12 * 3600))))
        self.world.suspend(delta)

    def _set_clock(self) -> None:
        lot, world = self._lot, self.world
        seconds = lot.choice((1, 30, 61, 600, 3599, 3700, 7200)) * lot.choice((-1, 1))
        world.disturb()
        world.recorder.add("clock-set", world.clock.now(), note=f"by {seconds} s")
        world.clock.step(timedelta(seconds=seconds))

    def _crash(self) -> None:
        self.world.run(self.world.clock.settle())
        self.world.crash("now")

    def _crash_at_point(self) -> None:
        faults = self.world.faults
        faults.crash_at, faults.crash_after = self._lot.choice(_RUNNING_POINTS), self._lot.randint(0, 3)
        self.world.pass_time(self._stretch() + timedelta(minutes=1))
        faults.crash_at = None

    def _spoil_store(self) -> None:
        lot, faults, world = self._lot, self.world.faults, self.world
        kind = lot.choice(("reads", "writes", "writes", "rollbacks", "lost_answers", "lost_answers", "latency"))
        if kind == "latency":
            faults.latency = timedelta(seconds=lot.choice((0.001, 0.5, 3, 20)))
        else:
            setattr(faults, kind, lot.choice((1, 1, 2, 5)))
        world.disturb()
        world.pass_time(self._stretch())
        if lot.random() < 0.3:
            self._restart()
        faults.heal()
        world.disturb()

    def _echo(self) -> None:
        if self._state() == "running":
            self.world.echo(self._lot.randrange(1000))

    def _trigger(self) -> None:
        """A person asks for a run."""
        process = self.world.process
        engine = getattr(process and process.scheduler, "_engine", None)
        if engine is not None and engine.work.tasks:
            asked = partial(engine.work.claim_manual, self._lot.choice(sorted(engine.work.tasks)))
            self._expect(engine.run_now(asked), (StoreError,))

    def _refusals(self) -> None:
        """A second initialize is refused, and so is a second scheduler of the same name."""
        world = self.world
        process = world.process
        if process is None or process.scheduler is None or self._state() != "running":
            return
        again = world.registrations(self._tasks)
        refused = self._expect(process.scheduler.initialize(again), (SchedulerAlreadyActiveError,))
        if world.alive and not refused:
            world.complain("a second initialize was not refused")
        other = type(process.scheduler)(world.open_store(), name="simulated", clock=world.clock, time_zone=world.zone)
        refused = self._expect(other.initialize(again), (SchedulerInUseError,))
        if world.alive and not refused:
            world.complain("a second scheduler of the same name was not refused")

    # --- starting and stopping ------------------------------------------------------------------------------------

    def _start(self) -> None:
        lot, world = self._lot, self.world
        process = world.process if world.alive else None
        if process is None or lot.random() < 0.3:
            if process is not None:
                self._leave(process)
            process = world.boot()
        if process.scheduler is None or lot.random() < 0.5:
            refuse = lot.random() < 0.1
            world.new_scheduler(process, on_drift="refuse" if refuse else "override")
        if lot.random() < 0.05:
            self._initialize_invalid(process)
        if lot.random() < 0.15:
            faults = world.faults
            faults.crash_at = lot.choice(_INIT_POINTS)
        if lot.random() < 0.1:
            world.faults.latency = timedelta(seconds=lot.choice((0.5, 10, 40)))
            world.disturb()
        self._tasks = draw_tasks(lot, self._tasks)
        self._initialize(process)
        world.faults.crash_at = None
        if world.faults.latency:
            world.faults.latency = timedelta(0)
            world.disturb()

    def _leave(self, process: Process) -> None:
        """An orderly end of a process whose scheduler has stopped."""
        process.alive = False
        process.store.kill()
        self.world.dead_claims.extend(process.claims)
        self.world.bury()

    def _initialize(self, process: Process) -> None:
        lot, world, scheduler = self._lot, self.world, process.scheduler
        if scheduler is None:
            return
        registrations = world.registrations(self._tasks)
        refuse = getattr(scheduler, "_on_drift", "") == "refuse"
        world.recorder.expect(registrations, world.zone, refuse_drift=refuse)
        beginning = process.loop.create_task(scheduler.initialize(registrations))
        if lot.random() < 0.1:
            stopping = process.loop.create_task(scheduler.stop())
            self._finish(beginning, (StoreError, ScheduleDriftError))
            self._finish(stopping, ())
        else:
            self._finish(beginning, (StoreError, ScheduleDriftError))
        world.run(world.clock.settle())
        world.mark()

    def _initialize_invalid(self, process: Process) -> None:
        if process.scheduler is None:
            return
        tasks = draw_tasks(self._lot, {}) or {"ant": DeclaredTask("* * * * *", 0)}
        registrations = self._lot.choice(_INVALID)(self.world.registrations(tasks)[0])
        self.world.recorder.expect((), self.world.zone, valid=False)
        if not self._expect(process.scheduler.initialize(registrations), (RegistrationError, CronError)):
            self.world.complain("invalid registrations were accepted")

    def _restart(self) -> None:
        lot, world = self._lot, self.world
        process = world.process
        if process is None or process.scheduler is None or not process.alive:
            return
        if lot.random() < 0.2:
            world.faults.crash_at = lot.choice(_STOP_POINTS)
        stops = [process.loop.create_task(process.scheduler.stop()) for _ in range(lot.choice((1, 1, 1, 2, 3)))]
        for stop in stops:
            self._finish(stop, ())
        world.faults.crash_at = None
        if world.alive and process.scheduler.state not in ("stopped", "uninitialized"):
            world.complain(f"after stop the scheduler is {process.scheduler.state}")
        if world.alive and any(process.inside.values()):
            world.complain(f"after stop tasks are running: {+process.inside}")
        if world.alive and lot.random() < 0.7:
            self._start()

    def _expect(self, work: Coroutine[Any, Any, object], errors: tuple[type[BaseException], ...]) -> bool:
        """Do it to the end; whether it raised one of these."""
        process = self.world.process
        if process is None or not process.alive:
            work.close()
            return False
        return self._finish(process.loop.create_task(work), errors)

    def _finish(self, task: asyncio.Task[Any], errors: tuple[type[BaseException], ...]) -> bool:
        """Let time pass until the task has ended; whether it raised one of `errors`. Others are problems."""
        world = self.world
        world.run(world.clock.settle())
        for _ in range(_MOST_PIECES):
            if task.done() or not world.alive:
                break
            if world.process is not None:
                self._let_go(world.process)
            world.pass_time(
                _SECOND if world.clock.next_in is None else max(world.clock.next_in, timedelta(microseconds=1))
            )
        if not world.alive:
            return False
        if not task.done():
            world.complain(f"{task.get_coro()} did not end")
            return False
        error = task.exception()
        if error is not None and not isinstance(error, errors):
            world.complain(f"raised: {error!r}")
        return isinstance(error, errors)

    # --- the end --------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        world = self.world
        world.faults.heal()
        world.disturb()
        world.bury()
        for _ in range(3):
            if world.alive and self._state() == "running":
                break
            self._start()
            world.bury()
            world.faults.heal()
        world.pass_time(timedelta(minutes=3))
        process = world.process
        if process is not None and process.scheduler is not None:
            self._finish(process.loop.create_task(process.scheduler.stop()), ())
        self._verify("at the end")

    def _verify(self, when: str) -> None:
        async def look() -> list[str]:
            store = self.world.open_store()
            await store.open()
            report = await verify_store(store)
            await store.close()
            return [problem.text for problem in report.problems]

        self.world.counts["verified"] += 1
        self.world.problems.extend(f"{when}: {text}" for text in self.world.run(look()) or ())
