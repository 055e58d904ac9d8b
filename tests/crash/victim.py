"""The program that is killed: a Scheduler with a handful of tasks on a clock that runs fast.

    python -m tests.crash.victim DATABASE JOURNAL ORIGIN POINT NTH

It dies by SIGKILL of its own hand when it comes to POINT for the NTH time, or lives until it is told to stop by a line
on standard input. Every start and end of an action is a line in the journal, synced before the action goes on. A life
begins with a line of its own, and so does a death by its own hand, with the attempts that are in the middle of it.

The points are put around the store from outside: the product knows nothing of them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, get_args

import apsw

from noonbell.core.records import Settlement, Start
from noonbell.declarative.events import SchedulerEvent, TaskRetryStarted, TaskRunStarted
from noonbell.declarative.scheduler import Scheduler
from noonbell.engine import SystemClock
from noonbell.ports import Decide, LaneClaim, Settled
from noonbell.store.sqlite.connection import Connection
from noonbell.store.sqlite.store import SqliteStore
from tests.store.overriding import Overriding

Point = Literal[
    "before-claim-commit", "after-claim-commit", "in-callback", "before-settle-commit", "after-settle-commit"
]
POINTS: tuple[Point, ...] = get_args(Point)
SPEED = 600  # a minute passes in a tenth of a second
FIRST_INSTANT = 1_772_323_200_000_000  # 2026-03-01, midnight
MINUTELY = ("quick-1", "quick-2", "quick-3", "slow", "plain", "flaky")
EVERY_FIVE = "every-five"

T = TypeVar("T")


class FastClock:
    """Time since `origin` (on the system's clock that is never set), many times as fast; the same for every life."""

    def __init__(self, origin: float) -> None:
        self._origin = origin
        self._system = SystemClock()

    def now(self) -> int:
        return FIRST_INSTANT + int((self._system.elapsed() - self._origin) * SPEED * 1_000_000)

    def elapsed(self) -> float:
        return self._system.elapsed() * SPEED

    async def wait(self, until: int, wakeup: asyncio.Event) -> None:
        system = self._system
        await system.wait(system.now() + (until - self.now()) // SPEED, wakeup)


class Journal:
    """Lines that are on disk when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, what: str, **facts: Any) -> None:
        os.write(self._descriptor, json.dumps({"what": what, **facts}).encode() + b"\n")
        os.fsync(self._descriptor)


class Reaper:
    """Kills this process the nth time that it comes to the point."""

    def __init__(self, journal: Journal, point: str, nth: int) -> None:
        self._journal = journal
        self._point = point
        self._left = nth
        self._lock = threading.Lock()

    def at(self, point: Point, attempts: Sequence[tuple[int, int, int]], *, ended: bool = False) -> None:
        """`attempts` are (sid, run_for, attempt) of what is under way here; `ended`: none of them will be retried."""
        if point != self._point or not attempts:
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._journal.write("death", point=point, attempts=attempts, ended=ended)
                _die()


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    while True:  # the signal is on its way
        time.sleep(1)


class MortalConnection(Connection):
    """Shows the result of a transaction before it is committed."""

    before_commit: Callable[[Any], None] | None = None

    async def run(
        self,
        work: Callable[[apsw.Connection], T],
        *,
        write: bool = True,
        peek: Callable[[apsw.Connection], T | None] | None = None,
    ) -> T:
        show, self.before_commit = self.before_commit, None

        def shown(db: apsw.Connection) -> T:
            result = work(db)
            if show is not None:
                show(result)
            return result

        return await super().run(shown, write=write, peek=peek)


class MortalStore(Overriding, SqliteStore):
    """The SQLite store with the points around its claim and its settle."""

    def __init__(self, path: Path, reaper: Reaper) -> None:
        super().__init__(path)
        self._file = self._mortal = MortalConnection(path, threaded=True, busy_timeout_ms=5000)
        self._put_parts(self._file)
        self.override()
        self._reaper = reaper

    async def runs_claim(self, lane: str, owner: str, now: int, limit: int, decide: Decide, **more: Any) -> LaneClaim:
        # the connection takes this up at once: nothing is awaited between here and its `run`
        self._mortal.before_commit = lambda made: self._reaper.at("before-claim-commit", _starts(made.claimed.starts))
        claim = await self.plain.runs.claim(lane, owner, now, limit, decide, **more)
        self._reaper.at("after-claim-commit", _starts(claim.claimed.starts))
        return claim

    async def runs_settle(self, settlements: Sequence[Settlement]) -> Settled:
        attempts = _starts([settlement.start for settlement in settlements])
        ended = all(settlement.wake_at is None for settlement in settlements)
        self._mortal.before_commit = lambda _: self._reaper.at("before-settle-commit", attempts, ended=ended)
        settled = await self.plain.runs.settle(settlements)
        self._reaper.at("after-settle-commit", attempts, ended=ended)
        return settled


def _starts(starts: Sequence[Start]) -> list[tuple[int, int, int]]:
    return [(start.sid, start.run_for, start.attempt) for start in starts]


class Actions:
    """The tasks. Which run an action belongs to is known from the event that precedes it."""

    def __init__(self, journal: Journal, reaper: Reaper) -> None:
        self._journal = journal
        self._reaper = reaper
        self._current: dict[str, tuple[str, int]] = {}  # a task has one run at a time

    def on_event(self, event: SchedulerEvent) -> None:
        if isinstance(event, TaskRunStarted | TaskRetryStarted):
            self._current[event.task] = (event.run_id, event.attempt)

    def registrations(self) -> list[tuple[str, str, Callable[[], Any], timedelta]]:
        retry = timedelta(seconds=20)
        every_minute = [(name, "* * * * *", self._action(name), retry) for name in MINUTELY]
        fives = ",".join(str(minute) for minute in range(0, 60, 5))
        return [*every_minute, (EVERY_FIVE, f"{fives} * * * *", self._action(EVERY_FIVE), retry)]

    def _action(self, name: str) -> Callable[[], Any]:
        seconds = 90 / SPEED if name == "slow" else 0.0

        async def act() -> None:
            run, attempt = self._begin(name)
            await asyncio.sleep(seconds)
            if name == "flaky" and random.random() < 0.5:
                self._journal.write("end", task=name, run=run, attempt=attempt, ok=False)
                raise RuntimeError("not this time")
            self._journal.write("end", task=name, run=run, attempt=attempt, ok=True)

        def act_in_thread() -> None:
            run, attempt = self._begin(name)
            time.sleep(0.01)
            self._journal.write("end", task=name, run=run, attempt=attempt, ok=True)

        return act_in_thread if name == "plain" else act

    def _begin(self, name: str) -> tuple[str, int]:
        run, attempt = self._current[name]
        self._journal.write("start", task=name, run=run, attempt=attempt)
        self._reaper.at("in-callback", [(-1, int(run.rpartition(":")[2]), attempt)])
        return run, attempt


async def live(database: Path, journal_path: Path, origin: float, point: str, nth: int) -> None:
    journal = Journal(journal_path)
    reaper = Reaper(journal, point, nth)
    actions = Actions(journal, reaper)
    store = MortalStore(database, reaper)
    scheduler = Scheduler(store, clock=FastClock(origin), on_event=actions.on_event, time_zone="UTC")
    journal.write("life", pid=os.getpid())
    sys.stdout.write("alive\n")
    sys.stdout.flush()
    await scheduler.initialize(actions.registrations())
    journal.write("initialized")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await scheduler.stop()
    await store.close()
    journal.write("stopped")


if __name__ == "__main__":
    logging.disable()  # failures and late starts are the everyday life of this program
    asyncio.run(live(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4], int(sys.argv[5])))
