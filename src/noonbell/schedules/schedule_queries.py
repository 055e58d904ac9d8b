"""Looking at schedules: one, many, what comes, what became of their occurrences, and who changed what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from noonbell.core.records import StoredSchedule
from noonbell.errors import ScheduleNotFoundError
from noonbell.ports import AuditFilter, Clock, Ledger, ScheduleFilter
from noonbell.schedules import arguments, audits
from noonbell.schedules.arguments import Order
from noonbell.schedules.occurrences import decided, decided_newest, upcoming
from noonbell.schedules.run_warnings import RunWarnings
from noonbell.schedules.schedule_detail import Details
from noonbell.schedules.schedule_records import (
    Audited,
    Occurrence,
    Page,
    Schedule,
    Upcoming,
    page_size,
    schedule_record,
)

_DAY: Final = timedelta(days=1) // timedelta(microseconds=1)


class Reading(Details, RunWarnings):
    """The part of `Schedules` that shows what there is."""

    _clock: Clock

    async def get(self, schedule_id: str) -> Schedule:
        return schedule_record(await self._find(schedule_id), now=self._clock.now())

    async def list(self, *, cursor: str | None = None, limit: int = 100, **wanted: Any) -> Page[Schedule]:
        """A page of schedules, oldest first. Filters: enabled, type, tag, name_contains, managed_by, lane,
        quiet_hours_policy_id, team.
        """
        size, chosen = page_size(limit), arguments.schedule_filter(wanted)
        chosen = chosen._replace(team=self._only(chosen.team))
        found = await self._store.schedules.find(chosen, arguments.after_cursor(cursor), size + 1)
        now = self._clock.now()
        items = [schedule_record(stored, now=now) for stored in found[:size]]
        return Page(items, str(found[size - 1].sid) if len(found) > size else None)

    async def preview(self, schedule_id: str, count: int = 10) -> Sequence[Upcoming]:
        """The next occurrences, as the schedule stands."""
        return upcoming(await self._find(schedule_id), self._clock.now(), page_size(count, "count"))

    async def occurrences(
        self,
        schedule_id: str,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        cursor: str | None = None,
        limit: int = 100,
        order: Order = "oldest",
    ) -> Page[Occurrence]:
        """Return the occurrences from `start` to `end` with their verdicts; without them, those of the last day.

        They come in the order that is asked for, "oldest" or "newest" first. A deleted schedule keeps its own.
        """
        now, size = self._clock.now(), page_size(limit)
        from_at, to_at = arguments.period(start, end)
        upto = now if to_at is None else to_at
        after = (upto - _DAY if from_at is None else from_at) - 1
        newest = arguments.is_newest_first(order)
        if newest:
            upto = upto if cursor is None else min(upto, arguments.after_cursor(cursor) - 1)
        elif cursor is not None:
            after = max(after, arguments.after_cursor(cursor))

        async def read(store: Ledger) -> Sequence[tuple[int, Occurrence]]:
            sid = (await self._history(schedule_id, store)).sid
            existing = await store.schedules.find(ScheduleFilter(schedule_ids=[schedule_id]))
            stored = existing[0] if existing else None
            select = decided_newest if newest else decided
            return await select(store, sid, stored, now, after=after, upto=upto, limit=size + 1)

        found = await self._store.snapshot(read)
        items = [occurrence for _, occurrence in found[:size]]
        return Page(items, str(found[size - 1][0]) if len(found) > size else None)

    async def _find(self, schedule_id: str) -> StoredSchedule:
        arguments.require_id("schedule", schedule_id)
        found = await self._store.schedules.find(ScheduleFilter(schedule_ids=[schedule_id]))
        if not found or self._team not in (None, found[0].team):
            raise ScheduleNotFoundError("schedule", schedule_id)
        return found[0]

    async def audit(
        self,
        *,
        subject: str | None = None,
        event: str | None = None,
        actor: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        team: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
        order: Order = "oldest",
    ) -> Page[Audited]:
        """A page of audit events, "oldest" or "newest" first.

        Missed slots come one by one, as long as a stretch has 1,000 at most.
        """
        from_at, to_at = arguments.period(start, end)
        arguments.check_texts(subject=subject, event=event, actor=actor, team=team)
        size = page_size(limit)
        wanted = AuditFilter(subject, event, actor, from_at, to_at, self._only(team))
        after = audits.Place.of(cursor)
        if arguments.is_newest_first(order):
            before = None if cursor is None else after.before_row
            found = await self._store.audit.page(wanted, before, size + 1, newest_first=True)
            return audits.page(found, after, size, newest=True)
        return audits.page(await self._store.audit.page(wanted, after.after_row, size + 1), after, size)
