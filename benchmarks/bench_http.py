"""HTTP jobs through the whole path, beside bare aiohttp with the same concurrency.

    .venv/bin/python benchmarks/bench_http.py [--requests N] [--concurrency N] [--rounds N] [--json FILE]

- One process for both, on uvloop, and a local server in another, which answers every request with the same 250 bytes.
- Each round is a day. First bare aiohttp: one session, so many workers, POST with the headers and the body that
  Noonbell's requests have, each answer read whole. Then Noonbell: as many schedules that are due in one minute, each a
  request of its own, on SQLite. A first round warms up and is not counted; the table shows medians.
- Noonbell's rate counts from the due moment until the last run has ended on disk: claimed, checked by egress, sent,
  its request and answer written down, settled, all synced. Requests are not signed, and there are no secrets to mask.
- CPU is that of the measured process, for each request; the server's is not in it.
- No minute is waited for: the engine's clock is shifted to the due moment and runs on in real time.

The bar: at least half of bare aiohttp. The exit status is 1 where it is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BAR = 0.5
MOST_SECONDS = 3600

Result = dict[str, Any]


def run(requests: int, concurrency: int, rounds: int) -> Result:
    server = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.http_parts.server"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        with tempfile.TemporaryDirectory(prefix="noonbell-bench-") as folder:
            numbers = map(str, (requests, concurrency, rounds))
            done = subprocess.run(  # noqa: S603 - this repository's own modules
                [sys.executable, "-m", "benchmarks.http_parts.party", *numbers, folder, port],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                timeout=MOST_SECONDS,
            )
    finally:
        server.terminate()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()
    found: Result = json.loads(done.stdout.splitlines()[-1])
    return found


def summary(found: Result) -> Result:
    told: Result = {
        name: {key: median(one[key] for one in found[name]) for key in ("rate", "seconds", "cpu_us")}
        for name in ("noonbell", "bare")
    }
    # each round beside its own neighbour: what else the machine does changes from one to the next
    pairs = zip(found["noonbell"], found["bare"], strict=True)
    ratio = median(ours["rate"] / bare["rate"] for ours, bare in pairs)
    bar = {"bar": "half of bare aiohttp", "value": round(ratio, 3), "met": ratio >= BAR}
    return told | {"bars": [bar]}


def show(told: Result, requests: int, concurrency: int) -> None:
    print(f"\n{requests:,} requests, {concurrency} at once")
    print(f"{'':16}{'per second':>12}{'seconds':>10}{'CPU us':>9}")
    for name in ("noonbell", "bare"):
        row = told[name]
        print(f"{name:16}{row['rate']:>12,.0f}{row['seconds']:>10.2f}{row['cpu_us']:>9.1f}")
    print()
    for bar in told["bars"]:
        print(f"{'pass' if bar['met'] else 'MISSED':8}{bar['bar']}: {bar['value']:,g}")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--requests", type=int, default=10_000)
    options.add_argument("--concurrency", type=int, default=64)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--json", type=Path, help="write all results to this file too")
    given = options.parse_args()
    for name in ("requests", "concurrency", "rounds"):
        if getattr(given, name) < 1:
            options.error(f"--{name} must be at least 1")
    found = run(given.requests, given.concurrency, given.rounds)
    told = summary(found)
    show(told, given.requests, given.concurrency)
    if given.json:
        given.json.write_text(json.dumps(told | {"rounds": found}, indent=1))
    print(json.dumps(told))
    return 0 if all(bar["met"] for bar in told["bars"]) else 1


if __name__ == "__main__":
    sys.exit(main())
