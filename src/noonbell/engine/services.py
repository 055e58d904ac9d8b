"""Duties beside the loop, which live as long as the engine does: delivery, pruning, the watch over zone rules.

A duty runs until it is told to stop. One that raises is logged and begun again after a pause, which grows while it
keeps raising; it never takes the loop or another duty with it. Where the engine's name was taken by another it ends and
says so: the engine may have its hands full, or be stopping, and not find out by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from noonbell.errors import HoldLostError, StoreError, describe_error
from noonbell.ports import Clock
from noonbell.store.outage import Outage

logger = logging.getLogger("noonbell.engine")

_FIRST_PAUSE: Final = 1_000_000
_LONGEST_PAUSE: Final = 300_000_000
# A store that is away comes back at any moment, and asking it costs little.
_LONGEST_STORE_PAUSE: Final = 10_000_000
_TOLD_AGAIN_SECONDS: Final = 60.0

Duty = Callable[[asyncio.Event], Awaitable[None]]


class Services:
    """The duties of one engine, by name."""

    def __init__(
        self,
        clock: Clock,
        duties: Mapping[str, Duty],
        outage: Outage | None = None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._outage = outage  # of the store that they work on: what is told of it already is not told by each of them
        self._on_lost = on_lost
        self._duties = dict(duties)
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        create_task = asyncio.get_running_loop().create_task
        self._tasks = [
            create_task(self._serve(name, duty), name=f"noonbell-{name}") for name, duty in self._duties.items()
        ]

    async def stop(self) -> None:
        """Tell all of them to end, and wait until they have."""
        self._stop.set()
        if self._tasks:
            await asyncio.wait(self._tasks)  # one may have been cancelled with everything else

    def cut_off(self) -> None:
        """Tell all of them to end at once, whatever they are at; `stop` waits until they have."""
        self._stop.set()
        for task in self._tasks:
            task.cancel()

    async def _serve(self, name: str, duty: Duty) -> None:
        pause = _FIRST_PAUSE
        told_at: float | None = None
        while not self._stop.is_set():
            began = self._clock.now()
            try:
                await duty(self._stop)
            except HoldLostError:
                self._on_lost()
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, the duty begins again
                if self._clock.now() - began > _LONGEST_PAUSE:
                    pause = _FIRST_PAUSE  # it had gone well for a while
                told_at = self._tell(name, pause, error, told_at)
                await self._clock.wait(self._clock.now() + pause, self._stop)
                pause = min(2 * pause, _LONGEST_STORE_PAUSE if isinstance(error, StoreError) else _LONGEST_PAUSE)
            else:
                return

    def _tell(self, name: str, pause: int, error: Exception, told_at: float | None) -> float | None:
        """Returns when it was told last that the store failed this duty."""
        told = "%s failed, beginning again in %.0f s: %s"
        if not isinstance(error, StoreError):
            logger.error(told, name, pause / 1_000_000, describe_error(error), exc_info=error)
            return told_at
        now = self._clock.elapsed()
        known = self._outage is not None and self._outage.lasts
        fresh = told_at is None or now - told_at >= _TOLD_AGAIN_SECONDS
        level = logging.ERROR if fresh and not known else logging.DEBUG
        logger.log(level, told, name, pause / 1_000_000, describe_error(error))
        return now if level == logging.ERROR else told_at


def every(clock: Clock, interval_us: int, step: Callable[[], Awaitable[None]], *, at_once: bool = True) -> Duty:
    """A duty that takes a step at each interval, and the first one at once or after the first interval."""

    async def duty(stop: asyncio.Event) -> None:
        if not at_once:
            await clock.wait(clock.now() + interval_us, stop)
        while not stop.is_set():
            await step()
            await clock.wait(clock.now() + interval_us, stop)

    return duty
