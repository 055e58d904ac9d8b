"""Live changes: who is told what, from which process, after which id, and what becomes of slow readers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, MutableMapping
from contextlib import ExitStack, aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from noonbell.access import Caller
from noonbell.api.problems import ProblemError
from noonbell.api.routes import events as events_routes
from noonbell.api.routes.events import MOST_OF_ONE, MOST_OF_TEAM, MOST_READERS, EventStream, Places, written
from noonbell.engine import SystemClock
from noonbell.schedules import Schedules
from noonbell.schedules.live_changes import KEPT, LiveChanges, LiveEvent
from noonbell.store.memory import MemoryStore
from noonbell.store.opening import open_store
from noonbell.testing import ManualClock
from noonbell.web.forms import SESSION_COOKIE
from tests.api.conftest import Client
from tests.patience import PATIENCE_SECONDS

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
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for line in self._lines:
                if line == "" and "data" in found:
                    return {**found, "data": json.loads(found["data"])}
                field, _, value = line.partition(": ")
                if field:
                    found[field] = value
        raise EOFError

    async def rest(self) -> int:
        """How many events come until the stream ends."""
        number = 0
        with suppress(EOFError):
            while await self.next():
                number += 1
        return number


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
    async with asyncio.timeout(PATIENCE_SECONDS):
        while live.service.events.readers:  # noqa: ASYNC110 - a connection that ends has no event here
            await asyncio.sleep(0.01)


def _stream(events: AsyncIterator[LiveEvent | None], stopping: asyncio.Event, **changes: Any) -> EventStream:
    async def ask() -> Caller | None:
        return _caller()

    usual: dict[str, Any] = {"caller": _caller(), "places": Places(), "ask": ask}
    return EventStream(events, stopping, **(usual | changes))


def _caller(name: str = "one", team: str = "default") -> Caller:
    return Caller(f"key:{name}", team, frozenset({"read"}), key_id=name)


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

    async with asyncio.timeout(PATIENCE_SECONDS):
        await _stream(events(), asyncio.Event(), send_seconds=0.01)({"type": "http"}, receive, send)
    assert closed.is_set()
    assert len(sent) == 4


async def test_a_stop_ends_an_answer_once() -> None:
    """The stream may come to its own end while it is being cut off; a second end would be an error of the server."""
    stopping = asyncio.Event()

    async def events() -> AsyncIterator[LiveEvent | None]:
        yield None
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async def receive() -> MutableMapping[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)
        if len(sent) == 3:
            stopping.set()

    async with asyncio.timeout(PATIENCE_SECONDS):
        await _stream(events(), stopping)({"type": "http"}, receive, send)
    assert [message.get("more_body") for message in sent] == [None, True, True, False]


# --- the right to it --------------------------------------------------------------------------------------------------


async def test_a_stream_ends_with_its_key(live: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_routes, "ASK_SECONDS", 0.01)
    doomed, spared = await live.with_key("default", "read"), live.read
    key_id = live.keys["default/read"].split("_")[1]
    async with following(doomed) as stream, following(spared) as other:
        await live.service.access.revoke_key(key_id)
        assert await stream.rest() <= 1, "nothing but the news of its end"
        assert (await other.next())["data"]["event"] == "api_key.revoked"


async def test_a_session_that_has_ended_ends_its_stream(live: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_routes, "ASK_SECONDS", 0.01)
    access = live.service.access
    user = await access.create_admin("ann", "a long enough password")
    for end in ("logout", "password", "deleted"):
        session = await access.open_session(user, "127.0.0.1")
        cookie = {"Cookie": f"{SESSION_COOKIE}={session.token}"}
        async with live.anonymous.stream("GET", "/events", headers=cookie) as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == ": hello"
            if end == "logout":
                await access.close_session(session.token)
            elif end == "password":
                await access.set_password("ann", "another long password")
            else:
                await access.create_admin("bob", "a long enough password")
                await access.delete_user("ann")
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert [line async for line in lines if line.startswith("never")] == [], "it ends by itself"


async def test_one_key_takes_its_share_and_no_more(live: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_routes, "MOST_OF_ONE", 2)
    async with following(live.read), following(live.read):
        refused = await live.read.get("/api/v1/events")
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "30")
        assert refused.json()["type"] == "urn:noonbell:problem:too-many-streams"
        async with following(live.write):
            pass
    async with asyncio.timeout(PATIENCE_SECONDS):
        while live.service.events.readers:  # noqa: ASYNC110 - a connection that ends has no event here
            await asyncio.sleep(0.01)
    async with following(live.read):
        pass


def test_shares_of_a_key_a_team_and_all() -> None:
    places = Places()
    with ExitStack() as held:

        def refusal(caller: Caller) -> int | None:
            try:
                held.enter_context(places.taken(caller))
            except ProblemError as error:
                return error.status
            return None

        assert [refusal(_caller("one")) for _ in range(MOST_OF_ONE + 1)] == [None] * MOST_OF_ONE + [429]
        team = [refusal(_caller(str(number))) for number in range(MOST_OF_TEAM - MOST_OF_ONE + 1)]
        assert team == [None] * (MOST_OF_TEAM - MOST_OF_ONE) + [429]
        others = [refusal(_caller(f"k{number}", f"team{number}")) for number in range(MOST_READERS - MOST_OF_TEAM + 1)]
        assert others == [None] * (MOST_READERS - MOST_OF_TEAM) + [503]
    assert not places._taken, "whoever has gone is forgotten"


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
        event = await asyncio.wait_for(first, PATIENCE_SECONDS)
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


async def test_a_reader_that_is_cancelled_as_something_comes_ends(store: MemoryStore) -> None:
    hub = LiveChanges(store, ManualClock(NOON))
    following = hub.follow(None)
    reading = asyncio.ensure_future(anext(following))
    for _ in range(50):  # more than it needs until it waits for the next event
        await asyncio.sleep(0)
    hub._announce()  # a wake-up without an event of its own
    await asyncio.sleep(0)
    reading.cancel()
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(asyncio.CancelledError):
            await reading
    await hub.stop()


async def test_a_burst_is_one_event(store: MemoryStore) -> None:
    clock = ManualClock(NOON)
    schedules = Schedules(store, clock=clock)
    hub = LiveChanges(store, clock)
    async with aclosing(hub.follow(None)) as events:  # type: ignore[type-var]  # as above
        first = asyncio.ensure_future(anext(events))
        await clock.settle()
        await schedules.create_many([DAILY] * 700)  # type: ignore[list-item]  # the fields of each
        await clock.advance(timedelta(seconds=1))
        told = [await asyncio.wait_for(first, PATIENCE_SECONDS)]
        while told[-1] is not None and told[-1].kind != "reset":
            told.append(await asyncio.wait_for(anext(events), PATIENCE_SECONDS))
    assert len(told) <= 501
    assert await hub._look._newest_audit() == hub._look._last_audit
    await hub.stop()


async def test_another_process_on_the_same_file(tmp_path: Path) -> None:
    """Two connections that know nothing of each other, as two processes have; the hub asks within a second."""
    address = f"sqlite:///{tmp_path / 'shared.db'}"
    here, elsewhere = open_store(address), Schedules(address)
    await here.open()
    hub = LiveChanges(here, SystemClock())
    async with elsewhere:
        await elsewhere.create(**DAILY, schedule_id="before")
        async with aclosing(hub.follow("default", idle_seconds=0.01)) as events:  # type: ignore[type-var]  # as above
            assert await anext(events) is None  # it is looking now
            await elsewhere.create(**DAILY, schedule_id="after")
            async with asyncio.timeout(PATIENCE_SECONDS):
                found = [event async for event in _first(events)]
    assert [event.data["subject"] for event in found] == ["after"]
    await hub.stop()
    await here.close()


async def _first(events: AsyncIterator[LiveEvent | None]) -> AsyncIterator[LiveEvent]:
    async for event in events:
        if event is not None:
            yield event
            return
