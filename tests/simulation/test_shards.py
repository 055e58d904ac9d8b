"""Eight shards with two engines each, in one simulated life: nothing is lost, doubled or carried over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from noonbell.core.shards import shard_of
from noonbell.engine import membership
from noonbell.ports import Rescue
from noonbell.store.memory.engines import MemoryEngines
from tests.schedules.patience import calm_duties
from tests.simulation.sharded import START, Plan, Shard, Told, live

SHARDS = 8
SCHEDULES = 96
Key = tuple[str, datetime]


@pytest.fixture(autouse=True)
def _calm() -> Iterator[None]:
    # A context of its own: the fixture monkeypatch would be undone later, and put the calm value back for good.
    with calm_duties(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(membership, "LOOK", 5_000_000)  # for the dead, that is
        yield


def wanted(plan: Plan, shard: int) -> set[Key]:
    ids = [one for one in plan.schedules if shard_of(one.schedule_id, plan.shards) == shard]
    return {(one.schedule_id, at) for one in ids for at in plan.occurrences(one)}


def counted(shard: Shard, what: str) -> Counter[Key]:
    return Counter((one.schedule_id, one.scheduled_for) for one in shard.story if one.what == what)


def overlaps(story: list[Told]) -> list[Told]:
    """Beginnings of a schedule while another of its runs is under way."""
    by_schedule = sorted(story, key=lambda one: one.schedule_id)
    return [
        one
        for before, one in pairwise(by_schedule)
        if (before.schedule_id, before.what, one.what) == (one.schedule_id, "begin", "begin")
        and before.scheduled_for != one.scheduled_for
    ]


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_occurrence_of_every_shard_fires_once_through_deaths_of_engines(seed: int) -> None:
    plan = Plan.drawn(seed, SHARDS, SCHEDULES)
    shards = await live(plan)
    repeats = 0
    for number, shard in enumerate(shards):
        begun, ended, expected = counted(shard, "begin"), counted(shard, "end"), wanted(plan, number)
        assert expected, "a shard without work proves nothing"
        assert ended == Counter(dict.fromkeys(expected, 1))
        # a run begins again only where the engine that had it in hand has died
        assert begun == ended + shard.cut_off
        assert overlaps(shard.story) == []
        assert await shard.verified() == []
        repeats += shard.cut_off.total()
    assert repeats > 5, "deaths that hit no run prove nothing"
    shares = Counter(one.engine for shard in shards for one in shard.story)
    assert min(shares.values()) > 0.1 * shares.total()


async def test_without_a_rescue_the_same_life_loses_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above looks for can be found."""

    async def nothing(*_: Any, **__: Any) -> Rescue:
        return Rescue(0, [])

    monkeypatch.setattr(MemoryEngines, "rescue", nothing)
    plan = Plan.drawn(1, 2, SCHEDULES // 4)
    shards = await live(plan)
    lost = [key for number, shard in enumerate(shards) for key in wanted(plan, number) - counted(shard, "end").keys()]
    assert lost


async def test_the_load_spreads_over_the_shards() -> None:
    plan = Plan.drawn(3, SHARDS, 4_000)
    shares = Counter(shard_of(one.schedule_id, SHARDS) for one in plan.schedules)
    even = len(plan.schedules) / SHARDS
    assert [shard for shard in range(SHARDS) if abs(shares[shard] - even) > 5 * even**0.5] == []


async def test_a_shard_that_is_down_touches_no_other() -> None:
    plan = Plan.drawn(4, SHARDS, SCHEDULES)
    lost, begin, end = 5, 200.0, 800.0
    undisturbed, disturbed = await live(plan), await live(plan, (lost, begin, end))
    for number in range(SHARDS):
        if number != lost:
            assert disturbed[number].story == undisturbed[number].story
    away = disturbed[lost]
    assert await away.verified() == []
    silence = [one for one in away.story if begin < (one.at - START).total_seconds() < end]
    assert silence == []
    # it goes on by itself: what came while nothing was up is missed, as its schedules have asked for, and nothing else
    begun = counted(away, "begin")
    back = START + timedelta(seconds=end)
    assert {key for key in wanted(plan, lost) if key[1] > back} <= begun.keys()
    assert max(begun.values()) <= 2
