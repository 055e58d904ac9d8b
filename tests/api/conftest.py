"""A service for the tests of its API: on SQLite in a folder of the test, behind a real server on a free port.

`live` is the server, with an HTTP client that holds a key of each scope; `inside` speaks to the application without a
socket, which is quicker where the wire does not matter.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

from noonbell.actions.secrets.keys import create_key_file
from noonbell.api.app import create_app
from noonbell.bootstrap import Service, build
from noonbell.config import Settings
from tests.patience import PATIENCE_SECONDS

# Nothing here speaks TLS, and each client would read the certificates of all authorities for itself.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Client:
    """An HTTP client with the keys of a team: `.read`, `.write` and `.admin` send the key of that scope."""

    def __init__(self, service: Service, base_url: str, transport: httpx2.AsyncBaseTransport | None) -> None:
        self.service = service
        self.base_url = base_url
        self.anonymous = httpx2.AsyncClient(
            base_url=base_url, transport=transport, timeout=PATIENCE_SECONDS, verify=NO_TLS
        )
        self._transport = transport
        self._opened = [self.anonymous]
        self.keys: dict[str, str] = {}

    async def with_key(self, team: str, scope: str) -> httpx2.AsyncClient:
        """A client with a fresh key of a team, which is made where there is none."""
        if team not in {one.name for one in await self.service.access.list_teams()}:
            await self.service.access.create_team(team)
        _, key = await self.service.access.create_key(team, [scope], name=f"{scope} of {team}")
        self.keys[f"{team}/{scope}"] = key
        headers = {"Authorization": f"Bearer {key}"}
        client = httpx2.AsyncClient(
            base_url=self.base_url,
            transport=self._transport,
            headers=headers,
            timeout=PATIENCE_SECONDS,
            verify=NO_TLS,
        )
        self._opened.append(client)
        return client

    async def open(self) -> None:
        self.read = await self.with_key("default", "read")
        self.write = await self.with_key("default", "write")
        self.admin = await self.with_key("default", "admin")

    async def close(self) -> None:
        for client in self._opened:
            await client.aclose()


def settings_for(folder: Path, **changes: Any) -> Settings:
    keys = folder / "master.keys"
    if not keys.exists():
        create_key_file(keys)
    usual: dict[str, Any] = {
        "store": f"sqlite:///{folder / 'service.db'}",
        "master_keys_file": str(keys),
        "key_requests_per_minute": 0,
        "address_requests_per_minute": 0,
        "port": 0,
    }
    return Settings(**(usual | changes))


@contextlib.asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Client]:
    """A started service behind a real server."""
    config = uvicorn.Config("none", host="127.0.0.1", port=0, log_config=None)
    sock = config.bind_socket()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as `serve` does
    port: int = sock.getsockname()[1]
    service = build(_at_port(settings, port), environ=os.environ)
    await service.start()
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(service),
            log_config=None,
            lifespan="off",
            timeout_graceful_shutdown=1,
            timeout_keep_alive=round(PATIENCE_SECONDS),
        )
    )
    setattr(server, "capture_signals", contextlib.nullcontext)  # noqa: B010 - signals belong to pytest
    task = asyncio.create_task(server.serve(sockets=[sock]))
    client = Client(service, f"http://127.0.0.1:{port}", None)
    try:
        await client.open()
        yield client
    finally:
        await client.close()
        service.stopping.set()
        server.should_exit = True
        await task
        sock.close()
        await service.stop(10)


def _at_port(settings: Settings, port: int) -> Settings:
    values = {name: getattr(settings, name) for name in settings.__struct_fields__}
    return Settings(**{**values, "port": port})


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Client]:
    async with serving(settings_for(tmp_path)) as client:
        yield client


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Client]:
    """The application without a server; the engine runs all the same."""
    service = build(settings_for(tmp_path))
    await service.start()
    transport = httpx2.ASGITransport(app=create_app(service))
    client = Client(service, "http://service", transport)
    try:
        await client.open()
        yield client
    finally:
        await client.close()
        await service.stop(10)
