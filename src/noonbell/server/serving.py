"""The process of a service: listen, start, announce, wait for a signal, stop. Imported only by `noonbell serve`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

import msgspec
import uvicorn

from noonbell import __version__
from noonbell.actions.secrets.keys import VARIABLE, create_key_file
from noonbell.api.app import PREFIX, create_app
from noonbell.api.demo import demo_key, ensure_demo
from noonbell.bootstrap import Service, build
from noonbell.config import Settings, is_loopback, shown
from noonbell.errors import SettingsInvalidError
from noonbell.server import service_logs
from noonbell.server.connections import bounded, most_connections
from noonbell.server.forced_exit import leave
from noonbell.server.watchdog import watchdog
from noonbell.store.opening import sqlite_path

logger = logging.getLogger("noonbell.service")

# The timeout of pending requests at a stop; that of runs is a setting.
_REQUEST_SECONDS: Final = 5.0
# Longer than the minute for which proxies keep idle connections: else one that is reused may be closed at that moment.
_KEEP_ALIVE_SECONDS: Final = 75
_DEMO_KEYS: Final = "demo.keys"


class Announcement(NamedTuple):
    """The message that is printed when the service is up."""

    address: str
    store: str
    admin_link: str | None
    key: str | None
    timeline: str | None = None

    def facts(self) -> dict[str, Any]:
        return {"version": __version__, **self._asdict()}

    def lines(self) -> list[str]:
        lines = [
            f"Noonbell {__version__} is up at {self.address}",
            f"  database  {self.store}",
        ]
        if self.timeline is not None:
            lines += [f"  timeline  {self.timeline}"]
        lines += [f"  login     {self.address}/login"]
        if self.admin_link is not None:
            lines += ["  No admin exists yet. Create one with this link (once, for a day, until the next start):"]
            lines += [f"    {self.admin_link}"]
        if self.key is not None:
            lines += ["  List the schedules (the key is valid for a day, until the next start):"]
            lines += [f'    curl -H "Authorization: Bearer {self.key}" {self.address}{PREFIX}/schedules']
        else:
            lines += ['  Make an API key: noonbell api-keys create NAME --scope write --store "…"']
        return [*lines, "Ctrl-C stops it."]


def run(settings: Settings, announce: Callable[[Announcement], None]) -> None:
    """Serve until a signal arrives; call `announce` when the service is up."""
    service_logs.configure(settings)
    _run_loop(_Process(settings, announce).serve())


def _run_loop(work: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop  # noqa: PLC0415 - quicker where it is installed
    except ModuleNotFoundError:
        asyncio.run(work)
    else:
        uvloop.run(work)


class _Process:
    """One run of a service, from start to stop."""

    def __init__(self, settings: Settings, announce: Callable[[Announcement], None]) -> None:
        self._settings = settings
        self._announce = announce
        self._asked = asyncio.Event()  # a stop was requested
        self._hurry = asyncio.Event()  # and does not want to wait

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._ask)
        settings = _with_demo_keys(self._settings)
        sock = _bound(settings)
        try:
            # a port of 0 has become a real one, which the demo's allow-list has to name
            settings = msgspec.structs.replace(settings, port=sock.getsockname()[1])
            service = build(settings)
            await _require_admin_beyond_loopback(service)
            await service.start()
            try:
                await self._up(service, sock)
            except BaseException:
                await service.stop(0)
                raise
        finally:
            sock.close()

    def _ask(self) -> None:
        (self._hurry if self._asked.is_set() else self._asked).set()

    async def _up(self, service: Service, sock: Any) -> None:
        settings = service.settings
        server = _Server(
            uvicorn.Config(
                create_app(service), log_config=None, access_log=False, lifespan="off", server_header=False,
                date_header=True, timeout_graceful_shutdown=int(min(_REQUEST_SECONDS, settings.shutdown_seconds)) or 1,
                proxy_headers=bool(settings.trusted_proxies), forwarded_allow_ips=list(settings.trusted_proxies),
                http=bounded(most_connections()), ws="none", timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            )
        )  # fmt: skip
        serving = asyncio.get_running_loop().create_task(server.serve(sockets=[sock]), name="noonbell-http")
        await _first(server.up.wait(), asyncio.shield(serving))
        if settings.demo:
            await ensure_demo(service)
        self._announce(await _announcement(service))
        gc.freeze()  # these objects stay: without this, a full collection would scan them for 100 ms
        async with watchdog(service):
            await _first(self._asked.wait(), asyncio.shield(serving))
        logger.info("stopping shutdown_seconds=%g", settings.shutdown_seconds)
        server.should_exit = True
        work = asyncio.get_running_loop().create_task(service.stop_work(settings.shutdown_seconds))
        await _first(asyncio.shield(asyncio.gather(work, serving)), self._hurry.wait())
        if self._hurry.is_set():
            logger.warning("stopping at once: second signal")
            await service.stop_work(0)  # runs are cancelled and queued again
        in_time = await work
        if self._hurry.is_set():
            await service.close()
            await leave(service)
        await serving
        await service.close()
        logger.info("stopped")
        if not in_time:
            await leave(service)


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: a stop does more than close sockets."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


async def _first(*waits: Any) -> None:
    """Return when one of them is done."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if not task.done():
            task.cancel()


# --- before it starts -------------------------------------------------------------------------------------------------


def _require_own(host: str, source: str) -> None:
    """Raise the error of an invalid host for the setting `host` and not for `port`."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.bind((host, 0))
    except (OSError, UnicodeError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reason = f"is not an address of this machine ({said}); use 127.0.0.1, or 0.0.0.0 for all addresses"
        raise SettingsInvalidError("host", host, source, reason) from None


def _bound(settings: Settings) -> Any:
    _require_own(settings.host, settings.sources.get("host", "default"))
    config = uvicorn.Config("", host=settings.host, port=settings.port, log_config=None)
    before = logging.getLogger("uvicorn.error").level
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # the checks below give better messages
    try:
        sock = config.bind_socket()
    except SystemExit:
        reason = "cannot be listened on; another program may have this port: choose another with --port, or 0 for any"
        address = f"{settings.host}:{settings.port}"
        raise SettingsInvalidError("port", address, settings.sources.get("port", "default"), reason) from None
    except OSError as error:
        raise SettingsInvalidError("host", settings.host, settings.sources.get("host", "default"), str(error)) from None
    finally:
        logging.getLogger("uvicorn.error").setLevel(before)
    # Connections inherit it. asyncio sets it only where a socket names its protocol, and this one does not: the body of
    # an answer would wait for the receipt of its head, which a client holds back for 40 ms.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


async def _require_admin_beyond_loopback(service: Service) -> None:
    settings = service.settings
    if is_loopback(settings.host):
        return
    await service.open()
    try:
        if not await service.access.has_admin():
            reason = (
                "other machines could reach the service, and it has no admin yet; make one first with "
                '"noonbell admin create NAME", or start it on 127.0.0.1 and use the link that it prints'
            )
            raise SettingsInvalidError("host", settings.host, settings.sources.get("host", "default"), reason)
    finally:
        await service.store.close()


def _with_demo_keys(settings: Settings) -> Settings:
    """Give the demo master keys, which it creates in a file beside its database."""
    wanted = settings.demo and settings.master_keys_file is None and VARIABLE not in os.environ
    if not wanted or not settings.store.startswith("sqlite:///"):
        return settings
    path = sqlite_path(settings.store).parent / _DEMO_KEYS
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        create_key_file(path)
    sources = {**settings.sources, "master_keys_file": "created for the demo"}
    return msgspec.structs.replace(settings, master_keys_file=str(path), sources=sources)


async def _announcement(service: Service) -> Announcement:
    settings = service.settings
    token = await service.access.new_first_admin_token()
    values = {name: None if value is None else str(value) for name, value, _ in shown(settings)}
    link = None if token is None else f"{settings.address}/setup/{token}"
    key = await demo_key(service) if settings.demo else None
    return Announcement(settings.address, str(values["store"]), link, key, values["timeline"])
