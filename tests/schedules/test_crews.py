"""Random lives of a crew: engines come, go and die on one lane, while one of them at least is always there.

The judge knows nothing of the store: it reads who called what, and when. A run is called again only where its engine
has died over it; two calls of one schedule are never under way at engines that are alive; and since the lane was up all
the time, no occurrence was missed.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

import pytest

from noonbell.ledger import verify_store
from noonbell.schedules import Call, Schedules
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock

START = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)
ACTION = {"kind": "callback", "name": "work"}
SCHEDULES = 6
MINUTES = 14


@pytest.fixture(autouse=True, scope="module")
def _calm() -> None:
    """Nothing is calmed here: the watch over the other engines is what is tested."""


class Called(NamedTuple):
    """A call that has begun."""

    run_id: str
    schedule_id: str
    engine: int


class CrewOfChance:
    """Engines by number; each is a process of its own as far as the data can tell."""

    def __init__(self, seed: int) -> None:
        self.lot = random.Random(seed)
        self.clock = ManualClock(START)
        self.problems: list[str] = []
        self.calls: list[Called] = []
        self.dead: set[int] = set()
        self._data = MemoryStore().data
        self._under_way: defaultdict[str, set[Called]] = defaultdict(set)
        self._crew: dict[int, tuple[MemoryStore, Schedules]] = {}
        self._ending: list[asyncio.Task[bool]] = []
        self._numbers = iter(range(1000))

    async def join(self) -> Schedules:
        number, store = next(self._numbers), MemoryStore(self._data)
        # a coroutine function: a plain one would begin in a thread, whenever that comes to run
        made = Schedules(store, clock=self.clock, callbacks={"work": partial(self._work, number)})
        self._crew[number] = (store, made)
        await made.open()
        await made.start()
        return made

    async def _work(self, number: int, call: Call) -> None:
        called = Called(call.run_id, call.schedule_id, number)
        beside = [one for one in self._under_way[call.schedule_id] if one.engine not in self.dead]
        if beside:
            self.problems.append(f"{called} began beside {beside}")
        self.calls.append(called)
        self._under_way[call.schedule_id].add(called)
        await self.clock.sleep(self.lot.choice((0.5, 5, 20, 70)))
        self._under_way[call.schedule_id].discard(called)

    def leave(self, *, dying: bool) -> None:
        number = self.lot.choice(sorted(self._crew))
        store, made = self._crew.pop(number)
        if dying:
            self.dead.add(number)
            store.kill()
        self._ending.append(asyncio.create_task(made.stop(timedelta(seconds=0 if dying else 200))))

    async def live(self) -> None:
        face = await self.join()
        for n in range(SCHEDULES):
            await face.create(schedule_id=f"s{n}", type="cron", spec="* * * * *", action=ACTION, catch_up_policy="skip")
        until = self.clock.now() + MINUTES * 60_000_000
        while self.clock.now() < until:
            await self.clock.advance(timedelta(seconds=self.lot.choice((1, 7, 20, 40))))
            if len(self._crew) < 3 and self.lot.random() < 0.6:
                await self.join()
            elif len(self._crew) > 1:
                self.leave(dying=self.lot.random() < 0.7)

    async def end(self) -> MemoryStore:
        """Nothing new comes due; what is in hand, or was in the hands of the dead, comes to its end."""
        store, face = next(iter(self._crew.values()))
        for n in range(SCHEDULES):
            await face.pause(f"s{n}")
        await self.clock.advance(timedelta(minutes=15))
        self._ending += [asyncio.create_task(face.stop()) for _, face in self._crew.values()]
        while not all(task.done() for task in self._ending):
            await self.clock.advance(timedelta(minutes=1))
        await asyncio.gather(*self._ending)
        return store


@pytest.mark.parametrize("seed", range(3))
async def test_a_crew_that_comes_and_goes_misses_and_repeats_nothing(seed: int) -> None:
    crew = CrewOfChance(seed)
    await crew.live()
    store = await crew.end()
    assert crew.problems == []
    assert len({one.engine for one in crew.calls}) > 2
    by_run: defaultdict[str, list[Called]] = defaultdict(list)
    for one in crew.calls:
        by_run[one.run_id].append(one)
    again = [calls for calls in by_run.values() if len(calls) > 1]
    for calls in again:
        assert all(one.engine in crew.dead for one in calls[:-1]), f"{calls} though nobody died"
    face = Schedules(store, clock=crew.clock)
    assert (await face.audit(event="schedule.missed")).items == []
    report = await verify_store(store)
    assert report.problems == []
    assert await store.read("live", None, 10) == []
    ended = await store.read("runs", None, 10_000)
    assert {f"s{row[0] - 1}:{row[2]}:{row[1]}" for row in ended} == set(by_run)
    assert {row[3] for row in ended} <= {"succeeded", "abandoned"}
