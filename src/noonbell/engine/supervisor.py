"""The supervisor: runs background services beside the loop, for as long as the engine lives.

A service that raises is logged and restarted after a pause, which grows while it keeps raising; neither the loop nor
another service ends with it. So is one in which a CancelledError comes up that is not its own, for example that of
a closed connection. A service that finds the engine's lease lost ends and reports that: the engine may be busy, or be
stopping, and not find out by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from noonbell.errors import LeaseLostError, StoreError, describe_error
from noonbell.ports import BackgroundService, Clock
from noonbell.store.outage import Outage

logger = logging.getLogger("noonbell.engine")

_FIRST_PAUSE: Final = 1_000_000
_LONGEST_PAUSE: Final = 300_000_000
# A store that is away comes back at any moment, and a try costs little.
_LONGEST_STORE_PAUSE: Final = 10_000_000
_LOGGED_AGAIN_SECONDS: Final = 60.0


class Supervisor:
    """The background services of one engine, by name.

    `outage` is that of the store that they work on: while it lasts, it is not logged by each of them.
    """

    def __init__(
        self,
        clock: Clock,
        services: Mapping[str, BackgroundService],
        outage: Outage | None = None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._outage = outage
        self._on_lost = on_lost
        self._services = dict(services)
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        create_task = asyncio.get_running_loop().create_task
        self._tasks = [
            create_task(self._supervise(name, service), name=f"noonbell-{name}")
            for name, service in self._services.items()
        ]

    async def stop(self) -> None:
        """Stop all services; returns when they have ended."""
        self._stop.set()
        if self._tasks:
            await asyncio.wait(self._tasks)  # one may have been cancelled with everything else

    def cancel(self) -> None:
        """Cancel all services, whatever they are doing; `stop` waits until they have ended."""
        self._stop.set()
        for task in self._tasks:
            task.cancel()

    async def _supervise(self, name: str, service: BackgroundService) -> None:
        pause = _FIRST_PAUSE
        logged_at: float | None = None
        while not self._stop.is_set():
            began = self._clock.now()
            try:
                await service.run(self._stop)
            except LeaseLostError:
                self._on_lost()
                return
            except (Exception, asyncio.CancelledError) as error:  # whatever it is, the service is restarted
                if isinstance(error, asyncio.CancelledError) and self._is_cancelled():
                    raise
                if self._clock.now() - began > _LONGEST_PAUSE:
                    pause = _FIRST_PAUSE  # it had worked for a while
                logged_at = self._log(name, pause, error, logged_at)
                await self._clock.wait(self._clock.now() + pause, self._stop)
                pause = min(2 * pause, _LONGEST_STORE_PAUSE if isinstance(error, StoreError) else _LONGEST_PAUSE)
            else:
                return

    def _is_cancelled(self) -> bool:
        """Return whether this task is cancelled, and not only something that the service has waited for."""
        task = asyncio.current_task()
        return self._stop.is_set() or task is None or task.cancelling() > 0

    def _log(self, name: str, pause: int, error: BaseException, logged_at: float | None) -> float | None:
        """Log a failure; returns when a failure of the store was last logged for this service."""
        message = "%s failed, restarting in %.0f s: %s"
        if not isinstance(error, StoreError):
            logger.error(message, name, pause / 1_000_000, describe_error(error), exc_info=error)
            return logged_at
        now = self._clock.elapsed()
        known = self._outage is not None and self._outage.lasts
        fresh = logged_at is None or now - logged_at >= _LOGGED_AGAIN_SECONDS
        level = logging.ERROR if fresh and not known else logging.DEBUG
        logger.log(level, message, name, pause / 1_000_000, describe_error(error))
        return now if level == logging.ERROR else logged_at
