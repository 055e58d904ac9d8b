"""Jitter is the same for ever: the values here are pinned, and a change of any of them moves running schedules."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.timing import jitter_us
from tests.patience import PATIENCE_SECONDS

MINUTE = 60_000_000

PINNED = [
    ("backup", 1_700_000_000_000_000, MINUTE, 51_098_395),
    ("backup", 1_700_000_060_000_000, MINUTE, 44_489_068),
    ("backup", 1_700_000_000_000_000, 10**13, 8_516_399_183_965),
    ("0198c5d2-7a31-7c4e-9b1f-5d0a3e6f1c22", 1_793_496_600_000_000, 60 * MINUTE, 811_733_149),
    ("нічна копія", -1, 1_000_000, 60_528),
    ("", 0, MINUTE, 7_878_257),
]


@pytest.mark.parametrize(("schedule_id", "occurrence", "limit", "drawn"), PINNED)
def test_it_never_changes(schedule_id: str, occurrence: int, limit: int, drawn: int) -> None:
    assert jitter_us(schedule_id, occurrence, limit) == drawn


@given(st.text(st.characters(), max_size=30), st.integers(-(10**17), 10**18), st.integers(1, 10**13))
def test_it_lies_below_the_limit_and_stays_the_same(schedule_id: str, occurrence: int, limit: int) -> None:
    drawn = jitter_us(schedule_id, occurrence, limit)
    assert 0 <= drawn < limit
    assert jitter_us(schedule_id, occurrence, limit) == drawn
    assert jitter_us(schedule_id, occurrence, 1) == 0


def test_it_is_spread_evenly() -> None:
    """A thousand schedules of one minute, and a thousand minutes of one schedule, over ten tenths."""
    for drawn in (
        [jitter_us(f"schedule-{n}", 1_700_000_000_000_000, MINUTE) for n in range(1000)],
        [jitter_us("schedule", 1_700_000_000_000_000 + n * MINUTE, MINUTE) for n in range(1000)],
    ):
        tenths = [sum(1 for value in drawn if value * 10 // MINUTE == tenth) for tenth in range(10)]
        # 16.9 is what pure chance exceeds once in twenty times; these draws never change
        assert sum((count - 100) ** 2 / 100 for count in tenths) < 16.9
        assert len(set(drawn)) > 990


def test_it_scales_with_the_limit() -> None:
    whole = jitter_us("backup", 0, 2 * MINUTE)
    assert jitter_us("backup", 0, MINUTE) == whole // 2


def test_without_a_limit_there_is_none() -> None:
    assert jitter_us("backup", 1_700_000_000_000_000, 0) == 0


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="limit_us is -1"):
        jitter_us("backup", 0, -1)


def test_names_and_occurrences_do_not_run_together() -> None:
    limit = 10**12
    assert len({jitter_us("job", 11, limit), jitter_us("job1", 1, limit), jitter_us("job\x001", 1, limit)}) == 3


def test_another_process_draws_the_same() -> None:
    """Hash randomisation differs between the two."""
    program = "from noonbell.timing import jitter_us; print(jitter_us('backup', 1_700_000_000_000_000, 60_000_000))"
    command = [sys.executable, "-c", program]
    answer = subprocess.run(
        command, env={"PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    )
    assert int(answer.stdout) == jitter_us("backup", 1_700_000_000_000_000, MINUTE)
