"""The benchmark that counts what four requests walk through: it counts, and its bars for calls of the store hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.call_paths import BARS
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]


def test_the_paths_are_counted_and_within_their_bars(tmp_path: Path) -> None:
    written = tmp_path / "paths.json"
    command = [sys.executable, "-m", "benchmarks.call_paths", "--json", str(written)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(written.read_text())
    assert found.keys() == BARS.keys()
    for name, path in found.items():
        assert 0 < sum(path["store"].values()) <= BARS[name], (name, path["store"])
        assert path["functions"] > path["modules"] > 10
        assert path["hops"] > path["modules"] - 1
    assert found["one HTTP job"]["store"] == {"runs.claim": 1, "runs.settle": 1}
