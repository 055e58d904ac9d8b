"""The benchmark of durable schedules, made small: it measures what it says, on both databases."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.engine_parts.judging import Judged
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_schedules", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_small_run_reports_its_figures(tmp_path: Path, database: str) -> None:
    written = tmp_path / "figures.json"
    case = f"{database}, 200 due among 800"
    done = run(
        "--cases", f"{database}:200", "--schedules", "500", "--days", "2", "--rounds", "2", "--no-peers",
        "--json", str(written),
    )  # fmt: skip
    # 1 says that a bar was missed: a burst this small is over before it has begun
    assert done.returncode in (0, 1), done.stderr
    assert case in done.stdout
    assert done.stdout.count("load average at the") == 2
    found = json.loads(written.read_text())
    rounds = found["rounds"][case]
    assert [[len(one["days"][kind]) for kind in ("callbacks", "own times", "messages")] for one in rounds] == [
        [2] * 3
    ] * 2
    bursts = found["cases"][case]["bursts"]
    assert set(bursts["callbacks, later days"]) == {"rate", "cpu_us", "log_bytes"}
    assert all(number > 0 for burst in bursts.values() for number in burst.values())
    assert found["cases"][case]["kept_bytes"] > 0
    assert json.loads(done.stdout.splitlines()[-1])["bars"] == found["bars"]
    assert [bar["goal"] for bar in found["bars"]].count(False) == (4 if database == "postgres" else 3)


@pytest.mark.exhaustive
def test_a_peer_that_is_not_installed_is_left_out_with_a_message() -> None:
    done = run("--cases", "sqlite:50", "--schedules", "200", "--days", "1", "--rounds", "1")
    assert done.returncode in (0, 1), done.stderr
    peer = "APScheduler is not installed in this environment"
    assert peer in done.stderr
    assert f"APScheduler was left out: {peer}" in done.stdout


@pytest.mark.parametrize("cases", ["mysql:100", "sqlite", "sqlite:many"])
def test_cases_that_are_none_are_refused(cases: str) -> None:
    done = run("--cases", cases)
    assert done.returncode == 2
    assert f'--cases has "{cases}"' in done.stderr


def test_a_missed_bar_makes_the_status_1_and_a_missed_goal_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    judged = Judged()
    judged.at_least("rate", 9, 10, goal=True)
    judged.at_most("bytes", 10, 10)
    judged.skip("a peer")
    assert judged.status == 0
    judged.at_most("milliseconds", 1.5, 1)
    assert judged.status == 1
    judged.show()
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert [line[:2] for line in lines] == [["missed", "goal"], ["pass", "bar"], ["MISSED", "bar"], ["-", "skip"]]
