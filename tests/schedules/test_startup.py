"""The start of a lane, step by step: a crash after any of its writes, and the next start does the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from noonbell.errors import StoreUnavailableError
from noonbell.ledger import verify_store
from noonbell.ledger.ledger_rows import lifecycle_of, stored_zone_rules
from noonbell.ports import Ledger
from noonbell.schedules import zone_rules, zone_watch
from tests.schedules.conftest import World
from tests.schedules.zone_files import TOWN, ZoneFolder, zone_folder
from tests.store.overriding import find_verb

# Every write of a start, in order, and the first look: it joins (1), frees what was left and tells the crash before it
# (2), takes three schedules over to new rules in pages of two (3, 4), remembers the rules (5), records that it is up
# (6), and looks (7).
STEPS = (
    "engines.join", "engines.rescue", "schedules.apply", "schedules.apply", "schedules.apply",
    "engines.beat", "runs.claim",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ZoneFolder]:
    monkeypatch.setattr(zone_watch, "_PAGE", 2)
    path = tmp_path / "zoneinfo"
    path.mkdir()
    with zone_folder(path) as made:
        made.put("XXX-2", "2026a")
        yield made


class Watched:
    """Notes the writes of one process, and kills it after one of them."""

    def __init__(self, store: Ledger, last: int | None) -> None:
        self.writes: list[str] = []
        self._store = store
        self._last = last
        for path in set(STEPS):
            part, name = find_verb(store, path)
            setattr(part, name, self._guard(path, getattr(part, name)))

    def _guard(self, name: str, verb: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        async def guarded(*args: Any, **more: Any) -> Any:
            answer = await verb(*args, **more)
            self.writes.append(name)
            if len(self.writes) == self._last:
                self._store.kill()
                raise StoreUnavailableError("the process is gone")
            return answer

        return guarded


class Lives:
    """Lives of one lane, each cut off while runs are executing or while it starts."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._graves: list[asyncio.Task[bool]] = []

    async def next(self, *, dies_after: int | None = None) -> Watched:
        """The process that is there dies; another starts in its place, and may die of a write."""
        world = self.world
        world.store.kill()
        self._graves.append(asyncio.create_task(world.schedules.stop()))
        world.schedules = world._new()
        await world.schedules.open()
        ZoneInfo.clear_cache()
        zone_rules._read.clear()
        watched = Watched(world.store, dies_after)
        try:
            await world.schedules.start()
        except StoreUnavailableError:
            assert dies_after is not None
        await world.clock.settle()
        return watched

    async def end(self) -> None:
        while not all(grave.done() for grave in self._graves):
            await self.world.minutes(1)
        await asyncio.gather(*self._graves)


@pytest.mark.parametrize("step", range(len(STEPS) + 1))
async def test_a_crash_after_any_step_is_as_one_before_it(world: World, folder: ZoneFolder, step: int) -> None:
    lives = Lives(world)
    keys = [await world.create(spec="1 14 * * *", timezone=TOWN, catch_up_policy="run_once") for _ in range(3)]
    minutely = await world.create(catch_up_policy="run_once", timezone="UTC")
    world.duration = timedelta(minutes=5)
    await world.schedules.start()
    await world.minutes(1)  # 12:01 has begun for all four
    folder.put("YYY-1:57", "2026b")  # three minutes later than before
    if step:
        died = await lives.next(dies_after=step)
        assert tuple(died.writes) == STEPS[:step]
    world.duration = timedelta(seconds=2)
    await lives.next()
    await world.minutes(8)
    for key in keys:
        assert await world.told(key) == [("12:01", "fired"), ("12:04", "fired")]
        assert [told["after"] for told in await world.audits(key, "schedule.zone_rules_changed")] == ["2026b"]
        assert (await world.schedules.get(key)).epoch == 2
    runs = [one for key in (*keys, minutely) for one in (await world.schedules.occurrences(key)).items]
    assert all(one.state == "succeeded" for one in runs if one.verdict == "fired")
    verdicts = await world.told(minutely)
    assert [at for at, _ in verdicts] == [f"12:{minute:02}" for minute in range(1, len(verdicts) + 1)]
    assert {verdict for _, verdict in verdicts} <= {"fired", "coalesced"}
    known = zone_rules.Rules.read((await stored_zone_rules(world.store))[TOWN])
    assert known.version == "2026b"
    events = [event.event for event in await lifecycle_of(world.store, "lane:default")]
    assert events[-1] == "init-ok"
    assert events.count("init-ok") == events.count("crash") + 1
    assert (await verify_store(world.store)).problems == []
    assert world.clock.at > datetime(2026, 3, 4, 12, 8, tzinfo=UTC)
    await lives.end()
