"""The verbs of the set, on a real server."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from noonbell.errors import TimelineAwayError, TimelineError
from noonbell.timeline import RedisTimeline
from noonbell.timeline.link import WrongTypeError
from noonbell.timeline.redis_timeline import LEASE_US
from tests.patience import PATIENCE_SECONDS
from tests.redis_server import PASSWORD, RedisServer
from tests.timeline.conftest import LANE, SECOND, T0


async def popped(timeline: RedisTimeline, now: int, limit: int = 100) -> list[int]:
    return sorted((await timeline.pop(LANE, now, limit)).sids)


# --- put, pop, ack, drop ----------------------------------------------------------------------------------------------


async def test_what_is_due_is_popped_and_nothing_else(timeline: RedisTimeline) -> None:
    await timeline.put(LANE, {1: T0, 2: T0 + 1, 3: T0 - 1, 4: 0})
    told = await timeline.pop(LANE, T0, 100)
    assert sorted(told.sids) == [1, 3, 4]
    assert told.next_at == T0 + 1, "microseconds are exact"
    assert await timeline.counts(LANE) == (1, 3)


async def test_the_earliest_come_first_and_the_limit_holds(redis_server: RedisServer) -> None:
    timeline = RedisTimeline(redis_server.url, namespace=uuid.uuid4().hex)
    await timeline.put(LANE, {sid: T0 - sid for sid in range(1, 11)})
    assert [(await timeline.pop(LANE, T0, 4)).sids for _ in range(4)] == [[10, 9, 8, 7], [6, 5, 4, 3], [2, 1], []]
    await timeline.close()


async def test_the_limit_holds_over_all_shards_and_none_is_forgotten(timeline: RedisTimeline) -> None:
    await timeline.put(LANE, dict.fromkeys(range(1, 31), T0))
    taken: list[int] = []
    for _ in range(15):
        told = await timeline.pop(LANE, T0 + 7, 2)
        assert len(told.sids) == 2
        assert (told.next_at or 0) <= T0 + 7 or len(taken) == 28, "what went back is due"
        await timeline.ack(LANE, dict.fromkeys(told.sids))
        taken += told.sids
    assert sorted(taken) == list(range(1, 31))
    assert await timeline.counts(LANE) == (0, 0)


async def test_of_two_times_the_earlier_stays(timeline: RedisTimeline) -> None:
    await timeline.put(LANE, {1: T0 + 5, 2: T0 + 5})
    await timeline.put(LANE, {1: T0 + 9, 2: T0 + 1})
    assert await popped(timeline, T0 + 1) == [2]
    assert await popped(timeline, T0 + 5) == [1]


async def test_an_acknowledged_member_comes_at_its_time_or_not_at_all(timeline: RedisTimeline) -> None:
    await timeline.put(LANE, {1: T0, 2: T0, 3: T0})
    assert await popped(timeline, T0) == [1, 2, 3]
    assert await timeline.ack(LANE, {1: T0 + 7, 2: None, 3: T0 + 9}) in (T0 + 7, T0 + 9)
    assert await timeline.counts(LANE) == (2, 0)
    assert await popped(timeline, T0 + 10 * LEASE_US) == [1, 3]


async def test_an_edit_during_a_flight_is_not_lost(timeline: RedisTimeline) -> None:
    await timeline.put(LANE, {1: T0})
    assert await popped(timeline, T0) == [1]
    await timeline.put(LANE, {1: T0 + 2})
    await timeline.ack(LANE, {1: T0 + 60 * SECOND})
    assert await popped(timeline, T0 + 2) == [1], "the acknowledgement did not know of the earlier time"


async def test_what_is_not_acknowledged_comes_again_when_its_lease_is_over(timeline: RedisTimeline) -> None:
    await timeline.put(LANE, {1: T0, 2: T0})
    assert await popped(timeline, T0) == [1, 2]
    await timeline.ack(LANE, {2: None})
    assert await popped(timeline, T0 + LEASE_US - 1) == []
    assert await popped(timeline, T0 + LEASE_US) == [1]


async def test_what_was_dropped_is_gone_from_the_flight_too(timeline: RedisTimeline) -> None:
    await timeline.put(LANE, {1: T0, 2: T0 + 1, 3: T0 + 1})
    assert await popped(timeline, T0) == [1]
    await timeline.drop(LANE, [1, 2])
    assert await popped(timeline, T0 + LEASE_US) == [3]


async def test_times_beyond_the_exact_are_left_out(timeline: RedisTimeline) -> None:
    await timeline.put(LANE, {1: (1 << 53) - 1, 2: 1 << 53})
    assert await timeline.counts(LANE) == (1, 0)
    assert await popped(timeline, (1 << 53) - 1) == [1]


async def test_large_sids_are_members_like_others(timeline: RedisTimeline) -> None:
    sids = [(1 << 63) - 1, 1 << 62, 3]
    await timeline.put(LANE, dict.fromkeys(sids, T0))
    assert await popped(timeline, T0) == sorted(sids)


async def test_two_poppers_at_once_get_everything_once(timeline: RedisTimeline) -> None:
    await timeline.put(LANE, dict.fromkeys(range(1, 5_001), T0))

    async def pop_all() -> list[int]:
        taken: list[int] = []
        while some := (await timeline.pop(LANE, T0, 97)).sids:
            taken += some
        return taken

    taken = await asyncio.gather(*(pop_all() for _ in range(4)))
    assert sorted(sid for some in taken for sid in some) == list(range(1, 5_001))
    assert sum(bool(some) for some in taken) > 1, "it was not one alone"


async def test_as_many_shards_as_there_may_be_and_many_verbs_at_once(redis_server: RedisServer) -> None:
    """Connections are not without end: who finds none free waits."""
    many = RedisTimeline(redis_server.url, namespace=uuid.uuid4().hex, shards=1024)
    await many.put(LANE, dict.fromkeys(range(1, 2_001), T0))
    assert await popped(many, T0, 4_096) == list(range(1, 2_001))
    await many.close()
    few = RedisTimeline(f"{redis_server.url}?max_connections=2", namespace=uuid.uuid4().hex, shards=8)
    await asyncio.gather(*(few.put(LANE, {sid: T0}) for sid in range(1, 101)))
    assert await popped(few, T0) == list(range(1, 101))
    await few.close()


async def test_lanes_and_namespaces_do_not_see_each_other(timeline: RedisTimeline, redis_server: RedisServer) -> None:
    await timeline.put(LANE, {1: T0})
    assert (await timeline.pop("other", T0, 10)).sids == []
    stranger = RedisTimeline(redis_server.url, namespace=f"{timeline.namespace}2", shards=timeline.shards)
    assert (await stranger.pop(LANE, T0, 10)).sids == []
    await stranger.close()
    assert await popped(timeline, T0) == [1]


# --- filling ----------------------------------------------------------------------------------------------------------


async def test_a_set_is_whole_after_it_was_filled(timeline: RedisTimeline) -> None:
    assert (await timeline.pop(LANE, T0, 1)).until is None
    assert await timeline.begin_feed(LANE, "a", T0)
    assert not await timeline.begin_feed(LANE, "b", T0), "one at a time"
    assert await timeline.feed(LANE, "a", [(1, T0 + 5), (2, T0 + 6)], T0)
    assert (await timeline.pop(LANE, T0, 1)).until is None, "not yet"
    assert await timeline.end_feed(LANE, "a", T0 + SECOND, T0)
    assert (await timeline.pop(LANE, T0, 1)).until == T0 + SECOND
    assert await timeline.whole_until(LANE) == (T0 + SECOND, T0)
    assert await timeline.begin_feed(LANE, "b", T0)


async def test_a_feeder_that_died_is_followed_by_another(timeline: RedisTimeline) -> None:
    assert await timeline.begin_feed(LANE, "dead", T0)
    assert not await timeline.begin_feed(LANE, "next", T0 + 29 * SECOND)
    assert await timeline.begin_feed(LANE, "next", T0 + 31 * SECOND)
    assert not await timeline.feed(LANE, "dead", [(1, T0)], T0), "it is not dead, but late"
    assert not await timeline.end_feed(LANE, "dead", T0 + SECOND, T0)
    assert (await timeline.pop(LANE, T0, 1)).until is None


async def test_nobody_is_kept_off_by_what_he_has_left_behind(timeline: RedisTimeline) -> None:
    assert await timeline.begin_feed(LANE, "me:1", T0)
    assert not await timeline.begin_feed(LANE, "other:1", T0)
    assert await timeline.begin_feed(LANE, "me:2", T0)
    assert not await timeline.feed(LANE, "me:1", [(1, T0)], T0), "the first counts no more"
    assert await timeline.end_feed(LANE, "me:2", T0 + SECOND, T0)


async def test_a_set_that_was_emptied_while_it_was_filled_is_not_whole(timeline: RedisTimeline, behind: Any) -> None:
    await timeline.begin_feed(LANE, "a", T0)
    await timeline.feed(LANE, "a", [(1, T0)], T0)
    await behind.flushall()
    assert not await timeline.feed(LANE, "a", [(2, T0)], T0)
    assert not await timeline.end_feed(LANE, "a", T0 + SECOND, T0)
    told = await timeline.pop(LANE, T0, 10)
    assert (told.sids, told.until) == ([], None)


async def test_one_of_many_is_told_to_repair_every_two_seconds(timeline: RedisTimeline) -> None:
    await timeline.begin_feed(LANE, "a", T0)
    await timeline.end_feed(LANE, "a", T0 + 60 * SECOND, T0)

    async def asked(now: int) -> bool:
        return (await timeline.pop(LANE, now, 1, repair=True)).repair

    assert not (await timeline.pop(LANE, T0, 1)).repair, "only who asks"
    assert [await asked(T0 + i * SECOND // 2) for i in range(9)] == [True, *[False] * 3, True, *[False] * 3, True]
    assert await asked(T0 - 3600 * SECOND), "a clock that was set back does not keep it off for an hour"


# --- the server is not as it should be --------------------------------------------------------------------------------


async def test_scripts_that_the_server_has_forgotten_are_sent_again(timeline: RedisTimeline, behind: Any) -> None:
    await timeline.put(LANE, {1: T0})
    await behind.script_flush()
    assert await popped(timeline, T0) == [1]
    await behind.script_flush()
    assert await timeline.ack(LANE, {1: T0 + 1}) == T0 + 1


async def test_members_that_are_no_ids_are_removed(timeline: RedisTimeline, behind: Any) -> None:
    due, flight, _ = timeline.keys(LANE, 0)
    words = [b"", b"word", b"-3", b"+3", b"03", b"3.5", b"9" * 40, "\N{SUPERSCRIPT TWO}".encode(), b"\xff"]
    await behind.zadd(due, dict.fromkeys(words, T0))
    await timeline.put(LANE, {15: T0})
    told = await timeline.pop(LANE, T0, 100)
    assert (told.sids, sorted(told.strange)) == ([15], sorted(words))
    assert await behind.zcard(due) + await behind.zcard(flight) == 1, "only the id is in flight"


async def test_a_member_of_another_shard_is_none_of_ours(redis_server: RedisServer, client: Any) -> None:
    timeline = RedisTimeline(redis_server.url, namespace=uuid.uuid4().hex, shards=3)
    await client.zadd(timeline.keys(LANE, 0)[0], {"4": T0})
    assert (await timeline.pop(LANE, T0, 9)).strange == [b"4"]
    await timeline.close()


@pytest.mark.parametrize("key", [0, 1, 2], ids=["due", "flight", "state"])
async def test_a_key_of_another_type_is_told_and_can_be_forgotten(
    timeline: RedisTimeline, behind: Any, key: int
) -> None:
    await behind.set(timeline.keys(LANE, 0)[key], "no set")
    with pytest.raises(WrongTypeError):
        await timeline.pop(LANE, T0, 1)
    await timeline.forget(LANE)
    await timeline.put(LANE, {1: T0})
    assert await popped(timeline, T0) == [1]


async def test_a_state_that_makes_no_sense_counts_as_none(timeline: RedisTimeline, behind: Any) -> None:
    for shard in range(timeline.shards):
        words = {"until": "soon", "built": "", "repaired": "never", "feeder": "x", "feeder_until": "late"}
        await behind.hset(timeline.keys(LANE, shard)[2], mapping=words)
    assert (await timeline.pop(LANE, T0, 1, repair=True)).until is None
    assert await timeline.begin_feed(LANE, "a", T0)
    assert await timeline.end_feed(LANE, "a", T0 + SECOND, T0)
    assert (await timeline.pop(LANE, T0, 1)).until == T0 + SECOND


async def test_a_server_that_is_not_there_is_away(tmp_path: Any) -> None:
    for address in (f"unix://:{PASSWORD}@{tmp_path}/no.sock", f"redis://:{PASSWORD}@127.0.0.1:1/0"):
        timeline = RedisTimeline(address, namespace="x")
        with pytest.raises(TimelineAwayError) as away:
            await timeline.put(LANE, {1: T0})
        assert PASSWORD not in str(away.value)
        await timeline.close()


async def test_a_server_that_does_not_answer_is_away_within_the_time(redis_server: RedisServer) -> None:
    timeline = RedisTimeline(redis_server.url, namespace=uuid.uuid4().hex)
    await timeline.put(LANE, {1: T0})
    in_time, timeline.link._timeout = timeline.link._timeout, 0.05
    redis_server.pause()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            for _ in range(3):
                with pytest.raises(TimelineAwayError):
                    await timeline.pop(LANE, T0, 1)
    finally:
        redis_server.go_on()
    timeline.link._timeout = in_time
    assert set((await timeline.pop(LANE, T0 + LEASE_US, 1)).sids) <= {1}, "it goes on where it was"
    await timeline.close()


async def test_a_server_that_became_a_replica_is_looked_for_anew(redis_server: RedisServer, client: Any) -> None:
    """The name in the address may lead to the new master by now; the old connection never would."""
    timeline = RedisTimeline(redis_server.url, namespace=uuid.uuid4().hex)
    await timeline.put(LANE, {1: T0})
    before = {one["id"] for one in await client.client_list()}
    await client.replicaof("127.0.0.1", 1)
    try:
        with pytest.raises(TimelineAwayError, match="ReadOnly"):
            await timeline.put(LANE, {2: T0})
    finally:
        await client.replicaof("NO", "ONE")
    await timeline.put(LANE, {3: T0})
    assert {one["id"] for one in await client.client_list()} - before, "a new connection"
    await timeline.close()


async def test_a_server_that_was_restarted_is_used_again() -> None:
    server = RedisServer()
    timeline = RedisTimeline(server.url, namespace="x")
    try:
        await timeline.put(LANE, {1: T0})
        server.halt()
        with pytest.raises(TimelineAwayError):
            await timeline.pop(LANE, T0, 1)
        server.start()
        told = await timeline.pop(LANE, T0, 1)
        assert (told.sids, told.until) == ([], None), "it has kept nothing"
    finally:
        await timeline.close()
        server.stop()


# --- what the server must be like -------------------------------------------------------------------------------------


async def test_a_policy_that_drops_keys_is_refused(timeline: RedisTimeline, behind: Any) -> None:
    assert await timeline.link.check_policy() == "noeviction"
    for policy in ("allkeys-lru", "volatile-ttl"):
        await behind.config_set("maxmemory-policy", policy)
        try:
            with pytest.raises(TimelineError, match=f"{policy}.*set maxmemory-policy noeviction") as refused:
                await timeline.link.check_policy()
        finally:
            await behind.config_set("maxmemory-policy", "noeviction")
        assert not isinstance(refused.value, TimelineAwayError)
        assert PASSWORD not in str(refused.value)


async def test_a_server_that_hides_its_policy_is_used_with_a_warning(
    redis_server: RedisServer, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await client.acl_setuser("guest", enabled=True, passwords=["+pw"], keys=["*"], channels=["*"],
                             commands=["+@all", "-config"])  # fmt: skip
    timeline = RedisTimeline(redis_server.url.replace("//:", "//guest:").replace(PASSWORD, "pw"), namespace="x")
    assert await timeline.link.check_policy() is None
    assert await timeline.link.check_policy() is None
    assert [record.levelname for record in caplog.records if "noeviction" in record.getMessage()] == ["WARNING"]
    await timeline.close()


async def test_a_user_needs_no_more_rights_than_are_told(redis_server: RedisServer, client: Any) -> None:
    words = ("-@all", "+eval", "+evalsha", "+info", "+publish", "+subscribe", "+del", "+@sortedset", "+@hash")
    await client.acl_setuser("clerk", enabled=True, passwords=["+pw"], keys=["noonbell:*"], channels=["noonbell:*"],
                             commands=words)  # fmt: skip
    url = redis_server.url.replace("//:", "//clerk:").replace(PASSWORD, "pw")
    timeline = RedisTimeline(url, namespace=uuid.uuid4().hex, shards=2)
    assert await timeline.begin_feed(LANE, "a:1", T0)
    assert await timeline.feed(LANE, "a:1", [(1, T0)], T0)
    assert await timeline.end_feed(LANE, "a:1", T0 + SECOND, T0)
    async with timeline.link.hints(timeline.channel(LANE)) as heard:
        assert await heard() is None, "that it has subscribed"
        await timeline.put(LANE, {2: T0})
        assert await heard() == str(T0).encode()
    assert await popped(timeline, T0) == [1, 2]
    await timeline.ack(LANE, {1: T0, 2: None})
    await timeline.drop(LANE, [1])
    assert await timeline.counts(LANE) == (0, 0)
    await timeline.forget(LANE)
    assert await timeline.whole_until(LANE) == (None, None)
    await timeline.close()


# --- clusters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lane", ["default", "a}b{c", "{}", "", "Zürich: nachts", "}"])
async def test_the_keys_of_a_shard_have_one_slot(redis_server: RedisServer, client: Any, lane: str) -> None:
    for namespace in ("x", "{", "}"):
        timeline = RedisTimeline(redis_server.url, namespace=namespace, shards=4)
        slots = [{await client.cluster("KEYSLOT", key) for key in timeline.keys(lane, shard)} for shard in range(4)]
        assert [len(of_shard) for of_shard in slots] == [1] * 4
        assert len({slot for of_shard in slots for slot in of_shard}) > 1, "and shards are spread"


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("http://host", "not a scheme of Redis"),
        ("host:6379", "not a scheme of Redis"),
        ("", "not a scheme of Redis"),
        ("redis://:secret@host:port", "cannot be read"),
        ("redis://:secret@host/0?shards=0", "shards '0' must be a whole number"),
        ("redis://:secret@host/0?shards=many", "shards 'many' must be"),
        ("redis://:secret@host/0?namespace=", "namespace is blank"),
        ("redis://:secret@host/0?max_connections=0", "max_connections '0' must be a whole number"),
        ("redis://:secret@host/0?decode_responses=true", "decode_responses cannot be chosen"),
    ],
)
def test_an_address_that_makes_no_sense_is_refused_without_its_password(address: str, told: str) -> None:
    with pytest.raises(TimelineError, match=told) as refused:
        RedisTimeline(address)
    assert "secret" not in str(refused.value)


def test_an_address_says_shards_and_namespace_and_shows_no_password() -> None:
    timeline = RedisTimeline("rediss://me:secret@host:7000/3?shards=8&namespace=shop&ssl_check_hostname=false")
    assert (timeline.shards, timeline.namespace) == (8, "shop")
    assert repr(timeline) == "RedisTimeline(rediss://***@host:7000/3)"
    assert RedisTimeline("redis://host?shards=8", shards=2, namespace="n").shards == 2
    for wrong in ({"shards": 0}, {"timeout": 5.0}):
        with pytest.raises(TimelineError, match="must be"):
            RedisTimeline("redis://host", **wrong)


async def test_an_option_that_the_client_does_not_know_is_told_without_the_password() -> None:
    timeline = RedisTimeline("redis://:secret@127.0.0.1:1/0?no_such_option=1")
    with pytest.raises(TimelineError, match="no_such_option") as refused:
        await timeline.put(LANE, {1: T0})
    assert "secret" not in str(refused.value)
