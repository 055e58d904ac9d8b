"""Noonbell on SQLite: a burst of N tasks on each of some days, then ticks with one due among N.

    python -m benchmarks.engine_parts.noonbell_party TASKS FOLDER

Default settings: durable (every claim and every end is synced to disk before it counts), store in its own thread. One
of the tasks comes due every minute, the others once a day; between the bursts only that one does.
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
from benchmarks.schedule_parts.counting import SqliteSizes
from noonbell import Scheduler
from noonbell.core.records import Settlement
from noonbell.ports import Settled
from noonbell.store.wrapping import with_verbs

TICKS = 200
MINUTE = 60_000_000
DAY = 24 * 60 * MINUTE
DAYS = 3
DUE_AT = int(datetime.fromisoformat(DUE).timestamp()) * 1_000_000
MOST_SECONDS = 200.0


class CountingStore(SqliteSizes):
    """The store, which also says when a number of ends is recorded."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.settled = self.expected = 0
        self.all = asyncio.Event()
        self._plain = self.runs
        self.runs = with_verbs(self._plain, {"settle": self._settle})

    def expect(self, runs: int) -> None:
        self.settled, self.expected = 0, runs
        self.all.clear()

    async def _settle(self, settlements: Sequence[Settlement]) -> Settled:
        settled = await self._plain.settle(settlements)
        assert not settled.stale
        self.settled += len(settlements)
        if self.settled >= self.expected:  # the task of every minute may come again
            self.all.set()
        return settled


async def measure(tasks: int, folder: Path) -> dict[str, Any]:
    clock = ShiftedClock(DUE_AT - 15 * 60_000_000 + 20_000_000)
    fired = Fired(tasks)
    store = CountingStore(folder / "bench.db")
    scheduler = Scheduler(store, clock=clock, time_zone="UTC")
    busy = BusyLoop()
    before = resident_bytes()
    async with busy.running():
        registrations = [
            (f"task-{i}", EXPRESSIONS[i % len(EXPRESSIONS)] if i else "* * * * *", fired.fire, timedelta(minutes=5))
            for i in range(tasks)
        ]
        store.expect(1)
        began = time.perf_counter()
        await scheduler.initialize(registrations)
        initialized = time.perf_counter() - began
        del registrations
        async with asyncio.timeout(MOST_SECONDS):
            await store.all.wait()  # the minute in which it begins belongs to the task of every minute
        memory, kept = resident_bytes() - before, await store.kept_bytes()
        busy.longest_stall_seconds = 0.0
        days = [await burst(clock, store, fired, busy, DUE_AT + day * DAY) for day in range(DAYS)]
        stall = busy.longest_stall_seconds
    kept = await store.kept_bytes() - kept
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    ticks, cpu = await tick(clock, store)
    await scheduler.stop()
    await store.close()
    return days[0] | {
        "initialize_seconds": initialized,
        "later_days": days[1:],
        "kept_bytes": kept / (DAYS * tasks),
        "stall_seconds": stall,
        "memory_bytes": memory,
        "peak_bytes": peak,
        "tick_seconds": median(ticks),
        "tick_cpu_seconds": median(cpu),
    }


async def burst(clock: ShiftedClock, store: CountingStore, fired: Fired, busy: BusyLoop, due_at: int) -> dict[str, Any]:
    """Let all tasks come due, and measure until the last end is on disk."""
    fired.reset()
    store.expect(fired.expected)
    log = await store.log_bytes()
    due, cpu = time.perf_counter(), busy.others_cpu()
    clock.jump_to(due_at)
    async with asyncio.timeout(MOST_SECONDS):
        await fired.all.wait()
        await store.all.wait()
    recorded, cpu = time.perf_counter() - due, busy.others_cpu() - cpu
    assert fired.last_at is not None
    assert fired.count >= fired.expected
    return {
        "started": fired.expected,
        "started_seconds": fired.last_at - due,
        "recorded": fired.expected,
        "recorded_seconds": recorded,
        "cpu_us": cpu / fired.expected * 1e6,
        "log_bytes": (await store.log_bytes() - log) / fired.expected,
    }


async def tick(clock: ShiftedClock, store: CountingStore) -> tuple[list[float], list[float]]:
    """Wall and CPU time from the moment that one task is due until its end is recorded, minute after minute.

    On a quiet loop: beside the busy one, what is measured would mostly be whether its work happened to be in the way.
    And on a quiet disk: what the burst has left to be written back would be paid for by the ticks after it.
    """
    os.sync()
    wall, cpu = [], []
    for minute in range(1, TICKS + 1):
        store.expect(1)
        await asyncio.sleep(0.002)  # let the loop come to rest before its clock moves
        began, began_cpu = time.perf_counter(), time.process_time()
        clock.jump_to(DUE_AT + (DAYS - 1) * DAY + minute * MINUTE)
        async with asyncio.timeout(MOST_SECONDS):
            await store.all.wait()
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - began_cpu)
    return wall, cpu


if __name__ == "__main__":
    report(asyncio.run(measure(int(sys.argv[1]), Path(sys.argv[2]))))
