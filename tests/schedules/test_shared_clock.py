"""Machines that share a database go by its clock, whatever their own say."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from noonbell import Schedules
from noonbell.engine.system_clock import SharedClock, SystemClock, clock_for
from noonbell.schedules import Call
from noonbell.store.memory import MemoryStore
from noonbell.store.postgres import PostgresStore
from noonbell.testing import ManualClock
from tests.patience import until
from tests.store.postgres_server import PostgresServer

HOUR_NS = 3600 * 1_000_000_000
SECOND = 1_000_000
SLOW_SECONDS = 600  # by so much the slowest machine may be late; the clocks are an hour apart


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
    dsn, here = await postgres.new_ledger(), time.time_ns
    called: list[tuple[int, Call]] = []

    def note(call: Call) -> None:
        called.append((here() // 1000, call))

    monkeypatch.setattr(time, "time_ns", lambda: here() + ahead_ns)
    async with Schedules(dsn, callbacks={"note": note}, longest_wait=timedelta(seconds=1)) as schedules:
        await schedules.start()  # from here on its clock is that of the database
        action = {"kind": "callback", "name": "note"}
        later = datetime.fromtimestamp(here() / 1_000_000_000, UTC) + timedelta(minutes=30)
        await schedules.create(name="later", type="one_shot", spec=later.isoformat(), action=action)
        soon = await schedules.create(name="soon", type="interval", spec="1", action=action)
        await until(lambda: bool(called))
        at, call = called[0]
        assert call.name == "soon"
        due = round(call.scheduled_for.timestamp() * SECOND)
        assert abs(at - due) < SLOW_SECONDS * SECOND, "by the clock that is right"
        run = (await schedules.occurrences(soon.schedule_id)).items[0]
        assert run.started_at is not None
        assert abs(run.started_at.timestamp() - at / SECOND) < SLOW_SECONDS, "and so it is on record"
