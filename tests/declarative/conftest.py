"""A Scheduler on a manual clock, and what it did."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from noonbell.declarative import Scheduler
from noonbell.declarative.events import SchedulerEvent
from noonbell.ports import Ledger
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from noonbell.testing.manual_clock import ManualClock

START = datetime(2026, 3, 4, 10, 5, 20, tzinfo=UTC)


class Stage:
    """One host: a clock, a store, and the schedulers made on them."""

    def __init__(self, new_store: Callable[[], Ledger]) -> None:
        self.clock = ManualClock(START)
        self.events: list[SchedulerEvent] = []
        self.new_store = new_store
        self.made: list[Scheduler] = []

    def scheduler(self, store: Ledger | None = None, **options: Any) -> Scheduler:
        given: dict[str, Any] = {"clock": self.clock, "time_zone": "UTC", "on_event": self.events.append} | options
        made = Scheduler(store if store is not None else self.new_store(), **given)
        self.made.append(made)
        return made

    @property
    def told(self) -> list[str]:
        return [event.name for event in self.events]


@pytest.fixture(params=["memory", "sqlite"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    data = MemoryStore().data
    stores: dict[str, Callable[[], Ledger]] = {
        "memory": lambda: MemoryStore(data),
        "sqlite": lambda: SqliteStore(tmp_path / "app.db", threaded=False),
    }
    made = Stage(stores[request.param])
    yield made
    for scheduler in made.made:
        await scheduler.stop()
