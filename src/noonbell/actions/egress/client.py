"""HTTP over aiohttp, with every connection through an `Egress`.

aiohttp asks a resolver for names and a factory for sockets; both are the gate's. It looks nothing up by itself, keeps
no cookies, reads no proxy or password from the environment, unpacks nothing, follows no redirect, and sends nothing
twice: whatever of that is wanted is done here, within bounds. One `AiohttpClient` is one pool of connections, shared by
all who use it. A connection that is kept open was judged when it was made. Its session does no more than hold the pool,
except by way of a proxy (see `wire`).
"""

from __future__ import annotations

import asyncio
import base64
import socket
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final, Self

import aiohttp
import yarl
from aiohttp import abc

from noonbell.actions.egress.decoding import BadPackingError, Body
from noonbell.actions.egress.exchange import Incoming, Outgoing, check_outgoing, headers_of
from noonbell.actions.egress.failures import failure_of
from noonbell.actions.egress.gate import ApprovedRoute, Egress, current_passage
from noonbell.actions.egress.hosts import Target, read_url
from noonbell.actions.egress.redirecting import Step, next_step, redirects_to
from noonbell.actions.egress.wire import Answer, Wire, WireLimits
from noonbell.errors import EgressError, EgressFailedError, EgressRefusedError

_LONGEST_HEADER: Final = 8_190
_MOST_HEADERS: Final = 128
_HEADERS_TOGETHER: Final = 65_536
_MOST_PRELUDES: Final = 8
# Shorter than the patience of common servers (2 s and more), so that a request seldom meets one that is being closed.
_KEEP_OPEN_SECONDS: Final = 1.5
_ASCII_URL: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#[]@!$&'()*+,;=%")

# How long the look-up of the request under way may take; the resolver gets nothing but the host.
_look_up_seconds: ContextVar[float | None] = ContextVar("noonbell_egress_look_up_seconds", default=None)


def _without_passage() -> ApprovedRoute | None:
    """Take away what this task was given leave for; returns what that was."""
    passage = current_passage.get()
    if passage is not None:
        current_passage.set(None)
    return passage


class _Resolver(abc.AbstractResolver):
    """The gate as aiohttp's resolver. It leaves the passage where the socket factory finds it."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[abc.ResolveResult]:
        seconds = _look_up_seconds.get()
        try:
            async with asyncio.timeout(seconds):
                passage = await self._egress.admit(host, port)
        except TimeoutError:
            raise EgressFailedError(
                "timeout", f"{host}:{port}", f"the name was not resolved in {seconds:g} s"
            ) from None
        current_passage.set(passage)
        return [
            {
                "hostname": host,
                "host": str(address),
                "port": port,
                "family": socket.AF_INET if address.version == 4 else socket.AF_INET6,
                "proto": socket.IPPROTO_TCP,
                "flags": socket.AI_NUMERICHOST,
            }
            for address in passage.addresses
            if family in (socket.AF_UNSPEC, socket.AF_INET if address.version == 4 else socket.AF_INET6)
        ]

    async def close(self) -> None:
        """Do nothing: no connection is held open."""


class _Response(aiohttp.ClientResponse):
    """Takes a few answers of status 1xx before the answer, then no more.

    aiohttp reads on for as long as they come, without a pause in which a deadline could be noticed.
    """

    async def start(self, connection: aiohttp.connector.Connection) -> Self:
        protocol: Any = connection.protocol
        read, taken = protocol.read, 0

        async def read_few() -> Any:
            nonlocal taken
            taken += 1
            if taken > _MOST_PRELUDES:
                raise aiohttp.ClientResponseError(self.request_info, (), message="Too many answers before the answer")
            return await read()

        protocol.read = read_few
        try:
            await super().start(connection)
        finally:
            del protocol.read
        return self


def make_session(egress: Egress, *, limit: int, limit_per_host: int, **options: Any) -> aiohttp.ClientSession:
    """A session whose connections all go through the gate; `options` are those of `aiohttp.ClientSession`.

    Prefer `fetch`: a session alone bounds no body, and it follows redirects (each judged as well) by default.
    """
    fixed = {"connector", "connector_owner", "trust_env", "cookie_jar", "proxy"} & options.keys()
    if fixed:
        raise TypeError(f"{', '.join(sorted(fixed))} of an egress session cannot be chosen")
    connector = aiohttp.TCPConnector(
        resolver=_Resolver(egress),
        socket_factory=egress.open_socket,
        use_dns_cache=False,
        limit=limit,
        limit_per_host=limit_per_host,
        keepalive_timeout=_KEEP_OPEN_SECONDS,
        ssl=egress.tls if egress.tls is not None else True,
    )
    bounds: dict[str, Any] = {
        "auto_decompress": False,
        "response_class": _Response,
        "max_line_size": _LONGEST_HEADER,
        "max_field_size": _LONGEST_HEADER,
        "max_headers": _MOST_HEADERS,
        "timeout": aiohttp.ClientTimeout(total=30, sock_connect=10),
    }
    if egress.policy.proxy is not None:
        bounds["proxy"] = _proxy_url(egress.policy.proxy_target())
    return aiohttp.ClientSession(
        connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar(), **{**bounds, **options}
    )


class AiohttpClient:
    """The `HttpClient` that Noonbell uses. Make it within a running loop; `close` it, or use it in `async with`."""

    def __init__(self, egress: Egress, *, limit: int = 100, limit_per_host: int = 0) -> None:
        self._egress = egress
        self._session = make_session(egress, limit=limit, limit_per_host=limit_per_host)
        limits = WireLimits(_LONGEST_HEADER, _MOST_HEADERS, _MOST_PRELUDES)
        self._wire = Wire(self._session, limits) if egress.policy.proxy is None else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

    async def fetch(self, request: Outgoing) -> Incoming:
        """Send a request and read its answer; see `HttpClient.fetch`."""
        check_outgoing(request)
        target = self._read(request.url)
        step = Step(request.method.upper(), target, _headers_of(request, target.userinfo), request.body)
        if not request.verify and not self._egress.policy.allow_unverified:
            raise EgressRefusedError(step.target.where, "TLS without certificate verification is not allowed here")
        began = asyncio.get_running_loop().time()
        # a passage belongs to one hop; nothing that an earlier request was given leave for may help this one
        passage = _without_passage()
        patience = _look_up_seconds.set(request.connect_seconds)
        try:
            async with asyncio.timeout(request.total_seconds):
                return await self._follow(step, request, began)
        except TimeoutError:
            raise EgressFailedError(
                "timeout", step.target.where, f"the exchange was not over within {request.total_seconds:g} s"
            ) from None
        finally:
            if current_passage.get() is not passage:
                current_passage.set(passage)
            _look_up_seconds.reset(patience)

    async def _follow(self, step: Step, request: Outgoing, began: float) -> Incoming:
        for followed in range(request.redirects + 1):
            _without_passage()
            answer = await self._exchange(step, request, followed, began)
            if isinstance(answer, Incoming):
                return answer
            step = next_step(step, *answer, read=self._read)
        raise EgressFailedError("redirect", step.target.where, f"there were more than {request.redirects} redirects")

    def _read(self, url: str) -> Target:
        """A URL as a target whose host is fit to be asked for; its addresses are judged when a connection is made."""
        target = read_url(url)
        policy = self._egress.policy
        if target.scheme == "http" and not policy.allow_http:
            raise EgressRefusedError(target.where, "plain http is not allowed here; use https")
        policy.check_host(target.host)
        if policy.proxy is not None and target.host.address is not None:
            # the socket leads to the proxy then; without one, this address is judged where its socket is made
            policy.check(target.host.address, target.port, target.host)
        return target

    async def _exchange(self, step: Step, request: Outgoing, followed: int, began: float) -> Incoming | tuple[int, str]:
        """Send one request; return the answer, or the status and place of a redirect that is to be followed."""
        target = step.target
        try:
            if self._wire is None:
                return await self._by_session(step, request, followed, began)
            answer = await self._wire.send(
                step.method,
                _yarl_url(target),
                step.headers,
                step.body,
                ssl=request.tls if request.tls is not None else request.verify,
                limits=_timeout(request.connect_seconds),
            )
            try:
                return await _taken(answer, step, request, followed, began)
            except BaseException:
                answer.close()
                raise
            finally:
                answer.done()  # after a close it does nothing more
        except EgressError:
            raise
        except BadPackingError as error:
            raise EgressFailedError("protocol", target.where, str(error)) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientError):
                raise  # the deadline of the whole exchange
            raise _failure(_Lost.cause_of(error), target.where, request) from None

    async def _by_session(
        self, step: Step, request: Outgoing, followed: int, began: float
    ) -> Incoming | tuple[int, str]:
        """Send the request through a proxy, by aiohttp's session, which has the protocol for it."""
        async with self._session.request(
            step.method,
            _yarl_url(step.target),
            headers=step.headers,
            data=step.body,
            skip_auto_headers=("Content-Type",),
            allow_redirects=False,
            ssl=request.tls if request.tls is not None else request.verify,
            timeout=_timeout(request.connect_seconds),
            middlewares=(_sent_once,),
        ) as response:
            found = await _taken(response, step, request, followed, began)
            if not isinstance(found, Incoming) or found.cut:
                response.close()
            return found


class _Lost(aiohttp.ClientPayloadError):
    """Carries an error past aiohttp, which would otherwise send a request again after a lost connection.

    A request that was cut off may have been carried out. Whether it is sent again is for the schedule to say.
    """

    @staticmethod
    def cause_of(error: BaseException) -> BaseException:
        return error.__cause__ or error if isinstance(error, _Lost) else error


async def _sent_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _Lost from error


@lru_cache(maxsize=256)
def _timeout(connect_seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds)


def _headers_of(request: Outgoing, userinfo: tuple[str, str] | None) -> tuple[tuple[str, str], ...]:
    headers = headers_of(request)
    if userinfo is None:
        return headers
    if any(name.lower() == "authorization" for name, _ in headers):
        raise EgressRefusedError("the request", "has both a user in its URL and a header Authorization; use one")
    return (*headers, ("Authorization", "Basic " + base64.b64encode(":".join(userinfo).encode()).decode()))


@lru_cache(maxsize=4096)
def _yarl_url(target: Target) -> yarl.URL:
    """The target for aiohttp. What is spelled in ASCII goes out as it was given; the rest is quoted."""
    try:
        url = yarl.URL(target.url, encoded=_ASCII_URL.issuperset(target.rest))
        same = url.raw_host == target.host.text and url.port == target.port and url.scheme == target.scheme
    except ValueError:
        same = False
    if not same:
        raise EgressRefusedError(target.where, "the URL is read differently by the HTTP client")
    return url


def _proxy_url(target: Target) -> yarl.URL:
    url = yarl.URL(target.url)
    if target.userinfo is not None:
        url = url.with_user(target.userinfo[0]).with_password(target.userinfo[1])
    return url


async def _taken(
    response: aiohttp.ClientResponse | Answer, step: Step, request: Outgoing, followed: int, began: float
) -> Incoming | tuple[int, str]:
    """Return the answer, whole or as far as it is wanted, or the status and place of a redirect."""
    headers = _bounded_headers(response, step.target)
    place = redirects_to(response.status, headers) if request.redirects else None
    if place is not None:
        return response.status, place
    body = await _read_body(response, request, step.target)
    seconds = asyncio.get_running_loop().time() - began
    return Incoming(response.status, headers, body.finish(), body.cut, body.packed, step.target.url, followed, seconds)


def _bounded_headers(response: aiohttp.ClientResponse | Answer, target: Target) -> tuple[tuple[str, str], ...]:
    if response.status == 101:
        raise EgressFailedError("protocol", target.where, "it switched to another protocol, which was not requested")
    if response.status < 100:
        raise EgressFailedError("protocol", target.where, "its answer is not HTTP: a status is 100 or more")
    if sum([len(name) + len(value) for name, value in response.raw_headers]) > _HEADERS_TOGETHER:
        raise EgressFailedError("too-large", target.where, f"its headers are larger than {_HEADERS_TOGETHER} bytes")
    return tuple(
        [
            (name.decode("utf-8", "backslashreplace"), value.decode("utf-8", "backslashreplace"))
            for name, value in response.raw_headers
        ]
    )


async def _read_body(response: aiohttp.ClientResponse | Answer, request: Outgoing, target: Target) -> Body:
    """Read until the end or the limit; what is beyond the limit stays unread, and the connection is closed."""
    body = Body(response.headers.get("Content-Encoding", ""), request.body_limit)
    async for piece in response.content.iter_any():
        if not body.add(piece):
            if request.refuse_large:
                raise EgressFailedError(
                    "too-large", target.where, f"its body is larger than {request.body_limit} bytes"
                )
            break
    return body


def _failure(error: BaseException, where: str, request: Outgoing) -> EgressFailedError:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return EgressFailedError("timeout", where, f"no connection within {request.connect_seconds:g} s")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return failure_of(error.certificate_error, where)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return EgressFailedError("connect", where, f"the proxy answered with status {error.status}")
    if isinstance(error, aiohttp.ClientConnectorError):
        failure = failure_of(error.os_error, where)
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            return EgressFailedError(failure.kind, where, f"by way of the proxy: {failure.reason}")
        return failure
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return EgressFailedError("protocol", where, "it closed the connection without an answer")
    if isinstance(error, aiohttp.ClientPayloadError):
        return EgressFailedError("protocol", where, "its body ended too early or was malformed")
    if isinstance(error, aiohttp.ClientResponseError):
        # the parser's errors have lost their type by now; these words are its own, the other side's come behind them
        if error.message.startswith(("Got more than", "Too many")):
            return EgressFailedError("too-large", where, "its headers, or what it sent before them, are too much")
        return EgressFailedError("protocol", where, "its answer is not HTTP")
    return failure_of(error, where)
