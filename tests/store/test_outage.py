"""A store that is away: told once, then once a minute, and once when it is back."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from noonbell.engine.supervisor import Supervisor
from noonbell.errors import StoreUnavailableError
from noonbell.schedules import Schedules
from noonbell.store.memory import MemoryStore
from noonbell.store.outage import Outage, outage_log_for
from noonbell.store.postgres import PostgresStore
from noonbell.testing import ManualClock
from tests.patience import PATIENCE_SECONDS
from tests.store.overriding import Overriding
from tests.store.postgres_server import PostgresServer

START = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)


def _told(caplog: pytest.LogCaptureFixture, *loggers: str) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and (not loggers or record.name in loggers)
    ]


def test_it_is_told_once_and_then_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage()
    for half_second in range(2 * 130):
        outage.failed("looking", f"away {half_second}", half_second / 2)
    outage.worked("looking", 130.0)
    outage.worked("looking", 131.0)
    assert _told(caplog) == [
        "The store failed, what is due waits until it is back: away 0",
        "The store has failed for 1 min: away 120",
        "The store has failed for 2 min: away 240",
        "The store works again, after 2 min",
    ]


def test_several_who_meet_it_tell_one_story(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage()
    outage.failed("writing", "full", 0.0)
    outage.failed("delivery", "full", 1.0)
    outage.worked("delivery", 2.0)  # a look that found nothing to write
    outage.failed("delivery", "full", 3.0)
    lasted = outage.lasts
    outage.worked("writing", 4.0)
    assert (lasted, outage.lasts) == (True, False)
    assert [line.split(",")[0] for line in _told(caplog)] == ["The store failed", "The store works again"]


def test_what_is_told_long_after_is_another_outage(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage()
    outage.failed("gone since", "away", 0.0)
    outage.failed("looking", "away again", 3_600.0)
    assert [line.split(",")[0] for line in _told(caplog)] == ["The store failed", "The store failed"]


def test_one_store_has_one_outage() -> None:
    store = MemoryStore()
    assert outage_log_for(store) is outage_log_for(store)
    assert outage_log_for(store) is not outage_log_for(MemoryStore())


class _Away(Overriding, MemoryStore):
    """A store that can be taken away: what the engine asks for all the time fails then."""

    away = False

    def _check(self) -> None:
        if self.away:
            raise StoreUnavailableError("the disk is gone")

    async def runs_claim(self, *given: Any, **named: Any) -> Any:
        self._check()
        return await self.plain.runs.claim(*given, **named)

    async def outbox_claim(self, *given: Any, **named: Any) -> Any:
        self._check()
        return await self.plain.outbox.claim(*given, **named)

    async def documents_find(self, *given: Any, **named: Any) -> Any:
        self._check()
        return await self.plain.documents.find(*given, **named)


async def test_a_lane_tells_of_a_store_that_is_away_in_one_story(caplog: pytest.LogCaptureFixture) -> None:
    clock, store = ManualClock(START), _Away()
    async with Schedules(store, clock=clock) as schedules:
        await schedules.start()
        await clock.advance(timedelta(seconds=10))
        caplog.clear()
        store.away = True
        await clock.advance(timedelta(seconds=150))
        failing = _told(caplog)
        store.away = False
        await clock.advance(timedelta(seconds=30))
        back = _told(caplog)[len(failing) :]
        stopping = asyncio.ensure_future(schedules.stop())
        await clock.advance(timedelta(seconds=30))
        await stopping
    story = [line for line in failing if line.startswith("The store")]
    assert story[0] == "The store failed, what is due waits until it is back: the disk is gone"
    assert [line.split(":")[0] for line in story[1:]] == [
        "The store has failed for 1 min",
        "The store has failed for 2 min",
    ]
    # a duty that met it before the loop did has told that once
    duties = [line for line in failing if line not in story]
    assert len(duties) == len({line.split()[0] for line in duties}) <= 2
    assert [line.split(",")[0].split("=")[0] for line in back] == ["poll gap lane", "The store works again"]
    assert "after 2 min" in back[1]


async def test_a_duty_alone_tells_once_a_minute_too(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(START)

    class Away:
        async def run(self, stop: asyncio.Event) -> None:
            raise StoreUnavailableError("gone")

    services = Supervisor(clock, {"secrets": Away()})
    services.start()
    await clock.advance(timedelta(seconds=150))
    await services.stop()
    assert len(_told(caplog)) == 3
    assert _told(caplog)[0].startswith("secrets failed, restarting in 1 s: StoreUnavailableError: gone")


async def test_a_server_that_is_away_is_told_by_us_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def until(*parts: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not all(any(part in line for line in _told(caplog)) for part in parts):  # noqa: ASYNC110 - a thread tells
                await asyncio.sleep(0.05)

    server = PostgresServer()
    try:
        store = PostgresStore(await server.new_database(), lease_ttl=1.5)
        async with Schedules(store, longest_wait=timedelta(milliseconds=100)) as schedules:
            await schedules.start()
            caplog.clear()
            await server.in_thread("halt")
            await until("The store failed", "Renewing leases failed")
            await asyncio.sleep(1.5)  # time enough for a few more tries of everything
            away = _told(caplog)
            await server.in_thread("start")
            await until("The store works again", "Renewing leases works again")
        await store.close()
    finally:
        server.stop()
    assert {record.name.split(".")[0] for record in caplog.records if record.levelno >= logging.WARNING} == {"noonbell"}
    assert sum(line.startswith("The store failed") for line in away) == 1
    assert sum(line.startswith("Renewing leases failed") for line in away) == 1
