"""The example of messages does what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kept", [False, True])
def test_messages_arrive_in_order_after_a_refusal(tmp_path: Path, kept: bool) -> None:
    store = f"sqlite:///{tmp_path}/post.db" if kept else "memory://"
    program = [sys.executable, str(ROOT / "examples/messages.py"), "--seconds", "3.5", "--store", store]
    told = subprocess.run(
        program, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    ).stdout.splitlines()
    assert told[0].startswith("not at home: ")
    got = [line for line in told if line.startswith("got doorbell for ")]
    assert got[0].endswith("from scheduler (the one from before)")
    assert got == sorted(got)
    assert told[-1] == "0 dead letters"
