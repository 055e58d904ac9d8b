"""The deadline holds in every part of an exchange: whatever the other side does, or leaves undone."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from noonbell.actions.egress import Egress, EgressPolicy, Outgoing, gate
from noonbell.actions.egress.resolver_threads import ResolverThreads
from noonbell.errors import EgressFailedError
from tests.actions.egress.hostile import Behaviour, Handler, dripped, for_ever, said, targets
from tests.actions.egress.servers import certificate_for
from tests.patience import PATIENCE_SECONDS


@asynccontextmanager
async def serving(behave: Behaviour, **options: Any) -> AsyncIterator[int]:
    """A server on the loopback interface whose connections are cut at the end."""
    busy: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        busy.add(task)
        try:
            await behave(reader, writer)
        except OSError:
            pass  # the client went away
        finally:
            writer.transport.abort()

    listener = await asyncio.start_server(handle, "127.0.0.1", 0, **options)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)
        await listener.wait_closed()


async def failure(port: int, *, scheme: str = "http", host: str = "127.0.0.1", path: str = "/", **options: Any) -> str:
    look_up = options.pop("look_up", gate.look_up)
    given = {"total_seconds": 0.3, **options}
    egress = Egress(EgressPolicy(allow=("127.0.0.1",)), look_up=look_up)
    async with asyncio.timeout(PATIENCE_SECONDS), egress.client() as client:
        with pytest.raises(EgressFailedError) as caught:
            await client.fetch(Outgoing("POST", f"{scheme}://{host}:{port}{path}", **given))
    return caught.value.kind


STALLING = [
    "silent", "half", "slow_preludes", "dripped_head", "dripped_body", "dripped_chunks", "dripped_trailers",
    "redirects_slowly",
]  # fmt: skip


@pytest.mark.parametrize("name", STALLING)
async def test_in_the_answer(name: str) -> None:
    async with serving(Handler(targets()), limit=1 << 20) as port:
        assert await failure(port, path=f"/{name}", redirects=5) == "timeout"


@pytest.mark.parametrize("piece", [b"0" * 65_536, b"\r\n" * 10_000])
async def test_in_an_answer_that_comes_to_no_point(piece: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" if piece.startswith(b"0") else b""
    async with serving(for_ever(head, piece)) as port:
        assert await failure(port) in {"timeout", "protocol", "too-large"}


async def test_in_the_request() -> None:
    async def never_reads(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transport: Any = writer.transport
        transport.pause_reading()
        await asyncio.sleep(3600)

    async with serving(never_reads) as port:
        assert await failure(port, body=b"x" * 20_000_000) == "timeout"


@pytest.mark.parametrize("behave", [said(b""), dripped(b"\x16\x03\x03\x00\x7a" + bytes(2_000))], ids=["silent", "slow"])
@pytest.mark.parametrize(
    "limits", [{"total_seconds": 0.3}, {"total_seconds": PATIENCE_SECONDS, "connect_seconds": 0.3}]
)
async def test_in_the_handshake(behave: Behaviour, limits: dict[str, Any]) -> None:
    async with serving(behave) as port:
        assert await failure(port, scheme="https", **limits) == "timeout"


async def test_in_an_answer_behind_tls(tmp_path: Path) -> None:
    tls = certificate_for("127.0.0.1", tmp_path).server
    async with serving(Handler(targets()), ssl=tls) as port:
        assert await failure(port, scheme="https", path="/dripped_body", verify=False, total_seconds=0.5) == "timeout"


async def test_in_the_look_up_of_a_name() -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    assert await failure(80, host="name.test", look_up=never) == "timeout"


# --- the threads that ask ---------------------------------------------------------------------------------------------


class Resolver:
    """The system's resolver: what begins with "slow" gets no answer until it is `over`."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.waiting = 0

    def __call__(self, host: str, port: int, **_: Any) -> list[Any]:
        if host.startswith("slow"):
            self.waiting += 1
            self.over.wait(PATIENCE_SECONDS)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))]


async def test_names_that_nobody_resolves_keep_nothing_else_from_going_on(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    monkeypatch.setattr(gate, "_resolvers", ResolverThreads(60))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            in_time: dict[str, Any] = {"total_seconds": PATIENCE_SECONDS, "connect_seconds": PATIENCE_SECONDS}
            slow = [asyncio.ensure_future(failure(80, host=f"slow{n}.test", **in_time)) for n in range(50)]
            while resolver.waiting < 50:  # noqa: ASYNC110 - threads tell nobody that they wait
                await asyncio.sleep(0.01)
            # the threads of the event loop are free, and so is the way to other names
            assert await asyncio.to_thread(lambda: "free") == "free"
            assert await gate.look_up("quick.test", 80) == ["127.0.0.1"]
            assert await failure(80, host="slow.test", total_seconds=PATIENCE_SECONDS, connect_seconds=0.2) == "timeout"
            for one in slow:
                one.cancel()
            await asyncio.gather(*slow, return_exceptions=True)
    finally:
        resolver.over.set()


async def test_who_stops_waiting_for_a_thread_does_not_ask() -> None:
    askers, release, asked = ResolverThreads(1), threading.Event(), list[str]()
    busy = asyncio.ensure_future(askers.ask(lambda: release.wait(PATIENCE_SECONDS)))
    later = asyncio.ensure_future(askers.ask(lambda: asked.append("later")))
    last = asyncio.ensure_future(askers.ask(lambda: asked.append("last")))
    await asyncio.sleep(0)
    later.cancel()
    with pytest.raises(asyncio.CancelledError):
        await later
    release.set()
    assert await busy is True
    await last
    assert asked == ["last"]


async def test_what_a_question_raises_is_told_to_whoever_asked() -> None:
    def fail() -> None:
        raise socket.gaierror(socket.EAI_NONAME, "no")

    askers = ResolverThreads(2)
    with pytest.raises(socket.gaierror):
        await askers.ask(fail)
    assert await askers.ask(lambda: 4) == 4
