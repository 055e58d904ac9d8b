"""The benchmark of HTTP jobs, made small: it measures what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.exhaustive
ROOT = Path(__file__).resolve().parents[3]


def bench(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "benchmarks/bench_http.py", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


def test_a_small_run_tells_its_figures(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    done = bench("--requests", "60", "--concurrency", "8", "--rounds", "2", "--json", str(told))
    # 1 says that the bar was missed: a burst this small is over before it has begun
    assert done.returncode in (0, 1), done.stderr
    assert "60 requests, 8 at once" in done.stdout
    assert done.stderr.count("round") == 3
    found = json.loads(told.read_text())
    assert [len(found["rounds"][name]) for name in ("noonbell", "bare")] == [2, 2]
    assert found["noonbell"]["rate"] > 0
    assert found["bare"]["rate"] > 0
    (bar,) = found["bars"]
    assert bar["met"] == (done.returncode == 0)
    assert json.loads(done.stdout.splitlines()[-1])["bars"] == found["bars"]


def test_numbers_that_make_no_sense_are_refused() -> None:
    done = bench("--requests", "0")
    assert done.returncode == 2
    assert "--requests must be at least 1" in done.stderr
