"""The examples send themselves good and bad messages and handle one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("example", "answers"),
    [
        ("receive_webhooks.py", ["200", "200", "401", "401", "400"]),
        ("receive_webhooks_asgi.py", ["204", "200", "401", "400"]),
    ],
)
def test_the_examples_handle_one_message_of_many(example: str, answers: list[str], tmp_path: Path) -> None:
    for seen in ("", str(tmp_path / "seen.db")):
        environment = {**os.environ, "SEEN_FILE": seen, "PYTHONWARNINGS": "error"}
        told = subprocess.run(
            [sys.executable, str(ROOT / "examples" / example)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_SECONDS,
        ).stdout
        assert [line.partition(": ")[2][:3] for line in told.splitlines()] == [*answers, "Ada"]
        assert told.endswith("invoices: Ada\n")
