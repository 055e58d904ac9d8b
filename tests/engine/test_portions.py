"""A large batch of coroutines starts in portions, one in each turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from noonbell.core.records import Settlement, Start
from noonbell.engine.engine import Engine
from noonbell.engine.execution import PORTION
from noonbell.engine.jobs import Batch, Capacity, Job
from noonbell.engine.metrics import Metrics
from noonbell.ports import Claimed, Settled
from noonbell.testing import ManualClock
from tests.engine.test_looks import START

DAY = 86_400_000_000
MANY = 2 * PORTION + 40


class EndingStore:
    """Takes every end, and what is handed back."""

    def __init__(self) -> None:
        self.handed_back: list[int] = []
        self.settled: list[int] = []
        self.runs = self

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        self.settled.extend(settlement.start.sid for settlement in settlements)
        return Settled([], {})

    async def hand_back(self, starts: Sequence[Start], owner: str, now: int) -> None:
        del owner, now
        self.handed_back.extend(start.sid for start in starts)

    async def read(self, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        return []


class JobSource:
    """Each of its claims brings MANY runs, as many times as `claims` says, and then none."""

    owner = "me"

    def __init__(self, claims: int) -> None:
        self.metrics = Metrics()
        self.left_due = False
        self.claims = claims
        self.called: list[int] = []
        self.began = asyncio.Event()  # a portion has been called
        self.called_at_claim: list[int] = []
        self.failed: list[type[BaseException]] = []

    async def call(self, sid: int) -> None:
        self.called.append(sid)
        if len(self.called) == PORTION:
            self.began.set()

    async def claim(self, now: int, last_poll_at: int | None, room: Capacity) -> Batch:
        del last_poll_at, room
        first = len(self.called_at_claim) * MANY
        self.called_at_claim.append(len(self.called))
        if len(self.called_at_claim) > self.claims:
            return Batch([], Claimed([], 0, full=False, next_wake_at=now + DAY, quarantined=[]))
        starts = [Start(sid, "scheduled", now, 1, 1, "cron", 1, now, now, None) for sid in range(first, first + MANY)]
        jobs = [Job(start, None, "run", lambda sid=start.sid: self.call(sid), is_async=True) for start in starts]
        return Batch(jobs, Claimed(starts, MANY, full=True, next_wake_at=None, quarantined=[]))

    async def poll(self, now: int, last_poll_at: int | None) -> None: ...

    def due_at(self, job: Job[Any]) -> int:
        return job.start.due_at

    def started(self, job: Job[Any], at: int) -> None: ...

    def retry_at(self, job: Job[Any], at: int, error: BaseException) -> int | None: ...

    def ended(self, job: Job[Any], at: int, error: BaseException | None, retry_at: int | None) -> None:
        del job, at, retry_at
        if error is not None:
            self.failed.append(type(error))

    def prepare_end(self, job: Job[Any], settlement: Settlement, error: BaseException | None) -> None: ...


class Bench:
    def __init__(self, claims: int = 1) -> None:
        self.clock, self.ledger, self.work = ManualClock(START), EndingStore(), JobSource(claims)
        self.engine = Engine(cast("Any", self.ledger), self.clock, self.work, longest_wait_us=DAY)

    async def begin(self) -> None:
        """Return when the first portion has been called, and no other."""
        self.engine.start()
        await self.work.began.wait()
        assert len(self.work.called) == PORTION


async def test_other_work_gets_its_turn_between_the_portions() -> None:
    bench = Bench()
    await bench.begin()
    seen = [len(bench.work.called)]
    while len(bench.work.called) < MANY:
        await asyncio.sleep(0)
        seen.append(len(bench.work.called))
    assert seen == [PORTION, 2 * PORTION, MANY]
    assert bench.work.called == list(range(MANY))
    await bench.clock.settle()
    assert bench.ledger.settled == list(range(MANY))
    await bench.engine.stop()


async def test_the_next_claim_is_under_way_while_a_batch_starts_and_what_it_brings_starts_after_it() -> None:
    bench = Bench(claims=3)
    await bench.begin()
    await bench.clock.settle()
    assert bench.work.called == list(range(3 * MANY))
    claimed_at = bench.work.called_at_claim
    assert claimed_at[0] == 0
    assert 0 < claimed_at[1] < MANY < claimed_at[2] < 2 * MANY, "one claim ahead, and no more"
    await bench.engine.stop()


async def test_a_stop_hands_back_what_has_had_no_turn() -> None:
    bench = Bench()
    await bench.begin()
    await bench.engine.stop()
    assert sorted(bench.work.called + bench.ledger.handed_back) == list(range(MANY)), "each is called or handed back"
    assert len(bench.ledger.handed_back) >= MANY - 2 * PORTION
    assert bench.ledger.settled == bench.work.called


async def test_runs_whose_schedules_are_deleted_before_they_begin_are_not_called() -> None:
    bench = Bench()
    await bench.begin()
    deleted = [PORTION, MANY - 1]  # one in the portion that is about to begin, and one in the last
    for sid in deleted:
        bench.engine.deleted(sid)
    await bench.clock.settle()
    assert bench.work.called == [sid for sid in range(MANY) if sid not in deleted]
    assert bench.work.failed == [asyncio.CancelledError] * 2
    assert not any(map(bench.engine.running, deleted))
    assert sorted(bench.ledger.settled) == bench.work.called
    await bench.engine.stop()
