"""Runs that were claimed and not started: they are handed back to the ledger, with their attempt unchanged."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from noonbell.core.records import AT_ONCE, LiveRun, Start
from noonbell.engine.in_flight import InFlight
from noonbell.errors import LeaseLostError, StoreError, describe_error
from noonbell.ports import Ledger

logger = logging.getLogger("noonbell.engine")


class UnstartedRuns:
    """Hands back what a stop, or a claim with an unknown result, has left claimed and not started."""

    def __init__(self, store: Ledger, in_flight: InFlight, owner: str) -> None:
        self.in_doubt = False  # a claim failed, and may have been committed all the same
        self._store = store
        self._in_flight = in_flight
        self._owner = owner
        self._starts: list[Start] = []

    def add(self, *starts: Start) -> None:
        """Note runs that a stop has kept from starting, for `hand_back_all`."""
        self._starts.extend(starts)

    async def hand_back_all(self) -> None:
        """Hand back what was added."""
        starts, self._starts = self._starts, []
        await self.hand_back(starts)

    async def hand_back(self, starts: Sequence[Start]) -> None:
        """Hand runs back. If the store fails, they stay claimed until the engine, or another one, starts again."""
        if not starts:
            return
        try:
            await self._store.runs.hand_back(starts, self._owner, AT_ONCE)
        except LeaseLostError:
            logger.warning("%d unstarted runs are left to the engine that has taken the name", len(starts))
        except Exception as error:
            expected = isinstance(error, StoreError)
            message = "%d unstarted runs stay claimed until the next start: %s"
            logger.error(message, len(starts), describe_error(error), exc_info=not expected)  # noqa: TRY400 - a trace only where it helps
        for start in starts:
            self._in_flight.discard(start)
        if not self._in_flight:
            self._in_flight.empty.set()

    async def account_for_claims(self) -> None:
        """Hand back what a failed claim has claimed all the same: this engine would never start it."""
        if not self.in_doubt:
            return
        owned = await self._store.runs.live(owner=self._owner)
        lost = [live for live in owned if not self._in_flight.holds(live)]
        if lost:
            logger.warning("%d runs were claimed by a look that failed; they start now", len(lost))
            await self._store.runs.hand_back([as_start(live) for live in lost], self._owner, AT_ONCE)
        self.in_doubt = False


def as_start(live: LiveRun) -> Start:
    """Return the start of a live run, as far as handing it back needs it."""
    return Start(
        sid=live.sid, kind=live.kind, run_for=live.run_for, fence=live.fence, attempt=live.attempt, cause=live.cause,
        epoch=live.epoch, started_at=live.attempt_at or 0, due_at=live.attempt_at or 0, following=None,
    )  # fmt: skip
