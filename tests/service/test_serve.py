"""The service as a process: what it says, what it does, and how it stops."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

from noonbell import __version__
from tests.patience import PATIENCE_SECONDS
from tests.service.conftest import NO_KEEP_ALIVE, served

API = "/api/v1"


def eventually(look: Callable[[], Any]) -> Any:
    """What a look gives as soon as it gives something: another process has its own pace."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come")


def runs_of(client: httpx2.Client, schedule_id: str, state: str) -> list[dict[str, Any]]:
    answer = client.get(f"{API}/schedules/{schedule_id}/runs")
    assert answer.status_code == 200, answer.text
    return [run for run in answer.json()["items"] if run["state"] == state]


def test_the_demo_from_its_start_to_ctrl_c(tmp_path: Path) -> None:
    with served(tmp_path, "--demo") as service, service.client() as client:
        assert service.told["version"] == __version__
        names = {one["schedule_id"] for one in client.get(f"{API}/schedules").json()["items"]}
        assert {"demo-every-minute", "demo-moody", "demo-command"} <= names
        assert client.post(f"{API}/schedules/demo-command/trigger").json()["warnings"] == []
        (echoed,) = eventually(lambda: runs_of(client, "demo-command", "succeeded"))
        assert "dong" in client.get(f"{API}/runs/{echoed['run_id']}").text
        # its target is the service itself, and egress lets it be reached
        assert client.post(f"{API}/schedules/demo-every-minute/trigger").status_code in (200, 202)
        (run,) = eventually(lambda: runs_of(client, "demo-every-minute", "succeeded"))[-1:]
        detail = client.get(f"{API}/runs/{run['run_id']}").json()
        assert "dong" in json.dumps(detail)
        # no other port of this machine
        action = {"kind": "http", "url": "http://127.0.0.1:1/"}
        body = {"schedule_id": "x", "name": "x", "type": "interval", "spec": "1", "action": action}
        assert client.post(f"{API}/schedules", json=body).status_code == 201
        failed = eventually(lambda: runs_of(client, "x", "failed"))
        assert "refused-by-egress" in client.get(f"{API}/runs/{failed[0]['run_id']}").text
        # the link for the first admin
        with httpx2.Client(timeout=PATIENCE_SECONDS, limits=NO_KEEP_ALIVE) as browser:
            page = browser.get(service.told["admin_link"])
            token = re.findall(r'name="csrf" value="([^"]+)"', page.text)[0]
            form = {"csrf": token, "name": "ann", "password": "correct horse", "again": "correct horse"}
            assert browser.post(service.told["admin_link"], data=form).status_code == 303
            assert "ann" in browser.get(f"{service.address}/").text
        # secrets can be put in without another step
        assert client.put(f"{API}/secrets/TOKEN", json={"value": "a long secret"}).status_code in (200, 201)
        assert service.stop(signal.SIGINT) == 0
        log = "".join(service.lines)
        assert "Traceback" not in log
        assert service.told["key"].split("_", 2)[2] not in log
        assert service.told["admin_link"].rpartition("/")[2] not in log
    # a second start on the same database, at another port: the old key is worthless, there is no link any more
    arguments = ("--demo", "--log-format", "json", "--shutdown-seconds", "50")
    with served(tmp_path, *arguments) as again, again.client() as client:
        assert again.told["admin_link"] is None
        assert again.told["key"] != service.told["key"]
        with again.client(service.told["key"]) as old:
            assert old.get(f"{API}/caller", headers={"X-Request-Id": "mine"}).status_code == 401
        client.post(f"{API}/schedules/demo-every-10-seconds/trigger")
        eventually(lambda: runs_of(client, "demo-every-10-seconds", "succeeded"))
        with client.stream("GET", f"{API}/events") as stream:  # which does not hold up the stop
            assert stream.status_code == 200
            again.process.send_signal(signal.SIGTERM)
            for _ in stream.iter_bytes():
                pass  # until the service ends it
        assert again.ended() == 0
        lines = [json.loads(line) for line in again.lines]
    (request,) = [line for line in lines if line.get("request_id") == "mine"]
    assert request["logger"] == "noonbell.api"
    assert (request["method"], request["path"], request["status"]) == ("GET", f"{API}/caller", 401)
    assert [line["event"] for line in lines][-1] == "stopped"


def test_a_run_that_does_not_end_is_left_in_the_time_given_and_taken_up_again(tmp_path: Path) -> None:
    script = tmp_path / "slow.sh"
    begun = tmp_path / "begun"
    script.write_text(f"#!/bin/sh\necho x >> {begun}\n[ $(wc -l < {begun}) -gt 1 ] || exec sleep 3600\n")
    script.chmod(0o755)
    action = {"kind": "command", "argv": [str(script)]}
    body = {"schedule_id": "slow", "name": "slow", "type": "interval", "spec": "1", "action": action}
    arguments = ("--demo", "--command", str(script), "--shutdown-seconds", "0.5")
    with served(tmp_path, *arguments) as service, service.client() as client:
        answer = client.post(f"{API}/schedules", json=body)
        assert answer.status_code == 201, answer.text
        eventually(begun.exists)
        assert service.stop() == 0
        assert "timeout_seconds=0.5" in "".join(service.lines)
    begun.write_text("x\n")
    with served(tmp_path, *arguments[:-1], "600") as service, service.client() as client:
        eventually(lambda: runs_of(client, "slow", "succeeded"))
        # and a second signal does not wait
        begun.unlink()
        eventually(begun.exists)
        service.process.send_signal(signal.SIGTERM)
        eventually(lambda: any("Stopping" in line for line in service.lines))
        assert service.process.poll() is None
        assert service.stop(signal.SIGINT) == 0
