"""One database: Noonbell and the bare statements take turns on it.

    python -m benchmarks.schedule_parts.party sqlite|postgres SCHEDULES BURST ROUNDS FOLDER

Default settings of `Schedules`: every claim and every end is synced to disk before it counts. The clock is shifted from
burst to burst and runs on in real time; each round is a day.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, cast

from benchmarks.engine_parts.conditions import report
from benchmarks.engine_parts.shifted_clock import ShiftedClock
from benchmarks.schedule_parts.bare_postgres import BarePostgres
from benchmarks.schedule_parts.bare_sqlite import BareSqlite
from benchmarks.schedule_parts.burst import (
    CALLBACKS,
    CALLBACKS_AT,
    CREATED_AT,
    DAY,
    MESSAGES,
    MESSAGES_AT,
    fields,
)
from benchmarks.schedule_parts.counting import CountedPostgres, CountedSqlite, Written
from noonbell.core.turns import look
from noonbell.schedules import Call, Fields, Schedules
from tests.store import postgres_server

SLICE = 100_000
TICKS = 300
TICK_BLOCK = 30
FEW = 1_000
MOST_SECONDS = 600.0
LEAST_COUNTED = 10_000
# As a server is set up that has to survive a power cut.
SERVER = {"fsync": "on", "full_page_writes": "on", "autovacuum": "on", "shared_buffers": "512MB", "max_wal_size": "4GB"}

CountedStore = CountedSqlite | CountedPostgres
Bare = BareSqlite | BarePostgres
Result = dict[str, Any]


def tell(text: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Setup:
    """The databases of one measurement, removed when it is over."""

    def __init__(self, kind: str, folder: Path, stack: AsyncExitStack) -> None:
        self._kind = kind
        self._folder = folder
        self._stack = stack
        self._server: postgres_server.PostgresServer | None = None

    async def store(self, name: str) -> tuple[CountedStore, str]:
        store: CountedStore
        if self._kind == "sqlite":
            address = str(self._folder / f"{name}.db")
            store = CountedSqlite(address)
        else:
            if self._server is None:
                postgres_server.SETTINGS.update(SERVER)
                self._server = postgres_server.PostgresServer()
                self._stack.callback(self._server.stop)
            address = await self._server.new_database()
            store = CountedPostgres(address)
        await store.open()
        self._stack.push_async_callback(store.close)
        return store, address

    async def bare(self, address: str) -> Bare:
        bare = BareSqlite(Path(address)) if self._kind == "sqlite" else await BarePostgres.connect(address)
        self._stack.push_async_callback(bare.close)
        return bare


class Burst:
    """What the actions of a burst report to."""

    def __init__(self) -> None:
        self.called = self.delivered = self.expected = 0
        self.all_delivered = asyncio.Event()

    async def work(self, _call: Call) -> None:
        self.called += 1

    async def receive(self, _event: dict[str, Any]) -> None:
        self.delivered += 1
        if self.delivered == self.expected:
            self.all_delivered.set()


async def measure(kind: str, count: int, burst: int, rounds: int, folder: Path) -> Result:
    async with AsyncExitStack() as stack:
        setup = Setup(kind, folder, stack)
        store, address = await setup.store("many")
        bare = await setup.bare(address)
        clock, actions = ShiftedClock(CREATED_AT), Burst()
        ours = Schedules(
            store,
            clock=clock,
            callbacks={"work": actions.work},
            targets={"inbox": actions.receive},
        )
        stack.push_async_callback(ours.close)
        result: Result = {}
        result["create"], result["bare create"] = await create(ours, bare, count, burst)
        await bare.take(CALLBACKS, CALLBACKS_AT)
        await bare.take(MESSAGES, MESSAGES_AT)
        few, _ = await setup.store("few")
        small = Schedules(few, clock=clock, callbacks={"work": actions.work}, targets={"inbox": actions.receive})
        await create(small, None, FEW, 0)
        result["tick"] = await idle(store, few)
        await ours.start()
        measured: dict[str, list[Result]] = {"callbacks": [], "messages": [], "bare callbacks": [], "bare messages": []}
        for this_round in range(rounds):
            day = this_round * DAY
            # a server counts rows some seconds late, so it is asked once, and not where that would be most of the time
            rows = kind == "sqlite" or (this_round + 1 == rounds and burst >= LEAST_COUNTED)
            await one_round(Party(ours, store, bare, clock, actions, burst, rows=rows), day, measured)
            rates = ", ".join(f"{name} {found[-1]['rate']:,.0f}/s" for name, found in measured.items())
            tell(f"{kind}, round {this_round + 1}: {rates}")
        assert actions.called == rounds * burst, (actions.called, rounds, burst)
        return result | measured


async def create(schedules: Schedules, bare: Bare | None, count: int, burst: int) -> tuple[Result, Result]:
    """Create them slice by slice; the bare statements take turns, with a tenth of the number."""
    wanted, done, spent, bare_done, bare_spent = fields(count, burst), 0, 0.0, 0, 0.0
    while made := cast("list[Fields]", list(islice(wanted, SLICE))):
        began = time.perf_counter()
        await schedules.create_many(made)
        spent += time.perf_counter() - began
        done += len(made)
        if bare is not None:
            began = time.perf_counter()
            bare_done += await bare.create(len(made) // 10, CREATED_AT)
            bare_spent += time.perf_counter() - began
        if count > SLICE:
            tell(f"{done:,} of {count:,} schedules created, {done / spent:,.0f}/s")
    return (
        {"rate": done / spent, "seconds": spent},
        {"rate": bare_done / bare_spent if bare_spent else 0.0, "seconds": bare_spent},
    )


async def idle(many: CountedStore, few: CountedStore) -> Result:
    """A look at which nothing is due, among many schedules and among few, in turns."""
    found: dict[str, list[float]] = {"many": [], "few": []}
    for _ in range(TICKS // TICK_BLOCK):
        for name, store in (("few", few), ("many", many)):
            for _ in range(TICK_BLOCK):
                began = time.perf_counter()
                claim = await store.claim("default", "bench", CREATED_AT, 4096, lambda stored: look(stored, CREATED_AT))
                found[name].append(time.perf_counter() - began)
                assert claim.claimed.looked == 0
    return {name: median(times) for name, times in found.items()}


class Party:
    """Those who take turns."""

    def __init__(
        self,
        ours: Schedules,
        store: CountedStore,
        bare: Bare,
        clock: ShiftedClock,
        actions: Burst,
        burst: int,
        *,
        rows: bool,
    ) -> None:
        self.ours = ours
        self.store = store
        self.bare = bare
        self.clock = clock
        self.actions = actions
        self.burst = burst
        self.rows = rows

    async def arrive(self, at: int) -> None:
        """Come to a moment shortly before `at`, and let the engine notice that it has been up since."""
        self.store.looked.clear()
        self.clock.jump_to(at - 2_000_000)
        async with asyncio.timeout(MOST_SECONDS):
            await self.store.looked.wait()
        await asyncio.sleep(0.1)

    async def noonbell(self, at: int, *, messages: bool) -> Result:
        before = await self.store.written(rows=self.rows)
        await self.arrive(at)
        self.store.expect(self.burst)
        self.actions.delivered, self.actions.expected = 0, self.burst
        self.actions.all_delivered.clear()
        began, began_cpu = time.perf_counter(), time.process_time()
        self.clock.jump_to(at)
        async with asyncio.timeout(MOST_SECONDS):
            await self.store.enough.wait()
            spent, cpu = time.perf_counter() - began, time.process_time() - began_cpu
            if messages:
                await self.actions.all_delivered.wait()
        delivered = time.perf_counter() - began if messages else None
        written = (await self.store.written(rows=self.rows)).since(before)
        return self._told(spent, cpu, written) | {"delivered_seconds": delivered}

    async def plain(self, fire: Callable[[int], Awaitable[int]], at: int) -> Result:
        before = await self.bare.written(rows=self.rows)
        began, began_cpu = time.perf_counter(), time.process_time()
        fired = await fire(at)
        spent, cpu = time.perf_counter() - began, time.process_time() - began_cpu
        assert fired == self.burst, (fired, self.burst)
        return self._told(spent, cpu, (await self.bare.written(rows=self.rows)).since(before))

    def _told(self, spent: float, cpu: float, written: Written) -> Result:
        return {
            "rate": self.burst / spent,
            "seconds": spent,
            "cpu_us": cpu / self.burst * 1e6,
            "rows": None if written.rows is None else written.rows / self.burst,
            "bytes": written.log_bytes / self.burst,
        }


async def one_round(party: Party, day: int, measured: dict[str, list[Result]]) -> None:
    measured["callbacks"].append(await party.noonbell(CALLBACKS_AT + day, messages=False))
    measured["bare callbacks"].append(await party.plain(party.bare.fire, CALLBACKS_AT + day))
    measured["messages"].append(await party.noonbell(MESSAGES_AT + day, messages=True))
    measured["bare messages"].append(await party.plain(party.bare.send, MESSAGES_AT + day))
    await party.bare.tidy()


if __name__ == "__main__":
    which, *numbers, where = sys.argv[1:]
    how_many, at_once, rounds = map(int, numbers)
    report(asyncio.run(measure(which, how_many, at_once, rounds, Path(where))))
