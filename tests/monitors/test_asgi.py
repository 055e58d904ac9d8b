"""The ping endpoint behind a real server, and by hand where a server would not let a strange client through."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from noonbell.errors import StoreUnavailableError
from noonbell.monitors import Monitor, Monitors, PingApp
from noonbell.monitors.monitors import LONGEST_BODY
from noonbell.monitors.ping_app import LONGEST_READ
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock


@asynccontextmanager
async def served(app: Callable[..., Awaitable[None]]) -> AsyncIterator[str]:
    """The application on a free port of this machine."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    task = asyncio.get_running_loop().create_task(server.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listening.close()


@pytest.fixture
async def monitors(clock: ManualClock) -> Monitors:
    store = MemoryStore()
    await store.open()
    return Monitors(store, clock)


@pytest.fixture
async def backup(monitors: Monitors) -> Monitor:
    return await monitors.create(name="backup", type="interval", spec="3600", monitor_id="backup")


async def test_every_form_of_a_ping(monitors: Monitors, backup: Monitor) -> None:
    async with served(PingApp(monitors)) as url, aiohttp.ClientSession() as client:
        for method, tail in [
            ("GET", "/start?run=a"),
            ("POST", "?run=a"),
            ("HEAD", "/fail"),
            ("POST", "/log"),
            ("GET", "/0"),
            ("POST", "/17/"),
        ]:
            async with client.request(method, url + backup.ping_path + tail, data=b"hello") as answer:
                assert answer.status == 200
                assert await answer.text() == ("" if method == "HEAD" else "OK\n")
                assert answer.headers["cache-control"] == "no-store"
    found = [(ping.kind, ping.exit_code, ping.run) for ping in reversed(await monitors.pings("backup"))]
    assert found == [
        ("start", None, "a"),
        ("success", None, "a"),
        ("fail", None, ""),
        ("log", None, ""),
        ("success", 0, ""),
        ("fail", 17, ""),
    ]
    assert {ping.body for ping in await monitors.pings("backup")} == {"hello"}


async def test_it_can_be_mounted_below_a_path(monitors: Monitors, backup: Monitor) -> None:
    app = Starlette(routes=[Mount("/hooks", app=PingApp(monitors))])
    async with (
        served(app) as url,
        aiohttp.ClientSession() as client,
        client.get(f"{url}/hooks{backup.ping_path}") as answer,
    ):
        assert answer.status == 200
    assert (await monitors.get("backup")).status == "up"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/ping/nobody", 404),
        ("GET", "/ping/", 404),
        ("GET", "/", 404),
        ("GET", "/ping/{token}/stop", 404),
        ("GET", "/ping/{token}/start/start", 404),
        ("GET", "/ping/{token}/256", 400),
        ("GET", "/ping/{token}/٣", 404),
        ("GET", "/ping/{token}?run=" + "x" * 65, 400),
        ("DELETE", "/ping/{token}", 405),
        ("PUT", "/ping/{token}", 405),
    ],
)
async def test_what_is_no_ping_is_told_and_not_counted(
    monitors: Monitors, backup: Monitor, method: str, path: str, status: int
) -> None:
    async with (
        served(PingApp(monitors)) as url,
        aiohttp.ClientSession() as client,
        client.request(method, url + path.format(token=backup.token)) as answer,
    ):
        assert answer.status == status
        said = await answer.text()
        assert len(said) > 10
        assert backup.token not in said
        assert answer.headers.get("allow") == ("GET, HEAD, POST" if status == 405 else None)
    assert (await monitors.get("backup")).pings == 0


async def test_a_talkative_job_is_cut_short_and_counted(monitors: Monitors, backup: Monitor) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 50_000

    async with (
        served(PingApp(monitors)) as url,
        aiohttp.ClientSession() as client,
        client.post(url + backup.ping_path, data=endless()) as answer,
    ):
        assert answer.status == 200
    (ping,) = await monitors.pings("backup")
    assert (len(ping.body), ping.cut) == (LONGEST_BODY, True)


async def test_a_store_that_is_away_means_that_the_ping_comes_again(
    clock: ManualClock, backup: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    await store.open()

    async def away(*_: object) -> None:
        raise StoreUnavailableError("The disk is full", path="monitors.db")

    monkeypatch.setattr(store.documents, "find", away)
    async with (
        served(PingApp(Monitors(store, clock))) as url,
        aiohttp.ClientSession() as client,
        client.get(url + backup.ping_path) as answer,
    ):
        assert answer.status == 503
        assert answer.headers["retry-after"] == "5"
        assert "disk" not in await answer.text()


# --- by hand ----------------------------------------------------------------------------------------------------------

Message = MutableMapping[str, Any]


async def called(app: PingApp, path: str, receive: Callable[[], Awaitable[Message]]) -> list[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await app({"type": "http", "method": "POST", "path": path, "query_string": b""}, receive, send)
    return sent


async def test_a_body_without_end_is_not_read_to_its_end(monitors: Monitors, backup: Monitor) -> None:
    read = 0

    async def receive() -> Message:
        nonlocal read
        read += 1_000_000
        return {"type": "http.request", "body": b"x" * 1_000_000, "more_body": True}

    sent = await called(PingApp(monitors), backup.ping_path, receive)
    assert sent[0]["status"] == 200
    assert (b"connection", b"close") in sent[0]["headers"]
    assert read <= LONGEST_READ + 2_000_000
    assert (await monitors.get("backup")).pings == 1


async def test_a_body_that_does_not_come_is_not_waited_for(monitors: Monitors, backup: Monitor) -> None:
    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("never")

    sent = await called(PingApp(monitors, read_seconds=0.01), backup.ping_path, receive)
    assert sent[0]["status"] == 408
    assert (await monitors.get("backup")).pings == 0


async def test_a_job_that_hangs_up_in_the_middle_has_not_pinged(monitors: Monitors, backup: Monitor) -> None:
    parts: list[Message] = [{"type": "http.request", "body": b"x", "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> Message:
        return parts.pop(0)

    assert await called(PingApp(monitors), backup.ping_path, receive) == []
    assert (await monitors.get("backup")).pings == 0


async def test_websockets_are_closed(monitors: Monitors) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await PingApp(monitors)({"type": "websocket", "path": "/ping/x"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]
