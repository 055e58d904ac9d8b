"""The schedules of a store for commands: durable ones, and the tasks that programs have declared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noonbell.errors import ScheduleInvalidError, ScheduleNotFoundError
from noonbell.ledger.ledger_rows import declared_tasks
from noonbell.ports import Ledger, ScheduleFilter
from noonbell.schedules import Schedules
from noonbell.schedules.declared_tasks import declared_record, page_with_declared
from noonbell.schedules.history import Run
from noonbell.schedules.schedule_records import Page, QuietHoursRecord, Schedule, Upcoming


class LocalSchedules:
    """`Schedules` whose lists include the declared tasks."""

    def __init__(self, store: Ledger, schedules: Schedules) -> None:
        self._store = store
        self._schedules = schedules
        self.preview = self._preview
        self.pause = schedules.pause
        self.resume = schedules.resume
        self.delete = schedules.delete
        self.runs = schedules.runs
        self.run = schedules.run
        self.statistics = schedules.statistics
        self.get_quiet_hours = schedules.get_quiet_hours
        self.list_quiet_hours = schedules.list_quiet_hours
        self.delete_quiet_hours = schedules.delete_quiet_hours

    async def create(self, *, team: str | None, fields: dict[str, Any]) -> Schedule:
        given = fields if team is None else {**fields, "team": team}
        return await self._schedules.create(**given)

    async def update(self, schedule_id: str, fields: dict[str, Any]) -> Schedule:
        return await self._schedules.update(schedule_id, **fields)

    async def trigger(self, schedule_id: str, *, queue: bool, retry: bool) -> str:
        return await self._schedules.trigger(schedule_id, queue=queue, retry=retry)

    async def recent_runs(
        self, *, cursor: str | None = None, limit: int = 100, outcome: Any = None, team: str | None = None
    ) -> Page[Run]:
        return await self._schedules.recent_runs(cursor=cursor, limit=limit, outcome=outcome, team=team)

    async def create_quiet_hours(
        self, name: str, windows: Sequence[dict[str, Any]], *, policy_id: str | None, team: str | None
    ) -> QuietHoursRecord:
        return await self._schedules.create_quiet_hours(name, windows, policy_id=policy_id, team=team)

    async def update_quiet_hours(
        self, policy_id: str, *, name: str | None, windows: Sequence[dict[str, Any]] | None
    ) -> QuietHoursRecord:
        return await self._schedules.update_quiet_hours(policy_id, name=name, windows=windows)

    async def _preview(self, schedule_id: str, count: int) -> Sequence[Upcoming]:
        return await self._schedules.preview(schedule_id, count)

    # --- with declared tasks --------------------------------------------------------------------------------------

    async def get(self, schedule_id: str) -> Schedule:
        try:
            return await self._schedules.get(schedule_id)
        except ScheduleNotFoundError:
            for row in await declared_tasks(self._store):
                if row["schedule_id"] == schedule_id:
                    return declared_record(row)
            raise

    async def list(self, *, cursor: str | None = None, limit: int = 100, **wanted: Any) -> Page[Schedule]:
        if cursor is not None and not (cursor.isascii() and cursor.isdigit()):
            raise ScheduleInvalidError("cursor", cursor, "must be the next_cursor of a page")
        declared = await declared_tasks(self._store)
        return await page_with_declared(self._store, declared, ScheduleFilter(**wanted), int(cursor or 0), limit)
