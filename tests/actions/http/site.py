"""A real site on the loopback interface for HTTP jobs, and jobs that may reach it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from noonbell.actions.egress import Egress, EgressPolicy
from noonbell.actions.http.definition import check_http
from noonbell.actions.http.http_jobs import HttpJobs
from noonbell.actions.http.slots import HttpLimits
from noonbell.core.attempt_detail import unpack
from noonbell.engine import SystemClock
from noonbell.errors import HttpJobFailedError
from tests.actions.conftest import start_at, stored_with
from tests.patience import PATIENCE_SECONDS

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Asked:
    """A request as the site got it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Site:
    """What was asked, and how many requests were under way at once, over all and by path."""

    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    under_way: int = 0
    most: int = 0
    came: asyncio.Condition = field(default_factory=asyncio.Condition)

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def until(self, requests: int) -> None:
        """Return when so many requests have come."""
        async with self.came:
            await asyncio.wait_for(self.came.wait_for(lambda: len(self.asked) >= requests), PATIENCE_SECONDS)


@contextlib.asynccontextmanager
async def serving(handle: Handler) -> AsyncIterator[Site]:
    site = Site()

    async def watched(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        site.asked.append(Asked(request.method, request.path_qs, dict(request.headers), body))
        site.under_way += 1
        site.most = max(site.most, site.under_way)
        async with site.came:
            site.came.notify_all()
        try:
            return await handle(request)
        finally:
            site.under_way -= 1

    app = web.Application(client_max_size=4_000_000)
    app.router.add_route("*", "/{tail:.*}", watched)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    listener = web.TCPSite(runner, "127.0.0.1", 0)
    await listener.start()
    site.port = runner.addresses[0][1]
    try:
        yield site
    finally:
        await runner.cleanup()


def answering(text: str = "good", status: int = 200, headers: Mapping[str, str] | None = None) -> Handler:
    async def handle(_: web.Request) -> web.StreamResponse:
        return web.Response(text=text, status=status, headers=headers)

    return handle


def in_turn(*handlers: Handler) -> Handler:
    """Let these answer one after the other, the last of them for ever."""
    left = list(handlers)

    async def handle(request: web.Request) -> web.StreamResponse:
        return await (left.pop(0) if len(left) > 1 else left[0])(request)

    return handle


def egress_to(*sites: Site, **options: Any) -> Egress:
    return Egress(EgressPolicy(allow=tuple(f"127.0.0.1:{site.port}" for site in sites), **options))


def jobs_to(*sites: Site, limits: HttpLimits | None = None, **options: Any) -> HttpJobs:
    return HttpJobs(SystemClock(), egress=egress_to(*sites), limits=limits, **options)


async def attempt(jobs: HttpJobs, action: dict[str, Any], *, sid: int = 7, **of_start: Any) -> dict[str, Any]:
    """One attempt of a job, to its end: the record of it, with what was raised under "raised"."""
    stored = msgspec.structs.replace(stored_with(check_http(action)), sid=sid)
    raised: HttpJobFailedError | None = None
    try:
        finished = await jobs.prepare(stored, start_at(**of_start)).call()
        detail = finished.detail
    except HttpJobFailedError as error:
        raised, detail = error, error.detail
    return unpack(detail) | {"raised": raised}
