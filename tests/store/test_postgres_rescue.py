"""Rescues on PostgreSQL: who may be taken for dead, and what a rescue does where others hold locks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import pytest

from noonbell.core.presence import EngineSign
from noonbell.core.records import Edit, Epoch, LiveRun, OutboxMessage, Outcome, StoredSchedule
from noonbell.core.turns import close
from noonbell.ports import Rescue, ScheduleChange
from noonbell.store.postgres import PostgresStore, clock_regression, outbox, slots
from noonbell.store.postgres.schema import NUMBERING, lock
from noonbell.testing.storage_cases.base import MINUTE, SECOND, T0
from noonbell.testing.storage_cases.engines import LANE, A, B, C, claim, join, schedule
from tests.patience import PATIENCE_SECONDS, until
from tests.store.test_postgres import listening

TTL = 5.0  # longer than this process ever stands still; who judges others has to wait for half of it
CHANNEL = -7  # streams below zero are those of channels, and lower than those of schedules


@pytest.fixture
async def db(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(dsn)
    yield connection
    connection.terminate()


@asynccontextmanager
async def opened(dsn: str, ttl: float = TTL) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(dsn, pool_size=3, lease_ttl=ttl)
    await store.open()
    yield store
    store.kill()


async def somebody_waits(db: asyncpg.Connection[asyncpg.Record]) -> bool:
    return bool(await db.fetchval("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)"))


async def dies(store: PostgresStore, db: asyncpg.Connection[asyncpg.Record], instance: str = A) -> None:
    """Its process is gone, and its lease has just run out."""
    store.kill()
    await db.execute("UPDATE instances SET expires_at = clock_timestamp() WHERE name = 'engine:' || $1", instance)


async def is_up_for_a_lease(db: asyncpg.Connection[asyncpg.Record]) -> bool:
    """The server has not just started, which would be another reason for patience."""
    sql = "SELECT pg_postmaster_start_time() + make_interval(secs => $1) < clock_timestamp()"
    return bool(await db.fetchval(sql, TTL))


# --- who is dead ------------------------------------------------------------------------------------------------------


async def test_who_has_just_come_takes_nobody_for_dead(dsn: str, db: asyncpg.Connection[asyncpg.Record]) -> None:
    """The network was away for longer than a lease, and one joins in the moment in which it is back."""
    async with opened(dsn) as one, opened(dsn) as two:
        await one.schedules.apply(ScheduleChange([schedule("a")], T0, "suite"))
        await join(one, A)
        assert len(await claim(one, A, T0 + MINUTE)) == 1
        await dies(one, db)
        await join(two, B)
        await until(lambda: is_up_for_a_lease(db))
        assert two._held.keeper is not None
        two._held.keeper._watching_since = time.monotonic() + 3600  # it has just come, however slow this machine is
        assert (await two.engines.members(0, LANE)).dead == [], "or each look would rescue, and in vain"
        assert await two.engines.rescue(LANE, B, T0 + MINUTE) == Rescue(0, [])
        assert [(live.state, live.owner) for live in await two.runs.live(1)] == [("running", A)]


async def test_a_name_that_was_just_taken_is_no_ground_to_judge_others(dsn: str) -> None:
    async with opened(dsn, 600.0) as store:
        first = await store.hold("scheduler:first", "process 7")
        keeper = store._held.keeper
        assert keeper is not None
        doubts = [keeper.in_doubt]
        assert keeper._watching_since is not None
        keeper._watching_since -= 300.0
        second = await store.hold("scheduler:second", "process 7")
        doubts.append(keeper.in_doubt)
        assert doubts == [True, False], "a store that has watched for long may judge, whatever it takes now"
        first.release()
        second.release()


async def test_who_has_watched_for_half_a_lease_rescues_the_dead(
    dsn: str, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with opened(dsn) as one, opened(dsn) as two:
        await one.schedules.apply(ScheduleChange([schedule("a")], T0, "suite"))
        await join(one, A)
        await claim(one, A, T0 + MINUTE)
        await dies(one, db)
        await join(two, B)

        async def found() -> bool:
            return (await two.engines.members(0, LANE)).dead == [A]

        await until(found)
        assert await two.engines.rescue(LANE, B, T0 + MINUTE) == Rescue(1, [A])


async def test_one_that_left_no_lease_is_dead_without_a_doubt(dsn: str, db: asyncpg.Connection[asyncpg.Record]) -> None:
    async with opened(dsn) as one, opened(dsn, 600.0) as two:
        await one.schedules.apply(ScheduleChange([schedule("a")], T0, "suite"))
        await join(one, A)
        await claim(one, A, T0 + MINUTE)
        one.kill()
        await db.execute("DELETE FROM instances")
        await join(two, B)
        assert (await two.engines.members(0, LANE)).dead == [A]
        assert await two.engines.rescue(LANE, B, T0 + MINUTE) == Rescue(1, [A])


async def test_the_dead_are_found_though_the_clock_of_the_database_was_set_back(
    dsn: str, db: asyncpg.Connection[asyncpg.Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock_regression, "SET_BACK_SECONDS", 1.0)
    async with opened(dsn) as one, opened(dsn) as two, opened(dsn) as three:
        await one.schedules.apply(ScheduleChange([schedule("a")], T0, "suite"))
        await join(one, A)
        await claim(one, A, T0 + MINUTE)
        await join(two, B)
        await join(three, C)
        one.kill()
        # by the clock that is right from now on, all signs of life come in an hour; the living give new ones
        await db.execute("UPDATE engines SET seen_at = seen_at + interval '1 hour'")
        await db.execute("UPDATE instances SET expires_at = expires_at + interval '1 hour'")

        async def found() -> bool:
            await three.engines.beat(EngineSign(C, T0, T0, "up"), lambda: T0)
            return bool((await two.engines.members(0, LANE)).dead)

        await until(found)
        assert (await two.engines.members(0, LANE)).dead == [A]
        assert await two.engines.rescue(LANE, B, T0 + MINUTE) == Rescue(1, [A])
        assert [engine.instance for engine in (await two.engines.members(T0)).alive] == [B, C]


def test_a_sign_that_moves_is_of_one_who_is_alive() -> None:
    watched = clock_regression.ClockRegressionWatch()
    ends, sign = T0, T0 - 9 * SECOND
    watched.note(LANE, [(A, sign, ends), (B, sign, ends)], 100.0)
    watched.note("other", [], 110.0)
    watched.note(LANE, [(A, sign, ends), (B, sign, ends + 5 * SECOND)], 120.0)
    assert watched.dead(LANE, 129.9, 15.0) == {}
    assert watched.dead(LANE, 130.0, 15.0) == {A: ends}
    assert watched.dead(LANE, 130.0, 31.0) == {}, "a lease that long is not over yet"
    watched.note(LANE, [(B, sign, ends)], 140.0)
    assert watched.dead(LANE, 169.9, 15.0) == {}


async def test_the_driver_has_to_ask_for_no_type_in_a_rescue(dsn: str) -> None:
    """It changes a setting of the session for that, and behind a pooler the session is not its own."""
    store = PostgresStore(dsn, pool_size=1)
    await store.open()
    hold, _ = await join(store, A)
    assert store._held.keeper is not None
    store._held.keeper._watching_since = time.monotonic() - 60
    said = listening(store)
    await store.engines.members(0, LANE)
    await store.engines.rescue(LANE, A, T0)
    assert any("DELETE FROM instances" in sql for sql in said)
    assert not any("typeinfo" in sql for sql in said)
    hold.release()
    await store.close()


# --- locks of others --------------------------------------------------------------------------------------------------


async def test_a_rescue_passes_over_what_an_editor_has_locked_and_comes_back_for_it(
    dsn: str, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with opened(dsn) as one, opened(dsn) as two:
        await one.schedules.apply(ScheduleChange([schedule("a"), schedule("b")], T0, "suite"))
        await join(one, A)
        await join(two, B)
        await claim(one, A, T0 + MINUTE, 2)
        messages = [OutboxMessage(sid, LANE, f"m{sid}", "inbox", "{}", T0) for sid in (1, 2)]
        await one.outbox.post(messages, T0)
        assert len((await one.outbox.claim(LANE, A, T0, 2)).streams) == 2
        one.kill()
        await db.execute("DELETE FROM instances WHERE name = 'engine:' || $1", A)
        async with db.transaction():
            await db.execute("SELECT 1 FROM schedule_state WHERE sid = 1 FOR UPDATE")
            await db.execute("SELECT 1 FROM outbox_streams WHERE sid = 2 FOR UPDATE")
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await two.engines.rescue(LANE, B, T0 + MINUTE) == Rescue(1, [A], 2)
            states = [(await two.runs.live(sid))[0].state for sid in (1, 2)]
            assert states == ["running", "queued"]
            assert await two.outbox.owned(A) == [2]
            assert (await two.engines.members(0, LANE)).dead == [], "so only what was told says that there is more"
        assert await two.engines.rescue(LANE, B, T0 + MINUTE) == Rescue(1, [])
        assert (await two.runs.live(1))[0].state == "queued"
        assert await two.outbox.owned(A) == []


async def test_runs_on_probation_of_one_engine_are_judged_together(
    dsn: str, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    """None is abandoned because the other was locked at the first rescue: it was not alone when the engine died."""
    async with opened(dsn) as one, opened(dsn) as two:
        await one.schedules.apply(ScheduleChange([schedule("a"), schedule("b")], T0, "suite"))
        await join(one, A)
        await join(two, B)
        await claim(one, A, T0 + MINUTE, 2)
        await slots.spill(db, [1, 2])
        await db.execute("UPDATE runs_live SET crashes = 2")
        one.kill()
        await db.execute("DELETE FROM instances WHERE name = 'engine:' || $1", A)
        async with db.transaction():
            await db.execute("SELECT 1 FROM schedule_state WHERE sid = 1 FOR UPDATE")
            assert await two.engines.rescue(LANE, B, T0 + MINUTE) == Rescue(0, [A], 2)
        assert await two.engines.rescue(LANE, B, T0 + MINUTE) == Rescue(2, [])
        assert [((await two.runs.live(sid))[0].state, (await two.runs.live(sid))[0].crashes) for sid in (1, 2)] == [
            ("queued", 3), ("queued", 3),
        ]  # fmt: skip


async def test_a_rescue_and_one_who_appends_do_not_wait_in_a_circle(
    dsn: str, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    """A run that ends with its engine is told to a channel; another tells the same one, and then a stream of theirs."""

    def message(sid: int, text: str) -> OutboxMessage:
        return OutboxMessage(sid, LANE, text, "inbox", "{}", T0)

    def tell(_: StoredSchedule, __: LiveRun, ___: Outcome) -> Sequence[OutboxMessage]:
        return [message(CHANNEL, "cut off")]

    async with opened(dsn) as one, opened(dsn) as two:
        await one.schedules.apply(ScheduleChange([schedule("a", at_most_once=True), schedule("b")], T0, "suite"))
        await join(one, A)
        await join(two, B)
        await claim(one, A, T0 + MINUTE, 1)
        await one.outbox.post([message(2, "first")], T0)
        assert len((await one.outbox.claim(LANE, A, T0, 1)).streams) == 1
        await one.outbox.post([message(CHANNEL, "first")], T0)
        one.kill()
        await db.execute("DELETE FROM instances WHERE name = 'engine:' || $1", A)
        watching = await asyncpg.connect(dsn)
        async with db.transaction():
            await outbox.append(db, [message(CHANNEL, "second")], [T0])
            rescuing = asyncio.create_task(two.engines.rescue(LANE, B, T0 + MINUTE, tell))
            await until(lambda: somebody_waits(watching))
            await outbox.append(db, [message(2, "second")], [T0])
        assert (await rescuing).dead == [A]
        assert await two.engines.rescue(LANE, B, T0 + MINUTE) == Rescue(0, [])
        assert await two.outbox.owned(A) == []
        rows = await watching.fetch("SELECT message_id FROM outbox WHERE sid = $1 ORDER BY id", CHANNEL)
        assert [row[0] for row in rows] == ["first", "second", "cut off"]
        await watching.close()


async def test_who_applies_and_one_who_numbers_do_not_wait_in_a_circle(
    dsn: str, db: asyncpg.Connection[asyncpg.Record]
) -> None:
    """A rescue numbers the crash that it records, and then tells a channel; an edit among others tells the same one."""

    def message(text: str) -> OutboxMessage:
        return OutboxMessage(CHANNEL, LANE, text, "inbox", "{}", T0)

    def edit(stored: StoredSchedule) -> Edit:
        turn = close(stored, T0)
        turn.messages = [message("edited")]
        epoch = Epoch(stored.sid, 2, turn.cursor_at, None, "* * * * *", "UTC", "z1", "{}", enabled=True)
        return Edit(turn.cursor_at, turn, stored.columns, epoch)

    async with opened(dsn) as store:
        await store.schedules.apply(ScheduleChange([schedule("a")], T0, "suite"))
        await store.outbox.post([message("first")], T0)
        watching = await asyncpg.connect(dsn)
        async with db.transaction():
            await lock(db, NUMBERING)
            applying = asyncio.create_task(
                store.schedules.apply(ScheduleChange([schedule("b")], T0, "suite", ["a"], edit))
            )
            await until(lambda: somebody_waits(watching))
            await outbox.append(db, [message("cut off")], [T0])
        assert await applying == [2]
        rows = await watching.fetch("SELECT message_id FROM outbox ORDER BY id")
        assert [row[0] for row in rows] == ["first", "cut off", "edited"]
        await watching.close()


async def test_a_stop_waits_for_its_streams(dsn: str, db: asyncpg.Connection[asyncpg.Record]) -> None:
    async with opened(dsn) as one:
        await one.schedules.apply(ScheduleChange([schedule("a")], T0, "suite"))
        await join(one, A)
        await one.outbox.post([OutboxMessage(1, LANE, "m", "inbox", "{}", T0)], T0)
        await one.outbox.claim(LANE, A, T0, 1)
        watching = await asyncpg.connect(dsn)
        async with db.transaction():
            await db.execute("SELECT 1 FROM outbox_streams FOR UPDATE")
            stopping = asyncio.create_task(one.engines.rescue(LANE, A, T0, stopped=True))
            await until(lambda: somebody_waits(watching))
        assert await stopping == Rescue(0, [])
        assert await one.outbox.owned(A) == []
        await watching.close()
