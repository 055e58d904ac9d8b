"""A manual clock, both stores, and a bench that makes schedulers on them and takes them down again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from noonbell import periodic
from noonbell.declarative.events import SchedulerEvent, TaskEvent
from noonbell.periodic import Capabilities, PeriodicScheduler
from noonbell.ports import Ledger
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from noonbell.testing.manual_clock import ManualClock

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
FIVE = 5 * MINUTE
START = datetime(2024, 3, 1, 9, 50, 30, tzinfo=UTC)


class Bench:
    """Makes schedulers on one clock and one store, and remembers what they tell."""

    def __init__(self, store: Ledger, reopen: Callable[[Ledger], Ledger]) -> None:
        self.clock = ManualClock(START)
        self.store = store
        self.events: list[SchedulerEvent] = []
        self.calls: list[tuple[str, str]] = []
        self._reopen = reopen
        self._made: list[PeriodicScheduler] = []

    def make(self, **options: Any) -> PeriodicScheduler:
        capabilities = Capabilities(clock=self.clock, store=self.store)
        options = {"time_zone": "UTC", "on_event": self.events.append, **options}
        made = periodic.make(capabilities, **options)
        self._made.append(made)
        return made

    def crash(self) -> None:
        """The process dies: nothing more is written, and another one opens the same data."""
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        self.store.kill()
        self.store = self._reopen(self.store)
        self._made.clear()

    def task(self, name: str, *outcomes: BaseException | float | None) -> Callable[[], Any]:
        """A callback that notes when it runs; its outcomes in turn: an error, seconds to take, or None. Then None."""
        script = list(outcomes)

        async def callback() -> None:
            self.calls.append((name, f"{self.clock.at:%H:%M:%S}"))
            outcome = script.pop(0) if script else None
            if isinstance(outcome, BaseException):
                raise outcome
            if outcome is not None:
                await self.clock.sleep(outcome)

        return callback

    def times(self, name: str) -> list[str]:
        return [at for who, at in self.calls if who == name]

    def told(self) -> list[str]:
        return [event.name for event in self.events]

    def told_of(self, name: str) -> list[str]:
        return [event.name for event in self.events if isinstance(event, TaskEvent) and event.task == name]

    async def close(self) -> None:
        closing = [asyncio.ensure_future(made.close()) for made in self._made]
        await self.clock.advance(HOUR)  # a run that a test left under way has to end
        await asyncio.gather(*closing)
        await self.store.close()


def _reopen(store: Ledger) -> Ledger:
    if isinstance(store, SqliteStore):
        return SqliteStore(store.path, threaded=False)
    assert isinstance(store, MemoryStore)
    return MemoryStore(store.data)


@pytest.fixture(params=["memory", "sqlite"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    store: Ledger = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "p.db", threaded=False)
    made = Bench(store, _reopen)
    yield made
    await made.close()


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="noonbell.periodic")
