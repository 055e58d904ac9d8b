"""HTTP jobs as `Schedules` runs them: recorded, retried over a restart, handed back by a stop, with secrets and signed.

The engine's time is manual, the sockets are real: a test waits for what the server has seen, never for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from noonbell import Schedules
from noonbell.actions.http.slots import HttpLimits
from noonbell.actions.secrets.keys import new_ring
from noonbell.core.attempt_detail import unpack
from noonbell.core.records import Attempt
from noonbell.engine import membership
from noonbell.ledger import verify_store
from noonbell.ports import Ledger, ScheduleFilter
from noonbell.receive import Receiver
from noonbell.schedules import Occurrence
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from noonbell.testing import ManualClock
from tests.actions.http.site import Handler, Site, answering, egress_to, in_turn, serving

NOON = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)
AT_12_01: dict[str, Any] = {"type": "one_shot", "spec": "2026-03-04T12:01"}
SECRET = "correct horse battery"  # noqa: S105 - it opens nothing


@pytest.fixture(autouse=True, scope="module")
def _alone() -> Iterator[None]:
    """No other engine is looked for: on manual time that would be hundreds of looks."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(membership, "LOOK", 3_600_000_000)
        patched.setattr(membership, "BEAT", 3_600_000_000)
        yield


class World:
    """A store, a clock, and schedules on them that may reach a site."""

    def __init__(self, store: Ledger) -> None:
        self.store = store
        self.clock = ManualClock(NOON)
        self.ring = new_ring()

    def on(self, site: Site, **options: Any) -> Schedules:
        return Schedules(
            self.store, clock=self.clock, egress=egress_to(site), longest_wait=timedelta(minutes=1), **options
        )

    async def seconds(self, seconds: float) -> None:
        await self.clock.advance(timedelta(seconds=seconds))

    async def recorded(self, schedules: Schedules, schedule_id: str) -> None:
        """Return when the attempt that is under way has been recorded."""
        (stored,) = await self.store.schedules.find(ScheduleFilter(schedule_ids=[schedule_id]))
        engine = schedules._lane.engine
        assert engine is not None
        await engine.recorded(stored.sid)

    async def ended(self, schedules: Schedules, schedule_id: str) -> Occurrence:
        """The occurrence, when the attempt that is under way has been recorded."""
        await self.recorded(schedules, schedule_id)
        return (await schedules.occurrences(schedule_id)).items[0]

    async def attempts(self, schedule_id: str) -> list[Attempt]:
        (stored,) = await self.store.schedules.find(ScheduleFilter(schedule_ids=[schedule_id]))
        return await self.store.history.attempts(stored.sid, 0, 1 << 60)


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.db", threaded=False)
    await store.open()
    made = World(store)
    yield made
    assert (await verify_store(store)).problems == []
    await store.close()


async def test_a_job_is_sent_when_it_is_due_and_its_attempt_is_kept(world: World) -> None:
    async with serving(answering('{"state": "ready"}')) as site, world.on(site) as schedules:
        action = {"kind": "http", "url": site.url("/job"), "assert": {"json_path": "$.state", "equals": "ready"}}
        made = await schedules.create(action=action, **AT_12_01)
        await schedules.start()
        await world.seconds(29)
        assert site.asked == []
        await world.seconds(1)
        await site.until(1)
        found = await world.ended(schedules, made.schedule_id)
    assert (found.verdict, found.state, found.attempts) == ("fired", "succeeded", 1)
    (tried,) = found.tried
    assert tried.detail is not None
    assert tried.detail["response"]["body"] == '{"state": "ready"}'
    assert (tried.detail["triggered_by"], tried.detail["error"]) == ("schedule", None)
    assert site.asked[0].headers["Noonbell-Scheduled-For"] == "2026-03-04T12:01:00Z"


async def test_what_was_sent_and_answered_goes_with_its_day(world: World) -> None:
    async with serving(answering("x" * 5_000)) as site, world.on(site) as schedules:
        made = await schedules.create(action={"kind": "http", "url": site.url()}, **AT_12_01)
        await schedules.start()
        await world.seconds(30)
        await site.until(1)
        await world.recorded(schedules, made.schedule_id)
        assert [one.detail is not None for one in await world.attempts(made.schedule_id)] == [True]
        await schedules.stop()
        day_after = world.clock.now() + 2 * 86_400_000_000
        while await world.store.prune_day(day_after) is not None:
            pass
        assert await world.attempts(made.schedule_id) == []
        assert (await schedules.statistics(made.schedule_id)).all_runs == 1


async def test_a_retry_is_a_stored_instant_that_survives_a_restart(world: World) -> None:
    async with serving(in_turn(answering("no", 500), answering("yes"))) as site:
        async with world.on(site) as first:
            action = {"kind": "http", "url": site.url()}
            made = await first.create(action=action, retry={"attempts": 3, "delay_seconds": 300}, **AT_12_01)
            await first.start()
            await world.seconds(30)
            await site.until(1)
            assert (await world.ended(first, made.schedule_id)).state == "waiting"
        async with world.on(site) as second:
            await second.start()
            await world.seconds(299)
            assert len(site.asked) == 1
            await world.seconds(2)
            await site.until(2)
            found = await world.ended(second, made.schedule_id)
    assert (found.state, found.attempts) == ("succeeded", 2)
    one, two = found.tried
    assert one.detail is not None
    assert two.detail is not None
    assert (one.outcome, one.detail["error"]["kind"], one.detail["response"]["body"]) == ("failed", "status", "no")
    assert (two.outcome, two.detail["attempt"], two.detail["response"]["body"]) == ("succeeded", 2, "yes")
    assert [asked.headers["Noonbell-Attempt"] for asked in site.asked] == ["1", "2"]
    assert len({asked.headers["Idempotency-Key"] for asked in site.asked}) == 1


@pytest.mark.parametrize(
    ("retry_after", "retry", "comes_after"),
    [
        ("120", {"attempts": 2, "delay_seconds": 5}, 120),
        ("Wed, 04 Mar 2026 12:11:00 GMT", {"attempts": 2, "delay_seconds": 5}, 600),
        ("2", {"attempts": 2, "delay_seconds": 60}, 60),
        ("900", {"attempts": 2, "delay_seconds": 5, "max_delay_seconds": 30}, 30),
        ("999999", {"attempts": 2, "delay_seconds": 5}, 3600),
        ("nonsense", {"attempts": 2, "delay_seconds": 5}, 5),
    ],
)
async def test_when_the_other_side_asks_to_wait_it_is_waited(
    world: World, retry_after: str, retry: dict[str, Any], comes_after: int
) -> None:
    later = answering("busy", 503, {"Retry-After": retry_after})
    async with serving(in_turn(later, answering())) as site, world.on(site) as schedules:
        made = await schedules.create(action={"kind": "http", "url": site.url()}, retry=retry, **AT_12_01)
        await schedules.start()
        await world.seconds(30)
        await site.until(1)
        assert (await world.ended(schedules, made.schedule_id)).state == "waiting"
        await world.seconds(comes_after - 1)
        assert len(site.asked) == 1
        await world.seconds(1)
        await site.until(2)
        assert (await world.ended(schedules, made.schedule_id)).state == "succeeded"


async def test_a_stop_hands_back_what_waits_for_a_slot(world: World) -> None:
    gate = asyncio.Event()

    async def handle(_: web.Request) -> web.Response:
        await gate.wait()
        return web.Response(text="ok")

    async with serving(handle) as site:
        async with world.on(site, http_limits=HttpLimits(total=1)) as first:
            ids = [
                (await first.create(action={"kind": "http", "url": site.url(f"/{n}")}, **AT_12_01)).schedule_id
                for n in range(3)
            ]
            await first.start()
            await world.seconds(30)
            await site.until(1)
            stopping = asyncio.ensure_future(first.stop())
            await world.clock.settle()
            gate.set()
            await stopping
            assert [asked.path for asked in site.asked] == ["/0"]
            states = [(await first.occurrences(one)).items[0] for one in ids]
            assert [(one.state, one.attempts) for one in states] == [("succeeded", 1), ("queued", 0), ("queued", 0)]
        async with world.on(site) as second:
            await second.start()
            await world.seconds(1)
            await site.until(3)
            for one in ids:
                assert (await world.ended(second, one)).state == "succeeded"
    assert {asked.path: asked.headers["Noonbell-Attempt"] for asked in site.asked} == {"/0": "1", "/1": "1", "/2": "1"}


async def test_the_same_schedules_can_start_again_after_a_stop(world: World) -> None:
    async with serving(answering()) as site, world.on(site) as schedules:
        made = await schedules.create(action={"kind": "http", "url": site.url()}, type="cron", spec="* * * * *")
        for life in (1, 2):
            await schedules.start()
            await world.seconds(60)
            await site.until(life)
            await world.ended(schedules, made.schedule_id)
            await schedules.stop()
        assert len(site.asked) == 2


@pytest.mark.parametrize("via", ["manual", "api"])
async def test_who_asked_for_a_run_is_kept(world: World, via: Any) -> None:
    async with serving(answering()) as site, world.on(site) as schedules:
        made = await schedules.create(action={"kind": "http", "url": site.url()}, type="cron", spec="0 0 1 1 *")
        await schedules.start()
        run_id = await schedules.trigger(made.schedule_id, via=via)
        await world.seconds(0.1)
        await site.until(1)
        await world.recorded(schedules, made.schedule_id)
        (tried,) = await world.attempts(made.schedule_id)
    assert site.asked[0].headers["Idempotency-Key"] == run_id
    assert tried.cause == via
    assert tried.detail is not None
    assert unpack(tried.detail)["triggered_by"] == via


# --- secrets and signatures -------------------------------------------------------------------------------------------


def echoing() -> Handler:
    async def handle(request: web.Request) -> web.Response:
        said = f"{request.path_qs} {request.headers.get('X-Key')} {(await request.read()).decode()}"
        return web.Response(text=said, headers={"X-Said": request.headers.get("X-Key", "")})

    return handle


async def test_secrets_are_sent_and_not_kept(world: World) -> None:
    async with serving(echoing()) as site, world.on(site, secrets=world.ring) as schedules:
        await schedules.secrets.put("default", "KEY", SECRET)
        action = {
            "kind": "http",
            "url": site.url("/p/${secrets.KEY}"),
            "query": {"q": "${secrets.KEY}"},
            "headers": {"X-Key": "${secrets.KEY}"},
            "body": {"json": {"key": "${secrets.KEY}"}},
            "auth": {"basic": {"user": "me", "password": "${secrets.KEY}"}},
        }
        made = await schedules.create(action=action, **AT_12_01)
        await schedules.start()
        await world.seconds(30)
        await site.until(1)
        found = await world.ended(schedules, made.schedule_id)
    (asked,) = site.asked
    assert asked.headers["X-Key"] == SECRET
    assert asked.body.decode() == f'{{"key":"{SECRET}"}}'
    quoted = SECRET.replace(" ", "%20")
    assert asked.path == f"/p/{quoted}?q={SECRET.replace(' ', '+')}"
    assert found.state == "succeeded"
    detail = found.tried[0].detail
    assert detail is not None
    assert detail["request"]["body"] == '{"key":"***"}'
    assert ["X-Said", "***"] in detail["response"]["headers"]
    assert "***" in detail["response"]["body"]
    told = str(detail)
    assert all(form not in told for form in (SECRET, quoted, SECRET.replace(" ", "+")))


async def test_a_secret_that_is_not_there_fails_before_anything_is_sent(world: World) -> None:
    async with serving(answering()) as site, world.on(site, secrets=world.ring) as schedules:
        action = {"kind": "http", "url": site.url(), "headers": {"X-Key": "${secrets.NOBODY}"}}
        made = await schedules.create(action=action, **AT_12_01)
        await schedules.start()
        await world.seconds(31)
        found = await world.ended(schedules, made.schedule_id)
    assert (found.state, site.asked) == ("failed", [])
    detail = found.tried[0].detail
    assert detail is not None
    assert detail["error"]["kind"] == "secret"
    assert "NOBODY" in detail["error"]["message"]
    assert detail["request"] == {"method": "GET", "url": site.url(), "headers": [], "body": None}


async def test_a_receiver_can_tell_who_sent_it(world: World) -> None:
    async with serving(answering()) as site, world.on(site, secrets=world.ring) as schedules:
        signed = {"kind": "http", "url": site.url("/signed"), "body": {"json": {"a": 1}}}
        made = await schedules.create(action=signed, **AT_12_01)
        await schedules.create(action=signed | {"url": site.url("/plain"), "sign": False}, **AT_12_01)
        keys = await schedules.secrets.signing_keys(made.schedule_id)
        await schedules.start()
        await world.seconds(30)
        await site.until(2)
        await world.ended(schedules, made.schedule_id)
    by_path = {asked.path: asked for asked in site.asked}
    receiver = Receiver([key.key for key in keys], clock=lambda: world.clock.now() / 1_000_000)
    message = receiver.verify(by_path["/signed"].headers, by_path["/signed"].body)
    assert (message.run_id.split(":")[0], message.json()) == (made.schedule_id, {"a": 1})
    assert "webhook-signature" not in {name.lower() for name in by_path["/plain"].headers}


async def test_what_must_be_signed_is_not_sent_without_a_key(world: World) -> None:
    async with serving(answering()) as site, world.on(site) as schedules:
        made = await schedules.create(action={"kind": "http", "url": site.url(), "sign": True}, **AT_12_01)
        await schedules.start()
        await world.seconds(31)
        found = await world.ended(schedules, made.schedule_id)
    assert (found.state, site.asked) == ("failed", [])
    assert found.tried[0].error is not None
    assert "master key" in found.tried[0].error
