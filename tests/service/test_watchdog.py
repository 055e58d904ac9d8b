"""Signs of life: systemd's socket and `watchdog_url`, sent after completed polls alone."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from noonbell.bootstrap import build
from noonbell.config import Settings, load, shown
from noonbell.errors import SettingsInvalidError
from noonbell.server.watchdog import Watchdog, notify_systemd, watchdog, watchdog_seconds
from noonbell.testing import ManualClock
from tests.api.conftest import serving, settings_for
from tests.notify.servers import hook_server
from tests.patience import until


class Polling:
    """As much of a service as a watchdog asks for. Its engine polls every second, until `polls` is False."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock(datetime(2026, 3, 4, tzinfo=UTC))
        self.settings = Settings(**settings)
        self.polls = True
        self._stopped_at = 0.0

    @property
    def poll_age(self) -> float:
        now = self.clock.elapsed()
        if self.polls:
            self._stopped_at = now
        return now - self._stopped_at


class Systemd:
    """The end of systemd: a socket for datagrams."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)

    def received(self) -> list[str]:
        found = []
        while True:
            try:
                found.append(self.socket.recv(1_000).decode())
            except BlockingIOError:
                return found


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    made = Systemd(tmp_path / "notify")
    yield made
    made.socket.close()


async def test_systemd_is_notified_after_completed_polls_alone(systemd: Systemd) -> None:
    service: Any = Polling()
    environ = {"NOTIFY_SOCKET": str(systemd.path), "WATCHDOG_USEC": "30000000"}
    async with watchdog(service, environ):
        await service.clock.advance(timedelta(seconds=61))
        assert systemd.received() == ["READY=1", *["WATCHDOG=1"] * 7]  # three times in 30 s
        service.polls = False
        await service.clock.advance(timedelta(seconds=60))
        assert systemd.received() == []
        service.polls = True
        await service.clock.advance(timedelta(seconds=5))
        assert systemd.received() == ["WATCHDOG=1"]
    assert systemd.received() == ["STOPPING=1"]


async def test_a_process_without_an_engine_lives_whatever_engines_do(systemd: Systemd) -> None:
    service: Any = Polling(engine=False)
    service.polls = False
    async with watchdog(service, {"NOTIFY_SOCKET": str(systemd.path), "WATCHDOG_USEC": "30000000"}):
        await service.clock.advance(timedelta(seconds=61))
    assert systemd.received().count("WATCHDOG=1") == 7


def test_an_abstract_socket_and_none(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind("")  # the kernel chooses an abstract name
        name = end.getsockname()
        notify_systemd("READY=1", {"NOTIFY_SOCKET": "@" + name[1:].decode()})
        assert end.recv(100) == b"READY=1"
    notify_systemd("READY=1", {})
    assert caplog.text == ""
    notify_systemd("READY=1", {"NOTIFY_SOCKET": "/nowhere/at/all"})
    assert "systemd notify failed state=READY=1" in caplog.text


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "many"}, None),
        ({"WATCHDOG_USEC": "1500000"}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "1"}, None),
    ],
)
def test_what_systemd_wants(environ: dict[str, str], seconds: float | None) -> None:
    assert watchdog_seconds(environ) == seconds


async def pinged(dog: Watchdog) -> bool:
    """Whether a look brings a request; it has been answered then."""
    before = dog._ping
    await dog.run_once()
    if dog._ping is before or dog._ping is None:
        return False
    await dog._ping
    return True


async def close(dog: Watchdog) -> None:
    assert dog._client is not None
    await dog._client.close()


async def test_the_address_is_requested_every_20_seconds_while_polls_complete() -> None:
    async with hook_server() as hook:
        # its host is private, and reachable without egress_allow
        service: Any = Polling(watchdog_url=f"{hook.url}/ping/abc")
        dog = Watchdog(service, {})
        for count in (1, 2, 3):
            await service.clock.advance(timedelta(seconds=1))
            assert await pinged(dog)
            assert hook.count == count
            await service.clock.advance(timedelta(seconds=18))
            assert not await pinged(dog)
            await service.clock.advance(timedelta(seconds=1))
        service.polls = False
        await service.clock.advance(timedelta(minutes=10))
        assert not await pinged(dog)
        await close(dog)
        assert {came.path for came in hook.came} == {"/ping/abc"}


async def test_a_request_that_fails_is_logged_once_and_harmless(caplog: pytest.LogCaptureFixture) -> None:
    async with hook_server() as hook:
        hook.answers = [(500, "no")] * 3
        service: Any = Polling(watchdog_url=f"{hook.url}/ping/secret-token")
        dog = Watchdog(service, {})
        for _ in range(4):
            await service.clock.advance(timedelta(seconds=25))
            assert await pinged(dog)
        await close(dog)
    failed = [record.getMessage() for record in caplog.records if record.name == "noonbell.service"]
    assert failed[0] == "watchdog_url failed, pings do not arrive: it answered 500"
    assert failed[-1].startswith("watchdog_url works again")
    assert "secret-token" not in caplog.text


async def test_another_noonbell_takes_the_requests(tmp_path: Path) -> None:
    async with serving(settings_for(tmp_path)) as client:
        body = {"name": "the other scheduler", "type": "interval", "spec": "60", "grace_seconds": 30}
        answer = await client.write.post("/api/v1/monitors", json=body)
        assert answer.status_code == 201, answer.text
        made = answer.json()
        service: Any = Polling(watchdog_url=client.base_url + made["ping_path"])
        async with watchdog(service, {}):
            await service.clock.advance(timedelta(seconds=2))

            async def heard() -> bool:
                found = await client.read.get(f"/api/v1/monitors/{made['monitor_id']}")
                return bool(found.json()["status"] == "up")

            await until(heard)


def test_the_settings(tmp_path: Path) -> None:
    settings = load({"watchdog_url": "https://hc-ping.com/0c8e?a=b", "engine": False}, environ={})
    assert (settings.watchdog_url, settings.engine) == ("https://hc-ping.com/0c8e?a=b", False)
    told = {name: value for name, value, _ in shown(settings)}
    assert told["watchdog_url"] == "https://hc-ping.com/***"
    with pytest.raises(SettingsInvalidError, match=r"such as https://hc-ping\.com/UUID") as caught:
        load({"watchdog_url": "hc-ping.com/secret"}, environ={})
    assert "secret" not in str(caught.value)
    wrong = SimpleNamespace(tasks="no.such.module", engine=False)
    with pytest.raises(SettingsInvalidError, match="leave out --no-engine"):
        build(settings_for(tmp_path, tasks=wrong.tasks, engine=wrong.engine))
