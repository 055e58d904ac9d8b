"""A Redis Cluster that changes under an engine: slots move, nodes die and come back.

Nothing is lost and nothing fires twice, and once the cluster is well the set is used again.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from noonbell.ledger import verify_store
from noonbell.timeline import RedisTimeline
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.schedules.conftest import store_maker
from tests.timeline.conftest import LANE
from tests.timeline.nodes import Cluster, Move, Node
from tests.timeline.test_fronted import _calm, ended, is_whole, lines, up  # noqa: F401 - the fixture is for here, too
from tests.timeline.world import TimelineWorld

SHARDS = 6
SCHEDULES = 12


@pytest.fixture
async def world(tmp_path: Path, cluster: Cluster) -> AsyncIterator[TimelineWorld]:
    """An engine, schedules of every minute, and shards on the three nodes that had slots from the beginning."""
    while True:
        made = TimelineWorld(store_maker("memory", tmp_path), cluster.url, uuid.uuid4().hex, shards=SHARDS)
        if set(cluster.spread(made.store.timeline, LANE)) >= set(cluster.nodes[:2]):
            break
    await made.schedules.open()
    for number in range(SCHEDULES):
        await made.create(name=f"s{number}")
    await up(made)
    yield made
    cluster.mend()
    await ended(made)


def shard_at(cluster: Cluster, timeline: RedisTimeline, node: Node) -> int:
    return cluster.spread(timeline, LANE).index(node)


async def all_fired(world: TimelineWorld, minutes: int) -> None:
    """Every schedule at each of so many minutes, once."""
    fired = Counter((call.schedule_id, call.scheduled_for) for call in world.calls)
    assert Counter(world.called) == {f"12:{minute:02}": SCHEDULES for minute in range(1, minutes + 1)}
    assert set(fired.values()) == {1}
    assert (await verify_store(world.store)).problems == []


async def until_whole(world: TimelineWorld, seconds: int = 15) -> None:
    """Its time goes on until the set is used again."""
    for _ in range(seconds):
        if is_whole(world):
            return
        await world.clock.advance(timedelta(seconds=1))
    raise AssertionError(f"the set is not whole after {seconds} s")


async def a_hint_is_heard(timeline: RedisTimeline, publisher: Node) -> None:
    """From whichever node listens."""
    async with asyncio.timeout(PATIENCE_SECONDS), timeline.link.hints(timeline.channel(LANE)) as heard:
        assert await heard() is None, "that it has subscribed"
        publisher.client.publish(timeline.channel(LANE), "5")
        assert await heard() == b"5"


@pytest.mark.parametrize("to", ["a node that has slots", "a node that nobody has met"])
async def test_a_slot_is_moved_under_load(
    cluster: Cluster, world: TimelineWorld, to: str, caplog: pytest.LogCaptureFixture
) -> None:
    timeline = world.store.timeline
    shard = shard_at(cluster, timeline, cluster.nodes[0])
    due, _, _ = timeline.keys(LANE, shard)
    move = Move(cluster, due, cluster.nodes[1] if "has slots" in to else cluster.spare)
    await world.clock.advance(timedelta(seconds=27))
    move.begin()
    await world.clock.advance(timedelta(seconds=4))
    assert Counter(world.called) == {"12:01": SCHEDULES}
    move.carry(most=1)
    await world.clock.advance(timedelta(seconds=2))
    move.carry()
    await world.clock.advance(timedelta(seconds=6))
    while move.carry():  # what was written on the way
        pass
    move.end()
    await until_whole(world)
    popped = world.store.counters.popped
    await world.minutes(1)
    assert cluster.owner(due) is (cluster.nodes[1] if "has slots" in to else cluster.spare)
    await all_fired(world, 2)
    assert world.store.counters.popped - popped >= SCHEDULES, "Redis brought them up again"
    assert not [record.getMessage() for record in caplog.records if record.exc_info], "no duty has failed"
    assert len(lines(caplog)) == 2, "that it failed and that it works again, and not over and over"


async def test_a_node_dies_and_comes_back(
    cluster: Cluster, world: TimelineWorld, caplog: pytest.LogCaptureFixture
) -> None:
    dead, *others = cluster.nodes  # the one that is in the address
    with cluster.impatient():
        dead.server.halt()
        await world.clock.advance(timedelta(seconds=30))
        assert (Counter(world.called), is_whole(world)) == ({"12:01": SCHEDULES}, False)
        await a_hint_is_heard(world.store.timeline, others[0])
        wait_until(lambda: not any(node.is_well for node in others))
    await world.create(name="meanwhile", spec="30 * * * *")
    await world.clock.advance(timedelta(seconds=60))
    assert len(lines(caplog)) == 2, "at once, and once a minute: that the other nodes answer is no recovery"
    cluster.mend()
    await until_whole(world)
    assert lines(caplog)[-1].startswith("The Redis timeline works again")
    assert await world.store.timeline.counts(LANE) == (SCHEDULES, 0)
    await world.clock.advance(timedelta(seconds=59))
    await all_fired(world, 3)
    assert world.store.counters.repaired == 0


async def test_a_replica_takes_over(cluster: Cluster, world: TimelineWorld) -> None:
    master = next(node for node in cluster.nodes[2:4] if node.is_master)
    (replica,) = (node for node in cluster.nodes[2:4] if node is not master)
    before = world.store.counters.built
    with cluster.impatient():
        master.server.halt()
        await world.clock.advance(timedelta(seconds=30))
        wait_until(lambda: replica.is_master)
        wait_until(lambda: all(node.is_well for node in cluster.nodes if node is not master))
    await until_whole(world)
    assert world.store.counters.built > before, "a replica may lack what came last"
    popped = world.store.counters.popped
    await world.minutes(1)
    assert world.store.counters.popped - popped >= SCHEDULES
    await all_fired(world, 2)


async def test_no_node_is_left_and_no_verb_fails(cluster: Cluster, world: TimelineWorld) -> None:
    for node in cluster.nodes:
        node.server.halt()
    await world.create(name="meanwhile", spec="30 * * * *")
    await world.clock.advance(timedelta(seconds=90))
    await all_fired(world, 2)
    cluster.mend()
    await until_whole(world)
    await world.minutes(1)
    await all_fired(world, 3)
