"""Peers of the benchmark of schedules: as many due jobs with an empty action, in a process of their own.

APScheduler 3 in memory, with cron triggers, is the peer of SQLite (see `engine_parts/apscheduler_party.py`; here its
event loop has nothing else to do, as Noonbell's has not). graphile-worker is the peer of PostgreSQL, on the same server
(see `graphile_worker/trial.cjs`). A peer that is not installed, or cannot be, is left out with a message.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
GRAPHILE = Path(__file__).resolve().parent / "graphile_worker"
INSTALL_SECONDS = 300.0
# What a peer may take to fire. APScheduler is stopped then and what it managed is counted.
LIMIT_SECONDS = 60.0
SLACK_SECONDS = 240.0

Result = dict[str, Any]


class PeerUnavailableError(Exception):
    """A peer cannot be measured here; the text says why."""


def apscheduler(jobs: int, folder: Path) -> Result:
    if importlib.util.find_spec("apscheduler") is None:
        raise PeerUnavailableError("APScheduler is not installed in this environment; make bench-schedules has it")
    module = "benchmarks.engine_parts.apscheduler_party"
    found = _run([sys.executable, "-m", module, "memory", str(jobs), str(folder), str(LIMIT_SECONDS), "quiet"])
    return {"rate": found["recorded"] / found["recorded_seconds"], "cpu_us": found["cpu_us"]}


def graphile_worker(jobs: int, dsn: str) -> Result:
    """`dsn` is of a database that nothing else uses."""
    node, folder = _installed()
    found = _run([node, str(GRAPHILE / "trial.cjs"), str(folder), dsn, str(jobs)])
    return {"rate": jobs / found["seconds"], "cpu_us": found["cpu_us"]}


def _installed() -> tuple[str, Path]:
    """Return the program `node`, and the folder that holds the packages: beside those of this environment."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise PeerUnavailableError("Node.js is not here: graphile-worker needs the programs node and npm")
    folder = Path(sys.prefix) / "graphile-worker"
    wanted = (GRAPHILE / "package.json").read_text()
    stamp = folder / "installed.json"
    if not stamp.exists() or stamp.read_text() != wanted:
        folder.mkdir(exist_ok=True)
        (folder / "package.json").write_text(wanted)
        command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
        try:
            done = subprocess.run(  # noqa: S603 - a fixed command
                command, cwd=folder, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise PeerUnavailableError(f"npm install took longer than {INSTALL_SECONDS:g} s") from error
        if done.returncode:
            raise PeerUnavailableError(f"npm install ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        stamp.write_text(wanted)
    return node, folder


def _run(command: list[str]) -> Result:
    done = subprocess.run(  # noqa: S603 - this repository's own programs
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=2 * LIMIT_SECONDS + SLACK_SECONDS
    )
    found: Result = json.loads(done.stdout.splitlines()[-1])
    return found
