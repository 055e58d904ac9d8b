"""Buckets of tokens."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.exceptions import HTTPException

from noonbell.api import middleware
from noonbell.api import request_limits as limits
from noonbell.api.app import create_app
from noonbell.api.middleware import _Bodies
from noonbell.api.request_limits import Buckets
from noonbell.bootstrap import build
from tests.api.conftest import Client, settings_for


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_is_fine_and_then_it_is_the_rate_that_counts() -> None:
    seconds = Seconds()
    buckets = Buckets(60, seconds)
    assert [buckets.take("a") for _ in range(10)] == [None] * 10
    assert buckets.take("a") == 1
    assert buckets.take("b") is None, "everybody has his own"
    seconds.now += 1
    assert buckets.take("a") is None
    assert buckets.take("a") == 1
    seconds.now += 1000
    assert [buckets.take("a") for _ in range(11)] == [None] * 10 + [1], "it does not fill beyond its size"


def test_the_wait_that_is_told_is_long_enough() -> None:
    seconds = Seconds()
    buckets = Buckets(6, seconds)
    assert buckets.take("a") is None
    wait = buckets.take("a")
    assert wait == 10
    seconds.now += wait
    assert buckets.take("a") is None


def test_what_costs_more_takes_more() -> None:
    buckets = Buckets(60, Seconds())
    assert buckets.take("a", 10) is None
    assert buckets.take("a", 10) == 10


def test_a_fine_takes_what_there_is() -> None:
    buckets = Buckets(60, Seconds())
    buckets.fine("a", 3)
    assert [buckets.take("a") for _ in range(8)] == [None] * 7 + [1]
    buckets.fine("b", 100)
    assert buckets.take("b") == 1
    Buckets(0, Seconds()).fine("a", 1)


def test_no_limit() -> None:
    buckets = Buckets(0, Seconds())
    assert all(buckets.take("a") is None for _ in range(1000))


def test_the_number_of_buckets_is_bounded() -> None:
    buckets = Buckets(60, Seconds())
    for number in range(limits.MOST_BUCKETS + 100):
        buckets.take(str(number))
    assert len(buckets._buckets) == limits.MOST_BUCKETS
    assert "0" not in buckets._buckets


@pytest.mark.parametrize(
    ("addresses", "statuses"),
    [
        (["2001:db8:1:2::1", "2001:db8:1:2:ffff::2", "2001:db8:1:3::1"], [401, 429, 401]),
        (["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"], [401, 429, 401]),
    ],
)
async def test_a_network_of_ipv6_is_one_address(tmp_path: Path, addresses: list[str], statuses: list[int]) -> None:
    service = build(settings_for(tmp_path, address_requests_per_minute=6))
    app = create_app(service)
    answers = []
    for address in addresses:
        transport = httpx2.ASGITransport(app=app, client=(address, 1))
        async with httpx2.AsyncClient(base_url="http://service", transport=transport) as client:
            answers.append((await client.get("/api/v1/caller")).status_code)
    assert answers == statuses


async def test_no_answer_leads_to_a_host_that_a_request_names(inside: Client) -> None:
    for path in ("/healthz/", "/api/v1/schedules/", "/login/"):
        answer = await inside.read.get(path, headers={"Host": "evil.example"})
        assert answer.status_code == 404, path
        assert "evil.example" not in answer.headers.get("location", "")


# --- pages of lists that are small ------------------------------------------------------------------------------------

SMALL = ("/quiet-hours", "/secrets", "/instances")


@pytest.mark.parametrize("path", SMALL)
@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "cursor=", "cursor=%00", "cursr=a"])
async def test_what_a_page_cannot_be_is_refused_on_every_list(inside: Client, path: str, query: str) -> None:
    answer = await inside.read.get(f"/api/v1{path}?{query}")
    assert (answer.status_code, answer.json()["field"]) == (422, query.partition("=")[0])


async def test_small_lists_come_in_pages_too(inside: Client) -> None:
    window = {"weekdays": [1], "from": "22:00", "to": "06:00", "timezone": "UTC"}
    for number in range(5):
        body = {"policy_id": f"q {number}", "name": "q", "windows": [window]}
        assert (await inside.write.post("/api/v1/quiet-hours", json=body)).status_code == 201
        assert (
            await inside.write.put(f"/api/v1/secrets/S{number}", json={"value": f"value-{number}"})
        ).status_code == 200
    for path, name in (("/quiet-hours", "policy_id"), ("/secrets", "name")):
        seen: list[str] = []
        cursor: str | None = None
        sizes: list[int] = []
        while True:
            asked = {"limit": "2"} | ({} if cursor is None else {"cursor": cursor})
            page = (await inside.read.get(f"/api/v1{path}", params=asked)).json()
            seen += [one[name] for one in page["items"]]
            sizes.append(len(page["items"]))
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert (sizes, seen, len(seen)) == ([2, 2, 1], sorted(seen), 5)
    engines = (await inside.read.get("/api/v1/instances?limit=1")).json()
    assert (len(engines["items"]), engines["next_cursor"]) == (1, None)


def test_the_bodies_of_one_sender_are_bounded_and_so_are_those_of_all() -> None:
    bodies = _Bodies(10)
    bodies.add("a", 40)
    with pytest.raises(HTTPException) as refused:
        bodies.add("a", 1)
    assert refused.value.status_code == 429
    bodies.add("b", 40)
    bodies.add("c", 40)
    bodies.remove("a", 41)
    bodies.add("d", 40)
    bodies.add("e", 40)
    with pytest.raises(HTTPException) as refused:
        bodies.add("a", 1)
    assert refused.value.status_code == 503
    for sender, size in (("a", 1), ("b", 40), ("c", 40), ("d", 40), ("e", 40)):
        bodies.remove(sender, size)
    bodies.add("a", 40)


async def test_the_bodies_of_requests_are_counted(inside: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "_BODIES_OF_ONE", 0)
    answer = await inside.read.post("/api/v1/preview", json={})
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
    assert (await inside.read.get("/api/v1/schedules")).status_code == 200, "without a body"


async def test_a_client_that_leaves_before_its_form_is_complete_is_no_error_of_ours(
    inside: Client, caplog: pytest.LogCaptureFixture
) -> None:
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"name=a", "more_body": True},
        {"type": "http.disconnect"},
    ]
    head = [(b"content-type", b"application/x-www-form-urlencoded")]
    scope = {
        "type": "http", "method": "POST", "path": "/login", "raw_path": b"/login", "query_string": b"", "headers": head,
        "client": ("127.0.0.1", 1), "server": ("service", 80), "scheme": "http", "http_version": "1.1", "root_path": "",
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def send(message: dict[str, Any]) -> None:
        raise AssertionError(message)

    await create_app(inside.service)(scope, receive, send)  # type: ignore[arg-type]  # plain dicts will do
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_form_without_a_session_is_read_no_further_than_its_limit(inside: Client) -> None:
    asked = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal asked
        while True:
            asked += 1
            yield b"x" * 10_000

    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for path in ("/login", "/logout"):
        asked = 0
        answer = await inside.anonymous.post(path, content=endless(), headers=form)
        assert answer.status_code == 413
        assert asked <= 4
