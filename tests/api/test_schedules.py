"""Schedules over HTTP: created, listed, changed, paused, triggered and deleted, and who may see them."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from noonbell.declarative import Scheduler
from noonbell.ports import ScheduleChange
from tests.api.conftest import Client

URL = "/api/v1/schedules"
BULK = "/api/v1/bulk/schedules"
ACTION = {"kind": "callback", "name": "report"}
DAILY: dict[str, Any] = {"type": "cron", "spec": "0 9 * * *", "action": ACTION}


async def made(client: Client, **fields: Any) -> dict[str, Any]:
    answer = await client.write.post(URL, json={**DAILY, **fields})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_schedule_is_created_and_found(inside: Client) -> None:
    answer = await inside.write.post(
        URL, json={**DAILY, "schedule_id": "report", "name": "Report", "timezone": "Europe/Kyiv", "tags": ["a", "b"]}
    )
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == "/api/v1/schedules/report"
    told = answer.json()
    assert told["schedule_id"] == "report"
    assert told["timezone"] == "Europe/Kyiv"
    assert told["team"] == "default"
    assert "09:00" in told["description"]
    assert told["tags"] == ["a", "b"]
    found = await inside.read.get(f"{URL}/report")
    assert found.status_code == 200
    assert len(told.pop("warnings")) == 1, "its callback; of a new schedule alone"
    assert found.json() == told | {"warnings": []}
    assert found.headers["etag"] == answer.headers["etag"]


async def test_what_is_left_out_has_its_default_and_the_id_is_made_up(inside: Client) -> None:
    told = await made(inside)
    assert len(told["schedule_id"]) == 32
    assert told["name"] == told["schedule_id"]
    assert (told["enabled"], told["catch_up_policy"], told["overlap"]) == (True, "skip", "coalesce")


async def test_another_dialect_is_told_as_it_was_understood(inside: Client) -> None:
    told = await made(inside, spec="@daily")
    assert (told["spec"], told["understood"]) == ("0 0 * * *", "0 0 * * *")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"spec": "61 * * * *"}, "spec"),
        ({"type": "sometimes"}, "type"),
        ({"timezone": "Kyiv"}, "timezone"),
        ({"action": {"kind": "dance"}}, "action.kind"),
        ({"action": {"kind": "http", "url": "ftp://example.com", "method": "GET"}}, "action.url"),
        ({"catch_up_cap": 0}, "catch_up_cap"),
        ({"enabled": "yes"}, "enabled"),
        ({"retry": {"attempts": 0}}, "retry.attempts"),
        ({"nmae": "x"}, "nmae"),
        ({"quiet_hours_policy_id": "nights"}, "quiet_hours_policy_id"),
        ({"schedule_id": "a/b"}, "schedule_id"),
        ({"name": None}, "name"),
    ],
)
async def test_a_complaint_names_the_field(inside: Client, fields: dict[str, Any], field: str) -> None:
    answer = await inside.write.post(URL, json={**DAILY, **fields})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["field"] == field


async def test_a_taken_id_or_name_is_a_conflict(inside: Client) -> None:
    await made(inside, schedule_id="one", name="One")
    for fields, field in (({"schedule_id": "one"}, "schedule_id"), ({"name": "One"}, "name")):
        answer = await inside.write.post(URL, json={**DAILY, **fields})
        assert answer.status_code == 409
        assert answer.json()["field"] == field


# --- pages and filters ------------------------------------------------------------------------------------------------


async def names(client: httpx2.AsyncClient, **query: Any) -> list[str]:
    answer = await client.get(URL, params=query)
    assert answer.status_code == 200, answer.text
    return [one["name"] for one in answer.json()["items"]]


async def test_pages_hold_together(inside: Client) -> None:
    many = [{**DAILY, "name": f"s{number}"} for number in range(7)]
    answer = await inside.write.post(BULK, json={"schedules": many})
    assert answer.status_code == 201, answer.text
    assert len(answer.json()["schedule_ids"]) == 7
    seen: list[str] = []
    cursor = None
    for _ in range(4):
        query = {"limit": 2} if cursor is None else {"limit": 2, "cursor": cursor}
        page = (await inside.read.get(URL, params=query)).json()
        seen += [one["name"] for one in page["items"]]
        cursor = page["next_cursor"]
    assert seen == [f"s{number}" for number in range(7)]
    assert cursor is None


async def test_filters(inside: Client) -> None:
    await made(inside, name="Cron One", tags=["x"])
    await made(inside, name="every", type="interval", spec="60")
    await made(inside, name="paused", enabled=False)
    assert await names(inside.read, tag="x") == ["Cron One"]
    assert await names(inside.read, type="interval") == ["every"]
    assert await names(inside.read, enabled="false") == ["paused"]
    assert await names(inside.read, name_contains="cron") == ["Cron One"]
    assert await names(inside.read, managed_by="file:x") == []


@pytest.mark.parametrize("query", ["enabled=yes", "enabeld=true", "limit=0", "limit=1001", "cursor=x", "type=daily"])
async def test_a_query_that_is_not_understood_is_refused(inside: Client, query: str) -> None:
    answer = await inside.read.get(f"{URL}?{query}")
    assert answer.status_code == 422
    assert answer.json()["field"] == query.partition("=")[0]


async def test_bulk_names_the_place_of_what_is_wrong_and_creates_nothing(inside: Client) -> None:
    answer = await inside.write.post(BULK, json={"schedules": [DAILY, {**DAILY, "spec": "x"}]})
    assert answer.status_code == 422
    assert "[1].spec" in answer.json()["detail"]
    assert await names(inside.read) == []


# --- changing ---------------------------------------------------------------------------------------------------------


async def test_a_change_leaves_the_rest_as_it_is(inside: Client) -> None:
    before = await made(inside, schedule_id="one", tags=["a"])
    answer = await inside.write.patch(f"{URL}/one", json={"spec": "30 8 * * *"})
    assert answer.status_code == 200, answer.text
    after = answer.json()
    assert after["spec"] == "30 8 * * *"
    assert after["epoch"] == before["epoch"] + 1
    assert {key: after[key] for key in ("tags", "action", "name")} == {
        key: before[key] for key in ("tags", "action", "name")
    }


async def test_the_type_stays(inside: Client) -> None:
    await made(inside, schedule_id="one")
    answer = await inside.write.patch(f"{URL}/one", json={"type": "interval"})
    assert answer.status_code == 422
    assert answer.json()["field"] == "type"


async def test_if_match_refuses_what_was_seen_before_somebody_else_changed_it(inside: Client) -> None:
    await made(inside, schedule_id="one")
    seen = (await inside.read.get(f"{URL}/one")).headers["etag"]
    first = await inside.write.patch(f"{URL}/one", json={"name": "first"}, headers={"If-Match": seen})
    assert first.status_code == 200
    assert first.headers["etag"] != seen
    for request in (
        inside.write.patch(f"{URL}/one", json={"name": "second"}, headers={"If-Match": seen}),
        inside.write.post(f"{URL}/one/pause", headers={"If-Match": seen}),
        inside.write.delete(f"{URL}/one", headers={"If-Match": seen}),
    ):
        assert (await request).status_code == 412
    assert (await inside.read.get(f"{URL}/one")).json()["name"] == "first"
    gone = await inside.write.delete(f"{URL}/one", headers={"If-Match": first.headers["etag"]})
    assert gone.status_code == 204


async def test_an_edit_between_the_look_and_the_change_is_seen(inside: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The condition is held to inside the transaction, not only at the look before it."""
    await made(inside, schedule_id="one")
    seen = (await inside.read.get(f"{URL}/one")).headers["etag"]
    store = inside.service.store
    apply = store.schedules.apply

    async def slipped_in(change: ScheduleChange) -> list[int]:
        monkeypatch.undo()
        await inside.service.schedules.update("one", name="slipped in")
        return await apply(change)

    monkeypatch.setattr(store.schedules, "apply", slipped_in)
    answer = await inside.write.patch(f"{URL}/one", json={"name": "mine"}, headers={"If-Match": seen})
    assert answer.status_code == 412
    assert (await inside.read.get(f"{URL}/one")).json()["name"] == "slipped in"


async def test_if_none_match_spares_the_answer(inside: Client) -> None:
    await made(inside, schedule_id="one")
    first = await inside.read.get(f"{URL}/one")
    again = await inside.read.get(f"{URL}/one", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert (await inside.read.get(f"{URL}/one", headers={"If-None-Match": '"other"'})).status_code == 200


async def test_pause_and_resume(inside: Client) -> None:
    await made(inside, schedule_id="one")
    paused = (await inside.write.post(f"{URL}/one/pause")).json()
    assert (paused["enabled"], paused["next_run_at"]) == (False, None)
    resumed = (await inside.write.post(f"{URL}/one/resume")).json()
    assert resumed["enabled"] is True
    assert resumed["next_run_at"] is not None


async def test_many_are_changed_together(inside: Client) -> None:
    for number in range(3):
        await made(inside, schedule_id=f"s{number}")
    answer = await inside.write.patch(BULK, json={"schedule_ids": ["s0", "s2", "s0"], "changes": {"enabled": False}})
    assert (answer.status_code, answer.json()) == (200, {"changed": 2})
    assert [one["enabled"] for one in (await inside.read.get(URL)).json()["items"]] == [False, True, False]


async def test_a_deleted_schedule_is_gone_and_its_id_with_it(inside: Client) -> None:
    await made(inside, schedule_id="one")
    assert (await inside.write.delete(f"{URL}/one")).status_code == 204
    assert (await inside.read.get(f"{URL}/one")).status_code == 404
    assert (await inside.write.delete(f"{URL}/one")).status_code == 404
    again = await inside.write.post(URL, json={**DAILY, "schedule_id": "one"})
    assert again.status_code == 409


async def test_the_audit_names_the_key(inside: Client) -> None:
    await made(inside, schedule_id="one")
    events = (await inside.read.get("/api/v1/audit", params={"subject": "one"})).json()["items"]
    assert [one["event"] for one in events] == ["schedule.created"]
    assert events[0]["actor"].startswith("key:")


async def test_the_audit_has_times_and_no_microseconds(inside: Client) -> None:
    payload = {"mine": 1_700_000_000_000_000}
    await made(inside, schedule_id="one", payload=payload)
    await inside.write.post(f"{URL}/one/trigger")
    (event,) = (await inside.read.get("/api/v1/audit", params={"event": "schedule.triggered"})).json()["items"]
    run_for = event["detail"]["run_for"]
    assert run_for.endswith("Z")
    assert abs(datetime.fromisoformat(run_for) - datetime.fromisoformat(event["at"])) < timedelta(seconds=60)
    # what somebody has put in himself stays as it is
    (event,) = (await inside.read.get("/api/v1/audit", params={"event": "schedule.created"})).json()["items"]
    assert "1700000000000000" in json.dumps(event["detail"])


async def test_an_id_with_a_slash_is_reached_where_it_is_escaped(live: Client) -> None:
    """The API gives out no such ids; files and programs may."""
    await live.service.schedules.create(**DAILY, schedule_id="a/b c", name="slashed")
    address = f"{URL}/a%2Fb%20c"
    assert (await live.read.get(address)).json()["schedule_id"] == "a/b c"
    assert (await live.read.get(f"{address}/why")).status_code == 200
    run_id = (await live.write.post(f"{address}/trigger")).json()["run_id"]
    found = await live.read.get(f"/api/v1/runs/{quote(run_id, safe='')}")
    assert found.json()["schedule_id"] == "a/b c"
    assert (await live.read.get(f"{URL}/a/b%20c")).status_code == 404


# --- teams ------------------------------------------------------------------------------------------------------------


async def test_another_team_sees_nothing_and_changes_nothing(inside: Client) -> None:
    await made(inside, schedule_id="one")
    other = await inside.with_key("other", "admin")
    assert await names(other) == []
    for method, path, body in (
        ("GET", "/one", None),
        ("PATCH", "/one", {"name": "x"}),
        ("DELETE", "/one", None),
        ("POST", "/one/pause", None),
        ("POST", "/one/trigger", None),
        ("GET", "/one/runs", None),
        ("GET", "/one/occurrences", None),
        ("GET", "/one/statistics", None),
        ("GET", "/one/preview", None),
        ("GET", "/one/why", None),
        ("GET", "/one/verify", None),
        ("GET", "/one/signing-keys", None),
    ):
        answer = await other.request(method, URL + path, json=body)
        assert answer.status_code == 404, (method, path, answer.text)
    many = await other.patch(BULK, json={"schedule_ids": ["one"], "changes": {"enabled": False}})
    assert many.status_code == 404
    assert (await inside.read.get(f"{URL}/one")).json()["enabled"] is True


# --- idempotency ------------------------------------------------------------------------------------------------------


async def test_the_same_key_and_body_create_once(inside: Client) -> None:
    headers = {"Idempotency-Key": "k1"}
    first = await inside.write.post(URL, json=DAILY, headers=headers)
    second = await inside.write.post(URL, json=DAILY, headers=headers)
    assert first.status_code == second.status_code == 201
    assert first.json() == second.json()
    assert second.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert second.headers["etag"] == first.headers["etag"]
    assert len(await names(inside.read)) == 1


async def test_another_body_under_the_same_key_is_refused(inside: Client) -> None:
    headers = {"Idempotency-Key": "k1"}
    await inside.write.post(URL, json=DAILY, headers=headers)
    other = await inside.write.post(URL, json={**DAILY, "spec": "0 10 * * *"}, headers=headers)
    assert other.status_code == 422
    assert other.json()["field"] == "Idempotency-Key"
    assert len(await names(inside.read)) == 1


async def test_a_key_belongs_to_whoever_uses_it(inside: Client) -> None:
    headers = {"Idempotency-Key": "k1"}
    other = await inside.with_key("other", "write")
    one = (await inside.write.post(URL, json=DAILY, headers=headers)).json()
    two = (await other.post(URL, json=DAILY, headers=headers)).json()
    assert (one["team"], two["team"]) == ("default", "other")


async def test_a_refusal_is_not_kept(inside: Client) -> None:
    headers = {"Idempotency-Key": "k1"}
    body = {**DAILY, "quiet_hours_policy_id": "nights"}
    assert (await inside.write.post(URL, json=body, headers=headers)).status_code == 422
    await inside.service.schedules.create_quiet_hours(
        "nights", [{"weekdays": [1], "from": "22:00", "to": "23:00", "timezone": "UTC"}], policy_id="nights"
    )
    assert (await inside.write.post(URL, json=body, headers=headers)).status_code == 201


async def test_two_at_once_create_once(inside: Client) -> None:
    headers = {"Idempotency-Key": "k1"}
    answers = await asyncio.gather(*(inside.write.post(URL, json=DAILY, headers=headers) for _ in range(5)))
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len(await names(inside.read)) == 1


# --- declared tasks ---------------------------------------------------------------------------------------------------


async def test_declared_tasks_are_seen_and_not_changed(inside: Client) -> None:
    async def nothing() -> None: ...

    await made(inside, name="durable")
    scheduler = Scheduler(inside.service.store, name="app")
    await scheduler.initialize([("task", "0 9 * * *", nothing, timedelta(seconds=1))])
    try:
        await made(inside, name="later")
        assert await names(inside.read) == ["durable", "task", "later"]
        assert await names(inside.read, limit=2) == ["durable", "task"]
        assert await names(inside.read, managed_by="scheduler:app") == ["task"]
        task = (await inside.read.get(URL, params={"name_contains": "task"})).json()["items"][0]
        assert (task["editable"], task["action"]) == (False, {"kind": "callback", "name": "task"})
        address = f"{URL}/{task['schedule_id']}"
        assert (await inside.read.get(address)).json()["name"] == "task"
        assert (await inside.read.get(f"{address}/why")).status_code == 200
        for answer in (
            await inside.write.patch(address, json={"name": "x"}),
            await inside.write.delete(address),
            await inside.write.post(f"{address}/pause"),
            await inside.write.post(f"{address}/trigger"),
        ):
            assert answer.status_code == 409
            assert answer.json()["field"] == "managed_by"
    finally:
        await scheduler.stop()


async def test_creation_and_trigger_warn_of_what_stands_in_the_way(inside: Client) -> None:
    http = {**DAILY, "action": {"kind": "http", "url": "https://example.com/"}}
    answer = await inside.write.post(URL, json={**http, "schedule_id": "one"})
    assert answer.json()["warnings"] == []
    callback = {**DAILY, "schedule_id": "two", "action": {"kind": "callback", "name": "report"}}
    (told,) = (await inside.write.post(URL, json=callback)).json()["warnings"]
    assert told.startswith('No callback "report" is registered here')
    await inside.service.schedules.stop()
    (told,) = (await inside.write.post(URL, json={**http, "schedule_id": "three"})).json()["warnings"]
    assert told.startswith('No engine of the lane "default" is up')
    (told,) = (await inside.write.post(f"{URL}/one/trigger")).json()["warnings"]
    assert told.startswith('No engine of the lane "default" is up')


async def test_bulk_creation_gives_each_kind_of_warning_once(inside: Client) -> None:
    night_hours = {"weekdays": list(range(7)), "from": "22:00", "to": "06:00", "timezone": "UTC"}
    night = {"name": "n", "policy_id": "nights", "windows": [night_hours]}
    assert (await inside.write.post("/api/v1/quiet-hours", json=night)).status_code == 201
    callback = {**DAILY, "action": {"kind": "callback", "name": "report"}}
    message = {**DAILY, "payload": {}, "action": {"kind": "message", "to": "nowhere"}}
    late = {**DAILY, "type": "one_shot", "spec": "2099-01-01T23:00Z", "quiet_hours_policy_id": "nights"}
    http = {**DAILY, "action": {"kind": "http", "url": "https://example.com/"}}

    async def warnings(prefix: str, *many: dict[str, Any]) -> list[str]:
        given = [{**one, "name": f"{prefix}{place}"} for place, one in enumerate(many)]
        answer = await inside.write.post(BULK, json={"schedules": given})
        assert answer.status_code == 201, answer.text
        return list(answer.json()["warnings"])

    assert await warnings("a", http) == []
    alone = await inside.write.post(URL, json={**callback, "schedule_id": "alone"})
    assert await warnings("b", callback, http) == alone.json()["warnings"], "of one the same text"
    many, target, quiet = await warnings("c", *[callback] * 20, message, {**late, "action": http["action"]})
    assert many.startswith('No callback "report" is registered here')
    assert many.endswith('The same for 19 more schedules: "c1", "c2", "c3" and 16 others.')
    assert target.startswith('No target named "nowhere" is declared')
    assert 'inside its quiet hours "nights"' in quiet
    await inside.service.schedules.stop()
    (engine,) = await warnings("d", http, http)
    assert engine.startswith('No engine of the lane "default" is up')
    assert engine.endswith('The same for 1 more schedule: "d1".')
