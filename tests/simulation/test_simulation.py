"""Lives of a scheduler, drawn by lot: none of them breaks the theory, and each can be lived again."""

import os
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from noonbell.testing.simulation import Backend, SimulationResult, simulate
from tests.effort import examples
from tests.patience import PATIENCE_SECONDS

BLOCK = 25
SEEDS = range(1_000, 1_000 + max(examples(150), 75))
DIGESTS = "from noonbell.testing.simulation import simulate; print([simulate(seed).digest for seed in range(4)])"


@cache
def life(seed: int) -> SimulationResult:
    """The life of a seed in memory, which several tests look at."""
    return simulate(seed)


@pytest.mark.parametrize("first", SEEDS[::BLOCK])
def test_no_violation_on_the_memory_store(first: int) -> None:
    found = [str(result) for result in map(life, range(first, first + BLOCK)) if not result.ok]
    assert found == []


@pytest.mark.parametrize("first", range(10_000, 10_020, 10))
def test_no_violation_on_sqlite(first: int) -> None:
    results = (simulate(seed, backend="sqlite") for seed in range(first, first + 10))
    assert [str(result) for result in results if not result.ok] == []


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
def test_same_seed_same_trace(backend: Backend) -> None:
    for seed in SEEDS[:5]:
        assert simulate(seed, backend=backend).digest == life(seed).digest


def test_same_seed_same_trace_in_another_process() -> None:
    """The order of sets and dictionaries differs there, which nothing may depend on."""
    answers = {
        subprocess.run(
            [sys.executable, "-c", DIGESTS],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_SECONDS,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert answers == {f"{[life(seed).digest for seed in range(4)]}\n"}


def test_other_seeds_are_other_lives() -> None:
    assert len({life(seed).digest for seed in SEEDS[:30]}) == 30


def test_the_lives_are_eventful() -> None:
    """What the simulation promises to try does come about, many times over."""
    seen: Counter[str] = Counter()
    for seed in SEEDS[:75]:
        seen += life(seed).counts
    often = (
        *(
            "crash after-claim",
            "crash before-settle",
            "crash after-settle",
            "crash after-declare",
            "crash before-declare",
        ),
        *(
            "TaskRetryStarted",
            "TaskRetryPreempted",
            "SchedulerInitializationFailed",
            "SchedulerStopped",
            "echo",
            "hang",
        ),
        *("fault write", "fault lost-answer", "trace clock-set", "trace crash", "trace quiet", "verified"),
    )
    assert [name for name in often if seen[name] < 5] == []
