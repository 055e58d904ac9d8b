"""A transaction pooler in small: what PgBouncer does in its transaction mode, as far as a client can tell.

Clients share few connections to the server. A client gets one when it sends something, and loses it when the server
says that no transaction is open; the next time it may get another. Whatever a session keeps (prepared statements,
settings, locks) is then on the wrong connection. Idle connections are handed out in turn, so that this shows at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import defaultdict
from typing import Self

_NO_ENCRYPTION = {80877103, 80877104}  # requests for TLS and for GSSAPI: refused, the client goes on in plain
_CANCEL = 80877102


class _Server:
    """A connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.greeting: list[bytes] = []


class TransactionPooler:
    """Listens on a port of its own; `handovers` counts how often a client got another connection than before."""

    def __init__(self, server_port: int, size: int) -> None:
        self._server_port = server_port
        self._size = size
        self._idle: dict[bytes, asyncio.Queue[_Server]] = {}
        self._made: defaultdict[bytes, int] = defaultdict(int)
        self._writers: set[asyncio.StreamWriter] = set()
        self._clients: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self.handovers = 0

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    @property
    def port(self) -> int:
        assert self._listener is not None
        return int(self._listener.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        self._writers.add(writer)
        # a client that goes away in the middle, or the end of the pooler
        with contextlib.suppress(asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            startup = await _startup(reader, writer)
            if startup is not None:
                await self._session(startup, reader, writer)
        self._clients.discard(task)
        writer.close()

    async def _session(self, startup: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        last = await self._take(startup)
        writer.writelines(last.greeting)
        self._idle[startup].put_nowait(last)
        said: asyncio.Queue[bytes] = asyncio.Queue()
        listening = asyncio.ensure_future(_listen(reader, said))
        try:
            while (message := await said.get())[:1] != b"X":
                server = await self._take(startup)
                self.handovers += server is not last
                last = server
                try:
                    await _transaction(message, said, writer, server)
                except BaseException:
                    self._made[startup] -= 1
                    server.writer.close()  # in the middle of a transaction: it must not go on with another client
                    raise
                self._idle[startup].put_nowait(server)
        finally:
            listening.cancel()

    async def _take(self, startup: bytes) -> _Server:
        idle = self._idle.setdefault(startup, asyncio.Queue())
        if self._made[startup] < self._size:
            self._made[startup] += 1
            reader, writer = await asyncio.open_connection("127.0.0.1", self._server_port)
            self._writers.add(writer)
            server = _Server(reader, writer)
            writer.write(startup)
            while not server.greeting or server.greeting[-1][:1] != b"Z":
                server.greeting.append(await _message(reader))
            idle.put_nowait(server)
        return await idle.get()


async def _transaction(
    message: bytes, said: asyncio.Queue[bytes], to_client: asyncio.StreamWriter, server: _Server
) -> None:
    """Pass messages on, both ways, until the server says that no transaction is open and nothing more was asked."""
    asked = 0  # answers that end with ReadyForQuery

    def pass_on(message: bytes) -> None:
        nonlocal asked
        if message[:1] == b"X":
            raise ConnectionResetError("the client went away in the middle of a transaction")
        asked += message[:1] in (b"S", b"Q")
        server.writer.write(message)

    pass_on(message)
    more = asyncio.ensure_future(said.get())
    answers = asyncio.ensure_future(_message(server.reader))
    try:
        while True:
            await asyncio.wait({more, answers}, return_when=asyncio.FIRST_COMPLETED)
            if more.done():
                pass_on(more.result())
                more = asyncio.ensure_future(said.get())
            if answers.done():
                answer = answers.result()
                to_client.write(answer)
                asked -= answer[:1] == b"Z"
                if answer[:1] == b"Z" and answer[5:6] == b"I" and not asked and not more.done():
                    return
                answers = asyncio.ensure_future(_message(server.reader))
    finally:
        more.cancel()  # a queue loses nothing by that
        answers.cancel()


async def _listen(reader: asyncio.StreamReader, said: asyncio.Queue[bytes]) -> None:
    """Whole messages of a client, and a Terminate at the end, also where it went without one."""
    with contextlib.suppress(asyncio.IncompleteReadError, OSError):
        while True:
            said.put_nowait(await _message(reader))
    said.put_nowait(b"X")


async def _startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
    while True:
        head = await reader.readexactly(8)
        length, code = struct.unpack("!ii", head)
        if code in _NO_ENCRYPTION:
            writer.write(b"N")
        elif code == _CANCEL:
            return None
        else:
            return head + await reader.readexactly(length - 8)


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    (length,) = struct.unpack("!i", head[1:])
    return head + await reader.readexactly(length - 4)
