"""A Redis server, and timelines on it that no other test knows of."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from noonbell.timeline import RedisTimeline
from noonbell.timeline.link import Link
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.redis_server import PASSWORD, RedisServer
from tests.timeline.nodes import Cluster, on_free_ports

T0 = 1_790_000_000_000_001  # odd: as doubles these are still exact
SECOND = 1_000_000
LANE = "default"


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers late on a busy machine is not away; a test of that shortens `_timeout` itself."""
    make = Link.__init__

    def patient(self: Link, url: str, *, timeout: float, connections: int) -> None:
        del timeout
        make(self, url, timeout=PATIENCE_SECONDS, connections=connections)

    monkeypatch.setattr(Link, "__init__", patient)


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.go_on()
    server.stop()


@pytest.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[Any]:
    """Of `redis_server`, past every timeline."""
    made = redis.asyncio.Redis.from_url(redis_server.url)
    yield made
    await made.aclose()


@pytest.fixture(scope="module")
def cluster_address() -> Iterator[str]:
    """A cluster of one node, which is as strict about keys and slots as many are."""
    server, port, _ = on_free_ports()
    address = f"redis://:{PASSWORD}@127.0.0.1:{port}"
    try:
        with redis.Redis.from_url(address) as client:
            client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
            wait_until(
                lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok"
            )  # two seconds of its own
        yield address
    finally:
        server.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Of several nodes; a test that harms one waits until it is well again."""
    made = Cluster()
    yield made
    made.stop()


@pytest.fixture(params=["one shard", "three shards", "cluster"])
def place(request: pytest.FixtureRequest) -> tuple[str, int]:
    """An address, and over how many shards."""
    if request.param == "cluster":
        return request.getfixturevalue("cluster_address"), 5
    return request.getfixturevalue("redis_server").url, 1 if request.param == "one shard" else 3


@pytest.fixture
async def timeline(place: tuple[str, int]) -> AsyncIterator[RedisTimeline]:
    url, shards = place
    made = RedisTimeline(url, namespace=uuid.uuid4().hex, shards=shards)
    yield made
    await made.close()


@pytest.fixture
async def behind(place: tuple[str, int]) -> AsyncIterator[Any]:
    """To look behind the back of `timeline`."""
    made = redis.asyncio.Redis.from_url(place[0])
    yield made
    await made.aclose()
