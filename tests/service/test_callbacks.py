"""`noonbell serve --tasks`: nothing that a callback raises stops it, and a stop does not wait for its requests."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from tests.patience import wait_until
from tests.service.conftest import StreamInFlight, served

TASKS = """
import asyncio, pathlib, sys
from datetime import timedelta

class OwnError(BaseException):
    pass

RAISED = [SystemExit(3), KeyboardInterrupt(), OwnError("own"), asyncio.CancelledError()]
calls = {"hourly": 0, "daily": 0}

def raised(name):
    calls[name] += 1
    return RAISED[(calls[name] - 1) % len(RAISED)]

async def hourly():
    if calls["hourly"] == len(RAISED):
        pathlib.Path("begun").touch()
        while not pathlib.Path("go_on").exists():
            await asyncio.sleep(0.02)
        return
    raise raised("hourly")

def daily():
    raise raised("daily")

later = timedelta(minutes=5)
registrations = [("hourly", "0 0 1 1 *", hourly, later), ("daily", "0 0 1 1 *", daily, later)]
"""
NAMES = ["SystemExit", "KeyboardInterrupt", "OwnError", "CancelledError"]


def ask(service: StreamInFlight, period: str, answers: list[tuple[int, str]]) -> None:
    with service.client() as client:
        answer = client.get(f"/api/periodic?period={period}")
        answers.append((answer.status_code, answer.json()["detail"]))


def test_callbacks_do_not_stop_a_service(tmp_path: Path) -> None:
    (tmp_path / "their_tasks.py").write_text(TASKS)
    with served(tmp_path, "--demo", "--tasks", "their_tasks", "--shutdown-seconds", "300") as service:
        answers: list[tuple[int, str]] = []
        for period in ("hour", "day"):
            for _ in NAMES:
                ask(service, period, answers)
        assert [status for status, _ in answers] == [500] * 8
        assert all(f"failed with {name};" in detail for (_, detail), name in zip(answers, NAMES * 2, strict=True))
        assert service.process.poll() is None
        # one more that does not end: a stop answers it, without a traceback in the log
        slow: list[tuple[int, str]] = []
        asking = threading.Thread(target=ask, args=(service, "hour", slow))
        asking.start()
        wait_until((tmp_path / "begun").exists)
        service.process.send_signal(signal.SIGTERM)
        asking.join()
        (tmp_path / "go_on").touch()
        assert service.ended() == 0
        log = "".join(service.lines)
    assert slow == [(503, "The service is stopping, and the request had not ended; what it began may go on")]
    assert log.count("Traceback (most recent call last)") == 8, "those of the callbacks, and no other"
    assert "Exception in ASGI application" not in log
