"""Files of schedules that take their time: nothing else waits for them, and one key has one at a time."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from noonbell.api.models.planned import LARGEST_FILE, PlanResponse
from noonbell.api.routes import plans, schedules
from noonbell.api.schedule_presenter import fields_of
from noonbell.planning import ScheduleFile, loads
from noonbell.planning import plans as compared
from noonbell.planning.moves import moves
from noonbell.testing import ManualClock
from tests.api.conftest import Client
from tests.patience import PATIENCE_SECONDS

FILE = 'name = "billing"\n'
PLAN = "/api/v1/plan"
MANY = "".join(
    f'[schedules.s{number}]\ncron = "0 9 * * *"\naction = {{ kind = "callback", name = "report" }}\n'
    for number in range(250)
)
PAST = MANY.replace('cron = "0 9 * * *"', 'at = "2001-01-01T00:00"')


class SlowReading:
    """Reads files when it is told to, and not before."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.waited = True

    def loads(self, text: str, **how: Any) -> ScheduleFile:
        self.begun.set()
        self.waited = self.waited and self.go_on.wait(PATIENCE_SECONDS)  # in vain if requests had to wait
        return loads(text, **how)


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowReading]:
    made = SlowReading()
    monkeypatch.setattr(plans, "loads", made.loads)
    yield made
    made.go_on.set()


@pytest.mark.parametrize("path", [PLAN, "/api/v1/apply"])
async def test_other_requests_go_on_while_a_file_is_read(inside: Client, reading: SlowReading, path: str) -> None:
    slow = asyncio.create_task(inside.write.post(path, json={"text": FILE}))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.to_thread(reading.begun.wait)
        assert (await inside.anonymous.get("/healthz")).status_code == 200
        second = await inside.write.post(PLAN, json={"text": FILE})
        assert (second.status_code, second.headers["Retry-After"]) == (429, "2")
        other = asyncio.create_task(inside.read.post(PLAN, json={"text": FILE}))
        reading.go_on.set()
        assert (await slow).status_code == 200
        assert (await other).status_code == 200, "another key has a place of its own"
        assert (await inside.write.post(PLAN, json={"text": FILE})).status_code == 200, "and so has this one again"
    assert reading.waited


async def test_a_file_that_cannot_be_read_frees_the_place(inside: Client) -> None:
    for _ in range(2):
        assert (await inside.read.post(PLAN, json={"text": "name = "})).status_code == 422


async def test_a_file_that_is_too_large(inside: Client) -> None:
    answer = await inside.read.post(PLAN, json={"text": FILE + "#" * LARGEST_FILE})
    assert (answer.status_code, answer.json()["field"]) == (422, "text")


async def test_a_hundred_problems_are_listed_and_the_others_counted(inside: Client) -> None:
    text = FILE + "".join(f"[schedules.s{number}]\n" for number in range(300))
    told = (await inside.read.post(PLAN, json={"text": text})).json()
    first = ":".join(told["errors"][0]["reason"].split(":")[:3])
    assert (len(told["errors"]), told["more_errors"], first) == (100, 500, "text:2:12")
    assert told["detail"].endswith("and 500 more problems, which are not listed")


@pytest.mark.parametrize("text", [FILE + MANY, FILE + MANY + "[schedules.wrong]\n", FILE + PAST])
async def test_a_large_file_has_the_plan_that_a_small_one_has(
    inside: Client, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(text) > plans.SMALL_FILE
    monkeypatch.setattr(inside.service, "clock", ManualClock(datetime(2026, 11, 18, 10, tzinfo=UTC)))
    in_a_process = (await inside.read.post(PLAN, json={"text": text})).json()
    monkeypatch.setattr(plans, "SMALL_FILE", LARGEST_FILE)
    in_a_thread = (await inside.read.post(PLAN, json={"text": text})).json()
    assert (in_a_process.pop("instance", None) is None) == (in_a_thread.pop("instance", None) is None)
    assert in_a_process == in_a_thread
    assert in_a_process.get("created") == (250 if text == FILE + MANY else None)


async def test_a_large_file_is_applied(inside: Client) -> None:
    answer = await inside.write.post("/api/v1/apply", json={"text": FILE + MANY})
    assert (answer.status_code, answer.json()["created"]) == (200, 250)
    again = await inside.write.post(PLAN, json={"text": FILE + MANY})
    assert (again.json()["empty"], again.json()["unchanged"]) == (True, 250)


async def test_plans_are_compared_beside_the_event_loop(inside: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def noting(*given: Any, **more: Any) -> Any:
        threads.append(threading.current_thread())
        return moves(*given, **more)

    monkeypatch.setattr(compared, "moves", noting)
    text = FILE + '[schedules.a]\ncron = "0 9 * * *"\naction = { kind = "callback", name = "report" }\n'
    told = await inside.read.post(PLAN, json={"text": text})
    assert (told.status_code, told.json()["created"]) == (200, 1)
    assert threads
    assert threading.main_thread() not in threads
    assert gc.isenabled()


async def test_batches_are_read_beside_the_event_loop(inside: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[threading.Thread] = set()

    def noting(*given: Any) -> Any:
        threads.add(threading.current_thread())
        return fields_of(*given)

    monkeypatch.setattr(schedules, "fields_of", noting)
    one = {"text": "every weekday at 9am", "action": {"kind": "callback", "name": "report"}}
    answer = await inside.write.post("/api/v1/bulk/schedules", json={"schedules": [one] * 50})
    assert answer.status_code == 201, answer.text
    assert len(threads) == 1
    assert threading.main_thread() not in threads


async def test_a_plan_is_as_its_model_says(inside: Client) -> None:
    await inside.write.post("/api/v1/apply", json={"text": FILE + MANY})
    told = await inside.read.post(
        PLAN, json={"text": FILE + MANY.replace("0 9", "0 8").replace("[schedules.s7]", "[schedules.t]")}
    )
    assert PlanResponse.model_validate_json(told.content).model_dump(mode="json") == told.json()
    kinds = [one["kind"] for one in told.json()["schedules"]]
    assert (kinds.count("create"), kinds.count("change"), kinds.count("delete")) == (1, 249, 1)


async def test_an_applied_file_gives_the_warnings_of_a_creation(inside: Client) -> None:
    (warning,) = (await inside.write.post("/api/v1/apply", json={"text": FILE + MANY})).json()["warnings"]
    assert warning.startswith('No callback "report" is registered here')
    assert "The same for 249 more schedules: " in warning
    await inside.service.schedules.stop()
    changed = FILE + MANY.replace("0 9", "0 8")
    engine, callback = (await inside.write.post("/api/v1/apply", json={"text": changed})).json()["warnings"]
    assert engine.startswith('No engine of the lane "default" is up')
    assert callback == warning
