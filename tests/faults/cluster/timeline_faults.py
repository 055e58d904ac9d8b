"""A Redis timeline that forgets everything, dies, stands still or holds nonsense, under load.

    python -m tests.faults.cluster.timeline_faults [--faults N] [--at-once N] [--seed S]

Redis holds no promise, so nothing of this may lose an occurrence or repeat one: no fault of it explains a repeat. Each
cluster has a Redis server of its own. `late_p50_s` and `late_p99_s` tell how late one-shots began that came due within
five seconds after a fault. A trial is one fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from functools import partial
from typing import Any, Final, Literal

import redis.asyncio

from tests.faults.cluster.clock import SECOND, real_us
from tests.faults.cluster.cluster import Cluster, Outcome
from tests.faults.cluster.plan import mixed_load
from tests.faults.cluster.report import Grounds, at_quantiles, each, end, grounds, options, shared_out, summary
from tests.redis_server import RedisServer

LEAD_SECONDS: Final = 1.5
SECONDS_EACH: Final = 3.5
FAULTS_EACH: Final = 12
AFTER_US: Final = 5_000_000

Fault = Literal["flushed", "scripts flushed", "killed", "stopped", "words", "another type"]
FAULTS: Final[tuple[Fault, ...]] = ("flushed", "scripts flushed", "killed", "stopped", "words", "another type")


async def strike(cluster: Cluster, server: RedisServer, fault: Fault) -> None:
    chosen = cluster.chosen
    if fault == "killed":
        server.halt()
        await asyncio.sleep(chosen.uniform(0.0, 2.5))
        await asyncio.get_running_loop().run_in_executor(None, server.start)
        return
    if fault == "stopped":
        assert server._process is not None
        os.kill(server._process.pid, signal.SIGSTOP)
        await asyncio.sleep(chosen.uniform(0.5, 3.5))
        os.kill(server._process.pid, signal.SIGCONT)
        return
    async with redis.asyncio.Redis.from_url(server.url) as client:
        if fault == "flushed":
            await client.flushall()
        elif fault == "scripts flushed":
            await client.script_flush()
        else:
            async for key in client.scan_iter("*"):
                await _spoil(client, key, fault)


async def _spoil(client: redis.asyncio.Redis, key: bytes, fault: Fault) -> None:
    with contextlib.suppress(redis.exceptions.ResponseError):  # a worker has put it right between two of our commands
        await _spoil_at_once(client, key, fault)


async def _spoil_at_once(client: redis.asyncio.Redis, key: bytes, fault: Fault) -> None:
    if fault == "another type":
        await client.delete(key)
        await client.hset(key, "a field", "of a hash")
    elif await client.type(key) == b"zset":
        nonsense = {"not a number": 0, "": 1, "-5": 2, "99999999999999999999": 3, "123456789": 4, "1.5": float("inf")}
        await client.zadd(key, nonsense)


async def strike_at_random(cluster: Cluster, server: RedisServer, faults: int) -> None:
    chosen = cluster.chosen
    plan = mixed_load(
        chosen, cluster.ahead(LEAD_SECONDS), LEAD_SECONDS + faults * SECONDS_EACH, cluster.setting.speed, per_second=15
    )
    await cluster.create(plan)
    for _ in range(cluster.setting.workers):
        await cluster.hire()
    await asyncio.gather(*(cluster.up(worker) for worker in cluster.workers))
    left = [FAULTS[number % len(FAULTS)] for number in range(faults)]
    chosen.shuffle(left)
    struck = []
    for fault in left:
        await asyncio.sleep(chosen.uniform(0.8, 2.5))
        struck.append(cluster.clock.now())
        await strike(cluster, server, fault)
        cluster.trials += 1
    cluster.facts["struck"] = struck


def lateness(cluster: Cluster, outcome: Outcome) -> list[float]:
    """Seconds from the instant of each one-shot soon after a fault to its first start."""
    began = real_us() - (cluster.clock.now() - cluster.clock_setting.first) // cluster.setting.speed
    first: dict[str, int] = {}
    for one in outcome.story.tries:
        first.setdefault(one.schedule, one.at)
    found = []
    for wanted in cluster.plan.wanted.values():
        soon = any(0 <= wanted.first - at < AFTER_US * cluster.setting.speed for at in cluster.facts["struck"])
        if wanted.type == "one_shot" and soon and wanted.schedule_id in first:
            due = began + (wanted.first - cluster.clock_setting.first) // cluster.setting.speed
            found.append((first[wanted.schedule_id] - due) / SECOND)
    return found


async def with_a_server(place: Grounds, faults: int, **more: Any) -> Outcome:
    """A cluster with a Redis server of its own."""
    server = RedisServer()
    try:
        cluster = await place.cluster("postgres", timeline=server.url, **more)
        await strike_at_random(cluster, server, faults)
        await cluster.rest()
        outcome = await cluster.judged()
    finally:
        server.stop()
    outcome.facts["late"] = lateness(cluster, outcome)
    return outcome


async def run(given: Any) -> list[Outcome]:
    async with grounds(given.keep) as place:
        shares = shared_out(["redis"], given.faults, FAULTS_EACH)
        made = [partial(with_a_server, place, faults, seed=given.seed) for _, faults in shares]
        return await each(made, given.at_once)


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--faults", type=int, default=96)
    given = parser.parse_args()
    began = time.monotonic()
    outcomes = asyncio.run(run(given))
    late = [seconds for outcome in outcomes for seconds in outcome.facts["late"]]
    middle, last = at_quantiles(late)
    facts = {"late_p50_s": middle, "late_p99_s": last, "late_max_s": round(max(late, default=0.0), 3)}
    return end(summary("timeline_faults", outcomes, given.faults, began, backends=["redis"], **facts))


if __name__ == "__main__":
    sys.exit(main())
