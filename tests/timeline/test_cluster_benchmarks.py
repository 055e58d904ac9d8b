"""The benchmarks of several instances, made small: they measure what they say, and end by themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.exhaustive
ROOT = Path(__file__).resolve().parents[2]


def run(module: str, *options: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    # 1 says that a bar was missed: how late things are on a busy machine is nothing to test
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_two_instances_share_a_small_load_and_fire_each_once() -> None:
    sizes = ["--rounds", "0", "--steady", "10", "--seconds", "2", "--peer-seconds", "0"]
    told = run("bench_cluster", *sizes, "--instances", "2", "--timelines", "redis")
    (row,) = told["noonbell"]
    assert (row["timeline"], row["instances"], row["exactly_once"]) == ("redis", 2, True)
    steady = row["steady"]["10"]
    assert (steady["fires"], sum(steady["shares"])) == (20, 20)
    assert steady["late"]["p50_ms"] > 0
    assert steady["bare"]["p99_ms"] is not None
    assert [bar["bar"].partition(":")[0] for bar in told["bars"]] == ["redis x 2", "redis x 2"]


def test_bytes_are_counted() -> None:
    told = run("bench_scale", "--schedules", "500", "--minutes", "3", "--members", "5000", "--databases", "sqlite")
    assert told["sqlite"]["fires"] == 1_500
    # an id, a name, an epoch and an audit event; an instant, numbers and who ran it
    assert 300 < told["sqlite"]["of_a_schedule"] < 3_000
    assert 30 < told["sqlite"]["of_a_fire"] < 300
    # a number and a score, in a list and in a table
    assert 40 < told["timeline"]["of_a_member"] < 200
    assert told["timeline"]["turned_per_second"] > 0
