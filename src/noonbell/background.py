"""The anatomy of what runs beside the loop of an engine: delivery, pruning, rescue, the watches.

A background service does its work in `run_once`, which returns what it did; a test calls it directly. `run` calls it
again and again until `stop` is set: after each interval, at an earlier time that the result asks for, and at once after
`wake`. `engine.supervisor` starts and stops services, and restarts one that fails.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from noonbell.ports import Clock

R = TypeVar("R")


class PeriodicService(ABC, Generic[R]):
    """A service that works at intervals. With `at_once` off, the first interval passes before its first work.

    A run after a failure works at once: the supervisor has made a pause, and the failed work is overdue.
    """

    def __init__(self, clock: Clock, interval_us: int, *, at_once: bool = True) -> None:
        if interval_us <= 0:
            raise ValueError(f"interval_us must be positive, not {interval_us}")
        self.interval_us = interval_us
        self.stopping = False  # the stop of `run` has begun: leave the rest of a long work
        self._clock = clock
        self._at_once = at_once
        self._wakeup = asyncio.Event()

    @abstractmethod
    async def run_once(self) -> R:
        """Do what is to be done now; returns what that was."""

    def next_at(self, result: R) -> int:
        """Return when to work again after this result."""
        del result
        return self._clock.now() + self.interval_us

    def wake(self) -> None:
        """Work now, or again right after the work that is under way."""
        self._wakeup.set()

    def request_stop(self) -> None:
        """Leave the rest of the work that is under way; called when the stop of `run` begins."""
        self.stopping = True
        self._wakeup.set()

    async def run(self, stop: asyncio.Event) -> None:
        self.stopping = False
        forwarding = asyncio.ensure_future(self._forward(stop))
        try:
            if not self._at_once:
                await self._clock.wait(self._clock.now() + self.interval_us, self._wakeup)
                self._at_once = True
            while not stop.is_set():
                self._wakeup.clear()
                next_at = self.next_at(await self.run_once())
                await self._clock.wait(next_at, self._wakeup)
        finally:
            forwarding.cancel()

    async def _forward(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.request_stop()
