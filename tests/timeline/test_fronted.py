"""A store behind a timeline: what is asked of whom, and what happens when Redis is not as it should be."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from noonbell.engine import execution
from noonbell.errors import StoreError, TimelineAwayError, TimelineError
from noonbell.ledger import verify_store
from noonbell.schedules import Schedules
from noonbell.testing import ManualClock
from noonbell.timeline import RedisTimeline, with_timeline
from noonbell.timeline.claiming import HORIZON_US
from noonbell.timeline.keeping import Keeper
from noonbell.timeline.redis_timeline import REPAIR_US
from tests.patience import PATIENCE_SECONDS
from tests.redis_server import PASSWORD, RedisServer
from tests.schedules.conftest import ACTION, new_dsn, store_maker
from tests.schedules.patience import calm_duties
from tests.timeline.world import TimelineWorld

LANE = "default"


@pytest.fixture(autouse=True, scope="module")
def _calm() -> Iterator[None]:
    with calm_duties():
        yield


async def ended(world: TimelineWorld) -> None:
    world.duration = timedelta(0)
    task = asyncio.get_running_loop().create_task(world.schedules.stop())
    while not task.done():
        await world.clock.advance(timedelta(minutes=10))
    await task
    await world.store.close()


@pytest.fixture(params=["memory", "postgres"])
async def world(
    request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer
) -> AsyncIterator[TimelineWorld]:
    maker = store_maker(request.param, tmp_path, await new_dsn(request, request.param))
    made = TimelineWorld(maker, redis_server.url, uuid.uuid4().hex)
    await made.schedules.open()
    yield made
    redis_server.go_on()
    await ended(made)


@pytest.fixture
async def quick(tmp_path: Path, redis_server: RedisServer) -> AsyncIterator[TimelineWorld]:
    """On the memory store alone."""
    made = TimelineWorld(store_maker("memory", tmp_path), redis_server.url, uuid.uuid4().hex, shards=2)
    await made.schedules.open()
    yield made
    redis_server.go_on()
    await ended(made)


def is_whole(world: TimelineWorld) -> bool:
    return world.store.lane(LANE).whole


class Questions:
    """Counts what a store is asked for due rows."""

    def __init__(self, world: TimelineWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kinds: Counter[str] = Counter()
        store = world.store._store
        claim = store.runs.claim

        async def counted(*args: Any, among: Any = None, due_by: Any = None) -> Any:
            self.kinds["among" if among is not None else "all" if due_by is None else "repair"] += 1
            return await claim(*args, among=among, due_by=due_by)

        monkeypatch.setattr(store.runs, "claim", counted)


async def up(world: TimelineWorld) -> None:
    await world.schedules.start()
    await world.clock.advance(timedelta(seconds=2))
    assert is_whole(world)


# --- while all is well ------------------------------------------------------------------------------------------------


async def test_only_the_repair_asks_the_database_for_due_rows(
    world: TimelineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        await world.create(name=uuid.uuid4().hex)
    await up(world)
    asked = Questions(world, monkeypatch)
    await world.minutes(3)
    assert len(world.calls) == 15
    assert asked.kinds["all"] == 0
    assert asked.kinds["repair"] == 90, "every two seconds for three minutes"
    assert asked.kinds["among"] <= 3 + 3, "a claim a minute, and at most one look after the ends"
    counted = world.schedules.timeline
    assert counted is not None
    assert (counted["popped"] >= 15, counted["repaired"], counted["errors"], counted["up"]) == (True, 0, 0, 1)
    assert (await verify_store(world.store)).problems == []


async def test_every_change_reaches_the_set(world: TimelineWorld) -> None:
    await up(world)

    async def members() -> int:
        return (await world.store.timeline.counts(LANE))[0]

    key = await world.create(name="one")
    assert await members() == 1
    await world.schedules.pause(key)
    assert await members() == 0
    await world.schedules.resume(key)
    assert await members() == 1
    await world.minutes(1)
    assert world.called == ["12:01"]
    await world.schedules.update(key, spec="2 12 * * *")
    await world.minutes(1)
    assert world.called == ["12:01", "12:02"]
    await world.schedules.trigger(key)
    await world.clock.settle()
    assert len(world.calls) == 3, "asked for: at once"
    world.failures = 1
    retried = await world.create(name="two", spec="4 12 * * *", retry={"attempts": 2, "delay_seconds": 7})
    await world.minutes(1.5)
    assert world.called[3:] == ["12:04"]
    await world.clock.advance(timedelta(seconds=8))
    assert world.called[3:] == ["12:04", "12:04"], "the retry was woken too"
    await world.schedules.delete(key)
    await world.schedules.delete(retried)
    assert await members() == 0
    counted = world.schedules.timeline
    assert counted is not None
    assert (counted["repaired"], counted["dropped"], counted["errors"]) == (0, 0, 0)
    assert (await verify_store(world.store)).problems == []


async def test_what_wakes_beyond_the_horizon_is_fed_in_time(quick: TimelineWorld) -> None:
    await up(quick)
    await quick.create(spec="17 12 * * *")
    assert await quick.store.timeline.counts(LANE) == (0, 0), "an index of the next minutes, not of everything"
    await quick.minutes(7.5)
    assert await quick.store.timeline.counts(LANE) == (1, 0)
    await quick.minutes(9.2)
    assert quick.called == ["12:17"]
    assert quick.schedules.timeline is not None
    assert quick.schedules.timeline["repaired"] == 0
    assert quick.schedules.timeline["built"] == 1, "it is filled further, not rebuilt"


async def test_a_run_that_takes_longer_than_every_lease_is_called_once(quick: TimelineWorld) -> None:
    quick.duration = timedelta(minutes=3)
    key = await quick.create(spec="1 12 * * *")
    await up(quick)
    await quick.minutes(2)
    assert quick.called == ["12:01"]
    quick.duration = timedelta(0)
    await quick.minutes(5)
    assert quick.called == ["12:01"]
    assert await quick.told(key) == [("12:01", "fired")]


async def test_two_engines_share_a_set_and_nothing_starts_twice(world: TimelineWorld) -> None:
    await up(world)
    second = world.on(world.another())
    await second.start()
    await world.clock.advance(timedelta(seconds=2))
    many = [{"name": f"s{i}", "type": "cron", "spec": "* * * * *", "action": ACTION}
            for i in range(100)]  # fmt: skip
    await world.schedules.create_many(many)  # type: ignore[arg-type]  # plain dicts
    await world.minutes(2)
    fired = Counter((call.schedule_id, call.scheduled_for) for call in world.calls)
    assert len(fired) == 200
    assert set(fired.values()) == {1}
    counted = [one.timeline for one in (world.schedules, second)]
    assert [one is not None and (one["repaired"], one["errors"]) for one in counted] == [(0, 0), (0, 0)]
    await second.stop()
    await second.close()
    await second._store.close()
    assert (await verify_store(world.store)).problems == []


async def test_an_engine_hears_of_what_another_process_creates_sooner(
    quick: TimelineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, listens = quick.store.timeline.link, asyncio.Event()
    hints = link.hints

    @asynccontextmanager
    async def watched(channel: str) -> AsyncIterator[Any]:
        async with hints(channel) as heard:
            assert await heard() is None, "that it has subscribed"
            listens.set()
            yield heard

    monkeypatch.setattr(link, "hints", watched)
    woken: asyncio.Queue[int] = asyncio.Queue()
    stop = asyncio.Event()
    duty = asyncio.create_task(quick.store.services(LANE, woken.put_nowait)["timeline-hints"].run(stop))
    elsewhere = quick.on(quick.another())
    await elsewhere.open()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await listens.wait()
        made = await elsewhere.create(name="x", type="cron", spec="* * * * *", action=ACTION)
        assert made.next_run_at is not None
        assert await woken.get() == int(made.next_run_at.timestamp()) * 1_000_000
        await elsewhere.create(name="y", type="cron", spec="7 * * * *", action=ACTION)
        assert await woken.get() > quick.clock.now(), "the first of the other shard"
        await elsewhere.create(name="z", type="cron", spec="8 * * * *", action=ACTION)
        await elsewhere.trigger(made.schedule_id)
        assert await woken.get() <= quick.clock.now(), "what comes later than the first is no news"
        stop.set()
        await duty
    await elsewhere._store.close()


# --- Redis is not as it should be -------------------------------------------------------------------------------------


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "noonbell.timeline" and one.levelno >= level]


async def test_a_set_that_is_emptied_is_built_anew(quick: TimelineWorld, client: Any) -> None:
    for i in range(20):
        await quick.create(name=f"s{i}")
    await up(quick)
    for _ in range(3):
        await quick.clock.advance(timedelta(seconds=20))
        await client.flushall()
        await quick.clock.advance(timedelta(seconds=40))
    fired = Counter((call.schedule_id, call.scheduled_for) for call in quick.calls)
    assert (len(fired), set(fired.values())) == (60, {1})
    assert is_whole(quick)
    assert quick.schedules.timeline is not None
    assert quick.schedules.timeline["built"] >= 4
    assert (await verify_store(quick.store)).problems == []


@pytest.mark.parametrize("place", [0, 1, 2], ids=["due", "flight", "state"])
async def test_keys_that_hold_something_else_are_built_anew(
    quick: TimelineWorld, client: Any, place: int, caplog: pytest.LogCaptureFixture
) -> None:
    await quick.create()
    await up(quick)
    key = quick.store.timeline.keys(LANE, 1)[place]
    await client.delete(key)
    await client.rpush(key, "a", "list")
    await quick.minutes(3)
    assert quick.called == ["12:01", "12:02", "12:03"]
    assert is_whole(quick)
    assert any("hold values of a wrong type" in line for line in lines(caplog))


async def test_members_that_are_no_schedules_are_told_and_removed(
    quick: TimelineWorld, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "noonbell.timeline")
    asleep = await quick.create(name="asleep")
    await quick.create(name="awake")
    await up(quick)
    await quick.schedules.pause(asleep)
    due, _, _ = quick.store.timeline.keys(LANE, 0)
    wrong = {"word": 0, "4004": 0, **{f"word {i}": 0 for i in range(50)}}
    await client.zadd(due, wrong)
    await client.zadd(quick.store.timeline.keys(LANE, 1)[0], {"1": quick.clock.now() + 1_000_000})
    await quick.minutes(1)
    assert quick.called == ["12:01"]
    assert await quick.store.timeline.counts(LANE) == (1, 0)
    told = lines(caplog, logging.INFO)
    assert [line for line in told if "are not ids" in line] == [
        line for line in told if "51 members of the timeline are not ids" in line and "b'word" in line
    ]
    assert sum("are not ids" in line for line in told) == 1, "one line, however many there are"
    assert sum("not active schedules" in line for line in told) == 1
    assert quick.schedules.timeline is not None
    assert quick.schedules.timeline["dropped"] == 53


async def test_what_redis_was_never_told_is_found_by_the_database(
    world: TimelineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash between the commit and the set, or a program that knows of no timeline."""
    await up(world)
    unaware = Schedules(world.another_store(), clock=world.clock)
    await unaware.open()
    await unaware.create(name="x", type="cron", spec="* * * * *", action=ACTION)
    await unaware._store.close()
    await world.clock.advance(timedelta(seconds=28))
    assert world.called == [], "12:01:00"
    await world.clock.advance(timedelta(seconds=4))
    assert world.called == ["12:01"], "at 12:01:04 at the latest"
    await world.clock.advance(timedelta(seconds=56))
    assert world.called == ["12:01", "12:02"], "from then on it is in the set"
    assert world.schedules.timeline is not None
    assert world.schedules.timeline["repaired"] == 1


async def test_a_function_that_waits_for_a_thread_does_not_hide_what_redis_was_never_told(
    quick: TimelineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "THREAD_SLOTS", 1)
    monkeypatch.setattr(execution, "THREADS_AHEAD", 0)
    gate, began = threading.Event(), threading.Event()

    def hold(call: Any) -> None:
        del call
        began.set()
        gate.wait(PATIENCE_SECONDS)

    quick.schedules.register("hold", hold)
    try:
        await up(quick)
        for name in ("first", "second"):
            await quick.create(name=name, spec="1 12 * * *", action={"kind": "callback", "name": "hold"})
        await quick.minutes(1)
        assert began.wait(PATIENCE_SECONDS)
        unaware = Schedules(quick.another_store(), clock=quick.clock)
        await unaware.open()
        await unaware.create(name="x", type="cron", spec="* * * * *", action=ACTION)
        await unaware._store.close()
        await quick.minutes(2)
        assert quick.called == ["12:02", "12:03"], "it needs no thread"
        assert quick.schedules.timeline is not None
        assert quick.schedules.timeline["repaired"] == 1, "what waits is not lost"
    finally:
        gate.set()


async def test_a_retry_alone_makes_the_repair_ask_for_nothing_that_is_not_due(
    quick: TimelineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick.failures = 1
    await quick.create(spec="1 12 * * *", retry={"attempts": 2, "delay_seconds": 10})
    await up(quick)
    await quick.clock.advance(timedelta(seconds=35))
    claim, asked = quick.store._store.runs.claim, list[int]()

    async def noted(lane: str, owner: str, now: int, *rest: Any, due_by: int | None = None, **more: Any) -> Any:
        asked.extend([] if due_by is None else [due_by - now])
        return await claim(lane, owner, now, *rest, due_by=due_by, **more)

    monkeypatch.setattr(quick.store._store.runs, "claim", noted)
    await quick.clock.advance(timedelta(seconds=10))
    assert quick.called == ["12:01", "12:01"]
    assert set(asked) == {-REPAIR_US}


async def test_a_set_that_was_filled_by_a_clock_far_ahead_is_built_anew(quick: TimelineWorld) -> None:
    await quick.create(spec="*/20 * * * *")
    await up(quick)
    elsewhere = quick.another()
    await elsewhere.open()
    ahead = ManualClock(quick.clock.at + timedelta(hours=3))
    await Keeper(elsewhere, elsewhere._store, ahead, LANE, lambda _: None).run_once()
    until, _ = await quick.store.timeline.whole_until(LANE)
    assert until == ahead.now() + HORIZON_US
    await quick.clock.advance(timedelta(seconds=5))
    until, built = await quick.store.timeline.whole_until(LANE)
    assert until is not None
    assert built is not None
    assert built <= quick.clock.now() < until <= quick.clock.now() + HORIZON_US
    await quick.minutes(41)
    assert len(quick.calls) == 2
    assert quick.schedules.timeline is not None
    assert quick.schedules.timeline["repaired"] == 0, "each was fed in time"
    await elsewhere.close()


async def test_what_was_popped_by_an_engine_that_died_comes_again(
    quick: TimelineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await quick.create()
    await up(quick)
    await quick.clock.advance(timedelta(seconds=27))
    stolen = await quick.store.timeline.pop(LANE, quick.clock.now() + 2_000_000, 10)
    assert stolen.sids == [1]
    await quick.clock.advance(timedelta(seconds=5))
    assert quick.called == ["12:01"]


async def test_a_claim_that_the_database_refuses_gives_back_what_was_popped(
    quick: TimelineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await quick.create()
    await up(quick)
    claim = quick.store._store.runs.claim
    failures = 3

    async def failing(*args: Any, **more: Any) -> Any:
        nonlocal failures
        if more.get("among") and failures:
            failures -= 1
            raise StoreError("no")
        return await claim(*args, **more)

    monkeypatch.setattr(quick.store._store.runs, "claim", failing)
    await quick.clock.advance(timedelta(seconds=30))
    assert (quick.called, failures) == (["12:01"], 0), "the loop tries again every half second"


async def test_a_due_row_that_another_holds_is_looked_at_again_shortly(
    quick: TimelineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await quick.create()
    await up(quick)
    claim = quick.store._store.runs.claim
    looks = 0

    async def held(*args: Any, among: Any = None, **more: Any) -> Any:
        nonlocal looks
        if among and looks < 5:
            looks += 1
            return await claim(*args, among=[], **more)
        return await claim(*args, among=among, **more)

    monkeypatch.setattr(quick.store._store.runs, "claim", held)
    await quick.clock.advance(timedelta(seconds=28, milliseconds=450))
    assert (quick.called, looks) == ([], 5), "every tenth of a second, and not all the time"
    await quick.clock.advance(timedelta(milliseconds=100))
    assert quick.called == ["12:01"]


async def test_while_redis_is_away_the_database_is_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = RedisServer()
    world = TimelineWorld(store_maker("memory", tmp_path), server.url, "x")
    try:
        await world.schedules.open()
        for i in range(10):
            await world.create(name=f"s{i}")
        await up(world)
        await world.minutes(1)
        server.halt()
        caplog.clear()
        await world.minutes(2)
        await world.create(name="late")
        await world.minutes(0.4)
        assert Counter(world.called) == {"12:01": 10, "12:02": 10, "12:03": 10}
        told = lines(caplog)
        assert len(told) == 3, "at once, and once a minute"
        assert "The Redis timeline failed, the database is polled for what is due until it is back" in told[0]
        assert not any(PASSWORD in line for line in told)
        assert not is_whole(world)
        server.start()
        await world.clock.advance(timedelta(seconds=10))
        assert is_whole(world), "it was rebuilt"
        assert lines(caplog)[-1].startswith("The Redis timeline works again, after 2 min")
        assert await world.store.timeline.counts(LANE) == (11, 0)
        await world.minutes(1)
        assert Counter(world.called)["12:04"] == 11
        fired = Counter((call.schedule_id, call.scheduled_for) for call in world.calls)
        assert set(fired.values()) == {1}
        counted = world.schedules.timeline
        assert counted is not None
        assert (counted["built"], counted["up"], counted["repaired"]) == (2, 1, 0)
        assert (await verify_store(world.store)).problems == []
    finally:
        await ended(world)
        server.stop()


async def test_a_redis_that_hangs_holds_nobody_up(redis_server: RedisServer, tmp_path: Path) -> None:
    world = TimelineWorld(store_maker("memory", tmp_path), redis_server.url, uuid.uuid4().hex)
    await world.schedules.open()
    await world.create()
    await up(world)
    link = world.store.timeline.link
    in_time, link._timeout = link._timeout, 0.05  # a single try is given up after that; all of them have minutes
    redis_server.pause()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await world.minutes(2)
            await world.create(name="created meanwhile")
            await world.minutes(1)
    finally:
        redis_server.go_on()
    link._timeout = in_time
    assert Counter(world.called) == {"12:01": 1, "12:02": 1, "12:03": 2}
    await world.minutes(1)
    assert is_whole(world)
    assert Counter(world.called)["12:04"] == 2
    await ended(world)


async def test_it_starts_without_redis_and_uses_it_when_it_comes(tmp_path: Path) -> None:
    server = RedisServer()
    server.halt()
    world = TimelineWorld(store_maker("memory", tmp_path), server.url, "x")
    try:
        await world.schedules.open()
        await world.create()
        await world.schedules.start()
        await world.minutes(1)
        assert world.called == ["12:01"]
        server.start()
        await world.minutes(1)
        assert (world.called, is_whole(world)) == (["12:01", "12:02"], True)
    finally:
        await ended(world)
        server.stop()


async def test_a_server_whose_memory_is_full_is_told_of_once(
    quick: TimelineWorld, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It answers questions and refuses to be told anything: that is no recovery, every second anew."""
    await quick.create()
    await up(quick)
    await client.set("ballast", "x" * 3_000_000)
    await client.config_set("maxmemory", "1000000")
    try:
        await quick.minutes(1.4)
        assert len(lines(caplog)) == 2, "at once, and after a minute"
        assert "OutOfMemory" in lines(caplog)[0]
        assert quick.schedules.timeline is not None
        assert quick.schedules.timeline["up"] == 0
    finally:
        await client.config_set("maxmemory", "0")
        await client.delete("ballast")
    await quick.clock.advance(timedelta(seconds=6))
    assert is_whole(quick)
    assert lines(caplog)[-1].startswith("The Redis timeline works again, after 1 min")
    await quick.minutes(1)
    assert quick.called == ["12:01", "12:02", "12:03"]


async def test_a_fill_that_broke_off_is_begun_again_at_once(
    quick: TimelineWorld, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await quick.create()
    await up(quick)
    timeline, tries = quick.store.timeline, 0
    feed = timeline.feed

    async def broken(*args: Any) -> bool:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise TimelineAwayError("once")
        return await feed(*args)

    monkeypatch.setattr(timeline, "feed", broken)
    await client.flushall()
    await quick.clock.advance(timedelta(seconds=6))
    assert (is_whole(quick), tries) == (True, 2), "it does not wait for its own lease of half a minute"


async def test_an_address_that_turns_out_to_be_wrong_later_fails_no_verb(tmp_path: Path) -> None:
    server = RedisServer(databases="1")
    server.halt()
    world = TimelineWorld(store_maker("memory", tmp_path), f"{server.url}?db=7", "x")
    try:
        await world.schedules.open()
        await world.schedules.start()
        server.start()
        await world.create()
        await world.minutes(1)
        assert (world.called, is_whole(world)) == (["12:01"], False)
    finally:
        await ended(world)
        server.stop()


async def test_it_does_not_start_with_a_server_that_may_drop_keys(quick: TimelineWorld, client: Any) -> None:
    await client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(TimelineError, match="set maxmemory-policy noeviction"):
            await quick.schedules.start()
        assert not quick.schedules.running
    finally:
        await client.config_set("maxmemory-policy", "noeviction")
    await quick.schedules.start()
    await quick.clock.advance(timedelta(seconds=2))
    assert is_whole(quick)


async def test_a_server_that_begins_to_drop_keys_is_not_used_any_more(
    quick: TimelineWorld, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await quick.create()
    await up(quick)
    await client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        await quick.minutes(2)
        assert (quick.called, is_whole(quick)) == (["12:01", "12:02"], False), "it is asked again every minute"
        assert any("set maxmemory-policy noeviction" in line for line in lines(caplog))
    finally:
        await client.config_set("maxmemory-policy", "noeviction")
    await quick.minutes(1)
    assert is_whole(quick)


# --- whose set it is --------------------------------------------------------------------------------------------------


async def test_every_database_has_a_name_of_its_own(tmp_path: Path, redis_server: RedisServer) -> None:
    names = []
    for kind, folder in (("memory", tmp_path), ("sqlite", tmp_path)):
        make = store_maker(kind, folder)
        for _ in range(2):
            clock = TimelineWorld(make, redis_server.url, "x").clock
            store = with_timeline(make(), RedisTimeline(redis_server.url), clock)
            await store.open()
            names.append(store.timeline.namespace)
            await store.close()
    assert names[0] == names[1]
    assert names[2] == names[3]
    assert names[0] != names[2]


def test_what_is_no_timeline_is_refused() -> None:
    with pytest.raises(TimelineError, match="must be an address such as redis://HOST"):
        Schedules("memory://", timeline=7)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TimelineError, match="not a scheme of Redis"):
        Schedules("memory://", timeline="http://host")
