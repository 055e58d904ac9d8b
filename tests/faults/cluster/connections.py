"""Connections between workers and PostgreSQL that are cut, slow, or half open.

    python -m tests.faults.cluster.connections [--troubles N] [--at-once N] [--seed S]

Each of the three workers of a cluster has a proxy of its own, so it alone is in trouble: it is cut off and may come
back at once; everything is slow, a little or very; nothing passes for a moment, or for three leases. A moment, a cut
and a little slowness explain no repeat. A trial is one such trouble.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final, Literal

from tests.faults.cluster.clock import real_us
from tests.faults.cluster.cluster import Cluster, Outcome
from tests.faults.cluster.nursery import WorkerProcess
from tests.faults.cluster.plan import mixed_load
from tests.faults.cluster.proxy import Proxy
from tests.faults.cluster.report import Grounds, each, end, grounds, options, shared_out, summary

LEAD_SECONDS: Final = 1.5
SECONDS_EACH: Final = 4.5
TROUBLES_EACH: Final = 10
LASTING: Final = (0, 0.3, 1.0, 2.0)  # so that a trouble finds something under way

Trouble = Literal["cut", "slow", "very slow", "moment", "half open", "half open, then cut"]
TROUBLES: Final[tuple[Trouble, ...]] = ("cut", "slow", "very slow", "moment", "half open", "half open, then cut")


async def in_trouble(cluster: Cluster, proxy: Proxy, worker: WorkerProcess, trouble: Trouble) -> None:
    lease = cluster.setting.lease_seconds
    began = real_us()
    if trouble == "cut":
        proxy.cut()
        await asyncio.sleep(0.3)
        return
    if trouble in ("slow", "very slow"):
        proxy.delay_seconds = 0.02 if trouble == "slow" else 0.4
        await asyncio.sleep(1.5 * lease)
        proxy.delay_seconds = 0.0
    else:
        proxy.close()
        await asyncio.sleep(0.3 * lease if trouble == "moment" else 3 * lease)
        if trouble == "half open, then cut":
            proxy.cut()
        proxy.open()
    if trouble not in ("slow", "moment"):
        # what was under way may take as long again to find out that it has failed, and to connect anew
        cluster.evidence.write("pause", worker.number, t0=began)


async def trouble_at_random(cluster: Cluster, server_port: int, troubles: int) -> None:
    chosen = cluster.chosen
    first, seconds = cluster.ahead(LEAD_SECONDS), LEAD_SECONDS + troubles * SECONDS_EACH
    await cluster.create(mixed_load(chosen, first, seconds, cluster.setting.speed, per_second=8, lasting=LASTING))
    async with AsyncExitStack() as stack:
        proxies: dict[int, tuple[Proxy, WorkerProcess]] = {}
        for number in range(cluster.setting.workers):
            proxy = await stack.enter_async_context(Proxy(server_port))
            address = cluster.setting.address.replace(f":{server_port}/", f":{proxy.port}/")
            proxies[number] = proxy, await cluster.hire(address=address)
        await asyncio.gather(*(cluster.up(worker) for worker in cluster.workers))
        left = [TROUBLES[number % len(TROUBLES)] for number in range(troubles)]
        chosen.shuffle(left)
        for trouble in left:
            await asyncio.sleep(chosen.uniform(0.3, 1.0))
            await in_trouble(cluster, *proxies[chosen.randrange(cluster.setting.workers)], trouble)
            cluster.trials += 1
        await cluster.rest()
        await asyncio.gather(*(cluster.dismiss(worker) for worker in list(cluster.workers)))


async def run(given: Any) -> list[Outcome]:
    async def one(place: Grounds, backend: str, troubles: int) -> Outcome:
        cluster = await place.cluster(backend, seed=given.seed)
        await trouble_at_random(cluster, place.server.port, troubles)
        return await cluster.judged()

    async with grounds(given.keep) as place:
        shares = shared_out(["postgres"], given.troubles, TROUBLES_EACH)
        return await each([partial(one, place, backend, troubles) for backend, troubles in shares], given.at_once)


def main() -> int:
    parser = options(__doc__, at_once=6)
    parser.add_argument("--troubles", type=int, default=120)
    given = parser.parse_args()
    began = time.monotonic()
    outcomes = asyncio.run(run(given))
    return end(summary("connections", outcomes, given.troubles, began, backends=["postgres"]))


if __name__ == "__main__":
    sys.exit(main())
