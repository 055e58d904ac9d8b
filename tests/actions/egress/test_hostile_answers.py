"""Answers and requests that are meant to be misread, on real connections: what comes of them, and what comes after.

After each of them the same client asks again, and must get the answer to that question and no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from noonbell.actions.egress import Egress, EgressPolicy, Outgoing
from noonbell.actions.egress.client import AiohttpClient
from noonbell.errors import EgressError, EgressFailedError, EgressRefusedError
from tests.actions.egress.test_wire import OK, keeping, listening
from tests.patience import PATIENCE_SECONDS

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
EVIL = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"


async def nowhere(host: str, port: int) -> Sequence[str]:
    raise OSError("no name is known here")


def client_to(port: int) -> AiohttpClient:
    return Egress(EgressPolicy(allow=(f"127.0.0.1:{port}",)), look_up=nowhere).client()


async def outcome(client: AiohttpClient, port: int, method: str = "GET", **options: Any) -> str:
    """The body of an answer, or the kind of its failure."""
    try:
        answer = await client.fetch(Outgoing(method, f"http://127.0.0.1:{port}/", **options))
    except EgressFailedError as error:
        return error.kind
    return answer.body.decode("latin-1")


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(HEAD + b"Content-Length: -5\r\n\r\nhello", "protocol", id="negative length"),
        pytest.param(HEAD + b"Content-Length: +5\r\n\r\nhello", "protocol", id="length with a sign"),
        pytest.param(HEAD + b"Content-Length: 0x5\r\n\r\nhello", "protocol", id="length in hex"),
        pytest.param(HEAD + b"Content-Length: 1_0\r\n\r\nhellohello", "protocol", id="length as Python writes it"),
        pytest.param(HEAD + b"Content-Length: " + b"9" * 30 + b"\r\n\r\nhello", "protocol", id="length beyond measure"),
        pytest.param(HEAD + b"Content-Length: 5, 5\r\n\r\nhello", "protocol", id="list of lengths"),
        pytest.param(HEAD + b"Content-Length: 5\r\nContent-Length: 3\r\n\r\nhello", "protocol", id="two lengths"),
        pytest.param(
            HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "protocol",
            id="length and chunks",
        ),
        pytest.param(
            HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "protocol",
            id="chunks and length",
        ),
        pytest.param(CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n", "protocol", id="negative chunk"),
        pytest.param(CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n", "protocol", id="chunk with a prefix"),
        pytest.param(CHUNKED + b"f" * 17 + b"\r\nhello\r\n0\r\n\r\n", "protocol", id="chunk beyond measure"),
        pytest.param(CHUNKED + b"5\r\nhelloXX0\r\n\r\n", "protocol", id="chunk without its end"),
        pytest.param(CHUNKED + b"5\nhello\n0\n\n", "protocol", id="chunks with bare line feeds"),
        pytest.param(CHUNKED + b"5;a=\n\r\nhello\r\n0\r\n\r\n", "protocol", id="line feed in a chunk extension"),
        pytest.param(CHUNKED + b"5;a=b\r\nhello\r\n0\r\n\r\n", "hello", id="chunk extension"),
        pytest.param(CHUNKED + b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", "hello", id="trailer"),
        pytest.param(CHUNKED + b"5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\n", "protocol", id="length in a trailer"),
        pytest.param(
            CHUNKED + b"5\r\nhello\r\n0\r\n" + b"X: y\r\n" * 1_000 + b"\r\n", "too-large", id="too many trailers"
        ),
        pytest.param(
            CHUNKED + b"5\r\nhello\r\n0\r\nX: " + b"y" * 20_000 + b"\r\n\r\n", "too-large", id="too long a trailer"
        ),
        pytest.param(b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", "hello", id="bare line feeds"),
        pytest.param(b"HTTP/1.1 200 OK\rContent-Length: 5\r\rhello", "protocol", id="bare carriage returns"),
        pytest.param(HEAD + b"X: a\0b\r\nContent-Length: 5\r\n\r\nhello", "protocol", id="NUL in a header"),
        pytest.param(
            HEAD + b"X: a\rContent-Length: 9\r\nContent-Length: 5\r\n\r\nhello", "protocol", id="header in a header"
        ),
        pytest.param(HEAD + b": a\r\nContent-Length: 5\r\n\r\nhello", "protocol", id="header without a name"),
        pytest.param(HEAD + b"X: a\r\n b\r\nContent-Length: 5\r\n\r\nhello", "hello", id="folded header"),
        pytest.param(
            b"HTTP/1.1 200 " + b"a" * 20_000 + b"\r\nContent-Length: 5\r\n\r\nhello", "too-large", id="long reason"
        ),
        pytest.param(b"HTTP/1.1 000 No\r\nContent-Length: 5\r\n\r\nhello", "protocol", id="status zero"),
        pytest.param(b"HTTP/1.1 1000 No\r\nContent-Length: 5\r\n\r\nhello", "protocol", id="status of four digits"),
        pytest.param(b"HTTP/9.9 200 OK\r\nContent-Length: 5\r\n\r\nhello", "protocol", id="unknown version"),
        pytest.param(b"hello\r\n\r\n", "protocol", id="no head at all"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + OK, "good", id="prelude"),
        pytest.param(
            b"HTTP/1.1 100 Continue\r\nContent-Length: 4\r\n\r\nevil" + OK, "protocol", id="prelude with body"
        ),
        pytest.param(b"HTTP/1.1 103 Early\r\n\r\n" * 9 + OK, "too-large", id="too many preludes"),
        pytest.param(b"HTTP/1.1 204 No\r\nContent-Length: 4\r\n\r\nevil", "protocol", id="body where none can be"),
        pytest.param(OK + b"and more", "protocol", id="more than was said"),
        pytest.param(HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nevil", "protocol", id="not packed"),
    ],
)
async def test_an_odd_answer_ends_one_exchange_only(answer: bytes, expected: str) -> None:
    async with keeping(lambda count, _: answer if count == 1 else OK) as kept, client_to(kept.port) as client:
        assert await outcome(client, kept.port) == expected
        assert await outcome(client, kept.port) == "good"
    # what was odd was not used again
    assert len(kept.requests) == (1 if expected in {"hello", "good"} else 2)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal",
        CHUNKED + b"5\r\nhal",
        CHUNKED + b"3\r\nhal\r\n",
        CHUNKED + b"3\r\nhal\r\n0\r\nX-Sum",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 103 Early\r\n\r\n",
        b"",
    ],
)
async def test_an_answer_that_ends_early_is_no_answer(answer: bytes) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    async with listening(handle) as port, client_to(port) as client:
        assert await outcome(client, port) == "protocol"


async def test_an_answer_that_comes_while_nobody_asks_is_nobodys() -> None:
    unasked = asyncio.Event()
    told = asyncio.Event()
    count = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        while await reader.readuntil(b"\r\n\r\n"):
            count += 1
            writer.write(OK)
            await writer.drain()
            if count == 1:
                await unasked.wait()
                writer.write(EVIL)
                await writer.drain()
                told.set()

    async with listening(handle) as port, client_to(port) as client:
        assert await outcome(client, port) == "good"
        unasked.set()
        await told.wait()
        # the bytes are on their way between two sockets of this machine: wait until the client has them
        (protocol,) = idle_protocols(client)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not protocol.should_close:  # noqa: ASYNC110 - aiohttp tells nobody
                await asyncio.sleep(0.005)
        assert await outcome(client, port) == "good"
        assert await outcome(client, port) == "good"


def idle_protocols(client: AiohttpClient) -> list[Any]:
    connector: Any = client._session.connector
    return [protocol for kept in connector._conns.values() for protocol, _ in kept]


async def test_a_head_that_is_followed_by_a_body_is_not_the_next_answer() -> None:
    def script(count: int, _: bytes) -> bytes:
        return HEAD + b"Content-Length: %d\r\n\r\n" % len(EVIL) + EVIL if count == 1 else OK

    async with keeping(script) as kept, client_to(kept.port) as client:
        await outcome(client, kept.port, "HEAD")
        assert await outcome(client, kept.port) == "good"


async def test_what_the_other_side_does_not_take_is_given_up() -> None:
    """A target that never reads must not keep the request in memory, or its socket, after the deadline."""
    accepted: asyncio.Future[asyncio.StreamReader] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transport: Any = writer.transport
        transport.pause_reading()
        if not accepted.done():
            accepted.set_result(reader)
        await over.wait()

    body = b"x" * 30_000_000
    async with listening(handle) as port, client_to(port) as client:
        seconds = 0.3
        while not accepted.done():  # again, and with more time, where the deadline has come before the connection
            assert await outcome(client, port, "POST", body=body, total_seconds=seconds) == "timeout"
            seconds *= 2
        reader = await accepted
        transport: Any = reader._transport  # type: ignore[attr-defined]  # the stream's own, to see what came of it
        transport.resume_reading()
        came = 0
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while piece := await reader.read(1 << 20):
                    came += len(piece)
        over.set()
    assert came < len(body), "nothing was sent on after the deadline"


# --- requests ---------------------------------------------------------------------------------------------------------

NASTY = [
    "\r\n", "\n", "\r", "\0", " ", "\t", "%0d%0a", "%00", "é", "\u2028", "\ud800", "\x85", "\x0b", "\x7f", ":", ";",
    "a", "?", "#", "/", "\\", "@", "..", "%", "&", "=", "GET / HTTP/1.1", "Transfer-Encoding: chunked",
]  # fmt: skip


async def test_no_text_makes_two_requests_of_one() -> None:
    """Any mixture of what is nasty in a path, a query, a header, a method or a host: refused, or one whole request."""
    chance = random.Random(11)
    kinds: Counter[str] = Counter()
    async with keeping(lambda *_: OK) as kept, client_to(kept.port) as client:
        for number in range(600):
            text = "".join(chance.choices(NASTY, k=chance.randint(1, 5)))
            here = f"http://127.0.0.1:{kept.port}/"
            request = [
                Outgoing("GET", here + text),
                Outgoing("GET", f"{here}?q={text}"),
                Outgoing("POST", here, headers=(("X-Text", text),), body=b"b"),
                Outgoing("POST", here, headers=((text, "a"),), body=b"b"),
                Outgoing(text, here),
                Outgoing("GET", f"http://127.0.0.1{text}:{kept.port}/"),
            ][number % 6]
            try:
                answer = await client.fetch(request)
            except EgressError as error:
                kinds[error.kind] += 1
            else:
                kinds[f"answered {answer.status}"] += 1
    seen = [one for mine in kept.requests for one in mine]
    assert kinds.keys() == {"refused-by-egress", "dns", "answered 200"}
    assert len(seen) == kinds["answered 200"]
    assert min(len(seen), kinds["refused-by-egress"]) > 100
    for one in seen:
        head, _, body = one.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        assert first.count(b" ") == 2
        assert first.endswith(b" HTTP/1.1")
        names = [line.partition(b": ")[0].lower() for line in lines]
        assert len(names) == len(set(names))
        assert b"transfer-encoding" not in names
        assert sum(name == b"host" for name in names) == 1
        assert body == (b"b" if head.startswith(b"POST") else b"")
        assert not any(sign in head.replace(b"\r\n", b"") for sign in (b"\r", b"\n", b"\0"))


@pytest.mark.parametrize("value", ["\ud800", "a\udfffb", "a\x0bb", "a\x7f"])
async def test_half_a_character_in_a_header_is_refused_before_anything_is_opened(value: str) -> None:
    async with keeping(lambda *_: OK) as kept, client_to(kept.port) as client:
        with pytest.raises(EgressRefusedError):
            await client.fetch(Outgoing("GET", f"http://127.0.0.1:{kept.port}/", headers=(("X-A", value),)))
    assert kept.requests == []
