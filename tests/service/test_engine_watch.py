"""A process without an engine: it reports within 90 seconds that no engine polls, and that one polls again.

Time is manual. The engine has a clock of its own: where that one stands still, its process does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from noonbell import Schedules
from noonbell.actions.egress import Egress, EgressPolicy
from noonbell.actions.secrets.keys import new_ring
from noonbell.actions.secrets.secrets import Secrets
from noonbell.core.records import Document
from noonbell.errors import RuleInvalidError, StoreError
from noonbell.notify.channels import ChannelSender
from noonbell.notify.engine_watch import EngineWatch
from noonbell.notify.notice_records import ENGINE_REPORT
from noonbell.ports import PARTS, DocumentFilter, Ledger
from noonbell.store.memory import MemoryStore
from noonbell.store.wrapping import verbs_of, with_verbs
from noonbell.testing import ManualClock
from tests.notify.servers import Hook, hook_server
from tests.patience import until

NOON = datetime(2026, 3, 4, 12, 0, 0, tzinfo=UTC)


class Shared:
    """A store as one process sees it; with `away` every verb fails."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.away = False
        for part in PARTS:
            whole = getattr(store, part)
            setattr(
                self, part, with_verbs(whole, {name: self._watched(verb) for name, verb in verbs_of(whole).items()})
            )
        self.holder = self._watched(store.holder)
        self.read = self._watched(store.read)
        self.snapshot = self._watched(store.snapshot)
        self.lease_seconds = store.lease_seconds

    def _watched(self, found: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def verb(*arguments: Any, **named: Any) -> Any:
            if self.away:
                raise StoreError("the connection was refused")
            return await found(*arguments, **named)

        return verb


class World:
    """An engine, and watches in other processes."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.clock = ManualClock(NOON)  # of the watches
        self.engine_clock = ManualClock(NOON)
        self.store = MemoryStore()
        self.seen = Shared(self.store)
        self.keys = new_ring()
        self.engine = Schedules(self.store, clock=self.engine_clock, secrets=self.keys)
        self.watches: list[EngineWatch] = []
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def rule(self, **more: Any) -> None:
        """A webhook that is signed and has a secret: both have to be at hand while the store is away."""
        config = {"url": f"{self.hook.url}/hook", "headers": {"X-Token": "a secret of the hook"}}
        await self.engine.channels.create(name="ops", kind="webhook", config=config, channel_id="ops")
        await self.engine.rules.create(name="engines", on=["no_engine"], channels=["ops"], rule_id="engines", **more)

    async def watch(self, *, of_a_rule: bool = True) -> EngineWatch:
        """A watch that has read its channels: opening secrets takes a while on no clock of ours."""
        egress = Egress(EgressPolicy(allow=(self.hook.place,)))
        seen = cast("Ledger", self.seen)
        secrets = Secrets(seen, self.keys, self.clock)
        sender = ChannelSender(self.clock, egress=egress, secrets=secrets)
        watch = EngineWatch(seen, self.clock, sender, lane="default", public_url="https://bell.test/")
        self.watches.append(watch)
        self._tasks.append(asyncio.create_task(watch.run(self._stop)))

        async def has_read() -> bool:
            await self.together(1)
            return bool(watch._targets)

        if of_a_rule:
            await until(has_read)
        return watch

    async def together(self, seconds: int) -> None:
        """Let time pass for the engine and the watches."""
        for _ in range(seconds):
            await self.engine_clock.advance(timedelta(seconds=1))
            await self.clock.advance(timedelta(seconds=1))

    async def frozen(self, seconds: float) -> None:
        """Let time pass while the engine does nothing."""
        await self.clock.advance(timedelta(seconds=seconds))
        self.engine_clock.step(timedelta(seconds=seconds))

    async def arrived(self, count: int, *, frozen: bool = True) -> list[dict[str, Any]]:
        """What came, once there is so much; time passes meanwhile: the network takes a while on no clock of ours."""

        async def enough() -> bool:
            await (self.frozen(1) if frozen else self.together(1))
            return self.hook.count >= count and not any(watch._pending for watch in self.watches)

        await until(enough)
        return [came.json["data"] for came in self.hook.came]

    async def report(self) -> list[Document]:
        return await self.store.documents.find(DocumentFilter(ENGINE_REPORT, ["default"]))

    async def end(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)


def kill(world: World) -> None:
    """The engine dies: its lock is free at once."""
    world.store.data.held.clear()


def freeze(world: World) -> None:
    """Nothing: its clock stands still from now on, and it is alive."""


def lose_database(world: World) -> None:
    world.seen.away = True


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with hook_server() as hook:
        made = World(hook)
        await made.store.open()
        await made.engine.start()
        yield made
        made.seen.away = False
        await made.end()
        with contextlib.suppress(StoreError):
            stopping = asyncio.ensure_future(made.engine.stop())
            while not stopping.done():
                await made.engine_clock.advance(timedelta(minutes=1))
                await asyncio.sleep(0)
            await stopping


@pytest.mark.parametrize("trouble", [kill, freeze, lose_database])
async def test_no_engine_is_reported_within_90_seconds(world: World, trouble: Callable[[World], None]) -> None:
    await world.rule()
    watch = await world.watch()
    await world.together(120)
    assert watch.poll_age < 10
    began = world.clock.now()
    trouble(world)
    await world.frozen(50)
    assert world.hook.came == []
    await world.frozen(40)
    (told,) = await world.arrived(1)
    assert told["event"] == "no_engine"
    assert (told["subject"], told["name"]) == ("lane", "default")
    assert told["title"] == "No engine runs the lane default"
    assert told["link"] == "https://bell.test/instances"
    at = datetime.fromisoformat(told["at"])
    assert (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) - began <= 90_000_000
    assert ("The database does not answer: " in told["text"]) is (trouble is lose_database)
    assert world.hook.came[0].headers["X-Token"] == "a secret of the hook"
    assert world.hook.came[0].headers["webhook-signature"].startswith("v1,")
    assert watch.stalled, "it lasts"
    # once
    await world.frozen(600)
    assert len(world.hook.came) == 1


@pytest.mark.parametrize("trouble", [freeze, lose_database])
async def test_the_recovery_is_reported_once(world: World, trouble: Callable[[World], None]) -> None:
    await world.rule()
    await world.watch()
    await world.together(10)
    trouble(world)
    await world.frozen(90)
    await world.arrived(1)
    world.seen.away = False
    told = await world.arrived(2, frozen=False)
    assert [one["event"] for one in told] == ["no_engine", "recovered"]
    assert told[1]["title"] == "An engine runs the lane default again"
    await world.together(120)
    assert len(world.hook.came) == 2
    assert await world.report() == []


async def test_processes_that_share_a_store_report_once(world: World) -> None:
    await world.rule()
    await world.watch()
    await world.together(2)  # the second looks at other moments
    await world.watch()
    await world.together(10)
    await world.frozen(120)
    await world.arrived(1)
    await world.frozen(60)
    assert len(world.hook.came) == 1
    assert len(await world.report()) == 1
    # one that is started while no engine polls adds nothing, and knows of it
    await world.watch(of_a_rule=False)
    await world.frozen(120)
    assert len(world.hook.came) == 1
    await world.arrived(2, frozen=False)
    await world.together(20)
    assert [came.json["data"]["event"] for came in world.hook.came] == ["no_engine", "recovered"]


async def test_a_channel_that_fails_is_tried_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.rule()
    world.hook.answers = [(500, "no"), (500, "no")]
    await world.watch()
    await world.together(5)
    await world.frozen(70)
    assert {one["event"] for one in await world.arrived(3)} == {"no_engine"}
    await world.frozen(60)
    assert len(world.hook.came) == 3
    assert "notice failed channel=ops event=no_engine" in caplog.text
    assert "no engine lane=default last_poll_seconds=" in caplog.text


async def test_other_rules_and_other_lanes_are_left_alone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.rule()
    await world.engine.rules.update("engines", on=["failed", "recovered"])
    await world.watch(of_a_rule=False)
    await world.together(5)
    await world.frozen(120)
    assert world.hook.came == []
    assert "no engine lane=default" in caplog.text  # the log has it in any case


@pytest.mark.parametrize("field", ["tag", "schedule_id", "monitor_id"])
async def test_a_rule_of_one_schedule_cannot_be_about_engines(world: World, field: str) -> None:
    with pytest.raises(
        RuleInvalidError, match=f"on 'no_engine' is about a whole lane and cannot be combined with {field}"
    ):
        await world.rule(**{field: "x"})
