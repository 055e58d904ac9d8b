"""What `noonbell serve` does before it is up, in this process: what it refuses, and what it tells people."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from click.testing import CliRunner

from noonbell.bootstrap import _allowed, build
from noonbell.cli.program import program
from noonbell.cli.serve_command import command as serve_command
from noonbell.config import Settings, is_loopback, load
from noonbell.errors import (
    EgressPolicyInvalidError,
    MasterKeyError,
    RegistrationError,
    SettingsInvalidError,
    StoreUrlError,
)
from noonbell.server.serving import (
    Announcement,
    _announcement,
    _bound,
    _require_admin_beyond_loopback,
    _with_demo_keys,
)


def settings(folder: Path, **changes: Any) -> Settings:
    given: dict[str, Any] = {"store": f"sqlite:///{folder / 'service.db'}", "port": 0, **changes}
    return Settings(**given)


async def test_other_machines_only_when_there_is_an_admin(tmp_path: Path) -> None:
    service = build(settings(tmp_path, host="0.0.0.0"), environ={})  # noqa: S104 - that it is refused is the test
    with pytest.raises(SettingsInvalidError, match="noonbell admin create NAME"):
        await _require_admin_beyond_loopback(service)
    await service.open()
    await service.access.create_admin("ann", "correct horse")
    await service.store.close()
    await _require_admin_beyond_loopback(service)


async def test_loopback_needs_no_admin_and_no_look_at_the_store(tmp_path: Path) -> None:
    await _require_admin_beyond_loopback(build(settings(tmp_path), environ={}))
    assert not (tmp_path / "service.db").exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_what_is_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "", "localhost.example.org", "example.org"])  # noqa: S104 - compared, not bound
def test_what_is_not(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["192.0.2.1", "x" * 64, "2001:db8::1"])
def test_a_host_that_is_not_this_machine(tmp_path: Path, host: str) -> None:
    """It is the host that is wrong, whatever the port."""
    with pytest.raises(SettingsInvalidError) as raised:
        _bound(settings(tmp_path, host=host))
    assert (raised.value.field, raised.value.value) == ("host", host)


def test_every_flag_is_told_by_its_own_name() -> None:
    """What a setting came from is looked for by people: a flag that does not exist would mislead them."""
    values: dict[str, Any] = {
        "store": "sqlite:///x.db", "host": "127.0.0.1", "port": 1, "lane": "x", "public_url": "https://x.example",
        "tasks": "x", "demo": True, "master_keys_file": "x", "egress_allow": ("x:1",), "commands": ("x",),
        "retention_days": 1, "shutdown_seconds": 1.0, "log_format": "json", "log_level": "debug",
    }  # fmt: skip
    flags = {one.name: one.opts for one in serve_command.params if one.name in values}
    assert flags.keys() == values.keys()
    sources = load(values, environ={}).sources
    for name, known in flags.items():
        assert sources[name].removeprefix("the flag ") in known


def test_the_demo_reaches_the_service_only_on_loopback(tmp_path: Path) -> None:
    for host, reached in (("127.0.0.1", True), ("0.0.0.0", False)):  # noqa: S104 - nothing is bound
        assert ("127.0.0.1:8765" in _allowed(settings(tmp_path, host=host, port=8765, demo=True))) is reached
    assert _allowed(settings(tmp_path)) == ()


# uvicorn leaves the socket that it could not bind to the garbage collector
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_port_that_is_taken(tmp_path: Path) -> None:
    before = logging.getLogger("uvicorn.error").level
    taken = uvicorn.Config("", port=0, log_config=None).bind_socket()
    try:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingsInvalidError, match=rf"127\.0\.0\.1:{port}.*--port"):
            _bound(settings(tmp_path, port=port))
    finally:
        taken.close()
    assert logging.getLogger("uvicorn.error").level == before


async def test_two_services_share_a_lane(tmp_path: Path) -> None:
    first, second = (build(settings(tmp_path), environ={}) for _ in range(2))
    await first.start()
    await second.start()
    try:
        assert (first.ready, second.ready) == (True, True)
        here = {first.schedules.instance, second.schedules.instance}
        assert {one.instance for one in (await first.store.engines.members(0)).alive} == here
        assert len(here) == 2
    finally:
        await second.stop(10)
        await first.stop(10)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"tasks": "nowhere.at_all"}, RegistrationError),
        ({"tasks": "noonbell.errors"}, RegistrationError),
        ({"store": "mysql://x"}, StoreUrlError),
        ({"master_keys_file": "none.keys"}, MasterKeyError),
        ({"egress_allow": ("10.0.0.0/33",)}, EgressPolicyInvalidError),
        ({"egress_proxy": "nonsense"}, EgressPolicyInvalidError),
    ],
)
def test_settings_that_cannot_be_used(tmp_path: Path, changes: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        build(settings(tmp_path, **changes), environ={})


def test_the_demo_makes_its_master_keys_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOONBELL_MASTER_KEYS", raising=False)
    first = _with_demo_keys(settings(tmp_path, demo=True))
    assert first.master_keys_file == str(tmp_path / "demo.keys")
    before = (tmp_path / "demo.keys").read_bytes()
    assert _with_demo_keys(settings(tmp_path, demo=True)) == first
    assert (tmp_path / "demo.keys").read_bytes() == before
    assert _with_demo_keys(settings(tmp_path)).master_keys_file is None
    assert _with_demo_keys(settings(tmp_path, demo=True, master_keys_file="mine")).master_keys_file == "mine"


async def test_what_people_are_told(tmp_path: Path) -> None:
    service = build(settings(tmp_path, demo=True, port=8765), environ={})
    await service.open()
    try:
        told = await _announcement(service)
        assert told.key is not None
        shown = "\n".join(told.lines())
        assert "Noonbell" in shown
        assert f"{told.admin_link}" in shown
        assert f'curl -H "Authorization: Bearer {told.key}" http://127.0.0.1:8765/api/v1/schedules' in shown
        assert await service.access.authenticate(told.key) is not None
        await service.access.create_admin("ann", "correct horse")
        again = await _announcement(service)
        assert again.admin_link is None
        assert await service.access.authenticate(told.key) is None, "the key of the last time is revoked"
        assert "No admin exists" not in "\n".join(again.lines())
    finally:
        await service.store.close()


def test_no_password_of_the_database_is_told() -> None:
    told = Announcement("http://127.0.0.1:1", "postgresql://***@db/x", None, None)
    assert "api-keys create" in "\n".join(told.lines())


def test_a_timeline_is_told_where_there_is_one() -> None:
    told = Announcement("http://127.0.0.1:1", "sqlite:///x.db", None, None)
    assert not any("timeline" in line for line in told.lines())
    with_timeline = told._replace(timeline="redis://***@cache:6379/0")
    assert "  timeline  redis://***@cache:6379/0" in with_timeline.lines()


def test_a_setting_that_is_wrong_ends_with_two_and_no_trace(tmp_path: Path) -> None:
    result = CliRunner().invoke(program, ["serve", "--shutdown-seconds", "-1"])
    assert result.exit_code == 2
    assert "shutdown_seconds" in result.output
    assert "--shutdown-seconds" in result.output
    result = CliRunner().invoke(program, ["serve", "--json", "--tasks", "not a module"])
    assert result.exit_code == 2
    assert '"kind": "SettingsInvalidError"' in result.output
