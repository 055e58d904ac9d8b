"""A stop of a lane, and its return after a lost lease: each is a task of its own.

A caller that waits for a stop may give up, and another that asks again waits for the same one. A caller that gives it a
time abandons what has not ended by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from noonbell.ports import Clock
from noonbell.schedules.engine_life import EngineLife


class LaneStop:
    """A stop in progress. `work` does it, and reports the life that it waits for (`waits_for`)."""

    def __init__(self, clock: Clock, work: Callable[[LaneStop], Coroutine[Any, Any, None]]) -> None:
        self.abandoned: int | None = None  # how many runs it did not wait for, where a caller gave it a time
        self._clock = clock
        self._life: EngineLife | None = None
        self._reached = asyncio.Event()  # set when there is a life to wait for, or the stop has ended
        self._ended = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(work(self), name="noonbell-stop")
        self._task.add_done_callback(self._on_end)

    @property
    def ended(self) -> bool:
        return self._task.done()

    def waits_for(self, life: EngineLife) -> None:
        self._life = life
        self._reached.set()

    async def wait(self, timeout_us: int | None = None) -> bool:
        """Return when the stop has ended: False where runs had not ended in the time given, and were abandoned."""
        # shielded: the lease must not be released while something of ours runs, whether a caller waits or not
        await asyncio.shield(self._task if timeout_us is None else self._within(timeout_us))
        return not self.abandoned

    async def over(self) -> None:
        """Return when the stop has ended, well or not."""
        await self._ended.wait()

    async def _within(self, timeout_us: int) -> None:
        await self._clock.wait(self._clock.now() + timeout_us, self._ended)
        await self._reached.wait()
        if self._life is not None and not self.ended and self.abandoned is None:
            self.abandoned = 0
            self.abandoned = await self._life.abandon()
        await self._task

    def _on_end(self, _: asyncio.Task[None]) -> None:
        self._reached.set()
        self._ended.set()


class LaneReturn:
    """A return in progress. `work` is given an event that ends it."""

    def __init__(self, work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
        self._give_up = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(work(self._give_up), name="noonbell-return")

    def give_up(self) -> None:
        self._give_up.set()

    async def over(self) -> None:
        """Return when it has ended, well or not."""
        await asyncio.wait([self._task])
