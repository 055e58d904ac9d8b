"""Several engines on one lane: each occurrence once, the dead are rescued, and the living are left alone."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from noonbell.core.presence import lanes_up
from noonbell.engine import membership
from noonbell.ledger import verify_store
from noonbell.ledger.ledger_rows import lifecycle_of
from noonbell.ports import Ledger, Members, RunFilter
from noonbell.schedules import Call, Schedules
from noonbell.store.memory import MemoryStore
from noonbell.store.postgres import PostgresStore
from noonbell.store.sqlite import SqliteStore
from noonbell.testing import ManualClock
from tests.patience import PATIENCE_SECONDS, until
from tests.schedules.test_postgres_trouble import lease_ends
from tests.store.postgres_server import PostgresServer
from tests.store.test_postgres_leases import renewed_twice
from tests.store.test_postgres_trouble import ShiftedClock

NOON = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)
ACTION = {"kind": "callback", "name": "work"}
LANE = "lane:default"


@pytest.fixture(autouse=True, scope="module")
def _calm() -> None:
    """Nothing is calmed here: the watch over the other engines is what is tested."""


def lock_files(folder: Path) -> int:
    return len(list(folder.glob("*.lock")))


class Crew:
    """Engines on one lane, each with a store handle of its own, on manual time."""

    def __init__(self, make_store: Callable[[], Ledger]) -> None:
        self.clock = ManualClock(NOON)
        self.calls: list[tuple[str, str]] = []  # who, and the run
        self.duration = timedelta(0)
        self.stores: dict[str, Ledger] = {}
        self.engines: dict[str, Schedules] = {}
        self._make_store = make_store

    async def up(self, name: str) -> Schedules:
        async def work(call: Call) -> None:
            self.calls.append((name, call.run_id))
            if self.duration:
                await self.clock.sleep(self.duration.total_seconds())

        self.stores[name] = self._make_store()
        made = Schedules(
            self.stores[name], clock=self.clock, callbacks={"work": work}, longest_wait=timedelta(minutes=1)
        )
        self.engines[name] = made
        await made.open()
        await made.start()
        await self.clock.settle()
        return made

    async def kill(self, name: str) -> None:
        self.stores[name].kill()
        dying = asyncio.create_task(self.engines.pop(name).stop(timedelta(0)))
        del self.stores[name]
        while not dying.done():
            await self.clock.advance(timedelta(seconds=1))
        await dying

    async def down(self) -> None:
        self.duration = timedelta(0)
        ending = [asyncio.create_task(one.stop()) for one in self.engines.values()]
        while not all(task.done() for task in ending):
            await self.clock.advance(timedelta(minutes=10))
        for store in self.stores.values():
            await store.close()

    @property
    def store(self) -> Ledger:
        return next(iter(self.stores.values()))


@pytest.fixture(params=["memory", "sqlite"])
async def crew(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Crew]:
    data = MemoryStore().data
    kinds: dict[str, Callable[[], Ledger]] = {
        "memory": lambda: MemoryStore(data),
        "sqlite": lambda: SqliteStore(tmp_path / "shared.db", threaded=False),
    }
    made = Crew(kinds[request.param])
    yield made
    await made.down()


async def test_what_a_dead_engine_had_in_hand_goes_on_at_another_within_seconds(crew: Crew) -> None:
    first = await crew.up("a")
    made = await first.create(type="cron", spec="1 12 * * *", action=ACTION)
    crew.duration = timedelta(minutes=3)
    await crew.clock.advance(timedelta(seconds=30))
    await crew.up("b")
    run = f"{made.schedule_id}:scheduled:{int(NOON.timestamp() + 30) * 1_000_000}"
    assert crew.calls == [("a", run)]
    await crew.clock.advance(timedelta(minutes=1))
    assert crew.calls == [("a", run)], "while its engine lives it is left alone"
    await crew.kill("a")
    await crew.clock.advance(timedelta(microseconds=membership.LOOK))
    assert crew.calls == [("a", run), ("b", run)], "under the same id"
    (live,) = await crew.store.runs.live(1)
    assert (live.crashes, live.fence) == (1, 3)
    events = [(event.event, event.detail[:5]) for event in await lifecycle_of(crew.store, LANE)]
    assert events == [("init-ok", ""), ("init-ok", ""), ("crash", "found")]
    await crew.clock.advance(timedelta(minutes=3))
    (ended,) = await crew.store.history.runs(RunFilter(1, 0, 2**62))
    assert ended.outcome == "succeeded"
    assert (await verify_store(crew.store)).problems == []


async def test_all_runs_of_a_dead_engine_start_again_at_once(crew: Crew) -> None:
    first = await crew.up("a")
    for _ in range(50):
        await first.create(type="cron", spec="1 12 * * *", action=ACTION)
    crew.duration = timedelta(minutes=3)
    await crew.clock.advance(timedelta(seconds=30))
    runs = {run for _, run in crew.calls}
    await crew.up("b")
    crew.calls.clear()
    await crew.kill("a")
    await crew.clock.advance(timedelta(microseconds=membership.LOOK))
    assert {run for _, run in crew.calls} == runs
    assert len(crew.calls) == len(runs) == 50


@pytest.mark.parametrize(("minutes", "verdict"), [(1, "fired"), (5, "missed")])
async def test_what_comes_due_while_the_only_loop_is_blocked_is_missed_after_the_grace(
    crew: Crew, minutes: int, verdict: str
) -> None:
    """The loop of the first stands still, its name is held; the second joins later than the occurrence."""
    first = await crew.up("a")
    made = await first.create(type="cron", spec="1 12 * * *", action=ACTION, catch_up_policy="skip")
    assert first._lane.engine is not None
    await first._lane.engine.claim_lock.acquire()
    await crew.clock.advance(timedelta(minutes=minutes, seconds=30))
    assert crew.calls == []
    await crew.up("b")
    first._lane.engine.claim_lock.release()
    await crew.clock.advance(timedelta(minutes=1))
    (one,) = (await first.occurrences(made.schedule_id)).items
    assert one.verdict == verdict
    assert [who for who, _ in crew.calls] == (["b"] if verdict == "fired" else [])


async def test_what_comes_due_while_one_of_two_polls_is_never_missed(crew: Crew) -> None:
    """One loop is blocked for ten minutes; the other polls, and leaves what it cannot start."""
    first, _ = await crew.up("a"), await crew.up("b")
    made = await first.create(type="cron", spec="1 12 * * *", action=ACTION, catch_up_policy="skip")
    assert first._lane.engine is not None
    await first._lane.engine.claim_lock.acquire()
    await crew.clock.advance(timedelta(minutes=10))
    first._lane.engine.claim_lock.release()
    await crew.clock.advance(timedelta(minutes=1))
    (one,) = (await first.occurrences(made.schedule_id)).items
    assert (one.verdict, [who for who, _ in crew.calls]) == ("fired", ["b"])
    polls = (await crew.store.engines.polls())["default"]
    assert [gap.since for gap in polls.gaps] == [0], "the lane was polled all the time"


async def test_who_is_left_alone_knows_since_when_the_lane_is_up(crew: Crew) -> None:
    began = crew.clock.now()
    await crew.up("a")
    await crew.clock.advance(timedelta(minutes=5))
    await crew.up("b")
    await crew.kill("a")
    await crew.clock.advance(timedelta(minutes=5))
    assert lanes_up((await crew.store.engines.members(0)).alive) == {"default": began}
    await crew.up("c")
    assert [one.up_since for one in (await crew.store.engines.members(0)).alive] == [began, began]


async def test_engines_tell_of_themselves(crew: Crew) -> None:
    face = await crew.up("a")
    await face.create(type="interval", spec="1", action=ACTION)
    await crew.up("b")
    await crew.clock.advance(timedelta(seconds=90))
    found = (await crew.store.engines.members(crew.clock.now())).alive
    assert [(one.state, one.lane, one.pid) for one in found] == [("up", "default", os.getpid())] * 2
    assert all(one.seen_ago_us <= membership.BEAT + membership.LOOK for one in found)
    assert 50 <= sum(one.load["started_per_minute"] for one in found) <= 62
    assert {one.load["running"] for one in found} == {0}
    assert all(one.load["most"] > 0 for one in found)


async def test_a_poisonous_run_is_given_up_though_different_engines_die_and_its_neighbours_are_not() -> None:
    """Four engines share thirty runs and one that kills whichever engine it is on, again and again."""
    data = MemoryStore().data
    crew = Crew(lambda: MemoryStore(data))
    face = await crew.up("a")
    names = [f"good {n}" for n in range(30)]
    for name in [*names, "poison"]:
        await face.create(name=name, schedule_id=name, type="cron", spec="1 12 * * *", action=ACTION)
    for name in ("b", "c", "d"):
        await crew.up(name)
    crew.duration = timedelta(seconds=8)
    deaths: list[str] = []
    await crew.clock.advance(timedelta(seconds=30))
    for _ in range(200):
        executing = [who for who, run in crew.calls if run.startswith("poison:")]
        if len(executing) > len(deaths):
            deaths.append(executing[-1])
            await crew.kill(executing[-1])
        await crew.clock.advance(timedelta(seconds=2))
    assert len(deaths) == 3
    assert len(set(deaths)) == 3, "each time another"
    rows = await crew.store.read("runs", None, 1000)
    outcomes = {row[0]: row[3] for row in rows}
    assert outcomes.pop(31) == "abandoned"
    assert outcomes == dict.fromkeys(range(1, 31), "succeeded")
    assert (await verify_store(crew.store)).problems == []
    await crew.down()


async def test_the_lock_files_of_engines_do_not_pile_up(tmp_path: Path) -> None:
    crew = Crew(lambda: SqliteStore(tmp_path / "shared.db", threaded=False))
    await crew.up("a")
    await crew.up("b")
    assert lock_files(tmp_path) == 2
    await crew.kill("b")
    await crew.clock.advance(timedelta(seconds=5))
    assert lock_files(tmp_path) == 1
    await crew.down()
    assert lock_files(tmp_path) == 0


# --- real time, a real server -----------------------------------------------------------------------------------------


class Pair:
    """Two engines on one database."""

    def __init__(self, dsn: str, ttl: float = 15.0, pause: float = 0.0) -> None:
        self.called: list[Counter[str]] = [Counter(), Counter()]
        self.stores = [PostgresStore(dsn, lease_ttl=ttl) for _ in range(2)]
        self.pause = pause
        self.clock = ShiftedClock()
        self.faces = [
            Schedules(
                store, clock=self.clock, callbacks={"work": self._work(n)}, longest_wait=timedelta(milliseconds=200)
            )
            for n, store in enumerate(self.stores)
        ]

    def _work(self, number: int) -> Callable[[Call], Any]:
        async def work(call: Call) -> None:
            self.called[number][call.run_id] += 1
            await asyncio.sleep(self.pause)

        return work

    async def start(self) -> None:
        for face in self.faces:
            await face.open()
            await face.start()

    async def stop(self) -> None:
        grace = timedelta(seconds=0 if self.pause > PATIENCE_SECONDS else PATIENCE_SECONDS)
        await asyncio.gather(*(face.stop(grace) for face in self.faces))
        assert (await verify_store(self.stores[0])).problems == []
        for store in self.stores:
            await store.close()


class Looks:
    """Counts the looks of a store for dead engines since it has no reason to doubt that their leases ran out."""

    def __init__(self, store: PostgresStore) -> None:
        self.sure = 0
        self._store = store
        self._look = store.engines.members
        store.engines.members = self._counted  # type: ignore[method-assign]  # as before, and counted

    async def _counted(self, now: int, lane: str | None = None) -> Members:
        up_for = "SELECT clock_timestamp() - pg_postmaster_start_time() > make_interval(secs => $1)"
        async with self._store._connections.reading() as db:
            trusted = await db.fetchval(up_for, self._store.lease_seconds)
        keeper = self._store._held.keeper
        self.sure += lane is not None and trusted and keeper is not None and not keeper.in_doubt
        return await self._look(now, lane)


async def test_two_thousand_that_are_due_at_once_fire_once_each_and_both_take_some(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noonbell.engine.execution.MOST_IN_FLIGHT", 300)  # so that neither can take all of them
    pair = Pair(await postgres.new_database(), pause=0.3)
    await pair.faces[0].open()
    later = datetime.now(UTC) + timedelta(hours=1)
    fields = {"type": "one_shot", "spec": later.isoformat(), "action": ACTION, "catch_up_policy": "run_once"}
    await pair.faces[0].create_many([{**fields, "name": f"s{n}"} for n in range(2000)])  # type: ignore[typeddict-item]  # the fields are spread
    await pair.start()
    pair.clock.shift_seconds += 3601

    async def all_ran() -> bool:
        return sum(counter.total() for counter in pair.called) >= 2000

    await until(all_ran)
    await pair.stop()
    together = pair.called[0] + pair.called[1]
    assert (len(together), set(together.values())) == (2000, {1})
    assert min(len(counter) for counter in pair.called) > 0


async def test_engines_that_live_through_an_outage_of_the_database_do_not_rescue_each_other(
    postgres: PostgresServer,
) -> None:
    dsn = await postgres.new_database()
    pair = Pair(dsn, ttl=3.0, pause=3600)
    await pair.faces[0].open()
    await pair.faces[0].create(type="interval", spec="1", overlap="skip", action=ACTION)
    await pair.start()

    async def begun() -> bool:
        return sum(counter.total() for counter in pair.called) == 1

    await until(begun)
    await lease_ends(postgres, dsn, os.getpid())  # the server is away for longer than that
    await postgres.in_thread("halt")
    await postgres.in_thread("start")

    async def both_are_up() -> bool:
        try:
            return len((await pair.stores[0].engines.members(0)).alive) == 2
        except Exception:  # noqa: BLE001 - the store is not back yet
            return False

    await until(both_are_up)
    looks = [Looks(store) for store in pair.stores]
    await until(lambda: all(one.sure >= 2 for one in looks))
    assert [event.event for event in await lifecycle_of(pair.stores[0], LANE)] == ["init-ok", "init-ok"]
    assert sum(counter.total() for counter in pair.called) == 1, "the run goes on where it was"
    assert [face.lanes_lost for face in pair.faces] == [0, 0]
    await pair.stop()


async def test_what_came_due_in_an_outage_is_missed_though_an_engine_lives(postgres: PostgresServer) -> None:
    """No poll completed: it does not matter that the lease of the one that was up can still be renewed."""
    dsn, clock, ticks = await postgres.new_ledger(), ShiftedClock(), asyncio.Event()

    async def work(call: Call) -> None:
        if call.name == "tick":
            ticks.set()

    stores = [PostgresStore(dsn, lease_ttl=600.0) for _ in range(2)]
    first, second = (Schedules(store, clock=clock, callbacks={"work": work}) for store in stores)
    await first.open()
    at = (datetime.now(UTC) + timedelta(minutes=30)).isoformat()
    made = await first.create(name="once", type="one_shot", spec=at, action=ACTION)
    await first.start()
    assert first._lane.engine is not None
    async with first._lane.engine.claim_lock:
        clock.shift_seconds += 32 * 60
        await second.open()
        await second.create(name="tick", type="interval", spec="1", action=ACTION)
        await second.start()
        await asyncio.wait_for(ticks.wait(), PATIENCE_SECONDS)

        async def decided() -> bool:
            (one,) = (await second.occurrences(made.schedule_id)).items
            return one.verdict == "missed"

        await until(decided)
    for schedules, store in zip((second, first), reversed(stores), strict=True):
        await schedules.stop()
        await store.close()


_LEASES = "UPDATE {}.instances SET expires_at = clock_timestamp() + interval '{}'"

_VICTIM = """
import asyncio, sys
from noonbell.schedules import Schedules
from noonbell.store.postgres import PostgresStore, leases

leases.RENEWALS = 50

async def hang(call):
    print(call.run_id, flush=True)
    await asyncio.sleep(3600)

async def main():
    schedules = Schedules(PostgresStore(sys.argv[1], lease_ttl=20.0), callbacks={"work": hang})
    await schedules.open()
    await schedules.start()
    await asyncio.sleep(3600)

asyncio.run(main())
"""


async def test_the_runs_of_a_process_that_was_killed_are_rescued_by_the_one_beside_it(postgres: PostgresServer) -> None:
    dsn = await postgres.new_database()
    pair = Pair(dsn, ttl=5.0)
    face, store = pair.faces[0], pair.stores[0]
    await face.open()
    await face.create(schedule_id="a", type="interval", spec=1, overlap="skip", action=ACTION)
    victim = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _VICTIM, dsn, stdout=asyncio.subprocess.PIPE, env=os.environ
    )
    assert victim.stdout is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        run_id = (await victim.stdout.readline()).decode().strip()
        await face.start()
        assert len((await store.engines.members(0)).alive) == 2
        await renewed_twice(dsn)
        assert pair.called[0][run_id] == 0
        victim.send_signal(signal.SIGKILL)
        await victim.wait()
        await lease_ends(postgres, dsn, victim.pid)

        async def ran_here() -> bool:
            return pair.called[0][run_id] > 0

        await until(ran_here)
        await face.pause("a")
        await face.stop()
    assert pair.called[0][run_id] == 1
    assert [event.event for event in await lifecycle_of(store, LANE)].count("crash") == 1
    assert (await verify_store(store)).problems == []
    await store.close()
