"""Whoever edits need not be who runs, and their clocks need not agree to the last microsecond."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from noonbell.ledger import verify_store
from noonbell.schedules import Call, Schedules
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock

START = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize("behind_us", [0, 400, 900_000])
async def test_a_run_that_an_edit_left_queued_begins_before_it_by_the_clock_of_the_engine(behind_us: int) -> None:
    data = MemoryStore().data
    calls: list[Call] = []

    async def work(call: Call) -> None:
        calls.append(call)

    here, there = ManualClock(START), ManualClock(START + timedelta(microseconds=behind_us))
    engine = Schedules(MemoryStore(data), clock=here, callbacks={"work": work})
    editor = Schedules(MemoryStore(data), clock=there)
    await engine.open()
    await editor.open()
    action = {"kind": "callback", "name": "work"}
    await engine.create(schedule_id="a", type="interval", spec=60, action=action, catch_up_policy="run_once")
    await here.advance(timedelta(seconds=90))
    await there.advance(timedelta(seconds=90))
    await editor.update("a", tags=["edited"])  # its occurrence is due: it is left queued
    await engine.start()
    await here.advance(timedelta(seconds=10))
    assert [call.run_id for call in calls] == [f"a:scheduled:{int((START.timestamp() + 60) * 1_000_000)}"]
    await here.advance(timedelta(minutes=3))
    await engine.stop()
    store = MemoryStore(data)
    await store.open()
    assert (await verify_store(store)).problems == []
