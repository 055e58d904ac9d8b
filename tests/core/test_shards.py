"""The place of a schedule among several databases: stable, even, and rarely another one."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.core.shards import MOST_SHARDS, shard_of

IDS = [f"schedule-{number}" for number in range(20_000)]
ids = st.text(max_size=60)
numbers = st.integers(1, 2_000)


@given(ids, numbers)
def test_every_id_has_a_place_among_the_shards(schedule_id: str, shards: int) -> None:
    assert 0 <= shard_of(schedule_id, shards) < shards


@given(ids, numbers, numbers)
def test_an_id_stays_or_moves_to_a_new_shard(schedule_id: str, one: int, other: int) -> None:
    few, many = sorted((one, other))
    before, after = shard_of(schedule_id, few), shard_of(schedule_id, many)
    assert after == before or after >= few


@given(ids, numbers)
def test_taking_the_last_shard_away_moves_only_what_it_held(schedule_id: str, shards: int) -> None:
    if shard_of(schedule_id, shards + 1) != shards:
        assert shard_of(schedule_id, shards) == shard_of(schedule_id, shards + 1)


@pytest.mark.parametrize("shards", [2, 8, 50])
def test_every_shard_gets_about_the_same(shards: int) -> None:
    shares = Counter(shard_of(schedule_id, shards) for schedule_id in IDS)
    even = len(IDS) / shards
    # five standard deviations of a fair draw; which ids they are never changes, so neither does the outcome
    assert max(abs(shares[shard] - even) for shard in range(shards)) < 5 * even**0.5


def test_one_shard_more_moves_one_in_so_many() -> None:
    moved = sum(shard_of(schedule_id, 8) != shard_of(schedule_id, 9) for schedule_id in IDS)
    assert moved == pytest.approx(len(IDS) / 9, rel=0.1)


def test_places_are_the_same_in_every_release() -> None:
    """Databases are filled by them: another answer would look for schedules where they are not."""
    assert [shard_of(name, 8) for name in ("report", "Ω", "", "0001")] == [3, 7, 5, 2]
    assert shard_of("report", MOST_SHARDS) == 17_869


def test_the_number_of_a_shard_has_room_above_48_bits_of_a_signed_number() -> None:
    assert MOST_SHARDS << 48 == 1 << 63


def test_ids_that_unicode_cannot_write_have_a_place_too() -> None:
    assert 0 <= shard_of("\ud800", 8) < 8


@pytest.mark.parametrize("shards", [0, -1, MOST_SHARDS + 1, True, 2.0, "2", None])
def test_numbers_that_are_none_are_refused(shards: object) -> None:
    with pytest.raises(ValueError, match="must be a whole number from 1 to 32768"):
        shard_of("report", shards)  # type: ignore[arg-type]  # that is what is tried
