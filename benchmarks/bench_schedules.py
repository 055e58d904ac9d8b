"""Durable schedules on SQLite and on PostgreSQL, beside the bare statements on the same tables.

    .venv-bench/bin/python benchmarks/bench_schedules.py [--schedules N] [--burst N] [--rounds N] [--databases LIST]
        [--json FILE]

- For each database one process with a file or a server of its own (PostgreSQL from a wheel, with fsync and full page
  writes on). A million schedules are created through `Schedules.create_many`. A hundred thousand of them, spread
  evenly, come due in one minute of each day with a callback, as many in another minute with a message. The bare
  statements take turns with the creations, slice by slice, with a tenth of the number.
- Each round is a day: the callbacks, then as many by bare statements, then the messages, then those by bare statements.
  The table shows medians.
- The bare statements are the limit: the rows of a run written by plain set-based SQL in batches of the same size on the
  same tables, for schedules that are spread as Noonbell's are, in lanes of their own. Nothing is decided, no action is
  called and no value leaves the database.
- The rate counts from the due moment until the last run has ended on disk. A message run has ended when its message is
  in the outbox; the engine delivers meanwhile to a Python handler, and "delivered" says when the last one had arrived.
- CPU is that of the measured process, for each run; the server's is not in it.
- Rows are those inserted, changed and deleted; bytes are what was added to the log that a commit syncs: pages of the
  WAL of SQLite by this connection, the WAL of PostgreSQL by the server. Those of Noonbell's messages are counted until
  they are delivered and out of the outbox, those of the bare statements until they are in it. PostgreSQL counts rows
  some seconds late: it is asked in the last round, for bursts of 10,000 and more.
- An idle tick is a look at which nothing is due: the median of 300 at N schedules and at 1,000, in turns.
- No minute is waited for: the engine's clock is shifted to the due moment and runs on in real time.

The exit status is 1 where a bar is missed.
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
DATABASES = ("sqlite", "postgres")
KINDS = ("callbacks", "messages")
FIRES_BAR = {"sqlite": 20_000.0, "postgres": 8_000.0}
BARE_BAR, TICK_BAR = 1 / 3, 2.0
# For a run that hangs; a million schedules on a slow disk take a while.
MOST_SECONDS = 3 * 3600

Result = dict[str, Any]


def run(database: str, schedules: int, burst: int, rounds: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="noonbell-bench-") as folder:
        numbers = map(str, (schedules, burst, rounds))
        done = subprocess.run(  # noqa: S603 - this repository's own modules
            [sys.executable, "-m", "benchmarks.schedule_parts.party", database, *numbers, folder],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=MOST_SECONDS,
        )
    found: Result = json.loads(done.stdout.splitlines()[-1])
    return found


def middle(results: list[Result]) -> Result:
    """The median of each number, of the rounds that have it."""
    found = {name: [result[name] for result in results if result.get(name) is not None] for name in results[-1]}
    return {name: median(values) for name, values in found.items() if values}


def summary(results: dict[str, Result]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for database, found in results.items():
        told[database] = {"create": found["create"], "bare create": found["bare create"], "tick": found["tick"]}
        told[database] |= {name: middle(found[name]) for kind in KINDS for name in (kind, f"bare {kind}")}
    return {"databases": told, "bars": bars(told)}


def bars(told: dict[str, Any]) -> list[dict[str, Any]]:
    judged: list[dict[str, Any]] = []

    def bar(what: str, value: float, *, met: bool) -> None:
        judged.append({"bar": what, "value": round(value, 3), "met": met})

    for database, found in told.items():
        for kind in KINDS:
            rate, least = found[kind]["rate"], FIRES_BAR[database]
            bar(f"{database}: {least:,.0f} durable fires a second, {kind}", rate, met=rate >= least)
            ratio = rate / found[f"bare {kind}"]["rate"]
            bar(f"{database}: a third of the bare rate, {kind}", ratio, met=ratio >= BARE_BAR)
        ratio = found["create"]["rate"] / found["bare create"]["rate"]
        bar(f"{database}: a third of the bare rate, created", ratio, met=ratio >= BARE_BAR)
        worse = found["tick"]["many"] / found["tick"]["few"]
        bar(f"{database}: the idle tick over that among 1,000 (at most 2)", worse, met=worse <= TICK_BAR)
    return judged


def show(told: dict[str, Any], schedules: int, burst: int) -> None:
    for database, found in told["databases"].items():
        print(f"\n{database}: {burst:,} due among {schedules:,} schedules")
        print(f"{'':16}{'per second':>12}{'seconds':>10}{'CPU us':>9}{'rows':>8}{'bytes':>9}{'delivered':>11}")
        for name in ("create", "bare create"):
            print(f"{name:16}{found[name]['rate']:>12,.0f}{found[name]['seconds']:>10.2f}")
        for kind in KINDS:
            for name in (kind, f"bare {kind}"):
                row = found[name]
                arrived = f"{row['delivered_seconds']:.2f} s" if "delivered_seconds" in row else ""
                rows = f"{row['rows']:.1f}" if "rows" in row else ""
                print(
                    f"{name:16}{row['rate']:>12,.0f}{row['seconds']:>10.2f}{row['cpu_us']:>9.1f}{rows:>8}"
                    f"{row['bytes']:>9,.0f}{arrived:>11}"
                )
        tick = found["tick"]
        print(f"idle tick: {tick['many'] * 1e6:,.0f} us among {schedules:,}, {tick['few'] * 1e6:,.0f} us among 1,000")
    print()
    for bar in told["bars"]:
        print(f"{'pass' if bar['met'] else 'MISSED':8}{bar['bar']}: {bar['value']:,g}")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--schedules", type=int, default=1_000_000)
    options.add_argument("--burst", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--databases", default=",".join(DATABASES), help="some of sqlite, postgres")
    options.add_argument("--json", type=Path, help="write all results to this file too")
    given = options.parse_args()
    if given.schedules < 4 * given.burst:
        options.error(f"--schedules must be at least {4 * given.burst}, four bursts")
    results = {name: run(name, given.schedules, given.burst, given.rounds) for name in given.databases.split(",")}
    told = summary(results)
    show(told, given.schedules, given.burst)
    if given.json:
        given.json.write_text(json.dumps(told | {"rounds": results}, indent=1))
    print(json.dumps(told))
    return 0 if all(bar["met"] for bar in told["bars"]) else 1


if __name__ == "__main__":
    sys.exit(main())
