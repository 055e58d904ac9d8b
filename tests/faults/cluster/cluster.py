"""One database with its workers and the log of their targets: made, put through trouble, brought to rest and judged.

Whoever does something to a worker writes it into the log, with the time before it is done: the checker explains repeats
by that. Every wait has a limit: what does not happen in time is a finding, not a hang.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from noonbell.errors import StoreUnavailableError
from noonbell.ledger import verify_store
from noonbell.ledger.schedule_audit import CLOCK_SKEW
from noonbell.ports import Ledger
from noonbell.schedules import Schedules
from noonbell.store.postgres import PostgresStore
from noonbell.store.sqlite import SqliteStore
from tests.crash.schedules_judge import read_ledger
from tests.faults.cluster import checker, evidence
from tests.faults.cluster.catch_up import Unpolled
from tests.faults.cluster.clock import SECOND, FileClock, StillClock, new_setting, real_us
from tests.faults.cluster.nursery import Nursery, WorkerProcess
from tests.faults.cluster.plan import Plan
from tests.faults.cluster.worker import Options
from tests.patience import PATIENCE_SECONDS

# What was cut off by many deaths starts again one by one.
REST_SECONDS: Final = 300.0
# In which time a worker has to be gone that was told to stop.
STOP_SECONDS: Final = PATIENCE_SECONDS


@dataclass(frozen=True)
class Setting:
    """How a cluster is made."""

    address: str
    folder: Path
    lease_seconds: float = 2.0
    speed: int = 3
    timeline: str | None = None
    statement_seconds: float = 3.0
    workers: int = 3
    seed: int = 1


@dataclass
class Outcome:
    """What came of a cluster."""

    findings: checker.Findings
    story: checker.Journal
    seconds: float
    trials: int = 0
    facts: dict[str, Any] = field(default_factory=dict)


class Cluster:
    """A database, and the workers that run its lane."""

    def __init__(self, nursery: Nursery, setting: Setting) -> None:
        setting.folder.mkdir(parents=True, exist_ok=True)
        self.setting = setting
        self.chosen = random.Random(setting.seed)
        self.clock_setting = new_setting(setting.folder / "clock", speed=setting.speed)
        self.clock = FileClock(self.clock_setting)
        self.workers: list[WorkerProcess] = []
        self.plan = Plan()
        self.wrong: list[str] = []
        self.trials = 0
        self.facts: dict[str, Any] = {}
        self.unpolled: list[Unpolled] | None = None  # where catch-up policies are judged
        self._nursery = nursery
        self._began = real_us()
        self._evidence_file = setting.folder / "evidence"
        self.evidence = evidence.Evidence(self._evidence_file)
        self._all: list[WorkerProcess] = []
        self._kept: Ledger | None = None

    # --- what there is to run -----------------------------------------------------------------------------------------

    def ahead(self, seconds: float) -> int:
        """The instant that is so many seconds of the machine away."""
        return self.clock.now() + round(seconds * self.setting.speed * SECOND)

    async def create(self, plan: Plan) -> None:
        """Put the plan into the database, as of the moment it begins with: a busy machine may be late for that."""
        self.plan.fields.extend(plan.fields)
        self.plan.wanted.update(plan.wanted)
        async with self.store() as store:
            began = min(wanted.first for wanted in plan.wanted.values()) - SECOND
            schedules = Schedules(store, clock=StillClock(self.clock_setting, min(began, self.clock.now())))
            many: Any = plan.fields
            await schedules.create_many(many)

    @asynccontextmanager
    async def store(self, *, read_only: bool = False) -> AsyncIterator[Ledger]:
        if self._kept is not None:
            yield self._kept
            return
        address = self.setting.address
        store: Ledger
        if "://" in address:
            store = PostgresStore(address, pool_size=1, read_only=read_only)
        else:
            store = SqliteStore(address, read_only=read_only)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def kept_open(self) -> AsyncIterator[Ledger]:
        """One store for all that is asked here meanwhile, as of now: later it may not be let in any more."""
        async with self.store() as store:
            self._kept = store
            try:
                yield store
            finally:
                self._kept = None

    # --- workers ------------------------------------------------------------------------------------------------------

    async def hire(
        self, *, address: str | None = None, clock: Any = None, nursery: Nursery | None = None
    ) -> WorkerProcess:
        """One more worker; it need not be up yet."""
        worker = await self._start(nursery or self._nursery, address=address, clock=clock)
        self.workers.append(worker)
        self._all.append(worker)
        return worker

    async def turned_away(self) -> str:
        """Start one that should not be let in, and goes by itself; what it leaves in a log of its own."""
        log = self.setting.folder / "turned-away"
        worker = await self._start(self._nursery, log=str(log))
        if not await in_time(worker.ended.wait(), PATIENCE_SECONDS):
            self.wrong.append(f"worker {worker.number} was not turned away")
            await self._end(worker)
        return log.read_text(encoding="utf-8")

    async def _start(
        self, nursery: Nursery, *, address: str | None = None, clock: Any = None, log: str | None = None
    ) -> WorkerProcess:
        setting = self.setting
        return await nursery.start(
            Options(
                number=nursery.next_number(),
                address=address or setting.address,
                evidence=str(self._evidence_file),
                clock=clock or self.clock_setting,
                log=log or str(setting.folder / "log"),
                lease_seconds=setting.lease_seconds,
                statement_seconds=setting.statement_seconds,
                timeline=setting.timeline,
            )
        )

    async def up(self, worker: WorkerProcess) -> None:
        first = [asyncio.ensure_future(event.wait()) for event in (worker.up, worker.ended)]
        await asyncio.wait(first, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for task in first:
            task.cancel()
        if not worker.up.is_set():
            self.wrong.append(f"worker {worker.number} did not come up")

    async def kill(self, worker: WorkerProcess) -> None:
        """By SIGKILL."""
        self.workers.remove(worker)
        began = real_us()
        worker.signal(signal.SIGKILL)
        await worker.ended.wait()
        self.evidence.write("killed", worker.number, t0=began)

    async def pause(self, worker: WorkerProcess, seconds: float) -> None:
        """By SIGSTOP, for so long."""
        began = real_us()
        worker.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        worker.signal(signal.SIGCONT)
        self.evidence.write("pause", worker.number, t0=began)

    async def dismiss(self, worker: WorkerProcess) -> float:
        """By SIGTERM; how many seconds it took to go."""
        if worker in self.workers:
            self.workers.remove(worker)
        began = real_us()
        worker.signal(signal.SIGTERM)
        if not await in_time(worker.ended.wait(), STOP_SECONDS):
            self.wrong.append(f"worker {worker.number} was not gone in {STOP_SECONDS:g} s")
            await self._end(worker)
        return (real_us() - began) / 1_000_000

    async def _end(self, worker: WorkerProcess) -> None:
        began = real_us()
        worker.signal(signal.SIGCONT)
        worker.signal(signal.SIGKILL)
        await worker.ended.wait()
        self.evidence.write("killed", worker.number, t0=began)

    async def goes_on(self) -> None:
        """Until something starts."""
        with self._evidence_file.open("rb") as lines:
            lines.seek(0, os.SEEK_END)

            async def begun() -> bool:
                return b'"m":"start"' in lines.read()

            if self.clock.now() < self.plan.last and not await happens(begun, PATIENCE_SECONDS):
                self.wrong.append(f"nothing has started in {PATIENCE_SECONDS:g} s")

    # --- the end ------------------------------------------------------------------------------------------------------

    async def rest(self) -> None:
        """Until everything that was planned has come, and nothing executes or waits any more."""
        await asyncio.sleep(max(0.0, (self.plan.last - self.clock.now()) / self.setting.speed / SECOND))
        async with self.store(read_only=True) as store:
            if not await happens(lambda: self._at_rest(store), REST_SECONDS):
                self.wrong.append(f"it has not come to rest in {REST_SECONDS:g} s")

    def _nobody_left(self) -> bool:
        return bool(self.workers) and all(worker.status is not None for worker in self.workers)

    async def _at_rest(self, store: Ledger) -> bool:
        if self._nobody_left():
            return True  # there is nobody to wait for: what is missing is found soon enough
        try:
            if await store.read("live", None, 1):
                return False
            rows = await store.read("schedules", None, 1_000_000)
            if any(enabled and next_run_at is not None for _, _, _, enabled, _, _, next_run_at, *_ in rows):
                return False
            return not await store.read("live", None, 1)  # a claim may have come between the two reads
        except StoreUnavailableError:
            return False

    async def judged(self) -> Outcome:
        """Stop whoever is left, and compare."""
        await asyncio.gather(*(self.dismiss(worker) for worker in list(self.workers)))
        await asyncio.gather(*(self._end(worker) for worker in self._all if worker.status is None))
        story = checker.read(evidence.read(self._evidence_file))
        async with self.store(read_only=True) as store:
            lease = self.setting.lease_seconds if "://" in self.setting.address else None
            findings = checker.check(self.plan, story, await read_ledger(store), lease, self.unpolled)
            # `verify` grants a second to clocks that differ, and to a look that goes by an earlier reading of its own.
            report = await verify_store(store, clock_skew=self.setting.speed * CLOCK_SKEW)
        findings.other.extend(self.wrong)
        findings.other.extend(
            f"worker {worker.number} ended with status {worker.status}; see {self.setting.folder / 'log'}"
            for worker in self._all
            if worker.status not in (0, -signal.SIGKILL)
        )
        findings.other.extend(f"verify: {problem.text}" for problem in report.problems)
        findings.other.extend(
            f"worker {number} cut off what ran when it stopped" for number, whole in story.gone.items() if not whole
        )
        self.evidence.close()
        return Outcome(findings, story, (real_us() - self._began) / 1_000_000, self.trials, self.facts)


async def in_time(work: Awaitable[Any], seconds: float) -> bool:
    """Whether it is done by then; else it is given up."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return False
    return True


async def happens(found: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Whether it comes true in time."""
    until = real_us() + seconds * 1_000_000
    while real_us() < until:
        if await found():
            return True
        await asyncio.sleep(0.1)
    return False
