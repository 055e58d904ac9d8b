"""`kill -9` of random workers, over and over, on every backend.

    python -m tests.faults.cluster.kills [--kills N] [--backends postgres redis sqlite] [--at-once N] [--seed S]

A cluster has three workers and a load of every kind. One of them, at times two, is killed at a random moment, and
replaced a random while later: so at times nobody is there. After fifty kills, or when its load is over, the cluster
comes to rest and is judged. A trial is a kill. The last line on standard output is one JSON object; the exit status is
1 where it is not ok.
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

KILLS_EACH: Final = 50
LEAD_SECONDS: Final = 1.5
SECONDS_BETWEEN: Final = 1.1
LEAST_SECONDS: Final = 8.0
MOST_SECONDS: Final = 1_200


async def kill_at_random(cluster: Cluster, kills: int) -> None:
    """Kill up to so many, for as long as there is something to run. Something has to start between two deaths."""
    chosen, speed = cluster.chosen, cluster.setting.speed
    for _ in range(cluster.setting.workers):
        await cluster.hire()
    await cluster.up(cluster.workers[0])  # a busy machine takes long for that
    first, seconds = cluster.ahead(LEAD_SECONDS), max(LEAST_SECONDS, LEAD_SECONDS + kills * SECONDS_BETWEEN)
    await cluster.create(mixed_load(chosen, first, seconds, speed))
    replacing: set[asyncio.Task[Any]] = set()

    async def replace(pause: float) -> None:
        await asyncio.sleep(pause)
        await cluster.hire()

    while cluster.trials < kills:
        await cluster.goes_on()
        if cluster.clock.now() >= cluster.plan.last:
            break
        await asyncio.sleep(chosen.uniform(0.0, 2 * SECONDS_BETWEEN - 0.4))
        for _ in range(chosen.choice((1, 1, 1, 2))):
            if not cluster.workers or cluster.trials == kills:
                break
            await cluster.kill(chosen.choice(cluster.workers))
            cluster.trials += 1
            replacing.add(asyncio.create_task(replace(chosen.choice((0.0, 0.3, 1.0, 2.5)))))
    await asyncio.gather(*replacing)


async def run(given: Any) -> list[Outcome]:
    async def killed(place: Grounds, backend: str, kills: int) -> Outcome:
        cluster = await place.cluster(backend, seed=given.seed)
        return await judged(cluster, partial(kill_at_random, kills=kills))

    outcomes: list[Outcome] = []
    until = time.monotonic() + MOST_SECONDS
    async with grounds(given.keep) as place:
        # a machine that is busy otherwise kills fewer in the time of a cluster: then there are more of them
        while (left := given.kills - sum(outcome.trials for outcome in outcomes)) > 0 and time.monotonic() < until:
            shares = shared_out(given.backends, left, KILLS_EACH)
            made = [partial(killed, place, backend, kills) for backend, kills in shares]
            outcomes += await each(made, given.at_once)
    return outcomes


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    given = parser.parse_args()
    began = time.monotonic()
    outcomes = asyncio.run(run(given))
    return end(summary("kills", outcomes, given.kills, began, backends=given.backends))


if __name__ == "__main__":
    sys.exit(main())
