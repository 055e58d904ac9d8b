"""Files of schedules that take their time: nothing else waits for them, and one key has one at a time."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from noonbell.api.models.planned import LARGEST_FILE
from noonbell.api.routes import plans, schedules
from noonbell.api.written import fields_of
from noonbell.planning import ScheduleFile, loads
from noonbell.planning import plans as compared
from noonbell.planning.moves import moves
from tests.api.conftest import Client
from tests.patience import PATIENCE_SECONDS

FILE = 'name = "billing"\n'
PLAN = "/api/v1/plan"


class SlowReading:
    """Reads files when it is told to, and not before."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.waited = True

    def loads(self, text: str, **how: Any) -> ScheduleFile:
        self.begun.set()
        self.waited = self.waited and self.go_on.wait(5)  # it would wait in vain in the thread of the requests
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
