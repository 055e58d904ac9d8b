"""Leases: a name has one holder, and one whose lease has ended cannot write any more."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import asyncpg
import pytest

from noonbell.core.records import Settlement
from noonbell.errors import SchedulerInUseError, StoreUnavailableError
from noonbell.ledger.ledger_rows import lifecycle_of
from noonbell.store.postgres import PostgresStore, leases
from noonbell.store.postgres.leases import LeaseKeeper
from noonbell.testing.storage_cases.base import ME, MINUTE, OTHER, OWNER, SECOND, T0, claim, declaration, ledger, new
from tests.patience import PATIENCE_SECONDS, until

# A lease lasts for longer than this process ever stands still, and is renewed so often that no test waits for it.
TTL = 60.0
RENEWALS = 200
# the connections that leases go over, those of other tests included
_CUT = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND (query LIKE '%INTO instances%' OR query LIKE '%UPDATE instances%')
"""


@pytest.fixture(autouse=True)
def _renewed_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEWALS", RENEWALS)


async def opened(dsn: str) -> PostgresStore:
    store = PostgresStore(dsn, pool_size=2, lease_ttl=TTL)
    await store.open()
    return store


async def execute(dsn: str, sql: str) -> None:
    db = await asyncpg.connect(dsn)
    await db.execute(sql)
    await db.close()


async def renewed_twice(dsn: str) -> None:
    """Return when every lease was renewed; twice, since the first renewal may have been under way."""
    db = await asyncpg.connect(dsn)

    async def ends() -> dict[str, datetime]:
        return {row[0]: row[1] for row in await db.fetch("SELECT name, expires_at FROM instances")}

    for _ in range(2):
        before = await ends()

        async def renewed(before: dict[str, datetime] = before) -> bool:
            now = await ends()
            return all(now[name] > at for name, at in before.items())

        await until(renewed)
    await db.close()


async def somebody_waits(dsn: str) -> None:
    """Return when a connection waits for a lock of another."""
    db = await asyncpg.connect(dsn)

    async def waits() -> bool:
        return bool(await db.fetchval("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)"))

    await until(waits)
    await db.close()


async def test_a_lease_is_kept_for_as_long_as_it_is_wanted(dsn: str) -> None:
    store, other = await opened(dsn), await opened(dsn)
    hold = await store.hold(OWNER, "process 7")
    # a busy event loop is the case: the lease has a thread of its own
    with ThreadPoolExecutor(1) as beside:
        beside.submit(asyncio.run, renewed_twice(dsn)).result(PATIENCE_SECONDS)
    with pytest.raises(SchedulerInUseError, match=r"process 7; .*; its lease ends at 20.*\+00:00 by") as refused:
        await other.hold(OWNER, "process 8")
    assert refused.value.holder == "process 7"
    assert refused.value.details["leaseEndsAt"] in str(refused.value)
    assert (await claim(store, T0)).starts == []
    hold.release()
    await store.close()
    (await other.hold(OWNER, "process 8")).release()
    await other.close()


async def test_a_killed_holder_is_dead_when_its_lease_ends_and_not_before(dsn: str) -> None:
    store, other = await opened(dsn), await opened(dsn)
    await store.hold(OWNER, "process 7")
    store.kill()
    with pytest.raises(SchedulerInUseError):
        await other.hold(OWNER, "process 8")
    await execute(dsn, "UPDATE instances SET expires_at = clock_timestamp() + interval '0.3 seconds'")

    async def free() -> bool:
        try:
            (await other.hold(OWNER, "process 8")).release()
        except SchedulerInUseError:
            return False
        return True

    await until(free)
    await other.close()


async def test_who_has_lost_the_lease_writes_nothing(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    store, other = await opened(dsn), await opened(dsn)
    await store.schedules.declare(declaration(created=[new("a"), new("b"), new("c")]))
    await store.schedules.declare(declaration(OTHER, created=[new("d")]))
    lost = await store.hold(OWNER, "process 7")
    kept = await store.hold(OTHER, "process 7")
    (start,) = (await claim(store, T0 + MINUTE, limit=1)).starts
    (others,) = (await claim(store, T0 + MINUTE, managed_by=OTHER)).starts
    await execute(
        dsn,
        "UPDATE instances SET token = 'of another', holder = 'process 8', expires_at = clock_timestamp() "
        "WHERE name = 'scheduler:suite'",
    )
    before = await ledger(store)
    at = T0 + 61 * SECOND
    verbs = [
        store.runs.claim(OWNER, ME, T0 + MINUTE, 10, lambda due: pytest.fail(f"{due} was decided")),
        store.runs.settle([Settlement(start, ME, "succeeded", at)]),
        store.runs.hand_back([start], ME, at),
        store.runs.trigger(2, ME, at),
        store.schedules.declare(declaration(created=[new("z")])),
    ]
    for verb in verbs:
        with pytest.raises(StoreUnavailableError, match=f'the lease was lost on "{OWNER}"; nothing was written'):
            await verb
    assert await ledger(store) == before
    settled = await store.runs.settle([Settlement(others, ME, "succeeded", at)])
    assert settled.stale == [], "a name that is still held goes on"

    async def told() -> bool:
        return "lease lost, it was not renewed in time" in caplog.text and f"name={OWNER}" in caplog.text

    with caplog.at_level(logging.ERROR, "noonbell.store"):
        await until(told)
    with pytest.raises(StoreUnavailableError, match="the lease was lost"):
        await claim(store, T0 + MINUTE)
    # and when another has it: his row is not touched by the release of the one who lost it
    theirs = await other.hold(OWNER, "process 8")
    lost.release()
    await store.close()
    assert len((await claim(other, T0 + MINUTE)).starts) == 2
    theirs.release()
    kept.release()
    await store.close()
    await other.close()


async def test_a_lease_that_ended_is_held_again_if_nobody_took_the_name(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = await opened(dsn)
    await store.schedules.declare(declaration(created=[new("a")]))
    hold = await store.hold(OWNER, "process 7")
    db = await asyncpg.connect(dsn)
    async with db.transaction():
        # nobody renews while the row is locked, as if the server were away for longer than the lease
        await db.execute("UPDATE instances SET expires_at = clock_timestamp() - interval '1 second'")
        await somebody_waits(dsn)
    with caplog.at_level(logging.WARNING, "noonbell.store"):

        async def works() -> bool:
            try:
                return len((await claim(store, T0 + MINUTE)).starts) == 1
            except StoreUnavailableError:
                return False

        await until(works)
    said = f'The lease on "{OWNER}" had ended, and no other process took it: held again'
    await until(lambda: said in caplog.text)  # by a thread, which renews first
    other = await opened(dsn)
    with pytest.raises(SchedulerInUseError):
        await other.hold(OWNER, "process 8")
    await db.close()
    hold.release()
    await store.close()
    await other.close()


async def test_a_lease_that_another_took_meanwhile_stays_his(dsn: str) -> None:
    store, other = await opened(dsn), await opened(dsn)
    hold = await store.hold(OWNER, "process 7")
    db = await asyncpg.connect(dsn)
    # the first holder is stopped for longer than his lease: what he would do meanwhile waits
    renewals = store._held.keeper
    assert renewals is not None
    async with renewals_stopped(renewals):
        await db.execute("UPDATE instances SET expires_at = clock_timestamp()")
        theirs = await other.hold(OWNER, "process 8")
    with pytest.raises(StoreUnavailableError, match="the lease was lost"):
        await claim(store, T0)
    await renewed_twice(dsn)  # the row: by the one who has it now, and not by the one before
    assert await db.fetchval("SELECT holder FROM instances") == "process 8"
    assert (await claim(other, T0)).starts == []
    await db.close()
    hold.release()
    await store.close()
    assert (await claim(other, T0)).starts == [], "the release of the one who lost it changes nothing"
    theirs.release()
    await other.close()


async def test_the_clock_of_the_database_is_compared_with_the_one_here(
    dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = await opened(dsn)
    assert store.clock_offset_us == 0, "nothing is held, and so nothing was compared"
    behind_ns = 90 * 1_000_000_000
    here = time.time_ns
    monkeypatch.setattr("noonbell.store.postgres.leases.time.time_ns", lambda: here() - behind_ns)
    with caplog.at_level(logging.WARNING, "noonbell.store"):
        hold = await store.hold(OWNER, "process 7")

        async def measured() -> bool:
            return abs(store.clock_offset_us - 90 * SECOND) < SECOND

        await until(measured)
    assert "is +90.0 s off the one here" in caplog.text
    monkeypatch.undo()

    async def agrees() -> bool:
        return store.clock_offset_us == 0

    await until(agrees)
    hold.release()
    await store.close()


async def test_a_slow_exchange_does_not_move_the_clock(dsn: str) -> None:
    """Its middle may be far from the moment at which the database read its clock."""
    store = PostgresStore(dsn, pool_size=2, lease_ttl=6000.0)  # it is not renewed in this test
    await store.open()
    hold = await store.hold(OWNER, "process 7")
    keeper = store._held.keeper
    assert keeper is not None
    measured = []
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    here = (at.timestamp() - 3600) * 1e9
    for exchange in ((0.0, 0.002), (0.0, 4.0), (-4.0, 0.0), (-0.001, 0.001), (0.5, 0.502)):
        keeper._exchange = (round(here + exchange[0] * 1e9), round(here + exchange[1] * 1e9))
        keeper._compare_clocks(at)
        measured.append(round(keeper.clock_offset_us / SECOND, 1))
    assert measured == [3600.0, 3600.0, 3600.0, 3600.0, 3599.5], "the last one is exact, and so it counts"
    hold.release()
    await store.close()


async def test_clocks_are_compared_as_soon_as_a_name_is_held(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = PostgresStore(dsn, pool_size=2, lease_ttl=600.0)  # it is not renewed in this test
    await store.open()
    ahead_ns = 3600 * 1_000_000_000
    here = time.time_ns
    monkeypatch.setattr("noonbell.store.postgres.leases.time.time_ns", lambda: here() + ahead_ns)
    hold = await store.hold(OWNER, "process 7")
    assert abs(store.clock_offset_us + 3600 * SECOND) < 60 * SECOND
    hold.release()
    await store.close()


async def test_a_lease_is_kept_on_after_an_unforeseen_error(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    store = await opened(dsn)
    hold = await store.hold(OWNER, "process 7")
    keeper = store._held.keeper
    assert keeper is not None
    compare_clocks = keeper._compare_clocks

    def fail(theirs: datetime) -> None:
        keeper._compare_clocks = compare_clocks  # type: ignore[method-assign]  # only once
        raise ArithmeticError(f"{theirs} is no time")

    keeper._compare_clocks = fail  # type: ignore[method-assign]  # stands for an error of our own
    db = await asyncpg.connect(dsn)

    async def told() -> bool:
        return "met an unexpected error" in caplog.text

    await until(told)
    assert "ArithmeticError" in caplog.text
    ends_at = await db.fetchval("SELECT expires_at FROM instances")

    async def renewed() -> bool:
        return bool(await db.fetchval("SELECT expires_at > $1 FROM instances", ends_at))

    await until(renewed)
    await db.close()
    hold.release()
    await store.close()


@asynccontextmanager
async def renewals_stopped(keeper: LeaseKeeper) -> AsyncIterator[None]:
    """The thread of the leases holds still, as in a process that was stopped by a signal."""
    stopped, go_on = threading.Event(), threading.Event()

    def hold_still() -> None:
        stopped.set()
        go_on.wait(PATIENCE_SECONDS)

    keeper._loop.call_soon_threadsafe(hold_still)
    await asyncio.to_thread(stopped.wait, PATIENCE_SECONDS)
    try:
        yield
    finally:
        go_on.set()


async def test_taking_over_waits_for_the_last_word_of_the_one_before(dsn: str) -> None:
    """A claim that found its lease good commits before the next holder reads, even if the lease ends meanwhile."""
    store, other = await opened(dsn), await opened(dsn)
    hold = await store.hold(OWNER, "process 7")
    assert store._held.keeper is not None
    async with renewals_stopped(store._held.keeper):
        async with store._connections.writing() as db:
            await store._session.still_held(db, OWNER)
            await execute(dsn, "UPDATE instances SET expires_at = clock_timestamp()")
            taking = asyncio.create_task(_taken(other))
            await somebody_waits(dsn)
            assert not taking.done()
            await db.execute("INSERT INTO lifecycle VALUES (1, $1, 0, 'i', 'crash', 'the last word')", OWNER)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await taking == ["the last word"]
    hold.release()
    await store.close()
    await other.close()


async def test_a_renewal_does_not_wait_for_a_long_verb_of_its_own(dsn: str) -> None:
    store, other = await opened(dsn), await opened(dsn)
    hold = await store.hold(OWNER, "process 7")
    async with store._connections.writing() as db:
        await store._session.still_held(db, OWNER)
        await renewed_twice(dsn)
        assert await other.holder(OWNER) == "process 7", "it is alive, however long its verb takes"
        await store._session.still_held(db, OWNER)
    hold.release()
    await store.close()
    await other.close()


async def _taken(store: PostgresStore) -> list[str]:
    while True:
        try:
            hold = await store.hold(OWNER, "process 8")
        except (SchedulerInUseError, StoreUnavailableError):
            await asyncio.sleep(0.05)
            continue
        details = [event.detail for event in await lifecycle_of(store, OWNER)]
        hold.release()
        return details


async def test_a_lease_outlives_its_connection(dsn: str) -> None:
    store, other = await opened(dsn), await opened(dsn)
    hold = await store.hold(OWNER, "process 7")
    for _ in range(3):
        await execute(dsn, _CUT)
        await renewed_twice(dsn)
    assert (await claim(store, T0)).starts == []
    with pytest.raises(SchedulerInUseError):
        await other.hold(OWNER, "process 8")
    hold.release()
    await store.close()
    await other.close()
