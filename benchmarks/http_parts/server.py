"""A server that costs little: it answers every request of a connection with the same few bytes.

    python -m benchmarks.http_parts.server

Prints its port. It reads as much HTTP as the two clients send: a head, and a body with Content-Length.
"""

from __future__ import annotations

import asyncio
from typing import cast

import uvloop

BODY = b'{"state":"done","items":[1,2,3],"text":"' + b"x" * 200 + b'"}'
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nServer: bench\r\nX-Request-Id: 0123456789abcdef\r\n"
    b"Content-Length: %d\r\n\r\n%b"
) % (len(BODY), BODY)


class Answering(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._came = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own, which is of another family

    def data_received(self, data: bytes) -> None:
        self._came += data
        while (end := self._came.find(b"\r\n\r\n")) >= 0:
            head = self._came[:end].lower()
            at = head.find(b"content-length: ")
            size = 0 if at < 0 else int(head[at + 16 :].split(b"\r\n", 1)[0])
            if len(self._came) < end + 4 + size:
                return
            self._came = self._came[end + 4 + size :]
            assert self._transport is not None
            self._transport.write(ANSWER)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
