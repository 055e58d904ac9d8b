"""How long `noonbell serve` takes until it is ready, with few schedules and with many.

A database is filled, the service is started on it as a process, and the time from its start to the first `ready` of
/readyz is taken, several times, with both databases in turn, so that a busy moment of the machine meets both. What is
promised: a million schedules take at most 1.5 times as long as a thousand.

    python benchmarks/bench_serve.py [--many 1000000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from noonbell.schedules import Fields, Schedules

FEW = 1_000
ALLOWED = 1.5


def fields(count: int) -> Iterator[Fields]:
    """Schedules of several kinds and zones, none of which is due soon."""
    zones = ("UTC", "Europe/Kyiv", "America/New_York", "Asia/Tokyo")
    for number in range(count):
        yield {
            "name": f"schedule {number}",
            "type": "cron",
            "spec": f"{number % 60} {number % 24} {number % 28 + 1} {number % 12 + 1} *",
            "timezone": zones[number % len(zones)],
            "action": {"kind": "http", "url": "https://example.org/"},
        }


async def fill(path: Path, count: int) -> None:
    async with Schedules(f"sqlite:///{path}") as schedules:
        await schedules.create_many(fields(count))


def started(path: Path) -> float:
    """Seconds from the start of the process until it is ready; it is stopped then."""
    began = time.perf_counter()
    process = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", "noonbell", "serve", "--json", "--port", "0", "--store", f"sqlite:///{path}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "NOONBELL_LOG_LEVEL": "error"},
    )
    try:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        while not ready(address):
            time.sleep(0.005)
        return time.perf_counter() - began
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=10) as answer:  # noqa: S310 - our own service
            return bool(answer.status == 200)
    except urllib.error.URLError:
        return False


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--many", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    times: dict[int, list[float]] = {FEW: [], given.many: []}
    with tempfile.TemporaryDirectory() as folder:
        paths = {count: Path(folder) / f"{count}.db" for count in times}
        for count, path in paths.items():
            began = time.perf_counter()
            asyncio.run(fill(path, count))
            print(f"{count:>9,} schedules made in {time.perf_counter() - began:.1f} s", flush=True)
        for _ in range(given.rounds):
            for count, path in paths.items():
                times[count].append(started(path))
    print(f"{'schedules':>9}  {'ready after, median':>20}  {'best':>8}  {'worst':>8}")
    for count, taken in times.items():
        print(f"{count:>9,}  {statistics.median(taken):>18.2f} s  {min(taken):>6.2f} s  {max(taken):>6.2f} s")
    ratio = statistics.median(times[given.many]) / statistics.median(times[FEW])
    print(f"the many take {ratio:.2f} times as long as the few; at most {ALLOWED} is promised")
    sys.exit(ratio > ALLOWED)


if __name__ == "__main__":
    main()
