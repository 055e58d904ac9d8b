"""The store on PostgreSQL: its life, the names that it holds, its parts, and what belongs to none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from noonbell.ports import (
    BackgroundService,
    Ledger,
    LedgerAudit,
    LedgerDocuments,
    LedgerEngines,
    LedgerHistory,
    LedgerOutbox,
    LedgerRuns,
    LedgerSchedules,
    LedgerTable,
    Pruned,
    RowBounds,
)
from noonbell.store import backlog
from noonbell.store.postgres import paging, pruning
from noonbell.store.postgres.audit import PostgresAudit
from noonbell.store.postgres.clock_regression import ClockRegressionWatch
from noonbell.store.postgres.connection import Connection, Connections
from noonbell.store.postgres.documents import PostgresDocuments
from noonbell.store.postgres.engines import PostgresEngines
from noonbell.store.postgres.held_names import HeldNames
from noonbell.store.postgres.history import PostgresHistory
from noonbell.store.postgres.leases import DEFAULT_TTL, Lease
from noonbell.store.postgres.outbox import PostgresOutbox
from noonbell.store.postgres.runs import PostgresRuns
from noonbell.store.postgres.schedules import PostgresSchedules
from noonbell.store.postgres.schema import bring_up_to_date, require_current
from noonbell.store.postgres.session import Session
from noonbell.store.wrapping import without_replaced

T = TypeVar("T")

# A verb that writes for a held name may take as long as so many statements.
_LONGEST_STATEMENTS: Final = 4
# So long a busy event loop may take between two statements, however short leases are.
_SHORTEST_IDLE: Final = 5.0


class PostgresStore:
    """A ledger in a PostgreSQL database.

    `pool_size` is how many connections it may use at once (a held name needs one more), `statement_timeout` how many
    seconds the server may work on one statement, `lease_ttl` how many seconds after its last sign of life the holder of
    a name counts as dead. With `read_only` opening it changes nothing, and tables that are too old are refused.
    """

    schedules: LedgerSchedules
    runs: LedgerRuns
    history: LedgerHistory
    engines: LedgerEngines
    outbox: LedgerOutbox
    documents: LedgerDocuments
    audit: LedgerAudit
    _session: Session

    def __init__(
        self,
        dsn: str,
        *,
        pool_size: int = 4,
        statement_timeout: float = 30.0,
        lease_ttl: float = DEFAULT_TTL,
        read_only: bool = False,
    ) -> None:
        if pool_size < 1 or statement_timeout <= 0 or lease_ttl <= 0:
            raise ValueError("pool_size, statement_timeout and lease_ttl must be positive")
        # A process that is frozen in the middle of a transaction holds its locks, and no process can take its name from
        # it.
        idle_timeout = max(lease_ttl, _SHORTEST_IDLE)
        self._connections = Connections(
            dsn, pool_size=pool_size, statement_timeout=statement_timeout, idle_timeout=idle_timeout
        )
        self._held = HeldNames(
            self._connections, lease_ttl=lease_ttl, longest_seconds=_LONGEST_STATEMENTS * statement_timeout
        )
        self._statement_timeout = statement_timeout
        self._read_only = read_only
        self._opening = asyncio.Lock()
        self._work_in(Session(self._connections, self._held, ClockRegressionWatch()))

    def _work_in(self, session: Session) -> None:
        """Create the parts for this session."""
        self._session = session
        self.schedules = PostgresSchedules(session)
        self.runs = PostgresRuns(session)
        self.history = PostgresHistory(session)
        self.engines = PostgresEngines(session)
        self.outbox = PostgresOutbox(session)
        self.documents = PostgresDocuments(session)
        self.audit = PostgresAudit(session)

    def __repr__(self) -> str:
        return f"PostgresStore({self._connections.where!r})"

    async def open(self) -> None:
        async with self._opening:
            if self._connections.is_open:
                return
            await self._connections.open()
            try:
                if self._read_only:
                    async with self._connections.reading() as db:
                        await require_current(db)
                else:
                    await bring_up_to_date(self._connections.writing, self._statement_timeout)
            except BaseException:
                await self._connections.close()
                raise

    async def close(self) -> None:
        await self._held.released()
        await self._connections.close()

    def kill(self) -> None:
        self._connections.kill()
        self._held.kill()

    async def tables(self) -> set[str]:
        """Return the names of the tables that are there; also where the store is not open, and changing nothing."""
        async with self._connections.apart() as db:
            rows = await db.fetch("SELECT tablename FROM pg_tables WHERE schemaname = ANY(current_schemas(false))")
            return {row[0] for row in rows}

    # --- holding a name -------------------------------------------------------------------------------------------

    async def hold(self, name: str, holder: str) -> Lease:
        await self._held.released()
        if not self._connections.is_open:
            await bring_up_to_date(self._connections.apart, self._statement_timeout)
        return await self._held.hold(name, holder)

    async def holder(self, name: str) -> str | None:
        sql = "SELECT holder FROM instances WHERE name = $1 AND expires_at > clock_timestamp()"
        await self._held.released()
        found = await self._read(sql, name)
        return found[0][0] if found else None

    has_shared_clock = True

    @property
    def lease_seconds(self) -> float:
        return self._held.lease_ttl

    @property
    def clock_offset_us(self) -> int:
        """Return how far the database's clock is ahead of this machine's, while a name is held; else 0."""
        return self._held.clock_offset_us

    def subscribe(self, lane: str, wake: Callable[[int], None]) -> Callable[[], None]:
        """Call `wake` with the instant of each hint for the lane, while a name is held; returns what ends that.

        A hint that is lost does no harm: the subscriber finds the same by its own looks, only later.
        """
        return self._held.subscribe(lane, wake)

    def services(self, lane: str, wake: Callable[[int], None]) -> Mapping[str, BackgroundService]:
        del lane, wake
        return {}

    # --- the ledger as a whole ------------------------------------------------------------------------------------

    async def snapshot(self, read: Callable[[Ledger], Coroutine[Any, Any, T]]) -> T:
        async with self._session.connections.reading() as db:
            return await read(self._within(db))

    def _within(self, db: Connection) -> PostgresStore:
        """Return a store whose parts all work in the open transaction of `db`, which reads only."""
        view = without_replaced(self)
        view._work_in(self._session.within(db))  # noqa: SLF001 - a copy of this one
        return view

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
        return [tuple(row) for row in await self._read(sql, *bindings)]

    async def backlog(self, now: int) -> dict[str, int]:
        async with self._session.connections.reading() as db:
            return await backlog.count_on_postgres(db, now)

    async def prune_day(self, before: int) -> Pruned | None:
        return await pruning.prune(self._session.connections, before)

    async def _read(self, sql: str, *bindings: Any) -> list[Any]:
        return await self._session.read(sql, *bindings)
