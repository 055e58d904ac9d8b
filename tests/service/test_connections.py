"""Connections that ask nothing are closed, and never take the place of those that do."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn

from noonbell.server import connections
from noonbell.server.connections import MOST_PIPELINED, bounded, most_connections
from tests.patience import PATIENCE_SECONDS, until
from tests.service.conftest import served
from tests.service.test_serve import eventually, runs_of


class Target:
    """An application whose /slow answers when it is told to, and whose /huge sends more than a socket holds."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.release = asyncio.Event()

    async def __call__(self, scope: object, receive: object, send: object) -> None:
        assert isinstance(scope, dict)
        assert callable(send)
        if scope["path"] == "/slow":
            self.asked.set()
            await self.release.wait()
        size = 30_000_000 if scope["path"] == "/huge" else 2
        head = [(b"content-length", str(size).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"o" * size})


class Server:
    def __init__(self, port: int, target: Target, protocol: Any) -> None:
        self.port = port
        self.protocol = protocol
        self.target = target

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, path: str = "/") -> bytes:
        """The first line of the answer; empty where the connection was closed."""
        reader, writer = await self.connect()
        with contextlib.closing(writer):
            writer.write(request(path))
            return await first_line(reader)


def request(path: str = "/") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


async def first_line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.readline(), PATIENCE_SECONDS)
    except ConnectionError:
        return b""


async def closed(reader: asyncio.StreamReader) -> bool:
    return await first_line(reader) == b""


@contextlib.asynccontextmanager
async def serving(most: int, head_seconds: float) -> AsyncIterator[Server]:
    target, protocol = Target(), bounded(most, head_seconds)
    config = uvicorn.Config(
        target, host="127.0.0.1", port=0, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=1,
        http=protocol, access_log=False,
    )  # fmt: skip
    sock = config.bind_socket()
    sock.listen(100)  # whoever comes before the server is up waits
    server = uvicorn.Server(config)
    setattr(server, "capture_signals", contextlib.nullcontext)  # noqa: B010 - signals belong to pytest
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        yield Server(sock.getsockname()[1], target, protocol)
    finally:
        target.release.set()
        server.should_exit = True
        await task
        sock.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:", request() + b"GET / HT"])
async def test_a_connection_without_a_whole_head_is_closed(sent: bytes) -> None:
    async with serving(100, 0.1) as server:
        reader, writer = await server.connect()
        with contextlib.closing(writer):
            writer.write(sent)
            while line := await first_line(reader):
                assert line  # the answer to the request before
            assert reader.at_eof()


async def test_sending_slowly_gives_no_more_time() -> None:
    async with serving(100, 0.2) as server:
        reader, writer = await server.connect()

        async def trickle() -> None:
            writer.write(b"GET / HTTP/1.1\r\n")
            while True:
                writer.write(b"X: y\r\n")
                await asyncio.sleep(0.02)

        sending = asyncio.create_task(trickle())
        assert await closed(reader)
        sending.cancel()
        writer.close()


async def test_a_request_under_way_is_not_hurried() -> None:
    async with serving(100, PATIENCE_SECONDS) as server:
        asking = asyncio.create_task(server.ask("/slow"))
        await server.target.asked.wait()
        server.protocol.HEAD_SECONDS = 0.05
        # others come and are closed meanwhile, which is how time is told here
        for _ in range(2):
            reader, writer = await server.connect()
            assert await closed(reader)
            writer.close()
        server.target.release.set()
        assert b"200" in await asking


async def test_idle_connections_make_room_for_requests() -> None:
    async with serving(4, 1000) as server:
        idle = [await server.connect() for _ in range(12)]
        assert b"200" in await server.ask()
        assert [await closed(reader) for reader, _ in idle[:8]] == [True] * 8, "the longest idle go first"
        assert not idle[-1][0].at_eof()
        for _, writer in idle:
            writer.close()


async def test_where_all_are_busy_one_more_is_closed() -> None:
    async with serving(1, 1000) as server:
        asking = asyncio.create_task(server.ask("/slow"))
        await server.target.asked.wait()
        assert await server.ask() == b""
        server.target.release.set()
        assert b"200" in await asking


async def test_whoever_takes_nothing_of_his_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALLED_SECONDS", 0.05)
    async with serving(1, 1000) as server:
        reader, writer = await server.connect()
        reader_transport = writer.transport
        reader_transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport has it
        writer.write(request("/huge"))

        async def its_place_is_free() -> bool:
            return b"200" in await server.ask()

        await until(its_place_is_free)
        writer.transport.abort()
        del reader


def test_half_of_the_files_are_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, most in ((1024, 512), (10, 16), (1_000_000, 4096), (resource.RLIM_INFINITY, 4096)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert most_connections() == most


def test_idle_connections_leave_files_for_runs(tmp_path: Path) -> None:
    """A process that may open few files, and somebody who opens more connections than that, and asks nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as opened:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))  # a process that is started has the same limit
        try:
            service = opened.enter_context(served(tmp_path, "--demo"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        where = urlsplit(service.address)
        for _ in range(300):
            opened.enter_context(socket.create_connection((where.hostname, where.port), PATIENCE_SECONDS))
        with service.client() as client:
            assert client.post("/api/v1/schedules/demo-every-minute/trigger").status_code in (200, 202)
            # the run is a request to the service itself: one file on each side
            eventually(lambda: runs_of(client, "demo-every-minute", "succeeded"))
            assert runs_of(client, "demo-every-minute", "failed") == []
            assert len(list(Path(f"/proc/{service.process.pid}/fd").iterdir())) < 200
        assert service.stop() == 0
        assert "Too many open files" not in "".join(service.lines)


def with_headers(*headers: bytes, target: bytes = b"/") -> bytes:
    return b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n" + b"".join(one + b"\r\n" for one in headers) + b"\r\n"


CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
# The request, and the start of the answer.
HEADS: list[tuple[str, bytes, bytes]] = [
    ("ordinary", with_headers(b"Cookie: " + b"c" * 8_000), b"HTTP/1.1 200 "),
    ("many headers", with_headers(*([b"a:"] * 90)), b"HTTP/1.1 200 "),
    ("too many headers", with_headers(*([b"a:"] * 101)), TOO_LARGE),
    ("ten megabytes of headers", with_headers(b"a:\r\n" * 2_500_000), TOO_LARGE),
    ("a long header", with_headers(b"a: " + b"x" * 70_000), TOO_LARGE),
    ("a header without end", b"GET / HTTP/1.1\r\na: " + b"x" * 3_000_000, TOO_LARGE),
    ("a long target", with_headers(target=b"/" + b"x" * 20_000), b"HTTP/1.1 414 URI Too Long\r\n"),
    ("a target without end", b"GET /" + b"x" * 3_000_000, b"HTTP/1.1 414 URI Too Long\r\n"),
    ("small chunks", CHUNKED + b"1\r\nx\r\n" * 100_000 + b"0\r\n\r\n", b"HTTP/1.1 200 "),
    ("trailers without end", CHUNKED + b"0\r\na: " + b"x" * 3_000_000, b"HTTP/1.1 "),
]


@pytest.mark.parametrize(("sent", "answer"), [one[1:] for one in HEADS], ids=[one[0] for one in HEADS])
async def test_the_head_of_a_request_is_bounded(sent: bytes, answer: bytes) -> None:
    async with serving(100, PATIENCE_SECONDS) as server:
        reader, writer = await server.connect()
        with contextlib.closing(writer):
            writer.write(sent)
            line = await first_line(reader)
            # of an answer to one who still sends, a reset of the connection may be all that arrives
            assert line.startswith(answer) or (line == b"" and len(sent) > 1_000_000)
            if answer != b"HTTP/1.1 200 ":
                with contextlib.suppress(ConnectionError):
                    await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
        assert await server.ask() == b"HTTP/1.1 200 OK\r\n", "others are served"


async def test_a_few_requests_may_be_pipelined() -> None:
    async with serving(100, PATIENCE_SECONDS) as server:
        reader, writer = await server.connect()
        with contextlib.closing(writer):
            writer.write(request("/slow") + request() * MOST_PIPELINED)
            await asyncio.wait_for(server.target.asked.wait(), PATIENCE_SECONDS)
            server.target.release.set()
            for _ in range(1 + MOST_PIPELINED):
                assert await first_line(reader) == b"HTTP/1.1 200 OK\r\n"
                while await first_line(reader) != b"\r\n":
                    pass
                assert await asyncio.wait_for(reader.readexactly(2), PATIENCE_SECONDS) == b"oo"


async def test_more_pipelined_requests_than_that_end_the_connection() -> None:
    async with serving(100, PATIENCE_SECONDS) as server:
        reader, writer = await server.connect()
        with contextlib.closing(writer):
            writer.write(request("/slow") + request() * 1_000)
            assert await closed(reader)
        assert await server.ask() == b"HTTP/1.1 200 OK\r\n", "others are served"


async def test_unfinished_heads_are_bounded_over_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADS_BYTES", 50_000)
    async with serving(100, PATIENCE_SECONDS) as server, contextlib.AsyncExitStack() as stack:
        readers = []
        for _ in range(10):
            reader, writer = await server.connect()
            stack.callback(writer.close)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nCookie: " + b"c" * 12_000)
            readers.append(reader)
        ended = [asyncio.create_task(first_line(reader)) for reader in readers]
        await until(lambda: sum(task.done() for task in ended) >= 6)
        assert {task.result() for task in ended if task.done()} <= {TOO_LARGE, b""}
        assert server.protocol.heads.held <= 50_000
        assert await server.ask() == b"HTTP/1.1 200 OK\r\n", "a head of a usual size is served"
        for task in ended:
            task.cancel()
