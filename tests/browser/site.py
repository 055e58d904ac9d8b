"""A service for the browser: a real server in a thread of its own, with real data, and a target for its jobs.

The browser is driven from the thread of the test, which must not have an event loop; what a test wants of the service
itself it asks by `site.call(...)`, which runs it on the loop of the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncGenerator, Coroutine
from pathlib import Path
from typing import Any, Final, Self, TypeVar, cast

from aiohttp import web

from noonbell.access import Session
from noonbell.bootstrap import Service
from noonbell.core.records import Delivery, OutboxMessage
from noonbell.ports import ScheduleFilter
from noonbell.schedules import Schedules
from tests.api.conftest import serving, settings_for
from tests.patience import PATIENCE_SECONDS

T = TypeVar("T")

ADMIN: Final = "ada"
PASSWORD: Final = "correct horse battery"  # noqa: S105 - of a site that lives for a test
HOSTILE: Final = "<img src=x onerror=\"window.ran='{0}'\"><script>window.ran='{0}'</script>\"'><svg onload=alert(1)>"


class Target:
    """What jobs and channels reach: it answers as the path says, and keeps what it was sent."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        self.port = 0
        self._came = asyncio.Condition()

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{what:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        place = web.TCPSite(self._runner, "127.0.0.1", 0)
        await place.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.text()
        async with self._came:
            self.heard.append((request.path, body))
            self._came.notify_all()
        if request.path == "/fail":
            return web.Response(status=500, text="the disk is full")
        if request.path == "/echo":
            return web.json_response({"headers": dict(request.headers), "body": body})
        if request.path == "/hostile":
            said = {"said": HOSTILE.format("body"), "html": "</script><script>alert(2)</script>"}
            return web.Response(
                text=json.dumps(said), content_type="application/json", headers={"X-Said": HOSTILE.format("header")}
            )
        if request.path == "/hostile.html":
            return web.Response(text=HOSTILE.format("page"), content_type="text/html", status=500)
        return web.json_response({"said": "dong"})

    async def wait_for(self, path: str, part: str = "") -> str:
        """The body of the first request to a path that holds a part; waits until it has come."""

        def found() -> str | None:
            return next((body for where, body in self.heard if where == path and part in body), None)

        async with asyncio.timeout(PATIENCE_SECONDS), self._came:
            await self._came.wait_for(lambda: found() is not None)
        return found() or ""


class Site:
    """See the module. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._live, name="site", daemon=True)
        self._failed: BaseException | None = None
        self._session: Session | None = None
        self.url = ""
        self.service: Service
        self.target: Target

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(PATIENCE_SECONDS), "the service did not start in time"
        if self._failed is not None:
            raise self._failed
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "the service did not stop in time"

    def _live(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        try:
            self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
            self.target = Target()
            await self.target.start()
            settings = settings_for(
                self._folder, egress_allow=(f"127.0.0.1:{self.target.port}",), commands=("/bin/echo",)
            )
            async with serving(settings) as client:
                self.service, self.url = client.service, client.base_url
                self._up.set()
                await self._end.wait()
            await self.target.stop()
        except BaseException as error:
            self._failed = error
            raise
        finally:
            self._up.set()

    # --- for the tests --------------------------------------------------------------------------------------------

    def call(self, asked: Coroutine[Any, Any, T], timeout: float = PATIENCE_SECONDS) -> T:
        """Run something on the loop of the service."""
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result(timeout)

    @property
    def schedules(self) -> Schedules:
        """Those of the first team, as its admin sees them."""
        return self.service.schedules.acting(f"user:{ADMIN}", "default")

    def at(self, path: str) -> str:
        """An address of the target."""
        return f"http://127.0.0.1:{self.target.port}{path}"

    def session(self) -> Session:
        """A session of the admin, who is made where there is none."""
        if self._session is None:
            self._session = self.call(self._open_session())
        return self._session

    async def _open_session(self) -> Session:
        user = await self.service.access.create_admin(ADMIN, PASSWORD)
        return await self.service.access.open_session(user, "127.0.0.1")

    def looked_on(self) -> None:
        """Wait until a page has opened its stream of events: what happens from now on, it hears of."""
        self.call(self._looked_on())

    async def _looked_on(self) -> None:
        events = self.service.events
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not events.readers or events._looking is None:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)

    async def ran(self, schedule_id: str) -> str:
        """Have a schedule run now, wait until that has ended, and give its id. To be run on the loop of the service."""
        run_id = await self.schedules.trigger(schedule_id)
        follow = self.service.events.follow("default", None, idle_seconds=0.1)
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            contextlib.aclosing(cast("AsyncGenerator[Any, None]", follow)) as events,
        ):
            async for _ in events:
                if (await self.schedules.run(run_id)).ended_at is not None:
                    break
        return run_id

    async def bury(self, schedule_id: str, event: dict[str, Any], error: str) -> None:
        """Have a message of a schedule given up: a dead letter. To be run on the loop of the service."""
        store, now = self.service.store, self.service.clock.now()
        (stored,) = await store.schedules.find(ScheduleFilter(schedule_ids=[schedule_id]))
        message = OutboxMessage(stored.sid, "elsewhere", f"{schedule_id}:manual:{now}", "queue", json.dumps(event), now)
        await store.outbox.post([message], now)
        claim = await store.outbox.claim("elsewhere", "somebody", now, 10)
        (stream,) = claim.streams
        await store.outbox.settle(
            [Delivery(stored.sid, "somebody", now, None, dead=stream.messages[0][0], error=error)]
        )
