"""Clocks that are set while workers run: by an hour and by a day, forward and back, on all machines or on one.

    python -m tests.faults.cluster.clock_steps [--steps N] [--backends postgres redis sqlite] [--at-once N] [--seed S]

Every worker has a clock of its own, read from a file. One step comes early in the life of a cluster; in half of them it
is undone some seconds later. Then all clocks go to where the plan ends. What a leap passes over is folded into one run,
as the policy says; what ran before a step back does not run again. A trial is one step.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from functools import partial
from typing import Any, Final

import msgspec

from tests.faults.cluster.clock import MINUTE, SECOND, FileClock, new_setting
from tests.faults.cluster.cluster import Cluster, Outcome
from tests.faults.cluster.plan import Plan
from tests.faults.cluster.report import BACKENDS, Grounds, each, end, grounds, judged, options, summary

SPEED: Final = 20
LEAD_SECONDS: Final = 1.5
STEP_SECONDS: Final = 2.5
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
STEPS: Final = tuple(itertools.product((HOUR, DAY, -HOUR, -DAY), ("all", "one")))


def days_ahead(cluster: Cluster) -> Plan:
    """Much within the next minutes, and something for the two days that a leap may pass over."""
    plan, chosen = Plan(), cluster.chosen
    first = cluster.ahead(LEAD_SECONDS)
    near, far = first + 4 * MINUTE, first + 2 * DAY
    for number in range(60):
        at = chosen.randint(first, near if number % 3 else far)
        plan.one_shot(f"shot-{number}", at, payload={"s": chosen.choice((0, 0.1, 0.5))})
    plan.cron("minutely", first, far)
    plan.cron("quarterly", first, far, minutes=15)
    plan.interval("rhythm", first, far, 40)
    return plan


async def step_once(cluster: Cluster, by: int, whose: str, *, undone: bool) -> None:
    clocks: list[FileClock] = [cluster.clock]
    await cluster.create(days_ahead(cluster))
    for number in range(cluster.setting.workers):
        file = cluster.setting.folder / f"clock-{number}"
        new_setting(file)
        setting = msgspec.structs.replace(cluster.clock_setting, offset_file=str(file))
        clocks.append(FileClock(setting))
        await cluster.hire(clock=setting)
    await asyncio.gather(*(cluster.up(worker) for worker in cluster.workers))
    await asyncio.sleep(LEAD_SECONDS + STEP_SECONDS)
    stepped = clocks if whose == "all" else [cluster.chosen.choice(clocks[1:])]
    for step in (by, -by) if undone else (by,):
        for clock in stepped:
            clock.step(step)
        await asyncio.sleep(2 * STEP_SECONDS)
    for clock in clocks:
        clock.step(max(0, cluster.plan.last + SECOND - clock.now()))
    cluster.trials += 1


async def run(given: Any) -> list[Outcome]:
    async def one(place: Grounds, backend: str, number: int) -> Outcome:
        by, whose = STEPS[number % len(STEPS)]
        cluster = await place.cluster(backend, seed=given.seed, speed=SPEED)
        return await judged(cluster, partial(step_once, by=by, whose=whose, undone=number // len(STEPS) % 2 == 1))

    async with grounds(given.keep) as place:
        made = [partial(one, place, given.backends[n % len(given.backends)], n) for n in range(given.steps)]
        return await each(made, given.at_once)


def main() -> int:
    parser = options(__doc__, at_once=5)
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    given = parser.parse_args()
    began = time.monotonic()
    outcomes = asyncio.run(run(given))
    return end(summary("clock_steps", outcomes, given.steps, began, backends=given.backends))


if __name__ == "__main__":
    sys.exit(main())
