"""The code that four requests walk through: functions, modules, hops between modules, and calls of the store.

    python -m benchmarks.call_paths [--json FILE]

- POST /schedules, GET runs of a schedule, the page of a schedule, and one HTTP job from the poll that finds it due
  until its end is recorded. Each is made twice, and the second one counts: the first one fills caches.
- The service runs in this process, without a socket and with SQLite in its own thread's place, so that every call is
  seen. The engine polls nothing while a request is counted.
- A function or module counts once, however often it is called. A hop is a call from one module of Noonbell into another
  one, libraries in between left out. A call of the store is one verb of the ledger.

The exit status is 1 where a bar for calls of the store is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import httpx2

import noonbell
from noonbell.actions.egress import Egress, EgressPolicy
from noonbell.api.app import create_app
from noonbell.bootstrap import Service
from noonbell.config import Settings
from noonbell.schedules import Schedules
from noonbell.store.sqlite import SqliteStore
from noonbell.store.timed import StoreTimes, time_verbs
from noonbell.testing import ManualClock

PACKAGE: Final = str(Path(noonbell.__file__).parent)
BARS: Final = {"POST /schedules": 3, "one HTTP job": 6, "GET runs": 2, "page of a schedule": 5}
NOON: Final = int(datetime(2026, 1, 15, 12, tzinfo=UTC).timestamp()) * 1_000_000
# Services beside the engine have their turns at whole seconds from the start of the engine, which is no whole second.
# So none of them has one in the last moment before an occurrence, which is what is counted.
START_US: Final = 2_300_000
LAST_MOMENT: Final = timedelta(milliseconds=200)
PASSWORD: Final = "a password of a benchmark"  # noqa: S105 - of a database that lives for a benchmark


class CallPath(NamedTuple):
    """What a request has walked through."""

    functions: int
    modules: int
    hops: int
    store: dict[str, int]


class Watch:
    """Counts the functions of the package that are called in this thread."""

    def __init__(self, times: StoreTimes) -> None:
        self._times = times
        self._functions: set[object] = set()
        self._modules: set[str] = set()
        self._hops = 0

    async def over(self, work: Callable[[], Awaitable[Any]]) -> CallPath:
        self._functions, self._modules, self._hops = set(), set(), 0
        before = self._called()
        sys.setprofile(self._see)
        try:
            await work()
        finally:
            sys.setprofile(None)
        return CallPath(len(self._functions), len(self._modules), self._hops, dict(self._called() - before))

    def _called(self) -> Counter[str]:
        return Counter({verb: sum(found.buckets) for verb, found in self._times.verbs.items()})

    def _see(self, frame: FrameType, event: str, _arg: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        module = frame.f_code.co_filename
        self._functions.add(frame.f_code)
        self._modules.add(module)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(PACKAGE):
            caller = caller.f_back
        self._hops += caller is None or caller.f_code.co_filename != module


async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The other end of the HTTP job: it answers, whatever it is sent."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
    await writer.drain()
    writer.close()


async def requests(folder: Path) -> dict[str, CallPath]:
    """Count the requests of an API client and of a browser."""
    clock, store = ManualClock(NOON), SqliteStore(folder / "service.db", threaded=False)
    await store.open()
    times = time_verbs(store)
    settings = Settings(store=f"sqlite:///{folder / 'service.db'}", engine=False, key_requests_per_minute=0)
    service = Service(settings, clock, store, times, keys=None, registrations=None)
    async with AsyncExitStack() as stack:
        await service.open()
        stack.push_async_callback(store.close)
        _, key = await service.access.create_key("default", ["read", "write"], name="bench")
        await service.access.create_admin("ann", PASSWORD)
        given: dict[str, Any] = {
            "base_url": "http://127.0.0.1",
            "transport": httpx2.ASGITransport(app=create_app(service)),
        }
        api = await stack.enter_async_context(httpx2.AsyncClient(**given, headers={"Authorization": f"Bearer {key}"}))
        browser = await stack.enter_async_context(httpx2.AsyncClient(**given))
        await log_in(browser)
        watch, number = Watch(times), iter(range(100))

        async def create() -> httpx2.Response:
            body = {
                "name": f"job {next(number)}", "type": "cron", "spec": "0 9 * * *",
                "action": {"kind": "http", "url": "https://example.org/"},
            }  # fmt: skip
            made = await api.post("/api/v1/schedules", json=body)
            assert made.status_code == 201, made.text
            return made

        async def get(client: httpx2.AsyncClient, path: str) -> None:
            found = await client.get(path)
            assert found.status_code == 200, found.text

        schedule = (await create()).json()["schedule_id"]
        works: dict[str, Callable[[], Awaitable[Any]]] = {
            "POST /schedules": create,
            "GET runs": lambda: get(api, f"/api/v1/schedules/{schedule}/runs"),
            "page of a schedule": lambda: get(browser, f"/schedules/{schedule}"),
        }
        found = {}
        for name, work in works.items():
            await work()
            found[name] = await watch.over(work)
        return found


async def log_in(browser: httpx2.AsyncClient) -> None:
    page = (await browser.get("/login")).text
    token = re.search(r'name="csrf" value="([^"]+)"', page)
    assert token is not None
    answer = await browser.post("/login", data={"csrf": token[1], "name": "ann", "password": PASSWORD})
    assert answer.status_code == 303, answer.text


async def one_http_job(folder: Path) -> CallPath:
    """Count one HTTP job: the poll that finds it due, the claim, the request, and the record of its end."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    clock, store = ManualClock(NOON + START_US), SqliteStore(folder / "job.db", threaded=False)
    await store.open()
    times = time_verbs(store)
    egress = Egress(EgressPolicy(allow=(f"127.0.0.1:{port}",)))
    async with server, Schedules(store, clock=clock, egress=egress) as schedules:
        action = {"kind": "http", "url": f"http://127.0.0.1:{port}/"}
        await schedules.create(name="job", type="cron", spec="*/5 * * * *", action=action)
        await schedules.start()

        settled = times.of("runs.settle")

        async def fire() -> None:
            before = sum(settled.buckets)
            await clock.advance(LAST_MOMENT)
            async with asyncio.timeout(30):
                while sum(settled.buckets) == before:  # noqa: ASYNC110 - nothing else says so
                    await asyncio.sleep(0.01)

        await clock.advance(timedelta(minutes=5, microseconds=-START_US) - LAST_MOMENT)
        await fire()
        await clock.advance(timedelta(minutes=5) - LAST_MOMENT)
        found = await Watch(times).over(fire)
        await schedules.stop()
    await store.close()
    return found


async def measure() -> dict[str, CallPath]:
    with tempfile.TemporaryDirectory(prefix="noonbell-bench-") as folder:
        found = await requests(Path(folder))
        return found | {"one HTTP job": await one_http_job(Path(folder))}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", type=Path, help="write the result to this file too")
    given = options.parse_args()
    found = asyncio.run(measure())
    print(f"{'':22}{'functions':>10}{'modules':>9}{'hops':>7}{'store':>7}{'bar':>5}")
    for name, path in found.items():
        calls = sum(path.store.values())
        print(f"{name:22}{path.functions:>10}{path.modules:>9}{path.hops:>7}{calls:>7}{BARS[name]:>5}  {path.store}")
    if given.json:
        given.json.write_text(json.dumps({name: path._asdict() for name, path in found.items()}))
    return int(any(sum(path.store.values()) > BARS[name] for name, path in found.items()))


if __name__ == "__main__":
    sys.exit(main())
