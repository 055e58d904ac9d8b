"""The benchmark of durable schedules, made small: it measures what it says, on both databases."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.exhaustive
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_small_run_tells_its_figures(tmp_path: Path, database: str) -> None:
    told = tmp_path / "told.json"
    sizes = ["--schedules", "800", "--burst", "200", "--rounds", "2"]
    done = subprocess.run(
        [sys.executable, "benchmarks/bench_schedules.py", "--databases", database, *sizes, "--json", str(told)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    # 1 says that a bar was missed: a burst this small is over before it has begun
    assert done.returncode in (0, 1), done.stderr
    assert "200 due among 800 schedules" in done.stdout
    found = json.loads(told.read_text())
    assert len(found["bars"]) == 6
    rounds = found["rounds"][database]
    assert [len(rounds[name]) for name in ("callbacks", "messages", "bare callbacks", "bare messages")] == [2] * 4
    row = found["databases"][database]["callbacks"]
    assert row["rate"] > 0
    assert row["bytes"] > 0
    if database == "sqlite":
        # live run in and out, the run itself, and its schedule twice: as many as the bare statements write
        # (a sign of life of the engine may be among them)
        bare = found["databases"][database]["bare callbacks"]["rows"]
        assert (round(row["rows"], 1), bare) == (5.0, 5.0)
    assert json.loads(done.stdout.splitlines()[-1])["bars"] == found["bars"]


def test_bursts_that_do_not_fit_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/bench_schedules.py", "--schedules", "100", "--burst", "50"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 2
    assert "--schedules must be at least 200" in done.stderr
