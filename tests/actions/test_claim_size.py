"""How many streams the deliverer claims: more while they end soon, fewer where they do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noonbell.actions.backpressure import ClaimSize
from noonbell.actions.targets import as_target
from noonbell.core.records import OutboxMessage
from noonbell.ports import StreamBounds, StreamClaim
from noonbell.store.sqlite import SqliteStore
from noonbell.store.wrapping import with_verbs
from noonbell.testing.storage_cases.base import SECOND, T0
from noonbell.testing.storage_cases.messages import LANE
from tests.actions.test_delivery import ME, World

SOON = SECOND // 100


def test_it_doubles_up_to_a_bound_while_claims_are_full_and_end_soon() -> None:
    size = ClaimSize(64)
    seen = [size.most]
    for _ in range(5):
        size.claimed(size.most, full=True)
        assert not size.settled(SOON)
        seen.append(size.most)
    assert seen == [256, 512, 1024, 2048, 2048, 2048]


def test_one_claim_doubles_it_once() -> None:
    size = ClaimSize(64)
    size.claimed(256, full=True)
    for _ in range(3):
        size.settled(SOON)
    assert size.most == 512


def test_it_stays_where_nothing_more_waits_and_where_it_takes_a_while() -> None:
    size = ClaimSize(64)
    size.claimed(100, full=False)
    size.settled(SOON)
    size.claimed(256, full=True)
    size.settled(SECOND // 2)
    assert size.most == 256


def test_it_is_small_again_where_it_takes_long() -> None:
    size = ClaimSize(64)
    size.claimed(256, full=True)
    size.settled(SOON)
    assert size.settled(2 * SECOND)
    assert size.most == 256


def test_claims_of_long_streams_do_not_grow() -> None:
    size = ClaimSize(64)
    size.claimed(256 * 50, full=True)
    size.settled(SOON)
    assert size.most == 256
    for _ in range(2):
        size.claimed(500, full=True)
        size.settled(SOON)
    assert size.most == 1024
    size.claimed(1024 * 50, full=True)
    assert size.most == 512


@pytest.mark.parametrize("streams", [1, 64, 1_000])
def test_a_claim_waits_until_there_is_room_for_a_quarter(streams: int) -> None:
    size = ClaimSize(streams)
    assert size.most == 4 * streams
    assert size.room(0, T0) == 4 * streams
    assert size.room(3 * streams, T0) == streams
    assert size.room(3 * streams + 1, T0) == 0


def test_claims_are_small_while_a_burst_of_schedules_is_claimed() -> None:
    size = ClaimSize(64)
    size.claimed(256, full=True)
    size.settled(SOON)
    size.hold(T0)
    assert [size.room(0, T0), size.room(255, T0 + SOON), size.room(0, T0 + SECOND)] == [256, 0, 512]
    size.hold(T0 + SECOND)
    size.hold(None)
    assert size.room(0, T0 + SECOND) == 512


# --- in the deliverer -------------------------------------------------------------------------------------------------


class Recording:
    """A store that keeps the limits of claims."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.limits: list[int] = []
        self.outbox = with_verbs(store.outbox, {"claim": self._claim})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def _claim(self, lane: str, owner: str, now: int, limit: int, bounds: StreamBounds) -> StreamClaim:
        self.limits.append(limit)
        return await self._store.outbox.claim(lane, owner, now, limit, bounds)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = SqliteStore(tmp_path / "post.db", threaded=False)
    await store.open()
    yield World(store)
    await store.close()


async def post(world: World, count: int, first: int = 1) -> None:
    """A stream of one message for each number."""
    sids = range(first, first + count)
    messages = [OutboxMessage(sid, LANE, f"{sid}:scheduled:1", "inbox", f'{{"is":"{sid}"}}', T0) for sid in sids]
    await world.store.outbox.post(messages, T0)


async def test_many_streams_that_end_soon_come_in_ever_larger_claims(world: World) -> None:
    await post(world, 500)
    recording: Any = Recording(world.store)  # type: ignore[arg-type]  # the store of this world
    deliverer = world.deliverer(store=recording, streams=2)
    async with world.running(deliverer):
        await world.clock.settle()
    assert sorted(map(int, world.inbox.got)) == list(range(1, 501))
    assert recording.limits[0] == 8
    assert max(recording.limits) >= 64
    assert len(recording.limits) < 30  # and not 500 / 8
    assert await world.left() == []


async def test_streams_behind_a_handler_that_became_slow_go_back_to_the_outbox(world: World) -> None:
    slow = False

    async def receive(event: dict[str, Any]) -> None:
        if slow:
            await world.clock.sleep(2)
        world.inbox.got.append(event["is"])

    world.targets["inbox"] = as_target("inbox", receive)
    await post(world, 500)
    deliverer = world.deliverer(streams=2)
    async with world.running(deliverer):
        await world.clock.settle()
        assert deliverer.delivered == 500
        slow = True
        await post(world, 200, first=1_001)
        deliverer.wake()
        await world.clock.settle()
        assert len(await world.store.outbox.owned(ME)) > 8
        await world.seconds(2)
        await world.clock.settle()
        # two that are under way, and those that wait for them
        assert len(await world.store.outbox.owned(ME)) <= 2 + 8
        others = await world.store.outbox.claim(LANE, "instance-2", world.clock.now(), 1_000)
        assert len(others.streams) >= 200 - 4 - 10
        assert {stream.attempt for stream in others.streams} == {0}
        slow = False
    assert deliverer.failed == 0


async def test_a_handler_that_is_stuck_holds_up_its_own_stream_alone(world: World) -> None:
    stuck = asyncio.Event()

    async def receive(event: dict[str, Any]) -> None:
        if event["is"] == "1":
            await stuck.wait()
        world.inbox.got.append(event["is"])

    world.targets["inbox"] = as_target("inbox", receive)
    await post(world, 300)
    deliverer = world.deliverer(streams=2)
    async with world.running(deliverer):
        await world.clock.settle()
        assert sorted(map(int, world.inbox.got)) == list(range(2, 301))
        stuck.set()
    assert world.inbox.got[-1] == "1"
    assert await world.left() == []


async def test_claims_of_messages_stay_small_while_schedules_wait_to_be_claimed(world: World) -> None:
    await post(world, 500)
    recording: Any = Recording(world.store)  # type: ignore[arg-type]  # the store of this world
    deliverer = world.deliverer(store=recording, streams=2)
    deliverer.wake(more_due=True)
    async with world.running(deliverer):
        await world.clock.settle()
        assert max(recording.limits) == 8
        deliverer.wake()
        await post(world, 500, first=1_001)
        deliverer.wake()
        await world.clock.settle()
        assert max(recording.limits) >= 64
    assert deliverer.delivered == 1_000
