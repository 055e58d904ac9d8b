"""If-Match holds until the write: whoever changes a thing between the look and the write is not written over."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from noonbell.api.routes import channels, monitors, quiet_hours, rules
from tests.api.conftest import Client

API = "/api/v1"
WINDOW = {"weekdays": [1, 2], "from": "22:00", "to": "06:00", "timezone": "Europe/Kyiv"}
CHANNEL = {"channel_id": "ops", "name": "Ops", "kind": "webhook", "config": {"url": "https://example.com/hook"}}
THINGS: dict[str, tuple[ModuleType, str, dict[str, Any]]] = {
    "quiet-hours": (quiet_hours, "_seen", {"policy_id": "one", "name": "a", "windows": [WINDOW]}),
    "channels": (channels, "_find", {**CHANNEL, "channel_id": "one"}),
    "rules": (rules, "_find", {"rule_id": "one", "name": "a", "on": ["failed"], "channels": ["ops"]}),
    "monitors": (monitors, "_find", {"monitor_id": "one", "name": "a", "type": "interval", "spec": 60}),
}


@pytest.mark.parametrize("verb", ["PATCH", "DELETE"])
@pytest.mark.parametrize("thing", THINGS)
async def test_somebody_is_quicker(inside: Client, monkeypatch: pytest.MonkeyPatch, thing: str, verb: str) -> None:
    module, look, body = THINGS[thing]
    assert (await inside.write.post(f"{API}/channels", json=CHANNEL)).status_code == 201
    assert (await inside.write.post(f"{API}/{thing}", json=body)).status_code == 201
    address = f"{API}/{thing}/one"
    seen = {"If-Match": (await inside.read.get(address)).headers["etag"]}
    real = getattr(module, look)

    async def overtaken(*given: Any) -> Any:
        found = await real(*given)
        monkeypatch.setattr(module, look, real)
        assert (await inside.write.patch(address, json={"name": "quicker"})).status_code == 200
        return found

    monkeypatch.setattr(module, look, overtaken)
    change: dict[str, Any] = {"json": {"name": "slower"}} if verb == "PATCH" else {}
    answer = await inside.write.request(verb, address, headers=seen, **change)
    assert answer.status_code == 412, answer.text
    found = await inside.read.get(address)
    assert found.json()["name"] == "quicker"
    again = {"If-Match": found.headers["etag"]}
    assert (await inside.write.request(verb, address, headers=again, **change)).is_success
