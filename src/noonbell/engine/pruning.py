"""The pruner: drops days of the ledger that are older than they have to be kept.

It looks every hour. Between two days the others have their turn. A large day may take a store long, so a stop does not
wait for it: what was done of it stands by itself. What is kept of a day is the store's to say (`prune_day`): never less
than `verify` needs.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Final

from noonbell.ports import Clock, Pruned, ScheduleStore

logger = logging.getLogger("noonbell.engine")

_HOUR: Final = 3_600_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Pruner:
    """Keeps the ledger of one store as short as `retention_us` allows."""

    def __init__(self, store: ScheduleStore, clock: Clock, retention_us: int) -> None:
        self._store = store
        self._clock = clock
        self._retention_us = retention_us

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.prune(stop)
            await self._clock.wait(self._clock.now() + _HOUR, stop)

    async def prune(self, stop: asyncio.Event) -> int:
        """Drop every day that ended before the time that is kept, or until `stop`; returns how many there were."""
        before, days = self._clock.now() - self._retention_us, 0
        while not stop.is_set() and (pruned := await self._prune_day(before, stop)) is not None:
            days += 1
            logger.info(
                "Pruned %s: %d runs, %d spans, %d attempts, %d audit events, %d dead letters, %d lifecycle events",
                (_EPOCH + timedelta(microseconds=pruned.day)).date(), pruned.runs, pruned.spans, pruned.attempts,
                pruned.audits, pruned.dead_letters, pruned.lifecycle_events,
            )  # fmt: skip
            await asyncio.sleep(0)
        return days

    async def _prune_day(self, before: int, stop: asyncio.Event) -> Pruned | None:
        """Drop a day; None where there is none, or `stop` came first."""
        pruning = asyncio.ensure_future(self._store.prune_day(before))
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({pruning, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            pruning.cancel()  # nothing happens where it is done
            await asyncio.wait({pruning})
        return None if pruning.cancelled() else pruning.result()
