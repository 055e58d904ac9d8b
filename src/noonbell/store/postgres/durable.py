"""The verbs of ScheduleStore on PostgreSQL, as a part of the store. Each is one transaction; pruning is several.

Verbs of an engine make sure that its name is still held, where this store holds it, before they take any other lock.
Editing needs no engine: it takes the locks of the schedules that it changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from noonbell.core.presence import EngineRecord, EngineSign, Gap, Polls, engine_name
from noonbell.core.records import (
    DECLARED_OWNERS,
    Asked,
    AuditEvent,
    DeadLetter,
    Delivery,
    DurableSchedule,
    OutboxMessage,
    QuietHoursPolicy,
    Sending,
    StoredSchedule,
    asked_cause,
)
from noonbell.ports import (
    BOUNDS,
    NO_QUIET_CHANGES,
    AuditFilter,
    Decide,
    LaneClaim,
    MakeEdit,
    Pruned,
    QuietChanges,
    Rescue,
    ScheduleFilter,
    StreamBounds,
    StreamClaim,
    TellCut,
    TellNumbers,
)
from noonbell.store.postgres import asking, auditing, by_policy, editing, engines, hints, outbox, pruning, stored
from noonbell.store.postgres.connection import Connection, Connections
from noonbell.store.postgres.leases import Covered
from noonbell.store.postgres.numbers import Owners
from noonbell.store.postgres.partitions import Days
from noonbell.store.waking import Wanted


class DurableOnPostgres:
    """Durable schedules of a database."""

    _connections: Connections
    _days: Days
    _owners: Owners
    _set_back: engines.SetBack

    @property
    def lease_seconds(self) -> float:
        raise NotImplementedError

    def _covered(self, *names: str) -> Covered:
        raise NotImplementedError

    async def _still_held(self, db: Connection, *names: str) -> None:
        raise NotImplementedError

    def _leases_in_doubt(self) -> bool:
        raise NotImplementedError

    def _claiming(self, owner: str) -> contextlib.AbstractAsyncContextManager[Connection]:
        raise NotImplementedError

    def _accounting(self, owner: str) -> contextlib.AbstractAsyncContextManager[Connection]:
        raise NotImplementedError

    # --- creating and editing -------------------------------------------------------------------------------------

    async def create_schedules(self, created: Sequence[DurableSchedule], at: int, actor: str) -> list[int]:
        noting = hints.Noting()
        noting.created(created)
        async with self._connections.writing() as db:
            sids = await editing.create(db, created, at, actor)
            await hints.give(db, noting.wakes)
            return sids

    async def edit_schedules(self, schedule_ids: Sequence[str], edit: MakeEdit) -> None:
        noting = hints.Noting()
        async with self._connections.writing() as db:
            await editing.edit(db, schedule_ids, noting.edits(edit))
            await hints.give(db, noting.wakes)

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
        noting = hints.Noting()
        noting.created(created)
        async with self._connections.writing() as db:
            noted = noting.edits(edit)
            sids = await editing.apply(db, created, schedule_ids, noted, at=at, actor=actor, quiet=quiet)
            await hints.give(db, noting.wakes)
            return sids

    # --- reading --------------------------------------------------------------------------------------------------

    async def find_schedules(self, schedule_ids: Sequence[str]) -> list[StoredSchedule]:
        async with self._connections.reading() as db:
            return await stored.by_ids(db, schedule_ids)

    async def list_schedules(self, wanted: ScheduleFilter, after_sid: int, limit: int) -> list[StoredSchedule]:
        async with self._connections.reading() as db:
            return await stored.page(db, wanted, after_sid, limit)

    # --- claiming -------------------------------------------------------------------------------------------------

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
        if not lane.startswith(DECLARED_OWNERS):
            await self._days.prepare(now)  # runs that send messages end in the claim itself
        await self._owners.know(owner)
        async with self._claiming(owner) as db:
            wanted = Wanted(lane, now if due_by is None else due_by, limit, among)
            covered = self._covered(engine_name(owner), lane)  # a private lane is held by its name
            return await by_policy.claim(db, decide, wanted, owner=owner, now=now, covered=covered)

    async def ask(
        self, schedule_id: str, at: int, actor: str, via: Asked = "manual", *, queue: bool = False, retry: bool = True
    ) -> int | None:
        cause = asked_cause(via, retry=retry)
        async with self._connections.writing() as db:
            return await asking.ask(db, schedule_id, at, actor, cause, queue=queue)

    # --- engines --------------------------------------------------------------------------------------------------

    async def join(self, engine: EngineRecord) -> int:
        async with self._connections.writing() as db:
            await self._still_held(db, engine_name(engine.instance))
            return await engines.join(db, engine)

    async def beat(self, sign: EngineSign, now: Callable[[], int]) -> None:
        async with self._connections.writing() as db:
            await self._still_held(db, engine_name(sign.instance))
            await engines.beat(db, sign, now)

    async def leave(self, instance: str) -> None:
        async with self._connections.writing() as db:
            await engines.leave(db, instance)

    async def engines(self, now: int) -> list[EngineRecord]:
        del now  # when they were seen is told by the clock of the database, which they share
        async with self._connections.reading() as db:
            return await engines.alive(db)

    async def dead_engines(self, lane: str) -> list[str]:
        async with self._connections.reading() as db:
            return await engines.dead(db, lane, self._patience(), self._set_back)

    async def polls(self) -> dict[str, Polls]:
        async with self._connections.reading() as db:
            return await engines.polls(db)

    async def record_gaps(self, lane: str, instance: str, gaps: Sequence[Gap], now: Callable[[], int]) -> Polls:
        async with self._connections.writing() as db:
            await self._still_held(db, engine_name(instance))
            return await engines.record_gaps(db, lane, gaps, now)

    async def take_over(
        self, lane: str, owner: str, at: int, tell: TellCut | None = None, *, stopped: bool = False
    ) -> Rescue:
        async with self._connections.writing() as db:
            await self._still_held(db, engine_name(owner))
            if not stopped:
                return await engines.rescue(
                    db, lane, owner, at, tell, patience=self._patience(), set_back=self._set_back
                )
            handed = await engines.hand_over(db, lane, owner, at, tell)
        if handed.left:  # in a transaction that holds nothing else, and so may wait
            async with self._connections.writing() as db:
                await self._still_held(db, engine_name(owner))
                await outbox.free(db, lane, owner, wait=True)
        return handed._replace(left=0)

    def _patience(self) -> float | None:
        """For how long the server must have been up to say who is dead; None where that cannot be said now."""
        return None if self._leases_in_doubt() else self.lease_seconds

    # --- quiet hours ----------------------------------------------------------------------------------------------

    async def put_quiet_hours(
        self, policy: QuietHoursPolicy, audit: AuditEvent, edit: MakeEdit, *, seen_at: int | None = None
    ) -> None:
        noting = hints.Noting()
        async with self._connections.writing() as db:
            await editing.put_quiet_hours(db, policy, audit, noting.edits(edit), seen_at)
            await hints.give(db, noting.wakes)

    async def drop_quiet_hours(self, policy_id: str, audit: AuditEvent, *, seen_at: int | None = None) -> bool:
        async with self._connections.writing() as db:
            return await editing.drop_quiet_hours(db, policy_id, audit, seen_at)

    async def quiet_hours(self, policy_id: str | None = None) -> list[QuietHoursPolicy]:
        async with self._connections.reading() as db:
            return await editing.quiet_hours(db, policy_id)

    # --- audit ----------------------------------------------------------------------------------------------------

    async def tell(self, audits: Sequence[AuditEvent]) -> None:
        async with self._connections.writing() as db:
            await auditing.append(db, audits)

    async def audit(self, wanted: AuditFilter, after_id: int, limit: int) -> list[tuple[int, AuditEvent]]:
        async with self._connections.reading() as db:
            return await auditing.page(db, wanted, after_id, limit)

    # --- messages -------------------------------------------------------------------------------------------------

    async def post_messages(self, messages: Sequence[OutboxMessage], at: int) -> None:
        async with self._connections.writing() as db:
            await outbox.append(db, messages, [at] * len(messages))

    async def claim_streams(
        self, lane: str, owner: str, now: int, limit: int, bounds: StreamBounds = BOUNDS
    ) -> StreamClaim:
        async with self._claiming(owner) as db:
            await self._still_held(db, engine_name(owner))
            return await outbox.claim(db, lane, owner, now, limit=limit, bounds=bounds)

    async def settle_streams(self, deliveries: Sequence[Delivery]) -> None:
        async with self._connections.writing() as db:
            await self._still_held(db, *{engine_name(delivery.owner) for delivery in deliveries})
            await outbox.settle(db, deliveries)

    async def owned_streams(self, owner: str) -> list[int]:
        """Waits for claims of this owner that are still on their way, even over a connection that was lost."""
        async with self._accounting(owner) as db:
            return await outbox.owned(db, owner)

    async def sending(self, sid: int, message_id: str) -> Sending | None:
        async with self._connections.reading() as db:
            return await outbox.sending(db, sid, message_id)

    async def dead_letters(self, sid: int | None, after: int, limit: int, team: str | None = None) -> list[DeadLetter]:
        async with self._connections.reading() as db:
            return await outbox.dead_letters(db, sid, after, limit, team)

    async def revive_dead_letters(self, numbers: Sequence[int], at: int, tell: TellNumbers | None = None) -> int:
        async with self._connections.writing() as db:
            return await outbox.revive(db, numbers, at, tell)

    async def drop_dead_letters(self, numbers: Sequence[int], tell: TellNumbers | None = None) -> int:
        async with self._connections.writing() as db:
            return await outbox.drop(db, numbers, tell)

    # --- pruning --------------------------------------------------------------------------------------------------

    async def prune_day(self, before: int) -> Pruned | None:
        return await pruning.prune(self._connections, before)

    # --- zone rules -----------------------------------------------------------------------------------------------

    async def zone_rules(self) -> dict[str, str]:
        async with self._connections.reading() as db:
            return await editing.zone_rules(db)

    async def put_zone_rules(self, rules: Mapping[str, str]) -> None:
        async with self._connections.writing() as db:
            await editing.put_zone_rules(db, rules)

    async def schedules_in_zone(self, timezone: str, after_sid: int, limit: int) -> list[StoredSchedule]:
        async with self._connections.reading() as db:
            return await stored.in_zone(db, timezone, after_sid, limit)
