"""A few real deaths by SIGKILL; `python -m tests.faults.crashes` has the many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.campaign import Campaign, Outcome
from tests.crash.victim import POINTS, Point


@pytest.mark.parametrize("point", POINTS)
async def test_nothing_is_lost_or_unexplained_after_deaths_at_a_named_point(point: Point, tmp_path: Path) -> None:
    outcome = await Campaign(tmp_path, seed=11).at_point(point, 1)

    assert outcome.wrong == []
    assert outcome.kills == 1
    assert outcome.runs > 0
    assert _repeats_where_it_must(point, outcome)


async def test_nothing_is_lost_or_unexplained_after_deaths_at_random_moments(tmp_path: Path) -> None:
    outcome = await Campaign(tmp_path, seed=12).at_random(3)

    assert outcome.wrong == []
    assert outcome.kills == 3
    assert outcome.runs > 0


def _repeats_where_it_must(point: Point, outcome: Outcome) -> bool:
    """At two of the points an action has begun whose end is not recorded: it must be seen to run again."""
    if point == "in-callback":
        return outcome.interrupted >= 1
    return outcome.repeated > 0 if point == "before-settle-commit" else True
