"""The watch over other engines of a lane: when an engine rescues, and what a heartbeat reports."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from noonbell.core.presence import engine_name
from noonbell.engine import membership
from noonbell.engine.heartbeat import Beat, Heartbeat
from noonbell.engine.membership import Membership, intervals
from noonbell.engine.rescue import Rescuer
from noonbell.ports import Rescue
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock
from tests.store.overriding import Overriding

START = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)


class Locked(Overriding, MemoryStore):
    """Another holds a lock on what a dead engine has left, for the first few rescues."""

    def __init__(self, held: int) -> None:
        super().__init__()
        self.rescues = 0
        self._held = held

    async def engines_rescue(self, *args: Any, **named: Any) -> Rescue:
        self.rescues += 1
        rescued = await self.plain.engines.rescue(*args, **named)
        return rescued._replace(left=int(self.rescues <= self._held))


async def test_what_was_left_is_looked_for_again_soon_and_then_not_before_the_minute() -> None:
    clock = ManualClock(START)
    store = Locked(held=3)
    await store.open()
    member = Membership(store, clock, "lane")
    await member.join()
    seen: list[Rescue] = []
    rescuer = Rescuer(
        store, clock, lane="lane", instance=member.instance, interval_us=membership.LOOK, on_rescue=seen.append
    )
    await rescuer.rescue()
    stop = asyncio.Event()
    running = asyncio.create_task(rescuer.run(stop))
    await clock.advance(timedelta(seconds=10))
    assert store.rescues == 4, "as often as something was left, and once more"
    await clock.advance(timedelta(seconds=40))
    assert store.rescues == 4
    await clock.advance(timedelta(seconds=30))
    assert store.rescues == 5, "once a minute it looks without a reason"
    stop.set()
    await running
    assert [one.left for one in seen] == [1, 1, 1, 0, 0]
    assert await store.holder(engine_name(member.instance)) is not None
    member.release()
    await store.close()


async def test_a_dead_engine_is_rescued_at_the_next_look() -> None:
    clock = ManualClock(START)
    store = MemoryStore()
    await store.open()
    first, second = Membership(store, clock, "lane"), Membership(store, clock, "lane")
    await first.join()
    await second.join()
    rescuer = Rescuer(store, clock, lane="lane", instance=first.instance, interval_us=membership.LOOK)
    assert (await rescuer.rescue()).dead == []
    assert await rescuer.run_once() == Rescue(0, [], 0)
    second.release()
    assert (await rescuer.run_once()).dead == [second.instance]
    first.release()
    await store.close()


async def test_a_heartbeat_reports_others_that_are_up_and_zone_data_that_is_new() -> None:
    clock = ManualClock(START)
    store = MemoryStore()
    await store.open()
    first = Membership(store, clock, "lane", zone_data=lambda: "2026a")
    await first.join()
    news: list[str] = []
    heartbeat = Heartbeat(
        first, clock, interval_us=membership.BEAT, read_load=lambda: (7, {"running": 3}),
        on_new_zone_data=lambda: news.append("new"),
    )  # fmt: skip
    await first.beat("up")
    assert await heartbeat.run_once() == Beat(others_up=False, new_zone_data=False)
    second = Membership(store, clock, "lane", zone_data=lambda: "2026b")
    await second.join()
    assert await heartbeat.run_once() == Beat(others_up=False, new_zone_data=True), "it has not started yet"
    await second.beat("up")
    assert await heartbeat.run_once() == Beat(others_up=True, new_zone_data=False)
    assert news == ["new"]
    record = next(one for one in (await store.engines.members(clock.now())).alive if one.instance == first.instance)
    assert (record.up_since, record.load) == (7, {"running": 3})
    first.release()
    second.release()
    await store.close()


def test_intervals_fit_three_times_into_a_lease() -> None:
    assert intervals(0) == (2_000_000, 5_000_000)
    assert intervals(30) == (2_000_000, 5_000_000)
    assert intervals(9) == (2_000_000, 3_000_000)
    assert intervals(3) == (1_000_000, 1_000_000)
    assert intervals(0.01) == (200_000, 200_000)
