"""How runs of durable schedules end, as the log tells it."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest

from noonbell.schedules import Call, Schedules
from noonbell.store.memory import MemoryStore
from noonbell.testing.manual_clock import ManualClock

START = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ENGINE = "noonbell.engine"


async def test_a_failure_is_a_warning_while_it_is_tried_again_and_an_error_at_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(call: Call) -> None:
        if call.name == "sync":
            raise ValueError("no such table")

    caplog.set_level(logging.DEBUG, logger=ENGINE)
    clock = ManualClock(START)
    schedules = Schedules(MemoryStore(), clock=clock, callbacks={"work": work}, longest_wait=MINUTE)
    await schedules.open()
    action = {"kind": "callback", "name": "work"}
    await schedules.create(
        schedule_id="s1", name="sync", type="one_shot", spec="2026-03-04T12:01", action=action,
        retry={"attempts": 2, "delay_seconds": 5, "strategy": "fixed"},
    )  # fmt: skip
    await schedules.create(schedule_id="s2", name="fine", type="one_shot", spec="2026-03-04T12:01", action=action)
    await schedules.start()
    await clock.advance(3 * MINUTE)
    await schedules.stop()
    run_for = int(datetime(2026, 3, 4, 12, 1, tzinfo=UTC).timestamp()) * 1_000_000
    told = [(one.levelname, one.getMessage()) for one in caplog.records if 'Schedule "' in one.getMessage()]
    assert [one for one in told if "sync" in one[1]] == [
        ("DEBUG", f'Schedule "sync": run s1:scheduled:{run_for} has started (attempt 1)'),
        (
            "WARNING",
            (
                f'Schedule "sync": attempt 1 of run s1:scheduled:{run_for} failed and is tried again at '
                "2026-03-04T12:01:05+00:00: ValueError: no such table"
            ),
        ),
        ("DEBUG", f'Schedule "sync": run s1:scheduled:{run_for} has started (attempt 2)'),
        (
            "ERROR",
            f'Schedule "sync": run s1:scheduled:{run_for} failed for good (attempt 2): ValueError: no such table',
        ),
    ]
    assert [level for level, text in told if "fine" in text] == ["DEBUG", "DEBUG"]
