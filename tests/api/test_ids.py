"""Ids that could not stand for themselves in an address are refused when something is made."""

from __future__ import annotations

from typing import Any

import pytest

from noonbell.schedules import fields
from tests.api.conftest import Client

API = "/api/v1"
WINDOW = {"weekdays": [1, 2], "from": "22:00", "to": "06:00", "timezone": "Europe/Kyiv"}
CALLBACK = {"kind": "callback", "name": "report"}
THINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "schedules": ("schedule_id", {"type": "cron", "spec": "0 9 * * *", "action": CALLBACK}),
    "quiet-hours": ("policy_id", {"name": "Nights", "windows": [WINDOW]}),
    "monitors": ("monitor_id", {"name": "Backup", "type": "interval", "spec": 60}),
    "channels": ("channel_id", {"name": "Ops", "kind": "webhook", "config": {"url": "https://example.com/hook"}}),
    "rules": ("rule_id", {"name": "All", "on": ["failed"], "channels": ["ops"]}),
}


@pytest.mark.parametrize("thing", THINGS)
async def test_an_id_that_means_something_else(inside: Client, thing: str) -> None:
    field, body = THINGS[thing]
    channel = {**THINGS["channels"][1], "channel_id": "ops"}
    assert (await inside.write.post(f"{API}/channels", json=channel)).status_code == 201
    for refused in (".", "..", "new", "a\ue000b", "a/../b", "\U0010fffd", "͸"):
        answer = await inside.write.post(f"{API}/{thing}", json={**body, field: refused})
        assert (answer.status_code, answer.json().get("field")) == (422, field), refused
    for fine in ("new-one", "a.b", "x..y"):
        assert (await inside.write.post(f"{API}/{thing}", json={**body, field: fine})).status_code == 201
        assert (await inside.read.get(f"{API}/{thing}/{fine}")).status_code == 200


async def test_no_new_schedule_goes_by_the_id_of_a_channels_keys(
    inside: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has such an id already works on, and does not reach the keys of the channel."""
    await inside.write.post(f"{API}/channels", json={**THINGS["channels"][1], "channel_id": "ops"})
    keys = (await inside.write.get(f"{API}/channels/ops/signing-keys")).json()
    other = await inside.with_key("other", "write")
    body = {**THINGS["schedules"][1], "schedule_id": "channel:ops"}
    refused = await other.post(f"{API}/schedules", json=body)
    assert (refused.status_code, refused.json()["field"]) == (422, "schedule_id")
    assert "kept for channels" in refused.text
    with monkeypatch.context() as earlier:
        earlier.setattr(fields, "_OF_CHANNELS", "none has this:")
        assert (await other.post(f"{API}/schedules", json=body)).status_code == 201
    address = f"{API}/schedules/channel:ops"
    assert (await other.get(address)).status_code == 200
    assert (await other.patch(address, json={"name": "Later"})).status_code == 200
    shown = await other.get(f"{address}/signing-keys")
    assert (shown.status_code, shown.json()["type"]) == (422, "urn:noonbell:problem:signing-key")
    assert (await other.delete(f"{address}/signing-keys")).status_code == 404
    assert (await inside.write.get(f"{API}/channels/ops/signing-keys")).json() == keys


async def test_many_at_once_and_files_are_held_to_the_same(inside: Client) -> None:
    body = THINGS["schedules"][1]
    many = await inside.write.post(f"{API}/bulk/schedules", json={"schedules": [{**body, "schedule_id": "new"}]})
    assert many.status_code == 422
    text = 'name = "x"\n[schedules.new]\ncron = "0 9 * * *"\naction = { kind = "callback", name = "report" }\n'
    answer = await inside.write.post(f"{API}/apply", json={"text": text})
    assert answer.status_code == 422
    assert "would mean something else" in answer.text


async def test_ids_of_files_are_for_files(inside: Client) -> None:
    _, body = THINGS["quiet-hours"]
    answer = await inside.write.post(f"{API}/quiet-hours", json={**body, "policy_id": "file:billing:nights"})
    assert (answer.status_code, answer.json()["field"]) == (422, "policy_id")
    text = (
        'name = "billing"\n[quiet_hours.nights]\n'
        'windows = [{ weekdays = [1], from = "22:00", to = "06:00", timezone = "UTC" }]\n'
    )
    assert (await inside.write.post(f"{API}/apply", json={"text": text})).status_code == 200
    address = f"{API}/quiet-hours/file:billing:nights"
    assert (await inside.read.get(address)).status_code == 200
    assert (await inside.write.patch(address, json={"name": "Later"})).status_code == 200, "those there may be changed"


async def test_an_id_of_another_team_is_taken(inside: Client) -> None:
    """Ids are one space for all teams, as docs/api.md says; what has the id stays hidden."""
    other = await inside.with_key("other", "write")
    for thing, (field, body) in THINGS.items():
        if thing == "rules":
            continue  # a rule of the other team could not name the channel
        assert (await inside.write.post(f"{API}/{thing}", json={**body, field: "mine"})).status_code == 201
        taken = await other.post(f"{API}/{thing}", json={**body, field: "mine"})
        assert taken.status_code == (409 if thing == "schedules" else 422), taken.text
        assert "taken" in taken.text
        assert (await other.get(f"{API}/{thing}/mine")).status_code == 404
