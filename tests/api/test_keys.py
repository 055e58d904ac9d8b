"""API keys and teams over HTTP."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from noonbell import __version__
from noonbell.access import Access
from noonbell.api.app import PREFIX
from noonbell.core.presence import EngineRecord, engine_name
from noonbell.engine import SystemClock
from noonbell.store.sqlite import SqliteStore
from tests.api.conftest import Client, serving, settings_for
from tests.patience import until


async def test_a_key_is_shown_once_and_works(inside: Client) -> None:
    made = await inside.admin.post(f"{PREFIX}/keys", json={"name": "ci", "scopes": ["write"]})
    assert made.status_code == 201
    told = made.json()
    assert told["created_by"].startswith("key:")
    key = {"Authorization": f"Bearer {told['key']}"}
    assert (await inside.anonymous.get(f"{PREFIX}/caller", headers=key)).json()["actor"] == f"key:{told['key_id']}"
    for path in (f"{PREFIX}/keys", f"{PREFIX}/keys/{told['key_id']}"):
        again = await inside.admin.get(path)
        assert told["key_id"] in again.text
        assert told["key"].split("_", 2)[2] not in again.text
    gone = await inside.admin.delete(f"{PREFIX}/keys/{told['key_id']}")
    assert (gone.status_code, gone.json()) == (200, {"revoked": [told["key_id"]]})
    assert (await inside.anonymous.get(f"{PREFIX}/caller", headers=key)).status_code == 401
    assert (await inside.admin.get(f"{PREFIX}/keys/{told['key_id']}")).status_code == 404


async def test_a_revoked_key_takes_those_along_that_it_made(inside: Client) -> None:
    async def made(key: str, scope: str, **more: str) -> tuple[str, str]:
        answer = await inside.anonymous.post(
            f"{PREFIX}/keys", json={"name": "k", "scopes": [scope], **more}, headers={"Authorization": f"Bearer {key}"}
        )
        assert answer.status_code == 201, answer.text
        return answer.json()["key_id"], answer.json()["key"]

    await inside.admin.post(f"{PREFIX}/teams", json={"name": "billing"})
    stolen, key = await made(inside.keys["default/admin"], "admin")
    child, child_key = await made(key, "admin")
    grandchild, last_key = await made(child_key, "read")
    foreign, foreign_key = await made(key, "write", team="billing")
    beside, beside_key = await made(inside.keys["default/admin"], "read")
    revoked = (await inside.admin.delete(f"{PREFIX}/keys/{stolen}")).json()["revoked"]
    assert (revoked[0], {*revoked}) == (stolen, {stolen, child, grandchild, foreign})
    for one, status in ((key, 401), (child_key, 401), (last_key, 401), (foreign_key, 401), (beside_key, 200)):
        told = await inside.anonymous.get(f"{PREFIX}/caller", headers={"Authorization": f"Bearer {one}"})
        assert told.status_code == status
    audit = (await inside.read.get(f"{PREFIX}/audit?event=api_key.revoked")).json()["items"]
    assert {(one["subject"], one["detail"].get("made_with")) for one in audit} == {
        (stolen, None), (child, stolen), (grandchild, stolen),
    }  # fmt: skip
    assert beside not in revoked


async def test_keys_come_in_pages(inside: Client) -> None:
    for number in range(4):
        await inside.admin.post(f"{PREFIX}/keys", json={"name": f"key {number}", "scopes": ["read"]})
    seen: list[str] = []
    cursor = ""
    while True:
        page = (await inside.admin.get(f"{PREFIX}/keys?limit=3{cursor}")).json()
        seen += [one["key_id"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert len(seen) == len(set(seen)) == 7
    assert seen == sorted(seen)


async def test_a_key_that_expires(inside: Client) -> None:
    body = {"name": "short", "scopes": ["read"], "expires_at": "2020-01-01T00:00:00Z"}
    past = await inside.admin.post(f"{PREFIX}/keys", json=body)
    assert past.status_code == 422
    assert past.json()["field"] == "expires_at"
    made = await inside.admin.post(f"{PREFIX}/keys", json={**body, "expires_at": "2199-01-01T00:00:00+02:00"})
    assert made.json()["expires_at"] == "2198-12-31T22:00:00Z"


async def test_who_looks_after_teams_makes_the_first_key_of_one(inside: Client) -> None:
    made = await inside.admin.post(f"{PREFIX}/teams", json={"name": "billing", "title": "Billing"})
    assert made.status_code == 201
    assert (await inside.admin.post(f"{PREFIX}/teams", json={"name": "billing"})).status_code == 409
    assert [team["name"] for team in (await inside.admin.get(f"{PREFIX}/teams")).json()["items"]] == [
        "billing",
        "default",
    ]
    first = await inside.admin.post(f"{PREFIX}/keys", json={"name": "first", "scopes": ["admin"], "team": "billing"})
    assert first.status_code == 201
    theirs = {"Authorization": f"Bearer {first.json()['key']}"}
    told = (await inside.anonymous.get(f"{PREFIX}/caller", headers=theirs)).json()
    assert (told["team"], told["manages_teams"]) == ("billing", False)
    assert (await inside.anonymous.get(f"{PREFIX}/teams", headers=theirs)).status_code == 403
    foreign = {"name": "x", "scopes": ["admin"], "team": "default"}
    refused = await inside.anonymous.post(f"{PREFIX}/keys", json=foreign, headers=theirs)
    assert refused.status_code == 403
    assert refused.json()["field"] == "team"
    nobody = {"name": "x", "scopes": ["read"], "team": "nobody"}
    assert (await inside.admin.post(f"{PREFIX}/keys", json=nobody)).status_code == 404
    # and can take it back, without seeing the keys of the team
    key_id = first.json()["key_id"]
    assert (await inside.admin.get(f"{PREFIX}/keys/{key_id}")).status_code == 404
    assert (await inside.admin.delete(f"{PREFIX}/keys/{key_id}")).status_code == 200
    assert (await inside.anonymous.get(f"{PREFIX}/caller", headers=theirs)).status_code == 401


async def test_the_audit_names_the_key_that_did_it(inside: Client) -> None:
    made = (await inside.admin.post(f"{PREFIX}/keys", json={"name": "ci", "scopes": ["read"]})).json()
    actor = (await inside.admin.get(f"{PREFIX}/caller")).json()["actor"]
    found = (await inside.read.get(f"{PREFIX}/audit?subject={made['key_id']}")).json()["items"]
    assert [(one["event"], one["actor"]) for one in found] == [("api_key.created", actor)]


async def test_instances_say_where_they_run_to_those_who_look_after_teams(inside: Client) -> None:
    store, now = inside.service.store, inside.service.clock.now()
    hold = await store.hold(engine_name("far-1"), "far away")
    await store.engines.join(EngineRecord("far-1", "default", "far", 7, "0.0", "2020a", now, now, "up", {"running": 3}))
    mine, far = (await inside.admin.get(f"{PREFIX}/instances")).json()["items"]
    assert (mine["lane"], mine["here"], mine["state"], mine["pid"]) == ("default", True, "up", os.getpid())
    assert mine["instance"] == inside.service.schedules.instance
    assert (far["lane"], far["here"], far["host"], far["load"]) == ("default", False, "far", {"running": 3})
    assert far["up_since"] == mine["up_since"], "it is the lane that is up"
    for theirs in (await inside.read.get(f"{PREFIX}/instances")).json()["items"]:
        assert (theirs["instance"], theirs["host"], theirs["pid"]) == (None, None, None)
        assert theirs["version"] in ("0.0", __version__)
    hold.release()


async def test_a_key_that_expires_makes_none_that_outlives_it(inside: Client) -> None:
    soon, later = datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) + timedelta(days=9)
    _, key = await inside.service.access.create_key("default", ["admin"], name="short", expires_at=soon)
    headers = {"Authorization": f"Bearer {key}"}
    ends = []
    for asked in ({}, {"expires_at": later.isoformat()}, {"expires_at": (soon - timedelta(minutes=9)).isoformat()}):
        body = {"name": "child", "scopes": ["admin"], **asked}
        made = await inside.anonymous.post(f"{PREFIX}/keys", json=body, headers=headers)
        assert made.status_code == 201, made.text
        ends.append(datetime.fromisoformat(made.json()["expires_at"]))
    assert ends == [soon, soon, soon - timedelta(minutes=9)]
    for_ever = await inside.admin.post(f"{PREFIX}/keys", json={"name": "child", "scopes": ["read"]})
    assert for_ever.json()["expires_at"] is None


@pytest.mark.parametrize("seconds", [0.01, 3600.0], ids=["while it runs", "when it stops"])
async def test_the_last_use_of_a_key_is_written_beside_the_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr("noonbell.bootstrap._UPKEEP_US", round(seconds * 1_000_000))
    settings = settings_for(tmp_path)

    async def is_written() -> bool:
        """Whether another process can read it."""
        store = SqliteStore(tmp_path / "service.db", read_only=True)
        await store.open()
        try:
            keys = await Access(store, SystemClock()).list_keys("default")
        finally:
            await store.close()
        return [one.name for one in keys if one.last_used_at is not None] == ["read of default"]

    async with serving(settings) as client:
        assert (await client.read.get(f"{PREFIX}/runs")).status_code == 200
        if seconds < 1:
            await until(is_written)
        else:
            assert not await is_written()
    assert await is_written()
