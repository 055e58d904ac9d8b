"""Notifications never end on a false state: a change is sent at once, a summary states the state of its own moment."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from noonbell import Schedules
from noonbell.actions.callback import Call
from noonbell.core.records import Document
from noonbell.monitors import Monitors
from noonbell.monitors.watch import Watch
from noonbell.notify.notice_text import RenderedNotice
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock
from tests.effort import examples
from tests.notify.conftest import NOON
from tests.patience import until

MOST_MINUTES = 30


class Ward:
    """Schedules with one schedule and one monitor, whose notices are kept instead of sent."""

    def __init__(self, on: list[str], window_seconds: float, most_per_minute: int | None) -> None:
        self.store = MemoryStore()
        self.clock = ManualClock(NOON)
        self.notices: list[RenderedNotice] = []
        self.gate: dict[str, asyncio.Event] = {}
        self.schedules = Schedules(
            self.store, clock=self.clock, callbacks={"work": self.work}, longest_wait=timedelta(minutes=1)
        )
        self._rule: dict[str, Any] = {"on": on, "window_seconds": window_seconds}
        if "late" in on:
            self._rule["late_seconds"] = 300
        self._rate = most_per_minute
        self._fails = False
        self._ran = 0

    async def work(self, call: Call) -> None:
        fails = self._fails
        self._ran += 1
        if call.run_id in self.gate:
            await self.gate[call.run_id].wait()
        if fails:
            raise RuntimeError("no")

    async def start(self, **fields: Any) -> None:
        await self.store.open()
        desk = self.schedules._lane.desk
        assert desk is not None
        desk.sender.send = self._keep  # type: ignore[method-assign]  # nothing leaves the process
        await self.schedules.channels.create(
            channel_id="ops", name="ops", kind="webhook", config={"url": "https://hook.example", "sign": False},
            most_per_minute=self._rate,
        )  # fmt: skip
        await self.schedules.rules.create(name="r", channels=["ops"], **self._rule)
        action = {"kind": "callback", "name": "work"}
        await self.schedules.create(
            schedule_id="job", name="job", type="cron", spec="0 0 1 1 *", action=action, **fields
        )
        await self.schedules.start()

    async def _keep(self, document: Document, rendered: RenderedNotice) -> str:
        del document
        self.notices.append(rendered)
        return "200"

    async def run(self, *, fails: bool) -> str:
        """Run the job now, to its end."""
        self._fails = fails
        run = await self.schedules.trigger("job")
        await self.clock.advance(timedelta(0))
        await until(lambda: not self.store.data.live[1])
        return run

    async def pass_by(self, seconds: float) -> None:
        await self.clock.advance(timedelta(seconds=seconds))

    async def quieten(self) -> None:
        """Let every window end, and what it held back be summarised."""
        for _ in range(2 * MOST_MINUTES):
            await self.pass_by(60)

    async def stop(self) -> None:
        stopping = asyncio.ensure_future(self.schedules.stop())
        while not stopping.done():
            await self.pass_by(600)
            await asyncio.sleep(0)
        await stopping
        await self.store.close()

    @property
    def stated(self) -> str | None:
        """The state that the last notice leaves its reader with."""
        if not self.notices:
            return None
        last = self.notices[-1]
        states = {"failed": "failing", "recovered": "working", "succeeded": "working"}
        if last.event in states:
            return states[last.event]
        held = last.data["held"]
        assert isinstance(held, list)
        (state,) = {one["state"] for one in held}
        return str(state)


steps = st.lists(st.tuples(st.booleans(), st.integers(0, 20 * 60)), min_size=1, max_size=10)


@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps,
    st.sampled_from([0, 60, 900]),
    st.sampled_from([None, 1, 20]),
    st.sampled_from([["failed", "recovered"], ["failed", "succeeded"], ["failed", "recovered", "succeeded"]]),
)
@example([(True, 60), (False, 60), (True, 60)], 900, 20, ["failed", "recovered"])
@example([(True, 60), (True, 60), (False, 60)], 900, 20, ["failed", "recovered"])
@example([(True, 0), (False, 0), (True, 0), (False, 0)], 900, 1, ["failed", "recovered"])
def test_the_last_notification_agrees_with_the_current_state(
    history: list[tuple[bool, int]], window: int, rate: int | None, on: list[str]
) -> None:
    async def live() -> None:
        ward = Ward(on, window, rate)
        await ward.start()
        try:
            for fails, pause in history:
                await ward.run(fails=fails)
                await ward.pass_by(pause)
            await ward.quieten()
            failed_once = any(fails for fails, _ in history)
            if failed_once or "succeeded" in on:
                assert ward.stated == ("failing" if history[-1][0] else "working"), [one.title for one in ward.notices]
            else:
                assert ward.notices == []
        finally:
            await ward.stop()

    asyncio.run(live())


async def test_a_relapse_is_sent_at_once_and_repeats_are_gathered() -> None:
    ward = Ward(["failed", "recovered"], 900, 20)
    await ward.start()
    for fails in (True, True, False, True, True):
        await ward.run(fails=fails)
        await ward.pass_by(30)
    titles = [one.title for one in ward.notices]
    assert titles == ["job failed", "job works again", "job failed"]
    await ward.quieten()
    assert [one.title for one in ward.notices][3:] == ["job failed 2 times more"]
    assert ward.notices[-1].text.endswith("; failing now")
    await ward.stop()


async def test_a_rule_for_failures_alone_is_told_of_a_relapse_and_of_how_things_stand() -> None:
    ward = Ward(["failed"], 900, 20)
    await ward.start()
    for fails in (True, False, True, True, False):
        await ward.run(fails=fails)
        await ward.pass_by(30)
    assert [one.title for one in ward.notices] == ["job failed", "job failed"]
    await ward.quieten()
    (summary,) = ward.notices[2:]
    assert summary.title == "job is working now; it failed 1 time more before"
    await ward.stop()


async def test_runs_beside_each_other_are_judged_by_the_order_of_their_ends() -> None:
    ward = Ward(["failed", "recovered"], 900, 20)
    await ward.start(overlap="allow")
    ward._fails = False
    first = await ward.schedules.trigger("job")
    ward.gate[first] = asyncio.Event()
    await ward.pass_by(1)
    await until(lambda: ward._ran == 1)
    ward._fails = True
    await ward.schedules.trigger("job")
    await ward.pass_by(1)
    await until(lambda: len(ward.notices) == 1)
    ward.gate[first].set()
    await until(lambda: not ward.store.data.live[1])
    await ward.quieten()
    assert [one.title for one in ward.notices] == ["job failed", "job works again"]
    await ward.stop()


@pytest.mark.parametrize("on", [["failed", "recovered", "late"], ["failed", "recovered"]])
async def test_the_flips_of_a_monitor_are_all_sent(on: list[str]) -> None:
    ward = Ward(on, 900, None)
    await ward.start()
    desk = ward.schedules._lane.desk
    monitors = Monitors(ward.store, ward.clock)
    watch = Watch(ward.store, ward.clock, desk)
    made = await monitors.create(name="beat", type="interval", spec=600, grace_seconds=300)
    for kind in ("success", "fail", "success", "fail", "success"):
        await monitors.ping(made.token, kind)
        await watch.run_once()
        await ward.pass_by(30)
    flips = ["beat is down", "beat is up again"] * 2
    assert [one.title for one in ward.notices] == flips
    await ward.pass_by(700)  # late, and then up
    await watch.run_once()
    await monitors.ping(made.token, "success")
    await watch.run_once()
    await ward.pass_by(30)
    late = ["beat is late", "beat is up again"] if "late" in on else []
    assert [one.title for one in ward.notices] == flips + late
    await monitors.ping(made.token, "fail")
    await monitors.pause(made.monitor_id)
    await monitors.resume(made.monitor_id)
    await watch.run_once()
    await ward.pass_by(30)
    assert [one.title for one in ward.notices][len(flips + late) :] == ["beat is down", "beat is up again"]
    await ward.stop()
