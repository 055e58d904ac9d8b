"""Schedules in plain dicts: created, edited, found, with their quiet hours and zone rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from random import Random

from msgspec.structs import replace

from noonbell.core.records import AuditEvent, DurableSchedule, Edit, Epoch, QuietHoursPolicy, StoredSchedule
from noonbell.core.turns import definition_of, quiet_rules, snapshot
from noonbell.errors import QuietHoursInUseError, ScheduleChangedError, ScheduleExistsError, ScheduleNotFoundError
from noonbell.ports import MakeEdit, Sample, ScheduleChange, ScheduleFilter
from noonbell.store.memory.declaring import DeclaredInMemory
from noonbell.store.memory.stored import DURABLE, WRITTEN, stored
from noonbell.store.memory.tables import Row, Transaction, in_order
from noonbell.store.memory.turns import write_turn
from noonbell.store.memory.waking import WakingInMemory


class MemorySchedules(DeclaredInMemory, WakingInMemory):
    """The schedules of a memory store."""

    # --- creating and editing -------------------------------------------------------------------------------------

    async def apply(self, change: ScheduleChange) -> list[int]:
        put, dropped = change.quiet
        with self._transaction() as tx:
            for one in put:
                self._require_as_seen(one.policy.policy_id, one.seen_at)
            users = {sid for one in put for sid in self._users_of(one.policy.policy_id)}
            self._edit_known(tx, change.edited, change.edit, users)
            for one in put:
                self._put_policy(tx, one.policy, one.audit)
            sids = self._create_all(tx, change.created, change.at, change.actor)
            for gone in dropped:
                self._require_as_seen(gone.policy_id, gone.seen_at)
                self._drop_policy(tx, gone.policy_id, gone.audit)
            for timezone, zone_hash in change.zone_rules.items():
                tx.put(self.data.zone_rules, timezone, zone_hash)
        return sids

    def _create_all(self, tx: Transaction, created: Sequence[DurableSchedule], at: int, actor: str) -> list[int]:
        ids = {row["schedule_id"]: row["removed_at"] is not None for row in self.data.schedules.values()}
        for new in created:
            if new.schedule_id in ids:
                raise ScheduleExistsError("schedule_id", new.schedule_id, deleted=ids[new.schedule_id])
            ids[new.schedule_id] = False
        names = self._names()
        for new in created:
            if (new.team, new.managed_by, new.columns.name) in names:
                raise ScheduleExistsError("name", new.columns.name)
            names.add((new.team, new.managed_by, new.columns.name))
        first = max(self.data.schedules, default=0) + 1
        for sid, new in enumerate(created, first):
            self._create_durable(tx, sid, new, at)
            written = snapshot(new.columns)
            tx.add_audits([AuditEvent(at, "schedule.created", new.schedule_id, actor, written, new.team)])
        return list(range(first, first + len(created)))

    def _create_durable(self, tx: Transaction, sid: int, new: DurableSchedule, at: int) -> None:
        columns = new.columns
        row: Row = {
            "sid": sid, "schedule_id": new.schedule_id, "enabled": int(new.enabled), "next_run_at": new.next_run_at,
            "last_run_at": None, "created_at": at, "updated_at": at, "managed_by": new.managed_by, "team": new.team,
            "epoch": 1, "cursor_at": new.cursor_at, "retry_delay_us": None, "last_attempt_at": None,
            "last_success_at": None, "last_failure_at": None, "removed_at": None,
        }  # fmt: skip
        tx.insert(self.data.schedules, sid, row | {name: getattr(columns, name) for name in WRITTEN})
        durable = {"definition": columns.definition, "lane": new.lane, **dict.fromkeys(DURABLE)}
        tx.insert(self.data.durable, sid, durable | {"anchor_at": new.anchor_at})
        tx.touch([sid])
        epoch = Epoch(
            sid, 1, new.cursor_at, None, columns.spec, columns.timezone, new.zone_hash, new.policies, new.enabled
        )
        tx.insert(self.data.epochs[sid], 1, epoch)
        self._know_rules(tx, {epoch.timezone: epoch.zone_hash})

    def _edit_known(self, tx: Transaction, schedule_ids: Sequence[str], edit: MakeEdit, others: Iterable[int]) -> None:
        known = self._known(schedule_ids)
        for one in schedule_ids:
            if one not in known:
                raise ScheduleNotFoundError("schedule", one)
        listed = [known[one] for one in dict.fromkeys(schedule_ids)]
        self._edit(tx, [*listed, *sorted(set(others) - set(listed))], edit)

    def _edit(self, tx: Transaction, sids: Iterable[int], edit: MakeEdit) -> None:
        edits = [made for made in (edit(stored(self.data, sid)) for sid in sids) if made is not None]
        names = self._names(without={made.turn.sid for made in edits})
        for made in edits:
            row = self.data.schedules[made.turn.sid]
            key = (row["team"], row["managed_by"], made.columns.name)
            if made.epoch is None:
                continue  # its name is free
            if key in names:
                raise ScheduleExistsError("name", made.columns.name)
            names.add(key)
        for made in edits:
            self._write_edit(tx, made)

    def _write_edit(self, tx: Transaction, made: Edit) -> None:
        sid, at = made.turn.sid, made.at
        write_turn(tx, self.data, made.turn, "", at)
        for number, epoch in list(self.data.epochs[sid].items()):
            if epoch.to_at is None:
                tx.put(self.data.epochs[sid], number, replace(epoch, to_at=at))
        if made.epoch is None:
            lives = self.data.live[sid].values()
            tx.end_together([(live, "failed" if live.state == "waiting" else "abandoned") for live in lives], at)
            tx.update(sid, removed_at=at, updated_at=at)
            for key in made.documents:
                if key in self.data.documents:
                    tx.delete(self.data.documents, key)
            return
        tx.insert(self.data.epochs[sid], made.epoch.epoch, made.epoch)
        self._know_rules(tx, {made.epoch.timezone: made.epoch.zone_hash})
        written = {name: getattr(made.columns, name) for name in WRITTEN}
        tx.update(sid, epoch=made.epoch.epoch, updated_at=at, **written)
        tx.put(self.data.durable, sid, self.data.durable[sid] | {"definition": made.columns.definition})

    # --- zone rules -----------------------------------------------------------------------------------------------

    def _know_rules(self, tx: Transaction, rules: Mapping[str, str]) -> None:
        for timezone in rules.keys() - self.data.zone_rules.keys():
            tx.put(self.data.zone_rules, timezone, rules[timezone])

    # --- quiet hours ----------------------------------------------------------------------------------------------

    def _require_as_seen(self, policy_id: str, seen_at: int | None) -> None:
        policy = self.data.quiet_hours.get(policy_id)
        if seen_at is not None and (policy is None or policy.updated_at != seen_at):
            raise ScheduleChangedError(policy_id, "quiet-hours policy")

    def _users_of(self, policy_id: str) -> list[int]:
        users = ScheduleFilter(quiet_hours_policy_id=policy_id)
        return [sid for sid in sorted(self.data.durable) if self._is(sid, users)]

    def _put_policy(self, tx: Transaction, policy: QuietHoursPolicy, audit: AuditEvent) -> None:
        before = self.data.quiet_hours.get(policy.policy_id)
        if before is not None and before.team != policy.team:
            raise ScheduleExistsError("policy_id", policy.policy_id)
        kept = policy if before is None else replace(policy, created_at=before.created_at)
        tx.put(self.data.quiet_hours, policy.policy_id, kept)
        self._know_rules(tx, quiet_rules(policy.document))
        tx.add_audits([audit])

    def _drop_policy(self, tx: Transaction, policy_id: str, audit: AuditEvent) -> None:
        users = self._users_of(policy_id)
        if users:
            raise QuietHoursInUseError(policy_id, len(users))
        if policy_id not in self.data.quiet_hours:
            raise ScheduleNotFoundError("quiet-hours policy", policy_id)
        tx.delete(self.data.quiet_hours, policy_id)
        tx.add_audits([audit])

    async def quiet_hours(self, policy_id: str | None = None) -> list[QuietHoursPolicy]:
        return [policy for policy in in_order(self._tables().quiet_hours) if policy_id in (None, policy.policy_id)]

    # --- reading --------------------------------------------------------------------------------------------------

    async def find(self, wanted: ScheduleFilter, after_sid: int = 0, limit: int | None = None) -> list[StoredSchedule]:
        rows = self._tables().schedules
        found = (stored(self.data, sid) for sid in sorted(rows) if sid > after_sid and self._is(sid, wanted))
        return list(islice(found, limit))

    def _is(self, sid: int, wanted: ScheduleFilter) -> bool:
        row, durable = self.data.schedules[sid], self.data.durable.get(sid, {})
        return (
            wanted.deleted in (None, row["removed_at"] is not None)
            and wanted.declared in (None, not durable)
            and (wanted.sids is None or sid in wanted.sids)
            and (wanted.schedule_ids is None or row["schedule_id"] in wanted.schedule_ids)
            and wanted.managed_by in (None, row["managed_by"])
            and wanted.team in (None, row["team"])
            and wanted.lane in (None, durable.get("lane", row["managed_by"]))
            and wanted.enabled in (None, bool(row["enabled"]))
            and wanted.type in (None, row["type"])
            and wanted.timezone in (None, row["timezone"])
            and wanted.quiet_hours_policy_id in (None, row["quiet_hours_policy_id"])
            and (wanted.tag is None or wanted.tag in _listed_tags(row, durable))
            and (wanted.name_contains is None or _lower(wanted.name_contains) in _lower(row["name"]))
        )

    def _known(self, schedule_ids: Iterable[str]) -> dict[str, int]:
        sought = set(schedule_ids)
        return {
            row["schedule_id"]: sid
            for sid, row in self.data.schedules.items()
            if row["schedule_id"] in sought and row["removed_at"] is None and sid in self.data.durable
        }

    def _names(self, without: Iterable[int] = ()) -> set[tuple[str, str, str]]:
        left_out = set(without)
        return {
            (row["team"], row["managed_by"], row["name"])
            for sid, row in self.data.schedules.items()
            if row["removed_at"] is None and sid not in left_out
        }

    async def sample(self, size: int) -> Sample:
        data = self._tables()
        sids = sorted(sid for sid in data.durable if data.schedules[sid]["enabled"])
        taken = sids if len(sids) <= size else sorted(Random(size).sample(sids, size))  # noqa: S311 - no secret
        return Sample([stored(data, sid) for sid in taken], len(sids))


def _listed_tags(row: Row, durable: Row) -> tuple[str, ...]:
    """The tags that a schedule is listed by; they go with a schedule."""
    return definition_of(durable["definition"]).tags if durable and row["removed_at"] is None else ()


def _lower(name: str) -> bytes:
    """Without regard to capitals, as far as ASCII letters go: that is what databases agree on."""
    return name.encode().lower()
