"""The examples do what they say."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
import uvloop
from fastapi.testclient import TestClient

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]


def test_the_fastapi_lifespan_runs_tasks_beside_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEATS_STORE", f"sqlite:///{tmp_path}/beats.db")
    monkeypatch.syspath_prepend(str(ROOT))
    from examples.fastapi_lifespan import app, beats

    beats.clear()
    with TestClient(app) as client:
        # the first coming is due at once: every minute matches
        for _ in range(200):
            if client.get("/beats").json():
                break
        found = client.get("/beats").json()
    assert len(found) == 1
    assert datetime.fromisoformat(found[0]).tzinfo is not None


def test_declared_tasks_run_and_stop(tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "examples/declared_tasks.py"), "--seconds", "1.5"]
    told = subprocess.run(
        [*program, "--store", f"sqlite:///{tmp_path}/tasks.db"],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    ).stdout
    assert "report: all quiet" in told
    assert told.index("TaskRunStarted") < told.index("TaskRunCompleted") < told.index("SchedulerStopped")


def test_durable_schedules_outlive_the_program(tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "examples/durable_schedules.py"), "--seconds", "1.4"]
    lives = [
        subprocess.run(
            [*program, "--store", f"sqlite:///{tmp_path}/bells.db"],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_SECONDS,
        ).stdout
        for _ in range(2)
    ]
    assert all("ding noon" in told for told in lives)
    assert "schedule.created" in lives[0]
    assert lives[1].count("schedule.created") == 1
    assert "schedule.resumed" in lives[1]


def test_the_scheduler_runs_on_uvloop(tmp_path: Path) -> None:
    from datetime import timedelta

    from noonbell import Scheduler

    async def life() -> str:
        ran = asyncio.Event()

        async def work() -> None:
            ran.set()

        async with Scheduler(f"sqlite:///{tmp_path}/uv.db") as scheduler:
            await scheduler.initialize([("t", "* * * * *", work, timedelta(minutes=1))])
            await asyncio.wait_for(ran.wait(), PATIENCE_SECONDS)
            return type(asyncio.get_running_loop()).__module__

    assert uvloop.run(life()).startswith("uvloop")
