"""Jobs that kill the process they run in: each is given up after three deaths, and its neighbours all run.

    python -m tests.faults.cluster.poison [--poisons N] [--backends postgres redis sqlite] [--at-once N] [--seed S]

They come one after the other, and a worker that dies of one is replaced at once. A trial is such a job: it has to bring
down three workers, whichever they are, and to end as abandoned, with the audit event `schedule.quarantined`. No other
run may be abandoned for them. A run on probation that was executing when another poisonous job killed its worker is
counted as `unlucky`: it was the only one on probation there, and is abandoned (`core.crashes`).
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import Counter
from functools import partial
from typing import Any, Final

from noonbell.ports import AuditFilter
from tests.crash.schedules_judge import MOST_CRASHES
from tests.faults.cluster.cluster import Cluster, Outcome
from tests.faults.cluster.nursery import WorkerProcess
from tests.faults.cluster.plan import Plan
from tests.faults.cluster.report import BACKENDS, Grounds, each, end, grounds, options, shared_out, summary

LEAD_SECONDS: Final = 1.5
SECONDS_BETWEEN: Final = 10.0
POISONS_EACH: Final = 5


def poisoned_load(cluster: Cluster, poisons: int) -> Plan:
    chosen, plan = cluster.chosen, Plan()
    first = cluster.ahead(LEAD_SECONDS)
    last = first + round(poisons * SECONDS_BETWEEN * cluster.setting.speed * 1_000_000)
    for number in range(poisons):
        at = first + round((number + chosen.uniform(0.0, 0.2)) * SECONDS_BETWEEN * cluster.setting.speed * 1_000_000)
        plan.one_shot(f"poison-{number}", at, call="poison", payload={"s": 0.05})
    for number in range(round(6 * poisons * SECONDS_BETWEEN)):
        payload = {"s": chosen.choice((0, 0.05, 0.3, 0.8))}
        plan.one_shot(f"near-{number}", chosen.randint(first, last), payload=payload)
    plan.interval("rhythm", first, last, cluster.setting.speed)
    return plan


async def outlive(cluster: Cluster, poisons: int) -> None:
    """Let the load run, and replace whoever dies of it, until it has come to rest."""
    keeping: set[asyncio.Task[None]] = set()

    async def keep(worker: WorkerProcess) -> None:
        await worker.ended.wait()
        if worker in cluster.workers and worker.status == -signal.SIGKILL:
            cluster.workers.remove(worker)
            await begin()

    async def begin() -> None:
        keeping.add(asyncio.create_task(keep(await cluster.hire())))

    await cluster.create(poisoned_load(cluster, poisons))
    for _ in range(cluster.setting.workers):
        await begin()
    await cluster.rest()
    for task in keeping:
        task.cancel()
    await asyncio.gather(*keeping, return_exceptions=True)


async def judged(cluster: Cluster) -> Outcome:
    """As always, and: who was given up."""
    outcome = await cluster.judged()
    found, poisons = outcome.findings, [wanted for wanted in cluster.plan.wanted.values() if wanted.poison]
    starts = Counter(one.schedule for one in outcome.story.tries)
    async with cluster.store(read_only=True) as store:
        told = await store.audit.page(AuditFilter(event="schedule.quarantined"), 0, 10_000)
    quarantined = {event.subject for _, event in told}
    for wanted in poisons:
        # it may have been claimed and not begun when its worker died of another
        if not 1 <= starts[wanted.schedule_id] <= MOST_CRASHES:
            found.other.append(f"{wanted.schedule_id} started {starts[wanted.schedule_id]} times")
    innocent = quarantined - {wanted.schedule_id for wanted in poisons}
    killers = {one.worker: one.schedule for one in outcome.story.tries if cluster.plan.wanted[one.schedule].poison}
    near = {schedule: killers_of(outcome, schedule, killers) for schedule in sorted(innocent)}
    found.other.extend(
        f"{schedule} was given up, and has killed nobody" for schedule in near if len(near[schedule]) < 2
    )
    outcome.facts["unlucky"] = sum(len(killed_by) > 1 for killed_by in near.values())
    outcome.trials = sum(wanted.schedule_id in quarantined for wanted in poisons)
    return outcome


def killers_of(outcome: Outcome, schedule: str, killers: dict[int, str]) -> set[str]:
    """The poisonous jobs that brought down the workers in which it ran."""
    return {killers[one.worker] for one in outcome.story.tries if one.schedule == schedule and one.worker in killers}


async def run(given: Any) -> list[Outcome]:
    async def one(place: Grounds, backend: str, poisons: int) -> Outcome:
        cluster = await place.cluster(backend, seed=given.seed)
        await outlive(cluster, poisons)
        return await judged(cluster)

    async with grounds(given.keep) as place:
        shares = shared_out(given.backends, given.poisons, POISONS_EACH)
        return await each([partial(one, place, backend, poisons) for backend, poisons in shares], given.at_once)


def main() -> int:
    parser = options(__doc__, at_once=5)
    parser.add_argument("--poisons", type=int, default=40)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    given = parser.parse_args()
    began = time.monotonic()
    outcomes = asyncio.run(run(given))
    unlucky = sum(outcome.facts["unlucky"] for outcome in outcomes)
    return end(summary("poison", outcomes, given.poisons, began, backends=given.backends, unlucky=unlucky))


if __name__ == "__main__":
    sys.exit(main())
