"""An engine wakes when it has something to start, and not only at its next regular look."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from noonbell.schedules import Call, Schedules
from noonbell.timing import jitter_us
from tests.schedules.conftest import ACTION, World, new_dsn, store_maker

SECOND = 1_000_000
RETRY: Any = {"attempts": 2, "delay_seconds": 7200, "strategy": "fixed", "max_delay_seconds": 7200}


class Patient(World):
    """A world whose engine looks once a day, unless there is a reason."""

    def _new(self) -> Schedules:
        super()._new()
        return self.engine("default")

    def engine(self, lane: str) -> Schedules:
        callbacks = {"work": self.work}
        return Schedules(self.store, clock=self.clock, lane=lane, callbacks=callbacks, longest_wait=timedelta(days=1))


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def patient(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Patient]:
    made = Patient(store_maker(request.param, tmp_path, await new_dsn(request, request.param)))
    await made.schedules.open()
    yield made
    stopping = asyncio.ensure_future(made.schedules.stop())
    while not stopping.done():
        await made.minutes(1)
    await made.store.close()


async def test_a_retry_is_on_time_behind_a_crowd_that_another_lane_has_left_waiting(patient: Patient) -> None:
    other = patient.engine("other")
    sooner = {**RETRY, "delay_seconds": 3600}
    await other.create_many(
        [{"type": "cron", "spec": "1 12 * * *", "action": ACTION, "retry": sooner} for _ in range(70)]
    )
    await patient.create(spec="1 12 * * *", retry=RETRY)
    patient.failures = 71
    await other.start()
    await patient.schedules.start()
    await patient.minutes(1)
    assert len(patient.calls) == 71
    await other.stop()

    await patient.minutes(120)
    assert len(patient.calls) == 72, "the others wait for an engine of their lane"
    assert f"{patient.clock.at:%H:%M:%S}" == "14:01:30"
    assert [call.attempt for call in patient.calls[71:]] == [2]


async def test_an_edit_that_ends_the_wait_of_an_occurrence_starts_its_run(patient: Patient) -> None:
    """Its jitter holds back what has come; the edit takes the jitter away, and there is nothing more to wait for."""
    at = patient.clock.now() // SECOND * SECOND + 30 * SECOND
    key = next(name for name in map("late-{}".format, range(100)) if jitter_us(name, at, 50 * SECOND) > 20 * SECOND)
    await patient.create(schedule_id=key, spec="1 * * * *", jitter_seconds=50)
    await patient.schedules.start()
    await patient.minutes(0.75)
    assert patient.calls == []
    await patient.schedules.update(key, jitter_seconds=0)
    await patient.clock.settle()
    assert patient.called == ["12:01"]


async def test_an_edit_while_a_run_that_was_asked_for_waits_leaves_the_wake_up_to_its_end(patient: Patient) -> None:
    key = await patient.create()
    await patient.schedules.trigger(key)
    await patient.schedules.update(key, spec="*/2 * * * *")
    assert (await patient.schedules.get(key)).next_run_at is None
    called: list[Call] = patient.calls
    await patient.schedules.start()
    await patient.clock.settle()
    assert [call.scheduled_for == patient.clock.at for call in called] == [True]
    await patient.minutes(2)
    assert patient.called[1:] == ["12:02"]
