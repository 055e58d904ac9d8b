"""Jobs that last ten times as long as the lease of their worker, and are not taken for dead.

    python -m tests.faults.cluster.long_jobs [--jobs N] [--backends postgres redis sqlite] [--at-once N] [--seed S]

The jobs are spread over three workers, half of them coroutines and half plain functions in threads; short ones run
beside them. Nothing may be repeated: there is no retry, no death and no pause. A trial is a long job.
"""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from typing import Any, Final

from tests.faults.cluster.cluster import Cluster, Outcome
from tests.faults.cluster.plan import Plan
from tests.faults.cluster.report import BACKENDS, Grounds, each, end, grounds, judged, options, shared_out, summary

LEASES: Final = 10
LEAD_SECONDS: Final = 2.0
JOBS_EACH: Final = 34


async def work_long(cluster: Cluster, jobs: int, leases: float = LEASES) -> None:
    chosen = cluster.chosen
    plan, seconds = Plan(), leases * cluster.setting.lease_seconds
    first, last = cluster.ahead(LEAD_SECONDS), cluster.ahead(LEAD_SECONDS + 1)
    for number in range(jobs):
        call = "work" if number % 2 else "plain"
        plan.one_shot(f"long-{number}", chosen.randint(first, last), payload={"s": seconds}, call=call)
    for number in range(2):
        rhythm = cluster.setting.speed * (1 + number)
        plan.interval(f"short-{number}", first, cluster.ahead(LEAD_SECONDS + seconds), rhythm)
    await cluster.create(plan)
    for _ in range(cluster.setting.workers):
        await cluster.hire()
    await asyncio.gather(*(cluster.up(worker) for worker in cluster.workers))
    await asyncio.sleep(max(0.0, (last - cluster.clock.now()) / cluster.setting.speed / 1_000_000) + seconds)
    cluster.trials = jobs


async def run(given: Any) -> list[Outcome]:
    async def one(place: Grounds, backend: str, jobs: int) -> Outcome:
        cluster = await place.cluster(backend, seed=given.seed)
        return await judged(cluster, partial(work_long, jobs=jobs))

    async with grounds(given.keep) as place:
        shares = shared_out(given.backends, given.jobs, JOBS_EACH)
        return await each([partial(one, place, backend, jobs) for backend, jobs in shares], given.at_once)


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    given = parser.parse_args()
    began = time.monotonic()
    outcomes = asyncio.run(run(given))
    repeated = sum(outcome.findings.repeated for outcome in outcomes)
    line = summary("long_jobs", outcomes, given.jobs, began, backends=given.backends, leases=LEASES)
    return end(line | {"ok": line["ok"] and not repeated})


if __name__ == "__main__":
    sys.exit(main())
