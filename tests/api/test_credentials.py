"""Credentials that are written into an action: a key that may only read sees them nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from noonbell.actions.http.credentials import without_credentials
from noonbell.api.app import PREFIX
from tests.api.conftest import Client
from tests.api.test_runs import ended

PLAIN = "tok-en-in-plain"
ACTIONS: list[dict[str, Any]] = [
    {"url": "https://example.org/", "headers": {"Authorization": f"Bearer {PLAIN}"}},
    {"url": "https://example.org/", "headers": {"x-api-key": PLAIN}},
    {"url": "https://example.org/", "auth": {"basic": {"user": "ann", "password": PLAIN}}},
    {"url": f"https://ann:{PLAIN}@example.org/"},
    {"url": f"https://{PLAIN}@example.org/"},
    {"url": f"https://example.org/?api_key={PLAIN}"},
    {"url": "https://example.org/", "query": {"access_token": PLAIN}},
    {"url": "https://example.org/", "headers": {"X-Auth-Token": PLAIN}},
]
FILE = """
name = "billing"
[schedules.filed]
every = "1h"
action = {{ kind = "http", url = "https://example.org/", headers = {{ Authorization = "Bearer {}" }} }}
"""


@pytest.mark.parametrize("action", ACTIONS)
async def test_no_answer_shows_it_to_a_key_that_may_only_read(inside: Client, action: dict[str, Any]) -> None:
    made = await inside.write.post(
        f"{PREFIX}/schedules",
        json={"schedule_id": "one", "type": "interval", "spec": "1h", "action": {"kind": "http", **action}},
    )
    assert made.status_code == 201, made.text
    after = {"kind": "http", "url": "https://example.org/", "headers": {"Cookie": f"a={PLAIN}"}}
    assert (await inside.write.patch(f"{PREFIX}/schedules/one", json={"action": after})).status_code == 200
    before = await inside.read.get(f"{PREFIX}/audit?event=schedule.updated")
    assert before.json()["items"][0]["detail"]["before"]["action"]["kind"] == "http"
    assert (
        await inside.write.patch(f"{PREFIX}/schedules/one", json={"action": made.json()["action"]})
    ).status_code == 200
    for path in ("/schedules/one", "/schedules", "/audit"):
        answer = await inside.read.get(f"{PREFIX}{path}")
        assert answer.status_code == 200
        assert PLAIN not in answer.text, path
        assert "***" in answer.text
        assert PLAIN in (await inside.write.get(f"{PREFIX}{path}")).text, "who may change it sees what there is"


async def test_a_plan_does_not_show_it(inside: Client) -> None:
    applied = await inside.write.post(f"{PREFIX}/apply", json={"text": FILE.format(PLAIN)})
    assert applied.status_code == 200, applied.text
    changed = {"text": FILE.format("another-in-plain")}
    told = await inside.read.post(f"{PREFIX}/plan", json=changed)
    assert (told.status_code, told.json()["changed"]) == (200, 1)
    assert "in-plain" not in told.text
    assert PLAIN in (await inside.write.post(f"{PREFIX}/plan", json=changed)).text


@pytest.mark.parametrize("missing", [False, True], ids=["requested", "not sent"])
@pytest.mark.parametrize("action", [*ACTIONS, {"url": "https://example.org/", "headers": {"Cookie": f"a={PLAIN}"}}])
async def test_a_run_does_not_show_it_to_any_key(inside: Client, action: dict[str, Any], missing: bool) -> None:
    """Egress refuses the address, or a secret is missing: the request is kept as after an answer."""
    action = {**action, "url": action["url"].replace("example.org", "127.0.0.1")}
    if missing:
        action["headers"] = {**action.get("headers", {}), "X-More": "${secrets.MISSING}"}
    body = {"schedule_id": "one", "type": "cron", "spec": "0 0 1 1 *", "action": {"kind": "http", **action}}
    assert (await inside.write.post(f"{PREFIX}/schedules", json=body)).status_code == 201
    run_id = (await inside.write.post(f"{PREFIX}/schedules/one/trigger?retry=false")).json()["run_id"]
    run = await ended(inside, run_id)
    detail = run["tried"][0]["detail"]
    assert detail["error"]["kind"] == ("secret" if missing else "refused-by-egress")
    assert detail["request"]["url"].startswith("https://")
    for client in (inside.read, inside.write, inside.admin):
        for path in (f"/runs/{run_id}", "/runs", "/schedules/one/runs"):
            assert PLAIN not in (await client.get(f"{PREFIX}{path}")).text, path
    assert missing or {"headers", "auth"}.isdisjoint(action) or "***" in str(detail["request"]["headers"])


def test_references_to_secrets_are_shown() -> None:
    action = {
        "url": "https://ann:${secrets.P}@example.org/?token=${secrets.T}",
        "headers": {"Authorization": "Bearer ${secrets.T}", "X-Auth-Token": "${secrets.T}"},
        "query": {"api_key": "${secrets.T}"},
    }
    assert without_credentials({"after": [{"action": action}]}) == {"after": [{"action": action}]}
