"""Which runs a death counts against."""

from __future__ import annotations

import pytest

from noonbell.core.crashes import abandoning, is_on_probation


@pytest.mark.parametrize(("crashes", "expected"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_run_is_on_probation_from_its_second_death_on(crashes: int, expected: bool) -> None:
    assert is_on_probation(crashes) == expected


def test_a_run_is_abandoned_if_its_dead_engine_executed_no_other_run_on_probation() -> None:
    executed = [("a", 2), ("a", 1), ("a", 0), ("b", 2), ("b", 3), ("c", 1), ("d", 4), (None, 2)]
    assert abandoning(executed) == {"a", "d", None}
