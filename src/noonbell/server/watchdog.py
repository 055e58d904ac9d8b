"""Heartbeats of a process to its supervisors: systemd, and the address of the setting `watchdog_url`.

Both are sent only after completed polls, so they stop when the process is dead, stopped or blocked, and when its
database does not answer. A process without an engine requests `watchdog_url` as long as an engine of the lane polls,
and sends `WATCHDOG=1` as long as it runs itself: restarting it would not restart an engine.

- systemd: `READY=1` when the process is up, `STOPPING=1` when it begins to stop, and, where the unit has `WatchdogSec`,
  `WATCHDOG=1` at least three times in that time.
- `watchdog_url`: a POST every 20 seconds. Its host is reachable for these requests, whatever `egress_allow` says, and
  for no others. A request that fails is logged, and changes nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from noonbell.actions.egress import Egress, EgressPolicy, HttpClient, Outgoing
from noonbell.actions.egress.hosts import read_url
from noonbell.background import PeriodicService
from noonbell.bootstrap import Service
from noonbell.engine.supervisor import Supervisor
from noonbell.errors import NoonbellError, describe_error
from noonbell.store.outage import Outage

logger = logging.getLogger("noonbell.service")

PING_SECONDS: Final = 20.0
_LOOK: Final = 1_000_000
_TIMEOUT_SECONDS: Final = 10.0


def notify_systemd(state: str, environ: Mapping[str, str]) -> None:
    """Send a state to the socket of systemd, if there is one."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)  # noqa: FBT003 - its only argument
            sock.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
    except OSError as error:
        logger.warning("systemd notify failed state=%s reason=%s", state, error)


def watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """Return systemd's watchdog interval for this process; None if it has none."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    given = environ.get("WATCHDOG_USEC", "")
    return int(given) / 1_000_000 if given.isascii() and given.isdigit() and int(given) else None


class Signs(NamedTuple):
    """The heartbeats that a pass has sent: to systemd, and to `watchdog_url`."""

    systemd: bool
    ping: bool


class Watchdog(PeriodicService[Signs]):
    """Sends the heartbeats of one service."""

    def __init__(self, service: Service, environ: Mapping[str, str]) -> None:
        super().__init__(service.clock, _LOOK)
        self._service = service
        self._environ = environ
        limit = watchdog_seconds(environ)
        self._systemd_every = None if limit is None else limit / 3
        self._url = service.settings.watchdog_url
        self._client: HttpClient | None = None if self._url is None else _client(self._url, service)
        self._pinged = self._signed = self._clock.elapsed() - PING_SECONDS
        self._began = self._clock.elapsed()
        self._ping: asyncio.Task[None] | None = None
        self._outage = Outage("watchdog_url", "pings do not arrive", logger)

    async def run(self, stop: asyncio.Event) -> None:
        try:
            await super().run(stop)
        finally:
            if self._ping is not None:
                self._ping.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._ping
            if self._client is not None:
                await self._client.close()

    async def run_once(self) -> Signs:
        """Send the heartbeats that are due; a request continues in the background."""
        now = self._clock.elapsed()
        every = self._systemd_every
        alive = not self._service.settings.engine or self._polled_since(self._signed)
        signs = every is not None and alive and now - self._signed >= every
        if signs:
            notify_systemd("WATCHDOG=1", self._environ)
            self._signed = now
        idle = now - self._pinged >= PING_SECONDS and (self._ping is None or self._ping.done())
        pings = self._client is not None and idle and self._polled_since(self._pinged)
        if self._client is not None and pings:
            self._pinged = now
            self._ping = asyncio.ensure_future(self._send(self._client))
        return Signs(signs, pings)

    def _polled_since(self, then: float) -> bool:
        """Return whether a recent poll completed after `then` and after the start of this watchdog."""
        age = self._service.poll_age
        return age is not None and age < PING_SECONDS and self._clock.elapsed() - age > max(then, self._began)

    async def _send(self, client: HttpClient) -> None:
        try:
            answer = await client.fetch(
                Outgoing("POST", self._url or "", total_seconds=_TIMEOUT_SECONDS, body=b"", body_limit=1_000)
            )
            failed = None if 200 <= answer.status < 300 else f"it answered {answer.status}"
        except NoonbellError as error:
            failed = describe_error(error)
        if failed is None:
            self._outage.worked("ping", self._clock.elapsed())
        else:
            self._outage.failed("ping", failed, self._clock.elapsed())


def _client(url: str, service: Service) -> HttpClient:
    allowed = (*service.settings.egress_allow, read_url(url).where)
    return Egress(EgressPolicy(allow=allowed, proxy=service.settings.egress_proxy)).client()


@asynccontextmanager
async def watchdog(service: Service, environ: Mapping[str, str] | None = None) -> AsyncIterator[None]:
    """Report READY, send heartbeats during the block, and report STOPPING afterwards."""
    environ = os.environ if environ is None else environ
    notify_systemd("READY=1", environ)
    supervisor = Supervisor(service.clock, {"watchdog": Watchdog(service, environ)})
    supervisor.start()
    try:
        yield
    finally:
        notify_systemd("STOPPING=1", environ)
        supervisor.cancel()
        await supervisor.stop()
