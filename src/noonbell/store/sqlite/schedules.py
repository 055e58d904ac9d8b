"""Schedules on SQLite: declared, created, edited and found. Each verb is one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from noonbell.core.records import Declaration, QuietHoursPolicy, StoredSchedule
from noonbell.ports import Declared, ScheduleChange, ScheduleFilter
from noonbell.store.sampling import SamplingOnSqlite
from noonbell.store.sqlite import declaring, editing, stored
from noonbell.store.sqlite.part import Part
from noonbell.store.waking import WakingOnSqlite


class SqliteSchedules(Part, SamplingOnSqlite, WakingOnSqlite):
    """The schedules of a file."""

    # --- declared tasks -------------------------------------------------------------------------------------------

    async def read_declared(self, managed_by: str) -> Declared:
        return await self._connection.run(lambda db: declaring.read(db, managed_by), write=False)

    async def declare(self, declaration: Declaration) -> list[int]:
        return await self._connection.run(lambda db: declaring.apply(db, declaration))

    async def declared_tasks(self) -> list[Mapping[str, Any]]:
        return await self._connection.run(declaring.declared_tasks, write=False)

    # --- durable schedules ----------------------------------------------------------------------------------------

    async def apply(self, change: ScheduleChange) -> list[int]:
        return await self._connection.run(lambda db: editing.apply(db, change))

    async def find(self, schedule_ids: Sequence[str]) -> list[StoredSchedule]:
        return await self._connection.run(lambda db: stored.by_ids(db, schedule_ids), write=False)

    async def rows(self, managed_by: str | None = None) -> list[Mapping[str, Any]]:
        return await self._connection.run(lambda db: declaring.schedules(db, managed_by), write=False)

    async def deleted(self, sids: Sequence[int]) -> set[int]:
        sql = """
            SELECT d.sid FROM json_each(?) b CROSS JOIN schedule_definitions d ON d.sid = b.value
            WHERE d.removed_at IS NOT NULL
        """
        return {sid for (sid,) in await self._read(sql, (msgspec.json.encode(list(sids)).decode(),))}

    # --- quiet hours ----------------------------------------------------------------------------------------------

    async def quiet_hours(self, policy_id: str | None = None) -> list[QuietHoursPolicy]:
        return await self._connection.run(lambda db: editing.quiet_hours(db, policy_id), write=False)

    # --- zone rules -----------------------------------------------------------------------------------------------

    async def zone_rules(self) -> dict[str, str]:
        return await self._connection.run(stored.zone_rules, write=False)

    async def page(self, wanted: ScheduleFilter, after_sid: int, limit: int) -> list[StoredSchedule]:
        return await self._connection.run(lambda db: stored.page(db, wanted, after_sid, limit), write=False)
