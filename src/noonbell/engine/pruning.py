"""The pruner: drops days of the ledger that are older than they have to be kept.

It works every hour. Between two days others may use the store. A large day may take a store long, so a stop does not
wait for it: what was dropped of it stays dropped. What is kept of a day is decided by the store (`prune_day`): never
less than `verify` needs.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, NamedTuple

from noonbell.background import PeriodicService
from noonbell.core.instants import moment
from noonbell.ports import Clock, Ledger, Pruned

logger = logging.getLogger("noonbell.engine")

_HOUR: Final = 3_600_000_000


class Pruning(NamedTuple):
    """The result of one pass of the pruner: what it has dropped."""

    days: int = 0
    runs: int = 0


class Pruner(PeriodicService[Pruning]):
    """Keeps the ledger of one store as short as `retention_us` allows."""

    def __init__(self, store: Ledger, clock: Clock, retention_us: int) -> None:
        super().__init__(clock, _HOUR)
        self._store = store
        self._retention_us = retention_us

    async def run(self, stop: asyncio.Event) -> None:
        running = asyncio.ensure_future(super().run(stop))
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            running.cancel()  # nothing happens where it is done
            await asyncio.wait({running})
        if not running.cancelled():
            running.result()

    async def run_once(self) -> Pruning:
        """Drop every day that ended before the time that is kept, or until a stop."""
        before, done = self._clock.now() - self._retention_us, Pruning()
        while not self.stopping and (pruned := await self._store.prune_day(before)) is not None:
            done = Pruning(done.days + 1, done.runs + pruned.runs)
            _log(pruned)
            await asyncio.sleep(0)
        return done


def _log(pruned: Pruned) -> None:
    day = moment(pruned.day).date()
    logger.info(
        "Pruned %s: %d runs, %d spans, %d attempts, %d audit events, %d dead letters, %d lifecycle events",
        day, pruned.runs, pruned.spans, pruned.attempts, pruned.audits, pruned.dead_letters, pruned.lifecycle_events,
    )  # fmt: skip
