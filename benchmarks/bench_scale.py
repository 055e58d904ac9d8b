"""How many bytes a schedule, a fire and a member of the timeline take: the figures that docs/scale.md reckons with.

    python -m benchmarks.bench_scale [--schedules N] [--minutes N] [--members N] [--databases LIST]

- N cron schedules of every minute are created, with names and ids as people choose them, and run for so many minutes on
  a clock that jumps. On PostgreSQL bytes are what `pg_total_relation_size` says of the tables, indexes included, and of
  the write-ahead log; on SQLite pages of the file in use, after the log is written back to it.
- *Of a schedule*: what its creation adds: its row, its epoch and its audit event. *Of a fire*: what the runs add to
  their table. *Churn*: what else grew meanwhile, which is room that the next changes use again. *Log*: what is written
  to the log for a fire, from its claim to its end; the first change of a page after a checkpoint adds the whole page.
- *Network* of a fire: what passes between an engine and PostgreSQL in both directions, through a relay that counts it.
  *CPU* of a fire: of the thread of the engine, and of all processes of the server together. Signs of life and looks in
  vain are in it.
- A member of the timeline: `MEMORY USAGE` of a sorted set of so many sids, scored by microseconds, on Valkey; beside it
  what the whole server grew by. *Turned*: how many members a second one client pops and acknowledges, batch by batch,
  as an engine does.

Ends with one line of JSON. There is no bar: these are facts to reckon with.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import apsw
import asyncpg
import redis

from benchmarks.cluster_parts.relay import Relay
from benchmarks.engine_parts.shifted_clock import ShiftedClock
from benchmarks.schedule_parts.counting import CountedPostgres, CountedSqlite
from benchmarks.schedule_parts.disk_server import start_server
from noonbell.engine.jobs import BATCH
from noonbell.schedules import Call, Fields, Schedules
from noonbell.timeline import RedisTimeline
from tests.redis_server import RedisServer

DATABASES: Final = ("sqlite", "postgres")
MINUTE: Final = 60_000_000
BEGIN: Final = 1_768_478_400_000_000 + 20_000_000
MOST_SECONDS: Final = 600.0
PART: Final = 50_000
# As sids are in a large database.
FIRST_SID: Final = 50_000_000
HORIZON: Final = 600_000_000
TURNED: Final = 200_000

Sizes = dict[str, int]
Result = dict[str, Any]


def fields(count: int) -> list[Fields]:
    return [
        {
            "name": f"report of branch {number}",
            "type": "cron",
            "spec": "* * * * *",
            "action": {"kind": "callback", "name": "work"},
            "payload": {"branch": number},
        }
        for number in range(count)
    ]


async def fill(
    store: CountedSqlite | CountedPostgres, sizes: Callable[[], Awaitable[Sizes]], schedules: int, minutes: int
) -> Result:
    clock = ShiftedClock(BEGIN)

    async def work(call: Call) -> None:
        del call

    ours = Schedules(store, clock=clock, callbacks={"work": work})
    empty = await sizes()
    await ours.create_many(fields(schedules))
    created = await sizes()
    await ours.start()
    cpu = time.thread_time()
    for minute in range(1, minutes + 1):
        store.expect(schedules)
        clock.jump_to(BEGIN - BEGIN % MINUTE + minute * MINUTE)
        async with asyncio.timeout(MOST_SECONDS):
            await store.enough.wait()
    cpu = time.thread_time() - cpu
    fired = await sizes()
    await ours.close()
    fires = schedules * minutes
    more = {
        f"{name}_of_a_fire": round(_grown(created, fired, name)[name] / fires, 1)
        for name in ("network", "server_cpu_us")
        if name in fired
    }
    return {
        "schedules": schedules,
        "fires": fires,
        "of_a_schedule": round(sum(_grown(empty, created).values()) / schedules, 1),
        "of_a_fire": round(_grown(created, fired)["runs"] / fires, 1),
        "churn_of_a_fire": round(_grown(created, fired)["rest"] / fires, 1),
        "log_of_a_fire": round(_grown(created, fired, "log")["log"] / fires, 1),
        "engine_cpu_us_of_a_fire": round(cpu / fires * 1e6, 1),
    } | more


def _grown(before: Sizes, after: Sizes, *names: str) -> Sizes:
    return {name: after[name] - before[name] for name in names or ("runs", "rest")}


async def on_postgres(schedules: int, minutes: int) -> Result:
    server = start_server()
    try:
        dsn = await server.new_database()
        relay = Relay(server.port)
        store = CountedPostgres(server.dsn(dsn.rpartition("/")[2], relay.port))
        await store.open()
        db = await asyncpg.connect(dsn)

        async def sizes() -> Sizes:
            row: Any = await db.fetchrow(
                "SELECT sum(pg_total_relation_size(c.oid)) FILTER (WHERE c.relname LIKE 'runs\\_2%'), "
                "sum(pg_total_relation_size(c.oid)), pg_current_wal_lsn() - '0/0'::pg_lsn "
                "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                "WHERE n.nspname = 'public' AND c.relkind = 'r'"
            )
            runs = int(row[0] or 0)
            spent = _cpu_us(int((server.folder / "data" / "postmaster.pid").read_text().split()[0]))
            found = {"runs": runs, "rest": int(row[1]) - runs, "log": int(row[2])}
            return found | {"network": relay.passed, "server_cpu_us": spent}

        found = await fill(store, sizes, schedules, minutes)
        await db.close()
        await store.close()
        relay.close()
    finally:
        server.stop()
    return found


def _cpu_us(parent: int) -> int:
    """What a server and the processes that it has forked have spent, also those that have ended."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # after the name, which is in parentheses and may hold anything: state, parent, then times from the 12th on
            after = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(stat.parent.name) == parent:
            ticks += sum(map(int, after[11:15]))  # with those of its children that have ended
        elif int(after[1]) == parent:
            ticks += sum(map(int, after[11:13]))
    return ticks * 1_000_000 // os.sysconf("SC_CLK_TCK")


async def on_sqlite(schedules: int, minutes: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="noonbell-bench-") as folder:
        file = Path(folder) / "scale.db"
        store = CountedSqlite(str(file))
        await store.open()

        async def sizes() -> Sizes:
            return _pages(file) | {"log": await store.log_bytes()}

        found = await fill(store, sizes, schedules, minutes)
        await store.close()
    return found


def _pages(file: Path) -> Sizes:
    """Pages that are in use: those of the runs, and all others."""
    db = apsw.Connection(str(file))
    db.pragma("wal_checkpoint(TRUNCATE)")
    rows = db.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name").fetchall()
    db.close()
    found = {str(name): int(str(size)) for name, size in rows}
    runs = sum(size for name, size in found.items() if name in RUNS_OF_SQLITE)
    return {"runs": runs, "rest": sum(found.values()) - runs}


RUNS_OF_SQLITE: Final = ("runs", "sqlite_autoindex_runs_1", "idx_runs_unsuccessful")


async def of_members(members: int) -> Result:
    server = RedisServer()
    timeline = RedisTimeline(server.url, namespace="bench", timeout=1.0)
    due, _, _ = timeline.keys("default", 0)
    try:
        with redis.Redis.from_url(server.url) as client:
            empty = int(client.info("memory")["used_memory"])
            for first in range(0, members, PART):
                part = range(first, min(first + PART, members))
                # within ten minutes, at odd microseconds
                client.zadd(due, {str(FIRST_SID + sid): BEGIN + sid * 7919 % HORIZON for sid in part})
            usage = int(client.memory_usage(due, samples=0) or 0)
            grown = int(client.info("memory")["used_memory"]) - empty
        began, turned = time.perf_counter(), 0
        while turned < min(members, TURNED):
            popped = await timeline.pop("default", BEGIN + HORIZON, BATCH)
            await timeline.ack("default", dict.fromkeys(popped.sids, BEGIN + 2 * HORIZON))
            turned += len(popped.sids)
        spent = time.perf_counter() - began
        await timeline.close()
    finally:
        server.stop()
    return {
        "members": members,
        "of_a_member": round(usage / members, 1),
        "of_the_server": round(grown / members, 1),
        "turned_per_second": round(turned / spent),
    }


async def measure(given: argparse.Namespace) -> Result:
    found: Result = {}
    for database in given.databases.split(","):
        on = on_sqlite if database == "sqlite" else on_postgres
        began = time.perf_counter()
        found[database] = await on(given.schedules, given.minutes)
        print(f"  {database}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    if given.members:
        found["timeline"] = await of_members(given.members)
    return found


def show(found: Result) -> None:
    for database in DATABASES:
        if database in found:
            row = found[database]
            print(
                f"{database:10}{row['of_a_schedule']:>8,.0f} bytes a schedule, {row['of_a_fire']:.0f} a fire, "
                f"{row['churn_of_a_fire']:.0f} of churn, {row['log_of_a_fire']:,.0f} to the log "
                f"({row['fires']:,} fires of {row['schedules']:,} schedules)"
            )
            network = f", {row['network_of_a_fire']:,.0f} bytes of network" if "network_of_a_fire" in row else ""
            server = f", of the server {row['server_cpu_us_of_a_fire']:.0f}" if network else ""
            print(f"{'':10}CPU of the engine {row['engine_cpu_us_of_a_fire']:.0f} us a fire{server}{network}")
    if "timeline" in found:
        row = found["timeline"]
        print(
            f"{'timeline':10}{row['of_a_member']:>8,.0f} bytes a member of {row['members']:,}, "
            f"{row['of_the_server']:.0f} of the whole server; {row['turned_per_second']:,} turned a second"
        )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--schedules", type=int, default=10_000)
    options.add_argument("--minutes", type=int, default=20)
    options.add_argument("--members", type=int, default=1_000_000, help="0 leaves the timeline out")
    options.add_argument("--databases", default=",".join(DATABASES), help="some of sqlite, postgres")
    found = asyncio.run(measure(options.parse_args()))
    show(found)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
