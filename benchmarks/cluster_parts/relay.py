"""A TCP relay on the loopback interface that counts what passes through it, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

CHUNK: Final = 1 << 16


class Relay:
    """Passes connections on to a port of this host, until it is closed."""

    def __init__(self, port: int) -> None:
        self.to_server = self.from_server = 0
        self._towards = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop
        ).result()
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def passed(self) -> int:
        """Bytes in both directions."""
        return self.to_server + self.from_server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, server = await asyncio.open_connection("127.0.0.1", self._towards)
        try:
            await asyncio.gather(self._pass(reader, server, up=True), self._pass(answers, writer, up=False))
        except OSError:
            pass  # one end is gone, and so is the connection
        finally:
            server.close()
            writer.close()

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, up: bool) -> None:
        while data := await source.read(CHUNK):
            if up:
                self.to_server += len(data)
            else:
                self.from_server += len(data)
            sink.write(data)
            await sink.drain()
        sink.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
