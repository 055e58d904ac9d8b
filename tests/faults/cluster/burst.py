"""A hundred thousand schedules due at the same instant: three workers share them, and each fires exactly once.

    python -m tests.faults.cluster.burst [--schedules N] [--workers N] [--backends postgres redis] [--seed S]

For each backend the burst is run by one worker, and then by several. When everything is created, the clock of the
cluster is set to shortly before the instant, and the workers start: so they are up when it comes. `rate` is starts a
second, from the instant to the last start; `spread` is how many each worker started; `speedup` is the rate against that
of one worker. The machine has to do the work of all of them: on two cores there is little to gain. A trial is a
schedule.
"""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from typing import Any, Final

from tests.faults.cluster.checker import spread
from tests.faults.cluster.clock import MINUTE, SECOND, real_us
from tests.faults.cluster.cluster import Cluster, Outcome
from tests.faults.cluster.plan import Plan
from tests.faults.cluster.report import Grounds, each, end, grounds, options, summary

AHEAD: Final = 50 * MINUTE
LEAD: Final = 6 * SECOND
LEAD_EACH: Final = 100  # a timeline is filled when a worker starts


async def fire_at_once(cluster: Cluster, schedules: int, workers: int) -> None:
    plan, at = Plan(), cluster.clock.now() + AHEAD
    for number in range(schedules):
        plan.one_shot(f"shot-{number}", at)
    await cluster.create(plan)
    lead = LEAD + schedules * LEAD_EACH
    cluster.clock.step(at - lead - cluster.clock.now())
    cluster.facts["due"] = real_us() + lead
    for _ in range(workers):
        await cluster.hire()
    await asyncio.gather(*(cluster.up(worker) for worker in cluster.workers))
    if cluster.clock.now() >= at:
        cluster.wrong.append("the workers were not up when the burst came")
    await cluster.rest()
    cluster.trials = schedules


def measured(outcome: Outcome, workers: int) -> dict[str, Any]:
    lateness = sorted((one.at - outcome.facts["due"]) / SECOND for one in outcome.story.tries)
    shares = sorted(spread(outcome.story).values(), reverse=True)
    return {
        "workers": workers,
        "rate": round(len(lateness) / lateness[-1]),
        "last_s": round(lateness[-1], 2),
        "spread": [*shares, *([0] * (workers - len(shares)))],
    }


async def run(given: Any) -> tuple[list[Outcome], dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = {}

    async def one(place: Grounds, backend: str, workers: int) -> Outcome:
        cluster = await place.cluster(backend, seed=given.seed, speed=1, lease_seconds=3.0, statement_seconds=30.0)
        await fire_at_once(cluster, given.schedules, workers)
        outcome = await cluster.judged()
        found.setdefault(backend, []).append(measured(outcome, workers))
        return outcome

    async with grounds(given.keep) as place:
        crews = [(backend, crew) for backend in given.backends for crew in (1, given.workers)]
        outcomes = await each([partial(one, place, backend, crew) for backend, crew in crews], 1)
    told = {
        backend: {"one": alone, "several": several, "speedup": round(several["rate"] / alone["rate"], 2)}
        for backend, (alone, several) in found.items()
    }
    return outcomes, told


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--backends", nargs="+", choices=("postgres", "redis"), default=["postgres", "redis"])
    given = parser.parse_args()
    began = time.monotonic()
    outcomes, told = asyncio.run(run(given))
    wanted = given.schedules * 2 * len(given.backends)
    line = summary("burst", outcomes, wanted, began, **told)
    exact = line["starts"] == wanted and all(min(rates["several"]["spread"]) > 0 for rates in told.values())
    return end(line | {"ok": line["ok"] and exact})


if __name__ == "__main__":
    sys.exit(main())
