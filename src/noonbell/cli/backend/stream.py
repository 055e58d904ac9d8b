"""Server-sent events of a service, read in a thread that dies with the process.

A broken connection is opened again with the id of the last event, so that no event is lost; a `reset` marks a gap.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import threading
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from noonbell.cli.backend.http import Answered, Client, connect
from noonbell.cli.cli_errors import CliError
from noonbell.errors import NoonbellError

_STREAM_SECONDS: Final = 40.0  # the service sends a sign of life every fifteen
_LONGEST_PAUSE: Final = 15.0
_END: Final = object()


async def events(client: Client, path: str) -> AsyncIterator[tuple[str, str, Any] | None]:
    """Yield events as (id, kind, data), without end; None for a keep-alive of the service."""
    last: str | None = None
    pause = 1.0
    while True:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        reader = _StreamReader(client, client.address(path), last, queue)
        reader.start()
        try:
            while (item := await queue.get()) is not _END:
                if isinstance(item, Exception):
                    raise item
                pause = 1.0
                if item is not None:
                    last = item[0]
                yield item
        finally:
            reader.close()
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
        yield None


class _StreamReader(threading.Thread):
    """Reads one stream in a daemon thread, and passes its events to the event loop."""

    def __init__(self, client: Client, target: str, last: str | None, queue: asyncio.Queue[Any]) -> None:
        super().__init__(name="noonbell-events", daemon=True)
        self._client = client
        self._target = target
        self._last = last
        self._queue = queue
        self._loop = asyncio.get_running_loop()
        self._connection = client.connection()
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def _put(self, item: Any) -> None:
        if not self._closed:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the reader
                self._loop.call_soon_threadsafe(self._queue.put_nowait, item)

    def run(self) -> None:
        client = self._client
        headers = {**client.usual_headers, "Accept": "text/event-stream"}
        if self._last is not None:
            headers["Last-Event-ID"] = self._last
        opened = False
        try:
            connect(self._connection, _STREAM_SECONDS)
            self._connection.request("GET", self._target, headers=headers)
            response = self._connection.getresponse()
            if response.status != 200:
                found = {key.lower(): value for key, value in response.getheaders()}
                client.read(Answered(response.status, found, response.read()))
            opened = True
            self._read_lines(response)
        except (CliError, NoonbellError) as error:
            self._put(error)
        except (OSError, http.client.HTTPException) as error:
            if not opened and self._last is None:
                self._put(client.away(error))
        finally:
            self._connection.close()
            self._put(_END)

    def _read_lines(self, response: http.client.HTTPResponse) -> None:
        event: dict[str, str] = {}
        while not self._closed and (raw := response.readline()):
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            if line.startswith(":"):
                self._put(None)
            elif line:
                field, _, value = line.partition(":")
                event[field] = value.removeprefix(" ")
            elif "data" in event:
                self._put((event.get("id", ""), event.get("event", ""), msgspec.json.decode(event["data"])))
                event = {}
