"""Durable schedules on SQLite beside APScheduler in memory, and on PostgreSQL beside graphile-worker, in one run.

    .venv-bench/bin/python -m benchmarks.bench_schedules [--cases LIST] [--schedules N] [--days N] [--rounds N]
        [--peer-sizes LIST] [--no-peers] [--json FILE]

- A case is a database and a number of schedules that are due at the same time, among N or four times as many. In each
  round the cases take turns, each in a process with a file or a server of its own (PostgreSQL from a wheel, on disk,
  with fsync and full page writes on), and so do the peers of each case. The table shows medians.
- Each day three bursts come due: callbacks, which are all due at one instant; callbacks of which each has its own time,
  this day and the next; and messages. The rate counts from the due moment until the end of the last run is on disk. On
  the first day the engine reads every definition for the first time.
- A message run has ended when its message is in the outbox. The engine delivers meanwhile to a Python handler;
  "delivered" counts until the last message has arrived.
- APScheduler 3 in memory, with cron triggers and empty coroutines, gets as many due jobs. graphile-worker gets as many
  on the same server, and other numbers beside it (--peer-sizes). A peer that cannot be had is left out with a message.
- CPU is that of the measured process, for each run; the server's is not in it. "log" is what a run adds to the log
  that a commit syncs: by this connection to the WAL of SQLite, by the whole server to that of PostgreSQL. There a
  checkpoint comes before the first day, which writes full pages after it, and none later: no database is dropped
  meanwhile, since that orders one. "kept" is what the table of runs grows by, with its indexes.
- An idle tick is a poll at which nothing is due: the median of 300 at N schedules and at 1,000, in turns.
- No minute is waited for: the engine's clock is shifted to the due moment and runs on in real time.

The exit status is 1 where a bar is missed. Goals are absolute rates: they depend on the machine and are only shown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.engine_parts.judging import Judged, print_load
from benchmarks.schedule_parts.burst import SHARE

ROOT = Path(__file__).resolve().parent.parent
CASES = "sqlite:10000,sqlite:100000,postgres:50000"
PEER_SIZES = "30000,100000"
PEER_BAR = {"sqlite": 6.0, "postgres": 2.0}
TICK_BAR_MS = {"sqlite": 0.1, "postgres": 1.0}
KEPT_BAR = {"sqlite": 60.0, "postgres": 110.0}
WAL_BAR = 800.0
# an idle tick among many schedules over that among few
TICK_GROWTH_BAR = 2.0
GOALS = {
    "sqlite": {"callbacks, later days": 40_000, "callbacks, first day": 30_000, "own times, later days": 30_000},
    "postgres": {"callbacks, later days": 25_000, "callbacks, first day": 20_000, "own times, later days": 20_000},
}
CPU_GOAL_US = 30.0
# For a run that hangs.
MOST_SECONDS = 3 * 3600

Result = dict[str, Any]


class Case(NamedTuple):
    """A database, and how many schedules are due at the same time among how many."""

    database: str
    burst: int
    schedules: int

    def __str__(self) -> str:
        return f"{self.database}, {self.burst:,} due among {self.schedules:,}"


def run(case: Case, days: int, peer_sizes: list[int]) -> Result:
    with tempfile.TemporaryDirectory(prefix="noonbell-bench-") as folder:
        numbers = map(str, (case.schedules, case.burst, days))
        sizes = ",".join(map(str, peer_sizes)) or "-"
        done = subprocess.run(  # noqa: S603 - this repository's own modules
            [sys.executable, "-m", "benchmarks.schedule_parts.party", case.database, *numbers, folder, sizes],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=MOST_SECONDS,
        )
    found: Result = json.loads(done.stdout.splitlines()[-1])
    return found


def middle(results: list[Result]) -> Result:
    """The median of each number."""
    return {name: median(result[name] for result in results) for name in results[0]}


def summary(rounds: list[Result]) -> Result:
    """The medians of one case over its rounds, and of later days over all of them."""
    bursts = {}
    for name in rounds[0]["days"]:
        first, *later = zip(*(one["days"][name] for one in rounds), strict=True)
        bursts[f"{name}, first day"] = middle(list(first))
        if later:
            bursts[f"{name}, later days"] = middle([one for day in later for one in day])
    peers = [one["peer"] for one in rounds if "sizes" in one.get("peer", {})]
    found = {"bursts": bursts, "tick": middle([one["tick"] for one in rounds])}
    found |= {key: median(one[key] for one in rounds) for key in ("create", "kept_bytes")}
    if peers:
        sizes = {int(size): middle([one["sizes"][size] for one in peers]) for size in peers[0]["sizes"]}
        found["peer"] = {"name": peers[0]["name"], "sizes": sizes}
    elif "peer" in rounds[0]:
        found["peer"] = rounds[0]["peer"]
    return found


def judge(told: dict[Case, Result]) -> Judged:
    judged = Judged()
    for case, found in told.items():
        bursts, peer = found["bursts"], found.get("peer", {})
        callbacks = {name: row for name, row in bursts.items() if name.startswith("callbacks")}
        if "sizes" in peer:
            theirs, least = peer["sizes"][case.burst]["rate"], PEER_BAR[case.database]
            for name, row in callbacks.items():
                judged.at_least(f"{case}: {name} over {peer['name']}", row["rate"] / theirs, least)
        elif peer:
            judged.skip(f"{case}: beside {peer['name']}; {peer['skipped']}")
        if case.database == "postgres" and "callbacks, later days" in bursts:
            judged.at_most(
                f"{case}: bytes of WAL a fire, later days", bursts["callbacks, later days"]["log_bytes"], WAL_BAR
            )
        judged.at_most(f"{case}: kept bytes a fire", found["kept_bytes"], KEPT_BAR[case.database])
        tick = found["tick"]
        judged.at_most(f"{case}: idle tick, ms", tick["many"] * 1e3, TICK_BAR_MS[case.database])
        judged.at_most(f"{case}: idle tick over that among 1,000", tick["many"] / tick["few"], TICK_GROWTH_BAR)
        for name, least in GOALS[case.database].items():
            if name in bursts:
                judged.at_least(f"{case}: fires a second, {name}", bursts[name]["rate"], least, goal=True)
        if case.database == "sqlite":
            for name, row in callbacks.items():
                judged.at_most(f"{case}: us of CPU a fire, {name}", row["cpu_us"], CPU_GOAL_US, goal=True)
    return judged


def show(case: Case, found: Result) -> None:
    print(f"\n{case}: {found['create']:,.0f} created a second, {found['kept_bytes']:.0f} bytes kept a fire")
    tick = found["tick"]
    print(f"idle tick: {tick['many'] * 1e6:,.0f} us, {tick['few'] * 1e6:,.0f} us among 1,000")
    print(f"{'':24}{'per second':>12}{'CPU us':>9}{'log':>9}{'delivered/s':>13}")
    for name, row in found["bursts"].items():
        delivered = f"{row['delivered_rate']:,.0f}" if "delivered_rate" in row else ""
        print(f"{name:24}{row['rate']:>12,.0f}{row['cpu_us']:>9.1f}{row['log_bytes']:>9,.0f}{delivered:>13}")
    peer = found.get("peer", {})
    for size, row in peer.get("sizes", {}).items():
        print(f"{peer['name']} {size:<{23 - len(peer['name'])},}{row['rate']:>12,.0f}{row['cpu_us']:>9.1f}")
    if "skipped" in peer:
        print(f"{peer['name']} was left out: {peer['skipped']}")


def cases(given: str, schedules: int) -> list[Case]:
    found = []
    for one in given.split(","):
        database, _, burst = one.partition(":")
        if database not in PEER_BAR or not burst.isdecimal():
            raise ValueError(one)
        found.append(Case(database, int(burst), max(schedules, SHARE * int(burst))))
    return found


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cases", default=CASES, help="sqlite or postgres, and how many are due at the same time")
    options.add_argument("--schedules", type=int, default=200_000)
    options.add_argument("--days", type=int, default=3)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--peer-sizes", default=PEER_SIZES, help="more numbers of jobs for graphile-worker")
    options.add_argument("--no-peers", action="store_true")
    options.add_argument("--json", type=Path, help="write all results to this file too")
    given = options.parse_args()
    try:
        chosen = cases(given.cases, given.schedules)
    except ValueError as error:
        options.error(f'--cases has "{error}"; each is sqlite or postgres, a colon and a number, such as {CASES}')
    print_load("start")
    results: dict[Case, list[Result]] = {case: [] for case in chosen}
    more = [int(size) for size in given.peer_sizes.split(",") if size]
    for this_round in range(1, given.rounds + 1):
        for case in chosen:
            print(f"round {this_round}: {case}", file=sys.stderr, flush=True)
            sizes = [] if given.no_peers else [case.burst, *(more if case.database == "postgres" else [])]
            results[case].append(run(case, given.days, sizes))
    told = {case: summary(rounds) for case, rounds in results.items()}
    for case, found in told.items():
        show(case, found)
    judged = judge(told)
    judged.show()
    print_load("end")
    written = {"cases": {str(case): found for case, found in told.items()}, "bars": judged.rows}
    if given.json:
        given.json.write_text(json.dumps(written | {"rounds": {str(case): all_ for case, all_ in results.items()}}))
    print(json.dumps(written))
    return judged.status


if __name__ == "__main__":
    sys.exit(main())
