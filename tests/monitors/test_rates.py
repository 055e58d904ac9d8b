"""How many pings are taken: of one monitor, of all, of nobody's; and that what is remembered is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import timedelta
from typing import Any

import pytest

from noonbell.errors import MonitorInvalidError
from noonbell.monitors import Monitors, PingApp, PingLimits
from noonbell.monitors.rates import MOST_KNOWN, PingRates
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock

Message = MutableMapping[str, Any]


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def limited(**limits: int) -> tuple[PingRates, Time]:
    time = Time()
    return PingRates(PingLimits(**limits), time), time


def known(rates: PingRates, token: str) -> None:
    assert rates.wait(token) == 0
    rates.note(token)


def test_a_monitor_has_a_minutes_worth_at_once_and_then_waits() -> None:
    rates, time = limited(monitor_per_minute=3)
    known(rates, "a")
    assert [rates.wait("a") for _ in range(2)] == [0, 0]
    assert rates.wait("a") == pytest.approx(20)
    time.now += 15
    assert rates.wait("a") == pytest.approx(5)
    time.now += 5
    assert [rates.wait("a") == 0, rates.wait("a") == 0] == [True, False]
    known(rates, "b")


def test_all_monitors_together_have_a_limit() -> None:
    rates, time = limited(all_per_second=4, unknown_per_second=100)
    for number in range(6):
        known(rates, str(number))
    assert sum(rates.wait(str(number)) == 0 for number in range(6)) == 4
    time.now += 1
    assert sum(rates.wait(str(number)) == 0 for number in range(6)) == 4


def test_made_up_urls_keep_no_monitor_from_being_heard() -> None:
    rates, _ = limited(unknown_per_second=5)
    known(rates, "a")
    waits = [rates.wait(f"made up {number}") for number in range(1_000)]
    assert waits.count(0) == 4
    assert rates.wait("a") == 0


def test_a_token_that_is_nobodys_any_more_is_a_strangers() -> None:
    rates, _ = limited(unknown_per_second=1, monitor_per_minute=10)
    known(rates, "a")
    rates.forget("a")
    assert rates.wait("a") > 0


def test_what_is_remembered_is_bounded() -> None:
    rates, _ = limited()
    for number in range(MOST_KNOWN + 50):
        rates.note(str(number))
    assert len(rates._known) == MOST_KNOWN
    rates.note("50")
    rates.note("new")
    assert "50" in rates._known
    assert "51" not in rates._known


def test_a_time_that_goes_back_fills_nothing() -> None:
    rates, time = limited(monitor_per_minute=1)
    known(rates, "a")
    time.now -= 1_000
    assert rates.wait("a") == pytest.approx(60)


@pytest.mark.parametrize("limits", [{"monitor_per_minute": 0}, {"at_once": True}, {"all_per_second": -1}])
def test_limits_are_whole_numbers_above_zero(limits: dict[str, int]) -> None:
    with pytest.raises(MonitorInvalidError, match=next(iter(limits))):
        PingLimits(**limits)


# --- at the endpoint --------------------------------------------------------------------------------------------------


async def asked(app: PingApp, path: str, receive: Callable[[], Awaitable[Message]] | None = None) -> Message:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def at_once() -> Message:
        return {"type": "http.request", "body": b"hello"}

    scope = {"type": "http", "method": "POST", "path": path, "query_string": b""}
    await app(scope, at_once if receive is None else receive, send)
    return sent[0]


@pytest.fixture
async def monitors(clock: ManualClock) -> Monitors:
    store = MemoryStore()
    await store.open()
    return Monitors(store, clock)


async def test_a_job_in_a_loop_is_told_to_wait_and_not_counted(clock: ManualClock, monitors: Monitors) -> None:
    backup = await monitors.create(name="backup", type="interval", spec="3600", monitor_id="backup")
    other = await monitors.create(name="other", type="interval", spec="3600")
    app = PingApp(monitors, limits=PingLimits(monitor_per_minute=3))

    async def unread() -> Message:
        raise AssertionError("a body was read of a ping that is not taken")

    answers = [(await asked(app, backup.ping_path))["status"] for _ in range(3)]
    refused = await asked(app, f"{backup.ping_path}/fail", unread)
    assert answers == [200] * 3
    assert refused["status"] == 429
    assert (b"retry-after", b"20") in refused["headers"]
    found = await monitors.get("backup")
    assert (found.pings, found.status) == (3, "up")
    assert (await asked(app, other.ping_path))["status"] == 200
    await clock.advance(timedelta(seconds=20))
    assert (await asked(app, backup.ping_path))["status"] == 200


async def test_guessing_is_slowed_down(monitors: Monitors) -> None:
    app = PingApp(monitors, limits=PingLimits(unknown_per_second=4))
    answers = [(await asked(app, f"/ping/guess{number}"))["status"] for number in range(20)]
    assert answers == [404] * 4 + [429] * 16


async def test_the_body_of_a_made_up_ping_is_not_read(monitors: Monitors) -> None:
    async def unread() -> Message:
        raise AssertionError("a body was read of a ping that nobody waits for")

    answer = await asked(PingApp(monitors), "/ping/guess", unread)
    assert answer["status"] == 404
    assert (b"connection", b"close") in answer["headers"]


async def test_after_a_restart_hundreds_of_jobs_are_heard_at_once(monitors: Monitors) -> None:
    made = [await monitors.create(name="job", type="interval", spec="3600") for _ in range(300)]
    app = PingApp(monitors)
    assert {(await asked(app, one.ping_path))["status"] for one in made} == {200}


async def test_only_so_many_bodies_are_read_at_once(monitors: Monitors) -> None:
    backup = await monitors.create(name="backup", type="interval", spec="3600", monitor_id="backup")
    app = PingApp(monitors, limits=PingLimits(at_once=2))
    slow = asyncio.Event()

    async def slowly() -> Message:
        await slow.wait()
        return {"type": "http.request", "body": b"hello"}

    reading = [asyncio.ensure_future(asked(app, backup.ping_path, slowly)) for _ in range(2)]
    await asyncio.sleep(0)
    assert (await asked(app, backup.ping_path))["status"] == 503
    slow.set()
    assert [(await one)["status"] for one in reading] == [200, 200]
    assert (await asked(app, backup.ping_path))["status"] == 200
