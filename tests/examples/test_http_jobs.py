"""The example of HTTP jobs does what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]


def test_a_busy_server_is_asked_again_and_both_attempts_are_kept(tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "examples/http_jobs.py"), "--store", f"sqlite:///{tmp_path}/jobs.db"]
    told = subprocess.run(
        program, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    ).stdout.splitlines()
    assert told[:2] == ['attempt 1: {"bells":3}', 'attempt 2: {"bells":3}']
    kept = [line for line in told if line.startswith("kept: ")]
    assert kept == [
        "kept: attempt 1 POST Bearer *** -> 503 too busy (failed)",
        'kept: attempt 2 POST Bearer *** -> 200 {"state": "taken"} (succeeded)',
    ]
    assert "open sesame" not in "\n".join(told)
