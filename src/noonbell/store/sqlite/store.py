"""The ledger in one SQLite file: its life, its parts, and what belongs to none of them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from noonbell.ports import BackgroundService, Ledger, LedgerTable, Pruned, RowBounds
from noonbell.store import backlog
from noonbell.store.snapshot import in_one_step
from noonbell.store.sqlite import paging, pruning
from noonbell.store.sqlite.auditing import SqliteAudit
from noonbell.store.sqlite.connection import Connection, InTransaction
from noonbell.store.sqlite.documents import SqliteDocuments
from noonbell.store.sqlite.engines import SqliteEngines
from noonbell.store.sqlite.history import SqliteHistory
from noonbell.store.sqlite.hold import FileHold, holder_of, take
from noonbell.store.sqlite.outbox import SqliteOutbox
from noonbell.store.sqlite.runs import SqliteRuns
from noonbell.store.sqlite.schedules import SqliteSchedules
from noonbell.store.wrapping import without_replaced

T = TypeVar("T")


class SqliteStore:
    """A ledger in one file."""

    # A dead holder is known at once, by the lock on its name; all engines are on one host, with one clock.
    lease_seconds: float = 0.0
    has_shared_clock: bool = False
    clock_offset_us: int = 0

    def __init__(
        self, path: str | Path, *, threaded: bool = True, busy_timeout_ms: int = 5000, read_only: bool = False
    ) -> None:
        self.path = Path(path)
        self._holds: list[FileHold] = []
        self._file = Connection(self.path, threaded=threaded, busy_timeout_ms=busy_timeout_ms, read_only=read_only)
        self._put_parts(self._file)

    def _put_parts(self, connection: Connection | InTransaction) -> None:
        self._connection = connection
        self.schedules = SqliteSchedules(connection)
        self.runs = SqliteRuns(connection)
        self.history = SqliteHistory(connection)
        self.engines = SqliteEngines(connection, self.path)
        self.outbox = SqliteOutbox(connection)
        self.documents = SqliteDocuments(connection)
        self.audit = SqliteAudit(connection)

    def __repr__(self) -> str:
        return f"SqliteStore({str(self.path)!r})"

    async def open(self) -> None:
        await self._file.open()

    async def close(self) -> None:
        await self._file.close()

    def kill(self) -> None:
        self._file.kill()
        for hold in self._holds:
            hold.drop()
        self._holds.clear()

    async def hold(self, name: str, holder: str) -> FileHold:
        hold = take(self.path, name, holder)
        self._holds.append(hold)
        return hold

    async def holder(self, name: str) -> str | None:
        return holder_of(self.path, name)

    def subscribe(self, lane: str, wake: Callable[[int], None]) -> Callable[[], None]:
        """Do nothing: a file gives no hints."""
        del lane, wake
        return lambda: None

    def services(self, lane: str, wake: Callable[[int], None]) -> Mapping[str, BackgroundService]:
        del lane, wake
        return {}

    async def snapshot(self, read: Callable[[Ledger], Coroutine[Any, Any, T]]) -> T:
        def within(db: Any) -> T:
            view = without_replaced(self)
            view._put_parts(InTransaction(db))  # noqa: SLF001 - a copy of ourselves
            return in_one_step(read(view))

        return await self._connection.run(within, write=False)

    async def read(
        self,
        table: LedgerTable,
        after: tuple[Any, ...] | None,
        limit: int,
        *,
        above_sid: int | None = None,
        upto_sid: int | None = None,
        managed_by: str | None = None,
    ) -> list[tuple[Any, ...]]:
        sql, bindings = paging.statement(table, after, limit, RowBounds(above_sid, upto_sid, managed_by))
        return await self._connection.run(lambda db: db.execute(sql, bindings).fetchall(), write=False)

    async def backlog(self, now: int) -> dict[str, int]:
        return await self._connection.run(lambda db: backlog.count_on_sqlite(db, now), write=False)

    async def prune_day(self, before: int) -> Pruned | None:
        return await self._connection.run(lambda db: pruning.prune_day(db, before))
