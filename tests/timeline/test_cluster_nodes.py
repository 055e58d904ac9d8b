"""The set on a Redis Cluster of several nodes: shards on all of them, hints between them, the policy of each."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from noonbell.errors import TimelineAwayError, TimelineError
from noonbell.ledger import verify_store
from noonbell.timeline import RedisTimeline
from noonbell.timeline.link import WrongTypeError
from noonbell.timeline.redis_timeline import LEASE_US
from tests.patience import PATIENCE_SECONDS
from tests.redis_server import PASSWORD
from tests.schedules.conftest import ACTION, new_dsn, store_maker
from tests.timeline.conftest import LANE, SECOND, T0
from tests.timeline.nodes import Cluster
from tests.timeline.test_fronted import _calm, ended, is_whole, up  # noqa: F401 - the fixture is meant for here, too
from tests.timeline.test_service import Shell, add
from tests.timeline.world import TimelineWorld

SHARDS = 6


@pytest.fixture
async def timeline(cluster: Cluster) -> AsyncIterator[RedisTimeline]:
    """Spread over more than one node."""
    while True:
        made = RedisTimeline(cluster.url, namespace=uuid.uuid4().hex, shards=SHARDS)
        if len(set(cluster.spread(made, LANE))) > 1:
            break
    yield made
    await made.close()


# --- verbs ------------------------------------------------------------------------------------------------------------


async def test_the_keys_of_a_lane_are_spread_over_nodes(cluster: Cluster, timeline: RedisTimeline) -> None:
    await timeline.put(LANE, dict.fromkeys(range(1, 61), T0))
    held = []
    for shard in range(SHARDS):
        due, _, _ = timeline.keys(LANE, shard)
        node = cluster.owner(due)
        held.append((node, node.client.zcard(due)))
    assert [count for _, count in held] == [10] * SHARDS
    assert len({node for node, _ in held}) > 1


async def test_what_is_popped_is_acknowledged_or_comes_again(timeline: RedisTimeline) -> None:
    await timeline.put(LANE, {sid: T0 + sid for sid in range(1, 101)})
    told = await timeline.pop(LANE, T0 + 50, 1_000)
    assert sorted(told.sids) == list(range(1, 51))
    assert told.next_at == T0 + 51
    await timeline.ack(LANE, {sid: T0 + 200 if sid <= 10 else None for sid in range(1, 41)})
    assert await timeline.counts(LANE) == (60, 10)
    await timeline.drop(LANE, range(41, 46))
    again = await timeline.pop(LANE, T0 + 50 + LEASE_US, 1_000)
    assert sorted(again.sids) == [*range(1, 11), *range(46, 101)]
    await timeline.forget(LANE)
    assert await timeline.counts(LANE) == (0, 0)


async def test_it_is_filled_watched_and_repaired(timeline: RedisTimeline) -> None:
    assert (await timeline.pop(LANE, T0, 1)).until is None
    assert await timeline.begin_feed(LANE, "a:1", T0)
    assert not await timeline.begin_feed(LANE, "b:1", T0), "one at a time, on all nodes"
    assert await timeline.feed(LANE, "a:1", [(sid, T0) for sid in range(1, 101)], T0)
    assert await timeline.end_feed(LANE, "a:1", T0 + SECOND, T0)
    assert await timeline.whole_until(LANE) == (T0 + SECOND, T0)
    told = await timeline.pop(LANE, T0, 1_000, repair=True)
    assert (len(told.sids), told.until, told.repair) == (100, T0 + SECOND, True)
    assert not (await timeline.pop(LANE, T0 + 1, 1, repair=True)).repair


async def test_a_set_that_one_node_has_lost_is_not_whole(cluster: Cluster, timeline: RedisTimeline) -> None:
    await timeline.begin_feed(LANE, "a:1", T0)
    await timeline.end_feed(LANE, "a:1", T0 + SECOND, T0)
    cluster.owner(timeline.keys(LANE, 3)[2]).client.delete(*timeline.keys(LANE, 3))
    assert (await timeline.pop(LANE, T0, 1)).until is None


async def test_wrong_data_on_any_node_is_found(cluster: Cluster, timeline: RedisTimeline) -> None:
    for shard in range(SHARDS):
        due, flight, _ = timeline.keys(LANE, shard)
        client = cluster.owner(due).client
        client.zadd(due, {"word": T0, "03": T0})
        assert sorted((await timeline.pop(LANE, T0, 100)).strange) == [b"03", b"word"]
        client.set(flight, "no set")
        with pytest.raises(WrongTypeError):
            await timeline.pop(LANE, T0, 100)
        await timeline.forget(LANE)
    assert (await timeline.pop(LANE, T0, 1)).strange == []


async def test_a_hint_is_heard_at_every_node(cluster: Cluster, timeline: RedisTimeline) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        for number, node in enumerate(cluster.nodes):
            async with redis.asyncio.Redis.from_url(node.url) as client, client.pubsub() as listening:
                await listening.subscribe(timeline.channel(LANE))
                assert (await listening.get_message(timeout=None) or {})["type"] == "subscribe"
                for shard in range(SHARDS):
                    at = T0 - SHARDS * number - shard
                    await timeline.put(LANE, {SHARDS + shard: at})
                    while (await listening.get_message(timeout=None) or {})["data"] != str(at).encode():
                        pass  # what was published before has come late to this node


async def test_who_asks_for_hints_hears_them(timeline: RedisTimeline) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS), timeline.link.hints(timeline.channel(LANE)) as heard:
        assert await heard() is None, "that it has subscribed"
        await timeline.put(LANE, {1: T0})
        assert await heard() == str(T0).encode()


# --- what it must be like ---------------------------------------------------------------------------------------------


async def test_the_policy_of_every_node_is_looked_at(cluster: Cluster, timeline: RedisTimeline) -> None:
    assert await timeline.link.check_policy() == "noeviction"
    for node in cluster.nodes:
        if node is cluster.spare:
            continue  # it has no slots
        node.client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            with pytest.raises(TimelineError, match=f"allkeys-lru at its node 127.0.0.1:{node.port}.*set maxmemory"):
                await timeline.link.check_policy()
        finally:
            node.client.config_set("maxmemory-policy", "noeviction")
    assert await timeline.link.check_policy() == "noeviction"


async def test_a_database_other_than_the_first_and_a_socket_are_refused(cluster: Cluster) -> None:
    for url, told in ((f"{cluster.url}/3", "DB"), (cluster.nodes[0].server.url, "socket")):
        timeline = RedisTimeline(url, namespace="x")
        with pytest.raises(TimelineError, match=f"address of the timeline cannot be used.*{told}") as refused:
            await timeline.link.check_policy()
        assert not isinstance(refused.value, TimelineAwayError)
        assert PASSWORD not in str(refused.value)
        await timeline.close()


def test_the_doctor_looks_at_a_cluster(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(tmp_path, f"{cluster.url}?shards={SHARDS}", monkeypatch)
    for name in ("one", "two"):
        add(shell, name)
    found = shell.timeline_finding()
    assert (found["level"], "its policy is noeviction" in found["told"]) == ("ok", True)
    assert '2 schedules of the lane "default" wait in it' in found["told"]
    node = cluster.nodes[1]
    node.client.config_set("maxmemory-policy", "volatile-lru")
    try:
        found = shell.timeline_finding()
    finally:
        node.client.config_set("maxmemory-policy", "noeviction")
    assert (found["level"], f"at its node 127.0.0.1:{node.port}" in found["told"]) == ("wrong", True)


# --- engines ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "postgres"])
async def world(request: pytest.FixtureRequest, tmp_path: Path, cluster: Cluster) -> AsyncIterator[TimelineWorld]:
    maker = store_maker(request.param, tmp_path, await new_dsn(request, request.param))
    made = TimelineWorld(maker, cluster.url, uuid.uuid4().hex, shards=SHARDS)
    await made.schedules.open()
    yield made
    await ended(made)


async def test_engines_share_the_nodes_and_each_fires_exactly_once(cluster: Cluster, world: TimelineWorld) -> None:
    await up(world)
    second = world.on(world.another())
    await second.start()
    many: list[Any] = [{"name": f"s{i}", "type": "cron", "spec": "* * * * *", "action": ACTION} for i in range(60)]
    await world.schedules.create_many(many)
    await world.minutes(2)
    fired = Counter((call.schedule_id, call.scheduled_for) for call in world.calls)
    assert (len(fired), set(fired.values())) == (120, {1})
    counted = [one.timeline for one in (world.schedules, second)]
    assert [one is not None and (one["repaired"], one["errors"]) for one in counted] == [(0, 0), (0, 0)]
    assert sum(one["popped"] for one in counted if one is not None) >= 120, "Redis brought them up"
    assert is_whole(world)
    assert await world.store.timeline.counts(LANE) == (60, 0)
    await second.stop()
    await second._store.close()
    assert (await verify_store(world.store)).problems == []
