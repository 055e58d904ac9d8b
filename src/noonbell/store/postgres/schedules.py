"""Schedules on PostgreSQL, declared and durable. Each verb is one transaction.

Editing durable schedules needs no engine: it takes the locks of the schedules that it changes.
"""

from __future__ import annotations

from noonbell.core.records import Declaration, QuietHoursPolicy, StoredSchedule
from noonbell.ports import Declared, ScheduleChange, ScheduleFilter
from noonbell.store.postgres import declaring, editing, hints, settling, slots, stored
from noonbell.store.postgres.session import Part
from noonbell.store.sampling import SamplingOnPostgres
from noonbell.store.waking import WakingOnPostgres


class PostgresSchedules(Part, SamplingOnPostgres, WakingOnPostgres):
    """Declared tasks and durable schedules, quiet hours and zone rules."""

    # --- declared tasks -------------------------------------------------------------------------------------------

    async def read_declared(self, managed_by: str | None = None) -> Declared:
        async with self._connections.reading() as db:
            return await declaring.read(db, managed_by)

    async def declare(self, declaration: Declaration) -> list[int]:
        touched = [
            *(part.sid for part in declaration.removed), *(part.sid for part in declaration.changed),
            *(part.sid for part in declaration.revived), *(part.sid for part in declaration.interrupted),
            *declaration.parked,
        ]  # fmt: skip
        async with self._connections.writing() as db:
            await self._session.still_held(db, declaration.managed_by)
            if touched:
                await settling.lock_schedules(db, touched)
                await slots.spill(db, touched)
            return await declaring.apply(db, declaration)

    # --- changing -------------------------------------------------------------------------------------

    async def apply(self, change: ScheduleChange) -> list[int]:
        noting = hints.WakeCollector()
        noting.created(change.created)
        async with self._connections.writing() as db:
            sids = await editing.apply(db, change._replace(edit=noting.edits(change.edit)))
            await hints.give(db, noting.wakes)
            return sids

    # --- reading --------------------------------------------------------------------------------------------------

    async def find(self, wanted: ScheduleFilter, after_sid: int = 0, limit: int | None = None) -> list[StoredSchedule]:
        async with self._connections.reading() as db:
            return await stored.page(db, wanted, after_sid, limit)

    # --- quiet hours ----------------------------------------------------------------------------------------------

    async def quiet_hours(self, policy_id: str | None = None) -> list[QuietHoursPolicy]:
        async with self._connections.reading() as db:
            return await editing.quiet_hours(db, policy_id)
