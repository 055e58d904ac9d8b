"""The example sends itself good and bad messages and handles one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_example_handles_one_of_five_messages(tmp_path: Path) -> None:
    for seen in ("", str(tmp_path / "seen.db")):
        environment = {**os.environ, "SEEN_FILE": seen, "PYTHONWARNINGS": "error"}
        told = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "receive_webhooks.py")],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        assert [line.partition(": ")[2][:3] for line in told.splitlines()] == ["200", "200", "401", "401", "400", "Ada"]
        assert told.endswith("invoices: Ada\n")
