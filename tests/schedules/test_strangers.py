"""Engines of one lane that know different actions: each leaves what it does not know to the others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from noonbell.ledger import verify_store
from noonbell.schedules import Call, Schedules
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock
from tests.schedules.conftest import ACTION, World

START = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)
WORK = {"kind": "callback", "name": "work"}
COMMAND = {"kind": "command", "argv": ["false"]}


@pytest.fixture(autouse=True, scope="module")
def _calm() -> None:
    """Nothing is calmed here: an engine learns of the others by watching them."""


class Lane:
    """Engines that are processes of their own as far as the data can tell."""

    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.data = MemoryStore().data
        self.calls: list[str] = []
        self.engines: list[Schedules] = []

    async def join(self, **options: Any) -> Schedules:
        made = Schedules(MemoryStore(self.data), clock=self.clock, **options)
        await made.open()
        await made.start()
        self.engines.append(made)
        return made

    async def work(self, call: Call) -> None:
        self.calls.append(call.schedule_id)

    async def stop(self) -> None:
        for engine in self.engines:
            await engine.stop()
        store = MemoryStore(self.data)
        await store.open()
        assert (await verify_store(store)).problems == []


@pytest.mark.parametrize("knowing_first", [True, False])
async def test_what_one_does_not_know_another_runs(knowing_first: bool) -> None:
    lane = Lane()
    for knows in (knowing_first, not knowing_first):
        await lane.join(callbacks={"work": lane.work} if knows else {})
    await lane.clock.advance(timedelta(seconds=6))  # they have seen each other
    any_of_them = lane.engines[0]
    keys = [(await any_of_them.create(type="cron", spec="* * * * *", action=WORK)).schedule_id for _ in range(20)]
    await any_of_them.trigger(keys[0])
    await lane.clock.advance(timedelta(minutes=3))
    assert sorted(lane.calls) == sorted([*keys, *keys, *keys, keys[0]])
    for key in keys:
        states = [one.state for one in (await any_of_them.occurrences(key)).items]
        assert states == ["succeeded"] * 3
    await lane.stop()


async def test_a_command_that_is_not_allowed_here_is_left_to_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    lane = Lane()
    await lane.join()
    allowed = await lane.join(commands=["false"])
    await lane.clock.advance(timedelta(seconds=6))
    for _ in range(8):
        await allowed.create(type="one_shot", spec="2026-03-04T12:01:00Z", action=COMMAND)
    await lane.clock.advance(timedelta(minutes=1))
    await lane.stop()
    assert caplog.text.count("failed for good") == 8
    assert "commands are off" not in caplog.text


async def test_what_nobody_knows_fails_after_a_minute_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    lane = Lane()
    first, _ = await lane.join(), await lane.join(callbacks={"other": lane.work})
    await lane.clock.advance(timedelta(seconds=6))
    made = await first.create(type="one_shot", spec="2026-03-04T12:01:00Z", action=WORK)
    await lane.clock.advance(timedelta(seconds=80))
    (waiting,) = (await first.occurrences(made.schedule_id)).items
    assert waiting.state not in ("succeeded", "failed")
    await lane.clock.advance(timedelta(seconds=20))
    (one,) = (await first.occurrences(made.schedule_id)).items
    assert one.state == "failed"
    assert 'No callback named "work" is registered' in caplog.text
    await lane.stop()


async def test_an_engine_that_is_alone_does_not_wait_for_others() -> None:
    lane = Lane()
    alone = await lane.join()
    made = await alone.create(type="one_shot", spec="2026-03-04T12:01:00Z", action=WORK)
    await lane.clock.advance(timedelta(seconds=31))
    (one,) = (await alone.occurrences(made.schedule_id)).items
    assert one.state == "failed"
    await lane.stop()


async def test_a_callback_that_is_unknown_here_is_logged_at_creation(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    known = await world.schedules.create(name="known", type="interval", spec="60", action=ACTION)
    assert "No callback" not in caplog.text
    unknown = {"kind": "callback", "name": "reprot"}
    made = await world.schedules.create(name="slip", type="interval", spec="60", action=unknown)
    assert f'schedule={made.schedule_id} No callback "reprot" is registered here' in caplog.text
    no_engine = 'No engine of the lane "default" is up'
    assert [one.split(":")[0] for one in await world.schedules.warnings(known)] == [no_engine]
    assert len(await world.schedules.warnings(made)) == 2
    await world.schedules.start()
    assert await world.schedules.warnings(known) == []
    (left,) = await world.schedules.warnings(made)
    assert left.startswith('No callback "reprot"')


async def test_a_trigger_without_an_engine_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    key = await world.create()
    await world.schedules.trigger(key)
    assert f"schedule={key} no engine is up" in caplog.text
    caplog.clear()
    await world.schedules.start()
    await world.clock.settle()
    await world.minutes(1)
    await world.schedules.trigger(await world.create(name="second"))
    assert "no engine is up" not in caplog.text
