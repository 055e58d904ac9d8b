"""Random lives of durable schedules: every kind and policy, edits, downtimes, crashes, failures, people and pruning.

A life is made by its seed. The real Schedules live it on manual time, on whatever store it is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from noonbell.errors import NoonbellError
from tests.schedules.conftest import World

BEGIN = datetime(2026, 3, 27, 20, 0, tzinfo=UTC)  # two days before the clocks of Europe go forward
DAYS = list(range(7))
KINDS = ("cron", "interval", "one_shot")
DAY_US = 86_400_000_000


class Life:
    """One world, and what befalls it."""

    def __init__(self, world: World, seed: int, *, prunes: bool = True) -> None:
        self.world = world
        self.random = Random(seed)
        self.prunes = prunes
        self.keys: list[str] = []
        self.told: list[str] = []

    async def begin(self) -> None:
        await self.world.schedules.open()
        await self.world.schedules.create_quiet_hours("calm", self.windows(), policy_id="q")
        for kind in (*KINDS, self.random.choice(KINDS)):
            await self.create(kind)
        await self.world.schedules.start()
        await self.world.clock.settle()

    async def live(self, steps: int) -> None:
        names = ["passes"] * 6 + ["sleeps", "edits", "edits", "edits", "quiets", "restarts", "crashes", "works"]
        names += ["triggers", "creates", "deletes"] + ["forgets"] * 2 * self.prunes
        for _ in range(steps):
            name = self.random.choice(names)
            self.told.append(f"{self.now:%d %H:%M:%S} {name}")
            await getattr(self, name)()
            await self.world.clock.settle()

    async def end(self) -> None:
        """Let what is under way come to its end, and stop."""
        self.world.duration, self.world.failures = timedelta(0), 0
        await self.stop()
        await self.world.store.close()

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.world.clock.now() / 1_000_000, UTC)

    # --- what may happen ----------------------------------------------------------------------------------------------

    async def passes(self) -> None:
        await self.world.clock.advance(timedelta(seconds=self.random.choice([30, 90, 300, 1800, 7200])))

    async def sleeps(self) -> None:
        await self.world.clock.jump(timedelta(minutes=self.random.choice([3, 40, 600, 2000, 4000])))

    async def edits(self) -> None:
        if not self.keys:
            return
        key = self.random.choice(self.keys)
        kind = (await self.world.schedules.get(key)).type
        change = self.random.choice(["enabled", "spec", *self.policies()])
        fields = {"enabled": self.random.random() < 0.6, "spec": self.spec(kind), **self.policies()}
        await self.try_to(self.world.schedules.update(key, **{change: fields[change]}))

    async def quiets(self) -> None:
        await self.world.schedules.update_quiet_hours("q", windows=self.windows())

    async def restarts(self) -> None:
        await self.stop()
        await self.world.clock.advance(timedelta(minutes=self.random.choice([0, 2, 30, 1000])))
        if self.random.random() < 0.3:
            await self.edits()
        await self.world.schedules.start()

    async def stop(self) -> None:
        await self.meanwhile(self.world.schedules.stop())

    async def meanwhile(self, ending: Coroutine[Any, Any, object]) -> None:
        """Callbacks sleep on the manual clock, so it has to go on while their end is waited for."""
        task = asyncio.get_running_loop().create_task(ending)
        while not task.done():
            await self.world.clock.advance(timedelta(minutes=1))
        await task

    async def crashes(self) -> None:
        await self.meanwhile(self.world.crash())
        await self.world.clock.advance(timedelta(minutes=self.random.choice([0, 1, 20, 3000])))
        await self.world.schedules.start()

    async def works(self) -> None:
        self.world.duration = timedelta(seconds=self.random.choice([0, 0, 20, 90, 700]))
        self.world.failures = self.random.choice([0, 0, 1, 3])

    async def triggers(self) -> None:
        if self.keys:
            queue, retry = self.random.random() < 0.5, self.random.random() < 0.8
            await self.try_to(self.world.schedules.trigger(self.random.choice(self.keys), queue=queue, retry=retry))

    async def creates(self) -> None:
        await self.create(self.random.choice(KINDS))

    async def deletes(self) -> None:
        if len(self.keys) > 3 and self.random.random() < 0.3:
            await self.world.schedules.delete(self.keys.pop(self.random.randrange(len(self.keys))))

    async def forgets(self) -> None:
        for _ in range(self.random.choice([1, 5])):
            await self.world.store.prune_day(self.world.clock.now() - self.random.choice([0, DAY_US]))

    # --- fields -------------------------------------------------------------------------------------------------------

    async def create(self, kind: str) -> None:
        fields = {name: value for name, value in self.policies().items() if self.random.random() < 0.5}
        key = f"{kind}-{len(self.told)}-{len(self.keys)}"
        made = await self.try_to(
            self.world.create(schedule_id=key, name=key, type=kind, spec=self.spec(kind), **fields)
        )
        if made is not None:
            self.keys.append(made)

    def spec(self, kind: str) -> str:
        if kind == "cron":
            return self.random.choice(["* * * * *", "*/15 * * * *", "30 1,2,3 * * *", "0 */4 * * *"])
        if kind == "interval":
            return str(self.random.choice([20, 60, 600, 5400, 40000]))
        return (self.now + timedelta(seconds=self.random.choice([40, 600, 9000, 90000]))).isoformat()

    def policies(self) -> dict[str, Any]:
        pick, now = self.random.choice, self.now
        return {
            "timezone": pick(["UTC", "Europe/Berlin", "Asia/Kathmandu"]),
            "catch_up_policy": pick(["skip", "run_once", "run_all_capped"]),
            "catch_up_cap": pick([1, 3, 10]),
            "overlap": pick(["coalesce", "skip", "allow"]),
            "retry": {"attempts": pick([1, 3]), "delay_seconds": pick([1, 200]), "strategy": "fixed"},
            "retry_vs_new": pick(["finish", "preempt"]),
            "dst": pick(["literal", "once"]),
            "jitter_seconds": pick([0, 45, 400]),
            "start_at": pick([None, (now + timedelta(seconds=pick([100, 5000]))).isoformat()]),
            "end_at": pick([None, (now + timedelta(seconds=pick([7000, 200000]))).isoformat()]),
            "at_most_once": pick([False, True]),
            "quiet_hours_policy_id": pick([None, "q"]),
        }

    def windows(self) -> list[dict[str, Any]]:
        begin = self.random.randrange(24)
        end = (begin + self.random.randrange(1, 8)) % 24
        return [{"weekdays": DAYS, "from": f"{begin:02}:00", "to": f"{end:02}:00", "timezone": "Europe/Berlin"}]

    async def try_to(self, asked: Any) -> Any:
        try:
            return await asked
        except NoonbellError as error:  # such as a one-shot that is over, or a run that is under way
            self.told.append(f"  refused: {error}")
            return None
