"""A store in trouble while the engine runs: told, and gone on when the cause is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from noonbell.core.records import Settlement
from noonbell.declarative import Scheduler
from noonbell.errors import StoreUnavailableError
from noonbell.ports import RunFilter, Settled
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from noonbell.testing.faults import Faults, FaultyStore
from noonbell.testing.manual_clock import ManualClock
from tests.patience import PATIENCE_SECONDS
from tests.store.overriding import Overriding

START = datetime(2026, 3, 4, 10, 5, 20, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Host:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock(START)
        self.store = SqliteStore(path, threaded=False, busy_timeout_ms=1)
        self.starts: list[datetime] = []
        self.scheduler = Scheduler(self.store, clock=self.clock, time_zone="UTC")

    async def work(self) -> None:
        self.starts.append(self.clock.at)

    async def begin(self) -> None:
        await self.scheduler.initialize([("t", "* * * * *", self.work, MINUTE)])
        await self.clock.advance(timedelta(seconds=1))


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    made = Host(tmp_path / "app.db")
    yield made
    await made.scheduler.stop()
    await made.store.close()


async def test_a_locked_file_is_told_and_waited_for(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    await host.begin()
    other = apsw.Connection(str(host.path))
    other.execute("BEGIN IMMEDIATE")
    await host.clock.advance(3 * MINUTE)
    assert len(host.starts) == 1
    assert "database is locked" in caplog.text
    assert str(host.path) in caplog.text
    other.execute("ROLLBACK")
    await host.clock.advance(MINUTE)
    assert len(host.starts) >= 2
    runs = await host.store.history.runs(RunFilter(1, 0, host.clock.now()))
    spans = await host.store.history.spans(1, 0, host.clock.now())
    minutes = len(runs) + sum(span.n for span in spans)
    assert minutes == 5  # 10:05 to 10:09: each has its verdict


async def test_a_full_disk_is_told_and_survived(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    # enough tasks that their live runs need new pages
    await host.scheduler.initialize([(f"t{n}", "6 10 * * *", host.work, MINUTE) for n in range(2000)])
    await host.clock.advance(timedelta(seconds=1))
    db = host.store._connection._db
    assert db is not None
    full = db.execute("PRAGMA page_count").get
    db.execute(f"PRAGMA max_page_count = {full}")
    await host.clock.advance(2 * MINUTE)
    assert host.starts == []
    assert "full" in caplog.text
    db.execute("PRAGMA max_page_count = 1000000")
    await host.clock.advance(MINUTE)
    assert len(host.starts) == 2000
    assert host.scheduler.state == "running"


async def test_a_read_only_file_is_told_and_survived(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    await host.begin()
    db = host.store._connection._db
    assert db is not None
    db.execute("PRAGMA query_only = ON")
    await host.clock.advance(2 * MINUTE)
    assert len(host.starts) == 1
    assert "readonly" in caplog.text
    db.execute("PRAGMA query_only = OFF")
    await host.clock.advance(MINUTE)
    assert len(host.starts) == 3  # once for the two that were missed, then 10:08


async def test_the_pauses_between_attempts_to_record_an_end_grow_to_five_seconds() -> None:
    clock = ManualClock(START)
    tries: list[float] = []

    class Failing(Overriding, MemoryStore):
        async def runs_settle(self, settlements: Sequence[Settlement]) -> Settled:
            tries.append((clock.at - START).total_seconds())
            if len(tries) < 8:
                raise StoreUnavailableError("no store")
            return await self.plain.runs.settle(settlements)

    async def work() -> None:
        pass

    store = Failing()
    scheduler = Scheduler(store, clock=clock, time_zone="UTC")
    await scheduler.initialize([("t", "6 10 * * *", work, MINUTE)])
    await clock.advance(2 * MINUTE)
    assert [after - before for before, after in pairwise(tries)] == [0.5, 1, 2, 4, 5, 5, 5]
    assert await store.runs.live(1) == []
    await scheduler.stop()
    await store.close()


async def test_the_end_of_a_run_waits_until_it_can_be_written() -> None:
    clock = ManualClock(START)
    faults = Faults()
    store = FaultyStore(MemoryStore(), faults, clock)
    finish = asyncio.Event()
    scheduler = Scheduler(store, clock=clock, time_zone="UTC")
    await scheduler.initialize([("t", "5 10 * * *", finish.wait, MINUTE)])
    await clock.advance(timedelta(seconds=1))
    faults.writes = 3
    finish.set()
    await clock.advance(timedelta(seconds=10))
    assert faults.writes == 0
    assert [run.outcome for run in await store.history.runs(RunFilter(1, 0, clock.now()))] == ["succeeded"]
    await scheduler.stop()


async def test_a_stop_ends_beside_a_store_that_stays_broken(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(START)
    faults = Faults()
    data = MemoryStore().data
    finish = asyncio.Event()
    scheduler = Scheduler(FaultyStore(MemoryStore(data), faults, clock), clock=clock, time_zone="UTC")
    await scheduler.initialize([("t", "5 10 * * *", finish.wait, MINUTE)])
    await clock.advance(timedelta(seconds=1))
    faults.writes = 1000
    finish.set()
    stopping = asyncio.create_task(scheduler.stop())
    await clock.advance(timedelta(minutes=2))
    await asyncio.wait_for(stopping, PATIENCE_SECONDS)
    assert scheduler.state == "stopped"
    assert "start again at the next start" in caplog.text
    faults.heal()
    again = Scheduler(MemoryStore(data), clock=clock, time_zone="UTC")
    starts = []

    async def work() -> None:
        starts.append(clock.at)

    await again.initialize([("t", "5 10 * * *", work, MINUTE)])
    await clock.advance(timedelta(seconds=1))
    await again.stop()
    assert len(starts) == 1


async def test_a_claim_whose_answer_was_lost_is_started_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(START)
    faults = Faults()
    starts = []

    async def work() -> None:
        starts.append(clock.at)

    store = FaultyStore(MemoryStore(), faults, clock)
    scheduler = Scheduler(store, clock=clock, time_zone="UTC")
    await scheduler.initialize([("t", "6 10 * * *", work, MINUTE)])
    await clock.advance(timedelta(seconds=1))
    faults.lost_answers = 1
    await clock.advance(MINUTE)
    await scheduler.stop()
    assert len(starts) == 1
    assert "claimed by a look that failed" in caplog.text
    run = (await store.history.runs(RunFilter(1, 0, clock.now())))[0]
    assert (run.outcome, run.attempts) == ("succeeded", 1)


async def test_a_missing_folder_is_a_clear_error(tmp_path: Path) -> None:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/no/such/folder/app.db")
    with pytest.raises(StoreUnavailableError, match="no/such/folder"):
        await scheduler.initialize([])
