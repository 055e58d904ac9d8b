"""Servers that go away: restarts, cut connections, time-outs, full and read-only databases; and a Scheduler on one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from noonbell import Scheduler
from noonbell.core.records import RemovedSchedule, Settlement
from noonbell.declarative.events import SchedulerEvent, TaskEvent
from noonbell.engine.system_clock import SystemClock
from noonbell.errors import SchedulerInUseError, StoreCorruptError, StoreError, StoreUnavailableError
from noonbell.ledger import verify_store
from noonbell.ledger.ledger_rows import lifecycle_of, schedule_rows
from noonbell.store.postgres import PostgresStore
from noonbell.store.postgres.connection import translated
from noonbell.store.postgres.schema import LOCKS, NUMBERING
from noonbell.testing.storage_cases.base import (
    ME,
    MINUTE,
    OWNER,
    SECOND,
    T0,
    claim,
    declaration,
    event,
    ledger,
    new,
    record_step,
)
from tests.patience import PATIENCE_SECONDS, patiently, until
from tests.store.postgres_server import PostgresServer

POOL = 2


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[PostgresStore]:
    async with opened(PostgresStore(dsn, pool_size=POOL, lease_ttl=30.0)) as made:
        yield made


@asynccontextmanager
async def opened(store: PostgresStore) -> AsyncIterator[PostgresStore]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def test_a_server_that_restarts_is_used_again(postgres: PostgresServer, store: PostgresStore) -> None:
    hold = await store.hold(OWNER, "me")
    await store.schedules.declare(declaration(created=[new("a"), new("b")]))
    (start,) = (await claim(store, T0 + MINUTE, limit=1)).starts
    before = await ledger(store)
    await postgres.in_thread("halt")
    end = Settlement(start, ME, "succeeded", T0 + 61 * SECOND)
    try:
        verbs: list[Callable[[], Awaitable[object]]] = [
            lambda: claim(store, T0 + MINUTE),
            lambda: store.runs.settle([end]),
            lambda: store.schedules.declare(declaration(created=[new("z")])),
            lambda: record_step(store, event("stop-end")),
            lambda: store.runs.live(owner=ME),
            lambda: ledger(store),
        ]
        for verb in verbs:
            with pytest.raises(StoreUnavailableError, match=r"The store postgresql://127\.0\.0\.1:\d+/postgres cannot"):
                await verb()
        with pytest.raises(StoreUnavailableError):
            await PostgresStore(postgres.dsn("postgres")).open()
    finally:
        await postgres.in_thread("start")
    assert await ledger(store) == before, "what was committed is there, and nothing else"
    assert (await store.runs.settle([end])).stale == []
    assert len((await claim(store, T0 + MINUTE)).starts) == 1
    hold.release()


async def test_a_restart_in_the_middle_of_a_transaction_leaves_nothing_of_it(
    postgres: PostgresServer, store: PostgresStore
) -> None:
    await store.schedules.declare(declaration(created=[new("a")]))
    before = await ledger(store)

    async def half() -> None:
        async with store._connections.writing() as db:
            await db.execute("UPDATE schedule_definitions SET name = 'half'")
            try:
                await postgres.in_thread("halt")
            finally:
                await postgres.in_thread("start")

    with pytest.raises(StoreUnavailableError):
        await half()
    assert await ledger(store) == before


async def test_cut_connections_are_replaced(dsn: str, store: PostgresStore) -> None:
    await store.schedules.declare(declaration(created=[new(f"task {i}") for i in range(20)]))
    killer = await asyncpg.connect(dsn)
    failures: list[StoreUnavailableError] = []

    async def work() -> int:
        """Run two more, and say how many have run."""
        for start in (await claim(store, T0 + MINUTE, limit=2)).starts:
            await store.runs.settle([Settlement(start, ME, "succeeded", T0 + MINUTE)])
        # as the engine does after a failure: what was claimed and lost is settled too
        for live in await store.runs.live(owner=ME):
            await store.runs.hand_back([_start_of(live)], ME, T0 + MINUTE)
        return len(await store.read("runs", None, 100))

    async def work_and_be_cut() -> None:
        """Connections are cut for as long as it takes a verb to meet it."""
        working = asyncio.create_task(work())
        while not working.done():
            await killer.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND application_name = 'noonbell'"
            )
        try:
            await working
        except StoreUnavailableError as error:
            failures.append(error)

    async def work_in_peace() -> int:
        """However slow the machine is: when the cutting is over, each connection may show once that it was cut."""
        for _ in range(POOL):
            try:
                return await work()
            except StoreUnavailableError as error:
                failures.append(error)
        return await work()

    await work_and_be_cut()
    while await work_in_peace() < 20:
        await work_and_be_cut()
    await killer.close()
    assert failures, "connections were cut in the middle of verbs"
    rows = await ledger(store)
    assert [row[:2] for row in rows["runs"]] == [(sid, T0 + MINUTE) for sid in range(1, 21)], "each once"
    assert rows["live"] == []


def _start_of(live: Any) -> Any:
    from noonbell.engine.unstarted import as_start

    return as_start(live)


async def test_a_statement_that_takes_too_long_is_given_up(dsn: str) -> None:
    patient, store = PostgresStore(dsn, pool_size=1), PostgresStore(dsn, pool_size=1, statement_timeout=0.2)
    await patient.open()
    await patient.schedules.declare(declaration(created=[new("a")]))
    start = (await claim(patient, T0 + MINUTE)).starts[0]
    await patiently(store.open, StoreUnavailableError)
    other = await asyncpg.connect(dsn)
    async with other.transaction():
        await other.execute("SELECT 1 FROM schedule_state FOR UPDATE")

        async def times_out() -> bool:
            with pytest.raises(StoreUnavailableError) as refused:
                await store.runs.settle([Settlement(start, ME, "succeeded", T0 + MINUTE)])
            return "statement timeout" in str(refused.value)

        await until(times_out)  # on a slow machine the connection may be what takes too long
    await other.close()
    owned = await patiently(lambda: store.runs.live(owner=ME), StoreUnavailableError)
    assert len(owned) == 1, "the connection is as good as before"
    assert (await patient.runs.settle([Settlement(start, ME, "succeeded", T0 + MINUTE)])).stale == []
    await store.close()
    await patient.close()


async def test_a_busy_pool_is_waited_for_and_given_up(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(PostgresStore(dsn)):
        pass  # the tables are there: making them may take longer than the other has patience for
    monkeypatch.setattr("noonbell.store.postgres.connection._PATIENCE_SECONDS", 0.1)
    store = PostgresStore(dsn, pool_size=1, statement_timeout=0.5)
    await patiently(store.open, StoreUnavailableError)
    async with store._connections.reading():
        with pytest.raises(StoreUnavailableError, match="did not answer in time"):
            await schedule_rows(store)
    assert await patiently(lambda: schedule_rows(store), StoreUnavailableError) == []
    await store.close()


async def test_while_the_database_is_read_only_it_can_be_read(postgres: PostgresServer) -> None:
    dsn = await postgres.new_database()
    store = PostgresStore(dsn, pool_size=1)
    await store.open()
    await store.schedules.declare(declaration(created=[new("a")]))
    before = await ledger(store)
    name = dsn.rpartition("/")[2]
    await postgres.execute("postgres", f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await store.close()
    await store.open()
    with pytest.raises(StoreUnavailableError, match="read-only transaction"):
        await claim(store, T0 + MINUTE)
    assert await ledger(store) == before
    await postgres.execute("postgres", f"ALTER DATABASE {name} SET default_transaction_read_only = off")
    await store.close()
    await store.open()
    assert len((await claim(store, T0 + MINUTE)).starts) == 1
    await store.close()


async def at_the_lock(db: asyncpg.Connection[Any]) -> None:
    """Return when somebody waits for the lock on numbers."""
    sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = $1 AND objid = $2 AND NOT granted"
    while not await db.fetchval(sql, LOCKS, NUMBERING):  # noqa: ASYNC110 - it happens in the server
        await asyncio.sleep(0.01)


async def test_a_cancelled_verb_leaves_nothing_and_gives_its_connection_back(dsn: str) -> None:
    store = PostgresStore(dsn, pool_size=1)
    await store.open()
    await store.schedules.declare(declaration(created=[new("a")]))
    before = await ledger(store)
    other = await asyncpg.connect(dsn)
    half_done = declaration(removed=[RemovedSchedule(1, T0)], created=[new("b")])
    async with other.transaction():
        await other.execute(f"SELECT pg_advisory_xact_lock({LOCKS}, {NUMBERING})")
        waiting = asyncio.create_task(store.schedules.declare(half_done))
        await at_the_lock(other)  # it has removed the one, and is to number the other
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    await other.close()
    assert await ledger(store) == before
    assert await store.schedules.declare(half_done) == [2]
    await store.close()


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("08006", StoreUnavailableError),
        ("25006", StoreUnavailableError),
        ("3D000", StoreUnavailableError),
        ("40001", StoreUnavailableError),
        ("40P01", StoreUnavailableError),
        ("53100", StoreUnavailableError),
        ("53300", StoreUnavailableError),
        ("55P03", StoreUnavailableError),
        ("57014", StoreUnavailableError),
        ("57P01", StoreUnavailableError),
        ("57P03", StoreUnavailableError),
        ("58030", StoreUnavailableError),
        ("XX001", StoreCorruptError),
        ("22003", StoreError),
        ("23505", StoreError),
        ("42P01", StoreError),
    ],
)
def test_what_the_states_of_the_server_mean(state: str, kind: type[StoreError]) -> None:
    raised = asyncpg.PostgresError.new({"C": state, "M": "so it is", "S": "ERROR"})
    assert type(translated(raised, "here")) is kind
    assert "so it is" in str(translated(raised, "here"))


def test_what_is_no_matter_of_the_store_is_passed_on() -> None:
    assert [translated(error, "here") for error in (KeyError("x"), ZeroDivisionError(), StoreError("x"))] == [None] * 3
    assert isinstance(translated(OSError("no route"), "here"), StoreUnavailableError)
    assert isinstance(translated(TimeoutError(), "here"), StoreUnavailableError)


# --- a Scheduler on it ------------------------------------------------------------------------------------------------


class ShiftedClock(SystemClock):
    """The clock of the machine, put forward; elapsed time goes with it, as if the machine had slept."""

    shift_seconds = 0

    def now(self) -> int:
        return super().now() + self.shift_seconds * SECOND

    def elapsed(self) -> float:
        return super().elapsed() + self.shift_seconds


_VICTIM = """
import asyncio, sys
from datetime import timedelta
from noonbell import Scheduler
from noonbell.store.postgres import PostgresStore

async def job():
    print("started", flush=True)
    await asyncio.sleep(3600)

async def main():
    scheduler = Scheduler(PostgresStore(sys.argv[1], lease_ttl=600.0), time_zone="UTC")
    await scheduler.initialize([("hang", "* * * * *", job, timedelta(minutes=1))])
    await asyncio.sleep(3600)

asyncio.run(main())
"""


async def test_a_scheduler_lives_dies_and_lives_again_on_postgres(postgres: PostgresServer) -> None:
    dsn = await postgres.new_database()
    clock = ShiftedClock()
    told: list[SchedulerEvent] = []
    ran = asyncio.Queue[str]()

    def scheduler() -> Scheduler:
        store = PostgresStore(dsn, lease_ttl=60.0)
        stores.append(store)
        return Scheduler(
            store, clock=clock, on_event=told.append, time_zone="UTC", poll_interval=timedelta(milliseconds=200)
        )

    async def job() -> None:
        ran.put_nowait("job")

    async def hang() -> None:
        ran.put_nowait("hang")

    stores: list[PostgresStore] = []
    minutely = timedelta(minutes=1)
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with scheduler() as first:
            await first.initialize([("job", "* * * * *", job, minutely)])
            assert await ran.get() == "job"
            clock.shift_seconds += 60
            assert await ran.get() == "job"
        async with scheduler() as second:
            await second.initialize([("job", "* * * * *", job, minutely)])
            clock.shift_seconds += 60
            assert await ran.get() == "job"
        # a process that is killed in the middle of a run
        victim = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _VICTIM, dsn, stdout=asyncio.subprocess.PIPE, env=os.environ
        )
        assert victim.stdout is not None
        assert (await victim.stdout.readline()).strip() == b"started"
        third = scheduler()
        with pytest.raises(SchedulerInUseError, match=rf"process {victim.pid} on .*; its lease ends at"):
            await third.initialize([("hang", "* * * * *", hang, minutely)])
        victim.send_signal(signal.SIGKILL)
        await victim.wait()
        await postgres.execute(dsn.rpartition("/")[2], "UPDATE instances SET expires_at = clock_timestamp()")
        while third.state != "running":
            try:
                await third.initialize([("hang", "* * * * *", hang, minutely)])
            except SchedulerInUseError:
                await asyncio.sleep(0.1)
        assert await ran.get() == "hang"
        await third.stop()
    orphans = [event for event in told if isinstance(event, TaskEvent) and event.cause == "orphan"]
    assert [event.name for event in orphans] == ["TaskRunStarted", "TaskRunCompleted"]
    last = stores[-1]
    report = await verify_store(last)
    assert (report.problems, report.schedules) == ([], 2)
    assert [event.event for event in await lifecycle_of(last, "scheduler:default")].count("crash") == 1
    for store in stores:
        await store.close()
