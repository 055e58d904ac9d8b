"""How long `noonbell serve` takes until it is ready, with few schedules and with many, and how long its lists take.

A database is filled, the service is started on it as a process, and the time from its start to the first `ready` of
/readyz is taken, several times, with both databases in turn, so that a busy moment of the machine meets both. What is
promised: a million schedules take at most 1.5 times as long as a thousand. Then pages of 50 are asked for among the
many, by every filter: those that fit many schedules, few, and none.

The many are copies of the few, made inside the database: what is measured is not how long it takes to create them
(`bench_schedules.py` does that).

    python benchmarks/bench_serve.py [--many 1000000] [--rounds 5] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import apsw

from noonbell.schedules import Fields, Schedules

FEW = 1_000
ALLOWED = 1.5
SINGLE: Fields = {
    "name": "the needle", "type": "one_shot", "spec": "2031-01-01T00:00:00Z", "tags": ["needle"],
    "action": {"kind": "http", "url": "https://example.org/"},
}  # fmt: skip
# What a copy says instead of its pattern: SQL, over the pattern `s` and the number `n.n` of the copy.
NAMED = {"schedule_id": "s.schedule_id || '-' || n.n", "name": "s.name || ' copy ' || n.n"}
LISTS = (
    "", "enabled=true", "enabled=false", "type=cron", "type=interval", "type=one_shot", "tag=half",
    "tag=one in a thousand", "tag=needle", "tag=none", "tag=half&type=interval", "name_contains=schedule",
    "name_contains=needle", "name_contains=none of them", "managed_by=api", "managed_by=file:x", "lane=default",
    "lane=none",
)  # fmt: skip


def fields(count: int) -> Iterator[Fields]:
    """Schedules of several kinds, zones and tags, none of which is due soon."""
    zones = ("UTC", "Europe/Kyiv", "America/New_York", "Asia/Tokyo")
    for number in range(count):
        yield {
            "name": f"schedule {number}",
            "type": "cron" if number % 10 else "interval",
            "spec": f"{number % 60} 3 1 1 *" if number % 10 else "30d",
            "timezone": zones[number % len(zones)],
            "tags": ["half"] * (number % 2) + ["one in a thousand"] * (number == 500),
            "enabled": number != 700,
            "action": {"kind": "http", "url": "https://example.org/"},
        }
        # a single one of its kind, past the first pages
        yield from [SINGLE] if number == 900 else []


async def fill(path: Path, count: int) -> None:
    """Few are made; the others are copies of them, with other names and ids."""
    async with Schedules(f"sqlite:///{path}") as schedules:
        await schedules.create_many(fields(FEW))
    copies = count // FEW - 1
    if copies <= 0:
        return
    db = apsw.Connection(str(path))
    db.execute("PRAGMA synchronous = OFF")
    step = db.execute("SELECT max(sid) FROM schedule_definitions").get
    with db:
        for table in ("schedule_definitions", "schedule_state", "epochs", "schedule_tags"):
            told = NAMED if table == "schedule_definitions" else {}
            names = [str(row[1]) for row in db.execute(f"PRAGMA table_info({table})")]
            taken = [{**told, "sid": f"s.sid + n.n * {step}"}.get(name, f"s.{name}") for name in names]
            db.execute(
                "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?) "  # noqa: S608 - names of tables and columns
                f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(taken)} FROM n CROSS JOIN {table} s "
                f"WHERE s.sid <= {step} "
                "AND s.sid NOT IN (SELECT sid FROM schedule_definitions WHERE type = 'one_shot')",
                (copies,),
            )
    db.close()


@contextlib.contextmanager
def serving(path: Path) -> Iterator[str]:
    """The address of a service on this database, once it says that it is up."""
    process = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", "noonbell", "serve", "--json", "--port", "0", "--store", f"sqlite:///{path}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "NOONBELL_LOG_LEVEL": "error"},
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["address"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def started(path: Path) -> float:
    """Seconds from the start of the process until it is ready; it is stopped then."""
    began = time.perf_counter()
    with serving(path) as address:
        while not ready(address):
            time.sleep(0.005)
        return time.perf_counter() - began


def ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=10) as answer:  # noqa: S310 - our own service
            return bool(answer.status == 200)
    except urllib.error.URLError:
        return False


def lists(path: Path, rounds: int) -> None:
    """Print how long a page of each list takes, over HTTP."""
    command = [
        sys.executable,
        "-m",
        "noonbell",
        "api-keys",
        "create",
        "lists",
        "--store",
        f"sqlite:///{path}",
        "--json",
    ]
    key = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["key"]  # noqa: S603 - our own program
    headers = {"Authorization": f"Bearer {key}"}
    print(f"\n{'a page of 50':<34}  {'found':>5}  {'median':>9}  {'worst':>9}")
    with serving(path) as address:
        for asked in LISTS:
            query = urllib.parse.quote(asked, safe="=&")
            request = urllib.request.Request(f"{address}/api/v1/schedules?limit=50&{query}", headers=headers)  # noqa: S310 - our own service
            taken: list[float] = []
            for _ in range(rounds):
                began = time.perf_counter()
                with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - as above
                    found = len(json.load(answer)["items"])
                taken.append(time.perf_counter() - began)
            told = f"{statistics.median(taken) * 1000:>6.1f} ms  {max(taken) * 1000:>6.1f} ms"
            print(f"{asked or 'all':<34}  {found:>5}  {told}", flush=True)


def asked(description: str | None) -> argparse.Namespace:
    """How many there are, how often each thing is measured, and where the databases are kept."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--many", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--keep", type=Path, help="where the databases are kept, and found again")
    return options.parse_args()


@contextlib.contextmanager
def filled(
    given: argparse.Namespace, fill: Callable[[Path, int], Coroutine[Any, Any, None]], *, prefix: str, what: str
) -> Iterator[dict[int, Path]]:
    """The databases of the few and of the many, by how many they hold; made where they are not there yet."""
    with contextlib.ExitStack() as stack:
        folder = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        paths = {count: folder / f"{prefix}{count}.db" for count in (FEW, given.many)}
        for count, path in paths.items():
            if not path.exists():
                began = time.perf_counter()
                asyncio.run(fill(path, count))
                print(f"{count:>9,} {what} made in {time.perf_counter() - began:.1f} s", flush=True)
        yield paths


def main() -> None:
    given = asked(__doc__)
    with filled(given, fill, prefix="", what="schedules") as paths:
        ratio = compare(paths, given.rounds)
        lists(paths[given.many], given.rounds)
    sys.exit(ratio > ALLOWED)


def compare(paths: dict[int, Path], rounds: int) -> float:
    """Print how long it takes to be ready; how many times as long with the many."""
    times: dict[int, list[float]] = {count: [] for count in paths}
    for _ in range(rounds):
        for count, path in paths.items():
            times[count].append(started(path))
    print(f"{'schedules':>9}  {'ready after, median':>20}  {'best':>8}  {'worst':>8}")
    for count, taken in times.items():
        print(f"{count:>9,}  {statistics.median(taken):>18.2f} s  {min(taken):>6.2f} s  {max(taken):>6.2f} s")
    ratio = statistics.median(times[max(times)]) / statistics.median(times[min(times)])
    print(f"the many take {ratio:.2f} times as long as the few; at most {ALLOWED} is promised")
    return ratio


if __name__ == "__main__":
    main()
