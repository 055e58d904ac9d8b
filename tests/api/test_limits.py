"""Buckets of tokens."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from noonbell.api import limits
from noonbell.api.app import create_app
from noonbell.api.limits import Buckets
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
