"""The connection to the Redis server: short timeouts, scripts by their hashes, one kind of error.

Whatever goes wrong (not reached, no answer in time, refused) is a TimelineAwayError whose text holds no password; a key
that holds something else than it should is a `WrongTypeError`. Nothing is tried twice here: who asks has the database
to ask instead.

A server that is part of a Redis Cluster is found out by asking it, and spoken to by the client for clusters then.
The address is the operator's own and does not go through egress. Needs the extra noonbell[redis].
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from noonbell.errors import TimelineAwayError, TimelineError
from noonbell.timeline.address import shown, without_secrets
from noonbell.timeline.scripts import Script

logger = logging.getLogger("noonbell.timeline")

T = TypeVar("T")

_SAFE_POLICY: Final = "noeviction"
_LONGEST_SAID: Final = 300


class WrongTypeError(TimelineError):
    """A key of ours holds something that is no sorted set, or no hash."""


class Link:
    """A client that is made when it is needed first."""

    def __init__(self, url: str, *, timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._client: Any = None
        self._making = asyncio.Lock()
        self._told_unchecked = False

    def __repr__(self) -> str:
        return shown(self._url)

    # --- asking ---------------------------------------------------------------------------------------------------

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Run a script, by its hash where the server knows it."""

        async def ask(client: Any) -> Any:
            try:
                return await client.evalsha(script.sha, len(keys), *keys, *arguments)
            except _library().exceptions.NoScriptError:  # it was restarted, or told to forget its scripts
                return await client.eval(script.text, len(keys), *keys, *arguments)

        return await self.ask(ask)

    async def command(self, *words: Any) -> Any:
        """A single command; its key decides where it goes."""
        return await self.ask(lambda client: client.execute_command(*words))

    async def ask(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do something with the client, in the time that there is."""
        library = _library()
        try:
            async with asyncio.timeout(2 * self._timeout):  # the client's own timeouts are for single steps
                return await work(await self._connected())
        except library.exceptions.ResponseError as error:
            if str(error).startswith("WRONGTYPE"):
                raise WrongTypeError(self._said(error)) from None
            raise TimelineAwayError(self._said(error)) from None
        except TimeoutError:
            raise TimelineAwayError(f"{self!r} has not answered in {2 * self._timeout:g} s") from None
        except (library.exceptions.RedisError, OSError, RuntimeError) as error:
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
            told = await single.info("cluster")
        except TypeError as error:  # an option of the address that the client does not know
            await single.aclose()
            raise self._unusable(error) from None
        except BaseException:
            await single.aclose()
            raise
        if not told.get("cluster_enabled"):
            return single
        await single.aclose()
        from redis.asyncio.cluster import RedisCluster  # noqa: PLC0415 - where there is a cluster

        cluster = RedisCluster.from_url(self._url, **self._options(tries=1))  # a node may have moved
        try:
            await cluster.initialize()
        except BaseException:
            await cluster.aclose()
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
        return {**timeouts, "retry": Retry(NoBackoff(), tries)}

    @contextlib.asynccontextmanager
    async def hints(self, channel: str) -> AsyncIterator[Callable[[], Awaitable[bytes | None]]]:
        """Subscribe, by a connection of its own; what is yielded waits for the next message, however long."""
        errors = (_library().exceptions.RedisError, OSError, RuntimeError)
        client = _library().asyncio.Redis.from_url(self._url, **{**self._options(), "socket_timeout": None})
        listening = client.pubsub()

        async def heard() -> bytes | None:
            try:
                message = await listening.get_message(ignore_subscribe_messages=True, timeout=None)
            except errors as error:
                raise TimelineAwayError(self._said(error)) from None
            data = None if message is None else message.get("data")
            return data if isinstance(data, bytes) else None

        try:
            try:
                async with asyncio.timeout(2 * self._timeout):
                    await listening.subscribe(channel)
            except (*errors, TimeoutError) as error:
                raise TimelineAwayError(self._said(error)) from None
            yield heard
        finally:
            with contextlib.suppress(*errors):
                await listening.aclose()
                await client.aclose()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    # --- what the server must be like -----------------------------------------------------------------------------

    async def check_policy(self) -> str | None:
        """Raise TimelineError where the server may drop keys to make room. None: it does not tell its policy."""
        try:
            told = await self.ask(lambda client: client.config_get("maxmemory-policy"))
        except TimelineAwayError as error:
            if "NoPermission" not in str(error) and "unknown command" not in str(error).lower():
                raise
            if not self._told_unchecked:
                self._told_unchecked = True
                logger.warning(
                    "%r does not let us read its settings: see to it that its maxmemory-policy is %s, since any other "
                    "may drop what is due", self, _SAFE_POLICY,
                )  # fmt: skip
            return None
        policy = _text(told.get("maxmemory-policy", told.get(b"maxmemory-policy", "")))
        if policy != _SAFE_POLICY:
            raise TimelineError(
                f"{self!r} has maxmemory-policy {policy}, by which it may drop the timeline's keys when its memory is "
                f"full; set maxmemory-policy {_SAFE_POLICY} in its configuration, or use another server"
            )
        return policy


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _library() -> Any:
    try:
        import redis  # noqa: PLC0415 - an extra, and heavy
        import redis.asyncio  # noqa: PLC0415 - as above
    except ImportError:
        raise TimelineError('The timeline needs a client for Redis: install "noonbell[redis]"') from None
    return redis
