"""Batches: as large as can be written in a fraction of a second, with room for others between them."""

from __future__ import annotations

import asyncio

import pytest

from noonbell.schedules.pace import FIRST, LARGEST, batches


class Ticking:
    """A clock whose time passes where it is told so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> int:
        return 0

    def elapsed(self) -> float:
        return self.seconds

    async def wait(self, until: int, wakeup: asyncio.Event) -> None:
        await wakeup.wait()


async def sizes(count: int, seconds_each: float) -> list[int]:
    clock, found = Ticking(), []
    async for batch, _ in batches(range(count), clock):
        found.append(len(batch))
        clock.seconds += seconds_each * len(batch)
    return found


async def test_all_are_given_once_and_in_order() -> None:
    many = list(range(12_345))
    given: list[int] = []
    async for batch, done in batches(many, Ticking()):
        given.extend(batch)
        assert done == len(given)
    assert given == many


async def test_where_it_goes_quickly_batches_grow() -> None:
    found = await sizes(30_000, 0.000_001)
    assert found[0] == FIRST
    assert max(found) == LARGEST


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr("noonbell.schedules.pace.asyncio.sleep", sleep)
    return found


async def test_where_it_goes_slowly_they_shrink_until_none_takes_long(pauses: list[float]) -> None:
    found = await sizes(5_000, 0.001)
    assert max(found[1:]) * 0.001 <= 0.3


async def test_others_have_their_turn_after_each(pauses: list[float]) -> None:
    found = await sizes(3_000, 0.000_2)
    assert len(pauses) == len(found) - 1, "after the last nobody waits"
    assert pauses == pytest.approx([size * 0.000_2 / 6 for size in found[:-1]])
