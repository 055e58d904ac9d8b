"""The Redis stream as a target, on a real server: entries, groups, trimming, repeats, and a server that goes away."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
import redis.asyncio
from redis.crc import key_slot

from noonbell.actions.message import message_of
from noonbell.actions.targets import BatchTarget, RedisStream
from noonbell.errors import DeliveryError, ScheduleInvalidError, TargetAwayError
from tests.actions.conftest import MIDNIGHT, start_at, stored_with
from tests.patience import PATIENCE_MS, PATIENCE_SECONDS
from tests.redis_server import PASSWORD, RedisServer


def bodies(count: int, start: int = 0) -> list[str]:
    """Messages of one schedule, one after the other."""
    stored = stored_with({"kind": "message", "to": "x"}, {"text": "Grüße"})
    return [message_of(stored, start_at(MIDNIGHT + number), 5).body for number in range(start, start + count)]


def id_of(number: int) -> str:
    return f"abc:scheduled:{MIDNIGHT + number}"


@pytest.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[Any]:
    made: Any = redis.asyncio.Redis.from_url(redis_server.url, decode_responses=True)
    await made.flushall()
    yield made
    await made.aclose()


async def ids(client: Any, key: str = "events") -> list[str]:
    return [fields["id"] for _, fields in await client.xrange(key)]


async def put(server: RedisServer, given: Sequence[str], **options: Any) -> None:
    target = RedisStream(server.url, "events", **options)
    try:
        await target.deliver_many(given)
    finally:
        await target.close()


async def test_an_event_becomes_an_entry_with_its_attributes(redis_server: RedisServer, client: Any) -> None:
    target = RedisStream(redis_server.url, "events")
    (body,) = bodies(1)
    await target.deliver(body)
    await target.close()
    ((_, fields),) = await client.xrange("events")
    assert msgspec.json.decode(fields.pop("data")) == msgspec.json.decode(body)["data"]
    assert fields == {
        "specversion": "1.0",
        "id": id_of(0),
        "source": "/noonbell/schedules/abc",
        "type": "noonbell.message",
        "subject": "morning",
        "time": "2024-01-01T00:00:00Z",
        "datacontenttype": "application/json",
        "kind": "scheduled",
        "attempt": "1",
        "scheduledfor": "2024-01-01T00:00:00Z",
    }


async def test_it_is_opened_again_after_a_close(redis_server: RedisServer, client: Any) -> None:
    target = RedisStream(redis_server.url, "events")
    for body in bodies(2):
        await target.deliver(body)
        await target.close()
    assert await ids(client) == [id_of(0), id_of(1)]


async def test_many_arrive_in_order_in_one_command(redis_server: RedisServer, client: Any) -> None:
    await put(redis_server, bodies(1))  # the server knows the script now
    before = (await client.info("commandstats")).get("cmdstat_evalsha", {"calls": 0})["calls"]
    await put(redis_server, bodies(1_000, 1))
    after = (await client.info("commandstats"))["cmdstat_evalsha"]["calls"]
    assert await ids(client) == [id_of(number) for number in range(1_001)]
    assert after - before == 1


async def test_it_takes_many_at_once() -> None:
    assert isinstance(RedisStream("redis://here", "k"), BatchTarget)


# --- repeats ----------------------------------------------------------------------------------------------------------


async def test_a_repeat_is_put_in_once(redis_server: RedisServer, client: Any) -> None:
    await put(redis_server, bodies(3))
    await put(redis_server, bodies(5))  # the answer to the first was lost, say, and two more have come
    assert await ids(client) == [id_of(number) for number in range(5)]


async def test_a_repeat_within_one_batch_is_put_in_once(redis_server: RedisServer, client: Any) -> None:
    await put(redis_server, [*bodies(2), *bodies(2)])
    assert await ids(client) == [id_of(0), id_of(1)]


async def test_a_consumer_that_has_taken_an_entry_away_does_not_get_it_again(
    redis_server: RedisServer, client: Any
) -> None:
    await put(redis_server, bodies(1))
    ((entry, _),) = await client.xrange("events")
    await client.xdel("events", entry)
    await put(redis_server, bodies(1))
    assert await ids(client) == []


async def test_ids_are_forgotten_after_their_time(redis_server: RedisServer, client: Any) -> None:
    await put(redis_server, bodies(2), remember_seconds=60)
    seen = "{events}:noonbell-ids"
    assert 0 < await client.pttl(seen) <= 60_000
    await client.zadd(seen, {id_of(0): 1_000})  # as if it had been put in long ago
    await put(redis_server, bodies(1, 7), remember_seconds=60)
    assert await client.zrange(seen, 0, -1) == [id_of(1), id_of(7)]


async def test_without_a_memory_each_delivery_is_an_entry(redis_server: RedisServer, client: Any) -> None:
    await put(redis_server, bodies(1), remember_seconds=0)
    await put(redis_server, bodies(1), remember_seconds=0)
    assert await ids(client) == [id_of(0), id_of(0)]
    assert await client.keys("*") == ["events"]


@pytest.mark.parametrize(
    ("key", "seen"),
    [
        ("events", "{events}:noonbell-ids"),
        ("{a}:b", "{a}:b:noonbell-ids"),
        ("a}b{c}", "a}b{c}:noonbell-ids"),
        ("{{a}}", "{{a}}:noonbell-ids"),
        ("a{b", "{a{b}:noonbell-ids"),
    ],
)
async def test_both_keys_are_on_one_server_of_a_cluster(
    redis_server: RedisServer, client: Any, key: str, seen: str
) -> None:
    target = RedisStream(redis_server.url, key)
    await target.deliver_many(bodies(1))
    await target.close()
    assert sorted(await client.keys("*")) == sorted([key, seen])
    assert key_slot(key.encode()) == key_slot(seen.encode())


@pytest.mark.parametrize("key", ["{}x", "}x{", "a{}b", "a{}{b}", "a}b", "}"])
async def test_a_key_that_leaves_no_place_beside_it_is_refused(
    redis_server: RedisServer, client: Any, key: str
) -> None:
    """The whole of it is hashed in a cluster, and a tag that holds a closing brace ends there."""
    with pytest.raises(ScheduleInvalidError, match="closes a hash tag") as refused:
        RedisStream(redis_server.url, key)
    assert (refused.value.field, refused.value.value) == ("key", key)
    target = RedisStream(redis_server.url, key, remember_seconds=0)  # one key alone has no neighbour
    await target.deliver_many(bodies(1))
    await target.close()
    assert await client.keys("*") == [key]


# --- groups and length ------------------------------------------------------------------------------------------------


async def test_the_group_is_made_with_the_stream_and_reads_it_from_its_beginning(
    redis_server: RedisServer, client: Any
) -> None:
    await put(redis_server, bodies(2), group="workers")
    ((_, got),) = await client.xreadgroup("workers", "one", {"events": ">"})
    assert [fields["id"] for _, fields in got] == [id_of(0), id_of(1)]


async def test_a_group_is_made_on_a_stream_that_is_there(redis_server: RedisServer, client: Any) -> None:
    await put(redis_server, bodies(1))
    await put(redis_server, bodies(1, 1), group="workers")
    await put(redis_server, bodies(1, 2), group="workers")  # where it is there as well
    ((_, got),) = await client.xreadgroup("workers", "one", {"events": ">"})
    assert len(got) == 3


async def test_a_group_that_is_lost_with_the_stream_is_made_again(redis_server: RedisServer, client: Any) -> None:
    target = RedisStream(redis_server.url, "events", group="workers")
    await target.deliver_many(bodies(1))
    await client.flushall()
    await target.deliver_many(bodies(1, 1))
    await target.close()
    ((_, got),) = await client.xreadgroup("workers", "one", {"events": ">"})
    assert [fields["id"] for _, fields in got] == [id_of(1)]


async def test_a_group_that_was_destroyed_under_a_living_stream_is_made_again(
    redis_server: RedisServer, client: Any
) -> None:
    await client.xgroup_create("events", "others", id="$", mkstream=True)
    target = RedisStream(redis_server.url, "events", group="workers")
    await target.deliver_many(bodies(1))
    await client.xgroup_destroy("events", "workers")
    await target.deliver_many(bodies(1, 1))
    await target.close()
    ((_, got),) = await client.xreadgroup("workers", "one", {"events": ">"})
    assert [fields["id"] for _, fields in got] == [id_of(0), id_of(1)]
    assert [group["name"] for group in await client.xinfo_groups("events")] == ["others", "workers"]


async def test_a_stream_can_be_kept_short(redis_server: RedisServer, client: Any) -> None:
    await put(redis_server, bodies(500), maxlen=10)
    assert 10 <= await client.xlen("events") < 300  # the server cuts by whole nodes of a hundred
    assert (await ids(client))[-1] == id_of(499)


# --- failures ---------------------------------------------------------------------------------------------------------


async def test_a_server_that_was_gone_is_found_again() -> None:
    server = RedisServer()
    try:
        target = RedisStream(server.url, "events", timeout=PATIENCE_SECONDS)
        first, second = bodies(2)
        await target.deliver(first)
        server.halt()
        with pytest.raises(TargetAwayError) as failed:
            await target.deliver(second)
        assert PASSWORD not in str(failed.value)
        server.start()
        await target.deliver(second)
        await target.close()
        made: Any = redis.asyncio.Redis.from_url(server.url, decode_responses=True)
        assert await ids(made) == [id_of(1)]
        await made.aclose()
    finally:
        server.stop()


async def test_an_answer_that_does_not_come_is_a_target_that_is_away(redis_server: RedisServer, client: Any) -> None:
    await put(redis_server, bodies(1))
    target = RedisStream(redis_server.url, "events", timeout=0.2)
    await client.client_pause(round(PATIENCE_MS), all=False)
    try:
        with pytest.raises(TargetAwayError, match="Timeout"):
            await target.deliver_many(bodies(1, 1))
    finally:
        await client.client_unpause()
        await target.close()


async def test_a_key_of_another_type_is_told_and_leaves_no_id_behind(redis_server: RedisServer, client: Any) -> None:
    await client.set("events", "a text")
    with pytest.raises(TargetAwayError, match="WRONGTYPE"):
        await put(redis_server, bodies(1))
    await client.delete("events")
    await put(redis_server, bodies(1))
    assert await ids(client) == [id_of(0)]


async def test_what_redis_refuses_is_a_failure_without_secrets(redis_server: RedisServer) -> None:
    wrong = RedisStream(redis_server.url.replace(PASSWORD, "other-secret"), "events")
    with pytest.raises(DeliveryError, match=r"did not reach RedisStream\('unix://\*\*\*@") as failed:
        await wrong.deliver_many(bodies(1))
    await wrong.close()
    assert "other-secret" not in str(failed.value) + repr(failed.value) + repr(wrong)


async def test_a_cancelled_delivery_leaves_the_target_usable(redis_server: RedisServer, client: Any) -> None:
    target = RedisStream(redis_server.url, "events")
    await target.deliver_many(bodies(1))
    await client.client_pause(60_000, all=False)
    task = asyncio.ensure_future(target.deliver_many(bodies(1, 1)))
    waiting = 0
    while not waiting:  # each look is a round trip
        waiting = (await client.info("clients"))["blocked_clients"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await client.client_unpause()
    await target.deliver_many(bodies(2, 1))
    await target.close()
    assert await ids(client) == [id_of(0), id_of(1), id_of(2)]


async def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_redis(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("redis"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without_redis)
    with pytest.raises(DeliveryError, match=r"noonbell\[redis\]"):
        await RedisStream("redis://localhost", "k").deliver_many(bodies(1))


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("maxlen", {"maxlen": 0}),
        ("maxlen", {"maxlen": "5"}),
        ("timeout", {"timeout": 0}),
        ("group", {"group": " "}),
        ("key", {"key": ""}),
        ("remember_seconds", {"remember_seconds": -1}),
        ("url", {"url": "gopher://:secret@host"}),
        ("url", {"url": "cache:6379"}),
    ],
)
def test_options_of_a_stream_are_checked(field: str, options: dict[str, Any]) -> None:
    with pytest.raises(ScheduleInvalidError) as refused:
        RedisStream(**{"url": "redis://localhost", "key": "k", **options})
    assert refused.value.field == field
    assert "secret" not in str(refused.value)


async def test_an_address_that_the_client_cannot_read_is_told_without_its_password() -> None:
    with pytest.raises(DeliveryError, match="address cannot be used") as failed:
        await RedisStream("redis://:secret@host:port/0", "k").deliver_many(bodies(1))
    assert "secret" not in str(failed.value)


# --- a doctor's look --------------------------------------------------------------------------------------------------


async def test_it_tells_how_it_is(redis_server: RedisServer, client: Any) -> None:
    await put(redis_server, bodies(3))
    target = RedisStream(redis_server.url, "events")
    assert await target.probe() == "answers; events has 3 entries"
    await client.set("text", "a text")
    other = RedisStream(redis_server.url, "text")
    with pytest.raises(DeliveryError, match="must hold a stream"):
        await other.probe()
    await target.close()
    await other.close()
