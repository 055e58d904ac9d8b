"""What an action returns or raises goes into the ledger with its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from noonbell.actions.results import Finished, Prepared
from noonbell.core.attempt_detail import pack, unpack
from noonbell.core.records import OutboxMessage, Start, StoredSchedule
from noonbell.engine.engine import Engine
from noonbell.engine.lane_jobs import LaneJobs
from noonbell.ports import RunFilter
from noonbell.schedules import Schedules
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock
from tests.patience import PATIENCE_SECONDS

START = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)


class Told(Exception):  # noqa: N818 - it is named for what it carries
    def __init__(self, detail: object) -> None:
        super().__init__("no")
        self.detail = detail


class Lane:
    """A schedule that is due, and an engine that calls whatever a test wants called."""

    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.store = MemoryStore()
        self.woken = 0

    async def run(self, call: Callable[[], Any], *, is_async: bool = True) -> None:
        schedules = Schedules(self.store, clock=self.clock)
        await schedules.open()
        await schedules.create(type="cron", spec="1 12 * * *", action={"kind": "callback", "name": "work"})
        work = LaneJobs(
            self.store, lane="default", owner="me", preparer=lambda _: lambda _stored, _start: Prepared(call, is_async)
        )
        engine = Engine(self.store, self.clock, work, longest_wait_us=60_000_000, on_messages=self.on_messages)
        engine.start()
        await self.clock.advance(timedelta(minutes=1))
        if not is_async:
            await asyncio.wait_for(engine.recorded(1), PATIENCE_SECONDS)
        await engine.stop()

    def on_messages(self) -> None:
        self.woken += 1


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_detail_and_a_message_are_written_with_the_end(*, is_async: bool) -> None:
    lane = Lane()
    message = OutboxMessage(1, "default", "id", "default", "{}", 0)
    result = Finished(pack({"exit": 0}), [message])

    async def later() -> Finished:
        return result

    await lane.run(later if is_async else lambda: result, is_async=is_async)
    (attempt,) = await lane.store.history.attempts(1, 0, lane.clock.now())
    assert (attempt.outcome, attempt.detail, attempt.error) == ("succeeded", pack({"exit": 0}), None)
    claim = await lane.store.outbox.claim("default", "me", lane.clock.now(), 10)
    assert [sent for stream in claim.streams for _, sent in stream.messages] == [message]
    assert lane.woken == 1


async def test_anything_else_that_is_returned_is_ignored() -> None:
    lane = Lane()

    async def work() -> str:
        return '{"not": "told"}'

    await lane.run(work)
    assert await lane.store.history.attempts(1, 0, lane.clock.now()) == []
    assert [run.outcome for run in await lane.store.history.runs(RunFilter(1, 0, lane.clock.now()))] == ["succeeded"]
    assert lane.woken == 0


@pytest.mark.parametrize(
    ("detail", "kept"),
    [
        (pack({"exit": 3}), {"exit": 3}),
        (b"not packed", {}),
        (b"Z damaged", {}),
        ('{"exit": 3}', {}),
        ({"exit": 3}, {}),
        (None, {}),
    ],
)
async def test_an_error_may_carry_a_detail(detail: object, kept: dict[str, Any]) -> None:
    lane = Lane()

    async def work() -> None:
        raise Told(detail)

    await lane.run(work)
    (attempt,) = await lane.store.history.attempts(1, 0, lane.clock.now())
    assert attempt.detail is not None
    found = unpack(attempt.detail)
    assert "in work" in found.pop("traceback")
    assert (attempt.outcome, found) == ("failed", kept)
    assert attempt.error is not None
    assert "no" in attempt.error


async def test_an_action_that_cannot_be_prepared_is_the_failure_of_its_run() -> None:
    lane = Lane()

    def refuse(_stored: StoredSchedule, _start: Start) -> Prepared:
        raise LookupError("nobody there")

    schedules = Schedules(lane.store, clock=lane.clock)
    await schedules.open()
    await schedules.create(type="cron", spec="1 12 * * *", action={"kind": "callback", "name": "work"})
    work = LaneJobs(lane.store, lane="default", owner="me", preparer=lambda _: refuse)
    engine = Engine(lane.store, lane.clock, work, longest_wait_us=60_000_000)
    engine.start()
    await lane.clock.advance(timedelta(minutes=1))
    await engine.stop()
    (attempt,) = await lane.store.history.attempts(1, 0, lane.clock.now())
    assert "nobody there" in (attempt.error or "")
    assert (engine.metrics.started, engine.metrics.failed) == (1, 1)
