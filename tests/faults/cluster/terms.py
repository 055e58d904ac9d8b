"""Workers that are told to stop under load, by SIGTERM: they end what they have begun, and go.

    python -m tests.faults.cluster.terms [--terms N] [--backends postgres redis sqlite] [--at-once N] [--seed S]

Each of them is replaced at once. Nothing may be lost and nothing repeated: a stop in order explains no repeat. A trial
is a SIGTERM; how long it took them to be gone is told as `gone_p50_s` and `gone_p99_s`, the longest job is 0.8 s.
"""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from typing import Any, Final

from tests.faults.cluster.cluster import Cluster, Outcome
from tests.faults.cluster.plan import mixed_load
from tests.faults.cluster.report import (
    BACKENDS,
    Grounds,
    at_quantiles,
    each,
    end,
    grounds,
    judged,
    options,
    shared_out,
    summary,
)

LEAD_SECONDS: Final = 1.5
SECONDS_BETWEEN: Final = 1.6
TERMS_EACH: Final = 17


async def dismiss_at_random(cluster: Cluster, terms: int) -> None:
    chosen = cluster.chosen
    seconds = LEAD_SECONDS + terms * SECONDS_BETWEEN
    plan = mixed_load(chosen, cluster.ahead(LEAD_SECONDS), seconds, cluster.setting.speed, per_second=20)
    await cluster.create(plan)
    for _ in range(cluster.setting.workers):
        await cluster.up(await cluster.hire())
    took: list[float] = []
    for _ in range(terms):
        await asyncio.sleep(chosen.uniform(0.1, 1.0))
        worker = chosen.choice(cluster.workers)
        gone, _ = await asyncio.gather(cluster.dismiss(worker), cluster.hire())
        took.append(gone)
        cluster.trials += 1
    cluster.facts["gone"] = took


async def run(given: Any) -> list[Outcome]:
    async def one(place: Grounds, backend: str, terms: int) -> Outcome:
        cluster = await place.cluster(backend, seed=given.seed)
        return await judged(cluster, partial(dismiss_at_random, terms=terms))

    async with grounds(given.keep) as place:
        shares = shared_out(given.backends, given.terms, TERMS_EACH)
        return await each([partial(one, place, backend, terms) for backend, terms in shares], given.at_once)


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--terms", type=int, default=100)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    given = parser.parse_args()
    began = time.monotonic()
    outcomes = asyncio.run(run(given))
    middle, late = at_quantiles([seconds for outcome in outcomes for seconds in outcome.facts["gone"]])
    facts = {"backends": given.backends, "gone_p50_s": middle, "gone_p99_s": late}
    return end(summary("terms", outcomes, given.terms, began, **facts))


if __name__ == "__main__":
    sys.exit(main())
