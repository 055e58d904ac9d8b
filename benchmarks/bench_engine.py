"""N declared tasks due in the same minute: Noonbell on SQLite beside APScheduler, in one run, on a busy event loop.

    .venv-bench/bin/python -m benchmarks.bench_engine [--json FILE] [--rounds N] [--sizes 1000,10000] [--limit SECONDS]

- Each measurement is a process of its own with a file of its own; in each round the parties take turns at each size,
  several times where a burst is short. The table shows medians and, for the rate, the best too.
- The parties: Noonbell, durable, with default settings; APScheduler 3 with cron triggers, in memory and with its
  SQLAlchemy store on SQLite. Actions are empty coroutines. See benchmarks/engine_parts for exactly what each does.
- Noonbell has three days, each with a burst of all tasks: the figures are those of the first day, and "later" is of the
  others. Declared tasks share their times, so there is no case where each has its own.
- The event loop does a millisecond of other work every five; "stall" is the longest that this work was kept waiting
  beyond its time during the bursts.
- No minute is waited for. Noonbell gets a clock that is shifted to the due minute and then runs on in real time;
  APScheduler gets jobs whose first run is already due, with no limit to lateness, and is resumed at the due moment.
- "started" is the time from the due moment until the last action has begun, "recorded" until its end is on disk (in
  memory: noted). The rate is runs recorded over that time; the ratio is Noonbell's rate over the party's, same size.
- CPU is that of the process for each run, without the other work of the event loop; "log" is what a run adds to the
  WAL, "kept" what the table of runs grows by.
- APScheduler may add jobs for 60 s and fire for 60 s and is stopped then; what it managed is counted (see its file),
  and it is not asked for that size again in later rounds. Noonbell alone is asked for a million.
- A tick: one task due among N, from the due moment until its end is on disk, the median of 200 minutes. Wall and CPU
  time; the bar takes the worse of the two. On a quiet loop, after the burst and a sync of the disk, in one process.
- Memory: what the process holds after all tasks are declared beyond what it held before, over N; and the peak.

The exit status is 1 where a bar is missed. Goals are absolute rates: they depend on the machine and are only shown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.engine_parts.judging import Judged, print_load

ROOT = Path(__file__).resolve().parent.parent
NOONBELL, MEMORY, SQL = "Noonbell", "APScheduler memory", "APScheduler SQLite"
PARTIES = (NOONBELL, MEMORY, SQL)
PEERS = (MEMORY, SQL)
SIZES = (1_000, 10_000, 100_000, 1_000_000)
PEERS_UP_TO = 100_000
# A small burst is over in a few hundredths of a second, which anything may disturb: it is measured more often.
TURNS = {1_000: 5, 10_000: 3}
RATE_BAR, RATE_BAR_SIZES, STARTED_BAR_SECONDS, TICK_BAR = 6.0, (10_000, 100_000), 30.0, 2.0
FIRST_GOAL, LATER_GOAL, CPU_GOAL_US = 30_000.0, 40_000.0, 30.0
# Slack for what the limit does not cover: a first scan of a large table, the end of a process with much memory.
SLACK_SECONDS = 240.0

Result = dict[str, Any]
Results = dict[int, dict[str, list[Result]]]

# --- measuring --------------------------------------------------------------------------------------------------------


def command(party: str, size: int, folder: str, limit: float) -> list[str]:
    if party == NOONBELL:
        return ["noonbell_party", str(size), folder]
    return ["apscheduler_party", "memory" if party == MEMORY else "sqlalchemy", str(size), folder, str(limit)]


def run_party(party: str, size: int, limit: float) -> Result:
    with tempfile.TemporaryDirectory(prefix="noonbell-bench-") as folder:
        module, *arguments = command(party, size, folder, limit)
        done = subprocess.run(  # noqa: S603 - this repository's own modules
            [sys.executable, "-m", f"benchmarks.engine_parts.{module}", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=2 * limit + SLACK_SECONDS,
        )
    result: Result = json.loads(done.stdout.splitlines()[-1])
    result["rate"] = result["recorded"] / result["recorded_seconds"]
    if "later_days" in result:
        result["later_rate"] = median(day["recorded"] / day["recorded_seconds"] for day in result["later_days"])
        result["later_cpu_us"] = median(day["cpu_us"] for day in result["later_days"])
    return result


def measure(sizes: list[int], rounds: int, limit: float) -> Results:
    results: Results = {size: {party: [] for party in PARTIES} for size in sizes}
    for this_round in range(1, rounds + 1):
        for size in sizes:
            for turn in range(TURNS.get(size, 1)):
                for party in PARTIES:
                    if wanted(party, size, turn, results[size][party]):
                        told = f"round {this_round}: {party}, {size:,}: "
                        results[size][party].append(timed(party, size, limit, told))
    return results


def wanted(party: str, size: int, turn: int, so_far: list[Result]) -> bool:
    if party not in PEERS:
        return True
    if size > PEERS_UP_TO or (so_far and so_far[-1]["stopped"]):
        return False
    return party == MEMORY or turn == 0


def timed(party: str, size: int, limit: float, told: str) -> Result:
    began = time.perf_counter()
    result = run_party(party, size, limit)
    spent = time.perf_counter() - began
    print(f"{told}{result['rate']:,.0f}/s, {spent:.0f} s in all", file=sys.stderr, flush=True)
    return result


# --- showing ----------------------------------------------------------------------------------------------------------


def middle(results: list[Result], key: str) -> float | None:
    found = [result[key] for result in results if result.get(key) is not None]
    return median(found) if found else None


def row(results: list[Result], size: int, ours: list[Result]) -> Result:
    keys = (
        "initialize_seconds", "started_seconds", "recorded_seconds", "stall_seconds", "rate", "later_rate", "cpu_us",
        "later_cpu_us", "log_bytes", "kept_bytes", "tick_seconds", "tick_cpu_seconds",
    )  # fmt: skip
    told: Result = {key: middle(results, key) for key in keys}
    told["best_rate"] = max(result["rate"] for result in results)
    told["measurements"] = len(results)
    told["ratio"] = (middle(ours, "rate") or 0.0) / told["rate"]
    told["later_ratio"] = (middle(ours, "later_rate") or 0.0) / told["rate"]
    told["stopped"] = any(result.get("stopped") for result in results)
    told["added"] = min(result.get("added", size) for result in results)
    told["started"] = min(result["started"] for result in results)
    told["recorded"] = min(result["recorded"] for result in results)
    memory, peak = middle(results, "memory_bytes"), middle(results, "peak_bytes")
    told["bytes_per_task"] = None if memory is None else memory / told["added"]
    told["peak_bytes_per_task"] = None if peak is None else peak / told["added"]
    return told


def summary(results: Results) -> dict[str, Any]:
    sizes = {
        size: {party: row(found, size, parties[NOONBELL]) for party, found in parties.items() if found}
        for size, parties in results.items()
    }
    return {
        "sizes": sizes,
        "versions": {"APScheduler": version("APScheduler"), "apsw": version("apsw"), "python": sys.version.split()[0]},
    }


def judge(sizes: dict[int, dict[str, Result]]) -> Judged:
    """Judge each bar and goal that the measured sizes allow."""
    judged = Judged()
    for size in RATE_BAR_SIZES:
        if MEMORY in sizes.get(size, {}):
            peer = sizes[size][MEMORY]
            judged.at_least(f"{size:,}, first day: times the rate of APScheduler in memory", peer["ratio"], RATE_BAR)
            judged.at_least(f"{size:,}, later days: the same", peer["later_ratio"], RATE_BAR)
        if size in sizes:
            ours = sizes[size][NOONBELL]
            judged.at_least(f"{size:,}, first day: runs a second", ours["rate"], FIRST_GOAL, goal=True)
            judged.at_least(f"{size:,}, later days: runs a second", ours["later_rate"], LATER_GOAL, goal=True)
            judged.at_most(f"{size:,}, first day: us of CPU a run", ours["cpu_us"], CPU_GOAL_US, goal=True)
            judged.at_most(f"{size:,}, later days: us of CPU a run", ours["later_cpu_us"], CPU_GOAL_US, goal=True)
    last = max(SIZES)
    if last in sizes:
        started = sizes[last][NOONBELL]["started_seconds"]
        judged.at_most(f"{last:,} due in one minute: seconds until the last start", started, STARTED_BAR_SECONDS)
    if last in sizes and min(SIZES) in sizes:
        small, large = sizes[min(SIZES)][NOONBELL], sizes[last][NOONBELL]
        worse = max(large[key] / small[key] for key in ("tick_seconds", "tick_cpu_seconds"))
        judged.at_most(f"the one-due tick at {last:,} over that at {min(SIZES):,}", worse, TICK_BAR)
    return judged


def show(told: dict[str, Any]) -> None:
    print(", ".join(f"{name} {found}" for name, found in told["versions"].items()))
    for size, parties in told["sizes"].items():
        print(f"\n{size:,} tasks due in the same minute")
        print(
            f"{'':20}{'initialise':>11}{'started':>10}{'recorded':>10}{'runs/s':>10}{'best':>10}{'ratio':>8}{'later/s':>10}"
            f"{'ratio':>8}{'CPU us':>8}{'later':>8}{'log':>7}{'kept':>6}{'stall':>10}{'bytes/task':>12}{'peak':>8}"
            f"{'tick':>10}{'CPU':>10}"
        )
        for party, found in parties.items():
            print(
                f"{party:20}{seconds(found['initialize_seconds']):>11}{seconds(found['started_seconds']):>10}"
                f"{seconds(found['recorded_seconds']):>10}{found['rate']:>10,.0f}{found['best_rate']:>10,.0f}"
                f"{found['ratio']:>8.2f}{whole(found['later_rate']):>10}{found['later_ratio']:>8.2f}"
                f"{whole(found['cpu_us']):>8}{whole(found['later_cpu_us']):>8}{whole(found['log_bytes']):>7}"
                f"{whole(found['kept_bytes']):>6}{seconds(found['stall_seconds']):>10}"
                f"{whole(found['bytes_per_task']):>12}{whole(found['peak_bytes_per_task']):>8}"
                f"{seconds(found['tick_seconds']):>10}{seconds(found['tick_cpu_seconds']):>10}"
            )
        for party, found in parties.items():
            if found["stopped"]:
                print(
                    f"  {party} was stopped: {found['added']:,} added, {found['started']:,} started, "
                    f"{found['recorded']:,} noted"
                )


def seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value * 1000:.2f} ms" if value < 0.1 else f"{value:.2f} s"


def whole(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", type=Path, help="write all results to this file too")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--sizes", default=",".join(map(str, SIZES)))
    options.add_argument("--limit", type=float, default=60.0, help="seconds that a peer may add, and may fire")
    given = options.parse_args()
    print_load("start")
    results = measure([int(size) for size in given.sizes.split(",")], given.rounds, given.limit)
    told = summary(results)
    show(told)
    judged = judge(told["sizes"])
    judged.show()
    print_load("end")
    if given.json:
        given.json.write_text(json.dumps(told | {"bars": judged.rows, "rounds": results}, indent=1))
    return judged.status


if __name__ == "__main__":
    sys.exit(main())
