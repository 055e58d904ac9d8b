"""The watch over other engines: when it rescues."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from noonbell.core.presence import engine_name
from noonbell.engine.membership import Membership
from noonbell.ports import Rescue
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock

START = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)


class Locked(MemoryStore):
    """Somebody holds what a dead engine has left, for the first few rescues."""

    def __init__(self, held: int) -> None:
        super().__init__()
        self.rescues = 0
        self._held = held

    async def take_over(self, *args: Any, **named: Any) -> Rescue:
        self.rescues += 1
        rescued = await super().take_over(*args, **named)
        return rescued._replace(left=int(self.rescues <= self._held))


async def test_what_was_left_is_looked_for_again_soon_and_then_not_before_the_minute() -> None:
    clock = ManualClock(START)
    store = Locked(held=3)
    await store.open()
    member = Membership(store, clock, "lane")
    await member.join()
    await member.rescue()

    async def rescue() -> None:
        await member.rescue()

    async def nothing() -> None:
        """No zone data differs."""

    stop = asyncio.Event()
    watching = asyncio.create_task(member.watch(stop, lambda: (0, {}), rescue, nothing, _not_asked))
    await clock.advance(timedelta(seconds=10))
    assert store.rescues == 4, "as often as something was left, and once more"
    await clock.advance(timedelta(seconds=40))
    assert store.rescues == 4
    await clock.advance(timedelta(seconds=30))
    assert store.rescues == 5, "once a minute it looks without a reason"
    stop.set()
    await watching
    assert await store.holder(engine_name(member.instance)) is not None
    member.release()
    await store.close()


def _not_asked(up_since: int) -> None:
    raise AssertionError(f"nothing was in doubt, and it is told that the lane is up since {up_since}")


class Doubtful(MemoryStore):
    """It cannot say at first whether another engine is alive, and then that it was up before."""

    looks = 0

    async def in_doubt(self, lane: str) -> bool:
        del lane
        self.looks += 1
        return self.looks < 4

    async def lanes_up(self) -> dict[str, int]:
        return {"lane": 7}


async def test_since_when_the_lane_is_up_is_learnt_when_it_is_clear() -> None:
    clock = ManualClock(START)
    store = Doubtful()
    await store.open()
    member = Membership(store, clock, "lane")
    await member.join()
    assert member.in_doubt

    async def nothing() -> None:
        """Nobody is dead, and no zone data differs."""

    stop, learnt = asyncio.Event(), list[int]()
    watching = asyncio.create_task(member.watch(stop, lambda: (0, {}), nothing, nothing, learnt.append))
    await clock.advance(timedelta(seconds=3))
    assert (member.in_doubt, learnt) == (True, [])
    await clock.advance(timedelta(seconds=20))
    assert (member.in_doubt, learnt, store.looks) == (False, [7], 4)
    stop.set()
    await watching
    member.release()
    await store.close()
