"""Ends of attempts on their way into the ledger.

While one batch is being committed the next one gathers, so that a single end is written at once and a burst shares
its commits, without a timer. A batch that cannot be written is kept and tried again for as long as the engine runs.
Only a stop sets a limit: a program must be able to end beside a full disk. What is not recorded by then is as after a
crash: the run starts again at the next start, under the same id. The same goes at once for an engine whose name was
taken: none of the ends that it still has to record will be accepted.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Sequence
from typing import Final

from noonbell.core.records import Settlement
from noonbell.engine.metrics import Metrics
from noonbell.errors import LeaseLostError, StoreError, describe_error
from noonbell.ports import Clock, Ledger, Settled
from noonbell.store.outage import outage_log_for

logger = logging.getLogger("noonbell.engine")

_FIRST_PAUSE: Final = 500_000
_LONGEST_PAUSE: Final = 5_000_000
_LARGEST_BATCH: Final = 8192
_LAST_TRIES: Final = 5


class Settler:
    """Writes settlements in batches and reports when they are written."""

    def __init__(
        self,
        store: Ledger,
        clock: Clock,
        metrics: Metrics,
        *,
        written: Callable[[Sequence[Settlement], Settled], None],
        stale: Callable[[Sequence[Settlement]], None],
        lost: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._written = written
        self._stale = stale  # called with the ends that were not recorded
        self._lost = lost  # called when the lease is lost
        self._outage = outage_log_for(store)
        self._context = contextvars.copy_context()  # not that of the action whose end comes first
        self._gathering: list[Settlement] = []
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._tries_left: int | None = None  # no limit while the engine runs

    def last_chance(self) -> None:
        """The engine stops: try a few more times, then give up."""
        self._tries_left = _LAST_TRIES
        self._hurry.set()

    async def drained(self, seconds: float) -> None:
        """Return when all ends that have come so far are written, or after so many seconds."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=seconds)

    def add(self, settlement: Settlement) -> None:
        self._gathering.append(settlement)
        if self._task is None:
            create_task = asyncio.get_running_loop().create_task
            self._task = create_task(self._drain(), name="noonbell-settle", context=self._context)

    async def _drain(self) -> None:
        pause = _FIRST_PAUSE
        while self._gathering:
            batch = self._gathering[:_LARGEST_BATCH]
            try:
                settled = await self._store.runs.settle(batch)
            except LeaseLostError:
                self._give_up()
                self._lost()
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, the ends must not be lost
                self._metrics.store_errors += 1
                self._report_failure(len(batch), error)
                if self._gives_up():
                    return
                self._hurry.clear()
                await self._clock.wait(self._clock.now() + pause, self._hurry)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            self._outage.worked("recording", self._clock.elapsed())
            del self._gathering[: len(batch)]
            if settled.stale:
                self._metrics.stale += len(settled.stale)
                self._stale(settled.stale)
            self._written(batch, settled)
        self._task = None

    def _report_failure(self, ended: int, error: Exception) -> None:
        if isinstance(error, StoreError):
            message = f"{ended} ended runs could not be recorded: {error}"
            self._outage.failed("recording", message, self._clock.elapsed())
        else:
            message = "%d ended runs could not be recorded, trying again: %s"
            logger.error(message, ended, describe_error(error), exc_info=error)

    def _gives_up(self) -> bool:
        if self._tries_left is None:
            return False
        self._tries_left -= 1
        if self._tries_left > 0:
            return False
        self._give_up()
        return True

    def _give_up(self) -> None:
        lost, self._gathering, self._task = self._gathering, [], None
        logger.error("%d ended runs stay unrecorded; they start again at the next start", len(lost))
        self._written(lost, Settled(lost, {}))
