"""The connection to the Redis server: short timeouts, scripts by their hashes, one kind of error.

Whatever goes wrong (not reached, no answer in time, refused) is a TimelineAwayError whose text holds no password; a key
that holds something else than it should is a `WrongTypeError`. Nothing is tried twice here: who asks has the database
to ask instead.

A server that is part of a Redis Cluster is found out by asking it, and spoken to by the client for clusters then. That
one follows slots to where they have moved, and knows of other nodes than the one in the address once it has met them.
The address is the operator's own and does not go through egress. Needs the extra noonbell[redis].
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from noonbell.errors import TimelineAwayError, TimelineError
from noonbell.timeline.address import at_node, shown, without_secrets
from noonbell.timeline.scripts import Script

logger = logging.getLogger("noonbell.timeline")

T = TypeVar("T")

_SAFE_POLICY: Final = "noeviction"
_LONGEST_SAID: Final = 300
# A server has as many databases as it was set up with; a cluster has one.
_NO_DATABASE: Final = re.compile("DB index is out of range|SELECT is not allowed")
_MOST_ASKED: Final = 3  # nodes of a cluster, for one that lets us listen


class WrongTypeError(TimelineError):
    """A key of ours holds a value that is neither a sorted set nor a hash."""


class Link:
    """A client that is made when it is needed first."""

    def __init__(self, url: str, *, timeout: float, connections: int) -> None:
        self._url = url
        self._timeout = timeout
        self._connections = connections
        self._free = asyncio.Semaphore(connections)  # the client has an error for one too many
        self._client: Any = None
        self._making = asyncio.Lock()
        self._warned_unchecked = False

    def __repr__(self) -> str:
        return shown(self._url)

    # --- asking ---------------------------------------------------------------------------------------------------

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Run a script, by its hash where the server knows it."""

        async def ask(client: Any) -> Any:
            try:
                return await client.evalsha(script.sha, len(keys), *keys, *arguments)
            except _library().exceptions.NoScriptError:  # it was restarted, or its scripts were flushed
                return await client.eval(script.text, len(keys), *keys, *arguments)

        return await self.ask(ask)

    async def command(self, *words: Any) -> Any:
        """A single command; its key decides where it goes."""
        return await self.ask(lambda client: client.execute_command(*words))

    async def ask(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do something with the client, in the time that there is."""
        errors = _library().exceptions
        try:
            async with asyncio.timeout(2 * self._timeout), self._free:  # the client's own timeouts are for single steps
                return await work(await self._connected())
        except TimelineError:
            raise
        except TimeoutError:
            raise TimelineAwayError(f"{self!r} has not answered in {2 * self._timeout:g} s") from None
        except Exception as error:  # noqa: BLE001 - in a cluster that changes its shape the client fails with anything
            # servers before 7.0 put words of their own before the name of an error in a script
            if isinstance(error, errors.ResponseError) and "WRONGTYPE" in str(error):
                raise WrongTypeError(self._said(error)) from None
            if isinstance(error, (errors.ReadOnlyError, errors.RedisClusterException)) or "READONLY" in str(error):
                await self.close()  # the address may lead to another server by now
            raise TimelineAwayError(self._said(error)) from None

    def _said(self, error: BaseException) -> str:
        return f"{self!r}: {type(error).__name__}: {without_secrets(str(error), self._url)[:_LONGEST_SAID]}"

    # --- the client -----------------------------------------------------------------------------------------------

    async def _connected(self) -> Any:
        if self._client is not None:
            return self._client
        async with self._making:
            if self._client is None:
                self._client = await self._made()
        return self._client

    async def _made(self) -> Any:
        single = self._single()
        try:
            info = await single.info("cluster")
        except BaseException as error:
            await single.aclose()
            no_option, no_database = isinstance(error, TypeError), _NO_DATABASE.search(str(error)) is not None
            if isinstance(error, Exception) and (no_option or no_database):
                raise self._unusable(error) from None
            raise
        if not info.get("cluster_enabled"):
            return single
        await single.aclose()
        from redis.asyncio.cluster import RedisCluster  # noqa: PLC0415 - where there is a cluster

        try:
            cluster = RedisCluster.from_url(self._url, **self._options(tries=1))  # a node may have moved
        except _library().exceptions.RedisClusterException as error:  # a socket, or a database other than 0
            raise self._unusable(error) from None
        try:
            await cluster.initialize()
        except BaseException:
            await _closed(cluster)
            raise
        return cluster

    def _single(self) -> Any:
        try:
            return _library().asyncio.Redis.from_url(self._url, **self._options())
        except (TypeError, ValueError) as error:
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> TimelineError:
        return TimelineError(f"The address of the timeline cannot be used: {self._said(error)}")

    def _options(self, tries: int = 0) -> dict[str, Any]:
        from redis.asyncio.retry import Retry  # noqa: PLC0415 - an extra, and heavy
        from redis.backoff import NoBackoff  # noqa: PLC0415 - as above

        timeouts = {"socket_timeout": self._timeout, "socket_connect_timeout": self._timeout}
        return {**timeouts, "max_connections": self._connections, "retry": Retry(NoBackoff(), tries)}

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await _closed(client)

    # --- hints ----------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def hints(self, channel: str) -> AsyncIterator[Callable[[], Awaitable[bytes | None]]]:
        """Subscribe, by a connection of its own; what is yielded waits for the next message, however long.

        In a cluster every node passes on what was published at any other, so one that answers is good enough.
        """
        errors = (_library().exceptions.RedisError, OSError, RuntimeError)
        client, listening = await self._subscribed(channel)

        async def heard() -> bytes | None:
            try:
                message = await listening.get_message(ignore_subscribe_messages=True, timeout=None)
            except errors as error:
                raise TimelineAwayError(self._said(error)) from None
            data = None if message is None else message.get("data")
            return data if isinstance(data, bytes) else None

        try:
            yield heard
        finally:
            with contextlib.suppress(*errors):
                await listening.aclose()
                await client.aclose()

    async def _subscribed(self, channel: str) -> tuple[Any, Any]:
        """A client and what listens by it."""
        nodes = _nodes(await self.ask(_itself))
        urls = [at_node(self._url, node.host, int(node.port)) for node in random.sample(nodes, len(nodes))]
        last: BaseException = TimelineAwayError(f"{self!r} has no node to listen to")
        for url in urls[:_MOST_ASKED] or [self._url]:
            client = _library().asyncio.Redis.from_url(url, **{**self._options(), "socket_timeout": None})
            listening = client.pubsub()
            try:
                async with asyncio.timeout(2 * self._timeout):
                    await listening.subscribe(channel)
            except BaseException as error:
                await listening.aclose()
                await client.aclose()
                if not isinstance(error, (_library().exceptions.RedisError, OSError, RuntimeError)):
                    raise
                last = error
            else:
                return client, listening
        raise TimelineAwayError(self._said(last))

    # --- what the server must be like -----------------------------------------------------------------------------

    async def check_policy(self) -> str | None:
        """Raise TimelineError where the server may drop keys to make room. None: it does not report its policy."""
        try:
            policies = await self.ask(_policies)
        except TimelineAwayError as error:
            if "NoPermission" not in str(error) and "unknown command" not in str(error).lower():
                raise
            if not self._warned_unchecked:
                self._warned_unchecked = True
                logger.warning(
                    "%r does not allow reading its settings: make sure that its maxmemory-policy is %s, since "
                    "any other may drop what is due", self, _SAFE_POLICY,
                )  # fmt: skip
            return None
        for node, policy in policies.items():
            if policy != _SAFE_POLICY:
                raise TimelineError(
                    f"{self!r} has maxmemory-policy {policy}{f' at its node {node}' if node else ''}, by which it may "
                    f"drop the timeline's keys when its memory is full; set maxmemory-policy {_SAFE_POLICY} in its "
                    "configuration, or use another server"
                )
        return _SAFE_POLICY


async def _policies(client: Any) -> dict[str, str]:
    """The policy of each node, by its name; of a server that is alone, by no name.

    Every node that holds keys has to answer. A replica may be away; one that is there may hold keys tomorrow.
    """
    nodes = _nodes(client)
    if not nodes:
        return {"": _policy(await client.config_get("maxmemory-policy"))}
    policies = await asyncio.gather(*(_policy_of(client, node) for node in nodes))
    return {node.name: policy for node, policy in zip(nodes, policies, strict=True) if policy is not None}


async def _policy_of(client: Any, node: Any) -> str | None:
    try:
        return _policy(await client.config_get("maxmemory-policy", target_nodes=node))
    except (_library().exceptions.ConnectionError, _library().exceptions.TimeoutError):
        if node.server_type == "primary":
            raise
        return None


def _policy(settings: Any) -> str:
    value = settings.get("maxmemory-policy", settings.get(b"maxmemory-policy", ""))
    return value.decode() if isinstance(value, bytes) else str(value)


def _nodes(client: Any) -> list[Any]:
    """Return the nodes of a cluster; a single server has none."""
    return list(client.get_nodes()) if hasattr(client, "get_nodes") else []


async def _itself(client: Any) -> Any:
    return client


async def _closed(client: Any) -> None:
    """Close all connections; the client for clusters leaves some open where it has met with an error before."""
    if hasattr(client, "nodes_manager"):
        with contextlib.suppress(OSError):
            await client.nodes_manager.aclose()
            await client.nodes_manager.aclose("startup_nodes")
    await client.aclose()


def _library() -> Any:
    try:
        import redis  # noqa: PLC0415 - an extra, and heavy
        import redis.asyncio  # noqa: PLC0415 - as above
    except ImportError:
        raise TimelineError('The timeline needs a client for Redis: install "noonbell[redis]"') from None
    return redis
