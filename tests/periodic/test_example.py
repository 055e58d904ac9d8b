"""The example does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_SECONDS

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "periodic_tasks.py"


def run(*arguments: str) -> list[str]:
    command = [sys.executable, "-W", "error", str(EXAMPLE), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
    assert answer.stderr == ""
    return answer.stdout.splitlines()


def test_the_example_runs_all_tasks_and_shows_them() -> None:
    lines = run()
    assert "hourly: the event log is in sync" in lines
    assert "cache: cleaned in the thread noonbell-task-1" in lines
    warning = "WARNING DailyTasksUnavailable: Executable 'my-daily-tasks' was not found; the daily tasks were skipped"
    assert warning in lines
    assert "hourly succeeded, daily succeeded, clean-cache succeeded" in lines
    stands = [
        line for line in lines if re.fullmatch(r"(hourly|daily) +0 \S+ \* \* \* +\w+ +last success: [\d :-]+", line)
    ]
    assert len(stands) == 2


def test_the_example_keeps_its_history_in_a_store(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/tasks.db"
    assert run(address)
    assert run(address)
    assert (tmp_path / "tasks.db").stat().st_size > 0
