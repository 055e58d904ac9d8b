"""Hints between engines over PostgreSQL: they spare waiting, and losing them does no harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import pytest

from noonbell.schedules import Call, Schedules
from noonbell.store.postgres import PostgresStore, hints
from tests.patience import PATIENCE_SECONDS, until
from tests.store.postgres_server import PostgresServer
from tests.store.transaction_pooler import TransactionPooler

ACTION = {"kind": "callback", "name": "work"}
HOUR = timedelta(hours=1)


class Waiting:
    """An engine that looks once an hour, or when it is told that there is something."""

    def __init__(self, dsn: str, longest_wait: timedelta = HOUR) -> None:
        self.called = asyncio.Event()
        self.store = PostgresStore(dsn, lease_ttl=30.0)
        self.schedules = Schedules(self.store, callbacks={"work": self.work}, longest_wait=longest_wait)

    async def work(self, _: Call) -> None:
        self.called.set()

    async def comes(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.called.wait()
        self.called.clear()


@asynccontextmanager
async def waiting(dsn: str, longest_wait: timedelta = HOUR) -> AsyncIterator[Waiting]:
    made = Waiting(dsn, longest_wait)
    await made.schedules.open()
    await made.schedules.start()
    try:
        yield made
    finally:
        await made.schedules.stop()
        await made.store.close()


@asynccontextmanager
async def elsewhere(dsn: str) -> AsyncIterator[Schedules]:
    """A face of another process, without an engine."""
    store = PostgresStore(dsn)
    face = Schedules(store)
    await face.open()
    try:
        yield face
    finally:
        await store.close()


async def test_what_somebody_creates_edits_or_asks_for_is_looked_at_in_time(postgres: PostgresServer) -> None:
    dsn = await postgres.new_ledger()
    async with waiting(dsn) as engine, elsewhere(dsn) as face:
        assert engine.store._held.keeper is not None
        assert engine.store._held.keeper.listens
        every_second = {"type": "interval", "spec": "1", "action": ACTION, "overlap": "skip"}
        made = await face.create(**every_second)  # type: ignore[arg-type]  # the fields are spread
        await engine.comes()
        await face.pause(made.schedule_id)
        rare = await face.create(type="cron", spec="0 0 1 1 *", action=ACTION)
        engine.called.clear()
        await face.trigger(rare.schedule_id)
        await engine.comes()
        await face.resume(made.schedule_id)
        await engine.comes()


async def test_a_listener_that_lost_its_connection_listens_again(postgres: PostgresServer) -> None:
    dsn = await postgres.new_ledger()
    async with waiting(dsn) as engine, elsewhere(dsn) as face:
        keeper = engine.store._held.keeper
        assert keeper is not None
        rare = await face.create(type="cron", spec="0 0 1 1 *", action=ACTION)
        asyncio.run_coroutine_threadsafe(_cut(engine.store), keeper._loop)
        await until(lambda: _is(not keeper.listens))
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(keeper._renew(), keeper._loop))
        assert keeper.listens
        await face.trigger(rare.schedule_id)
        await engine.comes()


async def _cut(store: PostgresStore) -> None:
    assert store._held.keeper is not None
    store._held.keeper._drop()


async def _is(what: object) -> bool:
    return bool(what)


async def test_a_hint_that_is_lost_costs_no_more_than_the_longest_wait(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nowhere(_: object) -> None:
        return None

    monkeypatch.setattr(hints, "channel_for", nowhere)
    dsn = await postgres.new_ledger()
    async with waiting(dsn, timedelta(milliseconds=300)) as engine, elsewhere(dsn) as face:
        assert engine.store._held.keeper is not None
        assert not engine.store._held.keeper.listens
        rare = await face.create(type="cron", spec="0 0 1 1 *", action=ACTION)
        await face.trigger(rare.schedule_id)
        await engine.comes()


async def test_hints_stay_in_their_schema_and_their_lane_and_nonsense_is_passed_over(postgres: PostgresServer) -> None:
    dsn, other = await postgres.new_ledger(), await postgres.new_ledger()
    async with waiting(dsn) as engine, elsewhere(other) as stranger, elsewhere(dsn) as face:
        heard: list[int] = []
        end = engine.store.subscribe("mine", heard.append)
        theirs = PostgresStore(other)
        await theirs.open()
        await stranger.create(type="cron", spec="0 0 1 1 *", action=ACTION)
        async with theirs._connections.writing() as db:
            await hints.give(db, {"mine": 1})
        async with engine.store._connections.writing() as db:
            for nonsense in ("", "mine", "x mine", "7 ", "7 not mine"):
                await db.execute("SELECT pg_notify('noonbell:' || current_schema(), $1)", nonsense)
            await hints.give(db, {"mine": 2})
        await until(lambda: _is(heard))
        assert heard == [2]
        end()
        end()
        async with engine.store._connections.writing() as db:
            await hints.give(db, {"mine": 3})
        rare = await face.create(type="cron", spec="0 0 1 1 *", action=ACTION)
        await face.trigger(rare.schedule_id)
        await engine.comes()  # by a hint that came after the other one
        assert heard == [2]
        await theirs.close()


@pytest.mark.parametrize("length", [54, 55, 63])
async def test_a_schema_may_have_a_name_of_any_length(postgres: PostgresServer, length: int) -> None:
    name = f"long_{length}_".ljust(length, "x")
    await postgres.execute("postgres", f"CREATE SCHEMA {name}")
    store = PostgresStore(f"{postgres.dsn('postgres')}?search_path={name}")
    heard: list[int] = []
    store.subscribe("mine", heard.append)
    await store.open()
    hold = await store.hold("engine:one", "me")
    async with store._connections.writing() as db:
        await hints.give(db, {"mine": 7})
        channel = await db.fetchval(f"SELECT {hints._CHANNEL}")
    await until(lambda: _is(heard))
    assert heard == [7]
    if length == 54:
        assert channel == f"noonbell:{name}", "as those of other versions know it"
    hold.release()
    await store.close()


async def test_behind_a_transaction_pooler_nobody_listens_and_all_goes_on(postgres: PostgresServer) -> None:
    dsn = await postgres.new_database()
    async with TransactionPooler(postgres.port, size=3) as pooler:
        pooled = postgres.dsn(dsn.rpartition("/")[2], pooler.port)
        busy = await asyncpg.connect(pooled, statement_cache_size=0)
        async with busy.transaction():  # the connection that the greeting came from is another's now
            await busy.execute("SELECT 1")
            async with waiting(pooled, timedelta(milliseconds=300)) as engine, elsewhere(pooled) as face:
                rare = await face.create(type="cron", spec="0 0 1 1 *", action=ACTION)
                await face.trigger(rare.schedule_id)
                await engine.comes()
                assert engine.store._held.keeper is not None
                assert not engine.store._held.keeper.listens
        await busy.close()
