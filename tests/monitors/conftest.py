"""Monitors on every store, on manual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import pytest

from noonbell.monitors import MonitorFlipped
from noonbell.ports import Ledger
from noonbell.store.memory import MemoryStore
from noonbell.store.postgres import PostgresStore
from noonbell.store.sqlite import SqliteStore
from noonbell.testing import ManualClock
from tests.store.postgres_server import PostgresServer

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


class Handle(Ledger, Protocol):
    """A store with all its verbs."""


Handles = Callable[[], Awaitable[Handle]]


class Told:
    """Alerts that remember what they were told, and refuse as often as they are asked to."""

    def __init__(self) -> None:
        self.flips: list[MonitorFlipped] = []
        self.refusals = 0

    async def monitor_flipped(self, flipped: MonitorFlipped) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ConnectionError("not at home")
        self.flips.append(flipped)

    @property
    def events(self) -> list[str]:
        return [flip.event for flip in self.flips]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def handles(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Handles]:
    """Makes open stores on the same data, as several processes have them."""
    made: list[Handle] = []
    data = MemoryStore().data
    dsn = ""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        dsn = await server.new_ledger()

    async def make() -> Handle:
        store: Handle
        if request.param == "memory":
            store = MemoryStore(data)
        elif request.param == "sqlite":
            store = SqliteStore(tmp_path / "monitors.db")
        else:
            store = PostgresStore(dsn, pool_size=2)
        await store.open()
        made.append(store)
        return store

    yield make
    for store in made:
        await store.close()


@pytest.fixture
async def store(handles: Handles) -> Handle:
    return await handles()


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)
