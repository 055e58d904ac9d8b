"""HTTP jobs of Noonbell and requests of bare aiohttp, in turns, to one local server.

    python -m benchmarks.http_parts.party REQUESTS CONCURRENCY ROUNDS FOLDER PORT

Both in this process, on uvloop. Default settings of `Schedules` but for its slots: every claim and every end is synced
to disk before it counts, and each attempt is kept whole. The clock is shifted from burst to burst; each round is a day.
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import aiohttp
import uvloop

from benchmarks.engine_parts.conditions import report
from benchmarks.engine_parts.shifted_clock import ShiftedClock
from benchmarks.schedule_parts.counting import CountedSqlite
from noonbell.actions.egress import Egress, EgressPolicy
from noonbell.actions.http.slots import HttpLimits
from noonbell.ledger import verify_store
from noonbell.schedules import Fields, Schedules

DAY = 86_400_000_000
CREATED_AT = int(datetime.fromisoformat("2026-01-15T12:15:20+00:00").timestamp()) * 1_000_000
DUE_AT = int(datetime.fromisoformat("2026-01-15T12:30:00+00:00").timestamp()) * 1_000_000
MOST_SECONDS = 600.0
PAYLOAD = b'{"report":"daily","to":["somebody@example.com"],"full":true}'
# What Noonbell's requests carry, so that both send as much.
HEADERS = {
    "Content-Type": "application/json",
    "User-Agent": "Noonbell",
    "Accept": "*/*",
    "Accept-Encoding": "gzip, deflate",
    "webhook-id": "0123456789abcdef0123456789abcdef:scheduled:1768480200000000",
    "Idempotency-Key": "0123456789abcdef0123456789abcdef:scheduled:1768480200000000",
    "Noonbell-Scheduled-For": "2026-01-15T12:30:00Z",
    "Noonbell-Attempt": "1",
}

Result = dict[str, Any]


def tell(text: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


async def measure(requests: int, concurrency: int, rounds: int, folder: Path, port: int) -> Result:
    url = f"http://127.0.0.1:{port}/jobs/report"
    store, clock = CountedSqlite(str(folder / "http.db")), ShiftedClock(CREATED_AT)
    ours = Schedules(
        store,
        clock=clock,
        egress=Egress(EgressPolicy(allow=(f"127.0.0.1:{port}",))),
        http_limits=HttpLimits(total=concurrency, per_host=concurrency),
    )
    action = {
        "kind": "http",
        "url": url,
        "headers": {"Content-Type": "application/json"},
        "body": {"text": PAYLOAD.decode()},
    }
    found: dict[str, list[Result]] = {"noonbell": [], "bare": []}
    await store.open()
    try:
        many = [{"name": f"job {n}", "type": "cron", "spec": "30 12 * * *", "action": action} for n in range(requests)]
        await ours.create_many(cast("list[Fields]", many))
        await ours.start()
        for this_round in range(-1, rounds):  # the first is to warm up, and does not count
            bare = await plain(url, requests, concurrency)
            noonbell = await jobs(store, clock, requests, DUE_AT + (this_round + 1) * DAY)
            if this_round >= 0:
                found["bare"].append(bare)
                found["noonbell"].append(noonbell)
            rates = f"bare {bare['rate']:,.0f}/s, noonbell {noonbell['rate']:,.0f}/s"
            tell(f"round {this_round + 1}{' (not counted)' if this_round < 0 else ''}: {rates}")
        assert ours.metrics is not None
        assert ours.metrics["succeeded"] == requests * (rounds + 1), ours.metrics
        await ours.stop()
        await check(ours, store, rounds + 1)
    finally:
        await ours.close()
        await store.close()
    return found


async def jobs(store: CountedSqlite, clock: ShiftedClock, requests: int, at: int) -> Result:
    """From the due moment until the last end is on disk."""
    store.looked.clear()
    clock.jump_to(at - 2_000_000)
    async with asyncio.timeout(MOST_SECONDS):
        await store.looked.wait()
    await asyncio.sleep(0.1)
    store.expect(requests)
    began, began_cpu = time.perf_counter(), time.process_time()
    clock.jump_to(at)
    async with asyncio.timeout(MOST_SECONDS):
        await store.enough.wait()
    return _told(requests, time.perf_counter() - began, time.process_time() - began_cpu)


async def plain(url: str, requests: int, concurrency: int) -> Result:
    """As many requests over one session of aiohttp, by as many workers; each answer is read whole."""
    left = requests
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=concurrency), auto_decompress=False)

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            async with session.post(url, data=PAYLOAD, headers=HEADERS) as response:
                assert response.status == 200
                await response.read()

    async with session:
        began, began_cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(work() for _ in range(concurrency)))
        return _told(requests, time.perf_counter() - began, time.process_time() - began_cpu)


async def check(ours: Schedules, store: CountedSqlite, runs: int) -> None:
    """What was measured has happened: the answers are kept, and the ledger is whole."""
    problems = (await verify_store(store)).problems
    assert not problems, problems[:3]
    sample = (await ours.list(limit=1)).items[0]
    start = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    end = datetime.fromisoformat("2027-01-01T00:00:00+00:00")
    page = await ours.occurrences(sample.schedule_id, start=start, end=end)
    fired = [one for one in page.items if one.verdict == "fired"]
    kept = [one.tried[0].detail or {} for one in fired]
    assert [detail["response"]["status"] for detail in kept] == [200] * runs


def _told(requests: int, seconds: float, cpu: float) -> Result:
    return {"rate": requests / seconds, "seconds": seconds, "cpu_us": cpu / requests * 1e6}


if __name__ == "__main__":
    *numbers, where, port = sys.argv[1:]
    how_many, at_once, how_often = map(int, numbers)
    report(uvloop.run(measure(how_many, at_once, how_often, Path(where), int(port))))
