"""Several shards on manual time: each is a ledger of its own in memory, with engines that share its lane and may die.

`live(plan)` creates the schedules where `shard_of` says, lets the engines run, kills and replaces them by the plan, and
brings everything to rest. What is drawn for a shard is drawn from the seed and its number, and all of it happens on one
clock: two lives with the same plan for a shard have the same story of it, whatever becomes of the others.

An engine that dies takes its handle on the store with it. What it had begun goes on in this process, as nothing else
ends a coroutine, but it is heard no more.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from noonbell.core.shards import shard_of
from noonbell.ledger import verify_store
from noonbell.schedules import Call, Schedules
from noonbell.store.memory import MemoryData, MemoryStore
from noonbell.testing import ManualClock

START: Final = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)
MINUTES: Final = 24
REST: Final = timedelta(minutes=2)
ENGINES: Final = 2
# Each leaves time for a run that is cut off to end before the next one of its schedule.
RHYTHMS: Final = (3, 4, 6, 12)
LASTING: Final = (0.0, 0.0, 1.0, 5.0, 20.0)


class Wanted(NamedTuple):
    """A schedule, and what becomes of its runs."""

    schedule_id: str
    every: int  # minutes
    seconds: float


class Death(NamedTuple):
    """An engine dies, and another takes its place."""

    at: float  # seconds after the start
    engine: int
    back_after: float


class Told(NamedTuple):
    """What a callback says of itself."""

    at: datetime
    what: str  # begin, end
    schedule_id: str
    scheduled_for: datetime
    engine: int


@dataclass
class Plan:
    """What is created, and who dies when."""

    seed: int
    shards: int
    schedules: list[Wanted] = field(default_factory=list)
    deaths: dict[int, list[Death]] = field(default_factory=dict)  # by shard

    @classmethod
    def drawn(cls, seed: int, shards: int, schedules: int) -> Plan:
        plan = cls(seed, shards)
        for number in range(schedules):
            lot = random.Random(f"{seed} schedule {number}")
            plan.schedules.append(Wanted(f"{seed}-{number}", lot.choice(RHYTHMS), lot.choice(LASTING)))
        for shard in range(shards):
            plan.deaths[shard] = list(_deaths(random.Random(f"{seed} shard {shard}")))
        return plan

    def occurrences(self, wanted: Wanted) -> list[datetime]:
        """Those that come while there is time for them, by walking the minutes."""
        minutes = (START.replace(second=0) + timedelta(minutes=number) for number in range(1, MINUTES + 1))
        return [at for at in minutes if at.minute % wanted.every == 0]


def _deaths(lot: random.Random) -> list[Death]:
    """One after the other: while one of a shard is away, the rest of it stays."""
    found: list[Death] = []
    at = lot.uniform(30, 240)
    while at < 60 * MINUTES:
        # often just after a minute has begun, when runs are in hand
        moment = at - at % 60 + 30 + lot.choice((0.5, 2, 10)) if lot.random() < 0.6 else at
        found.append(Death(moment, lot.randrange(ENGINES), lot.choice((0.0, 3.0, 45.0))))
        at = moment + 60 + lot.uniform(30, 400)
    return found


class EngineProcess:
    """One engine, from its start to its death."""

    def __init__(self, shard: Shard, number: int) -> None:
        self.alive = True
        self.in_hand: Counter[tuple[str, datetime]] = Counter()
        self._shard = shard
        self._number = number
        self._store = MemoryStore(shard.data)
        self._schedules = Schedules(
            self._store, clock=shard.clock, callbacks={"work": self._work}, longest_wait=timedelta(minutes=1)
        )

    async def start(self) -> None:
        await self._schedules.start()

    async def _work(self, call: Call) -> None:
        key = (call.schedule_id, call.scheduled_for)
        self._tell("begin", call)
        self.in_hand[key] += 1
        await self._shard.clock.sleep(call.payload)
        self.in_hand[key] -= 1
        self._tell("end", call)

    def _tell(self, what: str, call: Call) -> None:
        if self.alive:
            told = Told(self._shard.clock.at, what, call.schedule_id, call.scheduled_for, self._number)
            self._shard.story.append(told)

    def die(self) -> asyncio.Task[bool]:
        self.alive = False
        self._shard.cut_off.update(+self.in_hand)
        self._store.kill()
        return asyncio.create_task(self._schedules.stop())

    async def stop(self) -> None:
        self.alive = False
        await self._schedules.stop()


class Shard:
    """One ledger and its engines."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.data = MemoryData()
        self.story: list[Told] = []
        self.cut_off: Counter[tuple[str, datetime]] = Counter()  # runs that were in the hand of one that died
        self.engines: dict[int, EngineProcess] = {}
        self.graves: list[asyncio.Task[bool]] = []

    async def create(self, wanted: list[Wanted]) -> None:
        schedules = Schedules(MemoryStore(self.data), clock=self.clock)
        await schedules.open()
        await schedules.create_many(
            {
                "schedule_id": one.schedule_id,
                "type": "cron",
                "spec": f"*/{one.every} * * * *",
                "action": {"kind": "callback", "name": "work"},
                "payload": one.seconds,
            }
            for one in wanted
        )

    async def hire(self, number: int) -> None:
        self.engines[number] = EngineProcess(self, number)
        await self.engines[number].start()

    def bury(self, number: int) -> None:
        """One engine dies, where it lives."""
        engine = self.engines.pop(number, None)
        if engine is not None:
            self.graves.append(engine.die())

    async def verified(self) -> list[str]:
        store = MemoryStore(self.data)
        await store.open()
        return [problem.text for problem in (await verify_store(store)).problems]


async def live(plan: Plan, down: tuple[int, float, float] | None = None) -> list[Shard]:
    """One life. `down` is a shard that has no engine from one second to another, whatever its plan says."""
    clock = ManualClock(START)
    shards = [Shard(clock) for _ in range(plan.shards)]
    for number, shard in enumerate(shards):
        await shard.create([one for one in plan.schedules if shard_of(one.schedule_id, plan.shards) == number])
        for engine in range(ENGINES):
            await shard.hire(engine)
    for at, number, engine, dies in _moments(plan, down):
        await clock.advance(START + timedelta(seconds=at) - clock.at)
        if dies:
            shards[number].bury(engine)
        else:
            await shards[number].hire(engine)
    await clock.advance(START + timedelta(minutes=MINUTES) + REST - clock.at)
    endings = [asyncio.create_task(engine.stop()) for shard in shards for engine in shard.engines.values()]
    endings += [asyncio.create_task(_ended(grave)) for shard in shards for grave in shard.graves]
    while not all(ending.done() for ending in endings):
        await clock.advance(timedelta(seconds=10))
    await asyncio.gather(*endings)
    return shards


async def _ended(grave: asyncio.Task[bool]) -> None:
    await grave


def _moments(plan: Plan, down: tuple[int, float, float] | None) -> list[tuple[float, int, int, bool]]:
    """Deaths and returns of all shards: when, where, which engine, and whether it dies."""
    found: list[tuple[float, int, int, bool]] = []
    for shard, deaths in plan.deaths.items():
        if down is not None and shard == down[0]:
            _, begin, end = down
            found += [
                (at, shard, engine, dies) for engine in range(ENGINES) for at, dies in ((begin, True), (end, False))
            ]
            continue
        for death in deaths:
            found.append((death.at, shard, death.engine, True))
            found.append((death.at + death.back_after, shard, death.engine, False))
    return sorted(found, key=lambda moment: (moment[0], not moment[3], moment[1], moment[2]))
