"""Noonbell on SQLite: one burst of N tasks, then ticks with one due among N.

    python -m benchmarks.engine_parts.noonbell_party TASKS FOLDER

Default settings: durable (every claim and every end is synced to disk before it counts), store in its own thread. One
of the tasks comes due every minute, the others once a day; after the burst only that one does.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.engine_parts.conditions import DUE, EXPRESSIONS, BusyLoop, Fired, report, resident_bytes
from benchmarks.engine_parts.shifted_clock import ShiftedClock
from noonbell import Scheduler
from noonbell.core.records import Settlement
from noonbell.ports import Settled
from noonbell.store.sqlite import SqliteStore

TICKS = 200
MINUTE = 60_000_000
DUE_AT = int(datetime.fromisoformat(DUE).timestamp()) * 1_000_000
MOST_SECONDS = 200.0


class CountingStore(SqliteStore):
    """The store, which also tells when a number of ends is recorded."""

    def __init__(self, path: Path, expected: int) -> None:
        super().__init__(path)
        self.settled = 0
        self.expected = expected
        self.first = asyncio.Event()
        self.all = asyncio.Event()

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        settled = await super().settle(settlements)
        assert not settled.stale
        self.settled += len(settlements)
        self.first.set()
        if self.settled == self.expected:
            self.all.set()
        return settled


async def measure(tasks: int, folder: Path) -> dict[str, Any]:
    clock = ShiftedClock(DUE_AT - 15 * 60_000_000 + 20_000_000)
    fired = Fired(tasks)
    store = CountingStore(folder / "bench.db", tasks)
    scheduler = Scheduler(store, clock=clock, time_zone="UTC")
    busy = BusyLoop()
    before = resident_bytes()
    async with busy.running():
        registrations = [
            (f"task-{i}", EXPRESSIONS[i % len(EXPRESSIONS)] if i else "* * * * *", fired.fire, timedelta(minutes=5))
            for i in range(tasks)
        ]
        began = time.perf_counter()
        await scheduler.initialize(registrations)
        initialized = time.perf_counter() - began
        del registrations
        async with asyncio.timeout(MOST_SECONDS):
            await store.first.wait()  # the minute in which it begins belongs to the probe
        fired.count = store.settled = 0
        memory = resident_bytes() - before
        busy.longest_stall_seconds = 0.0
        due = time.perf_counter()
        clock.jump_to(DUE_AT)
        async with asyncio.timeout(MOST_SECONDS):
            await fired.all.wait()
            await store.all.wait()
        recorded = time.perf_counter() - due
        stall = busy.longest_stall_seconds
    assert fired.last_at is not None
    assert fired.count == tasks
    ticks, cpu = await tick(clock, store)
    await scheduler.stop()
    await store.close()
    return {
        "initialize_seconds": initialized,
        "started": fired.expected,
        "started_seconds": fired.last_at - due,
        "recorded": tasks,
        "recorded_seconds": recorded,
        "stall_seconds": stall,
        "memory_bytes": memory,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before,
        "tick_seconds": median(ticks),
        "tick_cpu_seconds": median(cpu),
    }


async def tick(clock: ShiftedClock, store: CountingStore) -> tuple[list[float], list[float]]:
    """Wall and CPU time from the moment that one task is due until its end is recorded, minute after minute.

    On a quiet loop: beside the busy one, what is measured would mostly be whether its work happened to be in the way.
    And on a quiet disk: what the burst has left to be written back would be paid for by the ticks after it.
    """
    os.sync()
    wall, cpu = [], []
    for minute in range(1, TICKS + 1):
        store.settled, store.expected = 0, 1
        store.all.clear()
        await asyncio.sleep(0.002)  # let the loop come to rest before its clock moves
        began, began_cpu = time.perf_counter(), time.process_time()
        clock.jump_to(DUE_AT + minute * MINUTE)
        async with asyncio.timeout(MOST_SECONDS):
            await store.all.wait()
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - began_cpu)
    return wall, cpu


if __name__ == "__main__":
    report(asyncio.run(measure(int(sys.argv[1]), Path(sys.argv[2]))))
