"""FaultyStore: what is asked to go wrong goes wrong, once for each time it was asked, and nothing else does."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from noonbell.core.records import Declaration, LifecycleEvent, NewSchedule, Start, StoredSchedule, Turn
from noonbell.core.turns import left_alone
from noonbell.errors import StoreUnavailableError
from noonbell.ledger.ledger_rows import lifecycle_of, schedule_rows
from noonbell.ports import Claimed, Ledger
from noonbell.store.memory import MemoryStore
from noonbell.testing import Crash, Faults, FaultyStore, ManualClock
from noonbell.testing.storage_cases.base import record_step

NOON = int(datetime(2025, 6, 1, 12, 0, tzinfo=UTC).timestamp()) * 1_000_000
EVENT = LifecycleEvent("scheduler:x", NOON, "i", "init-ok")


class Setup:
    def __init__(self) -> None:
        self.clock = ManualClock(NOON)
        self.faults = Faults()
        self.inner = MemoryStore()
        self.store = FaultyStore(self.inner, self.faults, self.clock)

    async def events(self) -> int:
        return len(await lifecycle_of(self.inner, "scheduler:x"))

    async def claim(self) -> Claimed:
        return (await self.store.runs.claim("scheduler:x", "me", NOON, 10, start_it)).claimed

    async def claimed(self) -> int:
        return len(await self.inner.runs.live(owner="me"))


def start_it(stored: StoredSchedule) -> Turn:
    turn = left_alone(stored)
    turn.cursor_at = NOON
    turn.starts = [Start(stored.sid, "scheduled", NOON, 1, 1, "cron", stored.epoch, NOON, NOON, None)]
    return turn


@pytest.fixture
async def setup() -> Setup:
    made = Setup()
    await made.store.open()
    task = NewSchedule("id", "t", "cron", "* * * * *", "UTC", "", "", 0, NOON - 1, NOON)
    await made.store.schedules.declare(Declaration("scheduler:x", NOON, [task], [], [], [], [], []))
    return made


def test_it_is_a_store() -> None:
    store: Ledger = Setup().store
    assert "MemoryStore" in repr(store)


async def test_reads_fail_as_often_as_asked(setup: Setup) -> None:
    setup.faults.reads = 2
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="on demand"):
            await schedule_rows(setup.store)
    assert len(await schedule_rows(setup.store)) == 1


async def test_a_failed_write_has_written_nothing(setup: Setup) -> None:
    setup.faults.writes = 1
    with pytest.raises(StoreUnavailableError, match="write"):
        await record_step(setup.store, EVENT)
    assert await setup.events() == 0
    await record_step(setup.store, EVENT)
    assert await setup.events() == 1


async def test_a_lost_answer_has_written_all(setup: Setup) -> None:
    setup.faults.lost_answers = 1
    with pytest.raises(StoreUnavailableError, match="lost-answer"):
        await record_step(setup.store, EVENT)
    assert await setup.events() == 1


async def test_a_claim_that_is_rolled_back_has_decided_and_written_nothing(setup: Setup) -> None:
    setup.faults.rollbacks = 1
    with pytest.raises(StoreUnavailableError, match="rollback"):
        await setup.claim()
    assert await setup.claimed() == 0
    assert setup.faults.sound
    assert len((await setup.claim()).starts) == 1


async def test_latency_passes_on_the_clock(setup: Setup) -> None:
    setup.faults.latency = timedelta(seconds=2)
    writing = asyncio.create_task(record_step(setup.store, EVENT))
    await setup.clock.advance(timedelta(seconds=1.9))
    assert await setup.events() == 0
    await setup.clock.advance(timedelta(seconds=0.1))
    assert await setup.events() == 1
    assert not writing.done()
    await setup.clock.advance(timedelta(seconds=2))
    assert writing.done()


@pytest.mark.parametrize(("point", "claimed"), [("before-claim", 0), ("after-claim", 1)])
async def test_a_crash_is_on_its_side_of_the_commit(setup: Setup, point: Any, claimed: int) -> None:
    told: list[str] = []
    setup.faults.crash_at, setup.faults.on_crash = point, told.append
    with pytest.raises(Crash) as crash:
        await setup.claim()
    assert crash.value.point == point
    assert told == [point]
    with pytest.raises(StoreUnavailableError):
        await schedule_rows(setup.store)
    again = MemoryStore(setup.inner.data)
    await again.open()
    assert len(await again.runs.live(owner="me")) == claimed


async def test_a_crash_may_let_its_point_pass_a_few_times(setup: Setup) -> None:
    setup.faults.crash_at, setup.faults.crash_after = "after-declare", 2
    await record_step(setup.store, EVENT)
    await record_step(setup.store, EVENT)
    with pytest.raises(Crash):
        await record_step(setup.store, EVENT)


async def test_a_claim_of_nothing_has_nothing_to_cut_off(setup: Setup) -> None:
    await setup.claim()
    setup.faults.crash_at = "after-claim"
    assert (await setup.claim()).starts == []


async def test_what_happens_is_told(setup: Setup) -> None:
    faults: list[str] = []
    commits: list[tuple[str, object]] = []
    setup.faults.on_fault = faults.append
    setup.faults.on_commit = lambda verb, asked, answer: commits.append((verb, asked))
    setup.faults.writes = 1
    with pytest.raises(StoreUnavailableError):
        await record_step(setup.store, EVENT)
    await record_step(setup.store, EVENT)
    assert (faults, commits) == (["write"], [("declare", Declaration(EVENT.managed_by, NOON, events=[EVENT]))])


async def test_healing_ends_all_plans(setup: Setup) -> None:
    setup.faults.reads = setup.faults.writes = setup.faults.lost_answers = setup.faults.rollbacks = 3
    setup.faults.latency, setup.faults.crash_at = timedelta(1), "before-declare"
    before = setup.faults.sound
    setup.faults.heal()
    assert (before, setup.faults.sound) == (False, True)
    await record_step(setup.store, EVENT)
    assert await setup.events() == 1
