"""Delivery as it is in earnest: stores with threads and servers, the system's clock, engines that die."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
import redis.asyncio

from noonbell import Schedules
from noonbell.actions.delivery import Deliverer
from noonbell.actions.sender import Delivering
from noonbell.actions.targets import BatchTarget, CeleryTasks, PostgresOutbox, RedisStream, Target, as_target
from noonbell.actions.targets.postgres_outbox import outbox_table
from noonbell.engine import SystemClock
from noonbell.ports import Ledger, ScheduleChange
from noonbell.store.postgres import PostgresStore
from noonbell.store.sqlite import SqliteStore
from noonbell.testing.storage_cases.base import T0
from noonbell.testing.storage_cases.messages import LANE, schedule, send
from tests.patience import PATIENCE_MS, PATIENCE_SECONDS
from tests.redis_server import RedisServer
from tests.store.postgres_server import PostgresServer

LETTERS = "abcdefghijklmnopqrst"


@pytest.fixture(params=["sqlite", "postgres"])
async def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Ledger]:
    """Handles on the same data."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "s.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    dsn = await server.new_ledger()
    return lambda: PostgresStore(dsn, pool_size=3)


async def test_engines_that_die_lose_and_reorder_nothing(new_store: Callable[[], Ledger]) -> None:
    """Five streams of twenty messages, a receiver that often refuses, and a death after every twenty receipts."""
    choose, got = random.Random(4), dict[str, list[str]]()
    count, received = 0, asyncio.Event()

    async def receive(event: dict[str, Any]) -> None:
        nonlocal count
        await asyncio.sleep(0)
        if choose.random() < 0.2:
            raise ConnectionError("not now")
        got.setdefault(event["to"], []).append(event["is"])
        count += 1
        if count % 20 == 0:
            received.set()

    names = [f"s{number}" for number in range(5)]
    store = new_store()
    await store.open()
    await store.schedules.apply(ScheduleChange([schedule(name) for name in names], T0, "test"))
    for name in names:
        await send(store, T0, **{name: LETTERS[:10]})
    until = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    for life in itertools.count():
        assert asyncio.get_running_loop().time() < until, got
        received.clear()
        await store.engines.rescue(LANE, "rescuer", T0)
        deliverer = Deliverer(
            store,
            SystemClock(),
            lane=LANE,
            owner=f"life-{life}",
            targets={"inbox": as_target("inbox", receive)},
            how=Delivering(first_pause_us=1_000, longest_pause_us=10_000, max_attempts=1_000),
        )
        task = asyncio.ensure_future(deliverer.run(asyncio.Event()))
        if life == 0:
            for name in names:
                await send(store, T0, **{name: LETTERS[10:]})
            deliverer.wake()
        waits = [asyncio.ensure_future(received.wait()), task]
        await asyncio.wait(waits, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
        assert not task.done()
        store.kill()
        for one in waits:
            one.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        store = new_store()
        await store.open()
        if all(len(set(got.get(name, ()))) == 20 for name in names):
            break
    for name in names:
        assert "".join(sorted(set(got[name]), key=got[name].index)) == LETTERS
    await store.close()


class Outlived:
    """A target that is the last to see its engine alive: the store is gone as soon as a batch has arrived."""

    most_together = 1_000

    def __init__(self, inner: BatchTarget, store: Ledger) -> None:
        self.inner, self.store, self.arrived = inner, store, asyncio.Event()

    async def deliver(self, body: str) -> None:
        await self.deliver_many([body])

    async def deliver_many(self, bodies: Sequence[str]) -> None:
        await self.inner.deliver_many(bodies)
        self.store.kill()
        self.arrived.set()

    async def close(self) -> None:
        await self.inner.close()


@pytest.mark.parametrize("kind", ["redis", "postgres"])
async def test_what_arrived_before_the_engine_died_does_not_come_twice(
    kind: str, tmp_path: Path, redis_server: RedisServer, postgres: PostgresServer
) -> None:
    """Each life ends after a batch has arrived and before that is written down; the next sends it again."""
    key, dsn = f"deaths-{kind}", await postgres.new_schema()
    db = await asyncpg.connect(dsn)
    await db.execute(outbox_table())
    store: Ledger = SqliteStore(tmp_path / "s.db")
    await store.open()
    names = [f"s{number}" for number in range(5)]
    await store.schedules.apply(ScheduleChange([schedule(name) for name in names], T0, "test"))
    for name in names:
        await send(store, T0, **{name: "xyz"})
    for life in range(3):
        await store.engines.rescue(LANE, "rescuer", T0)
        inner = RedisStream(redis_server.url, key) if kind == "redis" else PostgresOutbox(dsn)
        target: BatchTarget = Outlived(inner, store) if life < 2 else inner
        enveloped = Enveloped(target, 15)
        deliverer = Deliverer(store, SystemClock(), lane=LANE, owner=f"life-{life}", targets={"inbox": enveloped})
        stop = asyncio.Event()
        task = asyncio.ensure_future(deliverer.run(stop))
        if isinstance(target, Outlived):
            await asyncio.wait_for(target.arrived.wait(), PATIENCE_SECONDS)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            store = SqliteStore(tmp_path / "s.db")
            await store.open()
        else:
            await asyncio.wait_for(enveloped.all_there.wait(), PATIENCE_SECONDS)
            stop.set()
            await task
    await store.close()
    if kind == "redis":
        client: Any = redis.asyncio.Redis.from_url(redis_server.url, decode_responses=True)
        got = [fields["id"] for _, fields in await client.xrange(key)]
        await client.aclose()
    else:
        got = [row[0] for row in await db.fetch("SELECT message_id FROM noonbell_messages ORDER BY number")]
    await db.close()
    assert sorted(got) == sorted(f"{name}:scheduled:{letter}" for name in names for letter in "xyz")
    for name in names:
        assert [one[-1] for one in got if one.startswith(f"{name}:")] == ["x", "y", "z"]


class Enveloped:
    """Makes CloudEvents of the short messages of these tests."""

    most_together = 1_000

    def __init__(self, inner: BatchTarget, expected: int) -> None:
        self.inner, self.expected, self.all_there = inner, expected, asyncio.Event()

    async def deliver(self, body: str) -> None:
        await self.deliver_many([body])

    async def deliver_many(self, bodies: Sequence[str]) -> None:
        events = (msgspec.json.decode(body) for body in bodies)
        whole = [{"id": f"{event['to']}:scheduled:{event['is']}", "type": "t", "data": event} for event in events]
        await self.inner.deliver_many([msgspec.json.encode(one).decode() for one in whole])
        self.expected -= len(whole)
        if self.expected <= 0:
            self.all_there.set()

    async def close(self) -> None:
        await self.inner.close()


async def test_from_a_schedule_to_a_redis_stream(new_store: Callable[[], Ledger], redis_server: RedisServer) -> None:
    key = f"stream-{id(new_store)}"
    store = new_store()
    client: Any = redis.asyncio.Redis.from_url(redis_server.url, decode_responses=True)
    async with Schedules(store, targets={"bus": RedisStream(redis_server.url, key)}) as schedules:
        made = await schedules.create(
            type="cron", spec="0 0 1 1 *", payload={"text": "hello"}, action={"kind": "message", "to": "bus"}
        )
        await schedules.start()
        run_id = await schedules.trigger(made.schedule_id)
        ((_, entries),) = await client.xread({key: "0"}, block=round(PATIENCE_MS))
    await client.aclose()
    await store.close()
    assert [fields["id"] for _, fields in entries] == [run_id]


async def test_from_schedules_to_a_table_and_to_celery(redis_server: RedisServer, postgres: PostgresServer) -> None:
    dsn = await postgres.new_schema()
    db = await asyncpg.connect(dsn)
    await db.execute(outbox_table())
    told = asyncio.Event()
    await db.add_listener("noonbell_messages", lambda *_: told.set())
    client: Any = redis.asyncio.Redis.from_url(redis_server.url, decode_responses=True)
    broker = redis_server.url.replace("unix://", "redis+socket://")
    targets: dict[str, Target] = {
        "table": PostgresOutbox(dsn),
        "jobs": CeleryTasks(broker, "a.task", queue="from-schedules"),
    }
    async with Schedules("memory://", targets=targets) as schedules:
        await schedules.start()
        runs = {}
        for name in targets:
            made = await schedules.create(
                type="cron", spec="0 0 1 1 *", payload={"text": "hello"}, action={"kind": "message", "to": name}
            )
            runs[name] = await schedules.trigger(made.schedule_id)
        await asyncio.wait_for(told.wait(), PATIENCE_SECONDS)
        _, task = await client.brpop("from-schedules", timeout=PATIENCE_SECONDS)
    assert [row[0] for row in await db.fetch("SELECT message_id FROM noonbell_messages")] == [runs["table"]]
    assert msgspec.json.decode(task)["headers"]["id"] == runs["jobs"]
    await client.aclose()
    await db.close()
