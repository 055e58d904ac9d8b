"""Schedules on SQLite: declared, created, edited and found. Each verb is one transaction."""

from __future__ import annotations

from noonbell.core.records import Declaration, QuietHoursPolicy, StoredSchedule
from noonbell.ports import Declared, ScheduleChange, ScheduleFilter
from noonbell.store.sampling import SamplingOnSqlite
from noonbell.store.sqlite import declaring, editing, stored
from noonbell.store.sqlite.part import Part
from noonbell.store.waking import WakingOnSqlite


class SqliteSchedules(Part, SamplingOnSqlite, WakingOnSqlite):
    """The schedules of a file."""

    # --- declared tasks -------------------------------------------------------------------------------------------

    async def read_declared(self, managed_by: str | None = None) -> Declared:
        return await self._connection.run(lambda db: declaring.read(db, managed_by), write=False)

    async def declare(self, declaration: Declaration) -> list[int]:
        return await self._connection.run(lambda db: declaring.apply(db, declaration))

    # --- durable schedules ----------------------------------------------------------------------------------------

    async def apply(self, change: ScheduleChange) -> list[int]:
        return await self._connection.run(lambda db: editing.apply(db, change))

    async def find(self, wanted: ScheduleFilter, after_sid: int = 0, limit: int | None = None) -> list[StoredSchedule]:
        return await self._connection.run(lambda db: stored.page(db, wanted, after_sid, limit), write=False)

    # --- quiet hours ----------------------------------------------------------------------------------------------

    async def quiet_hours(self, policy_id: str | None = None) -> list[QuietHoursPolicy]:
        return await self._connection.run(lambda db: editing.quiet_hours(db, policy_id), write=False)
