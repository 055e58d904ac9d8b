"""Each of the cluster's fault runs in a short form; `make faults` has the long ones.

`make test` runs two in which processes and servers die, on PostgreSQL with Redis; `make test-full` runs all. They run
at the same time, each with a database of its own, since they mostly wait. A test asserts what the runs themselves hold,
and that the fault has happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.crash.schedules_judge import MOST_CRASHES
from tests.faults.cluster import (
    burst,
    clock_steps,
    connections,
    gaps,
    kills,
    long_jobs,
    pauses,
    poison,
    restarts,
    terms,
    timeline_faults,
    upgrades,
)
from tests.faults.cluster.cluster import Outcome
from tests.faults.cluster.report import Drive, Grounds, grounds, judged

CREW = 2
SCHEDULES = 2_000


async def driven(place: Grounds, backend: str, drive: Drive, **more: Any) -> Outcome:
    return await judged(await place.cluster(backend, workers=CREW, **more), drive)


async def poisoned(place: Grounds) -> Outcome:
    cluster = await place.cluster("postgres", workers=CREW)
    await poison.outlive(cluster, 1)
    return await poison.judged(cluster)


async def troubled(place: Grounds) -> Outcome:
    cluster = await place.cluster("postgres", workers=CREW)
    await connections.trouble_at_random(cluster, place.server.port, 2)
    return await cluster.judged()


async def restarted(folder: Path) -> Outcome:
    async with grounds(folder) as place:
        cluster = await place.cluster("postgres", workers=CREW)
        await restarts.restart_often(place.server, [cluster], 2)
        return await cluster.judged()


async def unpolled(place: Grounds) -> Outcome:
    cluster = await place.cluster("sqlite", speed=40, workers=1)
    await gaps.leave_gaps(cluster, None, ["freeze", "kill", "unreachable"])
    return await cluster.judged()


async def upgraded(place: Grounds) -> Outcome:
    async with upgrades.next_crew() as nursery:
        return await upgrades.rolled(place, nursery, "postgres", "new dies", 3.0, workers=CREW)


async def outcomes_of(folder: Path, *names: str) -> dict[str, Outcome]:
    """Run these at the same time, each on a database of its own."""
    leap = partial(clock_steps.step_once, by=clock_steps.DAY, whose="all", undone=True)
    async with grounds(folder) as place:
        runs: dict[str, Callable[[], Awaitable[Outcome]]] = {
            "kills, sqlite": lambda: driven(place, "sqlite", partial(kills.kill_at_random, kills=3)),
            "kills, redis": lambda: driven(place, "redis", partial(kills.kill_at_random, kills=3)),
            "pauses": lambda: driven(place, "postgres", partial(pauses.pause_at_random, pauses=1)),
            "gaps": lambda: unpolled(place),
            "long jobs": lambda: driven(place, "postgres", partial(long_jobs.work_long, jobs=4, leases=3)),
            "terms": lambda: driven(place, "postgres", partial(terms.dismiss_at_random, terms=2)),
            "clock steps": lambda: driven(place, "postgres", leap, speed=clock_steps.SPEED),
            "poison": lambda: poisoned(place),
            "connections": lambda: troubled(place),
            "restarts": lambda: restarted(folder / "restarts"),
            "timeline": lambda: timeline_faults.with_a_server(place, 2, workers=CREW),
            "upgrades": lambda: upgraded(place),
        }
        chosen = names or tuple(runs)
        outcomes = dict(zip(chosen, await asyncio.gather(*(runs[name]() for name in chosen)), strict=True))
    assert {name: outcome.findings.wrong for name, outcome in outcomes.items()} == {name: [] for name in outcomes}
    assert [name for name, outcome in outcomes.items() if not outcome.trials or not outcome.findings.starts] == []
    return outcomes


async def test_nothing_is_lost_or_unexplained_after_kills_and_restarts(tmp_path: Path) -> None:
    await outcomes_of(tmp_path, "kills, redis", "restarts")


@pytest.mark.exhaustive
async def test_nothing_is_lost_or_unexplained_in_short_runs(tmp_path: Path) -> None:
    outcomes = await outcomes_of(tmp_path)
    assert outcomes["poison"].findings.interrupted >= MOST_CRASHES
    assert outcomes["long jobs"].findings.repeated == 0
    assert outcomes["poison"].findings.given_up == 1
    mixed = outcomes["upgrades"].facts["mixed_starts"]
    assert (mixed[False] > 0, mixed[True] > 0) == (True, True)
    assert [upgrades.is_next(finder) for finder in outcomes["upgrades"].facts["finders"].values()] == [False]


@pytest.mark.exhaustive
async def test_a_burst_is_shared_out_and_fires_exactly_once(tmp_path: Path) -> None:
    async with grounds(tmp_path) as place:
        cluster = await place.cluster("postgres", speed=1, lease_seconds=3.0)
        await burst.fire_at_once(cluster, SCHEDULES, CREW)
        outcome = await cluster.judged()
    assert outcome.findings.wrong == []
    assert outcome.findings.starts == SCHEDULES
    shares = burst.measured(outcome, CREW)["spread"]
    assert sum(shares) == SCHEDULES
    assert min(shares) > 0
