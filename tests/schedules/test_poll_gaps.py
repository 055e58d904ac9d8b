"""Stretches without a poll of the lane: what they leave in the ledger, and what is said of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from noonbell.engine import execution
from noonbell.engine import lane_jobs as engine_lane
from noonbell.errors import StoreUnavailableError
from noonbell.ledger import verify_store, why_schedule
from noonbell.ports import ScheduleFilter
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from tests.patience import until
from tests.schedules.conftest import IN_EARNEST, World
from tests.store.overriding import Overriding

LONGEST_WAIT = IN_EARNEST
MINUTES = [f"12:{minute:02}" for minute in range(60)]


class Unreachable(Overriding, MemoryStore):
    """A store that fails while `away` is set."""

    away = False

    async def runs_claim(self, *args: Any, **more: Any) -> Any:
        if self.away:
            raise StoreUnavailableError("The database is away")
        return await self.plain.runs.claim(*args, **more)

    async def engines_beat(self, *args: Any) -> None:
        if self.away:
            raise StoreUnavailableError("The database is away")
        await self.plain.engines.beat(*args)


@pytest.fixture
async def away() -> AsyncIterator[World]:
    world = World(Unreachable, longest_wait=IN_EARNEST)
    await world.schedules.open()
    yield world
    await world.schedules.stop()


async def explained(world: World, key: str, minute: int) -> str:
    (stored,) = await world.store.schedules.find(ScheduleFilter(schedule_ids=[key]))
    at = datetime(2026, 3, 4, 12, minute, tzinfo=UTC)
    return (await why_schedule(world.store, stored.sid, at, now=world.clock.now())).text


@pytest.mark.parametrize(
    ("policy", "verdicts"),
    [
        ("skip", ["missed"] * 4),
        ("run_once", ["coalesced"] * 4),
        ("run_all_capped", ["fired", "fired", "missed", "missed"]),
    ],
)
async def test_an_outage_of_the_store_is_caught_up_by_the_policy(away: World, policy: str, verdicts: list[str]) -> None:
    key = await away.create(catch_up_policy=policy, catch_up_cap=2)
    await away.schedules.start()
    await away.minutes(1)
    assert isinstance(away.store, Unreachable)
    away.store.away = True
    await away.minutes(5)
    away.store.away = False
    await away.minutes(0.4)
    assert await away.told(key) == [
        ("12:01", "fired"), *zip(MINUTES[2:6], verdicts, strict=True), ("12:06", "fired"),
    ]  # fmt: skip
    assert (await verify_store(away.store)).problems == []


async def test_within_the_grace_an_outage_misses_nothing(away: World) -> None:
    key = await away.create(catch_up_policy="skip")
    await away.schedules.start()
    await away.minutes(1)
    assert isinstance(away.store, Unreachable)
    away.store.away = True
    await away.minutes(1.4)
    away.store.away = False
    await away.minutes(1)
    assert await away.told(key) == [("12:01", "fired"), ("12:02", "fired"), ("12:03", "fired")]


async def test_between_two_gaps_a_run_in_the_way_makes_late_and_not_missed(world: World) -> None:
    """One run lasts through two freezes; what came between them was polled for, and is late."""
    key = await world.create(catch_up_policy="skip")
    await world.schedules.start()
    world.duration = timedelta(minutes=30)
    await world.minutes(1)
    for _ in range(2):
        await world.clock.jump(timedelta(minutes=5))
        await world.minutes(5)
    world.duration = timedelta(0)
    await world.minutes(15)
    found = dict(await world.told(key))
    assert found["12:01"] == "fired"
    missed = [at for at, verdict in found.items() if verdict == "missed"]
    assert missed == [*MINUTES[2:6], *MINUTES[12:16]]
    assert {found[at] for at in MINUTES[7:11]} == {"coalesced"}
    assert (await verify_store(world.store)).problems == []


async def test_a_gap_is_explained(world: World) -> None:
    key = await world.create(catch_up_policy="skip")
    await world.schedules.start()
    await world.minutes(1)
    await world.clock.jump(timedelta(minutes=10))
    await world.minutes(1)
    told = await explained(world, key, 5)
    assert "was missed" in told
    assert "no poll completed between 12:01" in told
    assert "12:11:30" in told
    assert "event loop blocked, or the database unreachable" in told
    assert "its catch-up policy is skip" in told


async def test_what_is_recorded_as_missed_though_it_was_polled_for_is_a_problem() -> None:
    world = World(MemoryStore, longest_wait=IN_EARNEST)
    await world.schedules.open()
    key = await world.create(catch_up_policy="skip")
    await world.schedules.start()
    await world.minutes(1)
    await world.clock.jump(timedelta(minutes=10))
    await world.minutes(1)
    assert (await verify_store(world.store)).problems == []
    assert isinstance(world.store, MemoryStore)
    polls = world.store.data.lanes["default"]
    shorter = polls.gaps[-1]._replace(until=polls.gaps[-1].until - 300_000_000)
    world.store.data.lanes["default"] = replace(polls, gaps=(*polls.gaps[:-1], shorter))
    (problem,) = (await verify_store(world.store)).problems
    assert (problem.kind, problem.schedule) == ("missed", key)
    assert "is recorded as missed, but its lane was polled in time" in problem.text
    await world.schedules.stop()


async def test_a_longer_wait_between_polls_is_a_longer_grace() -> None:
    """Else a schedule that another process creates would be missed before the next poll."""
    world = World(MemoryStore, longest_wait=timedelta(minutes=10))
    await world.schedules.open()
    await world.schedules.start()
    await world.minutes(1)
    elsewhere = world.another_store()
    await elsewhere.open()
    key = await world.create(catch_up_policy="skip", spec="3 12 * * *")
    assert world.schedules._lane.engine is not None
    world.schedules._lane.engine._loop._woken_for = 1 << 62  # the hint of the creation is lost
    await world.minutes(15)
    assert await world.told(key) == [("12:03", "fired")]
    await world.schedules.stop()


class Locked(Overriding, MemoryStore):
    """A store that lets a claim wait for a lock before it reads."""

    wait: Any = None

    async def runs_claim(self, *args: Any, **more: Any) -> Any:
        if self.wait is not None:
            await self.wait()
        return await self.plain.runs.claim(*args, **more)


@pytest.mark.parametrize("seconds", [61, 90])
async def test_a_poll_that_waits_for_a_lock_beyond_the_grace_comes_too_late(seconds: int) -> None:
    world = World(Locked, longest_wait=IN_EARNEST)
    await world.schedules.open()
    key = await world.create(catch_up_policy="skip")
    await world.schedules.start()
    await world.minutes(0.4)
    assert isinstance(world.store, Locked)
    world.store.wait = lambda: world.clock.sleep(seconds)
    await world.minutes(0.2)  # the poll begins, and waits
    world.store.wait = None
    await world.minutes(3)
    assert (await world.told(key))[0] == ("12:01", "missed")
    assert {verdict for _, verdict in (await world.told(key))[1:]} == {"fired"}
    assert (await verify_store(world.store)).problems == []
    await world.schedules.stop()


async def test_a_clock_that_was_ahead_leaves_nothing_missed_behind() -> None:
    world = World(MemoryStore, longest_wait=IN_EARNEST)
    await world.schedules.open()
    await world.schedules.start()
    await world.minutes(1)
    world.clock.step(timedelta(minutes=50))
    await world.minutes(1)  # a poll by the wrong clock records a gap
    world.clock.step(timedelta(minutes=-50))
    key = await world.create(catch_up_policy="skip")
    await world.minutes(10)
    assert {verdict for _, verdict in await world.told(key)} == {"fired"}
    await world.schedules.stop()


class Forgetful(Overriding, MemoryStore):
    """A store that fails to record a gap."""

    fails = 0

    async def engines_record_gaps(self, *args: Any) -> Any:
        if self.fails:
            self.fails -= 1
            raise StoreUnavailableError("not now")
        return await self.plain.engines.record_gaps(*args)


async def test_a_gap_that_could_not_be_recorded_at_once_holds_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_lane, "FIRST_BATCH", 1)
    world = World(Forgetful, longest_wait=IN_EARNEST)
    await world.schedules.open()
    keys = [await world.create(catch_up_policy="skip") for _ in range(3)]
    await world.schedules.start()
    await world.minutes(1)
    assert isinstance(world.store, Forgetful)
    world.store.fails = 2
    await world.clock.jump(timedelta(minutes=5))
    await world.minutes(1)
    for key in keys:
        found = dict(await world.told(key))
        assert {found[at] for at in MINUTES[2:6]} == {"missed"}
    assert (await verify_store(world.store)).problems == []
    assert len((await world.store.engines.polls())["default"].gaps) == 2
    await world.schedules.stop()


async def test_two_gaps_that_could_not_be_recorded_at_once_are_both_recorded() -> None:
    world = World(Forgetful, longest_wait=IN_EARNEST)
    await world.schedules.open()
    key = await world.create(catch_up_policy="skip")
    await world.schedules.start()
    await world.minutes(1)
    assert isinstance(world.store, Forgetful)
    world.store.fails = 2
    await world.clock.jump(timedelta(minutes=5))
    await world.clock.jump(timedelta(minutes=5))
    await world.minutes(1)
    found = dict(await world.told(key))
    assert {found[at] for at in (*MINUTES[2:6], *MINUTES[7:11])} == {"missed"}
    assert (await verify_store(world.store)).problems == []
    assert len((await world.store.engines.polls())["default"].gaps) == 3, "and the one before the first poll"
    await world.schedules.stop()


class ForgetfulFile(Overriding, SqliteStore):
    """A file that fails to record a gap."""

    fails = False

    async def engines_record_gaps(self, *args: Any) -> Any:
        if self.fails:
            raise StoreUnavailableError("not now")
        return await self.plain.engines.record_gaps(*args)


async def test_a_gap_that_was_not_recorded_before_the_engine_died_is_recorded_by_the_next(tmp_path: Path) -> None:
    """No sign of life shows a poll after a gap that is not on record."""
    world = World(lambda: ForgetfulFile(tmp_path / "x.db"), longest_wait=IN_EARNEST)
    await world.schedules.open()
    key = await world.create(catch_up_policy="skip")
    await world.schedules.start()
    await world.minutes(1)
    assert isinstance(world.store, ForgetfulFile)
    world.store.fails = True
    await world.clock.jump(timedelta(minutes=5))
    await world.minutes(1)

    async def missed() -> bool:
        found = dict(await world.told(key))
        return {found.get(at) for at in MINUTES[2:6]} == {"missed"}

    await until(missed)
    assert world.schedules._lane._life is not None
    await world.schedules._lane._life.member.beat("up")
    await world.crash()
    await world.schedules.start()
    await world.minutes(1)
    await until(
        lambda: world.schedules._lane.engine is not None and world.schedules._lane.engine.last_poll_at is not None
    )
    assert (await verify_store(world.store)).problems == []
    await world.schedules.stop()


async def test_a_poll_without_room_ends_a_gap_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "MOST_IN_FLIGHT", 1)
    world = World(MemoryStore, longest_wait=IN_EARNEST)
    await world.schedules.open()
    world.duration = timedelta(minutes=20)
    await world.create(spec="1 12 * * *")
    await world.schedules.start()
    await world.minutes(1)
    key = await world.create(catch_up_policy="skip")
    await world.clock.jump(timedelta(minutes=10))
    world.duration = timedelta(0)
    await world.minutes(15)
    found = dict(await world.told(key))
    assert {found[at] for at in MINUTES[2:11]} == {"missed"}
    assert {found[at] for at in MINUTES[12:20]} == {"coalesced"}, "there was no room, and the lane was polled"
    assert (await verify_store(world.store)).problems == []
    await world.schedules.stop()
