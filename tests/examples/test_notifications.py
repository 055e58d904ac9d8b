"""The example of notifications tells of a failure and of the recovery, and ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]


def test_a_webhook_is_told_of_a_failure_and_of_the_recovery() -> None:
    program = [sys.executable, str(ROOT / "examples/notifications.py")]
    told = subprocess.run(program, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS).stdout
    assert told.splitlines() == ["noonbell.failed: backup failed", "noonbell.recovered: backup works again"]
