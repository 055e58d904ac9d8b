"""Random histories, far more of them than the tests have time for: on stores side by side, and under every judge.

    python -m tests.faults.histories [--seeds N] [--examples N] [--first S] [--processes P]

For each seed: a history of declared tasks and one of durable schedules on the memory store and on SQLite, which have to
agree row by row after every step; and a life of durable schedules on each of the two, which `verify` has to find whole
again and again. Besides, so many examples that hypothesis draws are held against the oracle of verdicts.

Progress goes to standard error. The last line on standard output is one JSON object; the exit status is 1 on any
finding, or where a kind of step never came about.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, given, settings

from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from tests.schedules import test_against_oracle as oracle
from tests.schedules import test_differential as durable
from tests.schedules import test_verify_lives as lives
from tests.schedules.patience import calm_duties
from tests.store import test_differential as declared

STEPS = 220
KINDS = ("declared", "durable", "life in memory", "life on sqlite")


async def declared_history(seed: int, folder: Path) -> set[str]:
    memory, sqlite = MemoryStore(), SqliteStore(folder / "declared.db", threaded=False)
    history = declared.History(seed)
    await memory.open()
    await sqlite.open()
    try:
        for _ in range(STEPS):
            await history.step((memory, sqlite))
    finally:
        await sqlite.close()
    return history.seen


async def durable_history(seed: int, folder: Path) -> set[str]:
    memory, sqlite = MemoryStore(), SqliteStore(folder / "durable.db", threaded=False)
    history = durable.History(seed)
    await memory.open()
    await sqlite.open()
    try:
        for _ in range(STEPS):
            await history.step((memory, sqlite))
    finally:
        await sqlite.close()
    return history.seen


async def life(kind: str, seed: int, folder: Path) -> set[str]:
    lived = await lives.lived(kind, seed, folder, prunes=seed % 2 == 0)
    await lived.end()
    return {told.rpartition(" ")[2] for told in lived.told}


async def history_of(kind: str, seed: int, folder: Path) -> set[str]:
    if kind == "declared":
        return await declared_history(seed, folder)
    if kind == "durable":
        return await durable_history(seed, folder)
    return await life("memory" if kind == "life in memory" else "sqlite", seed, folder)


def live(job: tuple[str, int]) -> tuple[str, int, str, set[str]]:
    """One seed of one kind: what is wrong with it, and what came about."""
    kind, seed = job
    logging.disable(logging.CRITICAL)  # crashes and failures are planned here, and told at length
    with tempfile.TemporaryDirectory(prefix="noonbell-histories-") as folder, calm_duties():
        try:
            seen = asyncio.run(history_of(kind, seed, Path(folder)))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding of this seed
            return kind, seed, f"{type(error).__name__}: {error}"[:2000], set()
    return kind, seed, "", seen


def against_the_oracle(examples: int) -> str:
    """What is wrong with the first example that the oracle does not agree with, made as small as it goes."""

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=oracle.cases())
    def agrees(case: oracle.Case) -> None:
        oracle.run("memory", case)

    logging.disable(logging.CRITICAL)
    try:
        with calm_duties():
            agrees()
    except Exception as error:  # noqa: BLE001 - a finding, told with the case that shows it
        return "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])[:3000]
    return ""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=100, help="of each kind")
    options.add_argument("--examples", type=int, default=300, help="held against the oracle")
    options.add_argument("--first", type=int, default=1000)
    options.add_argument("--processes", type=int, default=2)
    given_options = options.parse_args()
    began = time.monotonic()
    seeds = range(given_options.first, given_options.first + given_options.seeds)
    jobs = [(kind, seed) for seed in seeds for kind in KINDS]
    lived: Counter[str] = Counter()
    seen: dict[str, set[str]] = {kind: set() for kind in KINDS}
    findings: list[str] = []
    with multiprocessing.get_context("spawn").Pool(given_options.processes) as pool:
        for done, (kind, seed, wrong, told) in enumerate(pool.imap_unordered(live, jobs), start=1):
            lived[kind] += 1
            seen[kind] |= told
            if wrong:
                findings.append(f"{kind}, seed {seed}: {wrong}")
                print(findings[-1], file=sys.stderr, flush=True)
            if done % 100 == 0:
                print(f"{done:,} histories, {len(findings)} findings", file=sys.stderr, flush=True)
    if given_options.examples and (wrong := against_the_oracle(given_options.examples)):
        findings.append(f"the oracle: {wrong}")
        print(findings[-1], file=sys.stderr, flush=True)
    never = sorted((declared.EVERYTHING - seen["declared"]) | (durable.EVERYTHING - seen["durable"]))
    result = {
        "lived": dict(lived),
        "examples": given_options.examples,
        "never_came_about": never,
        "findings": len(findings),
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(result))
    return 1 if findings or never else 0


if __name__ == "__main__":
    sys.exit(main())
