"""The process dies just before or just after any write: nothing is lost, and what repeats carries the same run id."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from noonbell.errors import StoreUnavailableError
from noonbell.ledger import verify_store
from noonbell.ports import Ledger
from noonbell.schedules import Schedules
from tests.schedules.conftest import World, new_dsn, store_maker
from tests.store.overriding import find_verb

WRITES = (
    "runs.claim", "runs.settle", "engines.rescue", "schedules.apply", "engines.beat", "engines.leave", "runs.hand_back",
)  # fmt: skip


class Fuse:
    """Counts writes over all handles on the data, and kills the store at one of them."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.left = at
        self.after = after
        self.blown: str | None = None
        self.lit = False  # writes count from then on

    def arm(self, store: Ledger) -> Ledger:
        for path in WRITES:
            part, name = find_verb(store, path)
            setattr(part, name, self._guard(store, path, getattr(part, name)))
        return store

    def _guard(self, store: Ledger, name: str, verb: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        async def guarded(*args: Any, **more: Any) -> Any:
            steady = name == "engines.beat" and args[0].event is None  # the heartbeats between the steps of a life
            if self.blown is not None or not self.lit or steady:
                return await verb(*args, **more)
            self.left -= 1
            if self.left > 0:
                return await verb(*args, **more)
            self.blown = name
            if self.after:
                await verb(*args, **more)
            store.kill()
            raise StoreUnavailableError("the process is gone")

        return guarded


class Life:
    """Six minutes of a schedule that fails once and is edited half-way; restarted where it dies."""

    def __init__(self, make: Callable[[], Ledger], fuse: Fuse) -> None:
        self.fuse = fuse
        self.world = World(lambda: fuse.arm(make()), longest_wait=timedelta(minutes=1))
        self.died = False

    async def lead(self) -> str:
        world = self.world
        await world.schedules.open()
        key = await world.create(catch_up_policy="run_once", retry={"attempts": 3, "delay_seconds": 7})
        self.fuse.lit = True
        world.failures = 1
        world.duration = timedelta(seconds=10)
        await self.begin()
        await self.minutes(3)
        while (await world.schedules.get(key)).spec == "* * * * *":
            with contextlib.suppress(StoreUnavailableError):
                await world.schedules.update(key, spec="*/2 * * * *")
            await self.minutes(0.5)
        await self.minutes(3)
        await self.end(world.schedules)
        await self.mend()  # it may have died of stopping
        await self.end(world.schedules)
        return key

    async def begin(self) -> None:
        with contextlib.suppress(StoreUnavailableError):
            await self.world.schedules.start()
        await self.mend()

    async def minutes(self, minutes: float) -> None:
        for _ in range(round(minutes * 4)):
            await self.world.clock.advance(timedelta(seconds=15))
            await self.mend()

    async def mend(self) -> None:
        """If the process has died, the next one takes its place."""
        if self.fuse.blown is None or self.died:
            return
        self.died = True
        left, self.world.schedules = self.world.schedules, self.world._new()
        await self.end(left)
        await self.world.schedules.open()
        await self.world.schedules.start()

    async def end(self, schedules: Schedules) -> None:
        stopping = asyncio.get_running_loop().create_task(schedules.stop())
        while not stopping.done():
            await self.world.clock.advance(timedelta(seconds=15))
        await stopping


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("block", range(3))
async def test_a_crash_at_any_write_loses_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, block: int, *, after: bool
) -> None:
    # on a real server every other one: the verbs are the same, and it is the slowest
    last, step = 20, 2 if kind == "postgres" else 1  # so many writes there are
    for at in range(1 + block * 8 + after * (step - 1), min(9 + block * 8, last + 1), step):
        folder = tmp_path / str(at)
        folder.mkdir()
        fuse = Fuse(at, after=after)
        life = Life(store_maker(kind, folder, await new_dsn(request, kind)), fuse)
        key = await life.lead()
        world = life.world
        assert fuse.blown is not None, "a crash that never happens proves nothing"
        page = await world.schedules.occurrences(key, limit=1000)
        items = list(page.items)
        while items[-1].verdict == "pending":  # it came while the last engine was stopping
            items.pop()
        times = [one.scheduled_for for one in items]
        assert len(times) == len(set(times))
        first, edited = times[0], (await world.schedules.get(key)).updated_at
        expected = [first + timedelta(minutes=n) for n in range(60) if first + timedelta(minutes=n) <= edited]
        assert times[: len(expected)] == expected
        assert all(at.minute % 2 == 0 for at in times[len(expected) :])
        assert all(one.verdict in ("fired", "coalesced") for one in items)
        assert all(one.state == "succeeded" for one in items if one.verdict == "fired")
        assert (await verify_store(world.store)).problems == []
        # beyond the one retry, a run is repeated only if the crash cut it off: the one or two in hand by then
        repeats = Counter(call.run_id for call in world.calls)
        assert sum(repeats.values()) - len(repeats) <= 2
        await world.store.close()
