"""One request and its answer on a connection of aiohttp's pool, without the rest of aiohttp's session.

A session does much for each request that is not wanted here: cookies, redirects, sending again, guessing at types, a
task to write a body that is in memory already. That is most of its time. The pool of connections, which looks names up
and makes sockets through the gate, and the parser are aiohttp's; what is written here is the request: its head, from
parts that were checked, and its body, in one piece.

A request is sent once. Where anything goes wrong the connection is cut, with whatever of the request the other side has
not taken: waiting for that could take as long as the other side likes. It goes back to the pool only
when the whole answer was read, and is used again only if nothing came on it since: an answer that came unasked is not
the next one's. Requests by way of a proxy go through a session.
"""

from __future__ import annotations

import asyncio
import re
import ssl as tls
from functools import lru_cache
from typing import Final, NamedTuple
from weakref import WeakSet

import aiohttp
import yarl
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from aiohttp.streams import StreamReader
from multidict import CIMultiDictProxy

from noonbell.actions.egress.exchange import length_of

_NOT_IN_A_HEAD: Final = re.compile(r"[\r\n\0]")


class WireLimits(NamedTuple):
    """The limits on an answer before its body."""

    line_bytes: int
    headers: int
    preludes: int  # answers of status 1xx


class Answer(NamedTuple):
    """An answer whose body is still to be read. Its owner ends it with `done` or `close`."""

    status: int
    raw_headers: tuple[tuple[bytes, bytes], ...]
    headers: CIMultiDictProxy[str]
    content: StreamReader
    connection: aiohttp.connector.Connection

    def done(self) -> None:
        """Keep the connection for the next request, if the whole answer was read; close it otherwise."""
        self.connection.release()

    def close(self) -> None:
        _cut(self.connection)


class Wire:
    """Sends requests over the connections of a session."""

    def __init__(self, session: aiohttp.ClientSession, limits: WireLimits) -> None:
        self._session = session
        self._limits = limits
        self._way = lru_cache(maxsize=1024)(self._new_way)
        self._used: WeakSet[ResponseHandler] = WeakSet()  # connections that have had an answer

    async def send(
        self,
        method: str,
        url: yarl.URL,
        headers: tuple[tuple[str, str], ...],
        body: bytes | None,
        *,
        ssl: tls.SSLContext | bool,
        limits: aiohttp.ClientTimeout,
    ) -> Answer:
        """Send a request; the answer's headers have come. Raises what a session raises."""
        way = self._way(url.origin(), ssl)
        connection = await self._quiet(way, limits)
        try:
            protocol, transport = connection.protocol, connection.transport
            if protocol is None or transport is None or transport.is_closing():
                raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
            self._used.add(protocol)
            protocol.set_response_params(
                skip_payload=method == "HEAD",
                read_until_eof=True,
                auto_decompress=False,
                max_line_size=self._limits.line_bytes,
                max_field_size=self._limits.line_bytes,
                max_headers=self._limits.headers,
            )
            head = _head(method, url, headers, body)
            transport.write(head + body if body else head)
            message, content = await self._answer(protocol, way)
        except BaseException:
            _cut(connection)
            raise
        return Answer(message.code, message.raw_headers, message.headers, content, connection)

    async def _quiet(self, way: aiohttp.ClientRequest, limits: aiohttp.ClientTimeout) -> aiohttp.connector.Connection:
        """A new connection, or one of the pool on which nothing has come since its last answer."""
        while True:
            connection = await self._connect(way, limits)
            protocol = connection.protocol
            if protocol is None or protocol not in self._used or not protocol.should_close:
                return connection
            _cut(connection)  # each time there is one less in the pool, so this comes to an end

    async def _connect(self, way: aiohttp.ClientRequest, limits: aiohttp.ClientTimeout) -> aiohttp.connector.Connection:
        connector = self._session.connector
        if connector is None or self._session.closed:
            raise RuntimeError("Session is closed")
        try:
            return await connector.connect(way, traces=[], timeout=limits)
        except TimeoutError as error:
            if isinstance(error, aiohttp.ClientError):
                raise
            raise aiohttp.ConnectionTimeoutError("Connection timeout") from None

    async def _answer(
        self, protocol: ResponseHandler, way: aiohttp.ClientRequest
    ) -> tuple[RawResponseMessage, StreamReader]:
        for _ in range(self._limits.preludes):
            try:
                message, content = await protocol.read()
            except HttpProcessingError as error:
                raise aiohttp.ClientResponseError(
                    way.request_info, (), status=error.code, message=error.message
                ) from error
            if not 100 <= message.code <= 199 or message.code == 101:
                return message, content
        # it could go on for ever, without a pause in which a deadline would be noticed
        raise aiohttp.ClientResponseError(way.request_info, (), message="Too many answers before the answer")

    def _new_way(self, origin: yarl.URL, ssl: tls.SSLContext | bool) -> aiohttp.ClientRequest:  # noqa: FBT001 - aiohttp's own kind of value
        """Return the facts of a request that the pool needs: where it goes, and with which TLS."""
        return aiohttp.ClientRequest("GET", origin, session=self._session, ssl=ssl, loop=asyncio.get_running_loop())


def _cut(connection: aiohttp.connector.Connection) -> None:
    """End a connection now. A plain close waits until all that was written has been taken, be it for ever."""
    protocol = connection.protocol
    if protocol is not None:
        protocol.abort()
    connection.close()


def _head(method: str, url: yarl.URL, headers: tuple[tuple[str, str], ...], body: bytes | None) -> bytes:
    lines = [f"{method} {url.raw_path_qs} HTTP/1.1", f"Host: {url.host_port_subcomponent}"]
    lines += [f"{name}: {value}" for name, value in headers]
    length = length_of(method, body)
    if length is not None:
        lines.append(f"Content-Length: {length}")
    if _NOT_IN_A_HEAD.search("".join(lines)) or " " in url.raw_path_qs:
        # the parts were checked before they came here; this is where a slip would do harm
        raise ValueError("a line break or space where it would make another request")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
