"""Runs in flight whose schedule was deleted.

A deletion ends the runs of the schedule in the ledger. A coroutine that executes such a run is cancelled; a plain
function cannot be, and is left to end. Nothing of either is recorded any more. Another process may delete a schedule:
the engine asks from time to time, and when the ledger refuses an end.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from noonbell.core.records import Settlement, Start
from noonbell.engine.in_flight import InFlight
from noonbell.errors import StoreError
from noonbell.ports import LEDGER_TABLES, Clock, Store

logger = logging.getLogger("noonbell.engine")

_LONG_ENOUGH: Final = 4_000_000  # a run that is shorter ends before it is worth a question
_MOST_NAMED: Final = 10
_MOST_ASKED: Final = 100


class DeletedRuns:
    """Finds and cancels runs of deleted schedules."""

    def __init__(self, store: Store, clock: Clock, in_flight: InFlight, owner: str) -> None:
        self._store = store
        self._clock = clock
        self._in_flight = in_flight
        self._owner = owner

    def cancel(self, sid: int) -> None:
        """Cancel what runs for a schedule that was deleted."""
        for job in self._in_flight.of(sid):
            if job.deleted:
                continue
            job.deleted = True
            does = "is cancelled" if job.is_async else "is left to end, since a plain function cannot be cancelled"
            logger.info('The schedule "%s" was deleted; its run %s', job.name, does)
            if job.task is not None:
                job.task.cancel()

    async def poll(self) -> None:
        """Cancel the runs in flight whose schedules another process has deleted."""
        since = self._clock.now() - _LONG_ENOUGH
        started = [job.start for job in self._in_flight if job.start.started_at <= since]
        if not started:
            return
        owned = {(live.sid, live.kind, live.run_for) for live in await self._store.owned(self._owner)}
        gone = [start for start in started if (start.sid, start.kind, start.run_for) not in owned]
        for start in gone[:_MOST_ASKED]:  # most of them are about to be recorded; the next poll asks about the rest
            if await self._is_deleted(start.sid):
                self.cancel(start.sid)

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
        for start, name in named:
            try:
                deleted = await self._is_deleted(start.sid)
            except StoreError:
                deleted = False
            if deleted:
                logger.info("The schedule %s was deleted; how its run ended is not recorded", name)
            else:
                logger.error(
                    "The end of a run of the schedule %s was not recorded: it is on record already, or another has "
                    "taken it over since (for %d, fence %d)", name, start.run_for, start.fence,
                )  # fmt: skip
        if more:
            logger.error("%d more ends were not recorded for the same reasons", more)

    async def _is_deleted(self, sid: int) -> bool:
        place = LEDGER_TABLES["schedules"].columns.index("removed_at")
        rows = await self._store.read_ledger("schedules", None, 1, above_sid=sid - 1, upto_sid=sid)
        return any(row[place] is not None for row in rows)
