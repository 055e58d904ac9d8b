"""An engine wakes when it has something to start, and not only at its next regular look."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from noonbell.engine import engine as loop
from noonbell.engine import execution
from noonbell.ports import ScheduleFilter
from noonbell.schedules import Call, Schedules
from noonbell.timing import jitter_us
from tests.schedules.conftest import ACTION, World, new_dsn, store_maker

SECOND = 1_000_000
RETRY: Any = {"attempts": 2, "delay_seconds": 7200, "strategy": "fixed", "max_delay_seconds": 7200}


class Patient(World):
    """A world whose engine looks once a day, unless there is a reason."""

    began: list[str]  # when each call was made

    async def work(self, call: Call) -> None:
        self.began.append(f"{self.clock.at:%H:%M:%S}")
        await super().work(call)

    @property
    def looks(self) -> int:
        engine = self.schedules._lane.engine
        assert engine is not None
        return engine.metrics.polls

    def _new(self) -> Schedules:
        super()._new()
        return self.engine("default")

    def engine(self, lane: str) -> Schedules:
        callbacks = {"work": self.work}
        return Schedules(self.store, clock=self.clock, lane=lane, callbacks=callbacks, longest_wait=timedelta(days=1))


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def patient(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Patient]:
    made = Patient(store_maker(request.param, tmp_path, await new_dsn(request, request.param)))
    made.began = []
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
    (stored,) = await patient.store.schedules.find(ScheduleFilter(schedule_ids=[key]))
    assert stored.next_run_at is None
    assert (await patient.schedules.get(key)).next_run_at == datetime(2026, 3, 4, 12, 2, tzinfo=UTC)
    called: list[Call] = patient.calls
    await patient.schedules.start()
    await patient.clock.settle()
    assert [call.scheduled_for == patient.clock.at for call in called] == [True]
    await patient.minutes(2)
    assert patient.called[1:] == ["12:02"]


# --- what an end brings -----------------------------------------------------------------------------------------------


async def test_a_fire_costs_one_look(patient: Patient) -> None:
    await patient.create()
    patient.duration = timedelta(seconds=5)
    await patient.schedules.start()
    await patient.clock.settle()
    before = patient.looks
    await patient.minutes(3)
    assert patient.called == ["12:01", "12:02", "12:03"]
    assert patient.looks - before == 3, "none of them in vain after an end"


async def test_a_retry_costs_one_look_more(patient: Patient) -> None:
    await patient.create(spec="1 12 * * *", retry={**RETRY, "delay_seconds": 60, "max_delay_seconds": 60})
    patient.failures = 1
    await patient.schedules.start()
    await patient.clock.settle()
    before = patient.looks
    await patient.minutes(3)
    assert patient.began == ["12:01:00", "12:02:00"]
    assert patient.looks - before == 2


async def test_what_has_come_during_a_run_starts_at_its_end(patient: Patient) -> None:
    await patient.create()
    patient.duration = timedelta(seconds=90.5)
    await patient.schedules.start()
    await patient.minutes(3)
    assert patient.began == ["12:01:00", "12:02:30"]


async def test_a_run_that_was_queued_behind_another_starts_at_its_end(patient: Patient) -> None:
    key = await patient.create()
    patient.duration = timedelta(seconds=100.5)
    await patient.schedules.start()
    await patient.minutes(2)
    await patient.schedules.pause(key)
    await patient.minutes(10)
    assert patient.began == ["12:01:00", "12:02:40"], "the occurrence of 12:02 was due before the pause"


async def test_the_next_of_a_backlog_starts_at_the_end_of_the_one_before(patient: Patient) -> None:
    await patient.create(catch_up_policy="run_all_capped", catch_up_cap=3)
    await patient.minutes(2 * 24 * 60 + 10)  # the grace is longer than the longest wait
    patient.duration = timedelta(seconds=10.5)
    await patient.schedules.start()
    await patient.minutes(0.45)
    assert patient.called[:3] == ["12:01", "12:02", "12:03"]
    assert patient.began[:3] == ["12:10:30", "12:10:40", "12:10:51"]


async def test_the_schedule_goes_on_after_a_run_that_was_asked_for(patient: Patient) -> None:
    key = await patient.create(spec="5 12 * * *")
    patient.duration = timedelta(seconds=10)
    await patient.schedules.start()
    await patient.schedules.trigger(key)
    await patient.minutes(1)
    before = patient.looks
    await patient.minutes(5)
    assert patient.began == ["12:00:30", "12:05:00"]
    assert patient.looks - before == 1


async def test_an_end_makes_room_for_what_was_left_due(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "MOST_IN_FLIGHT", 1)
    monkeypatch.setattr(loop, "_FULL_PAUSE", 86_400_000_000)
    for _ in range(2):
        await patient.create(spec="1 12 * * *")
    patient.duration = timedelta(seconds=10)
    await patient.schedules.start()
    await patient.minutes(2)
    assert patient.began == ["12:01:00", "12:01:10"]
