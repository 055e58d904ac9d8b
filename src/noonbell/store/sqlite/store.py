"""The store's verbs on SQLite. Each is one transaction, and one statement for each table it touches."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from noonbell.core.records import (
    Attempt,
    Declaration,
    Epoch,
    Kind,
    LifecycleEvent,
    LiveRun,
    Run,
    Settlement,
    Span,
    Start,
)
from noonbell.ports import Declared, LedgerTable, ScheduleStore, Settled
from noonbell.store.backlog import BacklogOnSqlite
from noonbell.store.coming import ComingOnSqlite
from noonbell.store.snapshot import in_one_step
from noonbell.store.sqlite import claiming, declaring, paging, settling
from noonbell.store.sqlite.connection import Connection, InTransaction
from noonbell.store.sqlite.documents import DocumentsOnSqlite
from noonbell.store.sqlite.durable import DurableOnSqlite
from noonbell.store.sqlite.engines import EnginesOnSqlite
from noonbell.store.sqlite.history import HistoryOnSqlite
from noonbell.store.sqlite.hold import FileHold, holder_of, take
from noonbell.store.sqlite.outbox import OutboxOnSqlite
from noonbell.store.survey import SurveyOnSqlite
from noonbell.store.waking import WakingOnSqlite

T = TypeVar("T")


class SqliteStore(
    DurableOnSqlite, EnginesOnSqlite, OutboxOnSqlite, HistoryOnSqlite, DocumentsOnSqlite, BacklogOnSqlite,
    ComingOnSqlite, SurveyOnSqlite, WakingOnSqlite,
):  # fmt: skip
    """A ledger in one file."""

    def __init__(
        self, path: str | Path, *, threaded: bool = True, busy_timeout_ms: int = 5000, read_only: bool = False
    ) -> None:
        self.path = Path(path)
        self._connection = Connection(
            self.path, threaded=threaded, busy_timeout_ms=busy_timeout_ms, read_only=read_only
        )
        self._holds: list[FileHold] = []

    def __repr__(self) -> str:
        return f"SqliteStore({str(self.path)!r})"

    async def open(self) -> None:
        await self._connection.open()

    async def close(self) -> None:
        await self._connection.close()

    def kill(self) -> None:
        self._connection.kill()
        for hold in self._holds:
            hold.drop()
        self._holds.clear()

    async def hold(self, name: str, holder: str) -> FileHold:
        hold = take(self.path, name, holder)
        self._holds.append(hold)
        return hold

    async def holder(self, name: str) -> str | None:
        return holder_of(self.path, name)

    # --- declaring ------------------------------------------------------------------------------------------------

    async def read_declared(self, managed_by: str) -> Declared:
        return await self._connection.run(lambda db: declaring.read(db, managed_by), write=False)

    async def declare(self, declaration: Declaration) -> list[int]:
        return await self._connection.run(lambda db: declaring.apply(db, declaration))

    # --- claiming -------------------------------------------------------------------------------------------------

    async def trigger(self, sid: int, owner: str, now: int) -> Start | None:
        return await self._connection.run(lambda db: claiming.trigger(db, sid, owner, now))

    async def hand_back(self, starts: Sequence[Start], owner: str, now: int) -> None:
        await self._connection.run(lambda db: claiming.hand_back(db, starts, owner, now))

    async def owned(self, owner: str) -> list[LiveRun]:
        sql = f"SELECT {claiming.LIVE} FROM live_runs l WHERE l.state = 'running' AND l.owner = ? ORDER BY l.sid"
        return [LiveRun(*row) for row in await self._read(sql, (owner,))]

    async def deleted_among(self, sids: Sequence[int]) -> set[int]:
        sql = """
            SELECT d.sid FROM json_each(?) b CROSS JOIN schedule_definitions d ON d.sid = b.value
            WHERE d.removed_at IS NOT NULL
        """
        return {sid for (sid,) in await self._read(sql, (msgspec.json.encode(list(sids)).decode(),))}

    # --- settling -------------------------------------------------------------------------------------------------

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        return await self._connection.run(lambda db: settling.settle(db, settlements))

    async def record(self, event: LifecycleEvent) -> None:
        await self._connection.run(lambda db: declaring.record(db, event))

    # --- reading --------------------------------------------------------------------------------------------------

    async def schedules(self, managed_by: str | None = None) -> list[Mapping[str, Any]]:
        return await self._connection.run(lambda db: declaring.schedules(db, managed_by), write=False)

    async def declared_tasks(self) -> list[Mapping[str, Any]]:
        return await self._connection.run(declaring.declared_tasks, write=False)

    async def epochs(self, sid: int) -> list[Epoch]:
        rows = await self._read("SELECT * FROM epochs WHERE sid = ? ORDER BY epoch", (sid,))
        return [Epoch(*row) for row in rows]

    async def spans(self, sid: int, from_at: int, to_at: int) -> list[Span]:
        sql = "SELECT * FROM spans WHERE sid = ? AND from_at <= ? AND to_at >= ? ORDER BY from_at"
        return [Span(*row) for row in await self._read(sql, (sid, to_at, from_at))]

    async def runs(self, sid: int, from_at: int, to_at: int, kind: Kind | None = None) -> list[Run]:
        sql = (
            "SELECT sid, run_for, kind, outcome, attempts, started_at, ended_at, owner, epoch, prev_for, prev_manual, "
            "waited_us "
            "FROM run_records WHERE run_for BETWEEN ? AND ? AND sid = ? AND (?4 IS NULL OR kind = ?4) "
            "ORDER BY run_for, kind"
        )
        return [Run(*row) for row in await self._read(sql, (from_at, to_at, sid, kind))]

    async def live(self, sid: int) -> list[LiveRun]:
        sql = f"SELECT {claiming.LIVE} FROM live_runs l WHERE l.sid = ? ORDER BY kind, run_for"
        return [LiveRun(*row) for row in await self._read(sql, (sid,))]

    async def attempts(self, sid: int, from_at: int, to_at: int) -> list[Attempt]:
        sql = "SELECT * FROM attempt_records WHERE sid = ? AND run_for BETWEEN ? AND ? ORDER BY run_for, kind, attempt"
        return [Attempt(*row) for row in await self._read(sql, (sid, from_at, to_at))]

    async def lifecycle(self, managed_by: str) -> list[LifecycleEvent]:
        sql = "SELECT managed_by, at, instance, event, detail FROM lifecycle WHERE managed_by = ? ORDER BY id"
        return [LifecycleEvent(*row) for row in await self._read(sql, (managed_by,))]

    async def read_ledger(
        self,
        table: LedgerTable,
        after: tuple[Any, ...] | None,
        limit: int,
        *,
        above_sid: int | None = None,
        upto_sid: int | None = None,
    ) -> list[tuple[Any, ...]]:
        return await self._read(*paging.statement(table, after, limit, above_sid, upto_sid))

    async def snapshot(self, read: Callable[[ScheduleStore], Coroutine[Any, Any, T]]) -> T:
        def within(db: Any) -> T:
            view = object.__new__(type(self))
            vars(view).update(path=self.path, _connection=InTransaction(db))
            return in_one_step(read(cast("ScheduleStore", view)))

        return await self._connection.run(within, write=False)

    async def _read(self, sql: str, bindings: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return await self._connection.run(lambda db: db.execute(sql, bindings).fetchall(), write=False)
