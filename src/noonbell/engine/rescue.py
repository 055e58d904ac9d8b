"""The rescuer: frees what dead engines of the lane have left.

Every engine looks for those that died without leaving, every second or two. The runs that they were executing are
queued again at once, ended as `unknown` where they must not be repeated, or abandoned where they have brought down
engine after engine; messages can be delivered again. What another had locked at that moment is freed at the next look.
Once a minute the rescuer looks without a reason, for what a failed stop may have left. An engine that is alive is never
touched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from noonbell.background import PeriodicService
from noonbell.ports import Clock, Ledger, MakeNotices, Rescue

logger = logging.getLogger("noonbell.engine")

_SWEEP_SECONDS: Final = 60.0
_DIED: Final = "the engine ended while it was executing, and it is not repeated"
_STOPPED: Final = "the engine was stopped while it was executing, and it is not repeated"
_NOTHING: Final = Rescue(0, [], 0)

NoticesOf = Callable[[int, str], MakeNotices]


class Rescuer(PeriodicService[Rescue]):
    """Rescues for one engine, which is `instance`.

    `notices_of(at, reason)` makes the notices of runs that end here. `on_rescue` is called after each rescue.
    """

    def __init__(
        self,
        store: Ledger,
        clock: Clock,
        *,
        lane: str,
        instance: str,
        interval_us: int,
        notices_of: NoticesOf | None = None,
        on_rescue: Callable[[Rescue], None] = lambda _: None,
    ) -> None:
        super().__init__(clock, interval_us)
        self.on_rescue = on_rescue
        self._store = store
        self._lane = lane
        self._instance = instance
        self._notices_of = notices_of
        self._swept = 0.0
        self._left = 0  # runs that the last rescue has left to the next

    async def run_once(self) -> Rescue:
        """Rescue if there is a dead engine, or a reason to look closer."""
        due = self._left > 0 or self._clock.elapsed() - self._swept >= _SWEEP_SECONDS
        return await self.rescue() if due or await self._finds_dead() else _NOTHING

    async def _finds_dead(self) -> bool:
        return bool((await self._store.engines.members(self._clock.now(), self._lane)).dead)

    async def rescue(self) -> Rescue:
        """Free what dead engines have left."""
        self._swept = self._clock.elapsed()
        rescued = await self._take_over(_DIED)
        self._left = rescued.left
        if rescued.dead:
            message = "dead engines found, their runs can be claimed again lane=%s engines=%s"
            logger.warning(message, self._lane, ", ".join(rescued.dead))
        if rescued.queued:
            logger.warning("%d runs were cut off when their engine ended; they start again", rescued.queued)
        self.on_rescue(rescued)
        return rescued

    async def release_own(self) -> Rescue:
        """Free what this engine itself has abandoned at its stop."""
        return await self._take_over(_STOPPED, stopped=True)

    async def _take_over(self, reason: str, *, stopped: bool = False) -> Rescue:
        now = self._clock.now()
        notices = None if self._notices_of is None else self._notices_of(now, reason)
        return await self._store.engines.rescue(self._lane, self._instance, now, notices, stopped=stopped)
