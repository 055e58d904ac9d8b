"""One database: Noonbell, day after day, and a peer beside it.

    python -m benchmarks.schedule_parts.party sqlite|postgres SCHEDULES BURST DAYS FOLDER PEER_SIZES|-

Default settings of `Schedules`: every claim and every end is synced to disk before it counts. The clock is shifted from
burst to burst and runs on in real time. The peer has its turn after the second day.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, cast

from benchmarks.engine_parts.conditions import report
from benchmarks.engine_parts.shifted_clock import ShiftedClock
from benchmarks.schedule_parts import peers
from benchmarks.schedule_parts.burst import CREATED_AT, DAY, KINDS, SPREAD_SECONDS, Kind, fields
from benchmarks.schedule_parts.counting import CountedPostgres, CountedSqlite
from benchmarks.schedule_parts.disk_server import start_server
from noonbell.core.turns import look
from noonbell.schedules import Call, Fields, Schedules

SLICE = 100_000
TICKS = 300
TICK_BLOCK = 30
FEW = 1_000
MOST_SECONDS = 600.0

CountedStore = CountedSqlite | CountedPostgres
Result = dict[str, Any]


def note(text: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class SqliteFiles:
    """Files in a folder; the peer is APScheduler."""

    peer = "APScheduler"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def store(self, name: str) -> CountedStore:
        return CountedSqlite(str(self._folder / f"{name}.db"))

    async def rest(self) -> None:
        """There is nothing to write back: a checkpoint of SQLite is a part of its commits."""

    async def run_peer(self, jobs: int) -> Result:
        return await asyncio.to_thread(peers.apscheduler, jobs, self._folder)

    def close(self) -> None:
        """There is nothing to end."""


class PostgresServer:
    """Databases of one server; the peer is graphile-worker, in a database of its own."""

    peer = "graphile-worker"

    def __init__(self) -> None:
        self._server = start_server()

    async def store(self, name: str) -> CountedStore:
        del name
        return CountedPostgres(await self._server.new_database())

    async def rest(self) -> None:
        """Write everything back, so that the first day writes full pages to the log, and later ones do not."""
        await self._server.execute("postgres", "CHECKPOINT")

    async def run_peer(self, jobs: int) -> Result:
        """Measure the peer in a database of its own, which goes with the server: DROP DATABASE orders a checkpoint."""
        return await asyncio.to_thread(peers.graphile_worker, jobs, await self._server.new_database())

    def close(self) -> None:
        self._server.stop()


Place = SqliteFiles | PostgresServer


class Actions:
    """Counts what the actions of a burst were called for."""

    def __init__(self) -> None:
        self.called = self.delivered = self.expected = 0
        self.all_delivered = asyncio.Event()

    def expect(self, messages: int) -> None:
        self.delivered, self.expected = 0, messages
        self.all_delivered.clear()

    async def work(self, _call: Call) -> None:
        self.called += 1

    async def receive(self, _event: dict[str, Any]) -> None:
        self.delivered += 1
        if self.delivered == self.expected:
            self.all_delivered.set()


class Noonbell:
    """One engine on one store, which fires a burst at a time."""

    def __init__(self, store: CountedStore, schedules: Schedules, clock: ShiftedClock, actions: Actions) -> None:
        self.store = store
        self.schedules = schedules
        self._clock = clock
        self._actions = actions

    @classmethod
    @asynccontextmanager
    async def on(cls, place: Place, name: str) -> AsyncIterator[Noonbell]:
        store, clock, actions = await place.store(name), ShiftedClock(CREATED_AT), Actions()
        await store.open()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(store.close)
            schedules = Schedules(
                store, clock=clock, callbacks={"work": actions.work}, targets={"inbox": actions.receive}
            )
            stack.push_async_callback(schedules.close)
            yield cls(store, schedules, clock, actions)

    @property
    def called(self) -> int:
        return self._actions.called

    async def create(self, count: int, burst: int) -> float:
        """Create schedules, slice by slice; returns how many a second."""
        wanted, spent = fields(count, burst), 0.0
        while made := cast("list[Fields]", list(islice(wanted, SLICE))):
            began = time.perf_counter()
            await self.schedules.create_many(made)
            spent += time.perf_counter() - began
        return count / spent

    async def fire(self, kind: Kind, day: int, burst: int) -> Result:
        """Let a burst come due, and measure until the end of its last run is on disk."""
        at = kind.due_at + day * DAY
        await self._arrive(at - (SPREAD_SECONDS + 2) * 1_000_000)
        log = await self.store.log_bytes()
        self.store.expect(burst)
        self._actions.expect(burst)
        began, began_cpu = time.perf_counter(), time.process_time()
        self._clock.jump_to(at)
        found: Result = {}
        async with asyncio.timeout(MOST_SECONDS):
            await self.store.enough.wait()
            spent, cpu = time.perf_counter() - began, time.process_time() - began_cpu
            if kind.name == "messages":
                await self._actions.all_delivered.wait()
                found["delivered_rate"] = burst / (time.perf_counter() - began)
        log = await self.store.log_bytes() - log
        return found | {"rate": burst / spent, "cpu_us": cpu / burst * 1e6, "log_bytes": log / burst}

    async def _arrive(self, at: int) -> None:
        """Come to a moment shortly before a burst, and let the engine complete a poll there."""
        self.store.looked.clear()
        self._clock.jump_to(at)
        async with asyncio.timeout(MOST_SECONDS):
            await self.store.looked.wait()
        await asyncio.sleep(0.1)


async def idle(many: CountedStore, few: CountedStore) -> Result:
    """Measure a poll at which nothing is due, among many schedules and among few, in turns; seconds."""
    found: dict[str, list[float]] = {"many": [], "few": []}
    for _ in range(TICKS // TICK_BLOCK):
        for name, store in (("few", few), ("many", many)):
            for _ in range(TICK_BLOCK):
                began = time.perf_counter()
                claim = await store.runs.claim(
                    "default", "bench", CREATED_AT, 4096, lambda stored: look(stored, CREATED_AT)
                )
                found[name].append(time.perf_counter() - began)
                assert claim.claimed.looked == 0
    return {name: median(times) for name, times in found.items()}


async def beside(place: Place, sizes: Sequence[int]) -> Result:
    """Measure the peer at each size, or say why there is none."""
    try:
        return {"name": place.peer, "sizes": {size: await place.run_peer(size) for size in sizes}}
    except peers.PeerUnavailableError as error:
        note(f"{place.peer} is left out: {error}")
        return {"name": place.peer, "skipped": str(error)}


async def measure(place: Place, count: int, burst: int, days: int, sizes: Sequence[int]) -> Result:
    async with Noonbell.on(place, "many") as ours, Noonbell.on(place, "few") as small:
        result: Result = {"create": await ours.create(count, burst)}
        note(f"{count:,} schedules created, {result['create']:,.0f}/s")
        await small.create(FEW, 0)
        result["tick"] = await idle(ours.store, small.store)
        kept = await ours.store.kept_bytes()
        await place.rest()
        await ours.schedules.start()
        measured: dict[str, list[Result]] = {kind.name: [] for kind in KINDS}
        for day in range(days):
            for kind in KINDS:
                measured[kind.name].append(await ours.fire(kind, day, burst))
            note(f"day {day + 1}: " + ", ".join(f"{name} {all_[-1]['rate']:,.0f}/s" for name, all_ in measured.items()))
            if day == min(1, days - 1) and sizes:
                result["peer"] = await beside(place, sizes)
        assert ours.called == days * burst * sum(kind.name != "messages" for kind in KINDS)
        kept = await ours.store.kept_bytes() - kept
        return result | {"days": measured, "kept_bytes": kept / (len(KINDS) * days * burst)}


if __name__ == "__main__":
    which, how_many, at_once, in_a_row, where, peer_sizes = sys.argv[1:]
    database: Place = SqliteFiles(Path(where)) if which == "sqlite" else PostgresServer()
    try:
        asked = [int(size) for size in peer_sizes.split(",")] if peer_sizes != "-" else []
        report(asyncio.run(measure(database, int(how_many), int(at_once), int(in_a_row), asked)))
    finally:
        database.close()
