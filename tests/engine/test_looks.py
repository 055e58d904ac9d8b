"""When the loop looks: as the ledger says of each end that it records, and at any end while something was left due."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from noonbell.core.records import Settlement, Start
from noonbell.engine.engine import Engine
from noonbell.engine.jobs import Batch, Capacity, Job
from noonbell.engine.metrics import Metrics
from noonbell.errors import NotStartedError
from noonbell.ports import Claimed, Settled
from noonbell.testing import ManualClock

START = datetime(2026, 3, 4, 10, 5, 20, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DAY = 86_400_000_000


class EndingStore:
    """Says of each end what it is told to say."""

    def __init__(self) -> None:
        self.answer: Callable[[Sequence[Settlement]], Settled] = lambda _: Settled([], {})
        self.runs = self.engines = self.schedules = self

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        return self.answer(settlements)

    async def read(self, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        return []


class JobSource:
    """Its first look brings one run, which ends when it is told to; nothing else is ever due."""

    owner = "me"

    def __init__(self, clock: ManualClock) -> None:
        self.metrics = Metrics()
        self.left_due = False
        self.looks: list[datetime] = []
        self.end = asyncio.Event()
        self.claiming = asyncio.Event()  # a claim takes until this is set
        self.claiming.set()
        self._clock = clock

    async def claim(self, now: int, last_poll_at: int | None, room: Capacity) -> Batch:
        del last_poll_at, room
        self.looks.append(self._clock.at)
        starts = []
        if len(self.looks) == 1:
            starts = [Start(1, "scheduled", now, 1, 1, "cron", 1, now, now, None)]
        await self.claiming.wait()
        jobs = [Job(start, None, "run", self.end.wait, is_async=True) for start in starts]
        return Batch(jobs, Claimed(starts, len(starts), full=False, next_wake_at=now + DAY, quarantined=[]))

    async def poll(self, now: int, last_poll_at: int | None) -> None: ...

    def due_at(self, job: Job[Any]) -> int:
        return job.start.due_at

    def started(self, job: Job[Any], at: int) -> None: ...

    def retry_at(self, job: Job[Any], at: int, error: BaseException) -> int | None: ...

    def ended(self, job: Job[Any], at: int, error: BaseException | None, retry_at: int | None) -> None: ...

    def prepare_end(self, job: Job[Any], settlement: Settlement, error: BaseException | None) -> None: ...


class Bench:
    def __init__(self) -> None:
        self.clock, self.ledger = ManualClock(START), EndingStore()
        self.work = JobSource(self.clock)
        self.engine = Engine(cast("Any", self.ledger), self.clock, self.work, longest_wait_us=DAY)

    async def begin(self) -> None:
        self.engine.start()
        await self.clock.advance(SECOND)

    async def end(self) -> None:
        self.work.end.set()
        await self.clock.settle()

    @property
    def looks(self) -> list[int]:
        """How many seconds after the start each was."""
        return [(at - START) // SECOND for at in self.work.looks]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    made.work.end.set()
    made.work.claiming.set()
    await made.engine.stop()


async def test_an_end_that_wakes_nothing_brings_no_look(bench: Bench) -> None:
    await bench.begin()
    await bench.end()
    await bench.clock.advance(60 * SECOND)
    assert bench.looks == [0]


async def test_an_end_brings_a_look_when_what_it_has_woken_is_due(bench: Bench) -> None:
    at = bench.clock.now() + 10_000_000
    bench.ledger.answer = lambda _: Settled([], {1: at, 2: at + 1})
    await bench.begin()
    await bench.end()
    assert bench.looks == [0], "that is not now"
    await bench.clock.advance(60 * SECOND)
    assert bench.looks == [0, 10]


async def test_what_is_woken_in_the_past_is_looked_at_at_once(bench: Bench) -> None:
    bench.ledger.answer = lambda _: Settled([], {1: bench.clock.now() + 5_000_000, 2: bench.clock.now() - 1})
    await bench.begin()
    await bench.end()
    assert bench.looks == [0, 1]


async def test_a_stale_end_brings_a_look(bench: Bench) -> None:
    """It may have been recorded by a try that seemed to fail, and what it has woken was told to nobody."""
    bench.ledger.answer = lambda settlements: Settled(list(settlements), {})
    await bench.begin()
    await bench.end()
    assert bench.looks == [0, 1]


async def test_while_something_is_left_due_any_end_brings_a_look(bench: Bench) -> None:
    bench.work.left_due = True
    await bench.begin()
    bench.work.left_due = False
    await bench.end()
    assert bench.looks == [0, 1]


async def test_an_end_during_a_look_that_leaves_something_due_brings_another(bench: Bench) -> None:
    await bench.begin()
    bench.work.claiming.clear()
    bench.engine.wake(0)
    await bench.clock.settle()
    assert bench.looks == [0, 1]
    await bench.end()  # what made room was not known to the claim
    bench.work.left_due = True
    bench.work.claiming.set()
    await asyncio.sleep(0)
    bench.work.left_due = False
    await bench.clock.settle()
    assert bench.looks == [0, 1, 1]


async def test_who_asks_for_a_later_look_gets_one_then_and_none_before(bench: Bench) -> None:
    await bench.begin()
    for seconds in (30, 20, 25):
        bench.engine.wake(bench.clock.now() + seconds * 1_000_000)
        await bench.clock.settle()
    assert bench.looks == [0]
    await bench.clock.advance(60 * SECOND)
    assert bench.looks == [0, 21]


async def test_a_clock_that_was_set_back_does_not_put_off_a_look_beyond_the_longest_wait(bench: Bench) -> None:
    await bench.begin()
    bench.clock.step(-7 * timedelta(days=1))
    bench.engine.wake(bench.clock.now() + 2 * DAY)  # sooner than what is planned, by the clock as it is now
    await bench.clock.advance(timedelta(days=1) + SECOND)
    assert len(bench.looks) == 2


class WaitingWork(JobSource):
    """Its first look brings three runs that wait for a slot; a stop comes before they have one."""

    async def claim(self, now: int, last_poll_at: int | None, room: Capacity) -> Batch:
        await super().claim(now, last_poll_at, room)

        async def call(_: Callable[..., None]) -> None:
            await self.end.wait()
            raise NotStartedError

        starts = [Start(sid, "scheduled", now, 1, 1, "cron", 1, now, now, None) for sid in (1, 2, 3)]
        jobs = [Job(start, None, "run", call, is_async=True, waits=True) for start in starts]
        return Batch(jobs, Claimed(starts, 3, full=False, next_wake_at=now + DAY, quarantined=[]))


async def test_runs_that_a_stop_keeps_from_starting_are_handed_back_together(bench: Bench) -> None:
    handed_back: list[list[int]] = []

    async def hand_back(starts: Sequence[Start], owner: str, at: int) -> None:
        handed_back.append([start.sid for start in starts])

    setattr(bench.ledger, "hand_back", hand_back)  # noqa: B010 - only this test needs it
    work = WaitingWork(bench.clock)
    engine = Engine(cast("Any", bench.ledger), bench.clock, work, longest_wait_us=DAY)
    engine.start()
    await bench.clock.advance(SECOND)
    engine.request_stop()
    work.end.set()
    await bench.clock.settle()
    assert handed_back == [[1, 2, 3]]
    assert not any(engine.running(sid) for sid in (1, 2, 3))
    await engine.stop()
