"""The ledger in plain dicts: the executable specification of the store.

Every verb does here, row by row and in order, what another store may do in one statement, and a verb that fails leaves
nothing behind. Values are stored as they come: a damaged one is passed on, for the reader to judge.

The data outlives its handle. `MemoryStore(data)` goes on where another store on the same data was closed or killed, as
a file is opened again; it does not outlive the process.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from copy import copy
from typing import Any, Final, TypeVar, cast

from msgspec.structs import replace

from noonbell.core.attempts import FIRST_KEPT, upto_omitted
from noonbell.core.records import (
    DECLARED_OWNERS,
    DEFAULT_TEAM,
    Asked,
    Attempt,
    ChangedSchedule,
    Declaration,
    Epoch,
    Kind,
    LifecycleEvent,
    LiveRun,
    NewSchedule,
    Run,
    Settlement,
    Span,
    Start,
    asked_cause,
)
from noonbell.errors import SchedulerInUseError, StoreError, StoreUnavailableError
from noonbell.ports import Declared, LedgerTable, ScheduleStore, Settled
from noonbell.store import memory_asking, memory_outbox
from noonbell.store.backlog import BacklogInMemory
from noonbell.store.coming import ComingInMemory
from noonbell.store.memory_by_policy import DurableInMemory
from noonbell.store.memory_documents import DocumentsInMemory
from noonbell.store.memory_engines import EnginesInMemory
from noonbell.store.memory_history import HistoryInMemory
from noonbell.store.memory_outbox import OutboxInMemory
from noonbell.store.memory_pruning import PruningInMemory
from noonbell.store.memory_tables import MemoryData, MemoryHold, Row, Transaction, between, in_order, order
from noonbell.store.snapshot import in_one_step, refuse_writing
from noonbell.store.survey import SurveyInMemory
from noonbell.store.waking import WakingInMemory

__all__ = ["MemoryData", "MemoryStore"]

T = TypeVar("T")
QUARANTINE_US: Final = 60_000_000
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


class MemoryStore(
    DurableInMemory, EnginesInMemory, OutboxInMemory, HistoryInMemory, PruningInMemory, DocumentsInMemory,
    BacklogInMemory, ComingInMemory, SurveyInMemory, WakingInMemory,
):  # fmt: skip
    """A ledger in memory."""

    def __init__(self, data: MemoryData | None = None) -> None:
        self.data = MemoryData() if data is None else data
        self._open = False
        self._holds: list[MemoryHold] = []

    def __repr__(self) -> str:
        return f"MemoryStore({len(self.data.schedules)} schedules)"

    async def open(self) -> None:
        if not self._open:
            self.data.reindex()
            self._open = True

    async def close(self) -> None:
        self._open = False

    def kill(self) -> None:
        self._open = False
        for hold in self._holds:
            hold.release()
        self._holds.clear()

    async def hold(self, name: str, holder: str) -> MemoryHold:
        if (other := self.data.held.get(name)) is not None:
            raise SchedulerInUseError(name, other.holder)
        hold = self.data.held[name] = MemoryHold(self.data.held, name, holder)
        self._holds.append(hold)
        return hold

    async def holder(self, name: str) -> str | None:
        held = self.data.held.get(name)
        return None if held is None else held.holder

    # --- declaring ------------------------------------------------------------------------------------------------

    async def read_declared(self, managed_by: str) -> Declared:
        rows: list[Mapping[str, Any]] = []
        for row in self._schedules(managed_by, removed=False):
            if row["sid"] in self.data.durable:
                continue
            epoch = self.data.epochs[row["sid"]].get(row["epoch"])
            lives: Sequence[LiveRun | None] = in_order(self.data.live.get(row["sid"])) or (None,)
            of_epoch = {"zone_hash": epoch and epoch.zone_hash, "policies": epoch and epoch.policies}
            rows.extend({**row, **_live_columns(live), **of_epoch} for live in lives)
        events = await self.lifecycle(managed_by)
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

    # --- claiming -------------------------------------------------------------------------------------------------

    async def hand_back(self, starts: Sequence[Start], owner: str, now: int) -> None:
        with self._transaction() as tx:
            for start in starts:
                live = self._mine(start, owner)
                if live is None:
                    continue
                row, following = self.data.schedules[start.sid], now if start.following is None else start.following
                tx.update(start.sid, next_run_at=following if row["epoch"] == start.epoch else row["cursor_at"])
                if live.kind == "manual" and live.fence == 1:
                    # it never began nor was it queued, and the one who asked is still there to ask again
                    tx.delete_live(live)
                else:
                    tx.put_live(replace(live, state="queued", attempt=live.attempt - 1, wake_at=now, owner=None))

    async def trigger(self, sid: int, owner: str, now: int) -> Start | None:
        with self._transaction() as tx:
            if any(live.kind == "manual" or live.state != "waiting" for live in self.data.live[sid].values()):
                return None
            row = self.data.schedules.get(sid)
            if row is None:
                return None
            run_for = now
            while (run_for, "manual") in self.data.runs[sid]:
                run_for += 1  # asked for twice in one instant, or a clock that went back: the runs are kept apart
            start = Start(sid, "manual", run_for, 1, 1, "manual", row["epoch"], now, now, row["next_run_at"])
            tx.put_live(_first_attempt(start, owner))
            tx.update(sid, next_run_at=None, last_attempt_at=now)
        return start

    async def ask(
        self, schedule_id: str, at: int, actor: str, via: Asked = "manual", *, queue: bool = False, retry: bool = True
    ) -> int | None:
        cause = asked_cause(via, retry=retry)
        with self._transaction() as tx:
            return memory_asking.ask(
                self.data, tx, self._tell, schedule_id, at=at, actor=actor, cause=cause, queue=queue
            )

    async def owned(self, owner: str) -> list[LiveRun]:
        lives = (live for sid in sorted(self._tables().live) for live in in_order(self.data.live[sid]))
        return [live for live in lives if live.state == "running" and live.owner == owner]

    async def deleted_among(self, sids: Sequence[int]) -> set[int]:
        rows = self._tables().schedules
        return {sid for sid in sids if sid in rows and rows[sid]["removed_at"] is not None}

    # --- settling -------------------------------------------------------------------------------------------------

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        woken: dict[int, int] = {}
        with self._transaction() as tx:
            lives = [self._mine(settlement.start, settlement.owner) for settlement in settlements]
            for settlement, live in zip(settlements, lives, strict=True):
                if live is not None:
                    before = self.data.schedules.get(live.sid)
                    self._settle(tx, settlement, live)
                    if (at := self._woken(before, settlement.start)) is not None:
                        woken[live.sid] = at
        return Settled([s for s, live in zip(settlements, lives, strict=True) if live is None], woken)

    def _woken(self, before: Row | None, start: Start) -> int | None:
        """When a schedule wakes because a run of it has ended, told by its row before that."""
        behind = [live.wake_at for live in self.data.live[start.sid].values() if live.state != "running"]
        changed = before is not None and (before["next_run_at"] is None or before["epoch"] != start.epoch)
        if not behind and not changed:
            return None
        row = self.data.schedules.get(start.sid)
        own = row["next_run_at"] if row is not None and row["enabled"] == 1 else None
        return min((at for at in (own, *behind) if isinstance(at, int)), default=None)

    def _settle(self, tx: Transaction, settlement: Settlement, live: LiveRun) -> None:
        start, outcome, ended_at, sid = settlement.start, settlement.outcome, settlement.ended_at, live.sid
        if (cleared := settlement.cleared) is not None:
            waiting = self.data.live[cleared.sid].get((cleared.kind, cleared.run_for))
            if waiting is not None and (waiting.state, waiting.fence) == ("waiting", cleared.fence):
                tx.end_live(waiting, "failed", ended_at)
        if outcome != "succeeded" or start.attempt > 1 or settlement.detail is not None:
            attempt = Attempt(
                sid, live.run_for, live.kind, start.attempt, outcome, start.cause, start.started_at, ended_at,
                settlement.owner, settlement.error, settlement.detail,
            )  # fmt: skip
            tx.put(self.data.attempts[sid], (live.run_for, live.kind, start.attempt), attempt)
            if (upto := upto_omitted(start.attempt)) > FIRST_KEPT:
                of_run = [key for key in self.data.attempts[sid] if key[:2] == (live.run_for, live.kind)]
                for key in of_run:
                    if FIRST_KEPT < key[2] <= upto:
                        tx.delete(self.data.attempts[sid], key)
        if settlement.wake_at is None:
            started_at = start.started_at if live.started_at is None else live.started_at
            waited_us = start.waited_us
            if start.attempt > 1:
                first = self.data.attempts[sid].get((live.run_for, live.kind, 1))
                waited_us = 0 if first is None else max((first.started_at or started_at) - started_at, 0)
            tx.end_live(
                replace(live, attempt=start.attempt, started_at=started_at), outcome, ended_at, waited_us=waited_us
            )
        else:
            tx.put_live(replace(live, state="waiting", wake_at=settlement.wake_at, owner=None))
        memory_outbox.append(tx, self.data, settlement.messages, ended_at)
        row = self.data.schedules.get(sid)
        if row is not None:
            # a wake-up that has come during the run was taken away, and comes back with the end; an edit during the run
            # has opened another epoch: what follows then is for a look to say, and at once
            following = start.following if row["next_run_at"] is None else row["next_run_at"]
            following = following if row["epoch"] == start.epoch else row["cursor_at"]
            ended = {"last_success_at" if outcome == "succeeded" else "last_failure_at": ended_at}
            tx.update(sid, next_run_at=following, **ended)

    def _mine(self, start: Start, owner: str) -> LiveRun | None:
        """The live run of a start, unless somebody else has it now: every later write of a start asks this first."""
        live = self.data.live[start.sid].get((start.kind, start.run_for))
        return live if live is not None and live.fence == start.fence and live.owner == owner else None

    async def record(self, event: LifecycleEvent) -> None:
        with self._transaction() as tx:
            tx.record(event)

    # --- reading --------------------------------------------------------------------------------------------------

    async def schedules(self, managed_by: str | None = None) -> list[Mapping[str, Any]]:
        return self._schedules(managed_by, removed=True)

    async def declared_tasks(self) -> list[Mapping[str, Any]]:
        rows = self._schedules(None, removed=False)
        return [row for row in rows if row["managed_by"].startswith(DECLARED_OWNERS)]

    async def epochs(self, sid: int) -> list[Epoch]:
        return in_order(self._tables().epochs.get(sid))

    async def spans(self, sid: int, from_at: int, to_at: int) -> list[Span]:
        spans = in_order(self._tables().spans.get(sid))
        return [span for span in spans if order(span.from_at) <= order(to_at) and order(span.to_at) >= order(from_at)]

    async def runs(self, sid: int, from_at: int, to_at: int, kind: Kind | None = None) -> list[Run]:
        runs = in_order(self._tables().runs.get(sid))
        return [run for run in runs if between(from_at, run.run_for, to_at) and kind in {None, run.kind}]

    async def live(self, sid: int) -> list[LiveRun]:
        return in_order(self._tables().live.get(sid))

    async def attempts(self, sid: int, from_at: int, to_at: int) -> list[Attempt]:
        attempts = in_order(self._tables().attempts.get(sid))
        return [attempt for attempt in attempts if between(from_at, attempt.run_for, to_at)]

    async def lifecycle(self, managed_by: str) -> list[LifecycleEvent]:
        return [event for event in in_order(self._tables().lifecycle) if event.managed_by == managed_by]

    async def read_ledger(
        self,
        table: LedgerTable,
        after: tuple[Any, ...] | None,
        limit: int,
        *,
        above_sid: int | None = None,
        upto_sid: int | None = None,
    ) -> list[tuple[Any, ...]]:
        return self._tables().page(table, after, limit, above_sid, upto_sid)

    async def snapshot(self, read: Callable[[ScheduleStore], Coroutine[Any, Any, T]]) -> T:
        self._tables()
        view = object.__new__(type(self))
        vars(view).update(vars(self), _transaction=refuse_writing)
        return in_one_step(read(cast("ScheduleStore", view)))

    def _schedules(self, managed_by: str | None, *, removed: bool) -> list[Mapping[str, Any]]:
        return [
            row | self.data.beside(row["sid"])
            for row in in_order(self._tables().schedules)
            if managed_by in {None, row["managed_by"]} and (removed or row["removed_at"] is None)
        ]

    def _tables(self) -> MemoryData:
        if not self._open:
            raise StoreUnavailableError("The memory store is closed; open it first (async with, or open())")
        return self.data

    def _transaction(self) -> Transaction:
        return Transaction(self._tables())


def _first_attempt(start: Start, owner: str) -> LiveRun:
    return LiveRun(
        start.sid, start.kind, start.run_for, start.fence, owner, "running", start.attempt, wake_at=None,
        started_at=start.started_at, attempt_at=start.started_at, crashes=0, epoch=start.epoch, cause=start.cause,
    )  # fmt: skip


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
