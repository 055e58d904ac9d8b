"""Messages from the outbox to a Python handler, Redis, PostgreSQL and Celery, beside a bare client that does the same.

    .venv/bin/python -m benchmarks.bench_delivery [--messages N] [--schedules N] [--rounds N]

- Real servers on this machine, in processes of their own: Valkey, which is also Celery's broker, and PostgreSQL.
- Each round delivers the same messages twice, first by the bare client, then by Noonbell. The bare client has them all
  in memory and sends them in batches of a thousand (Celery: 500): XADD in a pipeline; one INSERT of arrays; send_task
  in the pipeline of one producer. The handler is an `async def` that gets one message at a time; a bare loop decodes
  each and awaits it. Nothing remembers what was sent.
- Noonbell has them in the outbox of a SQLite database on disk, as a burst of schedules leaves them. Its rate counts
  from the first claim until the outbox is empty, all synced: claimed by stream, sent in order, ids compared, dropped.
  "memory" is the handler again, with the outbox of the store in memory.
- Celery is sent a fifth of the messages.
- After each round the receiving side is counted: as many as were sent, each once.

Ends with one line of JSON: medians of messages per second, and Noonbell's share of the bare rate. The exit status is 1
where a bar is missed: 20,000 messages a second to the handler, from the outbox on disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import redis
import redis.asyncio

from benchmarks.engine_parts.judging import Judged, print_load
from noonbell.actions.delivery import Deliverer
from noonbell.actions.message import message_of
from noonbell.actions.targets import CeleryTasks, Function, PostgresOutbox, RedisStream, Target
from noonbell.actions.targets.postgres_outbox import outbox_table
from noonbell.core.records import DurableSchedule, OutboxMessage, ScheduleColumns, Start, StoredSchedule
from noonbell.engine import SystemClock
from noonbell.ports import Ledger, ScheduleChange
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from tests.redis_server import RedisServer
from tests.store.postgres_server import PostgresServer

HANDLER_BAR = 20_000.0
LANE = "post"
TOGETHER = 1_000
T0 = 1_767_225_600_000_000
MINUTE = 60_000_000

Bare = Callable[[list[OutboxMessage]], Awaitable[None]]


# --- what is sent -----------------------------------------------------------------------------------------------------


def schedules(count: int) -> list[DurableSchedule]:
    definition = json.dumps({"action": {"kind": "message", "to": "there"}})
    payload = '{"text": "{{name}} rings"}'
    return [
        DurableSchedule(
            f"bell{number}",
            ScheduleColumns(f"bell {number}", "cron", "* * * * *", "UTC", None, "skip", payload, definition),
            enabled=True, managed_by="bench", lane=LANE, cursor_at=T0, next_run_at=None, anchor_at=None, zone_hash="z",
            policies="{}",
        )
        for number in range(count)
    ]  # fmt: skip


def messages(made: list[DurableSchedule], count: int) -> list[OutboxMessage]:
    """As many as asked for, a minute of all schedules after the other."""
    found = []
    for place in range(count):
        number, minute = place % len(made), place // len(made)
        stored = StoredSchedule(
            sid=number + 1, schedule_id=made[number].schedule_id, columns=made[number].columns, enabled=True,
            managed_by="bench", lane=LANE, created_at=0, updated_at=0, next_run_at=None, last_run_at=None,
            last_attempt_at=None, last_success_at=None, last_failure_at=None, epoch=1, cursor_at=0, anchor_at=None,
            backlog_left=None, backlog_until=None, last_run_for=None, quiet=None, ran=None, lives=[],
        )  # fmt: skip
        at = T0 + minute * MINUTE
        found.append(message_of(stored, Start(number + 1, "scheduled", at, 1, 1, "cron", 1, at, at, None), at))
    return found


def parts(given: list[OutboxMessage], most: int = TOGETHER) -> list[list[OutboxMessage]]:
    return [given[place : place + most] for place in range(0, len(given), most)]


# --- the handler ------------------------------------------------------------------------------------------------------


class Inbox:
    """A Python handler that keeps the ids of what it gets."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    async def receive(self, event: dict[str, Any]) -> None:
        self.ids.append(event["id"])

    async def counted(self) -> tuple[int, int]:
        ids, self.ids = self.ids, []
        return len(ids), len(set(ids))


# --- bare clients -----------------------------------------------------------------------------------------------------


def bare_loop(inbox: Inbox) -> Bare:
    async def send(given: list[OutboxMessage]) -> None:
        for message in given:
            await inbox.receive(json.loads(message.body))

    return send


def bare_redis(url: str) -> Bare:
    async def send(given: list[OutboxMessage]) -> None:
        client: Any = redis.asyncio.Redis.from_url(url)
        for part in parts(given):
            pipe = client.pipeline(transaction=False)
            for message in part:
                event = json.loads(message.body)
                event["data"] = json.dumps(event["data"])
                pipe.xadd("there", event)
            await pipe.execute()
        await client.aclose()

    return send


def bare_postgres(dsn: str) -> Bare:
    sql = (
        "INSERT INTO noonbell_messages (message_id, schedule_id, type, scheduled_for, event) "
        "SELECT m, s, 't', now(), e::jsonb FROM unnest($1::text[], $2::text[], $3::text[]) AS b (m, s, e)"
    )

    async def send(given: list[OutboxMessage]) -> None:
        db = await asyncpg.connect(dsn)
        for part in parts(given):
            ids = [message.message_id for message in part]
            await db.execute(sql, ids, [one.partition(":")[0] for one in ids], [message.body for message in part])
        await db.close()

    return send


def bare_celery(url: str) -> Bare:
    from celery import Celery

    app = Celery("bare", broker=url, set_as_current=False)

    async def send(given: list[OutboxMessage]) -> None:
        with app.connection_for_write() as connection:
            producer = app.amqp.Producer(connection, auto_declare=False)
            for part in parts(given, 500):
                with producer.batch(500):
                    for message in part:
                        event = json.loads(message.body)
                        app.send_task("a.task", args=(event,), task_id=event["id"], producer=producer,
                                      ignore_result=True, queue="there")  # fmt: skip

    return send


# --- Noonbell ---------------------------------------------------------------------------------------------------------


async def noonbell(store: Ledger, target: Target, given: list[OutboxMessage]) -> float:
    for part in parts(given, 20_000):
        await store.outbox.post(part, T0)
    deliverer = Deliverer(store, SystemClock(), lane=LANE, owner="bench", targets={"there": target})
    stop = asyncio.Event()
    began = time.perf_counter()
    task = asyncio.ensure_future(deliverer.run(stop))
    while deliverer.delivered < len(given) or deliverer._in_flight:  # noqa: SLF001 - until the last is off the outbox
        await asyncio.sleep(0.002)
        assert not task.done()
    took = time.perf_counter() - began
    stop.set()
    await task
    return took


async def timed(bare: Bare, given: list[OutboxMessage]) -> float:
    began = time.perf_counter()
    await bare(given)
    return time.perf_counter() - began


# --- one round --------------------------------------------------------------------------------------------------------


async def measure(options: argparse.Namespace, folder: Path, valkey: RedisServer, postgres: PostgresServer) -> Any:
    broker = valkey.url.replace("unix://", "redis+socket://")
    dsn = await postgres.new_schema()
    db = await asyncpg.connect(dsn)
    await db.execute(outbox_table())
    client: Any = redis.Redis.from_url(valkey.url)
    made = schedules(options.schedules)
    given = messages(made, options.messages)
    store = SqliteStore(folder / "bench.db")
    memory, inbox = MemoryStore(), Inbox()
    for one in (store, memory):
        await one.open()
        await one.schedules.apply(ScheduleChange(made, T0, "bench"))
        await one.engines.rescue(LANE, "rescuer", T0)

    async def in_redis() -> tuple[int, int]:
        ids = [fields[b"id"] for _, fields in client.xrange("there")]
        client.flushall()
        return len(ids), len(set(ids))

    async def in_postgres() -> tuple[int, int]:
        (row,) = await db.fetch("SELECT count(*), count(DISTINCT message_id) FROM noonbell_messages")
        await db.execute("TRUNCATE noonbell_messages")
        return row[0], row[1]

    async def in_celery() -> tuple[int, int]:
        ids = [json.loads(one)["headers"]["id"] for one in client.lrange("there", 0, -1)]
        client.flushall()
        return len(ids), len(set(ids))

    handler = (bare_loop(inbox), lambda: Function(inbox.receive), inbox.counted)
    parties: dict[str, tuple[Bare, Callable[[], Target], Callable[[], Awaitable[tuple[int, int]]]]] = {
        "handler": handler,
        "memory": handler,
        "redis": (bare_redis(valkey.url), lambda: RedisStream(valkey.url, "there"), in_redis),
        "postgres": (bare_postgres(dsn), lambda: PostgresOutbox(dsn), in_postgres),
        "celery": (bare_celery(broker), lambda: CeleryTasks(broker, "a.task", queue="there"), in_celery),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in parties}
    for _ in range(options.rounds):
        for name, (bare, target, counted) in parties.items():
            sent = given[: len(given) // 5] if name == "celery" else given  # its client is slow, bare or not
            theirs = await timed(bare, sent)
            assert await counted() == (len(sent), len(sent)), name
            ours = await noonbell(memory if name == "memory" else store, target(), sent)
            assert await counted() == (len(sent), len(sent)), name
            found[name].append((len(sent) / ours, len(sent) / theirs))
    await store.close()
    await memory.close()
    await db.close()
    client.close()
    return {
        name: {
            "noonbell_per_second": round(median(ours for ours, _ in rates)),
            "bare_per_second": round(median(theirs for _, theirs in rates)),
            "share": round(median(ours / theirs for ours, theirs in rates), 2),
        }
        for name, rates in found.items()
    }


def main() -> int:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--messages", type=int, default=10_000)
    ask.add_argument("--schedules", type=int, default=5_000)
    ask.add_argument("--rounds", type=int, default=3)
    options = ask.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers below are not left behind
    print_load("start")
    valkey, postgres = RedisServer(), None
    try:
        postgres = PostgresServer()
        with tempfile.TemporaryDirectory(prefix="noonbell-bench-") as folder:
            told = asyncio.run(measure(options, Path(folder), valkey, postgres))
    finally:
        valkey.stop()
        if postgres is not None:
            postgres.stop()
    print(f"{options.messages:,} messages of {options.schedules:,} schedules, per second")
    for name, row in told.items():
        share = f"{row['share']:.2f} of bare"
        print(f"{name:10}{row['noonbell_per_second']:>10,}  beside {row['bare_per_second']:>10,} bare  {share}")
    judged = Judged()
    judged.at_least("messages a second to a Python handler", told["handler"]["noonbell_per_second"], HANDLER_BAR)
    judged.show()
    print_load("end")
    conditions = {"messages": options.messages, "schedules": options.schedules, "rounds": options.rounds}
    print(json.dumps({"bench": "delivery", **conditions, **told, "bars": judged.rows}))
    return judged.status


if __name__ == "__main__":
    sys.exit(main())
