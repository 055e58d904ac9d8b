"""Whether the service says that it lives and is ready."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2

from noonbell import Schedules
from noonbell.api.app import create_app
from noonbell.bootstrap import build
from noonbell.testing import ManualClock
from tests.api.conftest import Client, settings_for


async def test_a_running_service_lives_and_is_ready(live: Client) -> None:
    assert (await live.anonymous.get("/healthz")).json() == {"status": "ok"}
    answer = await live.anonymous.get("/readyz")
    assert answer.status_code == 200
    found = answer.json()
    assert found.pop("last_poll_seconds") >= 0
    assert found == {"ready": True, "store": "ok", "engine": "running", "stopping": False}


async def test_a_service_whose_engine_completes_no_poll_is_not_ready(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 3, 4, tzinfo=UTC))
    service = build(settings_for(tmp_path, store="memory://"), clock=clock)
    await service.start()
    transport = httpx2.ASGITransport(app=create_app(service))
    async with httpx2.AsyncClient(base_url="http://service", transport=transport) as client:
        await clock.advance(timedelta(seconds=30))
        assert (await client.get("/readyz")).json()["engine"] == "running"
        # the loop is blocked: its clock goes on, and nothing else does
        clock.stall(timedelta(seconds=60))
        assert service.poll_age is not None
        assert service.poll_age <= 61
        clock.stall(timedelta(seconds=2))
        assert service.stalled
        assert not service.ready
        assert (await client.get("/healthz")).status_code == 200
    stopping = asyncio.ensure_future(service.stop())
    await clock.advance(timedelta(minutes=1))
    await stopping


async def test_the_grace_of_an_engine_that_waits_longer_counts(tmp_path: Path) -> None:
    """An engine that polls every two minutes is not stalled after a hundred seconds."""
    clock = ManualClock(datetime(2026, 3, 4, tzinfo=UTC))
    service = build(settings_for(tmp_path, store="memory://", engine=False), clock=clock)
    await service.start()
    transport = httpx2.ASGITransport(app=create_app(service))
    async with (
        httpx2.AsyncClient(base_url="http://service", transport=transport) as client,
        Schedules(service.store, clock=clock, longest_wait=timedelta(minutes=2)) as engine,
    ):
        await engine.start()
        await clock.advance(timedelta(seconds=12))
        await clock.advance(timedelta(seconds=100))
        answer = (await client.get("/readyz")).json()
        assert (answer["engine"], answer["ready"]) == ("running", True)
        assert answer["last_poll_seconds"] >= 90, "longer than the grace of an ordinary engine"
        stopping = asyncio.ensure_future(engine.stop())
        await clock.advance(timedelta(minutes=1))
        await stopping
    await service.stop()


async def test_without_an_engine_of_its_own_it_is_ready_while_another_polls(tmp_path: Path) -> None:
    """And until the grace has passed for the first time."""
    clock = ManualClock(datetime(2026, 3, 4, tzinfo=UTC))
    service = build(settings_for(tmp_path, store="memory://", engine=False), clock=clock)
    await service.start()
    assert not service.schedules.running
    transport = httpx2.ASGITransport(app=create_app(service))
    async with httpx2.AsyncClient(base_url="http://service", transport=transport) as client:
        assert (await client.get("/readyz")).status_code == 200
        await clock.advance(timedelta(seconds=66))
        answer = await client.get("/readyz")
        assert answer.status_code == 503
        assert (answer.json()["ready"], answer.json()["engine"]) == (False, "stalled")
        assert answer.json()["last_poll_seconds"] >= 61
        async with Schedules(service.store, clock=clock) as engine:
            await engine.start()
            await clock.advance(timedelta(seconds=12))
            assert (await client.get("/readyz")).json()["engine"] == "running"
            stopping = asyncio.ensure_future(engine.stop())
            await clock.advance(timedelta(minutes=1))
            await stopping
    await service.stop()


async def test_a_stopping_service_lives_and_is_not_ready(inside: Client) -> None:
    inside.service.stopping.set()
    assert (await inside.anonymous.get("/healthz")).status_code == 200
    answer = await inside.anonymous.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["stopping"] is True


async def test_without_an_engine_it_is_not_ready(inside: Client) -> None:
    await inside.service.schedules.stop()
    answer = await inside.anonymous.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["engine"] == "stopped"


async def test_without_its_database_it_is_not_ready(inside: Client) -> None:
    inside.service.store.kill()
    answer = await inside.anonymous.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["store"] == "failing"
