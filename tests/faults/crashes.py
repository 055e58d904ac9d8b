"""`kill -9` of a real process on SQLite: at each of five named points many times, and at random moments.

    python -m tests.faults.crashes [--times N] [--random N] [--seed S]

Each point has a database of its own; the random moments are spread over a few. After each campaign the last life ends
properly, and the journal of the actions is held against the ledger (see tests/crash/judge.py), which has to verify.

Progress goes to standard error. The last line on standard output is one JSON object; the exit status is 1 when anything
is unexplained, or when fewer lives were killed than were to be.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.campaign import Campaign, Outcome
from tests.crash.victim import POINTS

RANDOM_CAMPAIGN = 30


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--times", type=int, default=30, help="deaths at each named point")
    options.add_argument("--random", type=int, default=150, help="deaths at random moments")
    options.add_argument("--seed", type=int, default=3)
    given = options.parse_args()
    began = time.monotonic()
    found: dict[str, list[Outcome]] = {}
    for point in POINTS:
        with tempfile.TemporaryDirectory(prefix="noonbell-crash-") as folder:
            outcome = asyncio.run(Campaign(Path(folder), given.seed).at_point(point, given.times))
        found[point] = [outcome]
        tell(point, outcome)
    left = given.random
    while left > 0:
        times = min(left, RANDOM_CAMPAIGN)
        with tempfile.TemporaryDirectory(prefix="noonbell-crash-") as folder:
            outcome = asyncio.run(Campaign(Path(folder), given.seed + left).at_random(times))
        found.setdefault("random", []).append(outcome)
        tell("random", outcome)
        left -= times
    outcomes = [outcome for some in found.values() for outcome in some]
    kills = {name: sum(outcome.kills for outcome in some) for name, some in found.items()}
    wrong = sum(len(outcome.wrong) for outcome in outcomes)
    result = {
        "kills": kills,
        "killed": sum(kills.values()),
        "crashes_recorded": sum(outcome.crashes_recorded for outcome in outcomes),
        "starts": sum(outcome.starts for outcome in outcomes),
        "interrupted": sum(outcome.interrupted for outcome in outcomes),
        "repeated": sum(outcome.repeated for outcome in outcomes),
        "runs": sum(outcome.runs for outcome in outcomes),
        "coalesced": sum(outcome.coalesced for outcome in outcomes),
        "violations": wrong,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(result))
    complete = sum(kills.values()) == given.times * len(POINTS) + given.random
    return 0 if complete and not wrong else 1


def tell(name: str, outcome: Outcome) -> None:
    told = f"{name}: {outcome.kills} killed, {outcome.runs} runs, {outcome.interrupted} interrupted, "
    print(f"{told}{outcome.repeated} repeated, {len(outcome.wrong)} violations", file=sys.stderr, flush=True)
    for text in outcome.wrong[:10]:
        print(f"  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
