"""Machines that share a database go by its clock, whatever their own say."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from noonbell import Schedules
from noonbell.engine.clock import SharedClock, SystemClock, clock_for
from noonbell.store.memory import MemoryStore
from noonbell.store.postgres import PostgresStore
from noonbell.testing import ManualClock
from tests.patience import PATIENCE_SECONDS
from tests.store.postgres_server import PostgresServer

HOUR_NS = 3600 * 1_000_000_000
SECOND = 1_000_000


async def test_the_difference_is_applied_to_what_time_it_is_and_to_waiting() -> None:
    inner, offset = ManualClock(datetime(2026, 3, 1, 12, tzinfo=UTC)), 0
    clock = SharedClock(lambda: offset, inner)
    noon = inner.now()
    assert clock.now() == noon
    offset = -3600 * SECOND
    assert clock.now() == noon - 3600 * SECOND
    waiting = asyncio.ensure_future(clock.wait(clock.now() + 10 * SECOND, asyncio.Event()))
    await inner.advance(timedelta(seconds=9))
    assert not waiting.done()
    await inner.advance(timedelta(seconds=1))
    await waiting


async def test_only_a_store_that_others_share_has_a_clock(postgres: PostgresServer) -> None:
    assert isinstance(clock_for(MemoryStore()), SystemClock)
    assert isinstance(clock_for(PostgresStore(await postgres.new_ledger())), SharedClock)


@pytest.mark.parametrize("ahead_ns", [HOUR_NS, -HOUR_NS])
async def test_a_machine_that_is_an_hour_off_runs_everything_at_its_time(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, ahead_ns: int
) -> None:
    dsn, here, called = await postgres.new_ledger(), time.time_ns, []

    def note(call: object) -> None:
        del call
        called.append(here() // 1000)

    soon = datetime.now(UTC) + timedelta(seconds=1)
    monkeypatch.setattr(time, "time_ns", lambda: here() + ahead_ns)
    async with Schedules(dsn, callbacks={"note": note}, longest_wait=timedelta(seconds=1)) as schedules:
        await schedules.start()  # from here on its clock is that of the database
        action = {"kind": "callback", "name": "note"}
        later = soon + timedelta(minutes=30)
        await schedules.create(name="later", type="one_shot", spec=later.isoformat(), action=action)
        first = await schedules.create(name="soon", type="one_shot", spec=soon.isoformat(), action=action)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not called:  # noqa: ASYNC110 - it is called in a thread, by the time of another machine
                await asyncio.sleep(0.02)
        (at,) = called
        assert at >= round(soon.timestamp() * SECOND), "not before its time"
        (run,) = (await schedules.occurrences(first.schedule_id)).items
        assert run.started_at is not None
        assert abs(run.started_at - soon) < timedelta(seconds=30), "and so it is on record"
