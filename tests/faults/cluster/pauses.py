"""Workers that stand still for three lease lengths, by SIGSTOP, and go on as if nothing had been.

    python -m tests.faults.cluster.pauses [--pauses N] [--backends postgres redis sqlite] [--at-once N] [--seed S]

A cluster has three workers under load; one of them is stopped for three times its lease, with whatever it was doing,
and its runs are taken up by others meanwhile. What it writes when it goes on must change nothing. On SQLite a stopped
process keeps its lock: nothing of it is taken up, and nothing is repeated. A trial is a pause.
"""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from typing import Any, Final

from tests.faults.cluster.cluster import Cluster, Outcome
from tests.faults.cluster.plan import mixed_load
from tests.faults.cluster.report import BACKENDS, Grounds, each, end, grounds, judged, options, shared_out, summary

LEASES: Final = 3
LEAD_SECONDS: Final = 1.0
PAUSES_EACH: Final = 8
LASTING: Final = (0, 0.5, 1.5, 3.0)  # so that a pause finds something under way


async def pause_at_random(cluster: Cluster, pauses: int) -> None:
    chosen, lease = cluster.chosen, cluster.setting.lease_seconds
    seconds = LEAD_SECONDS + pauses * (LEASES * lease + 1.5)
    first, speed = cluster.ahead(LEAD_SECONDS), cluster.setting.speed
    await cluster.create(mixed_load(chosen, first, seconds, speed, per_second=5, lasting=LASTING))
    for _ in range(cluster.setting.workers):
        await cluster.up(await cluster.hire())
    for _ in range(pauses):
        await asyncio.sleep(chosen.uniform(0.5, 2.0))
        await cluster.pause(chosen.choice(cluster.workers), LEASES * lease)
        cluster.trials += 1


async def run(given: Any) -> list[Outcome]:
    async def one(place: Grounds, backend: str, pauses: int) -> Outcome:
        cluster = await place.cluster(backend, seed=given.seed)
        return await judged(cluster, partial(pause_at_random, pauses=pauses))

    async with grounds(given.keep) as place:
        shares = shared_out(given.backends, given.pauses, PAUSES_EACH)
        return await each([partial(one, place, backend, pauses) for backend, pauses in shares], given.at_once)


def main() -> int:
    parser = options(__doc__, at_once=7)
    parser.add_argument("--pauses", type=int, default=100)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    given = parser.parse_args()
    began = time.monotonic()
    outcomes = asyncio.run(run(given))
    return end(summary("pauses", outcomes, given.pauses, began, backends=given.backends))


if __name__ == "__main__":
    sys.exit(main())
