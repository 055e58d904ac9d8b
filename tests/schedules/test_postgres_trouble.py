"""An engine of durable schedules on a PostgreSQL that restarts, cuts its connections, and loses processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from datetime import timedelta
from typing import Any

import asyncpg

from noonbell.errors import StoreUnavailableError
from noonbell.ledger import verify_store
from noonbell.ledger.ledger_rows import lifecycle_of
from noonbell.schedules import Call, Schedules
from noonbell.store.postgres import PostgresStore
from tests.patience import PATIENCE_SECONDS, until
from tests.store.postgres_server import PostgresServer
from tests.store.test_postgres_trouble import ShiftedClock

TTL = 5.0  # longer than this process ever stands still
MANY = 8
WORK = {"kind": "callback", "name": "work"}
SEND = {"kind": "message", "to": "inbox"}


async def lease_ends(postgres: PostgresServer, dsn: str, pid: int) -> None:
    """End the leases of a process now, instead of waiting for that; it may renew them if it can."""
    sql = f"UPDATE instances SET expires_at = clock_timestamp() WHERE holder LIKE 'process {pid} on %'"  # noqa: S608 - a number
    await postgres.execute(dsn.rpartition("/")[2], sql)


class Service:
    """Schedules of every minute, by callback and by message, and what came of them."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.clock = ShiftedClock()
        self.store = PostgresStore(dsn, lease_ttl=TTL)
        self.called: Counter[str] = Counter()
        self.received: list[str] = []
        self.schedules = Schedules(
            self.store,
            clock=self.clock,
            callbacks={"work": self.work},
            targets={"inbox": self.receive},
            longest_wait=timedelta(milliseconds=200),
        )

    async def work(self, call: Call) -> None:
        self.called[call.run_id] += 1

    async def receive(self, event: dict[str, Any]) -> None:
        self.received.append(event["id"])

    async def create(self) -> None:
        # a clock that leaps leaves a gap between polls, and the minute may lie in it
        every_minute: Any = {"type": "cron", "spec": "* * * * *", "catch_up_policy": "run_once"}
        for n in range(MANY):
            await self.schedules.create(schedule_id=f"work-{n}", action=WORK, **every_minute)
            await self.schedules.create(schedule_id=f"send-{n}", action=SEND, payload={"text": "hello"}, **every_minute)

    async def minute(self) -> None:
        """A minute comes; return when each schedule has run for it."""
        before = await self.fires()
        self.clock.shift_seconds += 60

        async def all_ran() -> bool:
            try:
                found = await self.fires()
            except StoreUnavailableError:
                return False
            return all(found[key] > before[key] for key in found)

        await until(all_ran)

    async def fires(self) -> dict[int, int]:
        rows = await self.store.read("runs", None, 100_000)
        count = Counter(row[0] for row in rows)
        return {sid: count[sid] for sid in range(1, 2 * MANY + 1)}


async def test_an_engine_lives_through_restarts_and_cut_connections(postgres: PostgresServer) -> None:
    service = Service(await postgres.new_database())
    await service.schedules.open()
    await service.create()
    await service.schedules.start()
    await service.minute()

    killer = await asyncpg.connect(postgres.dsn("postgres"))
    calm = asyncio.Event()

    async def cut() -> None:
        while not calm.is_set():
            await killer.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND application_name = 'noonbell'"
            )
            await asyncio.sleep(0.03)

    cutting = asyncio.create_task(cut())
    service.clock.shift_seconds += 60
    await asyncio.sleep(1.0)
    calm.set()
    await cutting
    await killer.close()
    await service.minute()

    await lease_ends(postgres, service.dsn, os.getpid())  # the server is away for longer than that
    await postgres.in_thread("halt")
    service.clock.shift_seconds += 30
    await postgres.in_thread("start")
    await service.minute()
    await service.minute()

    sent = {f"send-{n}" for n in range(MANY)}

    async def delivered() -> bool:
        runs = await service.store.read("runs", None, 100_000)
        wanted = {(row[0], row[1]) for row in runs if row[0] % 2 == 0}
        return len(set(service.received)) >= len(wanted)

    async def idle() -> bool:
        return not await service.store.read("live", None, 10)

    await until(delivered)
    await until(idle)  # a stop hands back what has not started yet
    await service.schedules.stop()
    report = await verify_store(service.store)
    assert (report.problems, report.schedules) == ([], 2 * MANY)
    assert (await service.store.read("live", None, 10)) == []
    runs = await service.store.read("runs", None, 100_000)
    assert {row[3] for row in runs} == {"succeeded"}
    ran = {f"work-{(row[0] - 1) // 2}:scheduled:{row[1]}" for row in runs if row[0] % 2 == 1}
    assert set(service.called) == ran, "what ran is on record, and what is on record ran"
    for one in sent:
        ids = [key for key in service.received if key.startswith(f"{one}:")]
        assert sorted(set(ids)) == list(dict.fromkeys(ids)), "in order, though one may come twice"
    await service.store.close()


_VICTIM = """
import asyncio, sys
from noonbell.schedules import Schedules
from noonbell.store.postgres import PostgresStore

async def hang(call):
    print(call.run_id, flush=True)
    await asyncio.sleep(3600)

async def main():
    schedules = Schedules(PostgresStore(sys.argv[1], lease_ttl=20.0), callbacks={"work": hang})
    await schedules.open()
    await schedules.create(schedule_id="a", type="interval", spec=1, action={"kind": "callback", "name": "work"})
    await schedules.start()
    await asyncio.sleep(3600)

asyncio.run(main())
"""


async def test_what_a_killed_process_left_running_is_run_again_under_the_same_id(postgres: PostgresServer) -> None:
    dsn = await postgres.new_database()
    service = Service(dsn)
    victim = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _VICTIM, dsn, stdout=asyncio.subprocess.PIPE, env=os.environ
    )
    assert victim.stdout is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        run_id = (await victim.stdout.readline()).decode().strip()
        assert run_id.startswith("a:scheduled:")
        victim.send_signal(signal.SIGSTOP)  # alive as far as its lease goes, and no further
        await service.schedules.start()
        assert len((await service.store.engines.members(0)).alive) == 2, "its lease holds for a while"
        assert service.called[run_id] == 0
        await lease_ends(postgres, dsn, victim.pid)

        async def ran_again() -> bool:
            return service.called[run_id] > 0

        await until(ran_again)
        victim.send_signal(signal.SIGKILL)
        await victim.wait()
        # nothing new: an interval of a second goes on by itself, so it is paused before the ledger is looked at
        await service.schedules.pause("a")
        await service.schedules.stop()
    assert service.called[run_id] == 1
    report = await verify_store(service.store)
    assert report.problems == []
    kinds = [event.event for event in await lifecycle_of(service.store, "lane:default")]
    assert kinds.count("crash") == 1
    await service.store.close()
