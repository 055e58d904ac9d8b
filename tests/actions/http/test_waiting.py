"""Lateness runs to the start of the first attempt: the wait for an HTTP slot or a thread is part of it, everywhere."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from noonbell import Schedules
from noonbell.actions.callback import Call
from noonbell.actions.http.slots import HttpLimits
from noonbell.errors import ScheduleInvalidError
from noonbell.ledger import why
from noonbell.notify.notice_records import Notice
from tests.actions.http.site import Site, serving
from tests.actions.http.test_with_schedules import AT_12_01, World, world
from tests.patience import until

__all__ = ["world"]

AT = datetime(2026, 3, 4, 12, 1, tzinfo=UTC)


async def late_rule(schedules: Schedules) -> None:
    config = {"url": "https://hook.example", "sign": False}
    await schedules.channels.create(channel_id="ops", name="ops", kind="webhook", config=config)
    await schedules.rules.create(name="r", on=["late"], late_seconds=3, window_seconds=0, channels=["ops"])


def notices(schedules: Schedules) -> list[Notice]:
    """What the rules send from now on."""
    sent: list[Notice] = []
    desk = schedules._lane.desk
    assert desk is not None
    whole = desk.notifier._send

    def send(rules: Any, notice: Notice) -> Any:
        made = whole(rules, notice)
        sent.extend([notice] if made else [])
        return made

    desk.notifier._send = send  # type: ignore[method-assign]  # to see what it makes
    return sent


async def check(world: World, schedules: Schedules, ids: list[str], sent: list[Notice]) -> None:
    """The second of two runs waited for the first, which took five seconds."""
    runs = [(await schedules.runs(one)).items[0] for one in ids]
    assert [run.lateness for run in runs] == [timedelta(0), timedelta(seconds=5)]
    assert [run.waited_seconds for run in runs] == [0, 5]
    assert [run.duration for run in runs] == [timedelta(seconds=5), timedelta(0)]
    statistics = await schedules.statistics(ids[1])
    assert statistics.lateness is not None
    assert statistics.lateness.p95 == timedelta(seconds=5)
    engine = schedules._lane.engine
    assert engine is not None
    assert engine.metrics.start_lateness.max_seconds == 5
    assert (engine.metrics.slot_wait.count, engine.metrics.slot_wait.max_seconds) == (1, 5)
    assert [(one.event, one.subject_id, one.late_us) for one in sent] == [("late", ids[1], 5_000_000)]
    (first, second) = [await why(world.store, one, AT, now=world.clock.now()) for one in ids]
    assert "It waited 5 s for a free HTTP slot or thread." in second.text
    assert "waited" not in first.text
    assert second.facts["late_seconds"] == second.facts["waited_seconds"] == 5


async def five_seconds_each(
    world: World, schedules: Schedules, site: Site, gate: asyncio.Event, ids: list[str]
) -> None:
    """Run them when they are due: the first takes five seconds, and the second waits for its slot."""
    await schedules.start()
    await world.seconds(30)
    await site.until(1)
    await world.seconds(5)
    gate.set()
    await site.until(2)
    for one in ids:
        await world.recorded(schedules, one)


async def test_the_wait_for_an_http_slot_is_lateness(world: World) -> None:
    gate = asyncio.Event()

    async def handle(_: web.Request) -> web.Response:
        await gate.wait()
        return web.Response(text="ok")

    async with serving(handle) as site, world.on(site, http_limits=HttpLimits(per_host=1)) as schedules:
        await late_rule(schedules)
        sent = notices(schedules)
        action = {"kind": "http", "url": site.url("/")}
        ids = [(await schedules.create(action=action, **AT_12_01)).schedule_id for _ in range(2)]
        await five_seconds_each(world, schedules, site, gate, ids)
        await check(world, schedules, ids, sent)
        (tried,) = (await schedules.run((await schedules.runs(ids[1])).items[0].run_id)).tried
        assert tried.detail is not None
        assert tried.detail["waited_ms"] == 5_000
        await schedules.stop()


async def test_the_wait_for_a_thread_is_lateness(world: World) -> None:
    gate, begun = threading.Event(), threading.Event()

    def work(_: Call) -> None:
        begun.set()
        gate.wait()

    options: dict[str, Any] = {"callbacks": {"work": work}, "longest_wait": timedelta(minutes=1)}
    async with Schedules(world.store, clock=world.clock, threads=1, **options) as schedules:
        await late_rule(schedules)
        sent = notices(schedules)
        action = {"kind": "callback", "name": "work"}
        ids = [(await schedules.create(action=action, **AT_12_01)).schedule_id for _ in range(2)]
        await schedules.start()
        await world.seconds(30)
        await until(begun.is_set)
        await world.seconds(5)
        gate.set()
        for one in ids:
            await world.recorded(schedules, one)
        await check(world, schedules, ids, sent)
        await schedules.stop()


async def test_a_retried_run_keeps_the_wait_of_its_first_attempt(world: World) -> None:
    gate = asyncio.Event()
    answers = [200, 500, 200]

    async def handle(_: web.Request) -> web.Response:
        await gate.wait()
        return web.Response(text="", status=answers.pop(0))

    async with serving(handle) as site, world.on(site, http_limits=HttpLimits(per_host=1)) as schedules:
        action = {"kind": "http", "url": site.url("/")}
        retry = {"attempts": 2, "delay_seconds": 10}
        ids = [(await schedules.create(action=action, retry=retry, **AT_12_01)).schedule_id for _ in range(2)]
        await five_seconds_each(world, schedules, site, gate, ids)
        await world.seconds(20)
        await site.until(3)
        await world.recorded(schedules, ids[1])
        run = (await schedules.runs(ids[1])).items[0]
        assert (run.state, run.attempts, run.waited_seconds) == ("succeeded", 2, 5)
        assert run.lateness == timedelta(seconds=5)
        await schedules.stop()


@pytest.mark.parametrize(
    ("options", "field"),
    [({"threads": 0}, "threads"), ({"threads": True}, "threads"), ({"http_limits": 16}, "http_limits")],
)
def test_limits_that_make_no_sense_are_refused(world: World, options: dict[str, Any], field: str) -> None:
    with pytest.raises(ScheduleInvalidError, match=field):
        Schedules(world.store, **options)
