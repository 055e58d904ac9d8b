"""The loop of an engine: it polls when something is due, and at least once in every longest wait.

A wake-up that is lost, or a clock that was set, costs at most the longest wait. A poll that fails is logged and tried
again shortly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from noonbell.engine.jobs import NEVER
from noonbell.engine.phase import Life
from noonbell.errors import StoreError
from noonbell.ports import Clock
from noonbell.store.outage import Outage

logger = logging.getLogger("noonbell.engine")

_STORE_PAUSE: Final = 500_000


class PollLoop:
    """Calls `poll`, which returns when the next poll is needed."""

    def __init__(
        self,
        clock: Clock,
        life: Life,
        poll: Callable[[], Awaitable[int]],
        *,
        longest_wait_us: int,
        outage: Outage,
        failed: Callable[[Exception], bool],
    ) -> None:
        """`failed` is called with what a poll raises, and returns whether to go on."""
        self.left_due = False  # the last poll has left something due, for want of capacity or because it was locked
        self.freed = False  # a run has ended since the last poll began
        self._clock = clock
        self._life = life
        self._poll = poll
        self._longest_wait = longest_wait_us
        self._outage = outage
        self._failed = failed
        self._wakeup = asyncio.Event()
        self._polled = clock.elapsed()  # when a poll completed last, or the engine began
        self._planned = 0
        self._woken_for = NEVER
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._polled = self._clock.elapsed()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="noonbell-engine")

    def stop(self) -> None:
        """Wake the loop, so that it notices that the engine stops."""
        self._wakeup.set()

    async def stopped(self) -> None:
        """Return when the loop has ended."""
        if self._task is not None:
            await asyncio.wait([self._task])  # it may have been cancelled with everything else

    def wake(self, at: int) -> None:
        """Poll at `at`, or sooner."""
        self._woken_for = min(self._woken_for, at)
        if at < self._planned:
            self._wakeup.set()

    @property
    def age(self) -> float:
        """Return the seconds since a poll completed; until the first one, since the engine began."""
        return self._clock.elapsed() - self._polled

    async def _run(self) -> None:
        while not self._life.stopping:
            self._wakeup.clear()
            self._woken_for = NEVER
            self._planned = 0
            try:
                wake_at = await self._poll()
            except Exception as error:  # noqa: BLE001 - the loop goes on; it is logged below
                if not self._failed(error):
                    return
                self._log(error)
                wake_at = self._clock.now() + _STORE_PAUSE
            else:
                self._polled = self._clock.elapsed()
                self._outage.worked("looking", self._polled)
            # counted from here: the clock may have been set back during the poll
            self._planned = min(wake_at, self._woken_for, self._clock.now() + self._longest_wait)
            await self._wait()

    async def _wait(self) -> None:
        """Return when the planned poll is due. A wake-up for a later instant changes the plan only."""
        while not self._life.stopping:
            await self._clock.wait(self._planned, self._wakeup)
            now = self._clock.now()
            if not self._wakeup.is_set() or self._woken_for <= now:
                return
            self._wakeup.clear()
            # counted from here again, and for the same reason
            self._planned = min(self._planned, self._woken_for, now + self._longest_wait)

    def _log(self, error: Exception) -> None:
        if isinstance(error, StoreError):
            self._outage.failed("looking", error, self._clock.elapsed())
        else:
            logger.error("poll failed, retrying shortly", exc_info=error)
