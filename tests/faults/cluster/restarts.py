"""A PostgreSQL server that goes down in the middle of a commit, and comes back.

    python -m tests.faults.cluster.restarts [--restarts N] [--clusters N] [--seed S]

The workers reach it through a proxy that sees their COMMITs: as one is passed on, the server is told to drop everything
at once, without a word to anybody. It comes back after a random while, up to more than a lease. Whether that commit
happened is for the ledger to say, and the log has to agree. A trial is a restart, which all clusters go through;
recovery is counted from when the server is back.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from tests.crash.schedules_trouble import answers
from tests.faults.cluster.clock import SECOND, real_us
from tests.faults.cluster.cluster import Cluster, Outcome, happens
from tests.faults.cluster.plan import mixed_load
from tests.faults.cluster.proxy import Proxy
from tests.faults.cluster.report import end, grounds, options, summary, tell
from tests.patience import PATIENCE_SECONDS
from tests.store.postgres_server import PostgresServer

LEAD_SECONDS: Final = 1.5
SECONDS_EACH: Final = 5.5


async def restart_in_a_commit(server: PostgresServer, clusters: Sequence[Cluster], proxies: Sequence[Proxy]) -> None:
    """Strike at the next COMMIT that comes by; the log of each cluster tells how long the server was away."""
    chosen, lease = clusters[0].chosen, clusters[0].setting.lease_seconds
    (first, *_) = (server.folder / "data" / "postmaster.pid").read_text().split()
    struck = asyncio.Event()

    def strike() -> None:
        if not struck.is_set():
            os.kill(int(first), signal.SIGQUIT)
            struck.set()

    for proxy in proxies:
        proxy.on_commit = strike
    async with asyncio.timeout(PATIENCE_SECONDS):
        await struck.wait()
    began = real_us()
    for proxy in proxies:
        proxy.on_commit = None
    await happens(lambda: _is_gone(int(first)), PATIENCE_SECONDS)
    await asyncio.sleep(chosen.choice((0.0, 0.2, lease / 2, 1.5 * lease)))
    await server.in_thread("start")
    await happens(lambda: answers(clusters[0].setting.address), PATIENCE_SECONDS)
    for cluster in clusters:
        cluster.evidence.write("pause", None, t0=began)
        cluster.facts.setdefault("away", []).append((real_us() - began) / 1_000_000)


async def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def restart_often(server: PostgresServer, clusters: Sequence[Cluster], restarts: int) -> None:
    seconds = LEAD_SECONDS + restarts * SECONDS_EACH
    async with AsyncExitStack() as stack:
        proxies = []
        for cluster in clusters:
            proxy = await stack.enter_async_context(Proxy(server.port))
            proxies.append(proxy)
            first = cluster.ahead(LEAD_SECONDS)
            await cluster.create(mixed_load(cluster.chosen, first, seconds, cluster.setting.speed))
            address = cluster.setting.address.replace(f":{server.port}/", f":{proxy.port}/")
            for _ in range(cluster.setting.workers):
                await cluster.hire(address=address)
        await asyncio.gather(*(cluster.up(worker) for cluster in clusters for worker in cluster.workers))
        for _ in range(restarts):
            await asyncio.sleep(clusters[0].chosen.uniform(0.5, 2.0))
            await restart_in_a_commit(server, clusters, proxies)
            await asyncio.gather(*(cluster.goes_on() for cluster in clusters))
            for cluster in clusters:
                cluster.trials += 1
        await asyncio.gather(*(cluster.rest() for cluster in clusters))
        await asyncio.gather(*(cluster.dismiss(worker) for cluster in clusters for worker in list(cluster.workers)))


def recovered(outcome: Outcome) -> Outcome:
    """Here recovery is counted from when the server answers again to the next start, of whatever it is."""
    starts = sorted(one.at for one in outcome.story.tries)
    for _, back in outcome.story.pauses[None]:
        after = bisect_left(starts, back)
        if after < len(starts):
            outcome.findings.recovery.append((starts[after] - back) / SECOND)
    return outcome


async def run(given: Any) -> list[Outcome]:
    async with grounds(given.keep) as place:
        clusters = [await place.cluster("postgres", seed=given.seed + number) for number in range(given.clusters)]
        await restart_often(place.server, clusters, given.restarts)
        outcomes = [recovered(await cluster.judged()) for cluster in clusters]
    for number, outcome in enumerate(outcomes, start=1):
        tell(number, outcome)
    return outcomes


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--restarts", type=int, default=25)
    parser.add_argument("--clusters", type=int, default=4)
    given = parser.parse_args()
    began = time.monotonic()
    outcomes = asyncio.run(run(given))
    wanted = given.restarts * given.clusters
    return end(summary("restarts", outcomes, wanted, began, backends=["postgres"], restarts=given.restarts))


if __name__ == "__main__":
    sys.exit(main())
