"""Durable schedules in plain dicts: the executable specification of ScheduleStore, as a part of the memory store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from itertools import islice
from typing import Any, Final

from msgspec.structs import replace

from noonbell.core.presence import lane_key
from noonbell.core.records import (
    AT_ONCE,
    AuditEvent,
    DurableSchedule,
    Edit,
    Epoch,
    LiveRun,
    QuietHoursPolicy,
    ScheduleColumns,
    Start,
    StoredSchedule,
    Turn,
)
from noonbell.core.turns import definition_of, quiet_rules, snapshot
from noonbell.errors import QuietHoursInUseError, ScheduleChangedError, ScheduleExistsError, ScheduleNotFoundError
from noonbell.ports import (
    NO_QUIET_CHANGES,
    AuditFilter,
    Claimed,
    Decide,
    LaneClaim,
    MakeEdit,
    QuietChanges,
    ScheduleFilter,
)
from noonbell.store import memory_outbox
from noonbell.store.memory_tables import MemoryData, Row, Transaction, in_order

QUARANTINE_US: Final = 60_000_000
_WRITTEN: Final = tuple(name for name in ScheduleColumns.__struct_fields__ if name != "definition")
_KEPT: Final = ("created_at", "updated_at", "next_run_at", "last_run_at", "last_attempt_at", "last_success_at",
                "last_failure_at", "epoch", "cursor_at")  # fmt: skip
_DURABLE: Final = ("anchor_at", "backlog_left", "backlog_until", "last_run_for")
# What a declared task has in the place of these.
_DECLARED: Final[Row] = {"definition": None, **dict.fromkeys(_DURABLE)}


class DurableInMemory:
    """The verbs of ScheduleStore."""

    data: MemoryData
    _tables: Callable[[], MemoryData]
    _transaction: Callable[[], Transaction]

    # --- creating and editing -------------------------------------------------------------------------------------

    async def create_schedules(self, created: Sequence[DurableSchedule], at: int, actor: str) -> list[int]:
        with self._transaction() as tx:
            return self._create_all(tx, created, at, actor)

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
        with self._transaction() as tx:
            users = {sid for policy, _ in quiet.put for sid in self._users_of(policy.policy_id)}
            self._edit_known(tx, schedule_ids, edit, users)
            for policy, audit in quiet.put:
                self._put_policy(tx, policy, audit)
            sids = self._create_all(tx, created, at, actor)
            for policy_id, audit in quiet.dropped:
                self._drop_policy(tx, policy_id, audit)
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
            told = snapshot(new.columns)
            self._tell(tx, [AuditEvent(at, "schedule.created", new.schedule_id, actor, told, new.team)])
        return list(range(first, first + len(created)))

    def _create_durable(self, tx: Transaction, sid: int, new: DurableSchedule, at: int) -> None:
        columns = new.columns
        row: Row = {
            "sid": sid, "schedule_id": new.schedule_id, "enabled": int(new.enabled), "next_run_at": new.next_run_at,
            "last_run_at": None, "created_at": at, "updated_at": at, "managed_by": new.managed_by, "team": new.team,
            "epoch": 1, "cursor_at": new.cursor_at, "retry_delay_us": None, "last_attempt_at": None,
            "last_success_at": None, "last_failure_at": None, "removed_at": None,
        }  # fmt: skip
        tx.insert(self.data.schedules, sid, row | {name: getattr(columns, name) for name in _WRITTEN})
        durable = {"definition": columns.definition, "lane": new.lane, **dict.fromkeys(_DURABLE)}
        tx.insert(self.data.durable, sid, durable | {"anchor_at": new.anchor_at})
        tx.touch([sid])
        epoch = Epoch(
            sid, 1, new.cursor_at, None, columns.spec, columns.timezone, new.zone_hash, new.policies, new.enabled
        )
        tx.insert(self.data.epochs[sid], 1, epoch)
        self._know_rules(tx, {epoch.timezone: epoch.zone_hash})

    async def edit_schedules(self, schedule_ids: Sequence[str], edit: MakeEdit) -> None:
        with self._transaction() as tx:
            self._edit_known(tx, schedule_ids, edit)

    def _edit_known(
        self, tx: Transaction, schedule_ids: Sequence[str], edit: MakeEdit, others: Iterable[int] = ()
    ) -> None:
        known = self._known(schedule_ids)
        for one in schedule_ids:
            if one not in known:
                raise ScheduleNotFoundError("schedule", one)
        listed = [known[one] for one in dict.fromkeys(schedule_ids)]
        self._edit(tx, [*listed, *sorted(set(others) - set(listed))], edit)

    def _edit(self, tx: Transaction, sids: Iterable[int], edit: MakeEdit) -> None:
        edits = [made for made in (edit(self._stored(sid)) for sid in sids) if made is not None]
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
        self._write_turn(tx, made.turn, "", at)
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
        written = {name: getattr(made.columns, name) for name in _WRITTEN}
        tx.update(sid, epoch=made.epoch.epoch, updated_at=at, **written)
        tx.put(self.data.durable, sid, self.data.durable[sid] | {"definition": made.columns.definition})

    # --- zone rules -----------------------------------------------------------------------------------------------

    def _know_rules(self, tx: Transaction, rules: Mapping[str, str]) -> None:
        for timezone in rules.keys() - self.data.zone_rules.keys():
            tx.put(self.data.zone_rules, timezone, rules[timezone])

    async def zone_rules(self) -> dict[str, str]:
        return dict(self._tables().zone_rules)

    async def put_zone_rules(self, rules: Mapping[str, str]) -> None:
        with self._transaction() as tx:
            for timezone, zone_hash in rules.items():
                tx.put(self.data.zone_rules, timezone, zone_hash)

    async def schedules_in_zone(self, timezone: str, after_sid: int, limit: int) -> list[StoredSchedule]:
        rows = self._tables().schedules
        found = (sid for sid in sorted(self.data.durable) if sid > after_sid and rows[sid]["removed_at"] is None)
        return list(islice((self._stored(sid) for sid in found if rows[sid]["timezone"] == timezone), limit))

    # --- reading --------------------------------------------------------------------------------------------------

    async def find_schedules(self, schedule_ids: Sequence[str]) -> list[StoredSchedule]:
        self._tables()
        return [self._stored(sid) for sid in sorted(self._known(schedule_ids).values())]

    async def list_schedules(self, wanted: ScheduleFilter, after_sid: int, limit: int) -> list[StoredSchedule]:
        data = self._tables()
        found = (self._stored(sid) for sid in sorted(data.durable) if sid > after_sid and self._is(sid, wanted))
        return list(islice(found, limit))

    def _is(self, sid: int, wanted: ScheduleFilter) -> bool:
        row, durable = self.data.schedules[sid], self.data.durable[sid]
        return (
            row["removed_at"] is None
            and wanted.managed_by in (None, row["managed_by"])
            and wanted.team in (None, row["team"])
            and wanted.lane in (None, durable["lane"])
            and wanted.enabled in (None, bool(row["enabled"]))
            and wanted.type in (None, row["type"])
            and wanted.quiet_hours_policy_id in (None, row["quiet_hours_policy_id"])
            and (wanted.tag is None or wanted.tag in definition_of(durable["definition"]).tags)
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

    def _stored(self, sid: int) -> StoredSchedule:
        row = self.data.schedules[sid]
        durable = self.data.durable.get(sid) or _DECLARED | {"lane": row["managed_by"]}
        policy = self.data.quiet_hours.get(row["quiet_hours_policy_id"])
        run = None
        if '"overlap":"skip"' in (durable["definition"] or ""):  # nobody else asks
            run = self.data.runs.get(sid, {}).get((durable["last_run_for"], "scheduled"))
        return StoredSchedule(
            sid=sid,
            schedule_id=row["schedule_id"],
            columns=ScheduleColumns(**{name: row[name] for name in _WRITTEN}, definition=durable["definition"]),
            enabled=bool(row["enabled"]),
            managed_by=row["managed_by"],
            lane=durable["lane"],
            **{name: row[name] for name in _KEPT},
            **{name: durable[name] for name in _DURABLE},
            quiet=None if policy is None else policy.document,
            ran=None if run is None else (run.started_at, run.ended_at),
            lives=in_order(self.data.live.get(sid)),
            team=row["team"],
        )

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
        turns: list[Turn] = []
        stored: dict[int, StoredSchedule] = {}
        quarantined: list[tuple[int, Exception]] = []
        due, woken = self._tables().due[lane_key(lane)], self.data.woken[lane_key(lane)]
        with self._transaction() as tx:
            by = now if due_by is None else due_by
            tx.touch(coming := due.take(by, limit) if among is None else due.among(among, by)[:limit])
            tx.touch(waking := woken.take(by, limit) if among is None else woken.among(among, by)[:limit])
            looked = list(dict.fromkeys((*coming, *waking)))
            for sid in looked:
                seen = self._stored(sid)
                try:
                    turns.append(decide(seen))
                except Exception as error:  # noqa: BLE001 - one bad row must not stop its neighbours
                    quarantined.append((sid, error))
                    self._quarantine(tx, sid, now)
                    continue
                if turns[-1].starts:
                    stored[sid] = seen
            for turn in turns:
                self._write_turn(tx, turn, owner, now)
        upcoming = [turn.next_run_at for turn in turns]
        if among is None:
            upcoming += [due.following(by), woken.following(by)]
        claimed = Claimed(
            starts=[start for turn in turns for start in turn.starts],
            looked=len(looked),
            full=len(coming) >= limit or len(waking) >= limit,
            next_wake_at=min((at for at in upcoming if at is not None), default=None),
            quarantined=quarantined,
        )
        return LaneClaim(claimed, stored)

    def _quarantine(self, tx: Transaction, sid: int, now: int) -> None:
        tx.update(sid, next_run_at=now + QUARANTINE_US)
        for live in list(self.data.live[sid].values()):
            if live.state != "running" and (live.wake_at or AT_ONCE) <= now:
                tx.put_live(replace(live, wake_at=now + QUARANTINE_US))

    def _write_turn(self, tx: Transaction, turn: Turn, owner: str, now: int) -> None:
        sid = turn.sid
        tx.end_together([(self.data.live[sid][live.kind, live.run_for], "failed") for live in turn.preempted], now)
        for span in turn.spans:
            tx.insert(self.data.spans[sid], span.from_at, copy(span))
        for start in turn.starts:
            self._start(tx, start, owner, now)
        for live in turn.queued:
            tx.insert(self.data.live[sid], (live.kind, live.run_for), copy(live))
        for live in turn.put_off:
            before = self.data.live[sid][live.kind, live.run_for]
            tx.put_live(replace(before, wake_at=live.wake_at))
        for run in turn.finished:
            tx.add_run(run)
        memory_outbox.append(tx, self.data, turn.messages, now)
        started: dict[str, Any] = {}
        if turn.starts or turn.finished:
            before = self.data.schedules[sid]["last_run_at"]
            started = {"last_run_at": max(before or 0, now), "last_attempt_at": now}
        if turn.finished:
            started["last_success_at"] = now
        tx.update(sid, cursor_at=turn.cursor_at, next_run_at=turn.next_run_at, enabled=int(turn.enabled), **started)
        if sid in self.data.durable:
            tx.put(self.data.durable, sid, self.data.durable[sid] | {name: getattr(turn, name) for name in _DURABLE})
        self._tell(tx, turn.audits)

    def _start(self, tx: Transaction, start: Start, owner: str, now: int) -> None:
        before = self.data.live[start.sid].get((start.kind, start.run_for))
        if before is None:
            live = LiveRun(
                start.sid, start.kind, start.run_for, start.fence, owner, "running", start.attempt, wake_at=None,
                started_at=now, attempt_at=now, crashes=0, epoch=start.epoch, cause=start.cause,
            )  # fmt: skip
            tx.put_live(live)
            return
        started_at = now if before.started_at is None else before.started_at
        again = replace(before, fence=start.fence, owner=owner, attempt=start.attempt, cause=start.cause)
        tx.put_live(replace(again, state="running", wake_at=None, started_at=started_at, attempt_at=now))

    # --- quiet hours and audit ------------------------------------------------------------------------------------

    async def put_quiet_hours(
        self, policy: QuietHoursPolicy, audit: AuditEvent, edit: MakeEdit, *, seen_at: int | None = None
    ) -> None:
        with self._transaction() as tx:
            self._require_as_seen(policy.policy_id, seen_at)
            self._edit(tx, self._users_of(policy.policy_id), edit)
            self._put_policy(tx, policy, audit)

    def _require_as_seen(self, policy_id: str, seen_at: int | None) -> None:
        policy = self.data.quiet_hours.get(policy_id)
        if seen_at is not None and (policy is None or policy.updated_at != seen_at):
            raise ScheduleChangedError(policy_id, "quiet-hours policy")

    async def drop_quiet_hours(self, policy_id: str, audit: AuditEvent, *, seen_at: int | None = None) -> bool:
        with self._transaction() as tx:
            self._require_as_seen(policy_id, seen_at)
            return self._drop_policy(tx, policy_id, audit)

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
        self._tell(tx, [audit])

    def _drop_policy(self, tx: Transaction, policy_id: str, audit: AuditEvent) -> bool:
        users = self._users_of(policy_id)
        if users:
            raise QuietHoursInUseError(policy_id, len(users))
        if policy_id not in self.data.quiet_hours:
            return False
        tx.delete(self.data.quiet_hours, policy_id)
        self._tell(tx, [audit])
        return True

    async def quiet_hours(self, policy_id: str | None = None) -> list[QuietHoursPolicy]:
        return [policy for policy in in_order(self._tables().quiet_hours) if policy_id in (None, policy.policy_id)]

    async def tell(self, audits: Sequence[AuditEvent]) -> None:
        with self._transaction() as tx:
            self._tell(tx, audits)

    def _tell(self, tx: Transaction, audits: Iterable[AuditEvent]) -> None:
        tx.tell(audits)

    async def audit(self, wanted: AuditFilter, after_id: int, limit: int) -> list[tuple[int, AuditEvent]]:
        data = self._tables()
        found = ((number, event) for number, event in data.audits.items() if number > after_id and _told(event, wanted))
        return [(number, copy(event)) for number, event in islice(found, limit)]


def _told(event: AuditEvent, wanted: AuditFilter) -> bool:
    return (
        wanted.subject in (None, event.subject)
        and wanted.event in (None, event.event)
        and wanted.actor in (None, event.actor)
        and wanted.team in (None, event.team)
        and (wanted.from_at is None or event.at >= wanted.from_at)
        and (wanted.to_at is None or event.at <= wanted.to_at)
    )


def _lower(name: str) -> bytes:
    """Without regard to capitals, as far as ASCII letters go: that is what databases agree on."""
    return name.encode().lower()
