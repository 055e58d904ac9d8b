"""Live changes: who is told what, from which process, after which id, and what becomes of slow readers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, MutableMapping
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from noonbell.api.routes.events import EventStream, written
from noonbell.engine import SystemClock
from noonbell.ports import ScheduleStore
from noonbell.schedules import Schedules
from noonbell.schedules.live import KEPT, LiveChanges, LiveEvent
from noonbell.store.memory import MemoryStore
from noonbell.store.opening import open_store
from noonbell.testing import ManualClock
from tests.api.conftest import Client

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
ACTION = {"kind": "callback", "name": "report"}
DAILY: dict[str, Any] = {"type": "cron", "spec": "0 9 * * *", "action": ACTION}


# --- over HTTP --------------------------------------------------------------------------------------------------------


class Stream:
    """An open stream of events, read one by one."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def next(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        async with asyncio.timeout(20):
            async for line in self._lines:
                if line == "" and "data" in found:
                    return {**found, "data": json.loads(found["data"])}
                field, _, value = line.partition(": ")
                if field:
                    found[field] = value
        raise EOFError


@asynccontextmanager
async def following(client: httpx2.AsyncClient, **headers: str) -> AsyncIterator[Stream]:
    async with client.stream("GET", "/api/v1/events", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.aiter_lines()
        assert await anext(lines) == ": hello"
        yield Stream(lines)


async def test_a_change_is_told_to_its_team_alone(live: Client) -> None:
    other = await live.with_key("other", "read")
    theirs = await live.with_key("other", "write")
    async with following(live.read) as ours, following(other) as foreign:
        await live.write.post("/api/v1/schedules", json={**DAILY, "schedule_id": "one"})
        event = await ours.next()
        assert (event["event"], event["data"]["event"], event["data"]["subject"]) == (
            "change", "schedule.created", "one",
        )  # fmt: skip
        await theirs.post("/api/v1/schedules", json={**DAILY, "schedule_id": "two"})
        assert (await foreign.next())["data"]["subject"] == "two"


async def test_a_run_is_told_when_it_ends(live: Client) -> None:
    async def report(call: object) -> None: ...

    live.service.schedules.register("report", report)
    await live.write.post("/api/v1/schedules", json={**DAILY, "schedule_id": "one", "name": "One"})
    async with following(live.read) as stream:
        run_id = (await live.write.post("/api/v1/schedules/one/trigger")).json()["run_id"]
        while True:
            event = await stream.next()
            if event["event"] == "run" and event["data"]["state"] == "succeeded":
                break
        assert (event["data"]["run_id"], event["data"]["name"]) == (run_id, "One")


async def test_coming_back_with_the_last_id(live: Client) -> None:
    async with following(live.read) as stream:
        await live.write.post("/api/v1/schedules", json={**DAILY, "schedule_id": "one"})
        seen = await stream.next()
    await live.write.post("/api/v1/schedules", json={**DAILY, "schedule_id": "two"})
    async with following(live.read, **{"Last-Event-ID": seen["id"]}) as again:
        assert (await again.next())["data"]["subject"] == "two"
    async with following(live.read, **{"Last-Event-ID": "elsewhere-7"}) as lost:
        assert (await lost.next())["event"] == "reset"


async def test_a_stop_ends_the_streams(live: Client) -> None:
    async with following(live.read) as one, following(live.read) as other:
        live.service.stopping.set()
        for stream in (one, other):
            with pytest.raises(EOFError):
                await stream.next()


async def test_who_hangs_up_is_forgotten(live: Client) -> None:
    async with following(live.read):
        assert live.service.events.readers == 1
    async with asyncio.timeout(20):
        while live.service.events.readers:  # noqa: ASYNC110 - a connection that ends has no event here
            await asyncio.sleep(0.01)


async def test_a_client_that_does_not_read_is_cut() -> None:
    """Whoever does not take what is sent within the time is let go, and the generator is closed with it."""
    closed = asyncio.Event()

    async def events() -> AsyncIterator[LiveEvent | None]:
        try:
            while True:
                yield LiveEvent("a-1", "change", None, {})
        finally:
            closed.set()

    async def receive() -> MutableMapping[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)
        if len(sent) > 3:
            await asyncio.Event().wait()  # its buffers are full

    async with asyncio.timeout(10):
        await EventStream(events(), asyncio.Event(), send_seconds=0.01)({"type": "http"}, receive, send)
    assert closed.is_set()
    assert len(sent) == 4


def test_an_event_on_the_wire() -> None:
    event = LiveEvent("life-3", "change", "default", {"subject": "a\nb"})
    assert written(event) == 'id: life-3\nevent: change\ndata: {"subject":"a\\nb"}\n\n'


# --- the hub ----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore()
    await store.open()
    return store


async def test_changes_of_another_process_are_seen(store: MemoryStore) -> None:
    """Nobody says a word to the hub: it looks by itself, once a second of its clock."""
    clock = ManualClock(NOON)
    elsewhere = Schedules(store, clock=clock)
    hub = LiveChanges(store, clock)
    await elsewhere.create(**DAILY, schedule_id="before")
    async with aclosing(hub.follow(None)) as events:  # type: ignore[type-var]  # a generator, which can be closed
        first = asyncio.ensure_future(anext(events))
        await clock.settle()
        await elsewhere.create(**DAILY, schedule_id="after")
        await clock.advance(timedelta(seconds=1))
        event = await asyncio.wait_for(first, 10)
        assert event is not None
        assert event.data["subject"] == "after"
    await hub.stop()


async def test_a_reader_that_fell_behind_is_told_to_look_again(store: MemoryStore) -> None:
    hub = LiveChanges(store, ManualClock(NOON))
    for _ in range(KEPT + 10):
        hub._publish("change", None, {})
    old = hub._made("change", None, {}, number=5).id
    recent = hub._made("change", None, {}, number=KEPT + 8).id
    async with aclosing(hub.follow(None, old)) as events:  # type: ignore[type-var]  # a generator, which can be closed
        event = await anext(events)
        assert event is not None
        assert event.kind == "reset"
    async with aclosing(hub.follow(None, recent)) as events:  # type: ignore[type-var]  # as above
        found = [await anext(events), await anext(events)]
    assert [one.id for one in found if one is not None] == [f"{hub._life}-{KEPT + 9}", f"{hub._life}-{KEPT + 10}"]
    assert len(hub._ring) == KEPT
    await hub.stop()


async def test_nothing_for_a_while_is_told_as_nothing(store: MemoryStore) -> None:
    hub = LiveChanges(store, ManualClock(NOON))
    async with aclosing(hub.follow(None, idle_seconds=0.01)) as events:  # type: ignore[type-var]  # as above
        assert await anext(events) is None
    assert hub.readers == 0
    await hub.stop()


async def test_after_a_stop_nobody_waits(store: MemoryStore) -> None:
    hub = LiveChanges(store, ManualClock(NOON))
    await hub.stop()
    assert [event async for event in hub.follow(None)] == []


async def test_a_burst_is_one_event(store: MemoryStore) -> None:
    clock = ManualClock(NOON)
    schedules = Schedules(store, clock=clock)
    hub = LiveChanges(store, clock)
    async with aclosing(hub.follow(None)) as events:  # type: ignore[type-var]  # as above
        first = asyncio.ensure_future(anext(events))
        await clock.settle()
        await schedules.create_many([DAILY] * 700)  # type: ignore[list-item]  # the fields of each
        await clock.advance(timedelta(seconds=1))
        told = [await asyncio.wait_for(first, 10)]
        while told[-1] is not None and told[-1].kind != "reset":
            told.append(await asyncio.wait_for(anext(events), 10))
    assert len(told) <= 501
    assert await hub._look._newest_audit() == hub._look._last_audit
    await hub.stop()


async def test_another_process_on_the_same_file(tmp_path: Path) -> None:
    """Two connections that know nothing of each other, as two processes have; the hub asks within a second."""
    address = f"sqlite:///{tmp_path / 'shared.db'}"
    here, elsewhere = cast("ScheduleStore", open_store(address)), Schedules(address)
    await here.open()
    hub = LiveChanges(here, SystemClock())
    async with elsewhere:
        await elsewhere.create(**DAILY, schedule_id="before")
        async with aclosing(hub.follow("default", idle_seconds=0.01)) as events:  # type: ignore[type-var]  # as above
            assert await anext(events) is None  # it is looking now
            await elsewhere.create(**DAILY, schedule_id="after")
            async with asyncio.timeout(20):
                found = [event async for event in _first(events)]
    assert [event.data["subject"] for event in found] == ["after"]
    await hub.stop()
    await here.close()


async def _first(events: AsyncIterator[LiveEvent | None]) -> AsyncIterator[LiveEvent]:
    async for event in events:
        if event is not None:
            yield event
            return
