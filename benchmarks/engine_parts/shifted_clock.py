"""The system's clock with an offset: real seconds pass, but a minute need not be waited for.

`elapsed` is shifted along, so that a jump looks like a machine that was idle for that long, not like a clock that was
set. Whoever waits is woken by a jump past its time.
"""

from __future__ import annotations

import asyncio
import contextlib

from noonbell.engine import SystemClock


class ShiftedClock:
    """A Clock for the engine."""

    def __init__(self, now: int) -> None:
        self._system = SystemClock()
        self._shift = now - self._system.now()
        self._waiting: dict[asyncio.Timeout, int] = {}

    def now(self) -> int:
        return self._system.now() + self._shift

    def elapsed(self) -> float:
        return self._system.elapsed() + self._shift / 1_000_000

    async def wait(self, until: int, wakeup: asyncio.Event) -> None:
        if until <= self.now():
            await asyncio.sleep(0)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout((until - self.now()) / 1_000_000) as timer:
                self._waiting[timer] = until
                try:
                    await wakeup.wait()
                finally:
                    del self._waiting[timer]

    def jump_to(self, instant: int) -> None:
        """Let it be `instant` now; call it on the event loop."""
        self._shift += instant - self.now()
        now, loop_now = self.now(), asyncio.get_running_loop().time()
        for timer, until in self._waiting.items():
            if not timer.expired():  # its waiter has not had the loop yet
                timer.reschedule(loop_now + max(0, until - now) / 1_000_000)
