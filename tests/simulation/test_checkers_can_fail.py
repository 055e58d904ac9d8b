"""Each fault that is put into the engine is seen by the checkers within a few lives."""

import pytest

from noonbell.testing.simulation import simulate
from tests.simulation.mutations import MUTATIONS

MOST_SEEDS = 60


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_fault_in_the_engine_is_caught(name: str) -> None:
    caught = next((seed for seed in range(MOST_SEEDS) if not simulate(seed, mutate=MUTATIONS[name]).ok), None)
    assert caught is not None, f"{MOST_SEEDS} lives with {name} showed nothing"
    # and it is the fault that was caught: without it the same life is clean
    assert str(simulate(caught)).endswith("no violation")


def test_there_are_at_least_twelve_faults() -> None:
    assert len(MUTATIONS) >= 12
