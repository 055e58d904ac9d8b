"""Random lives of periodic tasks that fail, are run by hand and crash: retries go first, and the ledger agrees."""

from __future__ import annotations

import asyncio
import contextlib
import random
from datetime import timedelta

import pytest

from noonbell.core.instants import moment
from noonbell.declarative.events import TaskEvent, TaskRunFailed
from noonbell.ledger import verify_store, why
from noonbell.ledger.ledger_rows import schedule_rows

from .conftest import MINUTE, Bench

CRONS = ("* * * * *", "0,7,20,21,22 * * * *", "0 * * * *")
DELAYS = (timedelta(0), timedelta(seconds=20), timedelta(minutes=3), timedelta(minutes=25))


@pytest.mark.parametrize("seed", range(12))
async def test_retries_take_precedence_and_the_ledger_agrees(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    outcomes: list[BaseException | float | None] = [
        chance.choice([ValueError("no"), ValueError("no"), 30.0, 400.0, None]) for _ in range(60)
    ]
    cron_text, delay = CRONS[seed % 3], DELAYS[chance.randrange(4)]
    task = bench.task("a", *outcomes)
    cron = bench.make(poll_interval=MINUTE)
    await cron.schedule("a", cron_text, task, delay)
    for _ in range(30):
        asking = None
        if chance.random() < 0.2:
            asking = asyncio.ensure_future(cron.run_now("a"))
        await bench.clock.advance(timedelta(seconds=chance.randrange(600)))
        if asking is not None and not asking.done():
            await bench.clock.advance(timedelta(seconds=400))
        if asking is not None:
            with contextlib.suppress(ValueError):
                await asking
        if chance.random() < 0.1:
            before = list(bench.events)
            bench.crash()
            await bench.clock.settle()
            bench.events[:] = before  # a dead process emits nothing
            await bench.clock.advance(timedelta(seconds=chance.randrange(1000)))
            cron = bench.make(poll_interval=MINUTE)
            await cron.schedule("a", cron_text, task, delay)
    await bench.clock.advance(timedelta(seconds=400))
    assert (await verify_store(bench.store)).problems == []
    events = [event for event in bench.events if isinstance(event, TaskEvent)]
    assert "TaskRetryPreempted" not in {event.name for event in events}
    pending: TaskRunFailed | None = None
    for event in events:
        if isinstance(event, TaskRunFailed) and event.retry_at is not None:
            pending = event
        elif event.name == "TaskRetryCleared":
            assert pending is not None
            assert event.run_id == pending.run_id
            pending = None
        elif event.name in ("TaskRunStarted", "TaskRetryStarted") and event.cause != "manual":
            if pending is not None and pending.retry_at is not None:
                assert (event.name, event.run_id) == ("TaskRetryStarted", pending.run_id), "nothing comes before it"
                assert event.at >= pending.retry_at
            pending = None
    (row,) = await schedule_rows(bench.store)
    for span in (await bench.store.history.spans(row["sid"], 0, 1 << 60))[-5:]:
        answer = await why(bench.store, "a", moment(span.from_at), now=bench.clock.now())
        assert "folded into the run for" in answer.text
