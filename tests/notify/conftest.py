"""What the tests of notifications share: servers to tell, secrets, and schedules on manual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from noonbell import Schedules
from noonbell.actions.callback import Call
from noonbell.actions.egress import Egress, EgressPolicy
from noonbell.actions.secrets.keys import KeyRing, new_ring
from noonbell.engine import membership
from noonbell.ports import Ledger
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from noonbell.testing import ManualClock
from tests.notify.servers import Hook, hook_server
from tests.patience import PATIENCE_SECONDS

NOON = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)


@pytest.fixture(autouse=True, scope="module")
def _alone() -> Iterator[None]:
    """No other engine is looked for: on manual time that would be hundreds of looks."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(membership, "LOOK", 3_600_000_000)
        patched.setattr(membership, "BEAT", 3_600_000_000)
        yield


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    async with hook_server() as made:
        yield made


class World:
    """Schedules whose only callback does what `plan` says next: None succeeds, a text fails with it."""

    def __init__(self, store: Ledger, hook: Hook) -> None:
        self.store = store
        self.hook = hook
        self.clock = ManualClock(NOON)
        self.keys: KeyRing = new_ring()
        self.plan: list[str | None] = []
        self.takes = timedelta(0)
        self.schedules = self.new()

    def new(self, **options: Any) -> Schedules:
        egress = Egress(EgressPolicy(allow=(self.hook.place,)))
        return Schedules(
            self.store, clock=self.clock, callbacks={"work": self.work}, secrets=self.keys, egress=egress,
            longest_wait=timedelta(minutes=1), public_url="https://cron.test/", **options,
        )  # fmt: skip

    async def work(self, call: Call) -> None:
        if self.takes:
            await self.clock.sleep(self.takes.total_seconds())
        error = self.plan.pop(0) if self.plan else None
        if error is not None:
            raise RuntimeError(error)

    async def channel(self, **options: Any) -> str:
        made = await self.schedules.channels.create(
            name="ops", kind="webhook", config={"url": f"{self.hook.url}/hook"}, channel_id="ops", **options
        )
        return made.channel_id

    async def schedule(self, **fields: Any) -> str:
        given: dict[str, Any] = {
            "name": "backup", "type": "cron", "spec": "* * * * *", "action": {"kind": "callback", "name": "work"},
        }  # fmt: skip
        return (await self.schedules.create(**(given | fields))).schedule_id

    async def minutes(self, minutes: float) -> None:
        await self.clock.advance(timedelta(minutes=minutes))

    async def told(self, count: int) -> list[dict[str, Any]]:
        """The events that came to the hook, once there are so many; the network takes a while on no clock of ours."""
        await self.hook.wait_for(count)
        await self.settled()
        return [came.json for came in self.hook.came]

    async def settled(self) -> None:
        """Wait until nothing of the outbox is under way any more."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self._under_way():  # noqa: ASYNC110 - the network and the store tell nobody when they are done
                await asyncio.sleep(0.01)

    async def _under_way(self) -> bool:
        return bool(await self.store.outbox.owned(self.schedules._lane.instance or ""))

    async def stop(self, schedules: Schedules | None = None) -> None:
        task = asyncio.ensure_future((self.schedules if schedules is None else schedules).stop())
        while not task.done():
            await self.minutes(10)
            await asyncio.sleep(0.01)
        await task


def events(told: list[dict[str, Any]]) -> list[str]:
    return [one["data"]["event"] for one in told]


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path, hook: Hook) -> AsyncIterator[World]:
    store: Ledger = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.db", threaded=False)
    await store.open()
    made = World(store, hook)
    yield made
    await made.stop()
    await store.close()
