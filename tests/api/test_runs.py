"""What became of schedules, over HTTP: runs, occurrences, statistics, why and verify."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from noonbell.schedules import Call
from noonbell.store.words import SCHEDULED
from tests.api.conftest import Client
from tests.patience import PATIENCE_SECONDS

URL = "/api/v1/schedules"
ACTION = {"kind": "callback", "name": "report"}


async def ended(client: Client, run_id: str) -> dict[str, Any]:
    """The run, once it has ended."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            answer = await client.read.get(f"/api/v1/runs/{run_id}")
            assert answer.status_code == 200, answer.text
            found: dict[str, Any] = answer.json()
            if found["ended_at"] is not None:
                return found
            await asyncio.sleep(0.02)


@pytest.fixture
async def triggered(inside: Client) -> str:
    """A run of the schedule `one` that was asked for and has ended."""

    async def report(call: Call) -> None:
        if call.payload == "fail":
            raise ValueError("as it was asked to")

    inside.service.schedules.register("report", report)
    body = {"schedule_id": "one", "name": "One", "type": "cron", "spec": "0 0 1 1 *", "action": ACTION}
    assert (await inside.write.post(URL, json=body)).status_code == 201
    answer = await inside.write.post(f"{URL}/one/trigger")
    assert answer.status_code == 202
    run_id: str = answer.json()["run_id"]
    await ended(inside, run_id)
    return run_id


async def test_a_triggered_run_is_told_whole(inside: Client, triggered: str) -> None:
    run = await ended(inside, triggered)
    assert (run["state"], run["kind"], run["name"], run["attempts"]) == ("succeeded", "manual", "One", 1)
    assert run["duration_seconds"] >= 0
    assert run["lateness_seconds"] is None
    assert [one["cause"] for one in run["tried"]] == ["manual"] or [one["cause"] for one in run["tried"]] == ["api"]


async def test_runs_of_one_and_of_all(inside: Client, triggered: str) -> None:
    of_one = (await inside.read.get(f"{URL}/one/runs")).json()
    of_all = (await inside.read.get("/api/v1/runs")).json()
    assert [one["run_id"] for one in of_one["items"]] == [one["run_id"] for one in of_all["items"]] == [triggered]
    none = (await inside.read.get("/api/v1/runs", params={"outcome": "failed"})).json()
    assert none["items"] == []


async def test_a_failed_run_tells_why(inside: Client, triggered: str) -> None:
    await inside.write.patch(f"{URL}/one", json={"payload": "fail"})
    run_id = (await inside.write.post(f"{URL}/one/trigger")).json()["run_id"]
    run = await ended(inside, run_id)
    assert run["state"] == "failed"
    assert "as it was asked to" in run["tried"][0]["error"]
    statistics = (await inside.read.get(f"{URL}/one/statistics")).json()
    assert (statistics["runs"], statistics["failed"], statistics["success_rate"]) == (2, 1, 0.5)
    assert statistics["last_failure"]["run_id"] == run_id
    assert set(statistics["duration"]) == {"p50_seconds", "p95_seconds"}
    first, second = [(await inside.read.get(f"{URL}/one/runs", params={"limit": 1})).json() for _ in range(2)]
    assert first == second
    rest = (await inside.read.get(f"{URL}/one/runs", params={"limit": 1, "cursor": first["next_cursor"]})).json()
    assert [one["run_id"] for one in rest["items"]] == [triggered]


async def test_the_same_key_triggers_once(inside: Client, triggered: str) -> None:
    headers = {"Idempotency-Key": "again"}
    first = (await inside.write.post(f"{URL}/one/trigger", headers=headers)).json()
    await ended(inside, first["run_id"])
    second = (await inside.write.post(f"{URL}/one/trigger", headers=headers)).json()
    assert first == second
    assert len((await inside.read.get(f"{URL}/one/runs")).json()["items"]) == 2


async def test_a_trigger_says_whether_it_is_retried_and_queued(inside: Client, triggered: str) -> None:
    retry = {"attempts": 2, "delay_seconds": 0}
    await inside.write.patch(f"{URL}/one", json={"payload": "fail", "retry": retry})
    run_id = (await inside.write.post(f"{URL}/one/trigger")).json()["run_id"]
    assert [one["cause"] for one in (await ended(inside, run_id))["tried"]] == ["api", "retry"]
    given = {"retry": False, "queue": True}
    first, second = [(await inside.write.post(f"{URL}/one/trigger", json=given)).json()["run_id"] for _ in range(2)]
    assert [(await ended(inside, one))["attempts"] for one in (first, second)] == [1, 1]
    refused = await inside.write.post(f"{URL}/one/trigger", json={"queue": "yes"})
    assert refused.status_code == 422
    assert "queue" in refused.text


async def test_a_deleted_schedule_keeps_its_runs(inside: Client, triggered: str) -> None:
    await inside.write.delete(f"{URL}/one")
    assert len((await inside.read.get(f"{URL}/one/runs")).json()["items"]) == 1
    assert (await inside.read.get(f"/api/v1/runs/{triggered}")).status_code == 200
    assert "deleted" in (await inside.read.get(f"{URL}/one/why")).json()["text"]


async def test_runs_of_another_team_do_not_exist(inside: Client, triggered: str) -> None:
    other = await inside.with_key("other", "admin")
    assert (await other.get(f"/api/v1/runs/{triggered}")).status_code == 404
    assert (await other.get("/api/v1/runs")).json()["items"] == []


async def test_occurrences_and_bounds(inside: Client, triggered: str) -> None:
    now = datetime.now(UTC)
    query = {"start": (now - timedelta(hours=1)).isoformat(), "end": now.isoformat()}
    answer = await inside.read.get(f"{URL}/one/occurrences", params=query)
    assert (answer.status_code, answer.json()) == (200, {"items": [], "next_cursor": None})
    for good in ("yesterday", "2 hours ago", "yesterday at 9am"):
        assert (await inside.read.get(f"{URL}/one/occurrences", params={"start": good})).status_code == 200
    for bad in ({"start": "some day"}, {"start": "2026-11-01T09:00"}, {"end": "1800-01-01T00:00:00Z"}):
        refused = await inside.read.get(f"{URL}/one/occurrences", params=bad)
        assert refused.status_code == 422
        assert refused.json()["field"] in bad
    unescaped = await inside.read.get(f"{URL}/one/occurrences?start=2026-11-01T09:00:00+02:00")
    assert unescaped.status_code == 200


async def test_why_at_a_moment(inside: Client, triggered: str) -> None:
    latest = (await inside.read.get(f"{URL}/one/why")).json()
    assert "One" in latest["text"]
    assert latest["facts"]["schedule_id"] == "one"
    at = (await inside.read.get(f"{URL}/one/why", params={"at": "2025-03-01T12:00"})).json()
    assert "One" in at["text"]
    said = (await inside.read.get(f"{URL}/one/why", params={"at": "1 march 2025 at noon"})).json()
    assert said == at
    wrong = await inside.read.get(f"{URL}/one/why", params={"at": "some day"})
    assert (wrong.status_code, wrong.json()["field"]) == (422, "at")


async def test_verify_proves_a_schedule_and_a_page(inside: Client, triggered: str) -> None:
    one = (await inside.read.get(f"{URL}/one/verify")).json()
    assert (one["whole"], one["schedules"], one["runs"], one["problems"]) == (True, 1, 1, [])
    body = {"type": "interval", "spec": "3600", "action": ACTION}
    for _ in range(2):
        await inside.write.post(URL, json=body)
    page = (await inside.read.get("/api/v1/verify", params={"limit": 2})).json()
    assert (page["whole"], page["schedules"]) == (True, 2)
    rest = (await inside.read.get("/api/v1/verify", params={"limit": 2, "cursor": page["next_cursor"]})).json()
    assert (rest["whole"], rest["schedules"], rest["next_cursor"]) == (True, 1, None)
    long = await inside.read.get("/api/v1/verify", params={"start": "2025-01-01T00:00:00Z"})
    assert (long.status_code, long.json()["field"]) == (422, "start")


async def test_verify_finds_what_is_wrong_with_its_own_schedules_alone(inside: Client, triggered: str) -> None:
    """A run in the ledger for an instant that the schedule never had."""
    body = {"schedule_id": "two", "type": "interval", "spec": "3600", "action": ACTION}
    await inside.write.post(URL, json=body)
    connection = inside.service.store._connection  # type: ignore[attr-defined]  # SQLite, and the test tampers with it
    now = inside.service.clock.now()
    await connection.run(
        lambda db: db.execute(
            "INSERT INTO runs (run_for, sid, kind, outcome, attempts, started_at, ended_at, owner, epoch) "
            "SELECT ?1, sid, ?2, 0, 1, ?1, ?1, 'nobody', 1 FROM schedule_definitions "
            "WHERE schedule_id = 'two'",
            (now, SCHEDULED),
        )
    )
    assert (await inside.read.get(f"{URL}/one/verify")).json()["whole"] is True
    two = (await inside.read.get(f"{URL}/two/verify")).json()
    assert two["whole"] is False
    assert [problem["schedule"] for problem in two["problems"]] == ["two"] * len(two["problems"])
    assert (await inside.read.get("/api/v1/verify")).json()["whole"] is False
