"""Declared tasks in plain dicts: read, declared, and removed where they are declared no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Final

from msgspec.structs import replace

from noonbell.core.records import (
    DECLARED_OWNERS,
    DEFAULT_TEAM,
    Attempt,
    ChangedSchedule,
    Declaration,
    Epoch,
    LiveRun,
    NewSchedule,
)
from noonbell.errors import StoreError
from noonbell.ports import Declared
from noonbell.store.memory.engines import lifecycle_of
from noonbell.store.memory.handle import MemoryPart
from noonbell.store.memory.stored import raw_rows
from noonbell.store.memory.tables import Row, Transaction, in_order

INTERRUPTED: Final = "interrupted: the instance ended before the attempt did"
_LIVE: Final = (
    "run_for",
    "fence",
    "owner",
    "state",
    "attempt",
    "wake_at",
    "started_at",
    "attempt_at",
    "crashes",
    "cause",
)


class DeclaredInMemory(MemoryPart):
    """The verbs of schedules for declared tasks."""

    async def read_declared(self, managed_by: str | None = None) -> Declared:
        rows: list[Mapping[str, Any]] = []
        for row in raw_rows(self._tables(), managed_by, removed=False):
            if row["sid"] in self.data.durable or not row["managed_by"].startswith(managed_by or DECLARED_OWNERS):
                continue
            epoch = self.data.epochs[row["sid"]].get(row["epoch"])
            lives: Sequence[LiveRun | None] = in_order(self.data.live.get(row["sid"])) or (None,)
            of_epoch = {"zone_hash": epoch and epoch.zone_hash, "policies": epoch and epoch.policies}
            rows.extend({**row, **_live_columns(live), **of_epoch} for live in lives)
        events = [] if managed_by is None else lifecycle_of(self.data, managed_by)
        return Declared(rows, events[-1] if events else None)

    async def declare(self, declaration: Declaration) -> list[int]:
        with self._transaction() as tx:
            self._remove(tx, declaration)
            for sid in declaration.parked:
                tx.update(sid, enabled=0, next_run_at=None)
            self._revive(tx, declaration)
            known = [self.data.live[live.sid].get((live.kind, live.run_for)) for live in declaration.interrupted]
            tx.end_together([(live, "unknown") for live in known if live is not None], declaration.at)
            self._change(tx, declaration)
            sids = self._create(tx, declaration)
            for event in declaration.events:
                tx.record(event)
        return sids

    def _remove(self, tx: Transaction, declaration: Declaration) -> None:
        at = declaration.at
        for gone in declaration.removed:
            lives = self.data.live[gone.sid].values()
            tx.end_together([(live, "failed" if live.state == "waiting" else "abandoned") for live in lives], at)
            tx.update(gone.sid, enabled=0, next_run_at=None, removed_at=at, updated_at=at, cursor_at=gone.cursor_at)
            self._close_epoch(tx, gone.sid, gone.cursor_at)

    def _change(self, tx: Transaction, declaration: Declaration) -> None:
        for new in declaration.changed:
            if new.new_epoch:
                self._close_epoch(tx, new.sid, new.cursor_at)
                tx.update(new.sid, updated_at=declaration.at)
            # also without an edit: a row that came without its epoch gets it here
            if new.epoch not in self.data.epochs[new.sid]:
                self._open_epoch(tx, new.sid, new.epoch, new)
            # a run that executes puts the wake-up back when it ends; it may have ended since the plan was made
            executing = any(live.state == "running" for live in self.data.live[new.sid].values())
            tx.update(
                new.sid, spec=new.spec, timezone=new.timezone, retry_delay_us=new.retry_delay_us, epoch=new.epoch,
                cursor_at=new.cursor_at, next_run_at=None if executing else new.next_run_at, enabled=1,
            )  # fmt: skip

    def _revive(self, tx: Transaction, declaration: Declaration) -> None:
        for revived in declaration.revived:
            before = self.data.live[revived.sid].get((revived.kind, revived.run_for))
            if before is None:
                continue
            if before.state == "running":
                interrupted: tuple[Any, ...] = (
                    before.sid, before.run_for, before.kind, before.attempt, "unknown", before.cause, before.attempt_at,
                    declaration.at, before.owner, INTERRUPTED,
                )  # fmt: skip
                key = (before.run_for, before.kind, before.attempt)
                tx.put(self.data.attempts[before.sid], key, Attempt(*interrupted))
            tx.put_live(copy(revived))

    def _create(self, tx: Transaction, declaration: Declaration) -> list[int]:
        if not declaration.created:
            return []
        rows = self.data.schedules.values()
        ids = {row["schedule_id"] for row in rows}
        names = {
            row["name"] for row in rows if row["managed_by"] == declaration.managed_by and row["removed_at"] is None
        }
        first = max(self.data.schedules, default=0) + 1
        for sid, new in enumerate(declaration.created, first):
            if new.schedule_id in ids or new.name in names:
                raise StoreError(f"The memory store failed: a schedule {new.name!r} ({new.schedule_id}) exists already")
            ids.add(new.schedule_id)
            names.add(new.name)
            tx.insert(self.data.schedules, sid, _new_row(sid, new, declaration))
            tx.touch([sid])
            self._open_epoch(tx, sid, 1, new)
        return list(range(first, first + len(declaration.created)))

    def _open_epoch(self, tx: Transaction, sid: int, number: int, new: NewSchedule | ChangedSchedule) -> None:
        epoch = Epoch(
            sid, number, new.cursor_at, None, new.spec, new.timezone, new.zone_hash, new.policies, enabled=True
        )
        tx.insert(self.data.epochs[sid], number, epoch)

    def _close_epoch(self, tx: Transaction, sid: int, to_at: int) -> None:
        for number, epoch in list(self.data.epochs[sid].items()):
            if epoch.to_at is None:
                tx.put(self.data.epochs[sid], number, replace(epoch, to_at=to_at))


def _new_row(sid: int, new: NewSchedule, declaration: Declaration) -> Row:
    at = declaration.at
    return {
        "sid": sid, "schedule_id": new.schedule_id, "name": new.name, "enabled": 1, "type": new.type, "spec": new.spec,
        "next_run_at": new.next_run_at, "last_run_at": None, "timezone": new.timezone, "quiet_hours_policy_id": None,
        "catch_up_policy": "run_once", "payload": None, "created_at": at, "updated_at": at,
        "managed_by": declaration.managed_by, "team": DEFAULT_TEAM, "epoch": 1, "cursor_at": new.cursor_at,
        "retry_delay_us": new.retry_delay_us, "last_attempt_at": None, "last_success_at": None, "last_failure_at": None,
        "removed_at": None,
    }  # fmt: skip


def _live_columns(live: LiveRun | None) -> Row:
    if live is None:
        return dict.fromkeys((*_LIVE, "live_kind", "live_epoch"))
    return {**{name: getattr(live, name) for name in _LIVE}, "live_kind": live.kind, "live_epoch": live.epoch}
