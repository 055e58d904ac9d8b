"""The clock of the machine, and a watch over it.

`elapsed` runs on through suspend where the system has such a clock, so that a machine that slept is not mistaken for
one whose clock was set.

Where several machines share a database, they go by its clock: each corrects its own by the difference that the store
has measured last. So a machine whose clock is an hour ahead does not start the runs of the next hour for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Final

from noonbell.ports import Clock, Ledger

logger = logging.getLogger("noonbell.engine")

_LEAP_SECONDS: Final = 3600.0
_BACK_SECONDS: Final = 1.0
_CONFIRMATIONS: Final = 3


class SystemClock:
    """Wall time of the host."""

    def now(self) -> int:
        return time.time_ns() // 1000

    def elapsed(self) -> float:
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    async def wait(self, until: int, wakeup: asyncio.Event) -> None:
        remaining = (until - self.now()) / 1_000_000
        if remaining <= 0:
            await asyncio.sleep(0)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(remaining):
                await wakeup.wait()


class SharedClock:
    """Wall time as a database has it: the clock of the host, corrected by how far the other one is ahead of it."""

    def __init__(self, offset_us: Callable[[], int], clock: Clock | None = None) -> None:
        self._offset_us = offset_us
        self._clock = SystemClock() if clock is None else clock

    def now(self) -> int:
        return self._clock.now() + self._offset_us()

    def elapsed(self) -> float:
        return self._clock.elapsed()

    async def wait(self, until: int, wakeup: asyncio.Event) -> None:
        await self._clock.wait(until - self._offset_us(), wakeup)


def clock_for(store: Ledger) -> Clock:
    """Return the default clock: the host's own, corrected if the store knows of a shared one."""
    return SharedClock(lambda: store.clock_offset_us) if store.has_shared_clock else SystemClock()


class ClockWatch:
    """Detects a wall clock that was set.

    A leap of more than an hour against elapsed time may be a mistake that fires everything at once, so it has to be
    seen a few times before it is believed. A step back is only logged: the cursor never goes back, so nothing runs
    twice.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset: float | None = None  # wall minus elapsed, as last believed
        self._doubts = 0

    def trusted(self, now: int) -> bool:
        """Return whether to act on `now`. Call once for each look."""
        offset = now / 1_000_000 - self._clock.elapsed()
        if self._offset is None:
            self._offset = offset
        drift = offset - self._offset
        if drift > _LEAP_SECONDS and self._doubts < _CONFIRMATIONS:
            if not self._doubts:
                logger.warning("The wall clock leapt ahead by %.0f s; holding until that is confirmed", drift)
            self._doubts += 1
            return False
        if drift < -_BACK_SECONDS:
            logger.warning("The wall clock was set back by %.0f s; what has run will not run again", -drift)
        if drift > _LEAP_SECONDS:
            logger.warning("The leap of the wall clock by %.0f s is confirmed; going on", drift)
        self._doubts = 0
        self._offset = offset
        return True
