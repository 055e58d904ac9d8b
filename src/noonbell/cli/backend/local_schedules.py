"""Schedules of a store as a command sees them: durable ones, and between them the tasks that programs have declared.

Both sorts share one table and its numbers, so the cursor of a page is the last number on it, as it is for a server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from noonbell.core.records import DECLARED_OWNERS, DEFAULT_TEAM
from noonbell.errors import ScheduleInvalidError, ScheduleNotFoundError
from noonbell.ledger.reading import moment, rows
from noonbell.ports import ScheduleFilter, ScheduleStore
from noonbell.schedules import Schedules
from noonbell.schedules.history import Run
from noonbell.schedules.records import Page, QuietHoursRecord, Retry, Schedule, Upcoming, schedule_record


class LocalSchedules:
    """`Schedules` with the declared tasks among those that are listed."""

    def __init__(self, store: ScheduleStore, schedules: Schedules) -> None:
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
            for row in await self._declared():
                if row["schedule_id"] == schedule_id:
                    return _declared_record(row)
            raise

    async def list(self, *, cursor: str | None = None, limit: int = 100, **wanted: Any) -> Page[Schedule]:
        if cursor is not None and not (cursor.isascii() and cursor.isdigit()):
            raise ScheduleInvalidError("cursor", cursor, "must be the next_cursor of a page")
        chosen, after = ScheduleFilter(**wanted), int(cursor or 0)
        durable = await self._store.list_schedules(chosen, after, limit + 1)
        found = [(stored.sid, schedule_record(stored)) for stored in durable]
        found += [
            (int(row["sid"]), _declared_record(row))
            for row in await self._declared()
            if row["sid"] > after and _fits(row, chosen)
        ]
        found.sort(key=lambda one: one[0])
        last = str(found[limit - 1][0]) if len(found) > limit else None
        return Page([schedule for _, schedule in found[:limit]], last)

    async def _declared(self) -> Sequence[Mapping[str, Any]]:
        owners: dict[str, None] = {}  # everybody who has ever declared tasks here has begun a life
        async for page in rows(self._store, "lifecycle"):
            for _, managed_by, *_ in page:
                if isinstance(managed_by, str) and managed_by.startswith(DECLARED_OWNERS):
                    owners[managed_by] = None
        return [row for owner in owners for row in await self._store.schedules(owner, removed=False)]


def _fits(row: Mapping[str, Any], wanted: ScheduleFilter) -> bool:
    if wanted.tag is not None or wanted.lane is not None or wanted.quiet_hours_policy_id is not None:
        return False  # it has none of these
    return (
        wanted.enabled in (None, bool(row["enabled"]))
        and wanted.type in (None, row["type"])
        and wanted.managed_by in (None, row["managed_by"])
        and wanted.team in (None, row["team"] or DEFAULT_TEAM)
        and (wanted.name_contains is None or wanted.name_contains.lower() in str(row["name"]).lower())
    )


def _declared_record(row: Mapping[str, Any]) -> Schedule:
    """A task that a program has declared, with the policies that all of them have."""

    def at(name: str) -> Any:
        return moment(row[name]) if type(row[name]) is int else None

    return Schedule(
        schedule_id=row["schedule_id"], name=str(row["name"]), enabled=bool(row["enabled"]), type=row["type"],
        spec=str(row["spec"]), next_run_at=at("next_run_at"), last_run_at=at("last_run_at"),
        timezone=str(row["timezone"]), quiet_hours_policy_id=None, catch_up_policy=row["catch_up_policy"], payload=None,
        created_at=at("created_at"), updated_at=at("updated_at"), catch_up_cap=1, overlap="coalesce",
        retry=Retry(None, (row["retry_delay_us"] or 0) / 1_000_000, "fixed", None, 0.0), retry_vs_new="preempt",
        dst="literal", start_at=None, end_at=None, jitter_seconds=0.0, at_most_once=False, tags=(),
        action={"kind": "callback", "name": str(row["name"])}, managed_by=row["managed_by"], lane="",
        epoch=row["epoch"], running=int(row.get("running", 0)), last_success_at=at("last_success_at"),
        last_failure_at=at("last_failure_at"), team=row["team"] or DEFAULT_TEAM,
    )  # fmt: skip
