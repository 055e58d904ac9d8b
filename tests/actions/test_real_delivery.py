"""Delivery as it is in earnest: stores with threads and servers, the system's clock, engines that die."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from noonbell import Schedules
from noonbell.actions.delivery import Deliverer, Delivering
from noonbell.actions.targets import RedisStream, as_target
from noonbell.engine import SystemClock
from noonbell.ports import ScheduleStore
from noonbell.store.postgres import PostgresStore
from noonbell.store.sqlite import SqliteStore
from noonbell.testing.storage_cases.base import T0
from noonbell.testing.storage_cases.messages import LANE, schedule, send
from tests.redis_server import RedisServer
from tests.store.postgres_server import PostgresServer

LETTERS = "abcdefghijklmnopqrst"


@pytest.fixture(params=["sqlite", "postgres"])
async def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ScheduleStore]:
    """Handles on the same data."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "s.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    dsn = await server.new_ledger()
    return lambda: PostgresStore(dsn, pool_size=3)


async def test_engines_that_die_lose_and_reorder_nothing(new_store: Callable[[], ScheduleStore]) -> None:
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
    await store.create_schedules([schedule(name) for name in names], T0, "test")
    for name in names:
        await send(store, T0, **{name: LETTERS[:10]})
    for life in range(40):
        received.clear()
        await store.take_over(LANE, T0)
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


async def test_from_a_schedule_to_a_redis_stream(
    new_store: Callable[[], ScheduleStore], redis_server: RedisServer
) -> None:
    key = f"stream-{id(new_store)}"
    store = new_store()
    client: Any = redis.asyncio.Redis.from_url(redis_server.url, decode_responses=True)
    async with Schedules(store, targets={"bus": RedisStream(redis_server.url, key)}) as schedules:
        made = await schedules.create(
            type="cron", spec="0 0 1 1 *", payload={"text": "hello"}, action={"kind": "message", "to": "bus"}
        )
        await schedules.start()
        run_id = await schedules.trigger(made.schedule_id)
        ((_, entries),) = await client.xread({key: "0"}, block=20_000)
    await client.aclose()
    await store.close()
    assert [fields["id"] for _, fields in entries] == [run_id]
