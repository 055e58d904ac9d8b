"""Runs an engine of one lane: starts it, stops it, and starts another one after a lost lease.

Any number of engines may share a lane, in one process or on many machines. `engine_life` is one of them, from its start
to its end; `lane_stop` is how callers wait for a stop.

An engine may be taken for dead while this process stands still (a lease that was not renewed in time). What it had
claimed is another's by then, and what still runs here is abandoned. It comes back at once, as a new engine; while the
store fails it tries again, at pauses that grow up to a minute. Until then `engine` is None.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from noonbell.actions.registry import Actions
from noonbell.engine import Engine
from noonbell.engine.lane_jobs import LaneJobs
from noonbell.errors import StopFromTaskError, StoreError, describe_error
from noonbell.notify.dispatcher import NotificationDispatcher
from noonbell.ports import Clock, Ledger
from noonbell.schedules.engine_life import EngineLife, LaneConfig
from noonbell.schedules.lane_stop import LaneReturn, LaneStop

logger = logging.getLogger("noonbell.schedules")

_FIRST_RETURN: Final = 1_000_000
_LONGEST_RETURN: Final = 60_000_000


class LaneRunner:
    """Runs an engine of one lane."""

    def __init__(
        self,
        store: Ledger,
        clock: Clock,
        name: str,
        actions: Actions,
        *,
        longest_wait_us: int,
        retention_us: int | None = None,
        threads: int | None = None,
        desk: NotificationDispatcher | None = None,
    ) -> None:
        self.name = name
        self.desk = desk
        self.lost = 0  # how often this engine was taken for dead
        self._config = LaneConfig(store, clock, name, actions, desk, longest_wait_us, retention_us, threads)
        self._clock = clock
        self._changing = asyncio.Lock()
        self._life: EngineLife | None = None  # while an engine runs here
        self._ending: EngineLife | None = None  # while one ends
        self._stop: LaneStop | None = None  # the last one
        self._return: LaneReturn | None = None  # the last one

    @property
    def engine(self) -> Engine[LaneJobs] | None:
        """The engine that runs here, while it does."""
        return None if self._life is None else self._life.engine

    @property
    def instance(self) -> str | None:
        """The name of the engine that runs here, while it does."""
        return None if self._life is None else self._life.member.instance

    def require_other_thread(self, method: str) -> None:
        """Raise StopFromTaskError in a plain function that this engine runs: it would wait for its own end."""
        life = self._life or self._ending
        if life is not None and life.engine.in_own_thread():
            raise StopFromTaskError(method, owner="schedules", thread=True)

    def require_other_task(self, method: str) -> None:
        """Raise StopFromTaskError in a coroutine that this engine runs: it would wait for its own end."""
        life = self._life or self._ending
        if life is not None and life.engine.is_own_task(asyncio.current_task()):
            raise StopFromTaskError(method, owner="schedules")

    # --- starting and stopping ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Run an engine, unless one runs."""
        if self._stop is not None:
            await self._stop.over()
        async with self._changing:
            if self._life is None:
                await self._start()

    async def _start(self) -> None:
        life = EngineLife(self._config, self._on_lost)
        await life.start()
        self._life = life

    async def stop(self, timeout_us: int | None = None) -> bool:
        """Stop the engine; False where runs had not ended in the time given, and were abandoned."""
        if self._stop is None or self._stop.ended:
            self._stop = LaneStop(self._clock, self._stop_engine)
            if (life := self._ending or self._life) is not None:  # also one that a return is about to end
                self._stop.waits_for(life)
        return await self._stop.wait(timeout_us)

    async def _stop_engine(self, stop: LaneStop) -> None:
        if self._return is not None:
            self._return.give_up()
            await self._return.over()
        async with self._changing:
            if self._return is not None:
                self._return.give_up()  # one that began while this waited
            if self._life is not None:
                stop.waits_for(self._life)
                await self._end(self._life, stop)

    async def _end(self, life: EngineLife, stop: LaneStop | None) -> None:
        """End a life: by a stop, or, without one, because its lease is lost."""
        self._life, self._ending = None, life
        try:
            await life.end(lambda: None if stop is None else stop.abandoned, lost=stop is None)
        finally:
            self._ending = None

    # --- a lost lease ---------------------------------------------------------------------------------------------

    def _on_lost(self, life: EngineLife) -> None:
        self.lost += 1
        message = "lease lost, another engine has taken over engine=%s next=%s"
        if self._ending is life:
            logger.error(message, life.member.instance, "stop")
            life.abandon_soon()
            return
        logger.error(message, life.member.instance, "rejoin under a new name")
        self._return = LaneReturn(lambda give_up: self._come_back(life, give_up))

    async def _come_back(self, life: EngineLife, give_up: asyncio.Event) -> None:
        async with self._changing:
            if self._life is not life:
                return  # it is being stopped
            await life.engine.cut_off()  # however its runs ended, that would count for nothing
            await self._end(life, None)
        await self._start_again(give_up)

    async def _start_again(self, give_up: asyncio.Event) -> None:
        pause = _FIRST_RETURN
        while not give_up.is_set():
            async with self._changing:
                if give_up.is_set() or self._life is not None:
                    return
                try:
                    await self._start()
                except Exception as error:
                    expected = isinstance(error, StoreError)
                    message = 'The lane "%s" could not be joined again yet: %s'
                    logger.error(message, self.name, describe_error(error), exc_info=not expected)  # noqa: TRY400 - a trace only where it helps
                else:
                    return
            await self._clock.wait(self._clock.now() + pause, give_up)
            pause = min(2 * pause, _LONGEST_RETURN)
