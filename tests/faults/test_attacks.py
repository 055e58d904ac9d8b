"""The attacks in short, for what gets through: how long anything takes is for `make faults`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import httpx2
import pytest
from _pytest.mark import ParameterSet

from noonbell.actions.secrets.keys import create_key_file
from tests.faults import attempts
from tests.faults.attackers import ATTACKS, Plan, Sender
from tests.faults.attacks import made_keys
from tests.faults.echo import Echo
from tests.patience import PATIENCE_SECONDS
from tests.service.conftest import served

# What is counted beside refusals, by attack: pings of a monitor that exists, pages that need no key, and connections
# that are still open at the end.
ACCEPTED = {"pings": {"200"}, "plans": {"200"}, "pipelined": {"200", "held"}, "bodies": {"held"}}


def _exhaustive(names: Iterable[str]) -> list[ParameterSet]:
    """What unit tests of the service check as well, each on a process of its own."""
    return [pytest.param(name, marks=pytest.mark.exhaustive) for name in names]


@pytest.mark.parametrize("name", ["keys", *_exhaustive(name for name in ATTACKS if name not in ("slow", "keys"))])
def test_what_an_attack_sends_is_refused(tmp_path: Path, name: str) -> None:
    address = f"sqlite:///{tmp_path / 'service.db'}"
    keys = made_keys(tmp_path, address)
    with served(tmp_path, "--store", address) as service, service.client(keys["write"]) as client:
        monitor = {"name": "pinged", "type": "cron", "spec": "30 2 * * *"}
        made = client.post("/api/v1/monitors", json=monitor)
        assert made.status_code == 201, made.text
        port = client.base_url.port
        assert port is not None
        sender = Sender(Plan(port, 0, keys["read"], keys["write"], made.json()["ping_path"], least=24))
        asyncio.run(_attack(name, sender))
        sent = sender.counts.pop("sent")
        for count in ("bytes", "most_open"):
            sender.counts.pop(count, None)
        refused = {"401", "403", "404", "413", "414", "422", "429", "431", "closed"}
        assert sent >= 24
        assert {*sender.counts} <= refused | ACCEPTED.get(name, set())
        # from another address: the limits of the attacker's own may be used up
        with httpx2.Client(headers=client.headers, transport=httpx2.HTTPTransport(local_address="127.0.0.2")) as other:
            assert other.get(f"{service.address}/api/v1/schedules").json()["items"] == []
        assert service.stop() == 0
        assert [line for line in service.lines if "Traceback" in line] == []


async def _attack(name: str, sender: Sender) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await ATTACKS[name](sender)


@pytest.mark.parametrize("name", _exhaustive(attempts.ATTEMPTS))
def test_nothing_gets_through(tmp_path: Path, name: str) -> None:
    address, key_file = f"sqlite:///{tmp_path / 'service.db'}", tmp_path / "master.keys"
    create_key_file(key_file)
    with Echo() as echo:
        usual = ("--store", address, "--key-file", str(key_file), "--allow", echo.place)
        done = attempts.ATTEMPTS[name](attempts.Scene(tmp_path, usual, made_keys(tmp_path, address), echo))
    assert done["sent"] > 0
    assert [one for one in done["missed"] if one != "memory_mb"] == []
