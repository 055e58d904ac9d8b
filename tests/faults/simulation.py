"""Many lives of a scheduler, drawn by lot, each read by the trace checker and by verify.

    python -m tests.faults.simulation [--seeds N] [--first S] [--sqlite-every K] [--processes P]
    python -m tests.faults.simulation --replay SEED [--backend memory|sqlite]

Every seed lives on the memory store, and every K-th on SQLite as well, where the trace has to be the same. `--replay`
shows the trace of one seed. The last line on standard output is one JSON object; the exit status is 1 on any violation.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable

from noonbell.testing.simulation import Backend, simulate

DEFAULT_SEEDS = 10_000
DEFAULT_SQLITE_EVERY = 20
_COUNTED = ("trace run-start", "trace init-ok", "trace crash", "trace store-fault", "trace clock-set", "verified")


def live(job: tuple[int, bool]) -> tuple[int, list[str], Counter[str]]:
    """One seed: what is wrong with it, and what was in it."""
    seed, with_sqlite = job
    try:
        result = simulate(seed)
        found = [] if result.ok else [str(result)]
        if with_sqlite:
            durable = simulate(seed, backend="sqlite")
            result.counts["on sqlite"] += 1
            if not durable.ok:
                found.append(str(durable))
            if durable.digest != result.digest:
                found.append(f"seed {seed}: the traces on memory and on sqlite differ")
    except Exception as error:  # noqa: BLE001 - a life that cannot be lived is a finding like any other
        return seed, [f"seed {seed} raised {error!r}"], Counter()
    return seed, found, result.counts


def run(seeds: Iterable[int], sqlite_every: int, processes: int) -> tuple[int, list[str], Counter[str]]:
    jobs = [(seed, sqlite_every > 0 and seed % sqlite_every == 0) for seed in seeds]
    faults: list[str] = []
    counts: Counter[str] = Counter()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for done, (seed, found, counted) in enumerate(pool.imap_unordered(live, jobs, chunksize=10), start=1):
            counts += counted
            faults.extend(found)
            for fault in found[:1]:
                print(f"{fault[:1000]}\n  replay: python -m tests.faults.simulation --replay {seed}", file=sys.stderr)
            if done % 1000 == 0:
                print(f"{done:,} seeds, {len(faults)} faults", file=sys.stderr, flush=True)
    return len(jobs), faults, counts


def replay(seed: int, backend: Backend) -> int:
    result = simulate(seed, backend=backend)
    for index, event in enumerate(result.trace):
        print(index, event)
    print(result)
    return 0 if result.ok else 1


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=DEFAULT_SEEDS)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--sqlite-every", type=int, default=DEFAULT_SQLITE_EVERY)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--replay", type=int)
    options.add_argument("--backend", choices=["memory", "sqlite"], default="memory")
    given = options.parse_args()
    if given.replay is not None:
        return replay(given.replay, given.backend)
    began = time.monotonic()
    lived, faults, counts = run(range(given.first, given.first + given.seeds), given.sqlite_every, given.processes)
    result = {
        "seeds": lived,
        "on_sqlite": counts["on sqlite"],
        "faults": len(faults),
        **{name.removeprefix("trace ").replace("-", "_"): counts[name] for name in _COUNTED},
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(result))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
