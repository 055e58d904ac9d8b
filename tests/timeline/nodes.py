"""A Redis Cluster of several nodes on the loopback interface: masters that share the slots, a replica, and a spare one.

Its patience (`cluster-node-timeout`) is long, so that a busy machine makes nobody look dead; a test that wants a death
to be noticed makes it short for a while.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import redis

from noonbell.timeline import RedisTimeline
from tests.patience import wait_until
from tests.ports import free_port
from tests.redis_server import PASSWORD, RedisServer

SLOTS: Final = 16384
_MASTERS: Final = 3
_PATIENCE: Final = 15_000


_TRIES: Final = 20


def on_free_ports(**settings: str) -> tuple[RedisServer, int, int]:
    """A node of a cluster, its port and that of its bus; others if another process takes one before the node does."""
    for left in reversed(range(_TRIES)):
        port, bus = free_port(), free_port()
        more = {"port": str(port), "cluster_port": str(bus), "bind": "127.0.0.1", "cluster_enabled": "yes"}
        try:
            return RedisServer(**more, **settings), port, bus
        except RuntimeError:
            if not left:
                raise
    raise AssertionError("there is a last try")


class Node:
    """One server of the cluster."""

    def __init__(self) -> None:
        self.server, self.port, self.bus = on_free_ports(
            cluster_node_timeout=str(_PATIENCE), masterauth=PASSWORD, repl_diskless_sync_delay="0",
            repl_ping_replica_period="1",
        )  # fmt: skip
        self.client: Any = redis.Redis.from_url(self.server.url)
        self.id: str = self.say("MYID").decode()

    def __repr__(self) -> str:
        return f"node at {self.port}"

    @property
    def url(self) -> str:
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}"

    def say(self, word: str, *more: object) -> Any:
        return self.client.execute_command(f"CLUSTER {word}", *more)

    @property
    def is_well(self) -> bool:
        return bool(self.say("INFO")["cluster_state"] == "ok")

    @property
    def is_master(self) -> bool:
        return bool(self.client.info("replication")["role"] == "master")

    def owns(self, slot: int) -> bool:
        return any(first <= slot <= last for first, last, (_, port, *_), *_ in self._slots() if port == self.port)

    def _slots(self) -> list[Any]:
        with redis.Redis.from_url(self.server.url) as plain:
            plain.response_callbacks.clear()
            told: list[Any] = plain.execute_command("CLUSTER", "SLOTS")
            return told

    def named(self) -> set[int]:
        """The ports of all that have slots, or copies of them, in order."""
        return {port for _, _, *nodes in self._slots() for _, port, *_ in nodes}

    def known_ids(self) -> set[str]:
        """Return the ids of all nodes that this one knows, its own included."""
        return {node["node_id"] for node in self.say("NODES").values()}

    def keys(self, slot: int) -> list[bytes]:
        found: list[bytes] = self.say("GETKEYSINSLOT", slot, 100)
        return found

    def stop(self) -> None:
        self.client.close()
        self.server.stop()


class Cluster:
    """Three masters (`masters`), a replica of the last of them, and a master that has no slots yet (`spare`)."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        try:
            self.nodes += (Node() for _ in range(_MASTERS + 2))
            with self.impatient():  # nodes that have little patience exchange news often
                self._join()
        except BaseException:
            self.stop()
            raise

    def _join(self) -> None:
        masters = self.nodes[:_MASTERS]
        for number, node in enumerate(self.nodes):
            node.say("SET-CONFIG-EPOCH", number + 1)
        for number, node in enumerate(masters):
            node.say("ADDSLOTSRANGE", number * SLOTS // _MASTERS, (number + 1) * SLOTS // _MASTERS - 1)
        wait_until(self._all_have_met)
        self.replica.say("REPLICATE", masters[-1].id)
        self.settle()

    def _all_have_met(self) -> bool:
        """Return whether every node knows every id; introduce again those that the first node does not know.

        During a handshake a node is listed under a temporary id, so the number of known nodes proves nothing. A
        handshake that takes too long on a busy machine is dropped and has to be started again.
        """
        everyone = {node.id for node in self.nodes}
        known = self.nodes[0].known_ids()
        for node in self.nodes[1:]:
            if node.id not in known:
                self.nodes[0].say("MEET", "127.0.0.1", node.port, node.bus)
        return all(node.known_ids() >= everyone for node in self.nodes)

    @property
    def url(self) -> str:
        return self.nodes[0].url

    @property
    def replica(self) -> Node:
        return self.nodes[_MASTERS]

    @property
    def spare(self) -> Node:
        return self.nodes[_MASTERS + 1]

    def settle(self) -> None:
        """Wait until all say that all is well, and name the replicas."""
        wait_until(lambda: all(node.is_well for node in self.nodes))
        replicas = {node.port for node in self.nodes if not node.is_master}
        wait_until(lambda: all(replicas <= node.named() for node in self.nodes))

    def mend(self) -> None:
        """Start again what is dead, and wait until all is well."""
        for node in self.nodes:
            if not node.server.runs:
                node.server.start()
        with self.impatient():
            self.settle()

    def slot(self, key: str) -> int:
        return int(self.nodes[0].say("KEYSLOT", key))

    def owner(self, key: str) -> Node:
        """Who has the slot of a key, as he says himself."""
        slot = self.slot(key)
        return next(node for node in self.nodes if node.is_master and node.owns(slot))

    def spread(self, timeline: RedisTimeline, lane: str) -> list[Node]:
        """Who has each shard."""
        return [self.owner(timeline.keys(lane, shard)[0]) for shard in range(timeline.shards)]

    @contextlib.contextmanager
    def impatient(self) -> Iterator[None]:
        """A node that does not answer is given up after half a second."""
        self._patience(500)
        try:
            yield
        finally:
            self._patience(_PATIENCE)

    def _patience(self, milliseconds: int) -> None:
        for node in self.nodes:
            with contextlib.suppress(redis.ConnectionError):  # it is dead
                node.client.config_set("cluster-node-timeout", milliseconds)

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()


class Move:
    """A slot on its way from its owner to another node, step by step."""

    def __init__(self, cluster: Cluster, key: str, to: Node) -> None:
        self._cluster = cluster
        self._from, self._to = cluster.owner(key), to
        self.slot = cluster.slot(key)

    def begin(self) -> None:
        self._to.say("SETSLOT", self.slot, "IMPORTING", self._from.id)
        self._from.say("SETSLOT", self.slot, "MIGRATING", self._to.id)

    def carry(self, most: int = 100) -> int:
        """Move so many keys; returns how many there were."""
        keys = self._from.keys(self.slot)[:most]
        if keys:
            where = ("127.0.0.1", self._to.port, "", 0, 5000, "REPLACE", "AUTH", PASSWORD)
            self._from.client.execute_command("MIGRATE", *where, "KEYS", *keys)
        return len(keys)

    def end(self) -> None:
        for node in (self._to, self._from, *self._cluster.nodes):
            if node.is_master:
                node.say("SETSLOT", self.slot, "NODE", self._to.id)
