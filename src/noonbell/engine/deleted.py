"""Runs in flight whose schedule was deleted.

A deletion ends the runs of the schedule in the ledger. A coroutine that executes such a run is cancelled; a plain
function cannot be, and is left to end. Nothing of either is recorded any more. Another process may delete a schedule:
the service asks about runs that last, by the sids of their schedules, and the engine asks when the ledger refuses an
end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, Final, NamedTuple

from noonbell.background import PeriodicService
from noonbell.core.records import Settlement, Start
from noonbell.engine.in_flight import InFlight
from noonbell.errors import StoreError
from noonbell.ports import Clock, Ledger, ScheduleFilter

logger = logging.getLogger("noonbell.engine")

_INTERVAL: Final = 5_000_000
_LONG_ENOUGH: Final = 4_000_000  # a run that is shorter ends before it is worth a question
_MOST_NAMED: Final = 10


class DeletedCheck(NamedTuple):
    """The result of a check: the schedules that were asked about, and those of them whose runs were cancelled."""

    asked: int = 0
    cancelled: int = 0


class DeletedRuns(PeriodicService[DeletedCheck]):
    """Finds and cancels runs of deleted schedules."""

    def __init__(self, store: Ledger, clock: Clock, in_flight: InFlight) -> None:
        super().__init__(clock, _INTERVAL, at_once=False)
        self._store = store
        self._in_flight = in_flight

    def cancel(self, sid: int) -> None:
        """Cancel what runs for a schedule that was deleted."""
        for job in self._in_flight.of(sid):
            if job.deleted:
                continue
            job.deleted = True
            does = "is cancelled" if job.is_async else "is left to end, since a plain function cannot be cancelled"
            logger.info('The schedule "%s" was deleted; its run %s', job.name, does)
            if job.task is not None:
                # after its first step: a task that is cancelled before that never gets to end its run
                asyncio.get_running_loop().call_soon(job.task.cancel)

    async def run_once(self) -> DeletedCheck:
        """Cancel the runs in flight whose schedules another process has deleted."""
        since = self._clock.now() - _LONG_ENOUGH
        lasting = {job.start.sid for job in self._in_flight if job.start.started_at <= since and not job.deleted}
        if not lasting:
            return DeletedCheck()
        deleted = await self._deleted(lasting)
        for sid in deleted:
            self.cancel(sid)
        return DeletedCheck(len(lasting), len(deleted))

    async def _deleted(self, sids: Collection[int]) -> set[int]:
        """Return those of these schedules that were deleted, declared tasks among them."""
        wanted = ScheduleFilter(sids=sorted(sids), declared=None, deleted=True)
        return {one.sid for one in await self._store.schedules.find(wanted)}

    def report_stale(self, stale: Sequence[Settlement]) -> Coroutine[Any, Any, None]:
        """Log ends that the ledger has refused: the schedule was deleted, or another engine has the run.

        The names are looked up at once: the runs are about to leave the engine.
        """
        named = []
        for settlement in stale[:_MOST_NAMED]:
            start, jobs = settlement.start, self._in_flight.of(settlement.start.sid)
            named.append((start, f'"{jobs[0].name}"' if jobs else f"with sid {start.sid}"))
        return self._report(named, len(stale) - len(named))

    async def _report(self, named: Sequence[tuple[Start, str]], more: int) -> None:
        try:
            deleted = await self._deleted({start.sid for start, _ in named})
        except StoreError:
            deleted = set()
        for start, name in named:
            if start.sid in deleted:
                logger.info("The schedule %s was deleted; how its run ended is not recorded", name)
            else:
                logger.error(
                    "The end of a run of the schedule %s was not recorded: it is already recorded, or another has "
                    "taken it over since (for %d, fence %d)", name, start.run_for, start.fence,
                )  # fmt: skip
        if more:
            logger.error("%d more ends were not recorded for the same reasons", more)
