"""Where messages go: a function of the program, a Redis stream, an HTTP endpoint.

A target is anything with `deliver` and `close`; a function will do. A delivery has arrived when `deliver` returns, and
anything it raises means that it is tried again. A message may come more than once: the `id` of its CloudEvent is the
same each time, and is what a receiver tells repeats by.

Connections are opened with the first message and again after `close`. Secrets in addresses and headers stay out of
errors and of `repr`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable
from urllib.parse import urlsplit

import msgspec

from noonbell.actions.egress import Egress, HttpClient, Outgoing
from noonbell.errors import DeliveryError, NoonbellError, ScheduleInvalidError

if TYPE_CHECKING:
    import redis.asyncio

CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
_LONGEST_EXCERPT: Final = 200


@runtime_checkable
class Target(Protocol):
    """Somebody who takes messages."""

    async def deliver(self, body: str) -> None:
        """Pass on a CloudEvent, JSON; return when it has arrived."""
        ...

    async def close(self) -> None:
        """Close what is open; the next delivery opens it again."""
        ...


TargetLike: TypeAlias = Target | Callable[[dict[str, Any]], Any]


def as_target(name: str, given: object) -> Target:
    """The target that a program means by what it registers."""
    if isinstance(given, Target):
        return given
    if callable(given):
        return Function(given)
    right = "must be a function, or a target such as RedisStream or HttpEndpoint"
    raise ScheduleInvalidError(f"targets.{name}", given, right)


def masked(url: str) -> str:
    """An address without what may be secret in it: user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        place = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "(an address that cannot be read)"
    user = "***@" if "@" in parts.netloc else ""
    return f"{parts.scheme}://{user}{place}{parts.path}{'?***' if parts.query else ''}"


class Function:
    """A function that is given the CloudEvent as a dict: an `async def` on the event loop, any other in a thread.

    A thread cannot be stopped: a delivery that is given up goes on in it, and its end is not waited for.
    """

    def __init__(self, function: Callable[[dict[str, Any]], Any]) -> None:
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - whether the call of an object is async is the question
        )

    def __repr__(self) -> str:
        return f"Function({getattr(self._function, '__qualname__', repr(self._function))})"

    async def deliver(self, body: str) -> None:
        event = msgspec.json.decode(body)
        if self._is_async:
            await self._function(event)
            return
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        # a thread of its own that dies with the program: one that hangs must not keep the program from its end
        threading.Thread(target=self._call, args=(event, loop, done), name="noonbell-target", daemon=True).start()
        await done

    def _call(self, event: dict[str, Any], loop: asyncio.AbstractEventLoop, done: asyncio.Future[None]) -> None:
        error: BaseException | None = None
        try:
            returned = self._function(event)
            if inspect.iscoroutine(returned):
                returned.close()
                raise TypeError("it returned a coroutine, which nobody awaits in a thread; register an async def")
        except BaseException as raised:  # noqa: BLE001 - whatever it is, it belongs to the one who waits
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_hand_over, done, error)

    async def close(self) -> None:
        """Nothing is open."""


def _hand_over(done: asyncio.Future[None], error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        done.set_exception(error)
    else:  # a future takes no StopIteration, and an exit of the thread is no exit of the program
        done.set_exception(DeliveryError("its function", f"it ended with {type(error).__name__}: {error}"))


class RedisStream:
    """A stream of a Redis server: each message is an entry with the attributes of the CloudEvent as fields.

    `data` is JSON. With `maxlen` the stream is kept at about that many entries. Needs the extra noonbell[redis]. The
    address is the operator's own and does not go through egress.
    """

    def __init__(self, url: str, key: str, *, maxlen: int | None = None, timeout: float = 10.0) -> None:
        if maxlen is not None and (type(maxlen) is not int or maxlen < 1):
            raise ScheduleInvalidError("maxlen", maxlen, "must be a whole number above 0, or None")
        if timeout <= 0:
            raise ScheduleInvalidError("timeout", timeout, "must be a number of seconds above 0")
        self._url = url
        self._key = key
        self._maxlen = maxlen
        self._timeout = timeout
        self._client: redis.asyncio.Redis | None = None

    def __repr__(self) -> str:
        return f"RedisStream({masked(self._url)!r}, {self._key!r})"

    async def deliver(self, body: str) -> None:
        event: dict[str, msgspec.Raw] = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        fields: dict[Any, Any] = {
            name: bytes(value) if name == "data" else _field(value) for name, value in event.items()
        }
        client = self._connected()
        try:
            await client.xadd(self._key, fields, maxlen=self._maxlen, approximate=True)
        except Exception as error:  # noqa: BLE001 - what kinds there are is the client's affair, and an extra's
            # what the client says may hold the address, password included
            raise DeliveryError(repr(self), f"{type(error).__name__}: {self._clean(str(error))}") from None

    def _clean(self, said: str) -> str:
        password = urlsplit(self._url).password
        cleaned = said.replace(self._url, masked(self._url))
        return cleaned.replace(password, "***") if password else cleaned

    def _connected(self) -> redis.asyncio.Redis:
        if self._client is None:
            try:
                import redis.asyncio  # noqa: PLC0415 - an extra, and heavy
            except ImportError:
                raise DeliveryError(repr(self), "redis is not installed; pip install noonbell[redis]") from None
            try:
                self._client = redis.asyncio.Redis.from_url(
                    self._url, socket_timeout=self._timeout, socket_connect_timeout=self._timeout
                )
            except ValueError as error:
                raise DeliveryError(repr(self), f"its address cannot be used: {self._clean(str(error))}") from None
        return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def _field(value: msgspec.Raw) -> str | bytes:
    decoded = msgspec.json.decode(value)
    return decoded if isinstance(decoded, str) else bytes(value)


class HttpEndpoint:
    """An endpoint that takes CloudEvents by POST, in structured mode, and answers 2xx when it has one.

    Every connection goes through `egress`, which refuses what is not public unless its policy allows it. Redirects are
    not followed. Needs the extra noonbell[server].
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        egress: Egress | None = None,
    ) -> None:
        if timeout <= 0:
            raise ScheduleInvalidError("timeout", timeout, "must be a number of seconds above 0")
        self._url = url
        self._headers = tuple((headers or {}).items())
        self._timeout = timeout
        self._egress = Egress() if egress is None else egress
        self._client: HttpClient | None = None

    def __repr__(self) -> str:
        return f"HttpEndpoint({masked(self._url)!r})"

    async def deliver(self, body: str) -> None:
        request = Outgoing(
            "POST",
            self._url,
            headers=(("Content-Type", CONTENT_TYPE), *self._headers),
            body=body.encode(),
            total_seconds=self._timeout,
            connect_seconds=min(self._timeout, 10.0),
            body_limit=_LONGEST_EXCERPT,
        )
        if self._client is None:
            try:
                self._client = self._egress.client()
            except ImportError:
                raise DeliveryError(repr(self), "aiohttp is not installed; pip install noonbell[server]") from None
        try:
            answer = await self._client.fetch(request)
        except NoonbellError as error:
            raise DeliveryError(repr(self), str(error)) from error
        if not 200 <= answer.status < 300:
            said = answer.body.decode("utf-8", "backslashreplace")[:_LONGEST_EXCERPT].strip()
            raise DeliveryError(repr(self), f"it answered {answer.status}{': ' + said if said else ''}")

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
