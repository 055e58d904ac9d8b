"""Connections that are used again, and those that must not be."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
import yarl

from noonbell.actions.egress import Egress, EgressPolicy, Incoming, Outgoing
from noonbell.actions.egress.wire import Wire, WireLimits
from noonbell.errors import EgressFailedError

Script = Callable[[int, bytes], bytes]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"


class Kept:
    """A server that keeps its connections open: how many there were, and the requests on each."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[list[bytes]] = []


Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def listening(handle: Handle) -> AsyncIterator[int]:
    """The port of a server; at its end every connection has been handled to its own end."""
    busy: set[asyncio.Task[None]] = set()

    async def watched(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        busy.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await handle(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    listener = await asyncio.start_server(watched, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await asyncio.gather(*busy)
        await listener.wait_closed()


@contextlib.asynccontextmanager
async def keeping(script: Script) -> AsyncIterator[Kept]:
    """`script` is given the number of the request and its bytes, and returns what is sent; nothing closes it."""
    kept = Kept()
    count = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        mine: list[bytes] = []
        kept.requests.append(mine)
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            size = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            mine.append(head + await reader.readexactly(int(size or 0)))
            count += 1
            writer.write(script(count, mine[-1]))
            await writer.drain()

    async with listening(handle) as kept.port:
        yield kept


async def many(script: Script, *options: dict[str, Any]) -> tuple[list[Incoming | EgressFailedError], Kept]:
    """One request after the other with one client: what came of each, and what the server saw."""
    found: list[Incoming | EgressFailedError] = []
    async with keeping(script) as kept, Egress(EgressPolicy(allow=(f"127.0.0.1:{kept.port}",))).client() as client:
        for given in options:
            request = {"method": "GET", "url": f"http://127.0.0.1:{kept.port}/", **given}
            try:
                found.append(await client.fetch(Outgoing(**request)))
            except EgressFailedError as error:
                found.append(error)
    return found, kept


def bodies(found: list[Incoming | EgressFailedError]) -> list[bytes | str]:
    return [one.body if isinstance(one, Incoming) else one.kind for one in found]


async def test_a_connection_is_used_again_when_its_answer_was_read() -> None:
    requests: list[dict[str, Any]] = [{}, {"method": "POST", "body": b"x" * 300_000}, {"method": "DELETE"}]
    found, kept = await many(lambda *_: OK, *requests)
    assert bodies(found) == [b"good"] * 3
    (mine,) = kept.requests
    assert [one.partition(b" ")[0] for one in mine] == [b"GET", b"POST", b"DELETE"]
    assert b"content-length" not in mine[0].lower()
    assert mine[1].endswith(b"\r\n\r\n" + b"x" * 300_000)
    assert b"\r\nContent-Length: 0\r\n" in mine[2]


async def test_what_a_cut_answer_leaves_behind_is_not_the_next_one() -> None:
    def script(count: int, _: bytes) -> bytes:
        return OK if count > 1 else b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + b"x" * 600

    found, kept = await many(script, {"body_limit": 10}, {})
    assert bodies(found) == [b"x" * 10, b"good"]
    assert len(kept.requests) == 2


async def test_an_answer_that_nobody_asked_for_is_not_the_next_one() -> None:
    def script(count: int, _: bytes) -> bytes:
        return OK if count > 1 else OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"

    found, _ = await many(script, {}, {})
    assert b"evil" not in bodies(found)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\ngood",
        b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\ngood",
    ],
)
async def test_a_connection_that_is_to_be_closed_is_not_used_again(answer: bytes) -> None:
    found, kept = await many(lambda *_: answer, {}, {})
    assert bodies(found) == [b"good", b"good"]
    assert len(kept.requests) == 2


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_a_body_leave_the_connection_clean(status: int) -> None:
    def script(_: int, request: bytes) -> bytes:
        if request.startswith(b"HEAD"):
            return b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n"
        return b"HTTP/1.1 %d Nothing\r\n\r\n" % status

    found, kept = await many(script, {"method": "HEAD"}, {}, {"method": "HEAD"})
    assert bodies(found) == [b""] * 3
    assert len(kept.requests) == 1


async def test_an_answer_that_comes_before_the_body_is_sent_is_taken() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        await writer.drain()
        while await reader.read(65_536):
            pass

    async with listening(handle) as port, Egress(EgressPolicy(allow=(f"127.0.0.1:{port}",))).client() as client:
        found = await client.fetch(Outgoing("POST", f"http://127.0.0.1:{port}/", body=b"x" * 1_000_000))
    assert (found.status, found.body) == (413, b"no")


@pytest.mark.parametrize("header", [("X-A", "a\r\nX-B: b"), ("X-A\r\nX-B: b", "a"), ("X-A", "a\0")])
async def test_a_head_cannot_become_two(header: tuple[str, str]) -> None:
    async with keeping(lambda *_: OK) as kept, aiohttp.ClientSession() as session:
        wire = Wire(session, WireLimits(8190, 128, 8))
        send: Callable[..., Awaitable[Any]] = wire.send
        url = yarl.URL(f"http://127.0.0.1:{kept.port}/")
        with pytest.raises(ValueError, match="another request"):
            await send("GET", url, (header,), None, ssl=True, limits=aiohttp.ClientTimeout())
        assert kept.requests in ([], [[]])
