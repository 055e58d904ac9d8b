"""The examples of consumers do what they say, with messages that Noonbell has delivered."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import redis

from noonbell.actions.message import message_of
from noonbell.actions.targets import PostgresOutbox, RedisStream
from noonbell.actions.targets.postgres_outbox import outbox_table
from tests.actions.conftest import MIDNIGHT, start_at, stored_with
from tests.patience import PATIENCE_SECONDS
from tests.redis_server import RedisServer
from tests.store.postgres_server import PostgresServer

ROOT = Path(__file__).resolve().parents[2]


def bodies(name: str, *texts: str) -> list[str]:
    return [
        message_of(
            stored_with({"kind": "message", "to": "x"}, {"text": text}, schedule_id=name, name=name),
            start_at(MIDNIGHT + number),
            5,
        ).body
        for number, text in enumerate(texts)
    ]


async def told_by(example: str, *arguments: str) -> list[str]:
    def run() -> list[str]:
        program = [sys.executable, str(ROOT / "examples" / example), *arguments]
        return subprocess.run(
            program, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
        ).stdout.splitlines()

    return await asyncio.get_running_loop().run_in_executor(None, run)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    made = RedisServer()
    yield made
    made.stop()


async def test_a_consumer_group_reads_claims_what_a_dead_one_left_and_knows_repeats(server: RedisServer) -> None:
    target = RedisStream(server.url, "events", group="workers", remember_seconds=0)
    await target.deliver_many(bodies("bell", "ding", "dong"))
    client: Any = redis.asyncio.Redis.from_url(server.url, decode_responses=True)
    await client.xreadgroup("workers", "dead", {"events": ">"}, count=1)  # and dies with it
    options = ("--name", "living", "--block-ms", "50", "--until-empty")
    told = await told_by("stream_consumer.py", server.url, "events", *options, "--stale-ms", "600000")
    assert told == ["living: bell says dong"]
    told = await told_by("stream_consumer.py", server.url, "events", *options, "--stale-ms", "0")
    assert told == ["living: bell says ding"]
    await target.deliver_many(bodies("bell", "ding"))  # as after a fail-over
    await target.close()
    told = await told_by("stream_consumer.py", server.url, "events", *options)
    assert told == [f"living: bell:scheduled:{MIDNIGHT} was done before"]
    assert (await client.xpending("events", "workers"))["pending"] == 0
    await client.aclose()


async def test_a_consumer_of_the_table_keeps_order_and_passes_over_what_is_locked(postgres: PostgresServer) -> None:
    dsn = await postgres.new_schema()
    db = await asyncpg.connect(dsn)
    await db.execute(outbox_table())
    target = PostgresOutbox(dsn)
    await target.deliver_many([*bodies("bell", "ding", "dong"), *bodies("gong", "boom")])
    async with db.transaction():
        await db.execute("SELECT 1 FROM noonbell_messages WHERE number = 1 FOR UPDATE")
        # another has the first of the bell: its second has to wait for that
        assert await told_by("outbox_consumer.py", dsn, "--until-empty") == ["gong says boom"]
    assert await told_by("outbox_consumer.py", dsn, "--until-empty") == ["bell says ding", "bell says dong"]
    await target.deliver_many(bodies("bell", "ding", "dong"))
    await target.close()
    assert await told_by("outbox_consumer.py", dsn, "--until-empty") == []
    assert await db.fetchval("SELECT count(*) FROM noonbell_messages WHERE done_at IS NOT NULL") == 3
    await db.close()
