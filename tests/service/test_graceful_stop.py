"""SIGTERM with long runs in hand: service and worker hand them back themselves; no next start has to find them."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noonbell import Schedules
from noonbell.core.crashes import CUT_OFF
from noonbell.core.ids import run_id
from noonbell.ledger.ledger_rows import lifecycle_of
from noonbell.ports import RunFilter, ScheduleFilter
from noonbell.store.sqlite import SqliteStore
from tests.patience import PATIENCE_SECONDS
from tests.service.conftest import command, environment, served
from tests.service.test_serve import API, eventually


@contextlib.contextmanager
def silent_server() -> Iterator[socket.socket]:
    """It takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_SECONDS)
        yield server


def running(run: dict[str, Any]) -> dict[str, Any] | None:
    return run if run["state"] == "running" else None


async def left_in(database: Path) -> tuple[dict[str, tuple[Any, ...]], list[str]]:
    """What a stop has left in the ledger of each run that had begun, and the ids of those that are to go on."""
    store = SqliteStore(database)
    await store.open()
    try:
        found: dict[str, tuple[Any, ...]] = {}
        run_ids = []
        for stored in await store.schedules.find(
            ScheduleFilter(schedule_ids=["slow-command", "slow-http", "slow-once"])
        ):
            attempts = await store.history.attempts(stored.sid, 0, 1 << 62)
            runs = await store.history.runs(RunFilter(stored.sid, 0, 1 << 62))
            lives = [(live.state, live.crashes, live.owner) for live in stored.lives]
            run_ids += [run_id(stored.schedule_id, live.kind, live.run_for) for live in stored.lives]
            told = [(one.attempt, one.outcome, one.error) for one in attempts]
            found[stored.schedule_id] = (lives, [run.outcome for run in runs], told)
        events = [event.event for event in await lifecycle_of(store, "lane:default")]
        assert events[-2:] == ["stop-start", "stop-end"], "a stop, and no crash"
        return found, run_ids
    finally:
        await store.close()


@pytest.mark.parametrize("signals", [1, 2])
async def test_what_runs_at_a_stop_is_handed_back(tmp_path: Path, signals: int) -> None:
    with silent_server() as server:
        port = server.getsockname()[1]
        begun = tmp_path / "begun"
        command = {"kind": "command", "argv": ["/bin/sh", "-c", f"echo x >> {begun}; exec sleep 3600"]}
        http = {"kind": "http", "url": f"http://127.0.0.1:{port}/"}
        bodies: list[dict[str, Any]] = [
            {"schedule_id": "slow-command", "action": command},
            {"schedule_id": "slow-http", "action": http},
            {"schedule_id": "slow-once", "action": command, "at_most_once": True},
        ]
        # the second time the time is long, and a second signal cuts it short
        seconds = "0.5" if signals == 1 else "600"
        arguments = ("--demo", "--command", "/bin/sh", "--allow", f"127.0.0.1:{port}", "--shutdown-seconds", seconds)
        store = f"sqlite:///{tmp_path / 'service.db'}"
        with served(tmp_path, *arguments, "--store", store) as service, service.client() as client:
            # the demo's own runs would be counted among those that are cut off
            for one in client.get(f"{API}/schedules").json()["items"]:
                assert client.post(f"{API}/schedules/{one['schedule_id']}/pause").status_code == 200
            eventually(lambda: 'noonbell_live_runs{state="running"} 0.0' in client.get("/metrics").text)
            for body in bodies:
                rest = {"name": body["schedule_id"], "type": "interval", "spec": "1"}
                answer = client.post(f"{API}/schedules", json=body | rest)
                assert answer.status_code == 201, answer.text
            # claimed is not begun: what a stop finds unstarted is handed back without an attempt
            asked, _ = server.accept()
            eventually(lambda: begun.exists() and begun.read_text() == "x\nx\n")
            assert asked.recv(4) == b"GET "
            service.process.send_signal(signal.SIGTERM)
            if signals == 2:
                eventually(lambda: any("stopping shutdown_seconds=" in line for line in service.lines))
                assert service.process.poll() is None
                service.process.send_signal(signal.SIGTERM)
            ended = service.ended()
            asked.close()
            assert ended == 0, "".join(service.lines)
            log = "".join(service.lines)
            assert "3 runs were cut off by the stop; 2 of them start again" in log, log
            assert "Traceback" not in log
        left, run_ids = await left_in(tmp_path / "service.db")
        cut = (1, "unknown", CUT_OFF)
        assert left == {
            "slow-command": ([("queued", 0, None)], [], [cut]),
            "slow-http": ([("queued", 0, None)], [], [cut]),
            "slow-once": ([], ["unknown"], [cut]),
        }
        assert len(run_ids) == 2
        with served(tmp_path, *arguments, "--store", store) as service, service.client() as client:
            for one in run_ids:
                again = eventually(lambda one=one: running(client.get(f"{API}/runs/{one}").json()))  # type: ignore[misc]  # a name bound by its default
                assert again["attempts"] == 2
            service.process.kill()


@contextlib.contextmanager
def working(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A worker that is up; it is killed at the end if nobody has stopped it."""
    with subprocess.Popen(
        command("worker", "--json", *arguments), cwd=folder, env=environment(folder), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["lane"] == "default"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("signals", [1, 2])
async def test_a_worker_hands_back_as_the_service_does(tmp_path: Path, signals: int) -> None:
    begun, store = tmp_path / "begun", f"sqlite:///{tmp_path / 'worker.db'}"
    action = {"kind": "command", "argv": ["/bin/sh", "-c", f"echo x >> {begun}; exec sleep 3600"]}
    async with Schedules(store, commands=True) as schedules:
        for schedule_id, at_most_once in (("slow-command", False), ("slow-once", True)):
            await schedules.create(
                schedule_id=schedule_id, name=schedule_id, type="interval", spec="1", action=action,
                at_most_once=at_most_once,
            )  # fmt: skip
    seconds = "0.5" if signals == 1 else "600"
    with working(tmp_path, "--store", store, "--command", "/bin/sh", "--shutdown-seconds", seconds) as worker:
        assert worker.stderr is not None
        eventually(lambda: begun.exists() and begun.read_text() == "x\nx\n")
        worker.send_signal(signal.SIGTERM)
        log = ""
        while "stopping shutdown_seconds=" not in log:
            log += (line := worker.stderr.readline())
            assert line, log
        if signals == 2:
            worker.send_signal(signal.SIGTERM)
        log += worker.stderr.read()
        assert worker.wait(PATIENCE_SECONDS) == 0, log
    assert "2 runs were cut off by the stop; 1 of them start again" in log, log
    assert "Traceback" not in log
    left, _ = await left_in(tmp_path / "worker.db")
    cut = (1, "unknown", CUT_OFF)
    assert left == {"slow-command": ([("queued", 0, None)], [], [cut]), "slow-once": ([], ["unknown"], [cut])}
