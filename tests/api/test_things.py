"""Quiet hours, secrets, channels, rules, monitors, dead letters, audit and plans over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.conftest import Client

API = "/api/v1"
ACTION = {"kind": "callback", "name": "report"}
NIGHTS = {
    "policy_id": "nights",
    "name": "Nights",
    "windows": [{"weekdays": [1, 2], "from": "22:00", "to": "06:00", "timezone": "Europe/Kyiv"}],
}
SECRET = "a-token-that-nobody-may-see"  # noqa: S105 - it is to be looked for


async def created(client: Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await client.write.post(API + path, json=body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["etag"]
    found: dict[str, Any] = answer.json()
    return found


# --- what all of them have in common ----------------------------------------------------------------------------------

THINGS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("/quiet-hours", "policy_id", NIGHTS, {"name": "Other"}),
    (
        "/channels",
        "channel_id",
        {"channel_id": "ops", "name": "Ops", "kind": "webhook", "config": {"url": "https://example.com/hook"}},
        {"name": "Other"},
    ),
    ("/monitors", "monitor_id", {"monitor_id": "backup", "name": "b", "type": "interval", "spec": 60}, {"name": "c"}),
]


@pytest.mark.parametrize(("path", "key", "body", "change"), THINGS)
async def test_the_life_of_a_thing(
    inside: Client, path: str, key: str, body: dict[str, Any], change: dict[str, Any]
) -> None:
    made = await created(inside, path, body)
    address = f"{API}{path}/{made[key]}"
    found = await inside.write.get(address)
    assert found.json() == made
    seen = found.headers["etag"]
    assert (await inside.read.get(address, headers={"If-None-Match": seen})).status_code == 304
    assert [one[key] for one in (await inside.read.get(API + path)).json()["items"]] == [made[key]]
    changed = await inside.write.patch(address, json=change, headers={"If-Match": seen})
    assert changed.status_code == 200, changed.text
    assert changed.json()["name"] == change["name"]
    late = await inside.write.patch(address, json=change, headers={"If-Match": seen})
    assert late.status_code == 412
    assert (await inside.write.delete(address, headers={"If-Match": seen})).status_code == 412
    assert (await inside.write.patch(address, json={"nmae": "x"})).json()["field"] == "nmae"
    other = await inside.with_key("other", "admin")
    assert (await other.get(API + path)).json()["items"] == []
    for answer in (await other.get(address), await other.patch(address, json=change), await other.delete(address)):
        assert answer.status_code == 404
    assert (await inside.write.delete(address)).status_code == 204
    assert (await inside.read.get(address)).status_code == 404


@pytest.mark.parametrize(("path", "key", "body"), [one[:3] for one in THINGS])
async def test_created_once_under_one_key(inside: Client, path: str, key: str, body: dict[str, Any]) -> None:
    anonymous = {name: value for name, value in body.items() if name != key}
    answers = [await inside.write.post(API + path, json=anonymous, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert answers[0].status_code == 201, answers[0].text
    assert answers[0].json() == answers[1].json()
    assert len((await inside.read.get(API + path)).json()["items"]) == 1


# --- quiet hours ------------------------------------------------------------------------------------------------------


async def test_quiet_hours_in_use_stay(inside: Client) -> None:
    await created(inside, "/quiet-hours", NIGHTS)
    body = {"type": "cron", "spec": "0 9 * * *", "action": ACTION, "quiet_hours_policy_id": "nights"}
    await created(inside, "/schedules", body)
    assert (await inside.write.delete(f"{API}/quiet-hours/nights")).status_code == 409


@pytest.mark.parametrize(
    ("window", "field"),
    [
        ({"weekdays": [7]}, "windows.0.weekdays.0"),
        ({"to": "25:00"}, "windows[0].to"),
        ({"timezone": "Nowhere"}, "windows[0].timezone"),
        ({"untill": "x"}, "windows.0.untill"),
    ],
)
async def test_a_window_that_is_wrong_is_named(inside: Client, window: dict[str, Any], field: str) -> None:
    body = {**NIGHTS, "windows": [{**NIGHTS["windows"][0], **window}]}  # type: ignore[dict-item]  # a list of objects
    answer = await inside.write.post(f"{API}/quiet-hours", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, field)


# --- secrets ----------------------------------------------------------------------------------------------------------


async def test_a_secret_goes_in_and_never_comes_out(inside: Client) -> None:
    first = await inside.write.put(f"{API}/secrets/TOKEN", json={"value": SECRET})
    assert first.status_code == 200, first.text
    second = await inside.write.put(f"{API}/secrets/TOKEN", json={"value": SECRET + "2"})
    assert (first.json()["version"], second.json()["version"]) == (1, 2)
    listed = await inside.admin.get(f"{API}/secrets")
    assert [one["name"] for one in listed.json()["items"]] == ["TOKEN"]
    audit = await inside.admin.get(f"{API}/audit")
    for answer in (first, second, listed, audit):
        assert SECRET not in answer.text
    assert (await inside.write.delete(f"{API}/secrets/TOKEN")).status_code == 204
    assert (await inside.write.delete(f"{API}/secrets/TOKEN")).status_code == 404


@pytest.mark.parametrize(
    "body",
    [{"valeu": SECRET}, {"value": SECRET, "more": SECRET}, {"value": [SECRET]}, {"value": SECRET * 1_000}, SECRET],
)
async def test_a_complaint_does_not_repeat_a_secret(inside: Client, body: Any) -> None:
    answer = await inside.write.put(f"{API}/secrets/TOKEN", json=body)
    assert answer.status_code == 422
    assert SECRET not in answer.text


async def test_a_complaint_does_not_repeat_the_config_of_a_channel(inside: Client) -> None:
    body = {"name": "x", "kind": "slack", "config": {"url": f"http://{SECRET}"}, "conf": {"url": SECRET}}
    answer = await inside.write.post(f"{API}/channels", json=body)
    assert answer.status_code == 422
    assert SECRET not in answer.text


async def test_secrets_of_a_team_are_its_own(inside: Client) -> None:
    await inside.write.put(f"{API}/secrets/TOKEN", json={"value": SECRET})
    other = await inside.with_key("other", "admin")
    assert (await other.get(f"{API}/secrets")).json()["items"] == []
    assert (await other.delete(f"{API}/secrets/TOKEN")).status_code == 404


async def test_only_an_admin_of_the_first_team_turns_the_master_key(inside: Client) -> None:
    await inside.write.put(f"{API}/secrets/TOKEN", json={"value": SECRET})
    other = await inside.with_key("other", "admin")
    assert (await inside.write.post(f"{API}/master-key/rotation")).status_code == 403
    assert (await other.post(f"{API}/master-key/rotation")).status_code == 403
    done = await inside.admin.post(f"{API}/master-key/rotation")
    assert (done.status_code, done.json()) == (200, {"rewrapped": 0, "unreadable": 0})


async def test_signing_keys_are_shown_replaced_and_dropped(inside: Client) -> None:
    await created(inside, "/schedules", {"schedule_id": "s", "type": "cron", "spec": "0 9 * * *", "action": ACTION})
    address = f"{API}/schedules/s/signing-keys"
    assert (await inside.read.get(address)).status_code == 403
    (first,) = (await inside.write.get(address)).json()["items"]
    assert first["key"].startswith("whsec_")
    new, old = (await inside.write.post(address, json={"overlap_seconds": 60})).json()["items"]
    assert (old["key"], new["until"]) == (first["key"], None)
    assert old["until"] is not None
    newest, *older = (await inside.write.post(address)).json()["items"]  # a day, without a body
    assert [one["key"] for one in older] == [new["key"], old["key"]]
    assert newest["until"] is None
    assert (await inside.write.delete(address)).status_code == 204
    assert (await inside.write.delete(address)).status_code == 404


# --- channels and rules -----------------------------------------------------------------------------------------------


async def test_a_channel_hides_its_secrets_and_says_what_a_test_came_to(inside: Client) -> None:
    config = {"url": "https://127.0.0.1/hook", "headers": {"X-Token": SECRET}}
    body = {"channel_id": "ops", "name": "Ops", "kind": "webhook", "config": config}
    made = await created(inside, "/channels", body)
    assert made["config"]["headers"] == {"X-Token": "***"}
    tested = await inside.write.post(f"{API}/channels/ops/test")
    assert tested.status_code == 200
    assert tested.json()["delivered"] is False
    assert "refused-by-egress" in tested.json()["answer"]
    keys = (await inside.write.get(f"{API}/channels/ops/signing-keys")).json()["items"]
    assert keys[0]["key"].startswith("whsec_")


async def test_rules_name_channels_of_their_team(inside: Client) -> None:
    await created(inside, "/channels", THINGS[1][2])
    rule = {"rule_id": "r", "name": "r", "on": ["failed", "late"], "channels": ["ops"], "late_seconds": 60}
    made = await created(inside, "/rules", rule)
    assert (made["on"], made["late_seconds"]) == (["failed", "late"], 60)
    assert (await inside.write.delete(f"{API}/channels/ops")).status_code == 409
    address = f"{API}/rules/r"
    seen = (await inside.read.get(address)).headers["etag"]
    changed = await inside.write.patch(address, json={"enabled": False}, headers={"If-Match": seen})
    assert changed.json()["enabled"] is False
    assert (await inside.write.patch(address, json={"enabled": True}, headers={"If-Match": seen})).status_code == 412
    other = await inside.with_key("other", "admin")
    assert (await other.get(address)).status_code == 404
    foreign = await other.post(f"{API}/rules", json={**rule, "rule_id": "x"})
    assert (foreign.status_code, foreign.json()["field"]) == (422, "channels")
    assert (await inside.write.delete(address)).status_code == 204
    assert (await inside.read.get(f"{API}/rules")).json()["items"] == []


# --- monitors ---------------------------------------------------------------------------------------------------------


async def test_the_address_of_pings_is_for_those_who_may_write(inside: Client) -> None:
    """Whoever has it may ping; a key that may only read must not learn it."""
    made = await created(inside, "/monitors", THINGS[2][2])
    token = made["ping_path"].removeprefix("/ping/")
    assert len(token) > 20
    for path in ("/monitors", "/monitors/backup", "/monitors/backup/pings", "/audit"):
        seen = await inside.read.get(API + path)
        assert seen.status_code == 200
        assert token not in seen.text
    assert (await inside.read.get(f"{API}/monitors/backup")).json() == {**made, "ping_path": None}
    assert (await inside.write.get(f"{API}/monitors")).json()["items"] == [made]


async def test_a_monitor_is_pinged_without_a_key(inside: Client) -> None:
    made = await created(inside, "/monitors", THINGS[2][2])
    assert made["status"] == "new"
    assert (await inside.anonymous.post(made["ping_path"], content=b"done")).status_code == 200
    address = f"{API}/monitors/backup"
    assert (await inside.read.get(address)).json()["status"] == "up"
    (ping,) = (await inside.read.get(f"{address}/pings")).json()["items"]
    assert (ping["kind"], ping["body"], ping["ran_for_seconds"]) == ("success", "done", None)
    (flip,) = (await inside.read.get(f"{address}/flips")).json()["items"]
    assert (flip["was"], flip["status"]) == ("new", "up")
    assert (await inside.write.post(f"{address}/pause")).json()["status"] == "paused"
    assert (await inside.write.post(f"{address}/resume")).json()["status"] != "paused"
    renewed = (await inside.write.post(f"{address}/renew-token")).json()
    assert renewed["ping_path"] != made["ping_path"]
    assert (await inside.anonymous.get(made["ping_path"])).status_code == 404
    other = await inside.with_key("other", "admin")
    for path in ("pings", "flips"):
        assert (await other.get(f"{address}/{path}")).status_code == 404
    for path in ("pause", "resume", "renew-token"):
        assert (await other.post(f"{address}/{path}")).status_code == 404


# --- dead letters and audit -------------------------------------------------------------------------------------------


async def test_dead_letters_of_a_team(inside: Client) -> None:
    assert (await inside.read.get(f"{API}/dead-letters")).json() == {"items": [], "next_cursor": None}
    assert (await inside.read.get(f"{API}/dead-letters", params={"schedule_id": "x"})).status_code == 404
    for verb in ("revive", "drop"):
        assert (await inside.write.post(f"{API}/dead-letters/{verb}", json={"numbers": [1]})).json() == {"found": 0}
        wrong = await inside.write.post(f"{API}/dead-letters/{verb}", json={"numbers": ["1"]})
        assert (wrong.status_code, wrong.json()["field"]) == (422, "numbers.0")


async def test_the_audit_is_of_the_team_and_comes_in_pages(inside: Client) -> None:
    for number in range(3):
        await created(inside, "/quiet-hours", {**NIGHTS, "policy_id": f"n{number}"})
    query: dict[str, Any] = {"event": "quiet_hours.created", "limit": 2}
    first = (await inside.read.get(f"{API}/audit", params=query)).json()
    rest = (await inside.read.get(f"{API}/audit", params={**query, "cursor": first["next_cursor"]})).json()
    assert [one["subject"] for one in first["items"] + rest["items"]] == ["n2", "n1", "n0"]
    turned = (await inside.read.get(f"{API}/audit", params={**query, "order": "oldest"})).json()
    assert [one["subject"] for one in turned["items"]] == ["n0", "n1"]
    rest = await inside.read.get(f"{API}/audit", params={**query, "order": "oldest", "cursor": turned["next_cursor"]})
    assert [one["subject"] for one in rest.json()["items"]] == ["n2"]
    refused = await inside.read.get(f"{API}/audit", params={"order": "up"})
    assert (refused.status_code, refused.json()["field"]) == (422, "order")
    other = await inside.with_key("other", "read")
    assert (await other.get(f"{API}/audit", params=query)).json()["items"] == []


# --- plans ------------------------------------------------------------------------------------------------------------

FILE = """
name = "billing"
[schedules.report]
cron = "0 9 * * 1-5"
action = { kind = "callback", name = "report" }
"""


async def test_a_plan_is_made_and_applied_and_empty_then(inside: Client) -> None:
    planned = (await inside.read.post(f"{API}/plan", json={"text": FILE})).json()
    assert (planned["created"], planned["empty"]) == (1, False)
    assert planned["schedules"][0]["id"] == "report"
    body = {"text": FILE, "fingerprint": planned["fingerprint"]}
    applied = await inside.write.post(f"{API}/apply", json=body)
    assert applied.status_code == 200, applied.text
    assert applied.json()["created"] == 1
    assert (await inside.read.get(f"{API}/schedules/report")).json()["managed_by"] == "file:billing"
    assert (await inside.read.post(f"{API}/plan", json={"text": FILE})).json()["empty"] is True
    outdated = await inside.write.post(f"{API}/apply", json=body)
    assert (outdated.status_code, outdated.json()["field"]) == (409, "fingerprint")


async def test_deleting_has_to_be_allowed(inside: Client) -> None:
    await inside.write.post(f"{API}/apply", json={"text": FILE})
    empty = 'name = "billing"\n'
    assert (await inside.write.post(f"{API}/apply", json={"text": empty})).status_code == 409
    done = await inside.write.post(f"{API}/apply", json={"text": empty, "allow_delete": True})
    assert done.json()["deleted"] == 1


async def test_all_problems_of_a_file_are_told_with_their_lines(inside: Client) -> None:
    wrong = FILE.replace("0 9 * * 1-5", "0 99 * * *") + "colour = 3\n"
    answer = await inside.read.post(f"{API}/plan", json={"text": wrong})
    assert answer.status_code == 422
    assert len(answer.json()["errors"]) == 2
    assert "4:8" in answer.json()["errors"][0]["reason"]


async def test_the_file_of_another_team_is_another(inside: Client) -> None:
    await inside.write.post(f"{API}/apply", json={"text": FILE})
    other = await inside.with_key("other", "write")
    theirs = FILE.replace("schedules.report", "schedules.theirs")
    planned = (await other.post(f"{API}/plan", json={"text": theirs})).json()
    assert (planned["created"], planned["deleted"]) == (1, 0)


async def test_commands_that_are_off_are_not_applied(inside: Client) -> None:
    text = FILE.replace('{ kind = "callback", name = "report" }', '{ kind = "command", argv = ["/bin/true"] }')
    answer = await inside.write.post(f"{API}/apply", json={"text": text})
    assert answer.status_code == 422
    assert (await inside.read.get(f"{API}/schedules")).json()["items"] == []
