"""The example of heartbeat monitors does what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]


def test_a_job_that_falls_silent_is_missed_and_comes_back() -> None:
    program = [sys.executable, str(ROOT / "examples/heartbeats.py"), "--beats", "2"]
    told = subprocess.run(
        program, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    ).stdout.splitlines()
    assert told[:4] == [
        "the job falls silent",
        "late: heart is late (no ping when one was due)",
        "failed: heart is down (no ping within the grace)",
        "recovered: heart is up (succeeded)",
    ]
    assert [line.split(" after")[0] for line in told[4:-1]] == ["new -> up", "up -> late", "late -> down", "down -> up"]
    assert told[-1] == "last words: sorry, overslept"
