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
    watching = asyncio.create_task(member.watch(stop, lambda: (0, {}), rescue, nothing))
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
