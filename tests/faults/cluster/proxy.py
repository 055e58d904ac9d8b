"""Stands between workers and their database server, and makes the connection cut, slow, or half open.

Half open means that nothing passes and nobody is told: what was sent meanwhile arrives when it opens again, as over a
network that lost its way for a while, even where its sender has given up and gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

_CHUNK: Final = 1 << 16
_COMMIT: Final = b"COMMIT\0"

_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Listens on a port of its own and passes everything on to another."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._open = asyncio.Event()
        self._open.set()
        self.delay_seconds = 0.0  # of everything that passes, each way
        self.on_commit: Callable[[], None] | None = None  # called as a COMMIT is passed on

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._listener is not None
        self._listener.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        assert self._listener is not None
        return int(self._listener.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """End all connections that there are; new ones are welcome."""
        for writer in self._writers:
            writer.transport.abort()

    def close(self) -> None:
        """From now on nothing passes, and nobody is told."""
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        ends = {writer}
        self._writers.add(writer)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._open.wait()
                there, back = await asyncio.open_connection("127.0.0.1", self._server_port)
                ends.add(back)
                self._writers.add(back)
                await asyncio.gather(self._pass((reader, back), asks=True), self._pass((there, writer), asks=False))
        finally:
            for end in ends:
                end.transport.abort()
            self._writers -= ends
            self._tasks.discard(task)

    async def _pass(self, way: _Ends, *, asks: bool) -> None:
        reader, writer = way
        while data := await reader.read(_CHUNK):
            if self.delay_seconds:
                await asyncio.sleep(self.delay_seconds)
            await self._open.wait()
            writer.write(data)
            if asks and self.on_commit is not None and data.endswith(_COMMIT):
                self.on_commit()
        await self._open.wait()
        if writer.can_write_eof():
            writer.write_eof()
