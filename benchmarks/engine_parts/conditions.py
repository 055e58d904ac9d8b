"""What every measured process has in common: a busy event loop, a count of what was fired, and its own memory.

The loop is kept busy as a real program's is: about a millisecond of work every five milliseconds, on the same loop that
the scheduler lives on. How long that work was kept waiting is the stall that the scheduler caused.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

WORK_SECONDS = 0.001
PAUSE_SECONDS = 0.004
# Five ways to say a minute of every day, so that no scheduler profits from every task being the same.
SPECS = ("{} * * *", "{} 1-31 * *", "{} * 1-12 *", "{} * * 0-6", "{} 1-31 1-12 *")
EXPRESSIONS = tuple(spec.format("30 12") for spec in SPECS)
DUE = "2026-01-15T12:30:00+00:00"


class Fired:
    """Counts the starts of a burst and keeps when the last of them came."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.all = asyncio.Event()
        self.reset()

    def reset(self) -> None:
        """Begin with another burst."""
        self.count = 0
        self.last_at: float | None = None
        self.all.clear()

    async def fire(self) -> None:
        self.count += 1
        if self.count == self.expected:
            self.last_at = time.perf_counter()
            self.all.set()


class BusyLoop:
    """The work that goes on beside the scheduler."""

    def __init__(self) -> None:
        self.longest_stall_seconds = 0.0
        self.cpu_seconds = 0.0

    async def _work(self) -> None:
        while True:
            until, cpu = time.perf_counter() + WORK_SECONDS, time.thread_time()
            while time.perf_counter() < until:
                pass
            self.cpu_seconds += time.thread_time() - cpu
            asked = time.perf_counter()
            await asyncio.sleep(PAUSE_SECONDS)
            late = time.perf_counter() - asked - PAUSE_SECONDS
            self.longest_stall_seconds = max(self.longest_stall_seconds, late)

    def others_cpu(self) -> float:
        """Return the seconds that the process has spent on anything else."""
        return time.process_time() - self.cpu_seconds

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.get_running_loop().create_task(self._work())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def resident_bytes() -> int:
    """Memory that this process holds now, garbage taken away first."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status tells no VmRSS")


def stop_after(seconds: float, tell: Callable[[], dict[str, Any]]) -> threading.Event:
    """End the process after so many seconds with what it managed; set the returned event to be spared.

    A thread, because a scheduler may keep its event loop to itself for longer than that.
    """
    spared = threading.Event()

    def watch() -> None:
        if not spared.wait(seconds):
            report(tell())
            os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    return spared


def report(result: dict[str, Any]) -> None:
    """The one line by which a measured process tells its result."""
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
