"""Runs on a service and on a database with a worker: listed, shown, followed, waited for."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cli.conftest import At
from tests.patience import PATIENCE_SECONDS


@contextmanager
def another(local: At) -> Iterator[subprocess.Popen[str]]:
    """A process that runs an engine on the local database."""
    command = [sys.executable, "-m", "noonbell", "worker", "--command", "any", "--json", "--log-level", "error"]
    environment = {**os.environ, **{key: value for key, value in local.environment.items() if value is not None}}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as made:
        assert made.stdout is not None
        try:
            assert json.loads(made.stdout.readline())["lane"] == "default"
            yield made
        finally:
            if made.poll() is None:
                made.send_signal(signal.SIGTERM)
                made.wait(PATIENCE_SECONDS)


@pytest.fixture
def worker(local: At) -> Iterator[subprocess.Popen[str]]:
    with another(local) as made:
        yield made


def test_a_worker_runs_what_is_asked_for(local: At, worker: subprocess.Popen[str]) -> None:
    local.said("schedules", "add", "every day at 4am", "--name", "good", "--id", "good", "--command", "echo well done")
    local.said("schedules", "add", "every day at 4am", "--name", "bad", "--id", "bad", "--shell", "echo oh; exit 3")
    run = local.data("schedules", "trigger", "good", "--wait")
    assert (run["state"], run["attempts"], run["kind"]) == ("succeeded", 1, "manual")
    failed = local.run("schedules", "trigger", "bad", "--wait")
    assert failed.exit_code == 1
    assert "✗ failed" in failed.stdout
    assert re.search(r"1\. ✗ failed", failed.stdout)

    listed = local.data("runs", "list")["items"]
    assert {(one["name"], one["state"]) for one in listed} == {("good", "succeeded"), ("bad", "failed")}
    assert [one["name"] for one in local.data("runs", "list", "--outcome", "failed")["items"]] == ["bad"]
    assert [one["name"] for one in local.data("runs", "list", "good")["items"]] == ["good"]
    shown = local.said("runs", "show", "good")
    assert "✓ succeeded" in shown
    assert "well done" in shown
    assert local.data("runs", "show", run["run_id"])["state"] == "succeeded"
    assert local.run("runs", "follow", run["run_id"]).exit_code == 0
    assert "has not run yet" in _never(local)
    assert 'Run not found: "good:manual:1"' in local.refused("runs", "show", "good:manual:1")

    lanes = [one for one in local.data("doctor")["findings"] if one["what"] == "lanes"]
    assert lanes[0]["level"] == "ok"
    assert lanes[0]["told"].startswith("default has been up for ")
    top = local.data("top", "--once")
    assert top["outcomes"] == {"succeeded": 1, "failed": 1}
    assert [one["name"] for one in top["due"]] == ["bad", "good", "never"]

    with another(local):
        told = local.data("doctor")["findings"]
        assert [", by 2 engines (" in one["told"] for one in told if one["what"] == "lanes"] == [True]
        beside = local.data("top", "--once")
        assert [one["state"] for one in beside["engines"]] == ["up", "up"]
        assert worker.pid in {one["pid"] for one in beside["engines"]}
        assert len(beside["lanes"]) == 1
        assert "default (up " in (drawn := local.said("top", "--once"))
        assert ", 2 engines)" in drawn
        assert drawn.count(" in flight, ") == 2
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE_SECONDS) == 0


def _never(local: At) -> str:
    local.said("schedules", "add", "every day at 4am", "--name", "never", "--callback", "x")
    return local.refused("runs", "show", "never")


@pytest.mark.parametrize("place", ["local", "served"])
def test_runs_are_told_as_they_happen(place: str, request: pytest.FixtureRequest) -> None:
    at: At = request.getfixturevalue(place)
    if place == "local":
        request.getfixturevalue("worker")
    at.said("schedules", "add", "every day at 4am", "--name", "hello", "--id", "hello", "--callback", "nobody")
    environment = {**os.environ, **{key: value for key, value in at.environment.items() if value is not None}}
    follow = [sys.executable, "-u", "-m", "noonbell", "runs", "follow", "hello", "--json"]
    with subprocess.Popen(follow, stdout=subprocess.PIPE, text=True, env=environment) as following:
        assert following.stdout is not None
        states: list[str] = []
        try:
            while "failed" not in states:
                # nothing says from outside when it has begun to look, so it is given something to see until it has
                at.run("schedules", "trigger", "hello", "--wait")
                if _readable(following):
                    told = json.loads(following.stdout.readline())
                    assert (told["event"], told["schedule_id"], told["kind"]) == ("run", "hello", "manual")
                    states.append(told["state"])
            following.send_signal(signal.SIGINT)
            assert following.wait(PATIENCE_SECONDS) == 130
        finally:
            following.kill()


def _readable(process: subprocess.Popen[str]) -> bool:
    import select

    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0.2)[0])


def test_what_is_said_where_there_is_nothing(local: At) -> None:
    assert "Schedule not found" in local.refused("runs", "follow", "nobody")
    assert local.said("runs", "list") == "Nothing has run yet.\n"
    assert local.said("runs", "list", "--outcome", "failed") == "No run has failed.\n"
