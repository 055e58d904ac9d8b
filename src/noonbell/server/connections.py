"""Limits of connections: idle ones are closed, and their number is bounded.

Each connection takes a file descriptor, and so does each request of a run: if connections could take them all, runs
would fail because clients hold sockets open. So the limit is well below that of the process. When it is reached, a new
connection replaces the one that has been idle for the longest time; if all connections have requests in progress, the
new one is closed.

A connection has a few seconds to send the head of a request, and one that does not read its answer is closed after a
timeout. The timeout of a body is in `api/middleware.py`.

The head of a request is bounded as it is read, before any key is checked: its target, the number of its headers, and
its bytes. A request beyond that is answered with 414 or 431, and its connection is closed. The same bound holds for
what surrounds a body: chunk sizes and trailers. h11, which serves where httptools is not installed, has its own bound.

What all connections hold is bounded as well. While unfinished heads add up to HEADS_BYTES, those of more than a usual
size are refused. A client may send a few requests before it has read the answers (MOST_PIPELINED); one that sends more
is disconnected, and nothing more is read from it until they are answered.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import Any, Final

from uvicorn.protocols.http.auto import AutoHTTPProtocol

logger = logging.getLogger("noonbell.service")

HEAD_SECONDS: Final = 10.0
STALLED_SECONDS: Final = 30.0
TARGET_BYTES: Final = 16 * 1024
HEADERS: Final = 100
HEAD_BYTES: Final = 64 * 1024
HEADS_BYTES: Final = 4 * 1024 * 1024
USUAL_HEAD_BYTES: Final = 8 * 1024
MOST_PIPELINED: Final = 8
# Chunks of one byte each have six bytes around it.
_OVERHEAD_FOR_A_BYTE: Final = 8
_TARGET_TOO_LONG: Final = "414 URI Too Long"
_HEAD_TOO_LARGE: Final = "431 Request Header Fields Too Large"
_MOST: Final = 4_096
_FEWEST: Final = 16


def most_connections() -> int:
    """Return half of the process's limit of open files; the other half is for runs and the store."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if files == resource.RLIM_INFINITY else max(_FEWEST, min(_MOST, files // 2))


def bounded(most: int, head_seconds: float = HEAD_SECONDS) -> type[asyncio.Protocol]:
    """Return the protocol class of a server with a limit of connections and a timeout for the head of a request."""

    class Bounded(_Bounded):
        MOST = most
        HEAD_SECONDS = head_seconds
        heads = _Heads()

    return Bounded


class _RequestTooLargeError(Exception):
    """The head of a request is over a limit."""


class _Heads:
    """The bytes of unfinished heads, over all connections of a server."""

    held = 0


class _Bounded(AutoHTTPProtocol):  # type: ignore[misc,valid-type]  # which of two it is, is known when it runs
    MOST: int
    HEAD_SECONDS: float
    heads: _Heads
    idle_since: float | None = None
    _timer: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _refusal: str | None = None  # the status line of a request that is too large
    _is_counted = False  # h11 has no such callbacks, and a bound of its own
    _head_bytes = 0
    _overhead = 0  # bytes of the message that are not its body, less what a body of this size may have around it
    _read = 0  # bytes of the read that is being parsed
    _first_read = 0  # bytes of the read in which the unfinished head began; 0 while no head is unfinished
    _held = 0  # what this connection adds to `heads`

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.MOST and not self._make_room():
            logger.warning("connection limit reached: connection closed limit=%d", self.MOST)
            transport.abort()
            return
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._moves()
        self._hold(0)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._overhead += len(data)
        self._read = len(data)
        super().data_received(data)
        self._hold(self._first_read + self._overhead if self._first_read else 0)
        too_large = self._overhead > HEAD_BYTES
        if self._held > USUAL_HEAD_BYTES and self.heads.held > HEADS_BYTES:
            too_large = True
        if self._is_counted and too_large and not self.transport.is_closing():
            self._refusal = _HEAD_TOO_LARGE
            self.send_400_response("")
        if self._busy():
            self._stop_waiting()
        elif self._timer is None:
            self._wait_for_head()  # the time runs from the first byte: sending slowly does not extend it

    # --- the parser's callbacks: an exception here ends the parsing, and the protocol answers with 400 -------------

    def on_message_begin(self) -> None:
        self._is_counted = True
        self._head_bytes = self._overhead = 0
        self._first_read = self._read
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > TARGET_BYTES:
            self._refuse(_TARGET_TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > HEAD_BYTES or len(self.headers) >= HEADERS:
            self._refuse(_HEAD_TOO_LARGE)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._first_read = 0
        super().on_headers_complete()
        if len(self.pipeline) > MOST_PIPELINED:
            logger.warning("connection closed: too many pipelined requests limit=%d", MOST_PIPELINED)
            self.transport.abort()
            raise _RequestTooLargeError("too many pipelined requests")

    def on_body(self, body: bytes) -> None:
        self._overhead -= (1 + _OVERHEAD_FOR_A_BYTE) * len(body)
        super().on_body(body)

    def _refuse(self, status: str) -> None:
        self._refusal = status
        raise _RequestTooLargeError(status)

    def send_400_response(self, msg: str) -> None:
        if self._refusal is None:
            super().send_400_response(msg)
            return
        head = f"HTTP/1.1 {self._refusal}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode())
        self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if getattr(self, "pipeline", None):  # h11 has none: it reads one request at a time
            self.flow.pause_reading()
        if not self._busy():
            self.idle_since = self.loop.time()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(STALLED_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._moves()
        super().resume_writing()

    def _moves(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _hold(self, size: int) -> None:
        self.heads.held += size - self._held
        self._held = size

    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_head(self) -> None:
        self.idle_since = self.loop.time()
        self._timer = self.loop.call_later(self.HEAD_SECONDS, self._late)

    def _stop_waiting(self) -> None:
        self.idle_since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if not self._busy():
            self.transport.abort()

    def _make_room(self) -> bool:
        """Close the connection that has been idle for the longest time. Return False if none is idle."""
        idle = [one for one in self.connections if one is not self and getattr(one, "idle_since", None) is not None]
        if not idle:
            return False
        longest = min(idle, key=lambda one: one.idle_since)
        # it is lost only in a moment, and must not be chosen again until then
        longest.idle_since = None
        self.connections.discard(longest)
        longest.transport.abort()
        return True
