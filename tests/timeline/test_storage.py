"""The storage suite on a store behind a timeline: a claim must mean the same with Redis as without."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from noonbell.core.records import DECLARED_OWNERS
from noonbell.ports import LaneClaim, Ledger, ScheduleChange
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock
from noonbell.testing.storage_cases.base import T0
from noonbell.testing.storage_cases.messages import schedule, send
from noonbell.testing.storage_suite import StorageSuite
from noonbell.timeline import RedisTimeline, TimelineStore
from noonbell.timeline.keeping import Keeper
from tests.redis_server import RedisServer
from tests.store.overriding import Overriding


class AlwaysWhole(Overriding, TimelineStore):
    """Its set is filled before the first claim of a lane: no claim of the suite goes round it."""

    async def runs_claim(self, lane: str, *more: Any, **named: Any) -> LaneClaim:
        if not lane.startswith(DECLARED_OWNERS) and not self.lane(lane).whole:
            await Keeper(self, self._store, self._clock, lane, lambda _: None).run_once()
            assert self.lane(lane).whole
        return await self.plain.runs.claim(lane, *more, **named)


class TestBehindATimeline(StorageSuite):
    url: str

    @pytest.fixture(autouse=True)
    def _server(self, redis_server: RedisServer) -> None:
        self.url = redis_server.url

    def _fronted(self, store: MemoryStore, namespace: str) -> AlwaysWhole:
        return AlwaysWhole(store, RedisTimeline(self.url, namespace=namespace), ManualClock(T0))

    async def make_store(self) -> Ledger:
        return self._fronted(MemoryStore(), uuid.uuid4().hex)

    async def reopen(self, store: Ledger) -> Ledger:
        assert isinstance(store, AlwaysWhole)
        assert isinstance(store._store, MemoryStore)
        return self._fronted(MemoryStore(store._store.data), store.timeline.namespace or "")

    async def test_the_claims_of_the_suite_go_through_redis(self) -> None:
        store = self._fronted(MemoryStore(), uuid.uuid4().hex)
        await store.open()
        await store.schedules.apply(ScheduleChange([schedule("a"), schedule("b")], T0, "suite"))
        await send(store, T0, a="x", b="y")
        assert (store.counters.popped, store.counters.errors) == (2, 0)
        await store.close()
