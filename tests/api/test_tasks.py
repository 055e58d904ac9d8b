"""`GET /api/periodic`, in an application of one's own and in the service."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest
from fastapi import Depends, FastAPI, HTTPException

from noonbell import periodic
from noonbell.api.routes.tasks import periodic_router
from noonbell.engine import contain_interrupts
from noonbell.testing import ManualClock
from tests.api.conftest import serving, settings_for
from tests.engine.test_any_exception import RAISED, raising


def between_hours() -> periodic.Capabilities:
    """A clock that stands at twenty past: neither task is due by itself, whenever the tests run."""
    return periodic.Capabilities(clock=ManualClock(datetime(2026, 11, 18, 10, 20, tzinfo=UTC)))


class App:
    def __init__(self, cron: periodic.PeriodicScheduler) -> None:
        self.cron = cron
        self.ran: list[str] = []
        self.go_on = asyncio.Event()
        self.begun = asyncio.Event()

    async def hourly(self) -> None:
        self.ran.append("hourly")

    async def daily(self) -> None:
        self.ran.append("daily")
        self.begun.set()
        await self.go_on.wait()
        if len(self.ran) > 1:
            raise RuntimeError("no disk left")

    def client(self, patience_seconds: float = 20.0, **more: object) -> httpx2.AsyncClient:
        app = FastAPI()
        app.include_router(periodic_router(self.cron, patience_seconds=patience_seconds, **more))  # type: ignore[arg-type]  # passed on
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://app")


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with periodic.make(between_hours()) as cron:
        made = App(cron)
        await periodic.schedule_all(cron.capabilities, hourly=made.hourly, daily=made.daily)
        yield made
        made.go_on.set()


@pytest.mark.parametrize("period", ["hour", "hourly"])
async def test_the_hourly_task_runs_at_once(app: App, period: str) -> None:
    async with app.client() as client:
        answer = await client.get(f"/api/periodic?period={period}")
    assert (answer.status_code, answer.json()) == (200, {"task": "hourly", "state": "succeeded"})
    assert app.ran == ["hourly"]


@pytest.mark.parametrize("period", ["day", "daily"])
async def test_the_daily_task_that_takes_its_time(app: App, period: str) -> None:
    async with app.client(patience_seconds=0.01) as client:
        answer = await client.get(f"/api/periodic?period={period}")
        assert (answer.status_code, answer.json()) == (202, {"task": "daily", "state": "running"})
        await app.begun.wait()
        busy = await client.get(f"/api/periodic?period={period}")
        assert busy.status_code in (202, 409)
    assert app.ran == ["daily"], "and no second run beside it"


async def test_a_run_under_way_is_told_as_such(app: App) -> None:
    async with app.client() as client:
        first = asyncio.create_task(client.get("/api/periodic?period=day"))
        await app.begun.wait()
        busy = await client.get("/api/periodic?period=day")
        assert busy.status_code == 409
        assert busy.json()["type"] == "urn:noonbell:problem:task-busy"
        app.go_on.set()
        assert (await first).status_code == 200
        failed = await client.get("/api/periodic?period=day")
    assert failed.status_code == 500
    assert "RuntimeError" in failed.json()["detail"]
    assert "no disk left" not in failed.text, "what a task says is not for everybody who may run it"


@pytest.mark.parametrize("kind", ["coroutine", "plain", "wrapped"])
@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
async def test_whatever_a_task_raises_is_a_500(error: BaseException, kind: str) -> None:
    contain_interrupts()
    async with periodic.make(between_hours()) as cron:
        task = raising(error, kind)
        await periodic.schedule_all(cron.capabilities, hourly=task, daily=task)
        async with App(cron).client() as client:
            for period in ("hour", "day", "hour"):  # and a run that has failed is not under way any more
                answer = await client.get(f"/api/periodic?period={period}")
                assert answer.status_code == 500
                assert f"failed with {type(error).__name__};" in answer.json()["detail"]


@pytest.mark.parametrize("query", ["", "?period=", "?period=week", "?period=Hour", "?period=hour&period=day", "?x=1"])
async def test_any_other_period_is_a_400(app: App, query: str) -> None:
    async with app.client() as client:
        answer = await client.get(f"/api/periodic{query}")
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["field"] == "period"
    assert app.ran == []


async def test_without_such_a_task_it_is_a_404() -> None:
    async with periodic.make(between_hours()) as cron, App(cron).client() as client:
        assert (await client.get("/api/periodic?period=hour")).status_code == 404


async def test_whoever_mounts_it_says_who_may(app: App) -> None:
    def nobody() -> None:
        raise HTTPException(403, "nobody may")

    async with app.client(dependencies=[Depends(nobody)]) as client:
        assert (await client.get("/api/periodic?period=hour")).status_code == 403
    assert app.ran == []


# --- in the service ---------------------------------------------------------------------------------------------------

_TASKS = """
import pathlib
from datetime import timedelta

here = pathlib.Path(__file__).parent

def hourly():
    with (here / "ran").open("a") as file:
        file.write("x")

def registrations():
    soon = timedelta(minutes=5)
    tasks = [("hourly", "0 0 29 2 *", hourly, soon), ("daily", "1 0 29 2 *", hourly, soon)]
    return tasks[:1] if (here / "fewer").exists() else tasks
"""


async def test_the_service_runs_the_tasks_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "application_tasks.py").write_text(_TASKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = settings_for(tmp_path, tasks="application_tasks")
    async with serving(settings) as client:
        assert (await client.anonymous.get("/api/periodic?period=hour")).status_code == 401
        assert (await client.read.get("/api/periodic?period=hour")).status_code == 403
        for scope in ("write", "admin"):  # declared tasks are the first team's
            foreign = await client.with_key("other", scope)
            assert (await foreign.get("/api/periodic?period=hour")).status_code == 404
        assert (await client.write.get("/api/periodic?period=hour")).status_code == 200
        assert (await client.write.get("/api/periodic?period=daily")).status_code == 200
        assert (tmp_path / "ran").read_text() == "xx"
        assert (await client.write.get("/api/periodic?period=")).status_code == 400
        shown = (await client.read.get("/api/v1/schedules?managed_by=periodic:application")).json()["items"]
        assert {one["name"] for one in shown} == {"hourly", "daily"}
    (tmp_path / "fewer").touch()
    async with serving(settings) as client:  # what the module does not declare any more is taken out
        assert (await client.write.get("/api/periodic?period=daily")).status_code == 404
        assert (await client.write.get("/api/periodic?period=hour")).status_code == 200
    sys.modules.pop("application_tasks")


async def test_a_service_without_tasks_has_no_such_address(tmp_path: Path) -> None:
    async with serving(settings_for(tmp_path)) as client:
        assert (await client.write.get("/api/periodic?period=hour")).status_code == 404
