"""Targets that mean harm: what each does once it was asked, and a program that serves them all.

    python -m tests.actions.egress.hostile FOLDER

prints the ports as one line of JSON and serves until its standard input ends. It is a process of its own, so that what
it takes is not counted as the client's. The first part of a path names the target.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import socket
import struct
import sys
import zlib
from collections.abc import Awaitable, Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.actions.egress.servers import certificate_for

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
BITE = 65_536
DRIP_SECONDS = 0.02
MIB = 1 << 20
HOUR = 3_600  # a task that waits for nothing at all would be collected as garbage


def _with_length(body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return OK + lines + b"Content-Length: %d\r\n\r\n" % len(body) + body


def said(data: bytes | Callable[[], bytes]) -> Behaviour:
    """Says this, and nothing more. What takes long to make is made when it is asked for."""

    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data if isinstance(data, bytes) else data())
        await writer.drain()
        await asyncio.sleep(HOUR)

    return behave


def for_ever(head: bytes, piece: bytes, *, pause: float = 0.0) -> Behaviour:
    """Says `head`, then `piece` again and again."""

    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)

    return behave


def dripped(data: bytes) -> Behaviour:
    """Says this byte by byte, then goes on with nothing."""

    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in data:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(DRIP_SECONDS)
        await asyncio.sleep(HOUR)

    return behave


async def _closes(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _resets(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    made = writer.get_extra_info("socket")
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.write(OK + b"Content-Length: 100\r\n\r\nhalf")
    await writer.drain()
    writer.transport.abort()


async def _redirects_slowly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(0.3)
    writer.write(b"HTTP/1.1 302 Found\r\nLocation: /redirects_slowly\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()


async def _redirects(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 302 Found\r\nLocation: /redirects\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()


def _nothing_packed() -> bytes:
    """A gzip stream that goes on and on without a byte in it."""
    packer = zlib.compressobj(wbits=31)
    return packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)


@lru_cache
def _bomb() -> bytes:
    return gzip.compress(bytes(100 * MIB), 1)


def _noise(size: int) -> bytes:
    return random.Random(7).randbytes(size)


def targets() -> dict[str, Behaviour]:
    """Every target that is reached over a plain connection and reads what it is asked."""
    packed = b"Content-Encoding: gzip"
    return {
        "silent": said(b""),
        "half": said(OK + b"Content-Length: 100\r\n\r\nhalf"),
        "closes": _closes,
        "resets": _resets,
        "noise": said(lambda: _noise(BITE)),
        "endless": for_ever(OK + b"\r\n", b"x" * BITE),
        "endless_length": for_ever(OK + b"Content-Length: 9000000000000000000\r\n\r\n", b"x" * BITE),
        "endless_chunks": for_ever(CHUNKED, b"1\r\nx\r\n" * 5_000),
        "endless_chunk": for_ever(CHUNKED + b"7fffffffffffffff\r\n", b"x" * BITE),
        "chunk_extension": for_ever(CHUNKED + b"5;", b"a" * BITE),
        "chunk_size": for_ever(CHUNKED, b"0" * BITE),
        "trailers": for_ever(CHUNKED + b"1\r\nx\r\n0\r\n", b"X-More: and more\r\n" * 1_000),
        "headers": for_ever(OK, b"X-More: and more\r\n" * 1_000),
        "long_header": for_ever(OK + b"X-Long: ", b"a" * BITE),
        "long_name": for_ever(OK, b"a" * BITE),
        "long_reason": for_ever(b"HTTP/1.1 200 ", b"a" * BITE),
        "folded": for_ever(OK + b"X-Long: a\r\n", b" and more\r\n" * 1_000),
        "preludes": for_ever(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1_000),
        "slow_preludes": for_ever(b"", b"HTTP/1.1 102 Processing\r\n\r\n", pause=0.2),
        "blank_lines": for_ever(b"", b"\r\n" * 10_000),
        "dripped_head": dripped(OK + b"X-Long: " + b"a" * 5_000),
        "dripped_body": dripped(OK + b"Content-Length: 5000\r\n\r\n" + b"a" * 5_000),
        "dripped_chunks": dripped(CHUNKED + b"1\r\nx\r\n" * 1_000),
        "dripped_trailers": dripped(CHUNKED + b"0\r\n" + b"X: y\r\n" * 100),
        "bomb": said(lambda: _with_length(_bomb(), packed)),
        "bomb_twice": said(lambda: _with_length(gzip.compress(_bomb()), b"Content-Encoding: gzip, gzip")),
        "packed_nothing": for_ever(OK + packed + b"\r\n\r\n" + _nothing_packed(), b"\x00\x00\x00\xff\xff" * 5_000),
        "packed_members": said(lambda: _with_length(gzip.compress(b"") * 100_000, packed)),
        "packed_name": for_ever(OK + packed + b"\r\n\r\n\x1f\x8b\x08\x08" + bytes(6), b"a" * BITE),
        "binary": said(lambda: _with_length(_noise(2 * MIB))),
        "controls": said(lambda: _with_length(b"\x01" * 2 * MIB)),
        "wide": said(lambda: _with_length("𝄞".encode() + b"x" * 2 * MIB)),
        "lists": said(lambda: _with_length(b"[" + b"[]," * (MIB // 3 - 2) + b"[]]")),
        "deep": said(lambda: _with_length(b"[" * MIB)),
        "redirects": _redirects,
        "redirects_slowly": _redirects_slowly,
    }


class Handler:
    """Reads requests and does what the path of each names."""

    def __init__(self, behaviours: dict[str, Behaviour]) -> None:
        self._behaviours = behaviours

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                name = head.split(b" ", 2)[1].decode("latin-1").strip("/").partition("?")[0]
                await self._behaviours[name](reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has had enough
        finally:
            writer.transport.abort()


async def _never_reads(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    transport: Any = writer.transport
    transport.pause_reading()
    try:
        await asyncio.sleep(HOUR)
    finally:
        transport.abort()


async def serve(folder: Path) -> None:
    tls = certificate_for("127.0.0.1", folder).server
    listeners = {
        "plain": await asyncio.start_server(Handler(targets()), "127.0.0.1", 0),
        "tls": await asyncio.start_server(Handler(targets()), "127.0.0.1", 0, ssl=tls),
        "unread": await asyncio.start_server(_never_reads, "127.0.0.1", 0, limit=1),
        "no_tls": await asyncio.start_server(for_ever(b"", b"\x16\x03\x01" * 1_000, pause=0.05), "127.0.0.1", 0),
    }
    ports = {name: listener.sockets[0].getsockname()[1] for name, listener in listeners.items()}
    print(json.dumps(ports), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for listener in listeners.values():
        listener.close()


def main() -> None:
    loop = asyncio.new_event_loop()
    # targets are cut off all the time; what asyncio has to say about that is of no interest
    loop.set_exception_handler(lambda *_: None)
    try:
        loop.run_until_complete(serve(Path(sys.argv[1])))
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


if __name__ == "__main__":
    main()
