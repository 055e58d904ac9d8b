"""Durable schedules on manual time, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from noonbell.ports import Ledger
from noonbell.schedules import Call, Schedules
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from tests.schedules.patience import PatientClock, PatientPostgres, calm_duties
from tests.store.postgres_server import PostgresServer

NOON = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)  # a Wednesday
ACTION = {"kind": "callback", "name": "work"}


@pytest.fixture(autouse=True, scope="module")
def _calm(request: pytest.FixtureRequest) -> Iterator[None]:
    with calm_duties(deleted=request.module.__name__.rpartition(".")[2] != "test_deleting"):
        yield


IN_EARNEST = timedelta(seconds=50)  # a wait between polls that leaves the grace at 60 seconds


_HERE = Path(__file__).parent


class World:
    """A store that outlives its users, a clock, and a callback that takes as long and fails as often as it is told.

    `longest_wait` is long: on manual time each look without a reason costs as much as one with, and a wake-up that was
    forgotten would hide behind it. The grace is longer then, so tests of catching up set one of `IN_EARNEST`, by a
    module constant LONGEST_WAIT.
    """

    def __init__(
        self,
        make_store: Callable[[], Ledger],
        start: datetime = NOON,
        *,
        longest_wait: timedelta = timedelta(hours=1),
    ) -> None:
        self._make_store = make_store
        self._longest_wait = longest_wait
        self.clock = PatientClock(start)
        self.calls: list[Call] = []
        self.duration = timedelta(0)
        self.failures = 0
        self.schedules = self._new()

    def _new(self) -> Schedules:
        self.store = self._make_store()
        if isinstance(self.store, PatientPostgres):
            self.store.attend(self.clock)
        return Schedules(self.store, clock=self.clock, callbacks={"work": self.work}, longest_wait=self._longest_wait)

    def another_store(self) -> Ledger:
        """Another handle on the same data, not opened yet."""
        return self._make_store()

    async def work(self, call: Call) -> None:
        self.calls.append(call)
        if self.duration:
            await self.clock.sleep(self.duration.total_seconds())
        if self.failures:
            self.failures -= 1
            raise ValueError("no")

    async def crash(self) -> None:
        """The process dies: nothing more is written. What comes next is another one on the same data."""
        self.store.kill()
        await self.schedules.stop()
        self.schedules = self._new()
        await self.schedules.open()

    async def create(self, **fields: Any) -> str:
        made = await self.schedules.create(**{"type": "cron", "spec": "* * * * *", "action": ACTION, **fields})
        return made.schedule_id

    async def minutes(self, minutes: float) -> None:
        await self.clock.advance(timedelta(minutes=minutes))

    async def told(self, schedule_id: str) -> list[tuple[str, str]]:
        """Each decided occurrence as (HH:MM[:SS], verdict), oldest first."""
        start = datetime(2026, 1, 1, tzinfo=UTC)
        page = await self.schedules.occurrences(schedule_id, start=start, limit=1000)
        found: list[tuple[str, str]] = []
        for one in page.items:
            at = one.scheduled_for
            found.append((f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}", one.verdict))
        return found

    async def audits(self, schedule_id: str, event: str) -> list[dict[str, Any]]:
        page = await self.schedules.audit(subject=schedule_id, event=event, limit=1000)
        return [one.detail for one in page.items]

    @property
    def called(self) -> list[str]:
        return [f"{call.scheduled_for:%H:%M}" for call in self.calls]


def store_maker(kind: str, folder: Path, dsn: str = "") -> Callable[[], Ledger]:
    """Handles on the same data, one after the other; `dsn` is where PostgreSQL keeps it."""
    if kind == "memory":
        data = MemoryStore().data
        return lambda: MemoryStore(data)
    if kind == "postgres":
        dead: set[str] = set()
        return lambda: PatientPostgres(dsn, dead)
    return lambda: SqliteStore(folder / "schedules.db", threaded=False)


async def new_dsn(request: pytest.FixtureRequest, kind: str) -> str:
    """Where a new ledger of this kind is kept, if it is on PostgreSQL; the server starts with the first."""
    if kind != "postgres":
        return ""
    server: PostgresServer = request.getfixturevalue("postgres")
    return await server.new_ledger()


# Decisions are made by the same code on every store. Modules about decisions alone run on PostgreSQL in
# `make test-full`; modules about what is written and read do so in `make test`, as the storage suite does.
_ABOUT_DECISIONS = (
    "test_asked_for test_behaviour test_crash_quarantine test_edits_from_elsewhere test_one_shot_again "
    "test_quiet_for_good test_quiet_stretch test_quiet_zone_rules test_startup test_stop_in_time test_zone_rules"
).split()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what only `make test-full` runs on PostgreSQL, before pytest selects by markers."""
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent == _HERE and item.path.stem in _ABOUT_DECISIONS:
            chosen = item.callspec.params if hasattr(item, "callspec") else {}
            if "postgres" in chosen.values():
                item.add_marker(pytest.mark.exhaustive)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    longest_wait = getattr(request.module, "LONGEST_WAIT", timedelta(hours=1))
    made = World(store_maker(request.param, tmp_path, await new_dsn(request, request.param)), longest_wait=longest_wait)
    await made.schedules.open()
    yield made
    made.duration = timedelta(0)
    task = asyncio.get_running_loop().create_task(made.schedules.stop())
    while not task.done():
        await made.clock.advance(timedelta(minutes=10))
    await task
    await made.store.close()
