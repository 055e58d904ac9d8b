"""The store's verbs on PostgreSQL. Each is one transaction, and a fixed number of statements whatever the batch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar, cast

from noonbell.core.presence import ENGINE, LANE, engine_name
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
from noonbell.errors import StoreError
from noonbell.ports import Declared, LedgerTable, ScheduleStore, Settled
from noonbell.store.backlog import BacklogOnPostgres
from noonbell.store.coming import ComingOnPostgres
from noonbell.store.postgres import claiming, declaring, hints, paging, settling, slots
from noonbell.store.postgres.connection import Connection, Connections, InTransaction
from noonbell.store.postgres.documents import DocumentsOnPostgres
from noonbell.store.postgres.durable import DurableOnPostgres
from noonbell.store.postgres.engines import SetBack
from noonbell.store.postgres.history import HistoryOnPostgres
from noonbell.store.postgres.leases import DEFAULT_TTL, Covered, Lease, LeaseKeeper, answer, still_held
from noonbell.store.postgres.numbers import Owners, attempt_columns, number, run_columns
from noonbell.store.postgres.partitions import Days
from noonbell.store.postgres.schema import bring_up_to_date, require_current
from noonbell.store.survey import SurveyOnPostgres
from noonbell.store.waking import WakingOnPostgres
from noonbell.store.words import KINDS

T = TypeVar("T")

# A verb that writes for a held name may take as long as so many statements.
_LONGEST_STATEMENTS: Final = 4
# So long a busy event loop may take between two statements, however short leases are.
_SHORTEST_IDLE: Final = 5.0


class PostgresStore(
    DurableOnPostgres, HistoryOnPostgres, DocumentsOnPostgres, BacklogOnPostgres, ComingOnPostgres, SurveyOnPostgres,
    WakingOnPostgres,
):  # fmt: skip
    """A ledger in a PostgreSQL database.

    `pool_size` is how many connections it may use at once (a held name needs one more), `statement_timeout` how many
    seconds the server may work on one statement, `lease_ttl` how many seconds after its last sign of life the holder of
    a name counts as dead. With `read_only` opening it changes nothing, and tables that are too old are refused.
    """

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
        # A process that is frozen in the middle of a transaction holds its locks, and nobody can take its name from it.
        idle_timeout = max(lease_ttl, _SHORTEST_IDLE)
        self._connections = Connections(
            dsn, pool_size=pool_size, statement_timeout=statement_timeout, idle_timeout=idle_timeout
        )
        self._days = Days(self._connections)
        self._owners = Owners(self._connections)
        self._lease_ttl = lease_ttl
        self._statement_timeout = statement_timeout
        self._longest_seconds = _LONGEST_STATEMENTS * statement_timeout
        self._read_only = read_only
        self._keeper: LeaseKeeper | None = None
        self._leases: dict[str, Lease] = {}  # by name
        self._releasing: set[Future[None]] = set()
        self._set_back = SetBack()
        self._heeding: list[tuple[str, Callable[[int], None]]] = []
        self._opening = asyncio.Lock()

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
        await self._released()
        await self._connections.close()

    def kill(self) -> None:
        self._connections.kill()
        keeper, self._keeper = self._keeper, None
        self._leases.clear()
        self._releasing.clear()
        if keeper is not None:
            keeper.end()

    async def tables(self) -> set[str]:
        """The names of the tables that are there; also where the store is not open, and changing nothing."""
        async with self._connections.apart() as db:
            rows = await db.fetch("SELECT tablename FROM pg_tables WHERE schemaname = ANY(current_schemas(false))")
            return {row[0] for row in rows}

    # --- holding a name -------------------------------------------------------------------------------------------

    async def hold(self, name: str, holder: str) -> Lease:
        await self._released()
        if not self._connections.is_open:
            await self._install()
        keeper = self._keeper
        if keeper is None:
            keeper = self._keeper = LeaseKeeper(
                self._connections.connect,
                ttl_seconds=self._lease_ttl,
                where=self._connections.where,
                on_hint=self._hint_from_thread(),
            )
        keeper.uses += 1
        try:
            token = await keeper.take(name, holder)
        except BaseException:
            if self._no_longer_used(keeper):
                keeper.end()
            raise
        lease = self._leases[name] = Lease(name, token, self._release)
        return lease

    async def holder(self, name: str) -> str | None:
        sql = "SELECT holder FROM instances WHERE name = $1 AND expires_at > clock_timestamp()"
        await self._released()
        found = await self._read(sql, name)
        return found[0][0] if found else None

    def heed(self, lane: str, wake: Callable[[int], None]) -> Callable[[], None]:
        """Call `wake` with the instant of each hint for the lane, while a name is held; returns what ends that.

        A hint that is lost does no harm, and whoever heeds none is only told later, by his own looks.
        """
        pair = (lane, wake)
        self._heeding.append(pair)

        def end() -> None:
            if pair in self._heeding:
                self._heeding.remove(pair)

        return end

    def _hint_from_thread(self) -> Callable[[str], None]:
        loop = asyncio.get_running_loop()

        def tell(payload: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._on_hint, payload)

        return tell

    def _on_hint(self, payload: str) -> None:
        hint = hints.read(payload)
        if hint is not None:
            for lane, wake in list(self._heeding):
                if lane == hint[0]:
                    wake(hint[1])

    @property
    def lease_seconds(self) -> float:
        return self._lease_ttl

    def _leases_in_doubt(self) -> bool:
        return self._keeper is not None and self._keeper.in_doubt

    @property
    def clock_offset_us(self) -> int:
        """How far the database's clock is ahead of this machine's, while a name is held; 0 where they agree."""
        return 0 if self._keeper is None else self._keeper.clock_offset_us

    def _release(self, lease: Lease) -> None:
        if self._leases.get(lease.name) is not lease or self._keeper is None:
            return  # it went with a handle that was killed
        del self._leases[lease.name]
        keeper = self._keeper
        with contextlib.suppress(StoreError):
            self._releasing.add(keeper.let_go(lease.token, last=self._no_longer_used(keeper)))

    def _no_longer_used(self, keeper: LeaseKeeper) -> bool:
        keeper.uses -= 1
        if keeper.uses or self._keeper is not keeper:
            return False
        self._keeper = None
        return True

    async def _released(self) -> None:
        """Wait until what was released is gone from the database."""
        while self._releasing:
            with contextlib.suppress(StoreError):
                await answer(self._releasing.pop())

    async def _install(self) -> None:
        """The tables, for a handle that is not open."""
        await bring_up_to_date(self._connections.apart, self._statement_timeout)

    def _covered(self, *names: str) -> Covered:
        """The leases that this store took on some of these names."""
        leases = [self._leases[name] for name in names if name in self._leases]
        return Covered(leases, self._connections.where, self._longest_seconds)

    async def _still_held(self, db: Connection, *names: str) -> None:
        await still_held(db, self._covered(*names))

    # --- declaring ------------------------------------------------------------------------------------------------

    async def read_declared(self, managed_by: str) -> Declared:
        async with self._connections.reading() as db:
            return await declaring.read(db, managed_by)

    async def declare(self, declaration: Declaration) -> list[int]:
        touched = [
            *(part.sid for part in declaration.removed), *(part.sid for part in declaration.changed),
            *(part.sid for part in declaration.revived), *(part.sid for part in declaration.interrupted),
            *declaration.parked,
        ]  # fmt: skip
        async with self._connections.writing() as db:
            await self._still_held(db, declaration.managed_by)
            if touched:
                await settling.lock_schedules(db, touched)
                await slots.spill(db, touched)
            return await declaring.apply(db, declaration)

    # --- claiming -------------------------------------------------------------------------------------------------

    async def trigger(self, sid: int, owner: str, now: int) -> Start | None:
        await self._owners.know(owner)
        async with self._claiming(owner) as db:
            await self._still_held(db, engine_name(owner))
            await self._still_held(db, *await settling.lock_schedules(db, [sid]))
            return await claiming.trigger(db, sid, owner, now)

    async def hand_back(self, starts: Sequence[Start], owner: str, now: int) -> None:
        async with self._connections.writing() as db:
            if starts:
                await self._still_held(db, engine_name(owner))
                await self._still_held(db, *await settling.lock_schedules(db, [start.sid for start in starts]))
                await claiming.hand_back(db, starts, owner, now)

    async def owned(self, owner: str) -> list[LiveRun]:
        """Waits for claims of this owner that are still on their way, even over a connection that was lost."""
        async with self._accounting(owner) as db:
            return await slots.owned(db, owner)

    async def deleted_among(self, sids: Sequence[int]) -> set[int]:
        sql = "SELECT sid FROM schedule_definitions WHERE sid = ANY($1::int8[]) AND removed_at IS NOT NULL"
        async with self._connections.reading() as db:
            return {row[0] for row in await db.fetch(sql, list(sids))}

    def _claiming(self, owner: str) -> contextlib.AbstractAsyncContextManager[Connection]:
        return self._connections.writing(f"SELECT pg_advisory_xact_lock_shared({claiming.accounting_lock(owner)})")

    def _accounting(self, owner: str) -> contextlib.AbstractAsyncContextManager[Connection]:
        return self._connections.writing(f"SELECT pg_advisory_xact_lock({claiming.accounting_lock(owner)})")

    # --- settling -------------------------------------------------------------------------------------------------

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        if settlements:
            await self._days.prepare(max(settlement.ended_at for settlement in settlements))
        owners = {owner: await self._owners.know(owner) for owner in {one.owner for one in settlements}}
        async with self._connections.writing() as db:
            if not settlements:
                return Settled([], {})
            await self._still_held(db, *map(engine_name, owners))
            if any(not name.startswith(ENGINE) for name in self._leases):  # declared tasks have leases of their own
                sids = [settlement.start.sid for settlement in settlements]
                await self._still_held(db, *await settling.declared(db, sids))
            return await settling.settle(db, settlements, owners)

    async def record(self, event: LifecycleEvent) -> None:
        async with self._connections.writing() as db:
            # of one who was taken for dead, or lost the name, nothing is told any more: another has told his end
            name = engine_name(event.instance) if event.managed_by.startswith(LANE) else event.managed_by
            await self._still_held(db, name)
            await declaring.record(db, [event])

    # --- reading --------------------------------------------------------------------------------------------------

    async def schedules(self, managed_by: str | None = None) -> list[Mapping[str, Any]]:
        async with self._connections.reading() as db:
            return await declaring.schedules(db, managed_by)

    async def declared_tasks(self) -> list[Mapping[str, Any]]:
        async with self._connections.reading() as db:
            return await declaring.declared_tasks(db)

    async def epochs(self, sid: int) -> list[Epoch]:
        sql = (
            "SELECT sid, epoch, from_at, to_at, spec, timezone, zone_hash, policies, enabled = 1 FROM epochs "
            "WHERE sid = $1 ORDER BY epoch"
        )
        return [Epoch(*row) for row in await self._read(sql, sid)]

    async def spans(self, sid: int, from_at: int, to_at: int) -> list[Span]:
        sql = (
            "SELECT sid, from_at, to_at, n, verdict, reason, epoch FROM spans "
            "WHERE sid = $1 AND from_at <= $2 AND to_at >= $3 ORDER BY from_at"
        )
        return [Span(*row) for row in await self._read(sql, sid, to_at, from_at)]

    async def runs(self, sid: int, from_at: int, to_at: int, kind: Kind | None = None) -> list[Run]:
        sql = (
            f"SELECT {run_columns(Run.__struct_fields__)} FROM runs r "
            "WHERE r.run_for BETWEEN $1 AND $2 AND r.sid = $3::int8 AND ($4::int8 IS NULL OR r.kind = $4) "
            "ORDER BY r.run_for, r.kind"
        )
        chosen = None if kind is None else number(KINDS, kind)
        return [Run(*row) for row in await self._read(sql, from_at, to_at, sid, chosen)]

    async def live(self, sid: int) -> list[LiveRun]:
        sql = f"SELECT {claiming.LIVE} FROM live_runs WHERE sid = $1 ORDER BY kind, run_for"
        return [LiveRun(*row) for row in await self._read(sql, sid)]

    async def attempts(self, sid: int, from_at: int, to_at: int) -> list[Attempt]:
        sql = (
            f"SELECT {attempt_columns(Attempt.__struct_fields__)} FROM attempts a "
            "WHERE a.sid = $1::int8 AND a.run_for BETWEEN $2 AND $3 ORDER BY a.run_for, a.kind, a.attempt"
        )
        return [Attempt(*row) for row in await self._read(sql, sid, from_at, to_at)]

    async def lifecycle(self, managed_by: str) -> list[LifecycleEvent]:
        sql = "SELECT managed_by, at, instance, event, detail FROM lifecycle WHERE managed_by = $1 ORDER BY id"
        return [LifecycleEvent(*row) for row in await self._read(sql, managed_by)]

    async def read_ledger(
        self,
        table: LedgerTable,
        after: tuple[Any, ...] | None,
        limit: int,
        *,
        above_sid: int | None = None,
        upto_sid: int | None = None,
    ) -> list[tuple[Any, ...]]:
        sql, bindings = paging.statement(table, after, limit, above_sid, upto_sid)
        return [tuple(row) for row in await self._read(sql, *bindings)]

    async def snapshot(self, read: Callable[[ScheduleStore], Coroutine[Any, Any, T]]) -> T:
        async with self._connections.reading() as db:
            view = object.__new__(type(self))
            vars(view).update(_connections=InTransaction(db))
            return await read(cast("ScheduleStore", view))

    async def _read(self, sql: str, *bindings: Any) -> list[Any]:
        async with self._connections.reading() as db:
            return list(await db.fetch(sql, *bindings))
