"""The short version of `python -m tests.faults.hostile_targets`: once at each target, and what that may take."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.exhaustive
def test_hostile_targets_take_no_more_than_is_theirs() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.faults.hostile_targets", "--rounds", "1", "--seconds", "0.5"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        cwd=REPOSITORY,
    )
    assert ran.stdout, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["wrong"] == []
    assert told["attempts"] >= 40
    assert {"timeout", "too-large", "protocol"} <= told["ends"].keys()
    assert 0 < told["peak_above_base"] <= told["bar_bytes"] == 16 * 1_048_576 + 30_000_000
