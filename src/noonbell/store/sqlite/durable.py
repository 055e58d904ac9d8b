"""The verbs of ScheduleStore on SQLite, as a part of the store. Each is one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from noonbell.core.records import Asked, AuditEvent, DurableSchedule, QuietHoursPolicy, StoredSchedule, asked_cause
from noonbell.ports import (
    NO_QUIET_CHANGES,
    AuditFilter,
    Decide,
    LaneClaim,
    MakeEdit,
    Pruned,
    QuietChanges,
    ScheduleFilter,
)
from noonbell.store.sqlite import asking, auditing, by_policy, editing, pruning, stored
from noonbell.store.sqlite.connection import Connection
from noonbell.store.waking import Wanted


class DurableOnSqlite:
    """Durable schedules of a file."""

    _connection: Connection

    async def create_schedules(self, created: Sequence[DurableSchedule], at: int, actor: str) -> list[int]:
        return await self._connection.run(lambda db: editing.create(db, created, at, actor))

    async def edit_schedules(self, schedule_ids: Sequence[str], edit: MakeEdit) -> None:
        await self._connection.run(lambda db: editing.edit(db, schedule_ids, edit))

    async def apply_schedules(
        self,
        created: Sequence[DurableSchedule],
        schedule_ids: Sequence[str],
        edit: MakeEdit,
        at: int,
        actor: str,
        *,
        quiet: QuietChanges = NO_QUIET_CHANGES,
    ) -> list[int]:
        return await self._connection.run(
            lambda db: editing.apply(db, created, schedule_ids, edit, at=at, actor=actor, quiet=quiet)
        )

    async def find_schedules(self, schedule_ids: Sequence[str]) -> list[StoredSchedule]:
        return await self._connection.run(lambda db: stored.by_ids(db, schedule_ids), write=False)

    async def list_schedules(self, wanted: ScheduleFilter, after_sid: int, limit: int) -> list[StoredSchedule]:
        return await self._connection.run(lambda db: stored.page(db, wanted, after_sid, limit), write=False)

    async def claim(
        self,
        lane: str,
        owner: str,
        now: int,
        limit: int,
        decide: Decide,
        *,
        among: Sequence[int] | None = None,
        due_by: int | None = None,
    ) -> LaneClaim:
        wanted = Wanted(lane, now if due_by is None else due_by, limit, among)
        return await self._connection.run(
            lambda db: by_policy.claim(db, self._connection.definitions, decide, wanted, owner=owner, now=now),
            peek=lambda db: by_policy.peek(db, wanted),
        )

    async def ask(
        self, schedule_id: str, at: int, actor: str, via: Asked = "manual", *, queue: bool = False, retry: bool = True
    ) -> int | None:
        cause = asked_cause(via, retry=retry)
        return await self._connection.run(lambda db: asking.ask(db, schedule_id, at, actor, cause, queue=queue))

    async def put_quiet_hours(
        self, policy: QuietHoursPolicy, audit: AuditEvent, edit: MakeEdit, *, seen_at: int | None = None
    ) -> None:
        await self._connection.run(lambda db: editing.put_quiet_hours(db, policy, audit, edit, seen_at))

    async def drop_quiet_hours(self, policy_id: str, audit: AuditEvent, *, seen_at: int | None = None) -> bool:
        return await self._connection.run(lambda db: editing.drop_quiet_hours(db, policy_id, audit, seen_at))

    async def quiet_hours(self, policy_id: str | None = None) -> list[QuietHoursPolicy]:
        return await self._connection.run(lambda db: editing.quiet_hours(db, policy_id), write=False)

    async def zone_rules(self) -> dict[str, str]:
        return await self._connection.run(stored.zone_rules, write=False)

    async def put_zone_rules(self, rules: Mapping[str, str]) -> None:
        await self._connection.run(lambda db: editing.put_zone_rules(db, rules))

    async def schedules_in_zone(self, timezone: str, after_sid: int, limit: int) -> list[StoredSchedule]:
        return await self._connection.run(lambda db: stored.in_zone(db, timezone, after_sid, limit), write=False)

    async def prune_day(self, before: int) -> Pruned | None:
        return await self._connection.run(lambda db: pruning.prune_day(db, before))

    async def tell(self, audits: Sequence[AuditEvent]) -> None:
        await self._connection.run(lambda db: auditing.append(db, audits))

    async def audit(self, wanted: AuditFilter, after_id: int, limit: int) -> list[tuple[int, AuditEvent]]:
        return await self._connection.run(lambda db: auditing.page(db, wanted, after_id, limit), write=False)
