"""A second stop while the first one waits for a task of the application: neither waits any longer."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import pytest

from noonbell.bootstrap import build
from tests.api.conftest import settings_for
from tests.patience import PATIENCE_SECONDS

_TASKS = """
import asyncio
import threading
from datetime import timedelta

begun, go_on = threading.Event(), threading.Event()

def in_a_thread():
    begun.set()
    go_on.wait()

async def in_the_loop():
    begun.set()
    await asyncio.Event().wait()

def registrations():
    hour = timedelta(hours=1)
    return [("thread", "0 0 29 2 *", in_a_thread, hour), ("loop", "0 0 29 2 *", in_the_loop, hour)]
"""


@pytest.mark.parametrize("task", ["thread", "loop"])
async def test_a_second_stop_waits_for_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, task: str
) -> None:
    (tmp_path / "patient_tasks.py").write_text(_TASKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    service = build(settings_for(tmp_path, tasks="patient_tasks"))
    module = sys.modules.pop("patient_tasks")
    await service.start()
    assert service.tasks is not None
    run = asyncio.ensure_future(service.tasks.run_now(task))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.to_thread(module.begun.wait)
            first = asyncio.ensure_future(service.stop_work(600))
            while service._patience is None:  # noqa: ASYNC110 - that it waits for the tasks by now has no event
                await asyncio.sleep(0.01)
            assert not first.done()
            with caplog.at_level(logging.WARNING):
                assert await service.stop_work(0) is False
                assert await first is False
        assert "end as unknown" in caplog.text
    finally:
        module.go_on.set()
        await service.close()
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
