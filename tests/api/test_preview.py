"""English over HTTP: previewed, created, and refused with the place where it stopped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.conftest import Client

ACTION = {"kind": "callback", "name": "report"}


async def preview(client: Client, **body: Any) -> dict[str, Any]:
    answer = await client.read.post("/api/v1/preview", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_english_is_understood_and_told(inside: Client) -> None:
    told = await preview(inside, text="every weekday at 9am in Kyiv", count=3)
    assert told["fields"] == {"type": "cron", "spec": "0 9 * * 1-5", "timezone": "Europe/Kyiv"}
    assert len(told["next"]) == 3
    assert all("T09:00:00" in fire["local"] for fire in told["next"])
    assert "09:00" in told["description"]


async def test_clock_changes_of_the_coming_year_are_told(inside: Client) -> None:
    told = await preview(inside, type="cron", spec="30 1 * * *", timezone="America/New_York")
    assert "twice" in [one["kind"] for one in told["surprises"]]
    assert [one["kind"] for one in (await preview(inside, type="cron", spec="30 1 * * *"))["surprises"]] == []


async def test_intervals_and_single_times(inside: Client) -> None:
    assert (await preview(inside, text="every 90 seconds"))["fields"]["type"] == "interval"
    once = await preview(inside, text="in 10 minutes")
    assert (once["type"], len(once["next"])) == ("one_shot", 1)


async def test_cron_as_text(inside: Client) -> None:
    assert (await preview(inside, text="*/15 9-17 * * mon-fri"))["spec"].endswith("9-17 * * 1-5")


async def test_where_it_stopped_is_told(inside: Client) -> None:
    answer = await inside.read.post("/api/v1/preview", json={"text": "every wekday at 9am"})
    assert answer.status_code == 422
    problem = answer.json()
    assert (problem["field"], problem["position"], problem["end"]) == ("text", 6, 12)
    assert any("weekday" in one for one in problem["suggestions"] + problem["accepted"])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "type"),
        ({"type": "cron"}, "spec"),
        ({"text": "daily", "spec": "0 9 * * *"}, "text"),
        ({"text": "daily", "timezone": "Kyiv"}, "timezone"),
        ({"text": "9am in Kyiv", "timezone": "Europe/Berlin"}, "timezone"),
        ({"type": "one_shot", "spec": "2020-01-01T00:00"}, "spec"),
        ({"text": "61 * * * *"}, "text"),
        ({"text": "daily", "count": 101}, "count"),
    ],
)
async def test_a_complaint_names_the_field(inside: Client, body: dict[str, Any], field: str) -> None:
    answer = await inside.read.post("/api/v1/preview", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_a_schedule_in_english(inside: Client) -> None:
    body = {"text": "every monday and thursday at 14:30 in Kyiv", "action": ACTION}
    answer = await inside.write.post("/api/v1/schedules", json=body)
    assert answer.status_code == 201, answer.text
    told = answer.json()
    assert (told["type"], told["spec"], told["timezone"]) == ("cron", "30 14 * * 1,4", "Europe/Kyiv")
    assert "14:30" in told["understood"]
    both = await inside.write.post("/api/v1/schedules", json={**body, "type": "cron", "spec": "0 9 * * *"})
    assert (both.status_code, both.json()["field"]) == (422, "text")


async def test_many_in_english_name_the_place(inside: Client) -> None:
    for wrong in ({"text": "daily", "type": "cron"}, {"text": "every blue moon"}):
        many = [{"text": "daily", "action": ACTION}, {**wrong, "action": ACTION}]
        answer = await inside.write.post("/api/v1/bulk/schedules", json={"schedules": many})
        assert answer.status_code == 422
        assert "[1].text" in answer.json()["detail"]
