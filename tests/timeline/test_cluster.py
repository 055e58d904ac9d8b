"""The set on Redis Cluster: one node that owns all slots is as strict about keys and slots as many are."""

from __future__ import annotations

import uuid

from noonbell.timeline import RedisTimeline
from tests.timeline.conftest import LANE, SECOND, T0


async def test_every_verb_on_a_cluster(cluster_address: str) -> None:
    timeline = RedisTimeline(cluster_address, namespace=uuid.uuid4().hex, shards=5)
    assert await timeline.link.check_policy() == "noeviction"
    assert type(await timeline.link.ask(as_it_is)).__name__ == "RedisCluster"
    await timeline.put(LANE, {sid: T0 + sid for sid in range(1, 101)})
    assert await timeline.begin_feed(LANE, "a", T0)
    assert await timeline.feed(LANE, "a", [(sid, T0) for sid in range(101, 201)], T0)
    assert await timeline.end_feed(LANE, "a", T0 + SECOND, T0)
    told = await timeline.pop(LANE, T0 + 50, 1_000, repair=True)
    assert sorted(told.sids) == [*range(1, 51), *range(101, 201)]
    assert (told.until, told.repair) == (T0 + SECOND, True)
    await timeline.ack(LANE, {sid: T0 + 60 if sid <= 50 else None for sid in told.sids})
    await timeline.drop(LANE, range(90, 101))
    assert await timeline.counts(LANE) == (89, 0)
    await timeline.forget(LANE)
    assert await timeline.counts(LANE) == (0, 0)
    await timeline.close()


async def test_hints_on_a_cluster(cluster_address: str) -> None:
    timeline = RedisTimeline(cluster_address, namespace=uuid.uuid4().hex)
    async with timeline.link.hints(timeline.channel(LANE)) as heard:
        assert await heard() is None, "that it has subscribed"
        await timeline.put(LANE, {1: T0})
        assert await heard() == str(T0).encode()
    await timeline.close()


async def as_it_is(client: object) -> object:
    return client
